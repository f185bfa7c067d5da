package workflow

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kindOf is the type of what a template stands for.
type kindOf int

const (
	textual kindOf = iota
	numeric
	boolean
)

// ref is one template: ${inputs.NAME} or ${steps.ID.FIELD}.
type ref struct {
	src   string // as it was written
	input string // the input's name, or ""
	step  int    // the step's index, where input is ""
	name  string // the step's id or alias
	field string // output, exit_code or ok
	kind  kindOf
	whole bool // of numbers: it has no fraction
	// fixed values cannot be chosen freely: numbers, booleans and enums.
	fixed bool
}

// part is a piece of a text: a template, or literal text.
type part struct {
	lit string
	ref *ref
}

// text is text with templates.
type text struct {
	parts []part
	shell bool
}

func (t text) refs() []*ref {
	var out []*ref
	for _, p := range t.parts {
		if p.ref != nil {
			out = append(out, p.ref)
		}
	}
	return out
}

var (
	// opening is what begins a template in shell text: no shell has a variable with a
	// dot right after its name.
	opening  = regexp.MustCompile(`^\$\{\s*[A-Za-z_][A-Za-z0-9_-]*\s*\.`)
	refShape = regexp.MustCompile(`^\s*(inputs)\.([A-Za-z0-9_-]+)\s*$|^\s*(steps)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_]+)\s*$`)
)

// names are what templates of a step may speak of.
type names struct {
	inputs []Input
	steps  []step // those before
	later  []string
}

// parseText splits s into literal text and templates. In text that is not for a shell,
// "$${" stands for "${".
func (n names) parseText(s string, shell bool) (text, error) {
	t := text{shell: shell}
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			t.parts = append(t.parts, part{lit: lit.String()})
			lit.Reset()
		}
	}
	for i := 0; i < len(s); {
		switch {
		case !shell && strings.HasPrefix(s[i:], "$${"):
			lit.WriteString("${")
			i += 3
		case strings.HasPrefix(s[i:], "${") && (!shell || opening.MatchString(s[i:])):
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return text{}, fmt.Errorf("the template %s has no end; close it with }", quoted(s[i:]))
			}
			r, err := n.ref(s[i : i+end+1])
			if err != nil {
				return text{}, err
			}
			flush()
			t.parts = append(t.parts, part{ref: r})
			i += end + 1
		default:
			lit.WriteByte(s[i])
			i++
		}
	}
	flush()
	return t, nil
}

// ref reads one template, with its braces.
func (n names) ref(src string) (*ref, error) {
	m := refShape.FindStringSubmatch(src[2 : len(src)-1])
	if m == nil {
		return nil, fmt.Errorf("%s is no template; write ${inputs.NAME}, ${steps.ID.output}, ${steps.ID.exit_code} or ${steps.ID.ok}", quoted(src))
	}
	if m[1] != "" {
		known := make([]string, len(n.inputs))
		for i, in := range n.inputs {
			if known[i] = in.Name; in.Name == m[2] {
				return &ref{src: src, input: in.Name, kind: in.kind(), whole: in.Type == Integer, fixed: in.kind() != textual || in.Type == Enum}, nil
			}
		}
		return nil, fmt.Errorf("%s: there is no input %s%s", src, quoted(m[2]), didYouMean(m[2], known))
	}
	return n.stepRef(src, m[4], m[5])
}

func (n names) stepRef(src, name, field string) (*ref, error) {
	var known []string
	for i := range n.steps {
		s := &n.steps[i]
		if s.id != name && (s.alias == "" || s.alias != name) {
			known = append(known, s.id)
			continue
		}
		r := &ref{src: src, step: i, name: name, field: field}
		fields := map[Kind][]string{KindCall: {"output", "exit_code", "ok"}, KindModel: {"output", "ok"}, KindAsk: {"output", "ok"}}[s.kind]
		switch {
		case len(fields) == 0:
			return nil, fmt.Errorf("%s: the step %s has no outcome; name a call, a model or an ask step", src, quoted(name))
		case !slices.Contains(fields, field):
			return nil, fmt.Errorf("%s: the step %s has no %s; use %s", src, quoted(name), quoted(field), strings.Join(fields, ", "))
		case field == "exit_code":
			r.kind, r.whole, r.fixed = numeric, true, true
		case field == "ok":
			r.kind, r.fixed = boolean, true
		}
		return r, nil
	}
	if slices.Contains(n.later, name) {
		return nil, fmt.Errorf("%s: the step %s does not come before this one; name an earlier step", src, quoted(name))
	}
	return nil, fmt.Errorf("%s: there is no step %s%s", src, quoted(name), didYouMean(name, known))
}

