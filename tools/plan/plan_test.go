package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"countersign/approvals"
	"countersign/tools"
	"countersign/tools/plan"
	"countersign/tools/toolstest"
)

// shell plans run_shell and nothing else.
func shell(_ context.Context, c tools.Call) (tools.Plan, error) {
	var a struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(c.Args, &a); err != nil || c.Name != "run_shell" || a.Command == "" {
		return tools.Plan{}, tools.Invalid("there is no such call")
	}
	return tools.Planned(approvals.Action{Tool: c.Name, Kind: approvals.KindShell, Target: "web-1", Bytes: []byte(a.Command)}, approvals.Claim{}, nil), nil
}

const labels = `"risk":"low","mutation":true,"privesc":false,"why":"because"`

func args(steps string) string {
	return `{"summary":"two things","steps":[` + steps + `],` + labels + `}`
}

const (
	one = `{"tool":"run_shell","arguments":{"command":"touch a"}}`
	two = `{"tool":"run_shell","arguments":{"command":"touch b"}}`
)

func TestToolKeepsItsPromises(t *testing.T) {
	toolstest.Check(t, plan.New(shell, nil), nil, toolstest.Case{
		Name: "two steps", Args: args(one + "," + two),
		Other: map[string]string{"summary": `"other"`, "steps": `[` + two + `,` + one + `]`},
	})
}

func TestPlan(t *testing.T) {
	p, err := plan.New(shell, nil).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(args(one + "," + two))})
	if err != nil {
		t.Fatal(err)
	}
	a := p.Action
	if len(a.Steps) != 2 || string(a.Steps[1].Bytes) != "touch b" || a.Target != "web-1" || a.Kind != approvals.KindChange || !strings.Contains(a.Preview, "two things") {
		t.Errorf("%+v", a)
	}
	if _, err := p.Run(t.Context(), approvals.Permit{}, nil); !errors.Is(err, tools.ErrNotPermitted) {
		t.Errorf("without a permit: %v", err)
	}
	left, err := plan.New(shell, nil).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(args(one + "," + two + "," + one)), Keep: []approvals.Action{a.Steps[1], a.Steps[0]}})
	if err != nil || len(left.Action.Steps) != 2 || string(left.Action.Steps[0].Bytes) != "touch b" || string(left.Action.Steps[1].Bytes) != "touch a" {
		t.Errorf("steps were dropped: %+v %v", left.Action.Steps, err)
	}
	if _, err := plan.New(shell, nil).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(args(one + "," + one)), Keep: a.Steps[1:]}); err == nil {
		t.Error("a step that is not there any more was kept")
	}
	for rule, steps := range map[string]string{
		"a step that cannot be planned": one + `,{"tool":"nope","arguments":{}}`,
		"a plan within a plan":          one + `,{"tool":"propose_plan","arguments":{}}`,
	} {
		var bad *tools.Error
		_, err := plan.New(shell, nil).Plan(t.Context(), tools.Call{ID: "c", Args: json.RawMessage(args(steps))})
		if !errors.As(err, &bad) || bad.Kind != tools.InvalidArguments || !strings.Contains(bad.Sentence, "step 2") {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
