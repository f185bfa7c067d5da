package slack

import (
	"time"

	"countersign/adapters/chat/scribe"
)

// Hurry lets an adapter's own clocks run faster. It is called before Run.
func (a *Adapter) Hurry(every time.Duration) {
	a.times = times{keep: every, check: every, overdue: every, stagger: every, backoff: 10 * every, show: scribe.Times{Show: every, After: showAfter, Call: showLimit, Idle: every}}
}

// RunsFor makes an adapter one that began a while ago. It is called before Run.
func (a *Adapter) RunsFor(d time.Duration) { a.began = a.began.Add(-d) }
