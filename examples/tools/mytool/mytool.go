// Package mytool is the example of docs/adding-a-tool.md: a tool that repeats a
// message. It only looks, so it runs unasked; a tool that changes something
// plans an action of approvals.KindChange instead and waits for people.
package mytool

import (
	"context"
	"encoding/json"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

const description = `Repeat a message.

### When to use
To see that a tool of your own is reached.

### When NOT to use
For anything real.

### Disambiguation
run_shell runs commands; this runs nothing.

### Examples
{"message": "hello"}
`

// New returns the tool.
func New() tools.Tool { return tool{} }

type tool struct{}

// Spec implements tools.Tool.
func (tool) Spec() tools.Spec {
	return tools.Spec{
		Name: "my_tool", Description: description, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"message": {Type: "string", Description: "The message to process"}},
			Required:   []string{"message"},
		}),
	}
}

// Plan implements tools.Tool. It has no effect: what it returns runs only with
// a permit.
func (tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Message string `json:"message"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{Tool: "my_tool", Kind: approvals.KindObserve, Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(_ context.Context, s tools.Sink) (tools.Result, error) {
		s(tools.Event{Kind: tools.Started})
		defer s(tools.Event{Kind: tools.Completed})
		return tools.Result{Value: "processed: " + args.Message}, nil
	}), nil
}
