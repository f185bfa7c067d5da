package calls

import (
	"context"
	"slices"
	"sync"

	"countersign/adapters/chat"
	"countersign/tools"
)

// maxHeld is how much of a command's output is held for those who look at it while it runs, in bytes.
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
	pieces   []chat.Output
	size     int
	cut      bool // it is not all of it
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
		s.add(chat.Output{Stdout: s.out.Flush(), Stderr: s.err.Flush()})
		s.end()
		c.streams.mu.Lock()
		defer c.streams.mu.Unlock()
		delete(c.streams.all, name)
	}
}

func (s *stream) event(e tools.Event) {
	switch e.Kind {
	case tools.Stdout:
		s.add(chat.Output{Stdout: s.out.Write(e.Text)})
	case tools.Stderr:
		s.add(chat.Output{Stderr: s.err.Write(e.Text)})
	case tools.Started, tools.Info, tools.Completed: // are no output
	}
}

func (s *stream) add(p chat.Output) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == (chat.Output{}) || s.cut {
		return
	}
	if s.size += len(p.Stdout) + len(p.Stderr); s.size > maxHeld {
		s.cut, s.pieces = true, nil
	} else {
		s.pieces = append(s.pieces, p)
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

// from returns the pieces after n others.
func (s *stream) from(n int) (pieces []chat.Output, over bool, more <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return nil, true, nil
	}
	pieces = s.pieces[n:]
	if s.ended {
		pieces = append(slices.Clip(pieces), chat.Output{End: true})
	}
	return pieces, s.ended, s.more
}

// Output implements [chat.Calls].
func (c *Calls) Output(ctx context.Context, by chat.Asker, id string, pass func(chat.Output) error) error {
	now, err := c.Wait(ctx, by, id, "", 0)
	if err != nil {
		return err
	}
	c.streams.mu.Lock()
	s := c.streams.all[streamName(now.Thread, now.Call)]
	c.streams.mu.Unlock()
	if s == nil || now.Call == "" {
		return nil
	}
	for n := 0; ; {
		pieces, over, more := s.from(n)
		for _, p := range pieces {
			if err := pass(p); err != nil {
				return err
			}
		}
		if n += len(pieces); over {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
