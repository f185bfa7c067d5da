package shell

import (
	"sync"
	"unicode/utf8"

	"countersign/targets/tmux"
	"countersign/tools"
)

// stream passes events on, sequentially and none after close. Characters that arrive in pieces are
// held back until they are complete. A nil stream discards everything.
type stream struct {
	mu     sync.Mutex
	sink   tools.Sink
	held   map[tools.EventKind][]byte
	closed bool
	// waiting are the events that are held back while holds is true, at most maxWaiting bytes:
	// then their writer waits, too. muted means that output is discarded.
	waiting      []tools.Event
	size         int
	holds, muted bool
	free         sync.Cond // released, or closed
}

const maxWaiting = 1 << 20

// hold holds events back until the function that it returns is called, with whether output is
// passed on.
func (s *stream) hold() (release func(output bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = true
	return func(output bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.holds, s.muted = false, !output
		for _, e := range s.waiting {
			s.send(e.Kind, e.Text)
		}
		s.waiting = nil
		s.free.Broadcast()
	}
}

func newStream(sink tools.Sink) *stream {
	s := &stream{sink: sink, held: map[tools.EventKind][]byte{}}
	s.free.L = &s.mu
	return s
}

func (s *stream) event(k tools.EventKind, text string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(k, text)
}

func (s *stream) send(k tools.EventKind, text string) {
	for s.holds && !s.closed && s.size > maxWaiting {
		s.free.Wait()
	}
	switch {
	case s.closed, s.muted && (k == tools.Stdout || k == tools.Stderr):
	case s.holds:
		s.size += len(text)
		s.waiting = append(s.waiting, tools.Event{Kind: k, Text: text})
	default:
		s.sink(tools.Event{Kind: k, Text: text})
	}
}

// bytes passes output on.
func (s *stream) bytes(k tools.EventKind, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b = append(s.held[k], b...)
	n := whole(b)
	s.held[k] = append([]byte(nil), b[n:]...)
	if n > 0 {
		s.send(k, string(b[:n]))
	}
}

// terminal passes on output of a command in a pane.
func (s *stream) terminal(from tmux.Stream, b []byte) {
	if from == tmux.Err {
		s.bytes(tools.Stderr, b)
	} else {
		s.bytes(tools.Stdout, b)
	}
}

// flush passes on what was held back.
func (s *stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range []tools.EventKind{tools.Stdout, tools.Stderr} {
		if b := s.held[k]; len(b) > 0 {
			s.held[k] = nil
			s.send(k, string(b))
		}
	}
}

// close ends the stream: output after the end of the call is discarded.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.free.Broadcast()
}

// whole returns how many bytes of b are complete characters; invalid bytes count as complete.
func whole(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}
