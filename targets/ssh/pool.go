package ssh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	xssh "golang.org/x/crypto/ssh"
)

const (
	// patience is how long one waits for a free channel before another connection is
	// made: short commands are over sooner.
	patience = 200 * time.Millisecond
	// overdraw is how long one waits on full connections before MaxChannels is left
	// behind and the host itself is asked. So there is a channel to end a command with
	// when long ones hold all the others.
	overdraw = time.Second
	// refusePause is how long a connection is left alone whose host refused a session,
	// unless one of ours ends before.
	refusePause = 50 * time.Millisecond
	// giveUp is how long a host may refuse sessions although we hold none.
	giveUp = 10 * time.Second
	// firstPause and longestPause bound the time between a failed dial and the next.
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
)

// backoff keeps a host that cannot be reached from being dialled all the time.
type backoff struct {
	fails int
	until time.Time
	err   error // of the last dial
}

// fail notes a failed dial. jitter is in [0, 1).
func (b *backoff) fail(now time.Time, err error, jitter float64) {
	pause := longestPause
	if b.fails < 6 {
		pause = min(firstPause<<b.fails, longestPause)
	}
	b.fails++
	b.err = err
	b.until = now.Add(pause/2 + time.Duration(jitter*float64(pause)))
}

// blocked returns the last error while it is too early to dial again.
func (b *backoff) blocked(now time.Time) error {
	if b.err == nil || !now.Before(b.until) {
		return nil
	}
	return fmt.Errorf("%w (the next attempt is possible in %v)", b.err, b.until.Sub(now).Round(100*time.Millisecond))
}

// dialing is one dial that any number of callers wait for.
type dialing struct {
	done    chan struct{}
	err     error // set before done is closed
	waiters int
	cancel  context.CancelFunc
}

// broadcast wakes everybody who waits for a change. The caller holds mu.
func (t *Target) broadcast() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// dial starts a dial unless there is one. The caller holds mu.
func (t *Target) dial() *dialing {
	if t.dialing != nil {
		return t.dialing
	}
	ctx, cancel := context.WithCancel(t.life)
	d := &dialing{done: make(chan struct{}), cancel: cancel}
	t.dialing = d
	t.wg.Add(1)
	go func() {
		defer cancel()
		began := t.c.Now()
		c, err := t.connect(ctx, t.watchHops(ctx))
		t.mu.Lock()
		if t.dialing == d {
			t.dialing = nil
		}
		d.err = err
		var unknown *UnknownHostError
		var changed *ChangedHostError
		switch {
		case t.closed:
			d.err = errClosed
			if err == nil {
				c.close(errClosed)
				t.wg.Add(1)
				go t.attend(c)
			}
		case err == nil:
			t.back = backoff{}
			t.conns = append(t.conns, c)
			t.wg.Add(1)
			go t.attend(c)
		case ctx.Err() != nil, errors.As(err, &unknown), errors.As(err, &changed):
			// Nobody wants it any more, or people decide what happens next.
		default:
			t.back.fail(t.c.Now(), err, rand.Float64()) //nolint:gosec // only spreads attempts
		}
		t.broadcast()
		close(d.done)
		t.mu.Unlock()
		if err == nil {
			t.log.Info("connected", "took", t.c.Now().Sub(began), "id", t.ID())
		}
		t.wg.Done()
	}()
	return d
}

// drop forgets a connection that has ended.
func (t *Target) drop(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = slices.DeleteFunc(t.conns, func(x *conn) bool { return x == c })
	t.broadcast()
}

// release gives back the place of a channel that the host no longer counts.
func (t *Target) release(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.inUse--
	c.refused = time.Time{}
	t.broadcast()
}

// pick takes a place on a connection, or says what to wait for: a dial, a change.
func (t *Target) pick(waited time.Duration) (c *conn, d *dialing, changed <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, nil, nil, errClosed
	}
	limit := t.c.MaxChannels
	if waited > overdraw {
		limit = 1 << 10
	}
	now := time.Now()
	live := 0
	for _, c := range t.conns {
		if c.wire.broken.Load() {
			continue
		}
		live++
		if c.inUse < limit && now.Sub(c.refused) > refusePause {
			c.inUse++
			return c, nil, nil, nil
		}
	}
	if live > 0 && (live >= t.c.MaxConns || waited < patience) {
		return nil, nil, t.changed, nil
	}
	if t.dialing == nil {
		if err := t.back.blocked(t.c.Now()); err != nil {
			if live > 0 {
				return nil, nil, t.changed, nil
			}
			return nil, nil, nil, err
		}
	}
	d = t.dial()
	if live > 0 {
		d.waiters++ // those who wait for a channel do not leave it
		return nil, nil, t.changed, nil
	}
	d.waiters++
	return nil, d, nil, nil
}

