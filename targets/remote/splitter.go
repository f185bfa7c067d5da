package remote

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// controlMax is the longest control line, beyond the token.
const controlMax = 1024

// splitter takes the control lines out of a stream and passes the rest on. Before
// the first one nothing is passed on: a login shell may print what it likes. It is
// used by one goroutine, and by flush after that has ended.
type splitter struct {
	token   []byte
	dst     io.Writer
	control func(kind, arg string) (begun bool)
	begun   bool // what comes is the program's

	mu   sync.Mutex
	part []byte // may be the start of a control line
}

// Write implements io.Writer. A destination that fails gets no more, and the
// program is not blocked by it.
func (s *splitter) Write(b []byte) (int, error) {
	n := len(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.part) > 0 {
		b = append(s.part, b...)
		s.part = nil
	}
	for {
		i := bytes.Index(b, s.token)
		if i < 0 {
			k := len(b) - s.overlap(b)
			s.pass(b[:k])
			s.part = bytes.Clone(b[k:])
			return n, nil
		}
		s.pass(b[:i])
		line, rest, ok := bytes.Cut(b[i:], []byte("\n"))
		if !ok && len(line) <= len(s.token)+controlMax {
			s.part = bytes.Clone(line)
			return n, nil
		}
		kind, arg, _ := strings.Cut(strings.TrimPrefix(string(line[len(s.token):]), " "), " ")
		if s.control(kind, strings.TrimRight(arg, "\r")) {
			s.begun = true
		}
		b = rest
	}
}

// overlap is the length of the longest end of b that may begin the token.
func (s *splitter) overlap(b []byte) int {
	for n := min(len(s.token)-1, len(b)); n > 0; n-- {
		if bytes.HasPrefix(s.token, b[len(b)-n:]) {
			return n
		}
	}
	return 0
}

func (s *splitter) pass(b []byte) {
	if !s.begun || s.dst == nil || len(b) == 0 {
		return
	}
	if _, err := s.dst.Write(b); err != nil {
		s.dst = nil
	}
}

// to sets where what comes from now on goes.
func (s *splitter) to(dst io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dst = dst
}

// flush passes on what was held back.
func (s *splitter) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.HasPrefix(s.part, s.token) {
		s.pass(s.part)
	}
	s.part = nil
}
