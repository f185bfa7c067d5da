package workflow

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	cel "countersign/internal/condition"
)

// Limits of one condition.
const (
	maxCondition     = 1000 // bytes
	maxConditionCost = 200_000
)

// condition is a compiled `if`: CEL over inputs.NAME and steps.ID.output, exit_code and ok,
// with _ for each - of a name.
type condition struct {
	cel  *cel.Condition
	uses map[string]*ref // by the name in CEL
}

// celName is what a template is called in a condition.
func (r *ref) celName() string {
	name := "inputs." + r.input
	if r.input == "" {
		name = "steps." + r.name + "." + r.field
	}
	return strings.ReplaceAll(name, "-", "_")
}

func (r *ref) celType() cel.Type {
	switch {
	case r.kind == boolean:
		return cel.Bool
	case r.whole:
		return cel.Int
	case r.kind == numeric:
		return cel.Number
	}
	return cel.Text
}

// all returns everything that a template could stand for.
func (n names) all() map[string]*ref {
	out := map[string]*ref{}
	add := func(src string) {
		if r, err := n.ref(src); err == nil {
			out[r.celName()] = r
		}
	}
	for _, in := range n.inputs {
		add("${inputs." + in.Name + "}")
	}
	for _, s := range n.steps {
		for _, id := range []string{s.id, s.alias} {
			for _, field := range []string{"output", "exit_code", "ok"} {
				if id != "" {
					add("${steps." + id + "." + field + "}")
				}
			}
		}
	}
	return out
}

// speaksOf finds the names in a condition that cannot be read, for a sentence about them.
var speaksOf = regexp.MustCompile(`\b(?:inputs\.[A-Za-z0-9_]+|steps\.[A-Za-z0-9_]+\.[A-Za-z0-9_]+)`)

// parseCondition reads a condition.
func (n names) parseCondition(src string) (*condition, error) {
	if len(src) > maxCondition {
		return nil, fmt.Errorf("it is longer than %d bytes; make it shorter", maxCondition)
	}
	base, err := cel.New(maxCondition, maxConditionCost)
	if err != nil {
		return nil, err
	}
	uses := n.all()
	types := map[string]cel.Type{}
	for name, r := range uses {
		types[name] = r.celType()
	}
	language, err := base.With(types, nil)
	if err != nil {
		return nil, err
	}
	c, err := language.Compile(src)
	if err != nil {
		for _, name := range speaksOf.FindAllString(src, -1) {
			if uses[name] != nil {
				continue
			}
			if _, err := n.ref("${" + name + "}"); err != nil {
				return nil, err
			}
		}
		return nil, err
	}
	out := &condition{cel: c, uses: map[string]*ref{}}
	for _, name := range c.Names() {
		if uses[name] != nil {
			out.uses[name] = uses[name]
		}
	}
	return out, nil
}

func (c *condition) refs() []*ref {
	var out []*ref
	for _, name := range c.cel.Names() {
		if r := c.uses[name]; r != nil {
			out = append(out, r)
		}
	}
	return out
}

// holds returns an error where a value is not there or cannot be compared; the whole condition
// then counts as false.
func (c *condition) holds(e env) (bool, error) {
	return c.cel.Holds(func(name string) (any, error) {
		r := c.uses[name]
		if r == nil {
			return nil, nil
		}
		v, err := e.get(r)
		if err == nil && v.none != "" {
			err = fmt.Errorf("%s has no value: %s", r.celName(), v.none)
		}
		if err != nil {
			return nil, err
		}
		switch r.celType() {
		case cel.Bool:
			return v.s == "true", nil
		case cel.Int:
			return strconv.ParseInt(v.s, 10, 64)
		case cel.Number:
			return strconv.ParseFloat(v.s, 64)
		case cel.Text, cel.Texts, cel.TextMap, cel.Time: // steps and inputs have no others than text
		}
		return v.s, nil
	})
}

var (
	oldToken     = regexp.MustCompile(`^\s*(\$\{[^}]*\}|'[^']*'|"[^"]*"|==|!=|<=|>=|<|>|\(|\)|-?[0-9]+(?:\.[0-9]+)?|[A-Za-z_]+)`)
	oldOperators = []string{"==", "!=", "<", "<=", ">", ">=", "contains", "matches"}
	oldWords     = map[string]string{"and": " && ", "or": " || ", "not": "!", "(": "(", ")": ")"}
)

// fromTemplates writes a condition in CEL that is written with templates, as conditions were
// once: ${steps.df.output} > 90 and not ${inputs.dry}. Runs that are in a store have such
// ones, and a person who has one in a file is told what to write. It only rewrites words:
// whether the result makes sense is CEL's to say.
func (n names) fromTemplates(src string) (string, error) {
	var tokens []string
	for rest := strings.TrimSpace(src); rest != ""; rest = strings.TrimSpace(rest) {
		m := oldToken.FindStringSubmatch(rest)
		if m == nil {
			return "", fmt.Errorf("%s cannot be read; conditions are CEL, such as steps.df.exit_code == 0", quoted(rest))
		}
		tokens, rest = append(tokens, m[1]), rest[len(m[0]):]
	}
	var b strings.Builder
	for i := 0; i < len(tokens); i++ {
		if word, ok := oldWords[tokens[i]]; ok {
			b.WriteString(word)
			continue
		}
		if !strings.HasPrefix(tokens[i], "${") {
			return "", fmt.Errorf("%s cannot be read; conditions are CEL, such as steps.df.exit_code == 0", quoted(tokens[i]))
		}
		r, err := n.ref(tokens[i])
		if err != nil {
			return "", err
		}
		if i+2 >= len(tokens) || !slices.Contains(oldOperators, tokens[i+1]) {
			b.WriteString(r.celName())
			continue
		}
		text := compared(r, tokens[i+1], tokens[i+2])
		if i > 0 && tokens[i-1] == "not" {
			text = "(" + text + ")"
		}
		b.WriteString(text)
		i += 2
	}
	return b.String(), nil
}

// compared is one comparison of a template with a literal, in CEL.
func compared(r *ref, op, lit string) string {
	name := r.celName()
	if lit[0] == '\'' || lit[0] == '"' {
		text := lit[1 : len(lit)-1]
		switch op {
		case "contains":
			return name + ".contains(" + strconv.Quote(text) + ")"
		case "matches": // the whole text
			return name + ".matches(" + strconv.Quote(`\A(?:`+text+`)\z`) + ")"
		}
		return name + " " + op + " " + strconv.Quote(text)
	}
	if lit[0] == '-' || lit[0] >= '0' && lit[0] <= '9' {
		switch point := strings.Contains(lit, "."); {
		case r.kind == textual:
			name = "number(" + name + ")"
		case r.whole && point:
			name = "double(" + name + ")"
		}
		if !strings.Contains(lit, ".") && !r.whole {
			lit += ".0"
		}
	}
	return name + " " + op + " " + lit
}

// errTemplates says how a condition with templates is written now.
func (n names) errTemplates(src string) error {
	now, err := n.fromTemplates(src)
	if err == nil {
		_, err = n.parseCondition(now)
	}
	if err != nil {
		return errors.New("conditions are CEL without templates; write them like steps.df.exit_code == 0 && !inputs.dry_run")
	}
	return fmt.Errorf("conditions are CEL without templates; write it as '%s'", strings.ReplaceAll(now, "'", "''"))
}
