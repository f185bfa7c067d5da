// Package router lets the tools that work on a machine work on any of several:
// each gets an argument "target", and a call goes to the machine that it names, or
// else to the one that its thread works on. Machines are opened when the first call
// needs them.
//
// It knows no machine and decides nothing: what may be used by whom is asked of its
// [Config], and every call still goes through the gate, which sees the machine's
// own name in the action.
package router

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"countersign/tools"
)

// Config says which targets there are.
type Config struct {
	// Names are the targets' names in the configuration, in the order in which they
	// are told.
	Names []string
	// Current is the target that a thread works on.
	Current func(ctx context.Context, thread string) (string, error)
	// Allowed returns "" when the caller may use a target, and otherwise why not.
	Allowed func(c tools.Call, target string) string
	// Open returns the tools of a target, by their names, connecting first where that
	// is needed.
	Open func(ctx context.Context, target string) (map[string]tools.Tool, error)
}

// New returns tools of the same names as the patterns, which are used for their
// specs alone. With one target they take no argument more.
func New(c Config, patterns []tools.Tool) []tools.Tool {
	out := make([]tools.Tool, len(patterns))
	for i, p := range patterns {
		s := p.Spec()
		t := &tool{cfg: c, spec: s}
		t.spec.Schema, t.own = extend(s.Schema, c.Names)
		out[i] = t
	}
	return out
}

type tool struct {
	cfg  Config
	spec tools.Spec
	own  bool // the tool has an argument "target" of its own
}

// argument is the name of the argument.
const argument = "target"

// extend adds the argument to a schema. Where a tool has one already (tmux's -t),
// that argument may also be the name of a machine.
func extend(schema json.RawMessage, names []string) (extended json.RawMessage, own bool) {
	var s map[string]json.RawMessage
	var props map[string]json.RawMessage
	if json.Unmarshal(schema, &s) != nil || json.Unmarshal(s["properties"], &props) != nil {
		return schema, false // the registry refuses it
	}
	list := strings.Join(names, ", ")
	if old, ok := props[argument]; ok {
		own = true
		var p tools.Property
		if len(names) < 2 || json.Unmarshal(old, &p) != nil {
			return schema, own
		}
		p.Description = strings.TrimSuffix(p.Description, ".") + ". Or a machine: " + list + "."
		props[argument] = tools.MustSchema(p)
	} else if len(names) < 2 {
		return schema, false
	} else {
		props[argument] = tools.MustSchema(tools.Property{Type: "string", Enum: names, Description: "Machine; default: the thread's."})
	}
	s["properties"] = tools.MustSchema(props)
	return tools.MustSchema(s), own
}

// Spec implements tools.Tool.
func (t *tool) Spec() tools.Spec { return t.spec }

// Plan implements tools.Tool.
func (t *tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	name, args, err := t.choose(ctx, c)
	if err != nil {
		return tools.Plan{}, err
	}
	if why := t.cfg.Allowed(c, name); why != "" {
		return tools.Plan{}, tools.Failed("%s", why)
	}
	machine, err := t.cfg.Open(ctx, name)
	if err != nil {
		return tools.Plan{}, tools.Failed("the target %s cannot be used now: %w", name, err)
	}
	own := machine[t.spec.Name]
	if own == nil {
		return tools.Plan{}, tools.Failed("%s cannot be used on %s, which has no tmux; use another target or a plain command", t.spec.Name, name)
	}
	c.Args = args
	return own.Plan(ctx, c)
}

// choose finds the target of a call, and the arguments without it.
func (t *tool) choose(ctx context.Context, c tools.Call) (string, json.RawMessage, error) {
	var args map[string]json.RawMessage
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return "", nil, tools.Invalid("%v", err)
	}
	if raw, ok := args[argument]; ok {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return "", nil, tools.Invalid("%q: %v", argument, err)
		}
		known := slices.Contains(t.cfg.Names, name)
		if known && (!t.own || len(t.cfg.Names) > 1) {
			delete(args, argument)
			return name, tools.MustSchema(args), nil
		}
		if !t.own {
			return "", nil, tools.Invalid("there is no target %s; the targets are %s", tools.Quote(name), strings.Join(t.cfg.Names, ", "))
		}
	}
	name, err := t.cfg.Current(ctx, c.Thread)
	if err != nil {
		return "", nil, fmt.Errorf("the thread's target is not known: %w", err)
	}
	return name, c.Args, nil
}
