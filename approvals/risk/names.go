package risk

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// argKind says what is known of arguments that only show when a text runs.
type argKind int

const (
	// anyNames can name anything.
	anyNames argKind = iota
	// listedNames are lines of a list of files below harmless roots. A name with a blank in
	// it becomes several arguments, and those can name anything; the first argument is
	// below a root.
	listedNames
	// wholeNames are files below harmless roots, one for each argument.
	wholeNames
)

// hidesContent reports whether nothing shows of what is in the files that the unknown arguments
// of a call name.
func (j *judge) hidesContent(c *call) bool {
	switch j.xargsNames {
	case wholeNames:
		return true
	case listedNames:
		grep := slices.Contains([]string{"grep", "egrep", "fgrep"}, c.root.name)
		return c.spec.meta || j.counted || grep && c.has("-l", "--files-with-matches", "-L", "--files-without-match", "-c", "--count", "-q", "--quiet", "--silent")
	case anyNames:
	}
	return false
}

// awkCounts is an awk program that counts lines.
var awkCounts = regexp.MustCompile(`^(!?/[^/]*/)? *\{ *(\+\+ *[a-z]+|[a-z]+ *\+\+) *;? *\} *END *\{ *print +[a-z]+ *;? *\}$`)

// onlyCounts reports whether a command shows no more of what it reads from a pipe than a
// number or a checksum.
func onlyCounts(s *syntax.Stmt) bool {
	args := plainWords(s)
	if len(args) == 0 {
		return false
	}
	switch rest := args[1:]; args[0] {
	case "wc":
		return !slices.ContainsFunc(rest, func(a string) bool { return len(a) < 2 || a[0] != '-' || strings.Trim(a[1:], "clmwL") != "" })
	case "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum", "sum":
		return len(rest) == 0
	case "grep":
		return len(rest) == 2 && (rest[0] == "-c" || rest[0] == "-q") && !strings.HasPrefix(rest[1], "-")
	case "awk":
		return len(rest) == 1 && awkCounts.MatchString(rest[0])
	}
	return false
}

// plainWords returns the words of a command without redirections and assignments, as they
// are written or between quotes; none if one of them is more than that.
func plainWords(s *syntax.Stmt) []string {
	if s == nil || len(s.Redirs) > 0 {
		return nil
	}
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Assigns) > 0 {
		return nil
	}
	var out []string
	for _, a := range c.Args {
		if len(a.Parts) != 1 {
			return nil
		}
		part, quoted := a.Parts[0], false
		if q, ok := part.(*syntax.DblQuoted); ok && !q.Dollar && len(q.Parts) == 1 {
			part, quoted = q.Parts[0], true
		}
		switch p := part.(type) {
		case *syntax.SglQuoted:
			if p.Dollar {
				return nil
			}
			out = append(out, p.Value)
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, `\`) || !quoted && strings.ContainsAny(p.Value, "*?[{~") {
				return nil
			}
			out = append(out, p.Value)
		default:
			return nil
		}
	}
	return out
}

// pipedNames returns what a pipe brings to xargs. zero is that each name ends with a zero byte.
func pipedNames(j *judge, s *syntax.Stmt, zero bool) argKind {
	if s == nil || len(s.Redirs) > 0 {
		return anyNames
	}
	switch c := s.Cmd.(type) {
	case *syntax.BinaryCmd:
		if args := plainWords(c.Y); c.Op == syntax.Pipe && keepsNames(args, zero) {
			return pipedNames(j, c.X, zero)
		}
	case *syntax.CallExpr:
		if args := plainWords(s); len(args) > 0 && args[0] == "ls" && !zero {
			return lsOutput(j, args)
		}
		words := make([]word, 0, len(c.Args))
		for _, a := range c.Args {
			w, why := j.resolveWord(a)
			if why != "" {
				return anyNames
			}
			words = append(words, w)
		}
		return findOutput(j, words, zero)
	}
	return anyNames
}

// keepsNames reports whether a filter passes on some of the names that it reads, as they are.
func keepsNames(args []string, zero bool) bool {
	if len(args) == 0 {
		return false
	}
	if args[0] == "awk" {
		return !zero && len(args) == 2 && (args[1] == "{print $0}" || args[1] == "{print}")
	}
	ended, operands := false, 0
	for _, a := range args[1:] {
		switch {
		case a == "-z":
			ended = true
		case a == "-v" || a == "-i" || a == "-E" || a == "-F" || a == "-r" || a == "-u":
		case strings.HasPrefix(a, "-n") && isDigits(a[2:]), len(a) > 1 && a[0] == '-' && isDigits(a[1:]):
		case a == "" || a[0] == '-':
			return false
		default:
			operands++
		}
	}
	switch args[0] {
	case "head", "tail", "sort", "uniq":
		return ended == zero && operands == 0
	case "grep":
		return ended == zero && operands == 1
	}
	return false
}

// findOutput returns what a find prints.
func findOutput(j *judge, words []word, zero bool) argKind {
	if len(words) < 2 || !words[0].is("find") || zero && !words[len(words)-1].is("-print0") {
		return anyNames
	}
	for i, w := range words {
		other := slices.ContainsFunc([]string{"-ls", "-printf", "-L", "-follow", "-H", "-exec", "-execdir", "-ok", "-okdir"}, w.is)
		if other || w.is("-print") && zero || w.is("-print0") && (!zero || i < len(words)-1) || secretWord(w.text) {
			return anyNames
		}
	}
	roots := findRoots(words)
	if len(roots) == 0 {
		roots = []word{lit(".")}
	}
	if slices.ContainsFunc(roots, func(w word) bool {
		return w.kind != wordLit || j.treeHasSecrets(w.text) || j.secret(w) != "" || j.device(w.text)
	}) {
		return anyNames
	}
	if zero {
		return wholeNames
	}
	return listedNames
}

// lsOutput returns what an ls of the directory prints.
func lsOutput(j *judge, args []string) argKind {
	if j.treeHasSecrets(".") || slices.ContainsFunc(args[1:], func(a string) bool { return len(a) < 2 || a[0] != '-' || strings.Trim(a[1:], "1AaprtSUv") != "" }) {
		return anyNames
	}
	return listedNames
}

// secretWord reports whether an argument of find asks for secrets by name.
func secretWord(s string) bool {
	return secretPath(word{text: s, kind: wordGlob}) != "" || secretPath(word{text: strings.ReplaceAll(s, ".*", "*"), kind: wordGlob}) != ""
}

// findRoots returns the words where find starts.
func findRoots(argv []word) []word {
	i := 1
	for i < len(argv) && (argv[i].is("-H") || argv[i].is("-L") || argv[i].is("-P")) {
		i++
	}
	from := i
	for i < len(argv) && !argv[i].mayBeOption() && !argv[i].is("(") && !argv[i].is("!") {
		i++
	}
	return argv[from:i]
}
