package risk

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// wordKind is how much is known about an argument before the shell expands it.
type wordKind int

const (
	// wordLit is exactly its text.
	wordLit wordKind = iota
	// wordAtom has unknown text of a harmless shape (digits, a date, a host name). It begins with a
	// dash only if its known prefix does. Its text shows 0 in the unknown place.
	wordAtom
	// wordGlob is a pattern: any number of arguments, each beginning with prefix.
	wordGlob
	// wordOpaque is unknown text.
	wordOpaque
)

// word is one argument as the shell will see it, as far as that is known.
type word struct {
	text       string
	kind       wordKind
	prefix     string // every expansion certainly begins with it
	multi      bool   // may become no argument, or several
	quoted     bool   // some part was quoted
	mayBeEmpty bool   // an atom that may also be empty
	found      bool   // stands for files that find finds, so its roots are judged instead
	sink       bool   // leads into a command, >(...)
}

func lit(s string) word { return word{text: s, prefix: s} }

func (w word) is(s string) bool { return w.kind == wordLit && w.text == s }

// mayBeOption reports whether the word may begin with a dash and so be an option.
func (w word) mayBeOption() bool {
	switch w.kind {
	case wordLit:
		return strings.HasPrefix(w.text, "-")
	case wordAtom:
		return strings.HasPrefix(w.prefix, "-")
	default:
		return w.prefix == "" || w.prefix[0] == '-'
	}
}

// onlyExpansion returns a glob's only possible expansion. ok is false unless its patterns are classes of a
// single character ("[0]" or "[*]").
func (w word) onlyExpansion() (string, bool) {
	if w.kind != wordGlob || w.quoted {
		return "", false
	}
	var b strings.Builder
	s := w.text
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '[':
			if i+2 >= len(s) || s[i+2] != ']' || s[i+1] == '!' || s[i+1] == '^' {
				return "", false
			}
			b.WriteByte(s[i+1])
			i += 2
		case '*', '?', '\\':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// resolveWord un-escapes a word and judges what it executes or expands. why is not empty if the word
// itself is not known well enough.
func (j *judge) resolveWord(w *syntax.Word) (out word, why string) {
	var text, prefix strings.Builder
	var bare strings.Builder // the text if its optional parts are empty
	void := false            // some part may be empty
	prefixOpen := true
	bracket := false // a "[" is open
	var braces braceState
	add := func(s string) {
		text.WriteString(s)
		bare.WriteString(s)
		if prefixOpen {
			prefix.WriteString(s)
		}
	}
	note := func(s string) {
		if why == "" {
			why = s
		}
	}
	unknown := func(x word, quoted bool) {
		void, out.sink = void || x.mayBeEmpty, out.sink || x.sink
		if !quoted && x.multi {
			out.multi = true
		}
		if out.kind < x.kind {
			out.kind = x.kind
		}
		if x.kind == wordLit {
			add(x.text)
			return
		}
		add(x.prefix)
		if prefixOpen && x.prefix == "" && x.kind == wordAtom && text.Len() == 0 && !x.mayBeEmpty {
			prefix.WriteString("0") // an atom never begins with a dash
		}
		prefixOpen = false
		text.WriteString(strings.TrimPrefix(x.text, x.prefix))
		if !x.mayBeEmpty {
			bare.WriteString(strings.TrimPrefix(x.text, x.prefix))
		}
	}
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			s, glob, bad := j.unescape(p, text.Len() == 0, &braces)
			open, shut := strings.LastIndexByte(p.Value, '['), strings.IndexByte(p.Value, ']')
			if bracket && shut >= 0 {
				note("a class of a pattern that is put together from parts")
			}
			bracket = bracket || open >= 0 && strings.IndexByte(p.Value[open:], ']') < 0
			out.quoted = out.quoted || strings.IndexByte(p.Value, '\\') >= 0
			if bad != "" {
				note(bad)
			}
			if glob >= 0 {
				add(s[:glob])
				if out.kind < wordGlob {
					out.kind = wordGlob
				}
				out.multi = true
				prefixOpen = false
				add(s[glob:])
			} else {
				add(s)
			}
		case *syntax.SglQuoted:
			out.quoted = true
			if p.Dollar {
				note("`$'...'` writes characters as codes")
				out.kind = wordOpaque
				prefixOpen = false
				continue
			}
			add(p.Value)
		case *syntax.DblQuoted:
			out.quoted = true
			if p.Dollar {
				note("`$\"...\"` is translated text")
			}
			for _, q := range p.Parts {
				switch q := q.(type) {
				case *syntax.Lit:
					s, bad := j.unescapeDouble(q)
					if bad != "" {
						note(bad)
					}
					add(s)
				default:
					x, bad := j.expansion(q)
					if bad != "" {
						note(bad)
					}
					if x.kind == wordGlob {
						// A loop variable over files is one path when quoted.
						x.multi = false
					}
					unknown(x, true)
				}
			}
		default:
			x, bad := j.expansion(p)
			if bad != "" {
				note(bad)
			}
			if x.kind == wordGlob || x.kind == wordLit && (x.text == "" || strings.ContainsAny(x.text, " \t\n*?[\\")) {
				// Unquoted, the value is split and expanded again.
				x = word{kind: wordOpaque, multi: true}
			}
			x.multi = x.multi || x.kind == wordOpaque
			unknown(x, false)
		}
	}
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit, *syntax.SglQuoted:
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				if _, ok := q.(*syntax.Lit); !ok {
					j.onlyLocked("an expansion")
				}
			}
		default:
			j.onlyLocked("an expansion")
		}
	}
	out.text = text.String()
	out.prefix = prefix.String()
	if out.kind == wordLit {
		out.prefix = out.text
		out.multi = false
	}
	if void && out.kind == wordAtom {
		// The rest of the word may be all that remains.
		switch {
		case len(w.Parts) == 1 && (out.text == "0" || out.text == ""):
			out.mayBeEmpty = true
		case emptyPIDPath.MatchString(out.text) && out.prefix == "/proc/", strings.HasPrefix(out.prefix, "--") && out.text == out.prefix+"0" && strings.HasSuffix(out.prefix, "="):
		case strings.HasPrefix(out.prefix, "/") && j.secret(lit(bare.String())) == "" && !j.device(bare.String()) && !j.treeHasSecrets(bare.String()):
		default:
			out.kind, out.multi, out.prefix = wordOpaque, true, ""
		}
	}
	if out.kind >= wordGlob && (out.prefix == "" || out.prefix[0] != '/' && out.prefix[0] != '~') {
		j.usesDir = j.usesDir || !j.remote
	}
	if out.kind == wordGlob {
		if out.quoted && strings.Contains(out.text, "[") && !plainClass(w) {
			note("a class of a pattern that is put together from parts")
		}
		if !plainPattern(out) {
			j.onlyLocked("a pattern that is not below a written directory")
		}
	}
	return out, why
}

