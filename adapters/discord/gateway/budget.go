package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// identifyEvery is the time between two IDENTIFYs of one concurrency slot
	// (docs.discord.com/developers/events/gateway, "Sharding").
	identifyEvery = 5 * time.Second
	// reserve of the day's IDENTIFYs is left alone, so that a restart still
	// connects: at the end of the budget Discord ends all sessions and resets the
	// token. The first of each shard may use it.
	reserve = 20
	// gatewayFresh is for how long an answer about the budget is taken as true.
	gatewayFresh = 30 * time.Second
)

// budget gives out the right to send an IDENTIFY: as many as Discord has left,
// and max_concurrency of them in five seconds.
type budget struct {
	ask func(context.Context) (Gateway, error)

	mu     sync.Mutex
	latest Gateway
	asOf   time.Time // of latest; zero when it is not known
	slots  map[int]*slot
}

// slot is one of max_concurrency.
type slot struct {
	turn chan struct{}
	next time.Time // the holder's
}

func newBudget(ask func(context.Context) (Gateway, error)) *budget {
	return &budget{ask: ask, slots: map[int]*slot{}}
}

// permit is the right to one IDENTIFY. It belongs to one goroutine.
type permit struct {
	b    *budget
	slot *slot     // nil once it is given back
	asOf time.Time // when Discord said what was left
	used time.Time // when the IDENTIFY went out; zero before
}

// gateway is what Discord said last, asked anew when that is old.
func (b *budget) gateway(ctx context.Context) (Gateway, error) {
	b.mu.Lock()
	got, at := b.latest, b.asOf
	b.mu.Unlock()
	if !at.IsZero() && time.Since(at) < gatewayFresh {
		return got, nil
	}
	asked := time.Now()
	got, err := b.ask(ctx)
	if err != nil {
		return Gateway{}, err
	}
	if got.URL == "" {
		return Gateway{}, errors.New("discord: the answer to GET /gateway/bot has no address")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.latest, b.asOf = got, asked
	return got, nil
}

// address returns the address of the last answer, "" before the first.
func (b *budget) address() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.latest.URL
}

// acquire waits for a permit. none is called when the budget is used up, with the
// time at which Discord gives a new one.
func (b *budget) acquire(ctx context.Context, shard int, first bool, none func(until time.Time)) (*permit, string, error) {
	g, err := b.gateway(ctx)
	if err != nil {
		return nil, "", err
	}
	s := b.slot(shard % max(g.MaxConcurrency, 1))
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	if err := pause(ctx, time.Until(s.next)); err != nil {
		<-s.turn
		return nil, "", err
	}
	for {
		g, err := b.gateway(ctx)
		if err != nil {
			<-s.turn
			return nil, "", err
		}
		if from, ok := b.spend(first); ok {
			return &permit{b: b, slot: s, asOf: from}, g.URL, nil
		}
		b.mu.Lock()
		// A little later, as clocks differ; and never at once.
		until := b.asOf.Add(max(b.latest.ResetAfter, time.Second) + time.Second)
		b.asOf = time.Time{}
		b.mu.Unlock()
		none(until)
		if err := pause(ctx, time.Until(until)); err != nil {
			<-s.turn
			return nil, "", err
		}
	}
}

func (b *budget) slot(n int) *slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.slots[n] == nil {
		b.slots[n] = &slot{turn: make(chan struct{}, 1)}
	}
	return b.slots[n]
}

func (b *budget) spend(first bool) (from time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	keep := 0
	if !first {
		keep = min(reserve, b.latest.Total/10)
	}
	if b.latest.Remaining <= keep {
		return b.asOf, false
	}
	b.latest.Remaining--
	return b.asOf, true
}

// markUsed is called right before the IDENTIFY goes out.
func (p *permit) markUsed() { p.used = time.Now() }

// release gives the slot back, and the permit if it was not used. Only the first call
// counts.
func (p *permit) release() {
	if p == nil || p.slot == nil {
		return
	}
	if p.used.IsZero() {
		p.b.mu.Lock()
		if p.b.asOf.Equal(p.asOf) {
			p.b.latest.Remaining++
		}
		p.b.mu.Unlock()
	} else {
		p.slot.next = p.used.Add(identifyEvery)
	}
	<-p.slot.turn
	p.slot = nil
}

func noneLeft(until time.Time) string {
	return fmt.Sprintf("Discord lets the bot start no more sessions before %s; find out in the log why it started so many", until.UTC().Format("15:04 MST"))
}
