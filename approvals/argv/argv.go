// Package argv reads shell text that is one simple command of literal words, and the
// arguments of its program by a table of the options that are known. What it does not
// understand to the last option it refuses.
//
// It neither judges a command (approvals/risk) nor expands anything: a pattern stays a
// pattern.
package argv

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// Word is one argument whose meaning its text alone determines.
type Word struct {
	Text   string // what it means; a pattern as it is written
	Source string // the same for a shell, quoted
	Glob   bool   // a pattern for files
	Home   bool   // begins with ~/
}

// Command is one simple command.
type Command struct {
	Argv      []Word
	Literal   bool   // Argv is all of it, and no assignment changes what it means
	Truncates []Word // files that it empties before it begins
	Appends   []Word // files that its output is added to
	// Alone reports that it runs in the foreground, once, and that its only redirections
	// go to /dev/null or between its own streams.
	Alone bool
	// Redirections is the number of its redirections, whatever they do.
	Redirections int
}

// Parse reads a text that is one simple command. ok is false for any other, and where the
// shell and the parser could differ.
func Parse(text string) (cmd Command, ok bool) {
	stmts, ok := statements(text)
	if !ok || len(stmts) != 1 {
		return Command{}, false
	}
	return read(stmts[0])
}

// ParseList reads a text whose simple commands run one after the other, joined by "&&",
// ";" or newlines. ok is false for any other, and where the shell and the parser could
// differ.
func ParseList(text string) (cmds []Command, ok bool) {
	stmts, ok := statements(text)
	if !ok {
		return nil, false
	}
	return flatten(stmts, syntax.AndStmt)
}

// ParsePipe reads a text that is one pipeline of simple commands. ok is false for any other,
// and where the shell and the parser could differ.
func ParsePipe(text string) (cmds []Command, ok bool) {
	stmts, ok := statements(text)
	if !ok || len(stmts) != 1 {
		return nil, false
	}
	return flatten(stmts, syntax.Pipe)
}

// flatten reads simple commands that one operator joins.
func flatten(stmts []*syntax.Stmt, op syntax.BinCmdOperator) (cmds []Command, ok bool) {
	for len(stmts) > 0 {
		s := stmts[0]
		if b, joined := s.Cmd.(*syntax.BinaryCmd); joined {
			if b.Op != op || s.Negated || s.Background || s.Coprocess || s.Disown || len(s.Redirs) > 0 {
				return nil, false
			}
			stmts = slices.Concat([]*syntax.Stmt{b.X, b.Y}, stmts[1:])
			continue
		}
		cmd, ok := read(s)
		if !ok {
			return nil, false
		}
		cmds, stmts = append(cmds, cmd), stmts[1:]
	}
	return cmds, len(cmds) > 0
}

// statements parses a text that consists of printable ASCII.
func statements(text string) (stmts []*syntax.Stmt, ok bool) {
	defer func() {
		// The text is foreign; a parser that panics has not read it.
		if recover() != nil {
			ok = false
		}
	}()
	for i := range len(text) {
		if c := text[i]; c != '\n' && c != '\t' && (c < ' ' || c >= 0x7f) {
			return nil, false
		}
	}
	file, err := bash.Parse(text)
	if err != nil {
		return nil, false
	}
	return file.Stmts, true
}

func read(s *syntax.Stmt) (cmd Command, ok bool) {
	if s.Coprocess || s.Disown {
		return Command{}, false
	}
	cmd.Alone, cmd.Redirections = !s.Negated && !s.Background, len(s.Redirs)
	for _, r := range s.Redirs {
		cmd.Alone = cmd.Alone && isQuiet(r)
		if r.Word == nil {
			continue
		}
		w, ok := readWord(r.Word)
		if !ok || w.Glob {
			continue
		}
		switch r.Op {
		case syntax.RdrOut, syntax.RdrClob, syntax.RdrAll:
			cmd.Truncates = append(cmd.Truncates, w)
		case syntax.AppOut:
			cmd.Appends = append(cmd.Appends, w)
		default: // others are counted only
		}
	}
	cmd.Literal = true
	switch c := s.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		cmd.Literal = len(c.Assigns) == 0
		for _, a := range c.Args {
			w, ok := readWord(a)
			if !ok {
				cmd.Literal = false
				break
			}
			cmd.Argv = append(cmd.Argv, w)
		}
	default:
		return Command{}, false
	}
	return cmd, true
}

