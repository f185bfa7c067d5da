package slack

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat/scribe"
)

// slowFor is how long a lane that met a limit keeps to one call a second, which
// is what Slack promises to accept in a channel
// (docs.slack.dev/apis/web-api/rate-limits).
const (
	slowFor  = time.Minute
	slowPace = time.Second
)

// maxCalls bounds the calls that are under way at the same moment, so that a
// burst of posts does not starve the messages that come in.
const maxCalls = 16

// perMinute is how many calls of a method Slack accepts from the app in a workspace, read
// strictly (tier 3; docs.slack.dev/apis/web-api/rate-limits). Of other methods it is not known
// before Slack refuses one.
var perMinute = map[string]int{"update": 50, "replies": 50, "history": 50}

// pacer makes the calls of a method and channel, a lane, one at a time, and of a method not more
// than Slack accepts; the most urgent goes first. A limit that Slack reports holds a method
// back in the whole workspace for as long as Slack says, and posting in its channel alone.
type pacer struct {
	mu      sync.Mutex
	lanes   map[string]*lane
	methods map[string]*method
	calls   chan struct{}
	// outcome is told how each call ended; nil: nobody is.
	outcome func(error)
	peers   *peers
}

// rest is when something may go on.
type rest struct {
	until   time.Time // nothing goes before
	slow    time.Time // until then calls keep a distance
	refused time.Time // until then, as Slack told this process
}

// hold lets nothing go before a time, and after that slowly for a while.
func (r *rest) hold(until time.Time) {
	if until.After(r.until) {
		r.until = until
	}
	if slow := until.Add(slowFor); slow.After(r.slow) {
		r.slow = slow
	}
}

type lane struct {
	rest
	busy bool
}

type method struct {
	rest
	limit int         // calls a minute; 0: not known
	edits bool        // its calls change messages, see [method.share]
	used  []time.Time // the calls of the last minute, if there is a limit
	// calm are those of used that nobody waited for, and promised is by urgency when the last call
	// that found no room was told to come again.
	calm     []time.Time
	promised [scribe.Passing]time.Time
	// theirs is how many calls other replicas made in the last minute, as far as is known, and
	// replicas how many of them there are.
	theirs, replicas int
	queue            scribe.Queue
	timer            *time.Timer
}

// may reports whether a call may go now, and if not, when another look is worth it.
func (m *method) may(now time.Time, prio scribe.Urgency) (ok bool, wake time.Time) {
	if now.Before(m.until) {
		return false, m.until
	}
	if m.limit == 0 {
		return true, time.Time{}
	}
	m.forget(now)
	limit, n := m.share(m.own(now), prio), len(m.used)
	if calm := len(m.calm); prio >= scribe.Passing || m.edits && prio >= scribe.Quiet {
		// Spread over the minute, what runs never looks as if it stood still.
		if calm >= limit/3 && calm > 0 {
			if next := m.calm[calm-1].Add(2 * m.distance()); now.Before(next) {
				return false, next
			}
		}
	}
	if n < limit {
		return true, time.Time{}
	}
	wake = m.used[n-limit].Add(time.Minute)
	if heard := now.Add(peersLag / 2); m.replicas > 0 && heard.Before(wake) {
		wake = heard // what the others leave changes
	}
	return false, wake
}

// share is how much of a limit calls of an urgency may use. Of edits a part is kept for the face of
// a card that somebody has pressed, and what nobody waits for leaves the more.
func (m *method) share(limit int, prio scribe.Urgency) int {
	switch {
	case prio == scribe.Passing, m.edits && prio == scribe.Quiet:
		return limit / 2
	case m.edits && prio == scribe.Normal:
		return limit * 3 / 5
	}
	return limit
}

// comeBack is how long a call that found no room until at stays away: each comes at another time.
func (m *method) comeBack(now, at time.Time, prio scribe.Urgency) time.Duration {
	next := &m.promised[prio]
	if *next = next.Add(m.distance()); next.Before(at) {
		*next = at
	}
	return next.Sub(now)
}

// own is how many calls this process may make in a minute: what the other replicas leave, who
// are taken to have made as many calls that are not known yet as this one. Each leaves the others a
// tenth, so that none waits for a minute in which nobody else calls.
func (m *method) own(now time.Time) int {
	least := m.limit / 10
	unknown := 1 + m.since(now.Add(-peersLag)) // with the one that is about to be made
	left := min(m.limit-m.theirs-m.replicas*unknown, m.limit-m.replicas*least)
	return max(left, least)
}

// forget drops the calls of more than a minute ago.
func (m *method) forget(now time.Time) {
	for len(m.used) > 0 && now.Sub(m.used[0]) >= time.Minute {
		m.used = m.used[1:]
	}
	for len(m.calm) > 0 && now.Sub(m.calm[0]) >= time.Minute {
		m.calm = m.calm[1:]
	}
}

// since counts the calls after a time.
func (m *method) since(t time.Time) (n int) {
	for n < len(m.used) && m.used[len(m.used)-1-n].After(t) {
		n++
	}
	return n
}

// distance is the time between two calls while Slack's patience is short.
func (m *method) distance() time.Duration {
	if m.limit == 0 {
		return slowPace
	}
	return time.Minute / time.Duration(m.limit)
}

func newPacer() *pacer {
	return &pacer{lanes: map[string]*lane{}, methods: map[string]*method{}, calls: make(chan struct{}, maxCalls)}
}

