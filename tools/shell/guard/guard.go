// Package guard prevents a command from ending or changing the shell that a team shares: it finds
// set -e, exit, logout, exec and the like wherever they would affect the current shell, and
// suggests an alternative.
//
// It reads the syntax tree, so it finds "true; exit", "if x; then exit; fi" and "eval exit", and
// ignores what runs in another shell (a subshell, a pipeline, a substitution, a background job,
// bash -lc '...', a here-document). It is a courtesy to the people in the pane and not a security
// boundary: it does not look into sourced scripts, aliases or computed command names. Who may run
// what is decided elsewhere.
package guard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// maxDepth limits nested evals and nested syntax.
const maxDepth = 100

// DirectiveError means that a command would end or change the shared shell.
type DirectiveError struct {
	Directive string // as a person would write it: "set -e", "exit"
	Line      int    // counted from 1
	effect    string
}

// Error implements error: one sentence with the alternative.
func (e *DirectiveError) Error() string {
	return fmt.Sprintf("`%s` on line %d would %s; run it in a subshell: ( ... ) or bash -lc '...'", e.Directive, e.Line, e.effect)
}

// SyntaxError means that a command is incomplete: the shell would wait for the rest.
type SyntaxError struct {
	Line   int // counted from 1
	Reason string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("the command is not complete shell syntax (line %d: %s), so the shared shell would wait for the rest; correct it "+
		"and run it again", e.Line, e.Reason)
}

// Check reports whether a command may be typed into a shared shell. It returns nil, a
// [*DirectiveError] or a [*SyntaxError]. It is pure and safe for concurrent use.
func Check(command string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &SyntaxError{Line: 1, Reason: "it can't be analysed"}
		}
	}()
	for i, line := 0, 1; i < len(command); i++ {
		switch c := command[i]; {
		case c == '\n':
			line++
		case c < ' ' && c != '\t' || c == 0x7f:
			// In a terminal a carriage return is the Enter key, and other control characters are
			// keys too.
			return &SyntaxError{Line: line, Reason: fmt.Sprintf("the control character \\x%02x is a key press in a terminal", c)}
		}
	}
	w := &walker{}
	return w.text(command, 0)
}

type walker struct{ depth int }

// text checks a text that runs in the current shell. Inside eval, line is the line of the eval.
func (w *walker) text(command string, line int) error {
	file, err := bash.Parse(command)
	if err != nil {
		at, reason := 1, err.Error()
		var pe syntax.ParseError
		var le syntax.LangError
		switch {
		case errors.As(err, &pe):
			at, reason = int(pe.Pos.Line()), pe.Text
		case errors.As(err, &le):
			at, reason = int(le.Pos.Line()), le.Feature
		}
		if line > 0 {
			at = line
		}
		return &SyntaxError{Line: at, Reason: reason}
	}
	return w.stmts(file.Stmts, line)
}

// evalText checks the text of eval and trap. If it is incomplete, the shell reports that and does
// not wait.
func (w *walker) evalText(command string, line int) error {
	err := w.text(command, line)
	var syn *SyntaxError
	if errors.As(err, &syn) && w.depth <= maxDepth {
		return nil
	}
	return err
}

func (w *walker) stmts(list []*syntax.Stmt, line int) error {
	for _, s := range list {
		if err := w.stmt(s, line); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) stmt(s *syntax.Stmt, line int) error {
	if s == nil || s.Background || s.Coprocess || s.Disown {
		return nil // runs in another shell
	}
	w.depth++
	defer func() { w.depth-- }()
	if w.depth > maxDepth {
		return &SyntaxError{Line: max(line, 1), Reason: fmt.Sprintf("it is nested more than %d times", maxDepth)}
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if line == 0 {
			line = int(s.Pos().Line())
			if len(c.Args) > 0 {
				line = int(c.Args[0].Pos().Line())
			}
		}
		args := make([]string, len(c.Args))
		for i, a := range c.Args {
			args[i] = wordText(a)
		}
		return w.call(args, line)
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			return nil // each part runs in another shell
		}
		if err := w.stmt(c.X, line); err != nil {
			return err
		}
		return w.stmt(c.Y, line)
	case *syntax.Block:
		return w.stmts(c.Stmts, line)
	case *syntax.TimeClause:
		return w.stmt(c.Stmt, line)
	case *syntax.IfClause:
		for x := c; x != nil; x = x.Else {
			if err := w.stmts(x.Cond, line); err != nil {
				return err
			}
			if err := w.stmts(x.Then, line); err != nil {
				return err
			}
		}
	case *syntax.WhileClause:
		if err := w.stmts(c.Cond, line); err != nil {
			return err
		}
		return w.stmts(c.Do, line)
	case *syntax.ForClause:
		return w.stmts(c.Do, line)
	case *syntax.CaseClause:
		for _, item := range c.Items {
			if err := w.stmts(item.Stmts, line); err != nil {
				return err
			}
		}
	case *syntax.FuncDecl:
		// The function may be called later, from any command.
		return w.stmt(c.Body, line)
	}
	return nil
}

