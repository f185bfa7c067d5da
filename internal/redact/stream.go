package redact

import (
	"slices"
	"strings"
)

const (
	// tail is how much of a long line is held back, in bytes: no secret but a
	// private key is longer.
	tail = 4 << 10
	// maxHeld is how much is held back at most for a private key whose end
	// doesn't come; then it counts as one to its end.
	maxHeld = 64 << 10
)

// Stream redacts a text that comes in pieces, so that a secret that is cut in
// two is found. It gives whole lines, and of a line that doesn't end, all but
// the last 4 KiB. It has one owner.
type Stream struct {
	r     *Redactor
	buf   string
	inKey bool // within a private key that was too long to hold
}

// Stream returns a new Stream.
func (r *Redactor) Stream() *Stream { return &Stream{r: r} }

// Write takes a piece and returns what may be shown by now; often nothing.
func (s *Stream) Write(piece string) string {
	s.buf += piece
	return s.take(false)
}

// Flush returns the rest. The Stream can be used for another text then.
func (s *Stream) Flush() string {
	out := s.take(true)
	s.buf, s.inKey = "", false
	return out
}

const (
	keyBegin = "-----BEGIN "
	keyWords = "PRIVATE KEY"
	keyEnd   = "-----END "
)

func (s *Stream) take(all bool) string {
	if s.inKey {
		// Its beginning was shown as a placeholder; drop the rest.
		i := strings.Index(s.buf, keyEnd)
		if i < 0 {
			s.buf = s.buf[max(0, len(s.buf)-len(keyEnd)):]
			if all {
				s.buf = ""
			}
			return ""
		}
		line := strings.IndexByte(s.buf[i:], '\n')
		if line < 0 && !all {
			s.buf = s.buf[i:]
			return ""
		}
		s.inKey = false
		if line < 0 {
			s.buf = ""
			return ""
		}
		s.buf = s.buf[i+line:]
	}
	if all {
		return s.r.Redact(s.buf)
	}
	cut := strings.LastIndexByte(s.buf[:max(0, len(s.buf)-s.r.multi)], '\n') + 1
	if len(s.buf)-cut > 2*tail+s.r.multi {
		// A long line: at a blank, if there is one not far away.
		cut = len(s.buf) - tail - s.r.multi
		if i := strings.LastIndexAny(s.buf[cut-tail/2:cut], " \t"); i >= 0 {
			cut += i + 1 - tail/2
		}
	}
	if cut <= 0 {
		return ""
	}
	if open := openKey(s.buf); open >= 0 && open < cut {
		if len(s.buf)-open > maxHeld {
			out := s.r.Redact(s.buf)
			s.buf, s.inKey = s.buf[len(s.buf)-len(keyEnd):], true
			return out
		}
		cut = open
		if cut == 0 {
			return "" // and don't look through it again for each piece
		}
	}
	// What belongs together is not cut.
	for _, sp := range slices.Backward(s.r.find(s.buf)) {
		if sp.from < cut && sp.to > cut {
			cut = sp.from
		}
	}
	out := s.r.Redact(s.buf[:cut])
	s.buf = s.buf[cut:]
	return out
}

// openKey returns where a private key begins that doesn't end, or -1.
func openKey(text string) int {
	i := strings.LastIndex(text, keyBegin)
	if i < 0 {
		return -1
	}
	rest := text[i:]
	if line, _, ok := strings.Cut(rest[len(keyBegin):], "-----"); ok && !strings.Contains(line, keyWords) {
		return -1 // a certificate or the like
	}
	if _, after, ok := strings.Cut(rest, keyEnd); ok && strings.Contains(after, "-----") {
		return -1
	}
	return i
}