// find returns a lane and its method; p.mu is held.
func (p *pacer) find(key string) (*lane, *method) {
	p.hear(time.Now())
	name, _, _ := strings.Cut(key, "/")
	l := p.lanes[key]
	if l == nil {
		l = &lane{}
		if p.peers != nil {
			if until, ok := p.peers.rests[key]; ok {
				l.hold(until)
			}
		}
		p.lanes[key] = l
	}
	return l, p.method(name)
}

// method returns what is known of a method; p.mu is held.
func (p *pacer) method(name string) *method {
	m := p.methods[name]
	if m == nil {
		m = &method{limit: perMinute[name], edits: name == "update"}
		if p.peers != nil {
			m.replicas = p.peers.n
		}
		p.methods[name] = m
	}
	return m
}

// calm reports whether so little of a method's limit was used in the last minute that what
// leads to more calls of it can be begun.
func (p *pacer) calm(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hear(time.Now())
	m := p.methods[name]
	if m == nil {
		return true
	}
	ok, _ := m.may(time.Now(), scribe.Passing)
	return ok && len(m.used)+m.theirs <= m.limit/10
}

// scarce reports whether so much of a method's limit was used in the last minute that two calls
// which can be one should be.
func (p *pacer) scarce(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.hear(now)
	m := p.method(name)
	m.forget(now)
	return len(m.used) >= m.own(now)/4
}

// do runs call when its turn comes. A rate limit that Slack reports is waited
// out here while ctx allows; otherwise it is returned.
func (p *pacer) do(ctx context.Context, key string, prio scribe.Urgency, call func(context.Context) error) error {
	for {
		if err := p.enter(ctx, key, prio); err != nil {
			return err
		}
		err := p.call(ctx, call)
		if p.outcome != nil {
			p.outcome(err)
		}
		limited := p.leave(key, err)
		if limited == 0 || prio == scribe.Passing {
			return err
		}
		if dl, ok := ctx.Deadline(); ok && time.Until(dl) < limited {
			return err
		}
	}
}

func (p *pacer) call(ctx context.Context, call func(context.Context) error) error {
	select {
	case p.calls <- struct{}{}:
		defer func() { <-p.calls }()
		return call(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pacer) enter(ctx context.Context, key string, prio scribe.Urgency) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	l, m := p.find(key)
	now := time.Now()
	ok, at := m.may(now, prio)
	switch {
	case ok && !l.busy && !now.Before(l.until):
		p.begin(l, m, now, prio)
		p.mu.Unlock()
		return nil
	case prio == scribe.Passing:
		p.mu.Unlock()
		return scribe.ErrBusy
	case m.edits && prio != scribe.First && at.Sub(now) > soon:
		wait := m.comeBack(now, at, prio)
		p.mu.Unlock()
		return &slackapi.RateLimitedError{RetryAfter: wait} // what is posted behind it doesn't wait, too
	}
	w := m.queue.Add(prio)
	w.Lane = key
	p.next(m)
	p.mu.Unlock()
	select {
	case <-w.Ready():
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !m.queue.Remove(w) {
		l.busy = false // the turn came at the same moment: it is handed on
		p.next(m)
	}
	return ctx.Err()
}

// soon is how long an edit that nobody pressed for may wait for its turn.
const soon = time.Second

// begin notes a call; p.mu is held.
func (p *pacer) begin(l *lane, m *method, now time.Time, prio scribe.Urgency) {
	l.busy = true
	if m.limit > 0 {
		m.used = append(m.used, now)
		if prio >= scribe.Quiet {
			m.calm = append(m.calm, now)
		}
	}
	if now.Before(m.slow) {
		m.until = now.Add(m.distance())
	}
}

// leave ends a call and returns how long Slack wants to be left alone.
func (p *pacer) leave(key string, err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, m := p.find(key)
	l.busy = false
	r := &m.rest
	if strings.HasPrefix(key, "post/") {
		r = &l.rest
	}
	now := time.Now()
	var wait time.Duration
	if limited, ok := errors.AsType[*slackapi.RateLimitedError](err); ok {
		wait = max(limited.RetryAfter, slowPace)
		r.refused = now.Add(wait)
		r.hold(r.refused)
	} else if now.Before(l.slow) {
		l.until = now.Add(slowPace)
	}
	p.next(m)
	if !l.busy && !now.Before(l.slow) && !m.queue.Waits(key) {
		delete(p.lanes, key)
	}
	return wait
}

// next lets the waiters of a method in whose turn it is, now or when something may go on;
// p.mu is held.
func (p *pacer) next(m *method) {
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
	now := time.Now()
	p.hear(now)
	for {
		var wake time.Time
		if !m.queue.NextWhere(func(w *scribe.Waiter) bool {
			l := p.lanes[w.Lane]
			ok, at := m.may(now, w.Urgency())
			switch {
			case l.busy:
				return false
			case !ok:
			case now.Before(l.until):
				at = l.until
			default:
				p.begin(l, m, now, w.Urgency())
				return true
			}
			if wake.IsZero() || at.Before(wake) {
				wake = at
			}
			return false
		}) {
			if !wake.IsZero() {
				m.timer = time.AfterFunc(wake.Sub(now), func() {
					p.mu.Lock()
					defer p.mu.Unlock()
					p.next(m)
				})
			}
			return
		}
	}
}
