package policy

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"countersign/approvals/risk"
)

// Limits of one condition. The cost is the one that CEL counts (about one for each
// step and one for ten characters that a step reads), so that a condition over a
// command of 60 kB still has room and none takes more than some milliseconds.
const (
	maxCondition     = 2000 // code points of its text
	maxConditionCost = 200_000
)

// condition is a compiled `when`. It is safe for concurrent use.
type condition struct{ program cel.Program }

// conditions compiles CEL over the facts.
type conditions struct{ env *cel.Env }

func newConditions() (*conditions, error) {
	vars := []cel.EnvOption{
		cel.ParserExpressionSizeLimit(maxCondition), cel.ParserRecursionLimit(50), cel.DefaultUTCTimeZone(true),
		cel.Variable("labels", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("effects", cel.ListType(cel.StringType)),
		cel.Variable("requester_groups", cel.ListType(cel.StringType)),
		cel.Variable("level", cel.IntType),
		cel.Variable("now", cel.TimestampType),
		cel.Variable("bot", cel.BoolType),
		cel.Variable("outside", cel.BoolType),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateDurationLiterals()),
	}
	for _, name := range []string{"channel", "target", "tool", "kind", "command", "path", "risk", "requester"} {
		vars = append(vars, cel.Variable(name, cel.StringType))
	}
	for l := risk.Read; l <= risk.Critical; l++ {
		vars = append(vars, cel.Constant(strings.ToUpper(l.String()), cel.IntType, types.Int(rank(l))))
	}
	env, err := cel.NewEnv(vars...)
	if err != nil {
		return nil, fmt.Errorf("conditions cannot be set up: %w", err)
	}
	return &conditions{env}, nil
}

func (c *conditions) compile(text string) (*condition, error) {
	ast, issues := c.env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("it cannot be read (%s)", celMessage(err))
	}
	if ast.OutputType() != cel.BoolType {
		return nil, errors.New("it must be true or false, such as tool == \"run_shell\"")
	}
	program, err := c.env.Program(ast, cel.CostLimit(maxConditionCost))
	if err != nil {
		return nil, fmt.Errorf("it cannot be used (%s)", celMessage(err))
	}
	return &condition{program}, nil
}

// celMessage keeps the first line of CEL's message, which says all.
func celMessage(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(line, "ERROR: ")
}

// eval evaluates the condition; an error leaves open whether it holds.
func (c *condition) eval(f Facts, groups []string) (bool, error) {
	out, _, err := c.program.Eval(map[string]any{
		"channel": f.Channel, "target": f.Target, "labels": f.Labels, "tool": f.Tool, "kind": f.Kind, "command": f.Command, "path": f.Path,
		"risk": f.Level.String(), "level": rank(f.Level), "effects": f.Effects, "requester": string(f.Requester.ID),
		"requester_groups": groups, "bot": f.Requester.Bot, "outside": f.Requester.Outside, "now": f.Now,
	})
	if err != nil {
		return false, errors.New(celMessage(err))
	}
	holds, ok := out.Value().(bool)
	if !ok {
		return false, errors.New("it is neither true nor false")
	}
	return holds, nil
}

// rank orders levels; an unknown level counts as critical.
func rank(l risk.Level) int {
	if l <= risk.Unknown || l > risk.Critical {
		return int(risk.Critical)
	}
	return int(l)
}
