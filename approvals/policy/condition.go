package policy

import (
	"maps"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	cel "countersign/internal/condition"
)

// Limits of one condition. The cost is the one that CEL counts (about one for each
// step and one for ten characters that a step reads), so that a condition over a
// command of 60 kB still has room and none takes more than some milliseconds.
const (
	maxCondition     = 2000 // code points of its text
	maxConditionCost = 200_000
)

// conditions is CEL over the facts.
func conditions() (*cel.Language, error) {
	names := map[string]cel.Type{
		"labels": cel.TextMap, "caller": cel.TextMap, "effects": cel.Texts, "requester_groups": cel.Texts, "level": cel.Int, "now": cel.Time, "bot": cel.Bool, "outside": cel.Bool,
	}
	for _, name := range []string{"channel", "target", "tool", "kind", "command", "path", "risk", "requester"} {
		names[name] = cel.Text
	}
	levels := map[string]int{}
	for l := risk.Read; l <= risk.Critical; l++ {
		levels[strings.ToUpper(l.String())] = rank(l)
	}
	language, err := cel.New(maxCondition, maxConditionCost)
	if err != nil {
		return nil, err
	}
	return language.With(names, levels)
}

// holds evaluates a condition over facts; an error leaves open whether it holds.
func (f Facts) holds(c *cel.Condition, groups []string) (bool, error) {
	return c.Holds(func(name string) (any, error) {
		switch name {
		case "channel":
			return f.Channel, nil
		case "target":
			return f.Target, nil
		case "labels":
			return f.Labels, nil
		case "tool":
			return f.Tool, nil
		case "kind":
			return f.Kind, nil
		case "command":
			return f.Command, nil
		case "path":
			return f.Path, nil
		case "risk":
			return f.Level.String(), nil
		case "level":
			return rank(f.Level), nil
		case "effects":
			return f.Effects, nil
		case "requester":
			return string(f.Requester.ID), nil
		case "requester_groups":
			return groups, nil
		case "caller":
			return f.callerFacts(), nil
		case "bot":
			return f.Requester.Bot, nil
		case "outside":
			return f.Requester.Outside, nil
		case "now":
			return f.Now, nil
		}
		return nil, nil
	})
}

// callerFacts are those of the caller with all keys, so that a condition can name each.
func (f Facts) callerFacts() map[string]string {
	facts := (approvals.Caller{}).Facts("")
	maps.Copy(facts, f.Caller)
	return facts
}

// rank orders levels; an unknown level counts as critical.
func rank(l risk.Level) int {
	if l <= risk.Unknown || l > risk.Critical {
		return int(risk.Critical)
	}
	return int(l)
}
