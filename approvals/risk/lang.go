package risk

import (
	"regexp"
	"slices"
	"strings"
)

// The small languages that programs read from their arguments. Each rule proves a subset; the rest
// asks.

// findTests maps the words of a find expression that only read to their number of arguments.
var findTests = map[string]int{
	"-name": 1, "-iname": 1, "-path": 1, "-ipath": 1, "-wholename": 1, "-iwholename": 1, "-regex": 1, "-iregex": 1, "-lname": 1, "-ilname": 1,
	"-type": 1, "-xtype": 1, "-size": 1, "-mtime": 1, "-mmin": 1, "-atime": 1, "-amin": 1, "-ctime": 1, "-cmin": 1, "-used": 1,
	"-newer": 1, "-anewer": 1, "-cnewer": 1, "-user": 1, "-group": 1, "-uid": 1, "-gid": 1, "-perm": 1, "-links": 1, "-inum": 1, "-samefile": 1,
	"-fstype": 1, "-regextype": 1, "-context": 1, "-maxdepth": 1, "-mindepth": 1, "-printf": 1,
	"-depth": 0, "-mount": 0, "-xdev": 0, "-noleaf": 0, "-follow": 0, "-daystart": 0, "-empty": 0, "-executable": 0, "-readable": 0, "-writable": 0,
	"-nouser": 0, "-nogroup": 0, "-prune": 0, "-print": 0, "-print0": 0, "-ls": 0, "-quit": 0, "-true": 0, "-false": 0, "-warn": 0, "-nowarn": 0, "-ignore_readdir_race": 0,
	"-not": 0, "-and": 0, "-or": 0, "-a": 0, "-o": 0, "!": 0, "(": 0, ")": 0, ",": 0,
}

func wrapFind(j *judge, name string, argv []word) {
	j.needProcesses(argv)
	i := 1
	for i < len(argv) && (argv[i].is("-H") || argv[i].is("-L") || argv[i].is("-P") || argv[i].is("-O1") || argv[i].is("-O2") || argv[i].is("-O3")) {
		i++
	}
	roots := findRoots(argv)
	j.usesDir = j.usesDir || !j.remote && (len(roots) == 0 || slices.ContainsFunc(argv, func(w word) bool { return strings.HasSuffix(w.text, "newer") || w.is("-samefile") }) ||
		slices.ContainsFunc(roots, func(w word) bool { return w.text == "" || w.text[0] != '/' }))
	for ; i < len(argv); i++ {
		w := argv[i]
		if w.kind == wordOpaque || w.kind == wordGlob && w.mayBeOption() || w.kind == wordAtom && w.multi || w.kind != wordLit && w.mayBeOption() {
			j.add(Medium, EffectUnknown, "an argument of `find` is only known when it runs and could be `-delete`")
			return
		}
		if !w.mayBeOption() && w.text != "(" && w.text != ")" && w.text != "!" && w.text != "," {
			continue // a root; find refuses one behind an expression
		}
		t := w.text
		if t == "-exec" || t == "-execdir" || t == "-ok" || t == "-okdir" {
			n := j.findExec(argv[i:], roots, argv)
			if n == 0 {
				return
			}
			i += n
			continue
		}
		n, ok := findTests[t]
		if !ok && strings.HasPrefix(t, "-newer") && len(t) == 8 && strings.IndexByte("aBcm", t[6]) >= 0 && strings.IndexByte("aBcmt", t[7]) >= 0 {
			n, ok = 1, true
		}
		if !ok {
			if t == "-delete" {
				j.add(High, EffectDelete, "`-delete` removes files")
				return
			}
			j.add(Medium, EffectUnknown, "`%s` of `find` is not known to only look", t)
			return
		}
		if n == 1 {
			i++
			// find itself refuses several names for a pattern, because none of them begins with a
			// dash.
			glob := i < len(argv) && argv[i].kind == wordGlob && (!argv[i].mayBeOption() && strings.IndexByte("(),!", argv[i].prefix[0]) < 0 || j.locked && strings.Contains(argv[i].text, ".") && !strings.Contains(argv[i].text, "["))
			if i >= len(argv) || !glob && (argv[i].kind > wordAtom || argv[i].multi) {
				j.add(Medium, EffectUnknown, "the argument of `%s` is missing or a pattern that files can change: quote it", t)
				return
			}
		}
	}
	j.prove(name)
}

