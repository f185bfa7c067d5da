package tmux

import (
	"bytes"
	"strings"
)

const (
	// markStart opens an invisible mark, an operating system command that no terminal
	// knows: "ESC ] 7973 ; nonce ; kind ; arguments BEL".
	markStart = "\x1b]7973;"
	// markMax is the length of the longest mark; a longer sequence is text.
	markMax = 8192
)

// scanner separates the marks of one pane from what its programs wrote. It
// does no I/O, and what it finds does not depend on how the stream is cut.
type scanner struct {
	nonce  string
	text   func([]byte)            // bytes that are no mark; valid until it returns
	mark   func(kind, args string) // a mark with the right nonce
	forged func()                  // a mark with a wrong nonce, dropped
	part   []byte                  // what may be the start of a mark
}

// feed takes the next bytes.
func (s *scanner) feed(b []byte) {
	if len(s.part) > 0 {
		b = append(s.part, b...)
		s.part = nil
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, 0x1b)
		if i < 0 {
			s.text(b)
			return
		}
		n := s.tryMark(b[i:])
		switch {
		case n > 0: // a whole mark
			if i > 0 {
				s.text(b[:i])
			}
			s.use(b[i : i+n])
			b = b[i+n:]
		case n == 0: // not a mark
			// The text goes out up to the next escape, in one piece.
			j := bytes.IndexByte(b[i+1:], 0x1b)
			if j < 0 {
				s.text(b)
				return
			}
			s.text(b[:i+1+j])
			b = b[i+1+j:]
		default: // too early to tell
			if i > 0 {
				s.text(b[:i])
			}
			s.part = bytes.Clone(b[i:])
			return
		}
	}
}

// tryMark returns the length of the mark at the start of b, 0 if there is none, -1 if more
// bytes are needed to decide.
func (s *scanner) tryMark(b []byte) int {
	if len(b) < len(markStart) {
		if strings.HasPrefix(markStart, string(b)) {
			return -1
		}
		return 0
	}
	if string(b[:len(markStart)]) != markStart {
		return 0
	}
	for i := len(markStart); i < len(b) && i < markMax; i++ {
		switch c := b[i]; {
		case c == 0x07:
			return i + 1
		case c < ' ':
			return 0
		}
	}
	if len(b) >= markMax {
		return 0
	}
	return -1
}

func (s *scanner) use(b []byte) {
	body := string(b[len(markStart) : len(b)-1])
	nonce, rest, _ := strings.Cut(body, ";")
	kind, args, _ := strings.Cut(rest, ";")
	if nonce != s.nonce || s.nonce == "" {
		s.forged()
		return
	}
	s.mark(kind, args)
}
