package risk

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// The plain core is what is proven without a lock, and for an unknown shell: lists of pipelines of
// known programs with literal words.

// onlyLocked records a form outside the plain core: it is proven under a lock only.
func (j *judge) onlyLocked(what string) {
	switch {
	case j.locked && j.shell != AnyShell:
		j.lockOnly = true
	case j.remote:
		j.addPlaceIssue(Low, EffectUnknown, "no lock holds at the other end, so only plain commands run there unasked: this one has %s", what)
	case j.shell == AnyShell:
		j.addPlaceIssue(Low, EffectUnknown, "the shell that reads it is not known, so only plain commands run unasked: this one has %s", what)
	default:
		j.addPlaceIssue(Low, EffectUnknown, "without a lock only plain commands run unasked: this one has %s", what)
	}
}

// bashOnly refuses a form that other shells read differently from bash.
func (j *judge) bashOnly(what string) {
	if j.shell != Bash {
		j.add(Medium, EffectUnknown, "%s means something else to other shells than bash", what)
	}
}

func parse(command string, lang syntax.LangVariant) (*syntax.File, error) {
	return bash.ParseAs(lang, command)
}

// shellMismatch returns why a text that is not only for bash may mean something else in another shell,
// or "".
func shellMismatch(command string, file *syntax.File, shell Shell) string {
	if shell == Bash {
		return ""
	}
	if shell == AnyShell {
		if why := shellDifference(command); why != "" {
			return why
		}
	}
	// The two grammars agree if both produce the same structure.
	posix, err := parse(command, syntax.LangPOSIX)
	if err != nil {
		return "a plain sh reads this in another way than bash"
	}
	var a, b strings.Builder
	if syntax.NewPrinter().Print(&a, file) != nil || syntax.NewPrinter().Print(&b, posix) != nil || a.String() != b.String() {
		return "a plain sh reads this in another way than bash"
	}
	if shell == AnyShell && mixesLists(file.Stmts) {
		return "not every shell gives `&&` and `||` the same rank"
	}
	return ""
}

// mixesLists reports whether a list has && after ||: tcsh binds && tighter.
func mixesLists(stmts []*syntax.Stmt) bool {
	for _, s := range stmts {
		and, or := false, false
		syntax.Walk(s, func(n syntax.Node) bool {
			if b, ok := n.(*syntax.BinaryCmd); ok {
				and, or = and || b.Op == syntax.AndStmt, or || b.Op == syntax.OrStmt
			}
			return true
		})
		if and && or {
			return true
		}
	}
	return false
}

