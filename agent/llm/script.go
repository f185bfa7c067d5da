package llm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Script is a [Model] that answers from a list of steps, for tests of whatever
// talks to a model. Each request takes the next step; a request after the last
// step fails with an [*Error]. It is safe for concurrent use; steps of
// concurrent requests may run at the same time.
type Script struct {
	mu       sync.Mutex
	steps    []func(Request) (Reply, error)
	requests []Request
}

var _ Model = (*Script)(nil)

// NewScript returns a model that answers with steps, in this order.
func NewScript(steps ...func(Request) (Reply, error)) *Script {
	return &Script{steps: slices.Clone(steps)}
}

// Say is a step that answers with text.
func Say(text string) func(Request) (Reply, error) {
	return func(Request) (Reply, error) { return Reply{Text: text, Finish: FinishStop}, nil }
}

// Ask is a step that asks for tool calls.
func Ask(calls ...Call) func(Request) (Reply, error) {
	return func(Request) (Reply, error) { return Reply{Calls: slices.Clone(calls), Finish: FinishCalls}, nil }
}

// Fail is a step that fails with err.
func Fail(err error) func(Request) (Reply, error) {
	return func(Request) (Reply, error) { return Reply{}, err }
}

// Add appends steps.
func (s *Script) Add(steps ...func(Request) (Reply, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, steps...)
}

// Requests returns copies of the requests so far, in the order of their arrival.
func (s *Script) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Reply implements [Model]. A context that has ended takes no step.
func (s *Script) Reply(ctx context.Context, r Request, show func(Delta)) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, &Error{Sentence: "The request to the model was stopped.", Cause: err}
	}
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, snapshot(r))
	var step func(Request) (Reply, error)
	if n < len(s.steps) {
		step = s.steps[n]
	}
	s.mu.Unlock()
	if step == nil {
		return Reply{}, &Error{Sentence: fmt.Sprintf("The script has %d steps and was asked for one more.", n)}
	}
	reply, err := step(r)
	if err == nil && reply.Text != "" && show != nil {
		show(Delta{Text: reply.Text})
	}
	return reply, err
}

// snapshot copies what a caller may go on changing after its request.
func snapshot(r Request) Request {
	r.Items = slices.Clone(r.Items)
	for i := range r.Items {
		r.Items[i].Calls = slices.Clone(r.Items[i].Calls)
	}
	r.Tools = slices.Clone(r.Tools)
	used := make(map[string]bool, len(r.UsedCallIDs))
	maps.Copy(used, r.UsedCallIDs)
	r.UsedCallIDs = used
	return r
}
