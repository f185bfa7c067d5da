package toolstest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/toolstest"
)

type echo struct{}

func (echo) Spec() tools.Spec {
	return tools.Spec{
		Name: "echo", Level: risk.Low, Description: "Says it.\nWhen to use:\na\nWhen NOT to use:\nb\nDisambiguation:\nc\nExample:\nd",
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"text": {Type: "string", Description: "What to say."}},
			Required:   []string{"text"},
		}.WithClaim()),
	}
}

func (echo) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var a struct {
		tools.ClaimArgs
		Text string
	}
	if err := json.Unmarshal(c.Args, &a); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	act := approvals.Action{Tool: "echo", Kind: approvals.KindChange, Target: "t", Bytes: []byte(a.Text), Args: tools.WithoutClaim(c.Args)}
	return tools.Planned(act, a.Claim(), func(_ context.Context, s tools.Sink) (tools.Result, error) {
		s(tools.Event{Kind: tools.Started})
		s(tools.Event{Kind: tools.Stdout, Text: "a"})
		s(tools.Event{Kind: tools.Stdout, Text: "b"})
		return tools.Result{Value: a.Text}, nil
	}), nil
}

const call = `{"text":"hi","risk":"low","mutation":true,"privesc":false,"why":"test"}`

func TestCheckAcceptsAnHonestTool(t *testing.T) {
	toolstest.Check(t, echo{}, nil, toolstest.Case{Name: "one", Args: call})
}

func TestRunGivesWhatTheModelSees(t *testing.T) {
	reg, err := tools.NewRegistry(func() time.Time { return time.UnixMilli(5) }, echo{})
	if err != nil {
		t.Fatal(err)
	}
	out := toolstest.Run(t.Context(), t, reg, "echo", call)
	if out.Err != nil || !strings.HasSuffix(out.Text, `"unix_millis":5},"result":"hi"}`) || len(out.Kinds()) != 2 {
		t.Errorf("%+v", out)
	}
}