// plainClass reports whether backslashes in a pattern only precede characters without a meaning in a
// class.
func plainClass(w *syntax.Word) bool {
	for _, p := range w.Parts {
		l, ok := p.(*syntax.Lit)
		if !ok {
			return false
		}
		for _, after := range strings.Split(l.Value, `\`)[1:] {
			if after == "" || strings.IndexByte("<>|&;()", after[0]) < 0 {
				return false
			}
		}
	}
	return true
}

// emptyPIDPath matches the files of a process that are the same kind of thing without its number: then
// there is no such file.
var emptyPIDPath = regexp.MustCompile(`^/proc/0(/(status|stat|statm|limits|cmdline|comm|io|sched|wchan|cgroup|mountinfo|oom_score|oom_score_adj|fd|task|exe|smaps_rollup|smaps|maps)?)?$`)

// expansion resolves $x and $(...).
func (j *judge) expansion(p syntax.WordPart) (word, string) {
	opaque := word{kind: wordOpaque, multi: true}
	if j.resolveOnly {
		switch p.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst:
			return opaque, ""
		}
	}
	switch p := p.(type) {
	case *syntax.ParamExp:
		if p.Excl || p.Length || p.Width || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Names != 0 || p.Exp != nil ||
			p.Flags != nil || p.IsSet || p.NestedParam != nil || len(p.Modifiers) > 0 || p.Param == nil {
			j.nested(p)
			return opaque, "an expansion of a variable that is more than its value"
		}
		name := p.Param.Value
		if v, ok := j.vars[name]; ok {
			return v, ""
		}
		switch name {
		case "?", "$", "#":
			return word{text: "0", kind: wordAtom}, ""
		case "UID", "EUID", "PPID", "RANDOM", "SECONDS", "LINENO":
			// Other shells do not know all of them.
			return word{text: "0", kind: wordAtom, mayBeEmpty: j.shell != Bash}, ""
		case "HOME", "USER", "LOGNAME", "HOSTNAME", "PWD", "OLDPWD", "SHELL", "PATH", "LANG", "TERM", "BASH_VERSION", "0":
			return opaque, ""
		}
		return opaque, "`$" + name + "` is only known when it runs"
	case *syntax.CmdSubst:
		if p.TempFile || p.ReplyVar {
			j.nested(p)
			return opaque, "a form of substitution that is not known here"
		}
		before := len(j.issues)
		j.inSubshell(func() { j.stmts(p.Stmts) })
		if len(j.issues) > before {
			return opaque, "" // the reason is already told
		}
		if j.atomic(p.Stmts) {
			return word{text: "0", kind: wordAtom, multi: true, mayBeEmpty: true}, ""
		}
		return opaque, ""
	case *syntax.ArithmExp:
		if n, ok := plainArithm(p.X); ok && !p.Bracket {
			return lit(strconv.FormatInt(n, 10)), ""
		}
		j.nested(p)
		return opaque, "arithmetic can run code through array subscripts"
	case *syntax.ProcSubst:
		// The shell substitutes the name of a pipe.
		j.bashOnly("`" + p.Op.String() + "...)`")
		feed := j.feed
		if p.Op == syntax.CmdOut {
			j.feed = &syntax.Stmt{} // unknown input
		}
		j.inSubshell(func() { j.stmts(p.Stmts) })
		j.feed = feed
		return word{kind: wordAtom, text: "/dev/fd/0", prefix: "/dev/fd/", sink: p.Op == syntax.CmdOut}, ""
	case *syntax.ExtGlob:
		return opaque, "an extended pattern"
	default:
		j.nested(p)
		return opaque, "a form of expansion that is not known here"
	}
}

// plainArithm returns the value of an expression of numbers and operators only. A name in it would be
// evaluated again, and its subscripts executed.
func plainArithm(x syntax.ArithmExpr) (int64, bool) {
	const most = 1 << 31 // far below the limits of any shell
	switch x := x.(type) {
	case *syntax.Word:
		if len(x.Parts) != 1 {
			return 0, false
		}
		l, ok := x.Parts[0].(*syntax.Lit)
		if !ok || !isDigits(l.Value) || len(l.Value) > 9 || len(l.Value) > 1 && l.Value[0] == '0' {
			return 0, false
		}
		n, err := strconv.ParseInt(l.Value, 10, 64)
		return n, err == nil
	case *syntax.BinaryArithm:
		a, ok := plainArithm(x.X)
		b, also := plainArithm(x.Y)
		if !ok || !also || a > most || a < -most || b > most || b < -most {
			return 0, false
		}
		switch x.Op {
		case syntax.Add:
			return a + b, true
		case syntax.Sub:
			return a - b, true
		case syntax.Mul:
			return a * b, true
		case syntax.Quo:
			if b != 0 {
				return a / b, true
			}
		case syntax.Rem:
			if b != 0 {
				return a % b, true
			}
		default:
		}
	case *syntax.ParenArithm:
		return plainArithm(x.X)
	}
	return 0, false
}

// literals returns the words of a statement that is one plain command without redirections and
// assignments. ok is false if one of them is unknown.
func (j *judge) literals(s *syntax.Stmt) ([]string, bool) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(s.Redirs) > 0 || len(c.Assigns) > 0 || len(c.Args) == 0 {
		return nil, false
	}
	args := make([]string, 0, len(c.Args))
	for _, a := range c.Args {
		w, why := j.resolveWord(a)
		if why != "" || w.kind != wordLit {
			return nil, false
		}
		args = append(args, w.text)
	}
	return args, true
}

// atomic reports whether the output of a proven substitution certainly consists of plain atoms:
// numbers, a date, the kernel's or the host's name.
func (j *judge) atomic(stmts []*syntax.Stmt) bool {
	if len(stmts) != 1 {
		return false
	}
	args, ok := j.literals(stmts[0])
	if !ok {
		return false
	}
	rest := args[1:]
	switch args[0] {
	case "nproc":
		return len(rest) == 0
	case "whoami":
		return len(rest) == 0
	case "hostname":
		return len(rest) == 0 || len(rest) == 1 && (rest[0] == "-f" || rest[0] == "-s")
	case "uname":
		return len(rest) == 1 && (rest[0] == "-r" || rest[0] == "-m" || rest[0] == "-n" || rest[0] == "-s")
	case "id":
		return len(rest) == 1 && (rest[0] == "-u" || rest[0] == "-g" || rest[0] == "-un")
	case "pidof", "pgrep":
		return onlyPids(args)
	case "date":
		f := rest
		given := false
		for len(f) >= 2 {
			switch {
			case f[0] == "-u":
				f = f[1:]
				continue
			// Years can be negative, too.
			case (f[0] == "-d" || f[0] == "--date") && nearTime.MatchString(f[1]), f[0] == "-v" && nearShift.MatchString(f[1]):
				f, given = f[2:], true // a time before 1970 has a minus in %s
				continue
			}
			return false
		}
		if len(f) != 1 || given && strings.Contains(f[0], "s") || strings.Contains(f[0], "%Z") || !strings.HasPrefix(f[0], "+%") || len(f[0]) < 3 {
			return false
		}
		for part := range strings.SplitSeq(f[0][1:], " ") {
			if !strings.HasPrefix(part, "%") { // split at blanks, each part is a word: no dash in front
				return false
			}
		}
		return strings.Trim(f[0][1:], "%FTYmdHMSjsbyeIpaABZ.:_/ -") == ""
	}
	return false
}

// nearTime matches times that certainly have a positive year.
var nearTime = regexp.MustCompile(`^(now|today|yesterday|tomorrow|-?[0-9]{1,3} ?(sec|second|min|minute|hour|day|week|month)s?( ago)?)$`)

// nearShift is the same in the form of BSD's date.
var nearShift = regexp.MustCompile(`^[-+]?[0-9]{1,3}[ymwdHMS]$`)

// onlyPids reports whether a pgrep or pidof prints only numbers, separated by newlines, blanks or
// commas.
func onlyPids(args []string) bool {
	for _, a := range args[1:] {
		if a == "-d," && args[0] == "pgrep" || args[0] == "pidof" && slices.Contains([]string{"-s", "-x", "-c"}, a) {
			continue
		}
		if strings.HasPrefix(a, "-") && (args[0] == "pidof" || strings.ContainsAny(a, "ladHh")) {
			return false
		}
	}
	return true
}

// braceState tracks unquoted braces across the parts of one word.
type braceState struct{ open, multiplied bool }

// unescape returns what an unquoted literal means to the shell, the position of its first pattern (-1
// for none), and why it is unknown, if so.
func (j *judge) unescape(l *syntax.Lit, first bool, braces *braceState) (string, int, string) {
	v := l.Value
	if !strings.ContainsAny(v, `\*?[{!~`) && !braces.open {
		return v, -1, ""
	}
	var b strings.Builder
	glob := -1
	why := ""
	for i := 0; i < len(v); i++ {
		c := v[i]
		switch c {
		case '\\':
			i++
			if i >= len(v) {
				return b.String(), glob, "a backslash at the end of the text"
			}
			if v[i] == '\n' {
				continue
			}
			if glob >= 0 && strings.IndexByte(`*?[]`, v[i]) >= 0 {
				why = "an escaped character in a pattern"
			}
			b.WriteByte(v[i])
			continue
		case '*', '?':
			if glob < 0 {
				glob = b.Len()
			}
		case '[':
			if strings.IndexByte(v[i+1:], ']') >= 0 && glob < 0 {
				glob = b.Len()
			}
		case '{':
			braces.open = true
		case ',':
			braces.multiplied = braces.multiplied || braces.open
		case '.':
			braces.multiplied = braces.multiplied || braces.open && i+1 < len(v) && v[i+1] == '.'
		case '!':
			if !j.isPlainBang(l, v, i) {
				why = "`!` that an interactive shell replaces from its history"
			}
		case '~':
			if i == 0 && first && len(v) > 1 && v[1] != '/' {
				why = "`~name` that stands for somebody's home directory"
			}
			if i > 0 && (v[i-1] == '=' || v[i-1] == ':') {
				why = "`~` behind `=` or `:`, which not every shell reads in the same way"
			}
		}
		b.WriteByte(c)
	}
	if braces.multiplied {
		// The closing brace may stand in a later part.
		why = "braces that the shell multiplies (`{a,b}`)"
	}
	return b.String(), glob, why
}

// isPlainBang reports whether an unquoted or double-quoted "!" is not a history expansion: it precedes
// a blank, "=" or the end of the text.
func (j *judge) isPlainBang(l *syntax.Lit, v string, i int) bool {
	if i+1 < len(v) {
		return v[i+1] == '=' || v[i+1] == ' ' || v[i+1] == '\t' || v[i+1] == '\n'
	}
	end := int(l.End().Offset())
	if end >= len(j.src) {
		return true
	}
	c := j.src[end]
	return c == ' ' || c == '\t' || c == '\n'
}

func (j *judge) unescapeDouble(l *syntax.Lit) (string, string) {
	v := l.Value
	if !strings.ContainsAny(v, `\!`) {
		return v, ""
	}
	var b strings.Builder
	why := ""
	for i := 0; i < len(v); i++ {
		c := v[i]
		if c == '!' && !j.isPlainBang(l, v, i) {
			why = "`!` that an interactive shell replaces from its history"
		}
		if c == '\\' && i+1 < len(v) {
			switch v[i+1] {
			case '$', '`', '"', '\\':
				i++
				b.WriteByte(v[i])
				continue
			case '\n':
				i++
				continue
			}
		}
		b.WriteByte(c)
	}
	return b.String(), why
}

func isDigits(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
