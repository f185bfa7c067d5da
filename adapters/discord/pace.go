package discord

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"countersign/adapters/discord/gateway"
)

// priority orders the calls that wait for their turn; lower goes first.
type priority int

const (
	first   priority = iota // approvals: somebody is needed
	normal                  // replies
	quiet                   // the log of what ran, and what nobody waits for
	passing                 // drafts and status: never waits, is left out instead
)

const (
	// callEvery is the pace of all calls together, and callBurst how many may come
	// at once. Discord takes 50 a second of a bot; calls that bunch up on their way
	// must not be more.
	callEvery = 25 * time.Millisecond
	callBurst = 8
	// passingLimit bounds one passing call, so that one that would have to wait for
	// a limit is left out.
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
	waiters []*waiter
	seq     uint64
	timer   *time.Timer
}

type waiter struct {
	priority priority
	seq      uint64
	ready    chan struct{}
}

func newPacer() *pacer { return &pacer{} }

// errBusy says that a passing call was left out.
var errBusy = errors.New("discord: there is no room for this now")

// do makes a call when its turn comes.
func (p *pacer) do(ctx context.Context, prio priority, call func(context.Context) error) error {
	if err := p.enter(ctx, prio); err != nil {
		return err
	}
	if prio != passing {
		return call(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, passingLimit)
	defer cancel()
	err := call(ctx)
	if _, ok := errors.AsType[*gateway.RateLimitedError](err); ok {
		p.mu.Lock()
		p.hot = time.Now().Add(coolDown)
		p.mu.Unlock()
	}
	return err
}

func (p *pacer) enter(ctx context.Context, prio priority) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	now := time.Now()
	if len(p.waiters) == 0 && (prio != passing || now.After(p.hot)) && p.take(now) {
		p.mu.Unlock()
		return nil
	}
	if prio == passing {
		p.mu.Unlock()
		return errBusy
	}
	p.seq++
	w := &waiter{prio, p.seq, make(chan struct{})}
	at, _ := slices.BinarySearchFunc(p.waiters, w, func(a, b *waiter) int {
		if a.priority != b.priority {
			return int(a.priority) - int(b.priority)
		}
		return int(a.seq) - int(b.seq) //nolint:gosec // a counter of this process
	})
	p.waiters = slices.Insert(p.waiters, at, w)
	p.grant()
	p.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
	}
	return ctx.Err()
}

// take uses one turn up, if there is one; p.mu is held.
func (p *pacer) take(now time.Time) bool {
	if oldest := now.Add(-callBurst * callEvery); p.next.Before(oldest) {
		p.next = oldest
	}
	if p.next.After(now) {
		return false
	}
	p.next = p.next.Add(callEvery)
	return true
}

// grant lets waiters in, now and when there are turns again; p.mu is held.
func (p *pacer) grant() {
	for len(p.waiters) > 0 && p.take(time.Now()) {
		close(p.waiters[0].ready)
		p.waiters = p.waiters[1:]
	}
	if len(p.waiters) == 0 || p.timer != nil {
		return
	}
	p.timer = time.AfterFunc(time.Until(p.next), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.timer = nil
		p.grant()
	})
}
