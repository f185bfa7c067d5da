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

// Waiter is a call that waits.
type Waiter struct {
	urgency Urgency
	ready   chan struct{}
}

// Ready is closed when the call's turn has come.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// Len returns how many calls wait.
func (q *Queue) Len() int { return len(q.waiters) }

// Add lets a call wait.
func (q *Queue) Add(u Urgency) *Waiter {
	w := &Waiter{u, make(chan struct{})}
	at := slices.IndexFunc(q.waiters, func(o *Waiter) bool { return o.urgency > u })
	if at < 0 {
		at = len(q.waiters)
	}
	q.waiters = slices.Insert(q.waiters, at, w)
	return w
}

// Next gives the turn to the most urgent call. One must wait.
func (q *Queue) Next() {
	close(q.waiters[0].ready)
	q.waiters = slices.Delete(q.waiters, 0, 1)
}

// Remove takes a call out that waits no longer. false means that its turn had come.
func (q *Queue) Remove(w *Waiter) bool {
	at := slices.Index(q.waiters, w)
	if at >= 0 {
		q.waiters = slices.Delete(q.waiters, at, at+1)
	}
	return at >= 0
}
