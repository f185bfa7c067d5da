package ssh

import (
	"slices"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/targets/backend"
)

// spareTime is how long a channel is kept open for the next program. Hosts may close idle
// channels; sshd does so only if ChannelTimeout is set.
const spareTime = 30 * time.Second

// spare is a session channel that is open, and in which nothing was started yet: the next
// program needs one round trip instead of two. Whoever needs a session takes it first, so it
// never keeps a place from anybody. When the connection dies in the moment in which a program is
// started, nobody knows whether it ran, and a channel that is opened for it shows first that the
// host is there; so a program that may not be started twice is started in this one only if the
// host has just said something.
type spare struct {
	c     *conn
	ch    xssh.Channel
	reqs  <-chan *xssh.Request
	timer *time.Timer
}

// takeSpare takes the open channel with its place; nil if there is none that still works.
func (t *Target) takeSpare() *spare {
	t.mu.Lock()
	s := t.spare
	t.spare = nil
	t.mu.Unlock()
	if s == nil {
		return nil
	}
	s.timer.Stop()
	if s.c.wire.broken.Load() || s.closed() {
		t.discard(s)
		return nil
	}
	return s
}

// fits reports whether a program may be started in the channel: one that may not run twice only
// if the host has just said something.
func (s *spare) fits(repeat bool) bool {
	return repeat || s.c.wire.heardSince(backend.Recent)
}

// closed reports whether the host has closed the channel. Before a program runs there, a host
// has nothing to ask.
func (s *spare) closed() bool {
	for {
		select {
		case r, ok := <-s.reqs:
			if !ok {
				return true
			}
			if r.WantReply {
				_ = r.Reply(false, nil)
			}
		default:
			return false
		}
	}
}

// discard closes a spare channel and gives its place back when the host no longer counts it.
func (t *Target) discard(s *spare) {
	go func() {
		_ = s.ch.Close()
		xssh.DiscardRequests(s.reqs)
		t.release(s.c)
	}()
}

// Prepare implements backend.Preparer: a channel for the next program is opened.
func (t *Target) Prepare() {
	if t.credential != nil {
		t.prepareLogin()
		return
	}
	t.mu.Lock()
	conns := slices.Clone(t.conns)
	t.mu.Unlock()
	if len(conns) > 0 {
		t.openSpare(conns[0])
	}
}

// openSpare opens a channel for the next program in the background, unless there is one, it is
// being opened, or no place is left.
func (t *Target) openSpare(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.spare != nil || t.opening || c.noSpare || c.inUse >= t.c.MaxChannels {
		return
	}
	t.opening = true
	c.inUse++
	t.wg.Go(func() {
		ch, reqs, err := t.open(t.life, c) // gives the place back when it fails
		t.mu.Lock()
		defer t.mu.Unlock()
		t.opening = false
		if err != nil {
			c.noSpare = true
			return
		}
		s := &spare{c: c, ch: ch, reqs: reqs}
		if t.closed || t.spare != nil {
			t.discard(s)
			return
		}
		t.spare = s
		s.timer = time.AfterFunc(spareTime, func() {
			t.mu.Lock()
			mine := t.spare == s
			if mine {
				t.spare = nil
			}
			t.mu.Unlock()
			if mine {
				t.discard(s)
			}
		})
	})
}