// findExec proves -exec with a program that only reads. What replaces {} begins with a root, so it
// cannot be an option.
func (j *judge) findExec(argv, roots, all []word) int {
	end := -1
	for k := 1; k < len(argv); k++ {
		if argv[k].is(";") || argv[k].is("+") && argv[k-1].is("{}") {
			end = k
			break
		}
	}
	if argv[0].text != "-exec" || end < 2 {
		j.add(Medium, EffectExec, "`%s` runs a command for each file", argv[0].text)
		j.judgeTail(argv)
		return 0
	}
	inner := slices.Clone(argv[1:end])
	safe := len(roots) > 0
	for _, r := range roots {
		if r.kind != wordLit || !strings.HasPrefix(r.text, "/") && !strings.HasPrefix(r.text, "./") && r.text != "." {
			safe = false
		}
	}
	if !safe {
		j.add(Medium, EffectExec, "`-exec` for files whose names could be options")
		j.judgeTail(argv)
		return 0
	}
	files := false
	for k, w := range inner {
		if w.kind == wordOpaque && w.multi || w.kind == wordGlob && (w.prefix == "" || strings.IndexByte(";+{-", w.prefix[0]) >= 0) {
			j.add(Medium, EffectExec, "an argument of `-exec` is only known when it runs and could end it")
			return 0
		}
		if w.kind == wordOpaque && (len(inner) < k+2 || !inner[0].is("grep")) {
			j.add(Medium, EffectExec, "an argument of `-exec` is only known when it runs and could be `;`")
			return 0
		}
		if w.kind == wordLit && strings.Contains(w.text, "{}") {
			if k == 0 || w.text != "{}" {
				j.add(Medium, EffectExec, "`-exec` puts file names into a command")
				j.judgeTail(argv)
				return 0
			}
			inner[k] = word{kind: wordGlob, multi: true, text: "./*", prefix: "./", found: true}
			files = true
		}
	}
	before := len(j.issues)
	was := j.inner
	j.inner = true
	j.run(inner, true)
	j.inner = was
	if j.hasCommandIssue(before) {
		j.add(Medium, EffectExec, "`-exec` runs a command for each file")
		return 0
	}
	if files && opensTool(inner[0].text) {
		for _, r := range roots {
			if j.anyLocation(r.text, deviceRoot) {
				j.add(Medium, EffectUnknown, "`-exec` opens devices and files of the kernel below %s", r.text)
				return 0
			}
		}
	}
	if files && !metaTool(inner[0].text) {
		for _, r := range roots {
			if j.treeHasSecrets(r.text) || j.secret(r) != "" || j.device(r.text) {
				j.add(High, EffectSecrets, "`-exec` shows the content of files below %s, where secrets are", r.text)
				return 0
			}
		}
		for _, w := range all {
			if secretWord(w.text) {
				j.add(High, EffectSecrets, "`-exec` shows the content of files that are secrets by their name")
				return 0
			}
		}
	}
	return end
}

func metaTool(name string) bool {
	specs, err := tables()
	return err == nil && specs[name] != nil && specs[name].meta
}

func opensTool(name string) bool {
	specs, err := tables()
	return err != nil || specs[name] == nil || !specs[name].meta || specs[name].opens
}

// deviceRoot reports whether a path contains devices, or kernel files that have an effect when opened.
func deviceRoot(p string) bool {
	c := cleanPath(p)
	if kernelTrees.MatchString(c) {
		return false
	}
	for _, d := range []string{"/dev", "/proc", "/sys"} {
		if c == d || strings.HasPrefix(c, d+"/") {
			return true
		}
	}
	return c == "/" || strings.Trim(c, "./") == "" && strings.Contains(c, "..")
}

