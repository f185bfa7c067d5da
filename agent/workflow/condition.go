package workflow

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A condition compares templates with literals:
//
//	either = both { "or" both }
//	both   = one { "and" one }
//	one    = "not" one | "(" either ")" | template [ operator literal ]
//
// The operators are == != < <= > >= contains matches; the literals are 'text', "text",
// numbers, true and false. A template that is true or false may stand alone.
type condition interface {
	// holds returns an error where a value cannot be compared; the whole condition then
	// counts as false.
	holds(e env) (bool, error)
	refs() []*ref
}

const (
	maxCondition = 1000 // bytes
	maxNesting   = 30
)

type allOf []condition

func (c allOf) holds(e env) (bool, error) {
	for _, x := range c {
		if ok, err := x.holds(e); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

type anyOf []condition

func (c anyOf) holds(e env) (bool, error) {
	for _, x := range c {
		if ok, err := x.holds(e); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

type negation struct{ of condition }

func (c negation) holds(e env) (bool, error) {
	ok, err := c.of.holds(e)
	return err == nil && !ok, err
}

func (c allOf) refs() []*ref    { return refsOf(c) }
func (c anyOf) refs() []*ref    { return refsOf(c) }
func (c negation) refs() []*ref { return c.of.refs() }

func refsOf(list []condition) []*ref {
	var out []*ref
	for _, c := range list {
		out = append(out, c.refs()...)
	}
	return out
}

// comparison is one template against one literal.
type comparison struct {
	ref *ref
	op  string
	lit literal
	re  *regexp.Regexp
}

type literal struct {
	kind kindOf
	s    string
	n    float64
}

func (c *comparison) refs() []*ref { return []*ref{c.ref} }

func (c *comparison) holds(e env) (bool, error) {
	v, err := e.get(c.ref)
	if err == nil && v.none != "" {
		err = fmt.Errorf("%s has no value: %s", c.ref.src, v.none)
	}
	if err != nil {
		return false, err
	}
	switch {
	case c.op == "contains":
		return strings.Contains(v.s, c.lit.s), nil
	case c.op == "matches":
		return c.re.MatchString(v.s), nil
	case c.lit.kind == numeric:
		n, err := strconv.ParseFloat(strings.TrimSpace(v.s), 64)
		if err != nil || n != n {
			return false, fmt.Errorf("%s is %s, which is no number", c.ref.src, quoted(v.s))
		}
		return ordered(c.op, n, c.lit.n), nil
	}
	return (v.s == c.lit.s) == (c.op == "=="), nil
}

func ordered(op string, a, b float64) bool {
	switch op {
	case "==":
		return a == b
	case "!=":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	default:
		return a >= b
	}
}

// parseCondition reads a condition. Its error names the position, counted in characters
// from 1.
func (n names) parseCondition(s string) (condition, error) {
	if len(s) > maxCondition {
		return nil, fmt.Errorf("it is longer than %d bytes; make it shorter", maxCondition)
	}
	p := &conditionParser{names: n, src: s}
	c, err := p.whole()
	if err != nil {
		return nil, fmt.Errorf("position %d: %w", utf8.RuneCountInString(s[:min(p.at, len(s))])+1, err)
	}
	return c, nil
}

type conditionParser struct {
	names names
	src   string
	at    int // where the token begins that is next, or the one with the mistake
	next  int // where it ends
	tok   string
	depth int
}

var conditionToken = regexp.MustCompile(`^(?:\$\{[^}]*\}|'[^']*'|"[^"]*"|==|!=|<=|>=|<|>|\(|\)|-?[0-9]+(?:\.[0-9]+)?|[A-Za-z_]+)`)

// step reads the next token; "" is the end.
func (p *conditionParser) step() error {
	p.at = p.next
	for p.at < len(p.src) && strings.IndexByte(" \t\n\r", p.src[p.at]) >= 0 {
		p.at++
	}
	p.tok = conditionToken.FindString(p.src[p.at:])
	p.next = p.at + len(p.tok)
	if p.tok == "" && p.at < len(p.src) {
		return fmt.Errorf("%s cannot be read; write a template, an operator or a literal, and text in quotes", quoted(p.src[p.at:]))
	}
	return nil
}

func (p *conditionParser) whole() (condition, error) {
	if err := p.step(); err != nil {
		return nil, err
	}
	c, err := p.either()
	if err == nil && p.tok != "" {
		err = fmt.Errorf("%s is one too many; join comparisons with and, or, not", quoted(p.tok))
	}
	return c, err
}

func (p *conditionParser) either() (condition, error) {
	list, err := p.list("or", p.both)
	if len(list) == 1 || err != nil {
		return first(list), err
	}
	return anyOf(list), nil
}

func (p *conditionParser) both() (condition, error) {
	list, err := p.list("and", p.one)
	if len(list) == 1 || err != nil {
		return first(list), err
	}
	return allOf(list), nil
}

func first(list []condition) condition {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func (p *conditionParser) list(word string, item func() (condition, error)) ([]condition, error) {
	var out []condition
	for {
		c, err := item()
		if err != nil {
			return nil, err
		}
		if out = append(out, c); p.tok != word {
			return out, nil
		}
		if err := p.step(); err != nil {
			return nil, err
		}
	}
}

func (p *conditionParser) one() (condition, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, fmt.Errorf("it is nested deeper than %d levels; make it simpler", maxNesting)
	}
	defer func() { p.depth-- }()
	switch {
	case p.tok == "":
		return nil, errors.New("it ends too early; write a comparison such as ${steps.ID.exit_code} == 0")
	case p.tok == "not":
		if err := p.step(); err != nil {
			return nil, err
		}
		c, err := p.one()
		return negation{c}, err
	case p.tok == "(":
		return p.group()
	case strings.HasPrefix(p.tok, "${"):
		return p.comparison()
	}
	return nil, fmt.Errorf("%s stands where a template must; begin with ${inputs.NAME} or ${steps.ID.output}", quoted(p.tok))
}

func (p *conditionParser) group() (condition, error) {
	open := p.at
	if err := p.step(); err != nil {
		return nil, err
	}
	c, err := p.either()
	if err != nil {
		return nil, err
	}
	if p.tok != ")" {
		p.at = open
		return nil, errors.New("this ( is never closed; add )")
	}
	return c, p.step()
}

var operators = []string{"==", "!=", "<", "<=", ">", ">=", "contains", "matches"}

func (p *conditionParser) comparison() (condition, error) {
	r, err := p.names.ref(p.tok)
	if err != nil {
		return nil, err
	}
	begin := p.at
	if err := p.step(); err != nil {
		return nil, err
	}
	c := &comparison{ref: r, op: p.tok}
	switch {
	case p.tok == "" || p.tok == ")" || p.tok == "and" || p.tok == "or":
		if r.kind != boolean {
			p.at = begin
			return nil, fmt.Errorf("%s alone is neither true nor false; compare it with a literal", r.src)
		}
		c.op, c.lit = "==", literal{kind: boolean, s: "true"}
		return c, nil
	case !slices.Contains(operators, p.tok):
		return nil, fmt.Errorf("%s is no operator; use one of %s", quoted(p.tok), strings.Join(operators, " "))
	}
	if err := p.step(); err != nil {
		return nil, err
	}
	if c.lit, err = p.literal(); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	return c, p.step()
}

func (p *conditionParser) literal() (literal, error) {
	switch t := p.tok; {
	case t == "true" || t == "false":
		return literal{kind: boolean, s: t}, nil
	case len(t) >= 2 && (t[0] == '\'' || t[0] == '"'):
		return literal{kind: textual, s: t[1 : len(t)-1]}, nil
	case t != "" && (t[0] == '-' || t[0] >= '0' && t[0] <= '9'):
		n, err := strconv.ParseFloat(t, 64)
		if err != nil {
			return literal{}, fmt.Errorf("the number %s is too large", quoted(t))
		}
		return literal{kind: numeric, s: t, n: n}, nil
	case strings.HasPrefix(t, "${"):
		return literal{}, errors.New("a template is compared with a literal, not with another template")
	}
	return literal{}, fmt.Errorf("%s is no literal; write text in quotes, a number, true or false", quoted(p.tok))
}

// check refuses comparisons that can never be made.
func (c *comparison) check() error {
	order := c.op != "==" && c.op != "!="
	switch {
	case c.op == "contains" || c.op == "matches":
		if c.ref.kind != textual || c.lit.kind != textual {
			return fmt.Errorf("%s takes a template that is text and a literal in quotes", c.op)
		}
		if c.op == "matches" {
			re, err := whole(c.lit.s)
			if err != nil {
				return err
			}
			c.re = re
		}
	case c.ref.kind == boolean && (order || c.lit.kind != boolean):
		return fmt.Errorf("%s is true or false; compare it with == or != to one of them", c.ref.src)
	case c.ref.kind == numeric && c.lit.kind != numeric:
		return fmt.Errorf("%s is a number; compare it with a number, without quotes", c.ref.src)
	case c.ref.kind == textual && c.lit.kind == boolean:
		return fmt.Errorf("%s is text; put the literal in quotes", c.ref.src)
	case order && c.lit.kind != numeric:
		return fmt.Errorf("%s compares numbers; write the literal without quotes", c.op)
	}
	return nil
}

// whole compiles a pattern in RE2 syntax (golang.org/s/re2syntax) that must match the
// whole text.
func whole(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > 500 {
		return nil, errors.New("the pattern is longer than 500 bytes; make it shorter")
	}
	if _, err := regexp.Compile(pattern); err != nil {
		return nil, fmt.Errorf("%s is no pattern in RE2 syntax: %w", quoted(pattern), err)
	}
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("%s is no pattern in RE2 syntax: %w", quoted(pattern), err)
	}
	return re, nil
}
