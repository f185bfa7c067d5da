package workflow

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"countersign/internal/bash"
)

// interpreters are programs that run a text, or what is left of their arguments, as code;
// codeBuiltins are words of the shell that do. A command that names one may hold free
// values only in a gate step. Programs count anywhere, since others start them.
var (
	interpreters = words(`sh bash rbash dash ash zsh ksh mksh fish csh tcsh busybox
		ssh su runuser watch script parallel at batch expect tmux screen`)
	codeBuiltins = words(`eval . source trap let alias declare typeset local export readonly`)
)

// nameTakers take names of variables, whose subscripts the shell evaluates.
var nameTakers = words(`read unset mapfile readarray getopts`)

func words(s string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		out[w] = true
	}
	return out
}

// checkShell reads shell text whose templates are replaced by quoted markers, just as
// values will be, and finds out whether each marker is what it must be: a quoted string
// of its own, directly in a word that the shell takes as data.
func checkShell(t text, gate bool) error {
	src, marks := marked(t)
	file, err := bash.Parse(src, syntax.KeepComments(true))
	if err != nil {
		return fmt.Errorf("it is not shell text that can be read: %s", shellError(err, t))
	}
	if len(marks) == 0 {
		return nil
	}
	c := &shellCheck{marks: marks, held: map[string]bool{}}
	syntax.Walk(file, c.visit)
	free := false
	for m, r := range marks {
		if !c.held[m] {
			return fmt.Errorf("%s stands where quotes cannot hold its value (inside quotes, backticks, a comment, a here-document, a pattern, arithmetic, or after a \\ or $); make it a word of its own, outside of quotes: it is quoted by itself", r.src)
		}
		free = free || !r.fixed
	}
	if gate || !free {
		return nil
	}
	if c.runs != "" {
		return fmt.Errorf("it runs text as code (%s) beside the value of %s; take that out, or make the step a gate", c.runs, c.first(t))
	}
	return nil
}

// marked replaces the templates by quoted markers that occur nowhere else.
func marked(t text) (string, map[string]*ref) {
	var all strings.Builder
	for _, p := range t.parts {
		all.WriteString(p.lit)
	}
	prefix := "value"
	for strings.Contains(all.String(), prefix) {
		prefix += "x"
	}
	var b strings.Builder
	marks := map[string]*ref{}
	for _, p := range t.parts {
		if p.ref == nil {
			b.WriteString(p.lit)
			continue
		}
		m := prefix + strconv.Itoa(len(marks)) + "."
		marks[m] = p.ref
		b.WriteString("'" + m + "'")
	}
	return b.String(), marks
}

// shellError is the parser's complaint without the markers, which nobody wrote.
func shellError(err error, t text) string {
	var pe syntax.ParseError
	if !errors.As(err, &pe) {
		return "the parser refuses it"
	}
	if len(t.refs()) > 0 && strings.Contains(pe.Text, "value") {
		return fmt.Sprintf("line %d of it has a mistake", pe.Pos.Line())
	}
	return fmt.Sprintf("line %d of it: %s", pe.Pos.Line(), pe.Text)
}

type shellCheck struct {
	marks map[string]*ref
	held  map[string]bool
	runs  string // what runs text as code, for the sentence
}

func (c *shellCheck) first(t text) string {
	for _, r := range t.refs() {
		if !r.fixed {
			return r.src
		}
	}
	return ""
}

func (c *shellCheck) risky(what string) {
	if c.runs == "" {
		c.runs = what
	}
}

func (c *shellCheck) visit(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.CmdSubst:
		// Between backticks the shell reads backslashes and backticks before quotes.
		return !n.Backquotes
	case *syntax.CallExpr:
		for _, a := range n.Assigns {
			if a.Value != nil && a.Index == nil {
				c.hold(a.Value)
			}
		}
		for _, w := range n.Args {
			c.hold(w)
		}
		c.call(n.Args)
	case *syntax.Redirect:
		if n.Hdoc == nil {
			c.hold(n.Word)
		}
	case *syntax.WordIter:
		for _, w := range n.Items {
			c.hold(w)
		}
	case *syntax.CaseClause:
		c.hold(n.Word)
	case *syntax.ArithmExp, *syntax.ArithmCmd, *syntax.LetClause, *syntax.CStyleLoop:
		c.risky("arithmetic evaluates variables")
	case *syntax.TestClause:
		c.risky("[[ evaluates arithmetic; use [")
	case *syntax.DeclClause:
		c.risky(n.Variant.Value)
	case *syntax.ParamExp:
		if n.Index != nil || n.Slice != nil || n.Excl {
			c.risky("a subscript or an indirect name evaluates variables")
		}
		if n.Exp != nil && n.Exp.Op == syntax.OtherParamOps {
			c.risky("${...@...} evaluates variables")
		}
	}
	return true
}

// hold notes the markers that are whole quoted strings of a word.
func (c *shellCheck) hold(w *syntax.Word) {
	if w == nil {
		return
	}
	for _, p := range w.Parts {
		if q, ok := p.(*syntax.SglQuoted); ok && !q.Dollar && c.marks[q.Value] != nil {
			c.held[q.Value] = true
		}
	}
}

// call looks for what runs text as code.
func (c *shellCheck) call(args []*syntax.Word) {
	names, v, holds, prefixed := false, false, false, true
	for i, w := range args {
		lit, static := static(w)
		holds = holds || c.has(w)
		switch {
		case i == 0 && c.has(w):
			c.risky("the name of the program is a value")
		case i == 0 && !static:
			c.risky("the name of the program is not written out")
		case static && interpreters[path.Base(lit)]:
			c.risky("`" + path.Base(lit) + "`")
		case static && prefixed && codeBuiltins[lit]:
			c.risky("`" + lit + "`")
		}
		prefixed = prefixed && (lit == "command" || lit == "builtin" || strings.HasPrefix(lit, "-"))
		names = names || i == 0 && nameTakers[lit]
		v = v || static && lit == "-v" && (nameOf(args) == "printf" || nameOf(args) == "test" || nameOf(args) == "[")
	}
	if holds && (names || v) {
		c.risky("`" + nameOf(args) + "` takes the name of a variable")
	}
}

func nameOf(args []*syntax.Word) string {
	lit, _ := static(args[0])
	return lit
}

func (c *shellCheck) has(w *syntax.Word) bool {
	for _, p := range w.Parts {
		if q, ok := p.(*syntax.SglQuoted); ok && c.marks[q.Value] != nil {
			return true
		}
	}
	return false
}

// static returns a word as the shell sees it, if nothing in it is expanded.
func static(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for _, p := range w.Parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(strings.ReplaceAll(p.Value, `\`, ""))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				l, ok := q.(*syntax.Lit)
				if !ok {
					return b.String(), false
				}
				b.WriteString(l.Value)
			}
		default:
			return b.String(), false
		}
	}
	return b.String(), true
}

// otherRights finds programs that run others with more rights. It only labels the card:
// the gate judges for itself.
var otherRights = regexp.MustCompile(`(^|[^\w.-])(sudo|doas|su|pkexec|runuser)([^\w.-]|$)`)
