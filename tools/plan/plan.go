// Package plan is the tool propose_plan: several calls on one card. People approve all steps at
// once, each exactly as shown. Afterwards the calls are made one by one and run without a card, as
// long as each one is the next step (approvals.Plan enforces this).
//
// The tool runs nothing: it plans the calls in order to show them.
package plan

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

//go:embed plan.md
var description string

// MaxSteps is how many steps a plan may have. People would approve a longer one unread.
const MaxSteps = 10

// Name is the tool's name.
const Name = "propose_plan"

// Planner plans one call without side effects; a registry provides it.
type Planner func(ctx context.Context, c tools.Call) (tools.Plan, error)

// Free reports whether a planned call would run without approval, as things are now.
type Free func(ctx context.Context, c tools.Call, p tools.Plan) bool

// New returns the tool. Free steps are not part of the approval: they would run without consuming a
// step, so the next step would not match. A nil free means that no step is free.
func New(p Planner, free Free) tools.Tool {
	if free == nil {
		free = func(context.Context, tools.Call, tools.Plan) bool { return false }
	}
	return tool{p, free}
}

type tool struct {
	plan Planner
	free Free
}

type args struct {
	Summary string `json:"summary"`
	Steps   []step `json:"steps"`
	tools.ClaimArgs
}

type step struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"arguments"`
}

// schema has a nested object, which tools.SimpleSchema cannot express.
func schema() json.RawMessage {
	s := tools.SimpleSchema{
		Properties: map[string]tools.Property{
			"summary": {Type: "string", Pattern: `\S`, MaxLength: 1000, Description: "Purpose, in one or two sentences."},
			"steps":   {Type: "array", MaxItems: MaxSteps, Description: "Calls, in order."},
		},
		Required: []string{"summary", "steps"},
	}.WithClaim()
	var m map[string]any
	if err := json.Unmarshal(tools.MustSchema(s), &m); err != nil {
		panic(err)
	}
	props, _ := m["properties"].(map[string]any)
	steps, _ := props["steps"].(map[string]any)
	steps["minItems"] = 2
	steps["items"] = map[string]any{
		"type": "object", "additionalProperties": false, "required": []string{"tool", "arguments"},
		"properties": map[string]any{
			"tool":      map[string]any{"type": "string", "description": "Tool name."},
			"arguments": map[string]any{"type": "object", "description": "Exactly as you will call it."},
		},
	}
	return tools.MustSchema(m)
}

// Spec implements tools.Tool.
func (tool) Spec() tools.Spec {
	return tools.Spec{Name: Name, Description: description, Level: risk.Low, Schema: schema()}
}

// Plan implements tools.Tool.
func (t tool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var a args
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	act := approvals.Action{
		Tool: Name, Kind: approvals.KindChange, Args: tools.WithoutClaim(c.Args),
		Preview: fmt.Sprintf("The agent's summary: %q\nApproving runs these steps in order. If a step changes or fails, you'll be asked again.",
			strings.TrimSpace(a.Summary)),
	}
	level := risk.Low
	keep := c.Keep
	var dropped []string
	for i, s := range a.Steps {
		if s.Tool == Name {
			return tools.Plan{}, tools.Invalid("step %d is a plan itself; put its steps into this one", i+1)
		}
		call := tools.Call{ID: fmt.Sprintf("%s/%d", c.ID, i+1), Thread: c.Thread, By: c.By, Groups: c.Groups, Agent: c.Agent, Target: c.Target, Name: s.Tool,
			Args: s.Args, Before: act.Steps}
		p, err := t.plan(ctx, call)
		if err != nil {
			return tools.Plan{}, tools.Invalid("step %d (%s) cannot be planned: %s", i+1, s.Tool, strings.TrimSuffix(err.Error(), "."))
		}
		if len(p.Action.Steps) > 0 {
			return tools.Plan{}, tools.Invalid("step %d is a plan itself; put its steps into this one", i+1)
		}
		if p.Nested != nil {
			return tools.Plan{}, tools.Invalid("step %d (%s) is work of many calls, which nobody can approve before they are known; call it by itself", i+1, s.Tool)
		}
		switch {
		case t.free(ctx, call, p):
		case c.Keep == nil:
			act.Steps = append(act.Steps, p.Action)
		case len(keep) > 0 && sameCall(p.Action, keep[0]):
			act.Steps = append(act.Steps, p.Action)
			keep = keep[1:]
		default:
			dropped = append(dropped, fmt.Sprintf("step %d (%s)", i+1, s.Tool))
			continue
		}
		level = risk.Max(level, p.Level)
	}
	if len(keep) > 0 {
		return tools.Plan{}, tools.Failed("the plan is no longer what people dropped steps of; propose it again")
	}
	if len(act.Steps) == 0 {
		return tools.Plan{}, tools.Invalid("none of these steps asks anybody; make the calls without a plan")
	}
	act.Target = act.Steps[0].Target
	n := len(act.Steps)
	without := ""
	if len(dropped) > 0 {
		without = "; people dropped " + strings.Join(dropped, ", ") + ": leave those out and don't propose them again"
	}
	out := tools.Planned(act, a.Claim(), func(context.Context, tools.Sink) (tools.Result, error) {
		return tools.Result{
			Value: fmt.Sprintf("approved: make the calls of the plan now, one after the other, in this order and with exactly these arguments; "+
				"the %d that change something run without another card within %s%s", n, approvals.PlanWithin, without),
			Text: fmt.Sprintf("The plan of %d steps is approved.", n),
		}, nil
	})
	out.Level = level
	return out, nil
}

// sameCall reports whether two actions come from the same call. What the machine was like
// when they were planned may differ.
func sameCall(a, b approvals.Action) bool {
	return a.Tool == b.Tool && a.Path == b.Path && bytes.Equal(a.Args, b.Args) && bytes.Equal(a.Bytes, b.Bytes)
}
