package impact

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is an argument whose value is known statically.
type word struct {
	text string // its value; a pattern as it is written
	src  string // quoted for a shell
	glob bool   // a file pattern
	home bool   // begins with ~/
}

// command is a text that consists of one simple command.
type command struct {
	argv      []word
	literal   bool   // argv is complete, and nothing else changes what it means
	redirects []word // files that it truncates first
}

// parse parses a text; ok is false if it is more than one simple command, or if the shell and the
// parser could disagree.
func parse(text string) (cmd command, ok bool) {
	defer func() {
		// The text is untrusted; if the parser panics there is no preview.
		if recover() != nil {
			ok = false
		}
	}()
	for i := range len(text) {
		if c := text[i]; c != '\n' && c != '\t' && (c < ' ' || c >= 0x7f) {
			return command{}, false
		}
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil || len(file.Stmts) != 1 {
		return command{}, false
	}
	s := file.Stmts[0]
	if s.Coprocess || s.Disown {
		return command{}, false
	}
	for _, r := range s.Redirs {
		if r.Op != syntax.RdrOut && r.Op != syntax.RdrClob && r.Op != syntax.RdrAll || r.Word == nil {
			continue
		}
		if w, ok := readWord(r.Word); ok && !w.glob {
			cmd.redirects = append(cmd.redirects, w)
		}
	}
	cmd.literal = true
	switch c := s.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		cmd.literal = len(c.Assigns) == 0
		for _, a := range c.Args {
			w, ok := readWord(a)
			if !ok {
				cmd.literal = false
				break
			}
			cmd.argv = append(cmd.argv, w)
		}
	default:
		return command{}, false
	}
	return cmd, true
}

