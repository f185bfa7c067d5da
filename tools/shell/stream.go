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
}

func newStream(s tools.Sink) *stream {
	return &stream{sink: s, held: map[tools.EventKind][]byte{}}
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
	if !s.closed {
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
