// Package router lets tools that work on one machine work on any of several. Each tool gets an
// argument "target"; a call goes to that machine, or by default to the one that its thread works
// on. Machines are opened on first use.
//
// It knows no machines and decides nothing: its [Config] decides who may use what, and every call
// still goes through the gate, which sees the machine's own name in the action.
package router

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"countersign/tools"
)

// Config describes the targets.
type Config struct {
	// Names are the targets' names in the configuration, in display order.
	Names []string
	// Current returns the target that a thread works on.
	Current func(ctx context.Context, thread string) (string, error)
	// Allowed returns "" if the caller may use a target, otherwise the reason why not.
	Allowed func(c tools.Call, target string) string
	// Open returns the tools of a target, by name, connecting first if necessary.
	Open func(ctx context.Context, target string) (map[string]tools.Tool, error)
}

// New returns tools with the names and specs of the patterns. With a single target they get no
// additional argument.
func New(c Config, patterns []tools.Tool) []tools.Tool {
	out := make([]tools.Tool, len(patterns))
	for i, p := range patterns {
		s := p.Spec()
		t := &tool{cfg: c, spec: s}
		t.spec.Schema, t.ownsTarget = extend(s.Schema, c.Names)
		out[i] = t
	}
	return out
}

type tool struct {
	cfg        Config
	spec       tools.Spec
	ownsTarget bool // the tool has its own argument "target"
}

// targetArgument is the name of the argument.
const targetArgument = "target"

// extend adds the argument to a schema. If a tool already has one (tmux's -t), it may also name a
// machine.
func extend(schema json.RawMessage, names []string) (extended json.RawMessage, own bool) {
	var s map[string]json.RawMessage
	var props map[string]json.RawMessage
	if json.Unmarshal(schema, &s) != nil || json.Unmarshal(s["properties"], &props) != nil {
		return schema, false // the registry refuses it
	}
	list := strings.Join(names, ", ")
	if old, ok := props[targetArgument]; ok {
		own = true
		var p tools.Property
		if len(names) < 2 || json.Unmarshal(old, &p) != nil {
			return schema, own
		}
		p.Description = strings.TrimSuffix(p.Description, ".") + ". Or a machine: " + list + "."
		props[targetArgument] = tools.MustSchema(p)
	} else if len(names) < 2 {
		return schema, false
	} else {
		props[targetArgument] = tools.MustSchema(tools.Property{Type: "string", Enum: names, Description: "Machine; default: the thread's."})
	}
	s["properties"] = tools.MustSchema(props)
	return tools.MustSchema(s), own
}

// Spec implements tools.Tool.
func (t *tool) Spec() tools.Spec { return t.spec }

// Plan implements tools.Tool.
func (t *tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	name, args, err := t.chooseTarget(ctx, c)
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

// chooseTarget returns the target of a call, and the arguments without it.
func (t *tool) chooseTarget(ctx context.Context, c tools.Call) (string, json.RawMessage, error) {
	var args map[string]json.RawMessage
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return "", nil, tools.Invalid("%v", err)
	}
	if raw, ok := args[targetArgument]; ok {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return "", nil, tools.Invalid("%q: %v", targetArgument, err)
		}
		known := slices.Contains(t.cfg.Names, name)
		if known && (!t.ownsTarget || len(t.cfg.Names) > 1) {
			delete(args, targetArgument)
			return name, tools.MustSchema(args), nil
		}
		if !t.ownsTarget {
			return "", nil, tools.Invalid("there is no target %s; the targets are %s", tools.Quote(name), strings.Join(t.cfg.Names, ", "))
		}
	}
	if c.Target != "" {
		return c.Target, c.Args, nil
	}
	name, err := t.cfg.Current(ctx, c.Thread)
	if err != nil {
		return "", nil, fmt.Errorf("the thread's target is not known: %w", err)
	}
	return name, c.Args, nil
}
