package llm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Script is a [Model] that answers from a list of steps, for tests of whatever
// talks to a model. A request that a rule of [Script.When] matches is answered
// by that rule, any other takes the next step; a request after the last step
// fails with an [*Error]. It is safe for concurrent use; steps of concurrent
// requests may run at the same time.
type Script struct {
	mu       sync.Mutex
	rules    []rule
	steps    []func(Request) (Reply, error)
	taken    int // steps
	requests []Request
}

type rule struct {
	match func(Request) bool
	step  func(Request) (Reply, error)
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

// When answers every request that match is true for with step, in whatever
// order they come; they take no step of the list. The first rule that matches
// answers. match may be called from many goroutines at once.
func (s *Script) When(match func(Request) bool, step func(Request) (Reply, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, rule{match, step})
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
	step, n := s.next(r)
	if step == nil {
		return Reply{}, &Error{Sentence: fmt.Sprintf("The script has %d steps and was asked for one more.", n)}
	}
	reply, err := step(r)
	if err == nil && reply.Text != "" && show != nil {
		show(Delta{Text: reply.Text})
	}
	return reply, err
}

// next records r and finds what answers it, nil when nothing does, and the
// number of steps.
func (s *Script) next(r Request) (func(Request) (Reply, error), int) {
	s.mu.Lock()
	s.requests = append(s.requests, snapshot(r))
	rules := s.rules
	s.mu.Unlock()
	for _, rule := range rules { // match is foreign code: not under the lock
		if rule.match(r) {
			return rule.step, 0
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.taken
	if n >= len(s.steps) {
		return nil, len(s.steps)
	}
	s.taken++
	return s.steps[n], len(s.steps)
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