// call checks one simple command.
func (w *walker) call(args []string, line int) error {
	for len(args) > 0 {
		name, rest := args[0], args[1:]
		switch name {
		case "exit", "logout", "bye":
			return &DirectiveError{name, line, "close the shell that everybody here shares"}
		case "suspend":
			return &DirectiveError{name, line, "stop the shell that everybody here shares"}
		case "exec":
			return &DirectiveError{name, line, "replace or redirect the shell that everybody here shares"}
		case "set":
			return directive(setOption(rest), line)
		case "setopt":
			return directive(zshOption("setopt", rest, "errexit", "errreturn"), line)
		case "unsetopt":
			return directive(zshOption("unsetopt", rest, "noerrexit"), line)
		case "shopt":
			return directive(shopt(rest), line)
		case "eval":
			if len(rest) > 0 && rest[0] == "--" {
				rest = rest[1:]
			}
			w.depth++
			defer func() { w.depth-- }()
			if w.depth > maxDepth {
				return &SyntaxError{Line: line, Reason: "eval is nested too deep"}
			}
			return w.evalText(strings.Join(rest, " "), line)
		case "trap":
			if len(rest) > 0 && rest[0] == "--" {
				rest = rest[1:]
			}
			if len(rest) < 2 || strings.HasPrefix(rest[0], "-") {
				return nil
			}
			return w.evalText(rest[0], line)
		case "command":
			for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
				if rest[0] != "-p" && rest[0] != "--" {
					return nil // command -v runs nothing
				}
				rest = rest[1:]
			}
			args = rest
		case "builtin", "noglob", "nocorrect", "-":
			if len(rest) > 0 && rest[0] == "--" {
				rest = rest[1:]
			}
			args = rest
		default:
			return nil
		}
	}
	return nil
}

func directive(name string, line int) error {
	if name == "" {
		return nil
	}
	return &DirectiveError{name, line, "close the shared shell at the next command that fails"}
}

// setOption returns the option with which `set` turns on exiting, or "".
func setOption(args []string) string {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" || a == "-" || a == "" || a[0] != '-' && a[0] != '+' {
			return "" // the rest are positional parameters
		}
		on := a[0] == '-'
		for _, c := range a[1:] {
			switch c {
			case 'e', 't':
				if on {
					return "set " + a
				}
			case 'o':
				i++
				if i >= len(args) {
					return ""
				}
				if o := plainOption(args[i]); on && (o == "errexit" || o == "errreturn" || o == "onecmd") || !on && o == "noerrexit" {
					return "set " + a + " " + args[i]
				}
			}
		}
	}
	return ""
}

// plainOption returns an option's name in the form that zsh compares.
func plainOption(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

func zshOption(cmd string, args []string, want ...string) string {
	for _, a := range args {
		if slices.Contains(want, plainOption(a)) || a == "-e" && cmd == "setopt" {
			return cmd + " " + a
		}
	}
	return ""
}

// shopt returns the option with which shopt -so turns on exiting, or "".
func shopt(args []string) string {
	on, setO := false, false
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, "-"):
			on = on || strings.Contains(a, "s")
			setO = setO || strings.Contains(a, "o")
		case on && setO && a == "errexit":
			return "shopt -so errexit"
		}
	}
	return ""
}

// wordText returns a word as the shell would read it, with "_" for parts that are only known at run
// time.
func wordText(word *syntax.Word) string {
	var b strings.Builder
	for _, p := range word.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(unescape(p.Value, ""))
		case *syntax.SglQuoted:
			v := p.Value
			if p.Dollar {
				if s, _, err := expand.Format(nil, v, nil); err == nil {
					v = s
				}
			}
			b.WriteString(v)
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				if l, ok := q.(*syntax.Lit); ok {
					b.WriteString(unescape(l.Value, "$`\"\\\n"))
				} else {
					b.WriteByte('_')
				}
			}
		default:
			b.WriteByte('_')
		}
	}
	return b.String()
}

// unescape removes backslashes: all of them, or those before a character in only.
func unescape(s, only string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (only == "" || strings.IndexByte(only, s[i+1]) >= 0) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