// val is what a template stands for, in its canonical spelling.
type val struct {
	kind kindOf
	s    string
	// none says that there is no value: the step was skipped, or has no exit code.
	none string
}

// env gives templates their values.
type env interface{ get(r *ref) (val, error) }

// render puts the values in. strict refuses values that are not there; otherwise they
// are empty.
func (t text) render(e env, strict bool) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.ref == nil {
			b.WriteString(p.lit)
			continue
		}
		v, err := e.get(p.ref)
		if err == nil && v.none != "" && strict {
			err = fmt.Errorf("%s has no value: %s", p.ref.src, v.none)
		}
		if err != nil {
			return "", err
		}
		if t.shell {
			v.s = quoteWord(v.s)
		}
		b.WriteString(v.s)
	}
	return b.String(), nil
}

// value is a JSON value with templates in its strings.
type value struct {
	object map[string]*value
	array  []*value
	isList bool
	text   *text
	lit    any // nil, bool, json.Number
}

func (v *value) walk(f func(text)) {
	switch {
	case v == nil:
	case v.object != nil:
		for _, e := range v.object {
			e.walk(f)
		}
	case v.isList:
		for _, e := range v.array {
			e.walk(f)
		}
	case v.text != nil:
		f(*v.text)
	}
}

// render returns what the JSON encoder takes. A value that is one template has the
// template's own type.
func (v *value) render(e env) (any, error) {
	switch {
	case v.object != nil:
		out := make(map[string]any, len(v.object))
		for k, x := range v.object {
			r, err := x.render(e)
			if err != nil {
				return nil, err
			}
			out[k] = r
		}
		return out, nil
	case v.isList:
		out := make([]any, len(v.array))
		for i, x := range v.array {
			r, err := x.render(e)
			if err != nil {
				return nil, err
			}
			out[i] = r
		}
		return out, nil
	case v.text == nil:
		return v.lit, nil
	case len(v.text.parts) == 1 && v.text.parts[0].ref != nil && !v.text.shell:
		return own(v.text.parts[0].ref, e)
	}
	return v.text.render(e, true)
}

// own returns the value of a template in its own type.
func own(r *ref, e env) (any, error) {
	v, err := e.get(r)
	if err == nil && v.none != "" {
		err = fmt.Errorf("%s has no value: %s", r.src, v.none)
	}
	if err != nil {
		return nil, err
	}
	switch v.kind {
	case numeric:
		return json.Number(v.s), nil
	case boolean:
		return v.s == "true", nil
	default:
		return v.s, nil
	}
}

// quoteWord makes one word of shell text of any value: between single quotes nothing has
// a meaning but the quote itself.
func quoteWord(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// tidy returns foreign text as templates insert it: valid, without control characters
// other than newline and tab, at most MaxOutput characters, trimmed at the end.
func tidy(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
	return strings.TrimRightFunc(head(s, MaxOutput), unicode.IsSpace)
}

// head returns the first n characters of valid text.
func head(s string, n int) string {
	if len(s) <= n {
		return s
	}
	count := 0
	for i := range s {
		if count == n {
			return s[:i]
		}
		count++
	}
	return s
}

// quoted shows foreign text inside a sentence: quoted, on one line, cut.
func quoted(s string) string {
	if utf8.RuneCountInString(s) > 60 {
		s = head(strings.ToValidUTF8(s, "\uFFFD"), 60) + "..."
	}
	return strconv.Quote(s)
}