// shellDifference returns why bash, dash, ash, zsh, fish and tcsh may split a text differently, or "". It
// allows only what was tested to be the same in all of them.
func shellDifference(s string) string {
	const differs = "not every shell reads %s in the same way"
	why := func(what string) string { return strings.Replace(differs, "%s", what, 1) }
	start := true // of a word
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_./:,+@-", c) >= 0:
			start = false
		case c == ' ', c == '\t', c == '\n', c == ';', c == '|':
			start = true
			if c == '|' && i+1 < len(s) && s[i+1] == '&' {
				return why("`|&`")
			}
			if c == '|' && strings.HasPrefix(strings.TrimLeft(s[i+1:], " \t"), "\n") {
				return why("a line that ends with an operator") // tcsh runs the next one regardless of the first
			}
		case c == '&':
			if i+1 >= len(s) || s[i+1] != '&' || i+2 < len(s) && s[i+2] == '&' {
				return why("`&`")
			}
			if strings.HasPrefix(strings.TrimLeft(s[i+2:], " \t"), "\n") {
				return why("a line that ends with an operator")
			}
			i++
			start = true
		case c == '=' || c == '%':
			if start {
				return why("`" + string(c) + "` at the beginning of a word") // zsh's =ls, jobs
			}
		case c == '*':
			// If nothing matches, zsh, fish and tcsh run nothing. If something does, they differ
			// unless the name has just one star.
			if i == 0 || i+1 < len(s) && s[i+1] == '*' || !plainStar(s, i) {
				return why("this pattern")
			}
			start = false
		case c == '\'' || c == '"':
			end := strings.IndexByte(s[i+1:], c)
			if end < 0 {
				return why("these quotes")
			}
			in := s[i+1 : i+1+end]
			if next := i + 2 + end; in == "" && start && next < len(s) && strings.IndexByte(" \t\n;|&", s[next]) < 0 {
				return why("empty quotes in a word") // zsh's ""=ls
			}
			if strings.ContainsAny(in, "!\n") {
				return why("`!` or the end of a line between quotes") // tcsh's history
			}
			if c == '"' && strings.ContainsAny(in, "$`\\") {
				return why("`$`, backquotes and backslashes between quotes")
			}
			if strings.Contains(in, `\\`) || strings.HasSuffix(in, `\`) {
				return why("a backslash between quotes") // fish
			}
			i += end + 1
			start = false
		default:
			return why("`" + string(c) + "`")
		}
	}
	return ""
}

// plainStar reports whether the star at i is in the last name of an absolute path, so that no match
// can be an option.
func plainStar(s string, i int) bool {
	from := strings.LastIndexAny(s[:i], " \t\n;|&'\"") + 1
	to := len(s)
	if n := strings.IndexAny(s[i:], " \t\n;|&"); n >= 0 {
		to = i + n
	}
	word := s[from:to]
	return word[0] == '/' && !strings.ContainsAny(word, "'\"") && !strings.Contains(s[i:to], "/") && (from == 0 || strings.IndexByte("'\"", s[from-1]) < 0)
}

// plainPattern reports whether a pattern is in the plain core: stars and question marks below a
// literal directory.
func plainPattern(w word) bool {
	return (strings.HasPrefix(w.prefix, "/") || strings.HasPrefix(w.prefix, "./")) && !strings.Contains(w.text, "[") && !strings.Contains(w.text, "**")
}

// sameEverywhere are the builtins that read the same in all shells.
var sameEverywhere = []string{":", "cd", "echo", "false", "printf", "pwd", "test", "true"}

// checkContext checks a command for what its table cannot express: dependence on the shell, the lock or the
// place.
func (j *judge) checkContext(name string, argv []word) {
	if j.shell == AnyShell && !slices.Contains(sameEverywhere, name) && (slices.Contains(shellWords, name) || slices.Contains(otherWords, name)) {
		j.onlyLocked("`" + name + "`, which is another command in some shells")
	}
	if j.remote {
		for _, w := range argv {
			if w.kind != wordLit && (w.kind != wordGlob || !plainPattern(w)) {
				j.onlyLocked("a word that is only known when it runs")
				break
			}
		}
	}
	j.addOptionHops(name, argv)
	j.checkEndless(name, argv)
	if name == "find" {
		j.checkFindLinks(argv)
	}
	if (name == "test" || name == "[") && j.shell == AnyShell {
		j.checkTestNumbers(argv)
	}
	if name == "printf" && len(argv) > 1 {
		if wideFormat.MatchString(argv[1].text) {
			j.onlyLocked("a `printf` that fills the memory")
		}
		if j.shell != Bash {
			j.checkPrintf(argv)
		}
	}
}

// wideFormat matches a format with a long width, or one that comes from an argument.
var wideFormat = regexp.MustCompile(`%[^a-zA-Z%]*(\*|[0-9]{4})`)

// checkTestNumbers refuses what zsh evaluates: numbers in test can run code there.
func (j *judge) checkTestNumbers(argv []word) {
	for _, w := range argv[1:] {
		if w.kind == wordLit && slices.Contains([]string{"-t", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-a", "-o", "-v"}, w.text) {
			j.onlyLocked("`test " + w.text + "`")
			return
		}
	}
}

// checkPrintf refuses numbers that are not digits, because ksh and zsh evaluate them, and formats
// assembled from escapes.
func (j *judge) checkPrintf(argv []word) {
	format := argv[1].text
	for i := 0; i+1 < len(format); i++ {
		if format[i] == '\\' {
			if strings.IndexByte(`nt\"`, format[i+1]) < 0 {
				j.add(Medium, EffectUnknown, "the format of `printf` has codes that not every shell reads in the same way")
				return
			}
			i++
		}
	}
	if !strings.Contains(strings.NewReplacer("%s", "", "%%", "").Replace(format), "%") {
		return
	}
	for _, w := range argv[2:] {
		if w.kind != wordLit || !isDigits(w.text) {
			j.add(Medium, EffectUnknown, "some shells evaluate the numbers of `printf`")
			return
		}
	}
}

