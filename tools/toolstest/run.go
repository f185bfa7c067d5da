package toolstest

import (
	"context"
	"testing"

	"countersign/tools"
)

// Outcome is the outcome of [Run].
type Outcome struct {
	Result tools.Result
	Err    error
	Events []tools.Event
	// Text is what the model sees.
	Text string
}

// Kinds returns the kinds of the events, without repetitions in a row.
func (o Outcome) Kinds() []tools.EventKind {
	var out []tools.EventKind
	for _, e := range o.Events {
		if len(out) == 0 || out[len(out)-1] != e.Kind {
			out = append(out, e.Kind)
		}
	}
	return out
}

// Run plans a call and runs it with an approval for exactly its action. It fails the test if the
// call cannot be planned.
func Run(ctx context.Context, t testing.TB, reg *tools.Registry, name, args string) Outcome {
	t.Helper()
	p, err := reg.Plan(ctx, tools.Call{Direct: true, ID: "call_1", Thread: "test:1", By: "test:u", Name: name, Args: []byte(args)})
	if err != nil {
		t.Fatalf("Plan %s %s: %v", name, args, err)
	}
	return RunPlan(ctx, t, reg, p)
}

// RunPlan runs a plan with an approval for exactly its action. watch also receives the events
// during the run.
func RunPlan(ctx context.Context, t testing.TB, reg *tools.Registry, p tools.Plan, watch ...tools.Sink) Outcome {
	t.Helper()
	var out Outcome
	out.Result, out.Err = p.Run(ctx, permit(t, p.Action), func(e tools.Event) {
		out.Events = append(out.Events, e)
		for _, w := range watch {
			w(e)
		}
	})
	if out.Err != nil {
		out.Text = tools.ErrorText(out.Err)
	} else {
		out.Text = reg.Envelope(out.Result.Value)
	}
	return out
}
