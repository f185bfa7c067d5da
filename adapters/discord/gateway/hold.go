package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// JobShard names the job of holding one shard's connection.
func JobShard(shard, of int) string { return fmt.Sprintf("discord/shard/%d/%d", shard, of) }

// elsewhere is why a shard is not connected here.
const elsewhere = "another replica holds the connection"

// hold keeps a shard connected while it is this process's, until ctx is done. An error
// is Discord's refusal for good.
//
// Discord allows several sessions of one shard at a time, and gives each all events
// (docs.discord.com/developers/events/gateway, "Sharding"), so that a moment with two
// holders does no harm.
func (s *Supervisor) hold(ctx context.Context, sh *shard) error {
	if s.cfg.Do == nil {
		return sh.run(ctx)
	}
	var refused error
	for ctx.Err() == nil {
		if s.takeover.wait(ctx) != nil {
			break
		}
		wait, leave := context.WithCancel(ctx)
		s.takeover.request(sh, leave)
		late := time.AfterFunc(s.times.unheld, func() { s.takeover.ifRequested(sh, func() { sh.enter(Elsewhere, elsewhere) }) })
		err := s.cfg.Do(wait, JobShard(sh.id, sh.of), func(ctx context.Context) error {
			if !s.takeover.claim(sh) {
				return nil
			}
			late.Stop()
			defer s.takeover.request(sh, leave) // whoever calls may wait for the job again
			done := make(chan struct{})
			defer close(done)
			go s.awaitUp(sh, sh.connected(), done)
			if time.Since(sh.takenAway) > s.times.resumable {
				sh.forget()
			}
			sh.enter(Connecting, "taking the connection over")
			refused = sh.run(ctx)
			return refused
		})
		late.Stop()
		s.takeover.withdraw(sh)
		over := wait.Err() != nil
		leave()
		if refused != nil {
			return refused
		}
		if err != nil && ctx.Err() == nil && !over {
			s.log.WarnContext(ctx, "a shard's job ended; it is asked for again", "shard", sh.id, "error", err)
		}
		if !over && pause(ctx, jitter(s.times.base)) != nil {
			break
		}
	}
	sh.forget()
	if sh.current().Phase == Elsewhere {
		sh.enter(Down, "stopped")
	}
	return nil
}

// awaitUp lets the next shard be asked for when one is connected, or takes long.
func (s *Supervisor) awaitUp(sh *shard, up, done <-chan struct{}) {
	late := time.NewTimer(s.times.takeover)
	defer late.Stop()
	select {
	case <-up:
	case <-late.C:
	case <-done:
	}
	s.takeover.finish(sh)
}

// takeover makes a process take shards one after the other, so that they spread over the
// replicas: while it takes one, it asks for no other.
type takeover struct {
	mu      sync.Mutex
	current *shard
	open    chan struct{} // closed when current is nil again
	waiting map[*shard]context.CancelFunc
}

// wait returns when no shard is being taken.
func (t *takeover) wait(ctx context.Context) error {
	for {
		t.mu.Lock()
		open := t.open
		t.mu.Unlock()
		if open == nil {
			return ctx.Err()
		}
		select {
		case <-open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enter says that a shard is asked for; stop ends that.
func (t *takeover) request(sh *shard, stop context.CancelFunc) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[*shard]context.CancelFunc{}
	}
	t.waiting[sh] = stop
}

func (t *takeover) withdraw(sh *shard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, sh)
}

// unheld runs do when a shard is asked for and not held.
func (t *takeover) ifRequested(sh *shard, do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting[sh] != nil {
		do()
	}
}

// win says that this process got a shard. false: another was got at the same moment, so
// that this one is given back.
func (t *takeover) claim(sh *shard) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		return false
	}
	t.current, t.open = sh, make(chan struct{})
	delete(t.waiting, sh)
	for _, stop := range t.waiting {
		stop()
	}
	return true
}

// over lets the next shard be taken.
func (t *takeover) finish(sh *shard) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == sh {
		close(t.open)
		t.current, t.open = nil, nil
	}
}