// checkFindLinks refuses to follow links to files whose content is shown: they lead out of the judged
// directory.
func (j *judge) checkFindLinks(argv []word) {
	follows := slices.ContainsFunc(argv, func(w word) bool { return w.is("-L") || w.is("-H") || w.is("-follow") })
	for k, w := range argv {
		if !w.is("-exec") && !w.is("-execdir") {
			continue
		}
		j.onlyLocked("`" + w.text + "`, which runs another program")
		sys := slices.ContainsFunc(argv, func(w word) bool { return strings.HasPrefix(w.text, "/sys/") })
		if follows && (k+1 >= len(argv) || !metaTool(argv[k+1].text) || sys && opensTool(argv[k+1].text)) {
			j.add(Medium, EffectSecrets, "`find` follows links, which can lead to secrets")
			return
		}
	}
}

// endlessFile reports whether a file never ends.
func (j *judge) endlessFile(w word) bool {
	if w.kind > wordGlob || !strings.Contains(w.text, "zero") && !strings.Contains(w.text, "random") && !strings.Contains(w.text, "full") {
		return false
	}
	return slices.ContainsFunc(j.resolve(w.text).abs, func(p string) bool {
		return slices.Contains(endlessFiles, p)
	})
}

var endlessFiles = []string{"/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"}

// checkEndless refuses reads that never end and would fill memory or the connection.
func (j *judge) checkEndless(name string, argv []word) {
	if name == "ping" || name == "ping6" || name == "fping" || name == "mtr" {
		j.checkFlood(name, argv)
		return
	}
	if name == "yes" {
		j.onlyLocked("an output that never ends")
		return
	}
	specs, err := j.tables()
	if err == nil && specs[name] != nil && specs[name].meta && !specs[name].opens {
		return
	}
	if name == "seq" && slices.ContainsFunc(argv[1:], func(w word) bool { return w.kind != wordLit || len(w.text) > 7 || strings.ContainsAny(w.text, "eExX") }) {
		j.onlyLocked("numbers that may never end")
		return
	}
	bounded := name == "head" && boundedHead(argv)
	for _, w := range argv[1:] {
		joined := strings.HasPrefix(w.text, "-") && slices.ContainsFunc(endlessFiles, func(f string) bool { return strings.Contains(w.text, f) })
		if !bounded && (joined || j.endlessFile(w)) {
			j.onlyLocked("a file that never ends")
			return
		}
	}
}

// boundedHead reports whether head reads at most 10 MB.
func boundedHead(argv []word) bool {
	for i, w := range argv {
		n, ok := strings.CutPrefix(w.text, "-c")
		if !ok {
			n, ok = strings.CutPrefix(w.text, "--bytes=")
		}
		if ok && n == "" && i+1 < len(argv) {
			n = argv[i+1].text
		}
		if ok {
			return isDigits(n) && len(n) < 8
		}
	}
	return false
}

// checkFlood refuses packets that are faster or larger than a check needs; no lock stops them.
func (j *judge) checkFlood(name string, argv []word) {
	least := 0.2 // seconds
	if name == "fping" {
		least = 10 // milliseconds
	}
	for i := 1; i < len(argv); i++ {
		t := argv[i].text
		if len(t) < 2 || t[0] != '-' {
			continue
		}
		option, value := "", ""
		if strings.HasPrefix(t, "--") {
			option, value, _ = strings.Cut(t, "=")
			if value == "" && i+1 < len(argv) {
				value = argv[i+1].text
			}
		}
		for k := 1; k < len(t) && option == ""; k++ {
			switch t[k] {
			case 'f', 'A', 'l':
				j.add(Medium, EffectEgress, "`%s %s` can flood the network", name, t)
				return
			case 'c', 'W', 'w', 'i', 's', 't', 'I', 'M', 'Q', 'm', 'p', 'B':
				option, value = "-"+t[k:k+1], t[k+1:]
				if value == "" && i+1 < len(argv) {
					value = argv[i+1].text
					i++
				}
			}
		}
		n, ok := parseNumber(value)
		switch option {
		case "-i", "--interval":
			if !ok || n < least {
				j.add(Medium, EffectEgress, "`%s -i %s` can flood the network", name, value)
				return
			}
		case "-s", "-B", "--psize", "--size", "--packetsize":
			if option == "-s" && name == "mtr" && !ok {
				continue
			}
			if !ok || n > 1472 {
				j.add(Medium, EffectEgress, "`%s -s %s` can flood the network", name, value)
				return
			}
		}
	}
}
