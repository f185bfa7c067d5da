// Package condition is the one language of conditions: CEL (https://cel.dev) over names that
// whoever uses it declares. Policies and runbooks are written in it.
//
// A condition has no side effects and costs a bounded time. The package knows none of the names,
// and does not say what follows when a condition cannot be evaluated.
package condition

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// Type is the type of a name.
type Type int

// The types, and what [Condition.Holds] takes for them.
const (
	Bool    Type = iota // bool
	Int                 // int, int64
	Number              // float64
	Text                // string
	Texts               // []string
	TextMap             // map[string]string
	Time                // time.Time
)

func (t Type) cel() *cel.Type {
	return [...]*cel.Type{
		Bool: cel.BoolType, Int: cel.IntType, Number: cel.DoubleType, Text: cel.StringType,
		Texts: cel.ListType(cel.StringType), TextMap: cel.MapType(cel.StringType, cel.StringType), Time: cel.TimestampType,
	}[t]
}

// Language is CEL over some names. It is safe for concurrent use.
type Language struct {
	env   *cel.Env
	cost  uint64
	names map[string]Type
}

// New returns the language without names. A text has at most so many code points, and an
// evaluation at most a cost as CEL counts it: about one for each step and one for ten characters
// that a step reads.
//
// Beside CEL's own functions there is number(text), which reads a number.
func New(longest int, cost uint64) (*Language, error) {
	env, err := cel.NewEnv(
		cel.ParserExpressionSizeLimit(longest), cel.ParserRecursionLimit(50), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals()),
		cel.Function("number", cel.Overload("number_string", []*cel.Type{cel.StringType}, cel.DoubleType, cel.UnaryBinding(number))),
	)
	if err != nil {
		return nil, fmt.Errorf("conditions cannot be set up: %w", err)
	}
	return &Language{env: env, cost: cost}, nil
}

func number(v ref.Val) ref.Val {
	s, _ := v.Value().(string)
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(n) {
		return types.NewErr("%q is no number", s[:min(len(s), 60)])
	}
	return types.Double(n)
}

// With returns the language with these names more. A name may have dots.
func (l *Language) With(names map[string]Type, constants map[string]int) (*Language, error) {
	var opts []cel.EnvOption
	for name, t := range names {
		opts = append(opts, cel.Variable(name, t.cel()))
	}
	for name, n := range constants {
		opts = append(opts, cel.Constant(name, cel.IntType, types.Int(n)))
	}
	env, err := l.env.Extend(opts...)
	if err != nil {
		return nil, fmt.Errorf("conditions cannot be set up: %w", err)
	}
	all := maps.Clone(names)
	maps.Copy(all, l.names)
	return &Language{env, l.cost, all}, nil
}

// Compile reads a condition. The error is the end of a sentence about it.
func (l *Language) Compile(text string) (*Condition, error) {
	ast, issues := l.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("it cannot be read (%s)", firstLine(err))
	}
	if ast.OutputType() != cel.BoolType {
		return nil, errors.New("it must be true or false, such as tool == \"run_shell\"")
	}
	program, err := l.env.Program(ast, cel.CostLimit(l.cost))
	if err != nil {
		return nil, fmt.Errorf("it cannot be used (%s)", firstLine(err))
	}
	c := &Condition{program: program}
	for _, r := range ast.NativeRep().ReferenceMap() {
		// The variables of its own, as in list.all(x, ...), are not asked for.
		if _, ours := l.names[r.Name]; ours && !slices.Contains(c.names, r.Name) {
			c.names = append(c.names, r.Name)
		}
	}
	slices.Sort(c.names)
	return c, nil
}

// firstLine keeps the first line of CEL's message, which says all.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(line, "ERROR: ")
}

// Condition is a compiled condition. It is safe for concurrent use.
type Condition struct {
	program cel.Program
	names   []string
}

// Names returns the names that the condition speaks of, sorted.
func (c *Condition) Names() []string { return slices.Clone(c.names) }

// Holds evaluates the condition. get is asked for the names that are needed; what it returns as
// an error makes the whole evaluation fail. An error leaves open whether the condition holds.
func (c *Condition) Holds(get func(name string) (any, error)) (bool, error) {
	a := &asked{get: get}
	out, _, err := c.program.Eval(a)
	switch {
	case a.err != nil:
		return false, a.err
	case err != nil:
		return false, errors.New(firstLine(err))
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("it is neither true nor false")
	}
	return holds, nil
}

// asked gives names their values in one evaluation, and keeps the first error.
type asked struct {
	get func(string) (any, error)
	err error
}

// ResolveName implements cel.Activation.
func (a *asked) ResolveName(name string) (any, bool) {
	v, err := a.get(name)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return types.WrapErr(err), true
	}
	return v, v != nil
}

// Parent implements cel.Activation.
func (a *asked) Parent() cel.Activation { return nil }
