package discord

import (
	"context"
	"errors"
	"sync"
	"time"

	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/gateway"
)

const (
	// passingLimit is how long a passing call waits for a limit before it is left out.
	passingLimit = 2 * time.Second
	// coolDown is for how long no passing call is made after one met a limit.
	coolDown = 5 * time.Second
)

// pacer gives out the bot's share of Discord's global limit, the most urgent call
// first. The limits of single channels are kept by [gateway.REST], in the order in
// which calls come to it.
type pacer struct {
	mu      sync.Mutex
	next    time.Time // when the next call may go
	hot     time.Time // until then no passing call is made
	waiters scribe.Queue
	timer   *time.Timer
}

func newPacer() *pacer { return &pacer{} }

// do makes a call when its turn comes.
func (p *pacer) do(ctx context.Context, u scribe.Urgency, call func(context.Context) error) error {
	if err := p.enter(ctx, u); err != nil {
		return err
	}
	if u != scribe.Passing {
		return call(ctx)
	}
	err := call(gateway.WaitAtMost(ctx, passingLimit))
	if _, ok := errors.AsType[*gateway.RateLimitedError](err); ok {
		p.mu.Lock()
		p.hot = time.Now().Add(coolDown)
		p.mu.Unlock()
	}
	return err
}

func (p *pacer) enter(ctx context.Context, u scribe.Urgency) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	now := time.Now()
	if p.waiters.Len() == 0 && (u != scribe.Passing || now.After(p.hot)) && p.take(now) {
		p.mu.Unlock()
		return nil
	}
	if u == scribe.Passing {
		p.mu.Unlock()
		return scribe.ErrBusy
	}
	w := p.waiters.Add(u)
	p.grant()
	p.mu.Unlock()
	select {
	case <-w.Ready():
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters.Remove(w)
	return ctx.Err()
}

// take uses one turn up, if there is one; p.mu is held.
func (p *pacer) take(now time.Time) bool {
	if oldest := now.Add(-gateway.CallBurst * gateway.CallEvery); p.next.Before(oldest) {
		p.next = oldest
	}
	if p.next.After(now) {
		return false
	}
	p.next = p.next.Add(gateway.CallEvery)
	return true
}

// grant lets waiters in, now and when there are turns again; p.mu is held.
func (p *pacer) grant() {
	for p.waiters.Len() > 0 && p.take(time.Now()) {
		p.waiters.Next()
	}
	if p.waiters.Len() == 0 || p.timer != nil {
		return
	}
	p.timer = time.AfterFunc(time.Until(p.next), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.timer = nil
		p.grant()
	})
}