// join waits for a dial. When all who wait have left, the dial ends.
func (t *Target) join(ctx context.Context, d *dialing) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.waiters--; d.waiters == 0 {
		d.cancel()
		if t.dialing == d {
			t.dialing = nil // nobody joins it any more
		}
	}
	return ctx.Err()
}

// fullTime is how long a free session is waited for.
const fullTime = 30 * time.Second

// session opens a session channel. Its place is given back by the caller, when the
// request channel is closed. Nothing has been started when it fails.
func (t *Target) session(ctx context.Context) (*conn, xssh.Channel, <-chan *xssh.Request, error) {
	began := time.Now()
	lost := 0
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, nil, err
		}
		c, d, changed, err := t.pick(time.Since(began))
		switch {
		case err != nil:
			return nil, nil, nil, fmt.Errorf("%s: %w", t.c.Name, err)
		case d != nil:
			if err := t.join(ctx, d); err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", t.c.Name, err)
			}
			continue
		case c == nil && time.Since(began) > fullTime:
			return nil, nil, nil, fmt.Errorf("%s had no free SSH channel for %s; end a terminal there that nobody needs, or raise MaxSessions in its "+
				"sshd_config", t.c.Name, fullTime)
		case c == nil:
			if err := t.pause(ctx, changed); err != nil {
				return nil, nil, nil, err
			}
			continue
		}
		ch, reqs, err := t.open(ctx, c)
		if err == nil {
			return c, ch, reqs, nil
		}
		if ctx.Err() != nil {
			return nil, nil, nil, ctx.Err()
		}
		if _, refused := errors.AsType[*xssh.OpenChannelError](err); refused {
			t.mu.Lock()
			c.refused = time.Now()
			idle := c.inUse == 0
			t.mu.Unlock()
			if idle && time.Since(began) > giveUp {
				return nil, nil, nil, fmt.Errorf("%s opens no session for us; look for MaxSessions in its sshd_config and for programs that still "+
					"run there: %w", t.c.Name, err)
			}
			continue
		}
		c.close(err) // nobody picks it again
		if lost++; lost > 2 {
			return nil, nil, nil, fmt.Errorf("%s: the connection ends as soon as it is used; look into the host's log: %w", t.c.Name, err)
		}
	}
}

// Sessions reports how many sessions the host allows on one connection (MaxSessions of sshd_config), at most up to
// a number.
func (t *Target) Sessions(ctx context.Context, most int) (int, error) {
	c, first, reqs, err := t.session(ctx)
	if err != nil {
		return 0, err
	}
	defer t.release(c)
	defer func() { _ = first.Close() }()
	go xssh.DiscardRequests(reqs)
	for began, n := time.Now(), 1; n < most; {
		ch, reqs, err := c.client.OpenChannel("session", nil)
		if _, refused := errors.AsType[*xssh.OpenChannelError](err); refused {
			t.mu.Lock()
			others := c.inUse - 1 // of which some may only have been asked for
			t.mu.Unlock()
			if others <= 0 || time.Since(began) > giveUp {
				return n + max(others, 0), nil
			}
			if err := t.pause(ctx, nil); err != nil {
				return 0, err
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		go xssh.DiscardRequests(reqs)
		defer func() { _ = ch.Close() }()
		n++
	}
	return most, nil
}

// pause waits for a change, or a little.
func (t *Target) pause(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(refusePause)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// open opens a channel in the place that was taken for it, and gives the place
// back when it fails, at the latest when the host has answered.
func (t *Target) open(ctx context.Context, c *conn) (xssh.Channel, <-chan *xssh.Request, error) {
	type result struct {
		ch   xssh.Channel
		reqs <-chan *xssh.Request
		err  error
	}
	got := make(chan result, 1)
	go func() {
		ch, reqs, err := c.client.OpenChannel("session", nil)
		got <- result{ch, reqs, err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			t.release(c)
		}
		return r.ch, r.reqs, r.err
	case <-ctx.Done():
		go func() {
			if r := <-got; r.err == nil {
				_ = r.ch.Close()
				xssh.DiscardRequests(r.reqs)
			}
			t.release(c)
		}()
		return nil, nil, ctx.Err()
	}
}
