package gitcmd

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/tools"
)

// refName says why s cannot be the name of a branch. It accepts nothing that git
// would take for an option and nothing that git-check-ref-format(1) refuses.
func refName(argument, s string) error {
	why := ""
	switch {
	case s == "":
		why = "is empty"
	case len(s) > maxName:
		why = "is longer than 1024 bytes"
	case s == "HEAD" || s == "@":
		why = "means the present commit"
	case strings.HasPrefix(s, "-"):
		why = "begins with a dash"
	case strings.HasPrefix(s, "/"), strings.HasSuffix(s, "/"), strings.Contains(s, "//"):
		why = "has a slash too many"
	case strings.Contains(s, ".."), strings.HasSuffix(s, "."), strings.Contains(s, "@{"):
		why = `has "..", "@{" or a dot at its end`
	case !utf8.ValidString(s), strings.ContainsFunc(s, bad), strings.ContainsAny(s, `~^:?*[\`):
		why = "has a character that no branch can have"
	}
	for part := range strings.SplitSeq(s, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			why = `has a part that begins with a dot or ends in ".lock"`
		}
	}
	if why == "" {
		return nil
	}
	return tools.Invalid("%q: %s %s; give the plain name of a branch, such as main or feature/login", argument, tools.Quote(s), why)
}

// revision says why s cannot name a commit here. Paths in commits (HEAD:file) are left
// out: they would show files past the policy about files.
func revision(argument, s string) error {
	if s != "" && len(s) <= maxName && !strings.HasPrefix(s, "-") && !strings.HasPrefix(s, "^") && utf8.ValidString(s) &&
		!strings.ContainsFunc(s, bad) && !strings.ContainsAny(s, `:?*[\`) && !strings.Contains(s, "..") {
		return nil
	}
	return tools.Invalid("%q: %s cannot name a commit; give a branch, a tag, a hash, or something like HEAD~2", argument, tools.Quote(s))
}

// bad are the characters that may draw something else on a card than they are.
func bad(r rune) bool {
	return unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
}

// span takes A, A..B and A...B apart.
func span(argument, s string) (revs []string, err error) {
	sep := ".."
	if strings.Contains(s, "...") {
		sep = "..."
	}
	revs = strings.Split(s, sep)
	if len(revs) > 2 {
		return nil, tools.Invalid("%q: %s names more than two commits; give A, A..B or A...B", argument, tools.Quote(s))
	}
	for _, r := range revs {
		if err := revision(argument, r); err != nil {
			return nil, err
		}
	}
	return revs, nil
}

// remoteName says why s cannot be the name of a configured remote. Addresses are not
// accepted: people approve the address that the name stands for.
func remoteName(s string) error {
	if err := refName("remote", s); err != nil {
		return tools.Invalid(`"remote": %s is no name of a remote; give one of those that "git remote" lists, not an address`, tools.Quote(s))
	}
	return nil
}

// fileName says why s cannot name a file.
func fileName(argument, s string) error {
	if s == "" || len(s) > 4096 || strings.ContainsRune(s, 0) {
		return tools.Invalid("%q holds a name that no file can have; give paths of 1 to 4096 bytes", argument)
	}
	return nil
}
