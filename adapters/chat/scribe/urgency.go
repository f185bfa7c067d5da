package scribe

import (
	"slices"

	"countersign/adapters/chat"
)

// Urgency orders the calls that wait for their turn; lower goes first.
type Urgency int

// The urgencies, the most urgent first.
const (
	First   Urgency = iota // approvals: somebody is needed
	Normal                 // replies
	Quiet                  // the log of what ran, and what nobody waits for
	Passing                // drafts and status: never waits, is left out instead
)

// UrgencyOf returns how urgent a post is.
func UrgencyOf(p chat.Post) Urgency {
	switch {
	case p.Card != nil && !p.Quiet:
		return First
	case p.Log:
		return Quiet
	}
	return Normal
}

// Queue holds calls that wait for their turn, the most urgent first and those of one
// urgency in the order in which they came. The zero value is ready. Its user guards it.
type Queue struct {
	waiters []*Waiter
}

// Waiter is a queued call. Lane is the caller's own label; the queue ignores it.
type Waiter struct {
	Lane    string
	urgency Urgency
	ready   chan struct{}
}

// Urgency returns how urgent the call is.
func (w *Waiter) Urgency() Urgency { return w.urgency }

// Ready is closed when the call's turn has come.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// Len returns how many calls wait.
func (q *Queue) Len() int { return len(q.waiters) }

// Add lets a call wait.
func (q *Queue) Add(u Urgency) *Waiter {
	w := &Waiter{urgency: u, ready: make(chan struct{})}
	at := slices.IndexFunc(q.waiters, func(o *Waiter) bool { return o.urgency > u })
	if at < 0 {
		at = len(q.waiters)
	}
	q.waiters = slices.Insert(q.waiters, at, w)
	return w
}

// Next gives the turn to the most urgent call. One must wait.
func (q *Queue) Next() { q.NextWhere(func(*Waiter) bool { return true }) }

// NextWhere gives the turn to the most urgent call that may go; false says that none may.
func (q *Queue) NextWhere(may func(*Waiter) bool) bool {
	at := slices.IndexFunc(q.waiters, may)
	if at >= 0 {
		close(q.waiters[at].ready)
		q.waiters = slices.Delete(q.waiters, at, at+1)
	}
	return at >= 0
}

// Waits reports whether a call of a lane waits.
func (q *Queue) Waits(lane string) bool {
	return slices.ContainsFunc(q.waiters, func(w *Waiter) bool { return w.Lane == lane })
}

// Remove takes a call out that waits no longer. false means that its turn had come.
func (q *Queue) Remove(w *Waiter) bool {
	at := slices.Index(q.waiters, w)
	if at >= 0 {
		q.waiters = slices.Delete(q.waiters, at, at+1)
	}
	return at >= 0
}