// wrapPS proves ps: none of its options acts, but BSD's e shows environments.
func wrapPS(j *judge, name string, argv []word) {
	dash, plain := "", ""
	for i, w := range argv[1:] {
		before := argv[i].text
		value := i > 0 && (slices.Contains([]string{"-o", "-p", "-C", "-u", "-U", "-G", "-g", "-t", "-s", "--sort", "-O", "--pid", "--ppid", "o", "k", "--format", "--user"}, before) ||
			strings.HasPrefix(before, "-") && !strings.HasPrefix(before, "--") && strings.HasSuffix(before, "o") || psBSDFormat.MatchString(before))
		if w.kind == wordGlob || w.kind == wordOpaque && (w.multi || !value) {
			j.add(Low, EffectUnknown, "an argument of `ps` that is only known when it runs")
			return
		}
		if w.kind != wordLit {
			continue
		}
		t := w.text
		if strings.Contains(strings.ToLower(t), "environ") {
			dash += "e?"
		}
		switch {
		case value, strings.HasPrefix(t, "--"), strings.Trim(t, "0123456789,") == "", !strings.HasPrefix(t, "-") && strings.Contains(t, "="):
		case strings.HasPrefix(t, "-"):
			letters := t[1:]
			if end := strings.IndexAny(letters, "oOpCGt"); end >= 0 {
				letters = letters[:end+1] // the rest is its value
			}
			dash += letters
		case strings.HasPrefix(t, "o"):
		default:
			plain += t
		}
	}
	if strings.Contains(plain, "e") || psMayRefuseE(dash, plain) {
		j.add(High, EffectSecrets, "`ps` with `e` shows the environments of processes, where secrets are kept")
		return
	}
	j.needForPS(argv)
	j.prove(name)
}

// psInspects matches columns for which ps inspects a process.
var psInspects = regexp.MustCompile(`wchan|ns\b|exe\b|\bns|cap`)

// needForPS leaves other processes readable for the columns that need it.
func (j *judge) needForPS(argv []word) {
	for _, w := range argv[1:] {
		if psInspects.MatchString(w.text) || strings.Trim(w.text, "-") == "l" || strings.HasPrefix(w.text, "-") && strings.Contains(w.text, "l") {
			j.addNeeds(NeedProcesses)
		}
	}
}

// psBSDFormat are words of BSD's ps that take the next one for a format.
var psBSDFormat = regexp.MustCompile(`^[acfghjlmnrsuvwxSTLX]*o$`)

// psMayRefuseE reports whether ps may refuse options with -e. It then reads them again as BSD options, where
// e shows environments. It refuses unknown letters, two formats, and two ways to show threads.
func psMayRefuseE(dash, plain string) bool {
	if !strings.Contains(dash, "e") {
		return false
	}
	return strings.Trim(dash, "AacdefFHjlLMPTwyVZoOpCGt") != "" || strings.Trim(plain, "wh") != "" ||
		strings.Contains(dash, "T") && strings.ContainsAny(dash, "LH") || strings.Contains(dash, "L") && strings.Contains(dash, "H") ||
		strings.ContainsAny(dash, "oO") && strings.ContainsAny(dash, "fFljMZ")
}

