package calls

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/console/api"
	"countersign/tools"
)

// maxHeld is how much of a command's output is held for those who look at it while it runs, in bytes. Whoever is
// slower gets the rest when it has ended.
const maxHeld = 4 << 20

// streams are what the commands print that this process runs.
type streams struct {
	clean func() Cleaner

	mu  sync.Mutex
	all map[string]*stream // by thread and call
}

// stream is what one command prints.
type stream struct {
	mu       sync.Mutex
	pieces   []api.Output // the newest ones
	base     int          // how many came before them
	size     int
	ended    bool
	more     chan struct{} // closed when there is more
	out, err Cleaner
}

func streamName(thread chat.ThreadID, call string) string { return string(thread) + "\x00" + call }

// Begin returns a function that gets the events of a call while it runs, and one for its end.
func (c *Calls) Begin(thread chat.ThreadID, call string) (hear func(tools.Event), end func()) {
	s := &stream{more: make(chan struct{}), out: c.streams.clean(), err: c.streams.clean()}
	name := streamName(thread, call)
	c.streams.mu.Lock()
	if c.streams.all == nil {
		c.streams.all = map[string]*stream{}
	}
	c.streams.all[name] = s
	c.streams.mu.Unlock()
	return s.event, func() {
		s.add(api.Output{Stdout: s.out.Flush(), Stderr: s.err.Flush()})
		s.end()
		c.streams.mu.Lock()
		defer c.streams.mu.Unlock()
		delete(c.streams.all, name)
	}
}

func (s *stream) event(e tools.Event) {
	switch e.Kind {
	case tools.Stdout:
		s.add(api.Output{Stdout: s.out.Write(e.Text)})
	case tools.Stderr:
		s.add(api.Output{Stderr: s.err.Write(e.Text)})
	case tools.Started, tools.Info, tools.Completed: // are no output
	}
}

func (s *stream) add(p api.Output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == (api.Output{}) {
		return
	}
	s.pieces, s.size = append(s.pieces, p), s.size+len(p.Stdout)+len(p.Stderr)
	for s.size > maxHeld {
		s.size -= len(s.pieces[0].Stdout) + len(s.pieces[0].Stderr)
		s.pieces, s.base = s.pieces[1:], s.base+1
	}
	s.wake()
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.wake()
}

// wake is called with mu held.
func (s *stream) wake() {
	close(s.more)
	s.more = make(chan struct{})
}

// from returns the pieces after n others. missed says that some of them are no longer held.
func (s *stream) from(n int) (pieces []api.Output, missed, over bool, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < s.base {
		return nil, true, s.ended, s.more
	}
	return slices.Clip(s.pieces[n-s.base:]), false, s.ended, s.more
}

// follow passes on what a command prints until it ends. whole is false where whoever listens is too slow for what
// is held.
func (s *stream) follow(ctx context.Context, pass func(api.Output) error) (whole bool, err error) {
	for n := 0; ; {
		pieces, missed, over, more := s.from(n)
		if missed {
			return false, nil
		}
		for _, p := range pieces {
			if err := pass(p); err != nil {
				return false, err
			}
		}
		if n += len(pieces); over {
			return true, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// Output implements [api.Calls].
func (c *Calls) Output(ctx context.Context, by api.Asker, id string, pass func(api.Output) error) error {
	now, _, err := c.wait(ctx, by, id, "", 0)
	for err == nil && (now.State == "" || now.State == chat.ExecWaiting) {
		now, _, err = c.wait(ctx, by, id, now.State, waits)
	}
	if err != nil {
		return err
	}
	c.streams.mu.Lock()
	s := c.streams.all[streamName(now.Thread, now.Call)]
	c.streams.mu.Unlock()
	out, errs := 0, 0
	if s != nil && now.Call != "" {
		whole, err := s.follow(ctx, func(p api.Output) error {
			out, errs = out+len(p.Stdout), errs+len(p.Stderr)
			return pass(p)
		})
		if err != nil {
			return err
		}
		if whole {
			return end(true, pass)
		}
	}
	for now.State != chat.ExecDone {
		if now, _, err = c.wait(ctx, by, id, now.State, waits); err != nil {
			return err
		}
	}
	return c.rest(ctx, now, out, errs, pass)
}

// rest passes on what a command has printed that has ended, but for so many bytes of each stream.
func (c *Calls) rest(ctx context.Context, x api.Call, out, errs int, pass func(api.Output) error) error {
	whole, err := c.kept(ctx, x, func(p api.Output) error {
		p.Stdout, p.Stderr = unseen(p.Stdout, &out), unseen(p.Stderr, &errs)
		if p == (api.Output{}) {
			return nil
		}
		return pass(p)
	})
	if err != nil {
		return err
	}
	return end(whole && !x.Unknown, pass)
}

// waits is how long one look waits for news of a call whose output somebody wants.
const waits = 30 * time.Second

// end says that the pieces before are all, if they are.
func end(whole bool, pass func(api.Output) error) error {
	if !whole {
		return nil
	}
	return pass(api.Output{End: true})
}

// unseen is what of a text comes after the n bytes that were passed on.
func unseen(text string, n *int) string {
	k := min(*n, len(text))
	*n -= k
	return text[k:]
}

// kept passes on what a command has printed that has ended. whole says that this was all.
func (c *Calls) kept(ctx context.Context, x api.Call, pass func(api.Output) error) (whole bool, err error) {
	if x.Kept == "" {
		return true, pass(api.Output{Stdout: x.Stdout, Stderr: x.Stderr})
	}
	whole, err = c.cfg.Kept(ctx, x.Thread, x.Kept, func(e tools.Event) error {
		if e.Kind == tools.Stderr {
			return pass(api.Output{Stderr: e.Text})
		}
		return pass(api.Output{Stdout: e.Text})
	})
	if errors.Is(err, chat.ErrGone) {
		return false, nil
	}
	return whole, err
}
