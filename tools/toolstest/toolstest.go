// Package toolstest checks what every tool guarantees: its schema and guidance are complete,
// planning has no side effects and is repeatable, the approved action covers every argument, every
// argument is on the card, and nothing runs without a permit.
//
// [Check] is for the tests of each tool; [Target] is an in-memory machine. [Run] runs a plan as the
// bot does, with an approval from a real ledger.
package toolstest

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/risk"
	"countersign/tools"
)

// Case is one valid call of a tool. A tool's cases together must use every argument of its schema.
type Case struct {
	Name string
	// Args is a JSON object.
	Args string
	// Other gives another valid value, in JSON, for arguments where a small change of the given
	// value is not valid.
	Other map[string]string
	// Hidden lists arguments that need not change the action, such as an alias of another argument.
	Hidden []string
}

// Check checks tool with these calls. effects counts the side effects so far; nil means that the
// tool has none to count.
func Check(t *testing.T, tool tools.Tool, effects func() int, cases ...Case) {
	t.Helper()
	if effects == nil {
		effects = func() int { return 0 }
	}
	spec := tool.Spec()
	reg, err := tools.NewRegistry(func() time.Time { return time.Unix(0, 0) }, tool)
	if err != nil {
		t.Fatalf("the registry refuses it: %v", err)
	}
	if err := reg.Compile(); err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties map[string]struct {
			Description string   `json:"description"`
			Enum        []string `json:"enum"`
		} `json:"properties"`
		Required   []string `json:"required"`
		Additional *bool    `json:"additionalProperties"`
	}
	if err := json.Unmarshal(spec.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	t.Run("schema", func(t *testing.T) {
		if schema.Additional == nil || *schema.Additional {
			t.Error("unknown arguments are not refused (additionalProperties)")
		}
		for name, p := range schema.Properties {
			if strings.TrimSpace(p.Description) == "" {
				t.Errorf("the argument %q has no description", name)
			}
		}
		for _, name := range schema.Required {
			if _, ok := schema.Properties[name]; !ok {
				t.Errorf("%q is required and not described", name)
			}
		}
		again := tool.Spec()
		if again.Name != spec.Name || !slices.Equal(again.Schema, spec.Schema) || again.Description != spec.Description {
			t.Error("Spec is not the same each time")
		}
	})
	_, claims := schema.Properties["risk"]
	if spec.Level == risk.Read && claims {
		if _, shell := schema.Properties["command"]; !shell {
			t.Error("a tool that can only look asks for a claim")
		}
	}
	used := map[string]bool{}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { check(t, reg, spec, claims, effects, c, used) })
	}
	for name := range schema.Properties {
		if !used[name] {
			t.Errorf("no case uses the argument %q", name)
		}
	}
}

func check(t *testing.T, reg *tools.Registry, spec tools.Spec, claims bool, effects func() int, c Case, used map[string]bool) {
	t.Helper()
	var args map[string]any
	if err := json.Unmarshal([]byte(c.Args), &args); err != nil {
		t.Fatalf("the case's arguments: %v", err)
	}
	before := effects()
	plan := func(t *testing.T, a map[string]any) (tools.Plan, error) {
		t.Helper()
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return reg.Plan(t.Context(), tools.Call{Direct: true, ID: "call_1", Thread: "test:1", By: "test:u", Name: spec.Name, Args: raw})
	}
	first, err := plan(t, args)
	if err != nil {
		t.Fatalf("Plan: %v", err)
	}
	act := first.Action
	if act.Tool != spec.Name || act.Kind == "" || act.Target == "" {
		t.Errorf("the action is not complete: %+v", act)
	}
	if first.Level < spec.Level {
		t.Errorf("the plan's level is %v, the tool's %v", first.Level, spec.Level)
	}
	if first.Claim.Given != claims {
		t.Errorf("Claim.Given is %v, and the schema asks for a claim: %v", first.Claim.Given, claims)
	}
	again, err := plan(t, args)
	if err != nil || again.Action.Digest() != act.Digest() {
		t.Errorf("planning again gives another action (%v)", err)
	}
	if _, err := first.Run(t.Context(), approvals.Permit{}, nil); !errors.Is(err, tools.ErrNotPermitted) {
		t.Errorf("Run without a permit: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		used[name] = true
		changed := maps.Clone(args)
		changed[name] = otherValue(t, name, args[name], c.Other)
		p, err := plan(t, changed)
		if err != nil {
			t.Errorf("Plan with another %q (%v): %v", name, changed[name], err)
			continue
		}
		same := p.Action.Digest() == act.Digest()
		switch {
		case slices.Contains(tools.ClaimNames(), name) && claims:
			if !same {
				t.Errorf("the label %q is part of what people approve", name)
			}
			if p.Claim == first.Claim {
				t.Errorf("the label %q is not part of the claim", name)
			}
		case same && !slices.Contains(c.Hidden, name):
			t.Errorf("another %q (%v) gives the same digest: people would not know what they approve", name, changed[name])
		case !same && cardText(p.Action) == cardText(act):
			t.Errorf("another %q (%v) gives the same card: people would not see what they approve", name, changed[name])
		}
	}
	if claims {
		checkClaims(t, args, plan)
	}
	extra := maps.Clone(args)
	extra["no_such_argument"] = 1
	if _, err := plan(t, extra); err == nil {
		t.Error("an unknown argument is accepted")
	}
	if after := effects(); after != before {
		t.Errorf("planning had %d effects", after-before)
	}
}

func checkClaims(t *testing.T, args map[string]any, plan func(*testing.T, map[string]any) (tools.Plan, error)) {
	t.Helper()
	for _, name := range tools.ClaimNames() {
		without := maps.Clone(args)
		delete(without, name)
		want := `validation error: missing required parameter "` + name + `"`
		if _, err := plan(t, without); err == nil || !strings.HasPrefix(err.Error(), want+"\n") {
			t.Errorf("without %q: %v, want %s", name, err, want)
		}
	}
	for name, bad := range map[string]any{"risk": "huge", "mutation": "yes", "privesc": 1, "why": " "} {
		wrong := maps.Clone(args)
		wrong[name] = bad
		if _, err := plan(t, wrong); err == nil {
			t.Errorf("%q may be %v", name, bad)
		}
	}
}

// cardText is what people see of an action before they decide, without the digest, which tells them
// nothing.
func cardText(a approvals.Action) string {
	b, err := json.Marshal(card.New(approvals.Record{State: approvals.Pending, Action: a}, ""))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// otherValue returns a value that differs from v.
func otherValue(t *testing.T, name string, v any, given map[string]string) any {
	t.Helper()
	if raw, ok := given[name]; ok {
		var o any
		if err := json.Unmarshal([]byte(raw), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	switch x := v.(type) {
	case bool:
		return !x
	case float64:
		return x + 1
	case string:
		if name == "risk" {
			if x == "high" {
				return "low"
			}
			return "high"
		}
		return x + "x"
	case []any:
		return append(slices.Clone(x), x...)
	}
	t.Fatalf("the case does not say another value for %q", name)
	return nil
}