// isQuiet reports whether a redirection goes to or comes from /dev/null, or joins standard
// output and standard error.
func isQuiet(r *syntax.Redirect) bool {
	if r.Word == nil || r.Hdoc != nil {
		return false
	}
	w, ok := readWord(r.Word)
	if !ok {
		return false
	}
	switch r.Op {
	case syntax.DplOut:
		return w.Text == "1" || w.Text == "2"
	case syntax.RdrOut, syntax.AppOut, syntax.RdrAll, syntax.AppAll, syntax.RdrIn:
		return w.Text == "/dev/null"
	default:
		return false
	}
}

// readWord removes the quoting of a word. ok is false if it means more than its text says.
func readWord(w *syntax.Word) (Word, bool) {
	var out Word
	var text, src, plain strings.Builder
	flush := func() bool {
		if plain.Len() == 0 {
			return true
		}
		q, err := syntax.Quote(plain.String(), syntax.LangBash)
		src.WriteString(q)
		text.WriteString(plain.String())
		plain.Reset()
		return err == nil
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
						return Word{}, false
					case v[i] != '\n':
						plain.WriteByte(v[i])
					}
				case '~':
					if n > 0 || i > 0 {
						plain.WriteByte(c)
						break
					}
					if len(v) < 2 || v[1] != '/' {
						return Word{}, false
					}
					out.Home = true
					text.WriteString("~/")
					src.WriteString("~/")
					i++
				case '*', '?', '[':
					end := i + 1
					if c == '[' {
						n := strings.IndexByte(v[i:], ']')
						if n < 2 || strings.Trim(v[i+1:i+n], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
							return Word{}, false
						}
						end = i + n + 1
					}
					if !flush() {
						return Word{}, false
					}
					text.WriteString(v[i:end])
					src.WriteString(v[i:end])
					out.Glob = true
					i = end - 1
				case '{', '!':
					return Word{}, false // braces multiply, ! can be the history
				default:
					plain.WriteByte(c)
				}
			}
		case *syntax.SglQuoted:
			if x.Dollar {
				return Word{}, false
			}
			plain.WriteString(x.Value)
		case *syntax.DblQuoted:
			if x.Dollar {
				return Word{}, false
			}
			for _, q := range x.Parts {
				l, ok := q.(*syntax.Lit)
				if !ok || strings.Contains(l.Value, "!") {
					return Word{}, false
				}
				plain.WriteString(unquote(l.Value))
			}
		default:
			return Word{}, false
		}
	}
	if out.Glob && strings.ContainsAny(text.String()+plain.String(), `\`) {
		return Word{}, false // an escape in a pattern
	}
	if !flush() {
		return Word{}, false
	}
	out.Text, out.Source = text.String(), src.String()
	if out.Text == "" {
		out.Source = "''"
	}
	return out, true
}

// unquote removes the backslashes that mean something between double quotes.
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

// Program returns the name of a program of the system, or "" for a file elsewhere.
func Program(s string) string {
	dir, base := path.Split(s)
	if dir != "" && !slices.Contains([]string{"/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"}, dir) {
		return ""
	}
	return base
}

// Unwrap removes programs that only run the rest (sudo, timeout). as is the account that
// the rest gets, or "" for the same. ok is false if an option of theirs is not known.
func Unwrap(argv []Word) (rest []Word, as string, ok bool) {
	for range 4 {
		if len(argv) == 0 {
			return nil, "", false
		}
		options, own := "", 0
		name := Program(argv[0].Text)
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
		a, fine := ParseArgs("!first "+options, argv[1:])
		if !fine || len(a.Operands) <= own {
			return nil, "", false
		}
		if name == "sudo" || name == "doas" {
			as = "root"
			if u, given := a.Value("-u", "--user"); given {
				as = u
			}
		}
		argv = a.Operands[own:]
		if strings.Contains(argv[0].Text, "=") || argv[0].Glob {
			return nil, "", false
		}
	}
	return nil, "", false
}

// Flag is one option as it was given.
type Flag struct {
	Name, Value string
	HasValue    bool
}

// Args are the arguments of a program, split into options and operands.
type Args struct {
	Flags    []Flag
	Operands []Word
	Loose    int // the number of operands before "--"; all of them if there is none
}

// Has reports whether one of the options was given, other than as false.
func (a Args) Has(names ...string) bool {
	return slices.ContainsFunc(a.Flags, func(f Flag) bool { return slices.Contains(names, f.Name) && f.Value != "false" })
}

// Value returns the last value of one of the options.
func (a Args) Value(names ...string) (string, bool) {
	v := a.Values(names...)
	if len(v) == 0 {
		return "", false
	}
	return v[len(v)-1], true
}

// Values returns all values of one of the options.
func (a Args) Values(names ...string) []string {
	var out []string
	for _, f := range a.Flags {
		if f.HasValue && slices.Contains(names, f.Name) {
			out = append(out, f.Value)
		}
	}
	return out
}

// Operand returns the text of operand i, or "" if there are fewer.
func (a Args) Operand(i int) string {
	if i < 0 || i >= len(a.Operands) {
		return ""
	}
	return a.Operands[i].Text
}

// Texts returns the text of the operands from i on.
func (a Args) Texts(i int) []string {
	var out []string
	for ; i < len(a.Operands); i++ {
		out = append(out, a.Operands[i].Text)
	}
	return out
}

// ParseArgs splits arguments by a table of options, separated by spaces: "-abc" are three
// without a value, "-n:" and "--name:" have one, "--name?" may have one after "=".
// !first begins the operands at the first word that is not an option, !go makes an option a
// whole word after one or two dashes, !cobra reads "-n=x" as "-n x", and !raw knows no
// options. ok is false for an option that is not in the table.
func ParseArgs(options string, words []Word) (Args, bool) {
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
	var a Args
	if raw {
		a.Operands = words
		return a, true
	}
	for i := 0; i < len(words); i++ {
		w := words[i]
		t := w.Text
		if len(t) < 2 || t[0] != '-' {
			if first {
				a.Operands = words[i:]
				return a, true
			}
			a.Operands = append(a.Operands, w)
			continue
		}
		if w.Glob {
			return Args{}, false
		}
		if t == "--" {
			a.Loose = len(a.Operands)
			a.Operands = append(a.Operands, words[i+1:]...)
			return a, true
		}
		// next takes the value from the next word.
		next := func(name string) bool {
			i++
			if i >= len(words) || words[i].Glob || words[i].Home {
				return false
			}
			a.Flags = append(a.Flags, Flag{name, words[i].Text, true})
			return true
		}
		if single || strings.HasPrefix(t, "--") {
			name, value, eq := strings.Cut(t, "=")
			if single {
				name = "-" + strings.TrimLeft(name, "-")
			}
			switch kind := kinds[name]; {
			case kind == 0, kind == 'b' && eq && value != "true" && value != "false":
				return Args{}, false
			case kind == ':' && !eq:
				if !next(name) {
					return Args{}, false
				}
			default:
				a.Flags = append(a.Flags, Flag{name, value, eq})
			}
			continue
		}
		for k := 1; k < len(t); k++ {
			name := "-" + t[k:k+1]
			kind := kinds[name]
			if kind == 0 {
				return Args{}, false
			}
			if kind == 'b' {
				a.Flags = append(a.Flags, Flag{Name: name})
				continue
			}
			if v := t[k+1:]; v != "" {
				if cobra {
					v = strings.TrimPrefix(v, "=")
				}
				a.Flags = append(a.Flags, Flag{name, v, true})
			} else if kind == '?' {
				a.Flags = append(a.Flags, Flag{Name: name})
			} else if !next(name) {
				return Args{}, false
			}
			break
		}
	}
	a.Loose = len(a.Operands)
	return a, true
}
