package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
)

// Outcome says how a tool call ended. It is the value of a label.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // it ran and failed, or could not be planned or judged
	Denied  Outcome = "denied"  // by a person
	Skipped Outcome = "skipped" // answered without running
	Unknown Outcome = "unknown" // it may or may not have happened
	// Left is for runs, not for results: the program went away in the middle.
	Left Outcome = "left"
)

func outcomes() []Outcome { return []Outcome{OK, Failed, Denied, Skipped, Unknown, Left} }

// OutcomeOf is how the call ended that a result closes.
func OutcomeOf(r history.Result) Outcome {
	switch {
	case r.Denied:
		return Denied
	case r.Unknown:
		return Unknown
	case r.Skipped:
		return Skipped
	case r.Failed:
		return Failed
	}
	return OK
}

// Tool begins the run of a call that may run now. What the run does in the context that
// it returns is below its span. end says how it ended; result is what the model is told,
// and is used only when content is switched on. Only the first call of end counts.
//
// countersign_tool_calls_total is not counted here but by [Observer.Appended], because
// most calls that do not end well never run.
func (o *Observer) Tool(ctx context.Context, thread chat.ThreadID, c llm.Call) (_ context.Context, end func(outcome Outcome, result string)) {
	began := time.Now()
	scope := o.started(thread, c.ID)
	live := trace.SpanFromContext(context.Background())
	if o.tracer != nil {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = o.Within(ctx, thread, scope)
		}
		attrs := o.toolAttrs(thread, c.ID, c.Name)
		if o.cfg.Content {
			attrs = append(attrs, attribute.String(attrArguments, o.clean(c.Args)))
		}
		ctx, live = o.tracer.Start(ctx, opTool+" "+cut(c.Name, maxName), trace.WithAttributes(attrs...))
	}
	var once sync.Once
	return ctx, func(outcome Outcome, result string) {
		once.Do(func() {
			if !slices.Contains(outcomes(), outcome) {
				outcome = Failed
			}
			o.metrics.toolRan(c.Name, outcome, time.Since(began))
			live.SetAttributes(str(attrOutcome, string(outcome)))
			if o.cfg.Content && live.IsRecording() {
				live.SetAttributes(attribute.String(attrResult, o.clean(result)))
			}
			if outcome != OK {
				fail(live, string(outcome))
			}
			live.End()
		})
	}
}

// started notes that this process runs a call, and says which scope it is of.
func (o *Observer) started(thread chat.ThreadID, id string) (scope string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	el := o.known[thread]
	if el == nil {
		return ""
	}
	t := el.Value.(*entry).conv.turn
	if t == nil || t.calls[id] == nil {
		return ""
	}
	t.calls[id].live = true
	return t.calls[id].scope
}
