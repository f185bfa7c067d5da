package discord

import "time"

// Hurry makes the adapter's own clocks run in steps of d, for tests that watch
// what it does by itself.
func (a *Adapter) Hurry(d time.Duration) {
	a.times.keep, a.times.retry, a.times.show.Show, a.times.show.After, a.times.typing = d, d/4, d, d/4, 2*d
}

// GiveUp is for how long a message that cannot be stored is offered again.
func (a *Adapter) GiveUp(d time.Duration) { a.times.give = d }

// AckBy is when an interaction without an answer is acknowledged.
func (a *Adapter) AckBy(d time.Duration) { a.times.ack = d }

// StaleAfter is the age from which an interaction is acknowledged before it is decided.
func (a *Adapter) StaleAfter(d time.Duration) { a.times.stale = d }

// OnHandled is told of each message that is done with.
func (a *Adapter) OnHandled(f func(id string, err error)) { a.handled = f }

// TypingEvery is how often typing is shown again.
func (a *Adapter) TypingEvery(d time.Duration) { a.times.typing = d }

// RunsFor makes an adapter one that began a while ago. It is called before Run.
func (a *Adapter) RunsFor(d time.Duration) { a.began = a.began.Add(-d) }

// Bound sets how many channels and threads are read after a gap, and how many pages of
// each. It is called before Run.
func (a *Adapter) Bound(surveyed, pages int) { a.most = bounds{surveyed, pages} }

// CaughtUp reports whether what was missed before the sessions of now has been looked at.
func (a *Adapter) CaughtUp() bool {
	s := a.sup.Load()
	return s != nil && s.Listening()
}
