// Package door starts processes that nobody approved. Callers state a [Purpose]; the target's, thread's
// and requester's rules can refuse it. What people or a proof permitted starts by package approved instead.
//
// It judges no text: a [Read] is proven before it comes here (approvals/risk).
package door

import (
	"context"
	"errors"
	"fmt"

	"countersign/targets/backend"
	"countersign/targets/backend/internal/warrant"
)

// Purpose is why a process starts without a permit.
type Purpose string

// The purposes.
const (
	// Read is text that is proven to only read.
	Read Purpose = "read"
	// Rehearsal runs a command that nobody approved in a throwaway view (targets/rehearsal).
	Rehearsal Purpose = "rehearsal"
	// Prediction is a program's own dry run, under a lock.
	Prediction Purpose = "prediction"
	// Look is a program of the bot's own that looks at the target. What it looks at is given as words.
	Look Purpose = "look"
	// Plumbing is a program of the bot's own that its work needs: a terminal, a channel, a copy, a timer.
	Plumbing Purpose = "plumbing"
)

// Rules say why nothing may run for a purpose, in words for people; nil if it may.
type Rules func(Purpose) error

// errClosed wraps why a process was not started.
var errClosed = errors.New("door: nothing runs here without approval")

// Starter is a [backend.Target] as far as it starts processes.
type Starter interface {
	Start(ctx context.Context, s backend.Spec) (backend.Process, error)
}

// Start starts a process without a permit. The bot's own programs ([Look], [Plumbing]) need no rules: they are scripts
// of the bot's, and what they look at comes as arguments. Everything else needs rules that let it run.
func Start(ctx context.Context, t Starter, p Purpose, r Rules, s backend.Spec) (backend.Process, error) {
	switch {
	case p == Look, p == Plumbing:
		if s.Shell != "" {
			return nil, fmt.Errorf("door: a %s is words, not shell text", p)
		}
	case r == nil:
		return nil, fmt.Errorf("%w: no rules allow the %s", errClosed, p)
	case p == Prediction && s.Lock == nil:
		return nil, fmt.Errorf("%w: a prediction needs a lock", errClosed)
	case p == Read, p == Rehearsal, p == Prediction:
		if err := r(p); err != nil {
			return nil, fmt.Errorf("%w: %w", errClosed, err)
		}
	default:
		return nil, fmt.Errorf("%w: %q is no purpose", errClosed, p)
	}
	s.Warrant = warrant.For(s.Content())
	return t.Start(ctx, s)
}
