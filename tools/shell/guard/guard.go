// Package guard keeps commands from poisoning or ending the shell that a
// managed pane shares: it finds, in the syntax tree, what would switch errexit
// on, leave the shell, or replace it. Whatever happens in a subshell, a
// pipeline, a substitution or a shell of its own is allowed.
//
// It is no security boundary (a command can always kill its shell): it spares
// the team a lost terminal. It runs nothing.
package guard

import (
	"errors"
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxDepth bounds how deep eval within eval is followed.
const maxDepth = 4

// Check reports what in command would end or poison the shell that runs it, in
// one sentence with the line and the way out; nil means nothing does.
func Check(command string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("this command cannot be read as shell text, so it is not typed into the shared shell; write it more simply")
		}
	}()
	return check(command, 0)
}

func check(command string, depth int) error {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(command), "")
	if err != nil {
		var pe syntax.ParseError
		if errors.As(err, &pe) {
			return fmt.Errorf("this is not complete shell text (line %d: %s), and typing it would leave the shared shell waiting for more; fix it first", pe.Pos.Line(), pe.Text)
		}
		return fmt.Errorf("this is not complete shell text (%w); fix it first", err)
	}
	w := walker{depth: depth}
	w.stmts(f.Stmts)
	return w.err
}

type walker struct {
	depth int
	err   error
}

func (w *walker) found(what string, pos syntax.Pos, way string) {
	if w.err == nil {
		w.err = fmt.Errorf("`%s` on line %d would %s the shell that this pane shares; run it in a subshell, ( ... ), or in a shell of its own, bash -lc '...'", what, pos.Line(), way)
	}
}

func (w *walker) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		w.stmt(s)
	}
}

// stmt follows only what runs in the shell itself.
func (w *walker) stmt(s *syntax.Stmt) {
	if s == nil || s.Background || s.Coprocess || s.Cmd == nil {
		return
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		w.call(c)
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			return // each side runs in a subshell
		}
		w.stmt(c.X)
		w.stmt(c.Y)
	case *syntax.Block:
		w.stmts(c.Stmts)
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			w.stmts(c.Cond)
			w.stmts(c.Then)
		}
	case *syntax.WhileClause:
		w.stmts(c.Cond)
		w.stmts(c.Do)
	case *syntax.ForClause:
		w.stmts(c.Do)
	case *syntax.CaseClause:
		for _, it := range c.Items {
			w.stmts(it.Stmts)
		}
	case *syntax.FuncDecl:
		w.stmt(c.Body) // it may be called now or by whoever types next
	case *syntax.TimeClause:
		w.stmt(c.Stmt)
	default: // subshells, tests, arithmetic, declarations
	}
}

func (w *walker) call(c *syntax.CallExpr) {
	words := make([]string, len(c.Args))
	for i, a := range c.Args {
		words[i], _ = literal(a)
	}
	pos := c.Pos()
	// These run a builtin in the same shell.
	for len(words) > 1 && (words[0] == "builtin" || words[0] == "command") {
		words = words[1:]
		for len(words) > 0 && (words[0] == "-p" || words[0] == "--") {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return
	}
	switch words[0] {
	case "exit", "logout":
		w.found(words[0], pos, "end")
	case "exec":
		w.found("exec", pos, "replace")
	case "set", "setopt":
		if errexit(words[0], words[1:]) {
			w.found(strings.Join(words, " "), pos, "make every failing command end")
		}
	case "eval":
		if w.depth < maxDepth {
			if err := check(strings.Join(words[1:], " "), w.depth+1); err != nil && w.err == nil && !strings.Contains(err.Error(), "not complete shell text") {
				w.found("eval "+strings.Join(words[1:], " "), pos, "end or poison")
			}
		}
	}
}

// errexit reports whether the options switch errexit on.
func errexit(cmd string, args []string) bool {
	isName := func(s string) bool {
		return strings.ReplaceAll(strings.ToLower(s), "_", "") == "errexit" || strings.ReplaceAll(strings.ToLower(s), "_", "") == "errreturn"
	}
	for i, a := range args {
		switch {
		case a == "--":
			return false
		case cmd == "setopt" && isName(a):
			return true
		case strings.HasPrefix(a, "-") && len(a) > 1:
			for j, f := range a[1:] {
				if f == 'e' {
					return true
				}
				if f == 'o' && ((i+1 < len(args) && isName(args[i+1])) || isName(a[j+2:])) {
					return true
				}
			}
		}
	}
	return false
}

// literal returns the text of a word after quote removal; ok is false when
// something in it is only known when it runs.
func literal(w *syntax.Word) (s string, ok bool) {
	var b strings.Builder
	ok = true
	var parts func(list []syntax.WordPart)
	parts = func(list []syntax.WordPart) {
		for _, p := range list {
			switch p := p.(type) {
			case *syntax.Lit:
				b.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
			case *syntax.SglQuoted:
				b.WriteString(p.Value)
			case *syntax.DblQuoted:
				parts(p.Parts)
			default:
				ok = false
			}
		}
	}
	parts(w.Parts)
	return b.String(), ok
}