var (
	awkWords    = regexp.MustCompile(`system|getline|ENVIRON|ARGV|ARGC|PROCINFO|SYMTAB|FUNCTAB|extension|include|load|close|/inet`)
	awkWrites   = regexp.MustCompile(`print`) // "1print>f" is two words to awk
	awkSafeVars = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// wrapAwk proves awk programs without pipes, output files and indirect calls. It does not parse
// strings and regular expressions, because awk's reading of "/" depends on the context: what is not
// allowed in a program is not allowed in its strings either.
func wrapAwk(j *judge, name string, argv []word) {
	j.needProcesses(argv)
	i := 1
	for ; i < len(argv); i++ {
		w := argv[i]
		if w.kind != wordLit {
			if w.mayBeOption() {
				j.add(Medium, EffectUnknown, "an option of `%s` is only known when it runs", name)
				return
			}
			break
		}
		t := w.text
		if t == "--" {
			i++
			break
		}
		if !strings.HasPrefix(t, "-") || t == "-" {
			break
		}
		switch {
		case t == "-F" || t == "-v":
			i++
			if i >= len(argv) || argv[i].kind > wordAtom || argv[i].multi {
				j.add(Medium, EffectUnknown, "the value of `%s` of `%s` is only known when it runs", t, name)
				return
			}
		case strings.HasPrefix(t, "-F"), strings.HasPrefix(t, "-v") && !strings.HasPrefix(t, "--"):
		default:
			j.add(Medium, EffectUnknown, "unknown option `%s` of `%s`", t, name)
			return
		}
	}
	if i >= len(argv) || argv[i].kind != wordLit {
		j.add(Medium, EffectExec, "the program of `%s` is only known when it runs", name)
		return
	}
	if why := awkProgram(argv[i].text); why != "" {
		j.add(Medium, EffectExec, "the program of `%s` %s", name, why)
		return
	}
	if awkGrows(argv[i].text) {
		j.onlyLocked("a program of `" + name + "` that may not end, or fill the memory")
	}
	for _, w := range argv[i+1:] {
		switch {
		case w.kind == wordOpaque || w.kind == wordGlob && w.mayBeOption():
			j.add(Medium, EffectSecrets, "which file `%s` reads is only known when it runs", name)
			return
		case w.kind == wordLit && awkSafeVars.MatchString(w.text):
		case j.secret(w) != "":
			j.add(High, EffectSecrets, "`%s` reads %s: %s", name, w.text, j.secret(w))
			return
		case j.device(w.text):
			j.add(Medium, EffectUnknown, "`%s` opens %s", name, w.text)
			return
		}
	}
	j.prove(name)
}

func awkProgram(p string) string {
	if m := awkWords.FindString(p); m != "" {
		return "uses `" + m + "`, which can run commands or read other files"
	}
	if strings.Contains(p, "@") {
		return "makes an indirect call"
	}
	if strings.Contains(strings.ReplaceAll(p, "||", ""), "|") {
		return "has a pipe"
	}
	if awkWrites.MatchString(p) && !onlyCompares(p) {
		return "may write to a file with `>`"
	}
	return ""
}

var (
	awkLoops   = regexp.MustCompile(`\b(while|do|func|function|NF *[-+*/^%]?=[^=~]|for *\([^;()]*;)|\$[^;{}]*[^=!<>~]=[^=~]|sub *\([^;{}]*, *[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])? *\)|%[^a-zA-Z%]*(\*|[0-9]{4})|sub.*sub.*sub.*sub`)
	awkAssigns = regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*)(?:\[[^]]*\])? *=([^=~][^;{}\n]*)`)
	awkPicks   = regexp.MustCompile(`^ *\(?([^()?:]+)[<>]=?([^()?:]+)\)? *\?([^()?:]+):([^()?:]+)$`)
	awkNames   = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
)

// awkGrows reports whether a program may run on by itself, or may double what it keeps with each line.
func awkGrows(p string) bool {
	if awkLoops.MatchString(p) {
		return true
	}
	assigned := map[string]bool{}
	all := awkAssigns.FindAllStringSubmatch(p, -1)
	for _, m := range all {
		assigned[m[1]] = true
	}
	for _, m := range all {
		n := 0
		for _, name := range awkNames.FindAllString(m[2], -1) {
			if assigned[name] {
				n++
			}
		}
		if n > 1 && !awkPicks.MatchString(m[2]) {
			return true
		}
	}
	return false
}

// onlyCompares reports whether no ">" of a program can redirect print. A redirection needs a
// statement, so there is none before the first brace. Parentheses contain no statement except in the
// head of a for loop, which has semicolons. Text in parentheses without quotes, slashes and the like
// is entirely program, string or expression, so strings need not be found.
func onlyCompares(p string) bool {
	head := strings.IndexByte(p, '{')
	for i := range len(p) {
		if p[i] == '>' && head >= 0 && i > head && !inParentheses(p, i) {
			return false
		}
	}
	return true
}

// inParentheses reports whether the innermost parentheses around a position contain only a plain
// expression.
func inParentheses(p string, at int) bool {
	plain := func(c byte) bool { return strings.IndexByte("\"/\\#;{}\n", c) < 0 }
	depth, i := 0, at-1
	for ; i >= 0 && depth >= 0; i-- {
		switch c := p[i]; {
		case c == ')':
			depth++
		case c == '(':
			depth--
		case !plain(c):
			return false
		}
	}
	if depth >= 0 {
		return false
	}
	depth = 0
	for i = at + 1; i < len(p); i++ {
		switch c := p[i]; {
		case c == '(':
			depth++
		case c == ')' && depth == 0:
			return true
		case c == ')':
			depth--
		case !plain(c):
			return false
		}
	}
	return false
}

// wrapSed proves printing and substitution, without the commands that write, read other files or
// execute.
func wrapSed(j *judge, name string, argv []word) {
	j.needProcesses(argv)
	var scripts []string
	var files []word
	given, ended := false, false
	for i := 1; i < len(argv); i++ {
		w := argv[i]
		if !ended && w.kind == wordLit && strings.HasPrefix(w.text, "-") && w.text != "-" {
			switch t := w.text; t {
			case "--":
				ended = true
			case "-n", "-E", "-r", "-u", "-z", "-s", "-nE", "-nr", "-En", "-rn", "--quiet", "--silent", "--regexp-extended", "--posix", "--unbuffered", "--null-data", "--separate":
			case "-e", "-ne", "-Ee", "-re", "-nEe", "-nre", "--expression":
				i++
				if i >= len(argv) || argv[i].kind != wordLit {
					j.add(Medium, EffectExec, "the script of `sed` is only known when it runs")
					return
				}
				scripts = append(scripts, argv[i].text)
				given = true
			default:
				if strings.HasPrefix(t, "-i") || strings.HasPrefix(t, "--in-place") || !strings.HasPrefix(t, "--") && strings.Contains(t, "i") {
					j.add(Medium, EffectWrite, "`%s` of `sed` changes files in place", t)
					return
				}
				j.add(Medium, EffectUnknown, "unknown option `%s` of `sed`", t)
				return
			}
			continue
		}
		if w.kind == wordOpaque || w.kind != wordLit && w.mayBeOption() {
			j.add(Medium, EffectUnknown, "an argument of `sed` is only known when it runs and could be `-i`")
			return
		}
		files = append(files, w)
	}
	if !given {
		if len(files) == 0 || files[0].kind != wordLit {
			j.add(Medium, EffectExec, "the script of `sed` is only known when it runs")
			return
		}
		scripts, files = []string{files[0].text}, files[1:]
	}
	for _, s := range scripts {
		if !sedScript(s) {
			j.add(Medium, EffectUnknown, "the script of `sed` is more than printing lines and replacing text")
			return
		}
	}
	if all := strings.Join(scripts, ";"); strings.Count(all, "G")+strings.Count(all, "H") > 1 || strings.Count(all, "s") > 12 {
		j.onlyLocked("a script of `sed` that may fill the memory")
	}
	for _, w := range files {
		if why := j.secret(w); why != "" {
			j.add(High, EffectSecrets, "`sed` reads %s: %s", w.text, why)
			return
		}
		if j.device(w.text) || strings.HasPrefix(w.text, "-") {
			j.add(Medium, EffectUnknown, "`sed` opens %s", w.text)
			return
		}
	}
	j.prove(name)
}

// sedScript reports whether a script only has addresses, p, d, q, =, n, N, g, G, h, H, x, D, P, y and
// s with harmless flags.
func sedScript(s string) bool {
	i := 0
	blanks := func() {
		for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == ';' || s[i] == '\n' || s[i] == '}') {
			i++
		}
	}
	part := func(delim byte) bool { // up to the next delim; no delim inside [...]
		for i < len(s) {
			switch c := s[i]; c {
			case '\\':
				i++
				if i >= len(s) || s[i] == '\n' {
					return false
				}
			case '\n':
				return false
			case '[':
				n := sedClass(s[i:], delim)
				if n == 0 {
					return false
				}
				i += n - 1
			case delim:
				i++
				return true
			}
			i++
		}
		return false
	}
	address := func() bool {
		switch {
		case i >= len(s):
			return false
		case s[i] == '$':
			i++
		case s[i] >= '0' && s[i] <= '9' || s[i] == '+' || s[i] == '~':
			for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '~' || s[i] == '+') {
				i++
			}
		case s[i] == '/':
			i++
			if !part('/') {
				return false
			}
			if i < len(s) && s[i] == 'I' {
				i++
			}
		}
		return true
	}
	for {
		blanks()
		if i >= len(s) {
			return true
		}
		if !address() {
			return false
		}
		for i < len(s) && s[i] == ' ' {
			i++
		}
		if i < len(s) && s[i] == ',' {
			i++
			if !address() {
				return false
			}
		}
		for i < len(s) && (s[i] == ' ' || s[i] == '!') {
			i++
		}
		if i >= len(s) {
			return false
		}
		c := s[i]
		i++
		switch c {
		case '{':
			continue
		case 'p', 'd', 'q', 'Q', '=', 'n', 'N', 'g', 'G', 'h', 'H', 'x', 'D', 'P', 'l':
		case 's', 'y':
			if i >= len(s) {
				return false
			}
			delim := s[i]
			if delim == '\\' || delim == '\n' || delim == ' ' || delim == '[' || delim == ';' || delim >= 'a' && delim <= 'z' || delim >= 'A' && delim <= 'Z' || delim >= '0' && delim <= '9' {
				return false
			}
			i++
			for range 2 { // the pattern and what replaces it
				if !part(delim) {
					return false
				}
			}
			for c == 's' && i < len(s) && strings.IndexByte("gIiMmp0123456789", s[i]) >= 0 {
				i++
			}
		default:
			return false
		}
		for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
		if i < len(s) && s[i] != ';' && s[i] != '\n' && s[i] != '}' {
			return false
		}
	}
}

// sedClass returns the length of a bracket expression that every sed reads the same way, whether or
// not it looks for brackets before the delimiter; 0 if there is none.
func sedClass(s string, delim byte) int {
	i := 1
	if i < len(s) && s[i] == '^' {
		i++
	}
	if i < len(s) && s[i] == ']' {
		return 0
	}
	for ; i < len(s); i++ {
		switch c := s[i]; c {
		case ']':
			return i + 1
		case delim, '\n':
			return 0
		case '\\':
			// Some seds take the backslash literally here; all leave "n", "t" and the delimiter alone.
			if i+1 >= len(s) || s[i+1] == ']' || s[i+1] == '[' || s[i+1] == '\\' || s[i+1] == '\n' {
				return 0
			}
			i++
		case '[':
			end := strings.Index(s[i:], ":]")
			if i+1 >= len(s) || s[i+1] != ':' || end < 2 || strings.Trim(s[i+2:i+end], "abcdefghijklmnopqrstuvwxyz") != "" {
				return 0
			}
			i += end + 1
		}
	}
	return 0
}

var (
	jqBad   = regexp.MustCompile(`(^|[^.\w$])(env|import|include|input_filename|modulemeta)\b|\$ENV|\$__`)
	jqLoops = regexp.MustCompile(`\b(while|until|repeat|recurse|range|def|reduce|foreach|limit|combinations)\b|\*|\+.*\+.*\+.*\+.*\+.*\+.*\+.*\+`)
	yqBad   = regexp.MustCompile(`load|(^|[^.\w])(env|strenv|envsubst|eval|splitDoc|split_doc)\b|\$ENV|system`)
)

// git runs helpers that the repository's configuration names (core.fsmonitor, textconv, external diff,
// pagers, hooks), so a read is only proven if the text contains the options that disable them.
var gitReads = map[string]string{
	"log":       "--oneline --graph --all --stat --shortstat --name-only --name-status --no-merges --merges --reverse --decorate --no-decorate --no-color -n: --max-count: --since: --until: --after: --before: --author: --grep: --format: --pretty: --date: --abbrev-commit --follow --first-parent -i -#",
	"show":      "--stat --shortstat --name-only --name-status --no-color --format: --pretty: --oneline --no-patch -s",
	"diff":      "--stat --shortstat --name-only --name-status --no-color --cached --staged --numstat --summary -w",
	"rev-parse": "--short --verify --abbrev-ref --show-toplevel --is-inside-work-tree",
	"branch":    "--list -a -r -v -vv --all --show-current",
	"tag":       "--list -l",
	"remote":    "-v",
	"ls-files":  "",
	"describe":  "--tags --always --abbrev:",
	"reflog":    "-n: -#",
	"rev-list":  "--count --all -n:",
	"shortlog":  "-s -n -e -sn -sne",
}

func wrapGit(j *judge, name string, argv []word) {
	if len(argv) == 2 && (argv[1].is("--version") || argv[1].is("version")) {
		j.prove(name)
		return
	}
	j.usesDir = j.usesDir || !j.remote
	var configs []string
	optional, pager, lazy := false, false, true
	i := 1
	for ; i < len(argv); i++ {
		if argv[i].kind != wordLit {
			j.add(Medium, EffectUnknown, "an argument of `git` is only known when it runs")
			return
		}
		t := argv[i].text
		switch {
		case t == "--no-optional-locks":
			optional = true
			continue
		case t == "--no-lazy-fetch":
			lazy = false
			continue
		case t == "--no-pager" || t == "-P":
			pager = true
			continue
		case t == "-c" && i+1 < len(argv) && argv[i+1].kind == wordLit:
			i++
			configs = append(configs, argv[i].text)
			if !slices.Contains(gitHardening, argv[i].text) {
				j.add(Medium, EffectExec, "`git -c %s` can name a program to run", argv[i].text)
				return
			}
			continue
		case t == "-C" && i+1 < len(argv) && argv[i+1].kind == wordLit:
			i++
			continue
		}
		break
	}
	if i >= len(argv) {
		j.add(Low, EffectUnknown, "`git` without a subcommand")
		return
	}
	sub := argv[i].text
	flags, ok := gitReads[sub]
	if sub == "status" || sub == "blame" {
		j.add(Low, EffectExec, "`git %s` runs filters and helpers that the repository's own configuration names", sub)
		return
	}
	if !ok {
		if !j.addDangers(argv) {
			j.add(Medium, EffectUnknown, "`git %s` is not known to only read", sub)
		}
		return
	}
	hard := optional && pager && !lazy
	for _, need := range gitHardening[:3] {
		hard = hard && slices.Contains(configs, need)
	}
	rest := argv[i:]
	given := func(flag string) bool { return slices.ContainsFunc(rest, func(w word) bool { return w.is(flag) }) }
	switch sub {
	case "log", "show":
		// The default format, and one named in the configuration, may check
		// signatures with a program from the configuration.
		format := slices.ContainsFunc(rest, func(w word) bool {
			return w.is("--oneline") || strings.HasPrefix(w.text, "--format=%") || strings.HasPrefix(w.text, "--pretty=format:")
		})
		// A diff of a submodule may run the helpers that the submodule names.
		hard = hard && (sub == "log" || slices.Contains(configs, "diff.submodule=short"))
		hard = hard && format && given("--no-ext-diff") && given("--no-textconv") && slices.Contains(configs, "log.showSignature=false")
	case "diff":
		// A diff against the working tree runs clean filters.
		hard = hard && slices.Contains(configs, "diff.submodule=short") && (given("--cached") || given("--staged")) && given("--no-ext-diff") && given("--no-textconv")
	}
	if !hard {
		j.add(Low, EffectExec, "`git %s` runs helpers that the repository's own configuration names (core.fsmonitor, diff drivers, pagers)", sub)
		return
	}
	known := strings.Fields(flags)
	known = append(known, "--no-ext-diff", "--no-textconv")
	operands := 0
	for k := i + 1; k < len(argv); k++ {
		w := argv[k]
		if w.kind != wordLit {
			j.add(Medium, EffectUnknown, "an argument of `git` is only known when it runs")
			return
		}
		t := w.text
		if !strings.HasPrefix(t, "-") {
			operands++
			continue
		}
		key, _, eq := strings.Cut(t, "=")
		switch {
		case t == "--":
		case slices.Contains(known, t):
		case slices.Contains(known, key+":") && eq:
		case slices.Contains(known, t+":") && k+1 < len(argv):
			k++
			if argv[k].kind > wordAtom || argv[k].multi {
				j.add(Medium, EffectUnknown, "the value of `%s` of `git` is only known when it runs", t)
				return
			}
		case slices.Contains(known, "-#") && isDigits(t[1:]):
		default:
			j.add(Medium, EffectUnknown, "unknown option `%s` of `git %s`", t, sub)
			return
		}
	}
	list := slices.ContainsFunc(argv[i:], func(w word) bool { return w.is("--list") || w.is("-l") })
	if operands > 0 && !list && (sub == "branch" || sub == "tag" || sub == "remote" || sub == "reflog") {
		j.add(Medium, EffectWrite, "`git %s` with a name can change the repository", sub)
		return
	}
	for _, w := range argv[i:] {
		if strings.Contains(w.text, "%G") || j.secret(w) != "" {
			j.add(Medium, EffectExec, "`git %s` with `%s` can run gpg or show a secret", sub, w.text)
			return
		}
	}
	j.prove("git " + sub)
}

// gitHardening are the settings that a read needs; the first three always.
var gitHardening = []string{"core.fsmonitor=false", "diff.external=", "core.hooksPath=/dev/null", "core.pager=cat", "color.ui=false", "log.showSignature=false", "core.sshCommand=false", "diff.submodule=short"}