// readWord unescapes a word; ok is false if its value is not static.
func readWord(w *syntax.Word) (word, bool) {
	var out word
	var text, src, plain strings.Builder
	flush := func() bool {
		if plain.Len() == 0 {
			return true
		}
		q, ok := quote(plain.String())
		src.WriteString(q)
		text.WriteString(plain.String())
		plain.Reset()
		return ok
	}
	for n, part := range w.Parts {
		switch x := part.(type) {
		case *syntax.Lit:
			v := x.Value
			for i := 0; i < len(v); i++ {
				switch c := v[i]; c {
				case '\\':
					i++
					switch {
					case i >= len(v):
						return word{}, false
					case v[i] != '\n':
						plain.WriteByte(v[i])
					}
				case '~':
					if n > 0 || i > 0 {
						plain.WriteByte(c)
						break
					}
					if len(v) < 2 || v[1] != '/' {
						return word{}, false
					}
					out.home = true
					text.WriteString("~/")
					src.WriteString("~/")
					i++
				case '*', '?', '[':
					end := i + 1
					if c == '[' {
						n := strings.IndexByte(v[i:], ']')
						if n < 2 || strings.Trim(v[i+1:i+n], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
							return word{}, false
						}
						end = i + n + 1
					}
					if !flush() {
						return word{}, false
					}
					text.WriteString(v[i:end])
					src.WriteString(v[i:end])
					out.glob = true
					i = end - 1
				case '{', '!':
					return word{}, false // braces expand to several words, ! may be history expansion
				default:
					plain.WriteByte(c)
				}
			}
		case *syntax.SglQuoted:
			if x.Dollar {
				return word{}, false
			}
			plain.WriteString(x.Value)
		case *syntax.DblQuoted:
			if x.Dollar {
				return word{}, false
			}
			for _, q := range x.Parts {
				l, ok := q.(*syntax.Lit)
				if !ok || strings.Contains(l.Value, "!") {
					return word{}, false
				}
				plain.WriteString(unquote(l.Value))
			}
		default:
			return word{}, false
		}
	}
	if out.glob && strings.ContainsAny(text.String()+plain.String(), `\`) {
		return word{}, false // an escape in a pattern
	}
	if !flush() {
		return word{}, false
	}
	out.text, out.src = text.String(), src.String()
	if out.text == "" {
		out.src = "''"
	}
	return out, true
}

// unquote removes the backslashes that are special between double quotes.
func unquote(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// quote quotes text as one shell word.
func quote(s string) (string, bool) {
	q, err := syntax.Quote(s, syntax.LangBash)
	return q, err == nil
}

// quoted is quote for text that came from parse, for which it cannot fail; if it did, the result is
// text that no classifier proves.
func quoted(s string) string {
	q, ok := quote(s)
	if !ok {
		return "$("
	}
	return q
}

// join quotes words and joins them with spaces.
func join(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = quoted(w)
	}
	return strings.Join(out, " ")
}

// baseName returns the name of a system program, "" for any other file.
func baseName(s string) string {
	dir, base := path.Split(s)
	if dir != "" && !slices.Contains([]string{"/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"}, dir) {
		return ""
	}
	return base
}

// unwrap strips wrappers (sudo, timeout) and returns the account that the rest runs as, "" for the
// same one.
func unwrap(argv []word) (rest []word, as string, ok bool) {
	for range 4 {
		if len(argv) == 0 {
			return nil, "", false
		}
		options, own := "", 0
		name := baseName(argv[0].text)
		switch name {
		case "sudo":
			options = "-nEHSkb --non-interactive --preserve-env --set-home --stdin -u: --user: -g: --group: -p: --prompt:"
		case "doas":
			options = "-n -u:"
		case "timeout":
			options, own = "-v --verbose --foreground --preserve-status -s: --signal: -k: --kill-after:", 1
		case "nice":
			options = "-n: --adjustment:"
		case "ionice":
			options = "-t -c: --class: -n: --classdata:"
		case "nohup", "command":
		default:
			return argv, as, true
		}
		a, fine := parseArgs("!first "+options, argv[1:])
		if !fine || len(a.words) <= own {
			return nil, "", false
		}
		if name == "sudo" || name == "doas" {
			as = "root"
			if u, given := a.value("-u", "--user"); given {
				as = u
			}
		}
		argv = a.words[own:]
		if strings.Contains(argv[0].text, "=") || argv[0].glob {
			return nil, "", false
		}
	}
	return nil, "", false
}

// flag is an option with its value.
type flag struct {
	name, value string
	has         bool // has a value
}

// args are the parsed arguments of a program.
type args struct {
	flags        []flag
	words        []word // operands
	beforeDashes int    // how many words precede "--"; all if there is none
}

// has reports whether one of the options was given, and not set to false.
func (a args) has(names ...string) bool {
	return slices.ContainsFunc(a.flags, func(f flag) bool { return slices.Contains(names, f.name) && f.value != "false" })
}

// value returns the last value of one of the options.
func (a args) value(names ...string) (string, bool) {
	v := a.values(names...)
	if len(v) == 0 {
		return "", false
	}
	return v[len(v)-1], true
}

// values returns all values of one of the options.
func (a args) values(names ...string) []string {
	var out []string
	for _, f := range a.flags {
		if f.has && slices.Contains(names, f.name) {
			out = append(out, f.value)
		}
	}
	return out
}

// word returns an operand's text, "" if there is none.
func (a args) word(i int) string {
	if i < 0 || i >= len(a.words) {
		return ""
	}
	return a.words[i].text
}

// texts returns the text of the operands from i on.
func (a args) texts(i int) []string {
	var out []string
	for ; i < len(a.words); i++ {
		out = append(out, a.words[i].text)
	}
	return out
}

// repeatOptions returns the given ones of the named options, for a read of the same things.
func (a args) repeatOptions(names ...string) string {
	var b strings.Builder
	for _, f := range a.flags {
		if !slices.Contains(names, f.name) {
			continue
		}
		b.WriteString(" " + f.name)
		if f.has {
			b.WriteString(" " + quoted(f.value))
		}
	}
	return b.String()
}

// parseArgs parses arguments. options is a list of fields: "-abc" are three options without a
// value, "-n:" and "--name:" take a value, "--name?" may have one after "=". With !first the
// operands begin at the first word that is not an option; with !go an option is a whole word after
// one or two dashes; with !cobra "-n=x" is "-n x"; with !raw there are no options. ok is false for
// unknown options.
func parseArgs(options string, words []word) (args, bool) {
	kinds := map[string]byte{}
	first, single, raw, cobra := false, false, false, false
	for f := range strings.FieldsSeq(options) {
		kind := f[len(f)-1]
		switch {
		case f == "!first":
			first = true
		case f == "!go":
			single = true
		case f == "!raw":
			raw = true
		case f == "!cobra":
			cobra = true
		case kind == ':' || kind == '?':
			kinds[f[:len(f)-1]] = kind
		case strings.HasPrefix(f, "--") || single:
			kinds[f] = 'b'
		default:
			for _, c := range f[1:] {
				kinds["-"+string(c)] = 'b'
			}
		}
	}
	var a args
	if raw {
		a.words = words
		return a, true
	}
	for i := 0; i < len(words); i++ {
		w := words[i]
		t := w.text
		if len(t) < 2 || t[0] != '-' {
			if first {
				a.words = words[i:]
				return a, true
			}
			a.words = append(a.words, w)
			continue
		}
		if w.glob {
			return args{}, false
		}
		if t == "--" {
			a.beforeDashes = len(a.words)
			a.words = append(a.words, words[i+1:]...)
			return a, true
		}
		// next takes the value from the next word.
		next := func(name string) bool {
			i++
			if i >= len(words) || words[i].glob || words[i].home {
				return false
			}
			a.flags = append(a.flags, flag{name, words[i].text, true})
			return true
		}
		if single || strings.HasPrefix(t, "--") {
			name, value, eq := strings.Cut(t, "=")
			if single {
				name = "-" + strings.TrimLeft(name, "-")
			}
			switch kind := kinds[name]; {
			case kind == 0, kind == 'b' && eq && value != "true" && value != "false":
				return args{}, false
			case kind == ':' && !eq:
				if !next(name) {
					return args{}, false
				}
			default:
				a.flags = append(a.flags, flag{name, value, eq})
			}
			continue
		}
		for k := 1; k < len(t); k++ {
			name := "-" + t[k:k+1]
			kind := kinds[name]
			if kind == 0 {
				return args{}, false
			}
			if kind == 'b' {
				a.flags = append(a.flags, flag{name: name})
				continue
			}
			if v := t[k+1:]; v != "" {
				if cobra {
					v = strings.TrimPrefix(v, "=")
				}
				a.flags = append(a.flags, flag{name, v, true})
			} else if kind == '?' {
				a.flags = append(a.flags, flag{name: name})
			} else if !next(name) {
				return args{}, false
			}
			break
		}
	}
	a.beforeDashes = len(a.words)
	return a, true
}
