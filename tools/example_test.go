package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

// myTool answers with what it is given. A tool of your own needs no more: a
// spec, a plan that has no effect, and what the plan does once it is permitted.
type myTool struct{}

func (myTool) Spec() tools.Spec {
	return tools.Spec{
		Name:  "my_tool",
		Level: risk.Read, // it can only look; a tool without a level does not register
		Description: "Processes a message.\n\n" +
			"## When to use\nTo process a message.\n\n" +
			"## When NOT to use\nFor anything else.\n\n" +
			"## Disambiguation\nrun_shell runs commands; my_tool touches no machine.\n\n" +
			"## Examples\n- {\"message\": \"hello\"}\n",
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"message": {Type: "string", Description: "The message to process."}},
			Required:   []string{"message"},
		}),
	}
}

func (myTool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	action := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: "harness", Args: c.Args}
	return tools.Planned(action, approvals.Claim{}, func(context.Context, tools.Sink) (tools.Result, error) {
		return tools.Result{Value: "processed: " + args.Message}, nil
	}), nil
}

// B-21, B-22: a custom tool, from its registration to what the model is told.
// N-48, X-31: registered with a level, and executed.
func Example() {
	now := func() time.Time { return time.UnixMilli(1_700_000_000_000) }
	reg, err := tools.NewRegistry(now, myTool{})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	plan, err := reg.Plan(ctx, tools.Call{Name: "my_tool", Args: []byte(`{"message":"hello"}`)})
	if err != nil {
		fmt.Println(tools.ErrorText(err))
		return
	}
	permit, err := approvals.Ledger{}.Observe(plan.Action, risk.Verdict{})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := plan.Run(ctx, permit, nil)
	if err != nil {
		fmt.Println(tools.ErrorText(err))
		return
	}
	fmt.Println(reg.Envelope(result.Value))
	_, err = reg.Plan(ctx, tools.Call{Name: "my_tool", Args: []byte(`{}`)})
	fmt.Println(tools.ErrorText(err))
	// Output:
	// {"harness_timestamp":{"source":"harness","unix_millis":1700000000000},"result":"processed: hello"}
	// Tool error: validation error: missing required parameter "message"
	// parameters: message (string, required)
}
