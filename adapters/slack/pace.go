package slack

import (
	"context"
	"errors"
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

// pacer keeps one queue per method and channel. Calls of a lane go one at a
// time, the most urgent first; a limit that Slack reports holds the lane back
// for as long as Slack says.
type pacer struct {
	mu    sync.Mutex
	lanes map[string]*lane
	calls chan struct{}
	// outcome is told how each call ended; nil: nobody is.
	outcome func(error)
}

type lane struct {
	busy    bool
	until   time.Time // nothing goes before
	slow    time.Time // until then one call a second
	waiters scribe.Queue
	timer   *time.Timer
}

func newPacer() *pacer {
	return &pacer{lanes: map[string]*lane{}, calls: make(chan struct{}, maxCalls)}
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
	l := p.lanes[key]
	if l == nil {
		l = &lane{}
		p.lanes[key] = l
	}
	if !l.busy && l.waiters.Len() == 0 && !time.Now().Before(l.until) {
		l.busy = true
		p.mu.Unlock()
		return nil
	}
	if prio == scribe.Passing {
		p.mu.Unlock()
		return scribe.ErrBusy
	}
	w := l.waiters.Add(prio)
	p.next(key, l)
	p.mu.Unlock()
	select {
	case <-w.Ready():
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.waiters.Remove(w) {
		return ctx.Err()
	}
	// The turn came at the same moment: hand it on.
	l.busy = false
	p.next(key, l)
	return ctx.Err()
}

// leave ends a call and returns how long Slack wants to be left alone.
func (p *pacer) leave(key string, err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lanes[key]
	l.busy = false
	now := time.Now()
	var limited *slackapi.RateLimitedError
	var wait time.Duration
	switch {
	case errors.As(err, &limited):
		wait = max(limited.RetryAfter, slowPace)
		l.until = now.Add(wait)
		l.slow = l.until.Add(slowFor)
	case now.Before(l.slow):
		l.until = now.Add(slowPace)
	}
	p.next(key, l)
	return wait
}

// next lets the most urgent waiter in, now or when its lane may go on; p.mu is
// held.
func (p *pacer) next(key string, l *lane) {
	if l.busy {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if wait := time.Until(l.until); wait > 0 {
		l.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.next(key, l)
		})
		return
	}
	if l.waiters.Len() == 0 {
		if time.Now().After(l.slow) {
			delete(p.lanes, key)
		}
		return
	}
	l.busy = true
	l.waiters.Next()
}
