package redact

import (
	"slices"
	"strings"
)

const (
	// tail is how much of a long line is held back, in bytes, where nothing says
	// that more belongs together. The longest token with a known end has 1020
	// (PyPI's).
	tail = 4 << 10
	// maxHeld is how much is held back at most: of a private key whose end doesn't
	// come, which then goes as far as its lines do; of a word without a blank, which
	// may be a token of any length (a JWT has no limit); of a Kubernetes object
	// whose kind isn't known.
	maxHeld = 64 << 10
	// step is how much must come, in bytes, before a line that was held back is
	// looked through again.
	step = 1 << 10
)

// Stream redacts a text that comes in pieces, so that a secret that is cut in
// two is found. It gives whole lines, and of a line that doesn't end, all but
// the last word and at least the last 4 KiB. What its lines give is what Redact
// gives for the whole text, but for a single word, key or object of more than
// 64 KiB. It has one owner.
type Stream struct {
	r     *Redactor
	buf   string
	tried int  // bytes of buf that can't be given without more
	inKey bool // within a private key that was too long to hold
}

// Stream returns a new Stream.
func (r *Redactor) Stream() *Stream { return &Stream{r: r.latest()} }

// Write takes a piece and returns what may be shown by now; often nothing.
func (s *Stream) Write(piece string) string {
	s.buf += piece
	if len(s.buf) < s.tried && !strings.Contains(piece, "\n") {
		return "" // and don't look through it again for each piece
	}
	return s.emit(false)
}

// Flush returns the rest. The Stream can be used for another text then.
func (s *Stream) Flush() string {
	out := s.emit(true)
	s.buf, s.tried, s.inKey = "", 0, false
	return out
}

// longestEnd is more than a line that ends a key has.
const longestEnd = 128

// emit returns the pending text that is safe to show, or with all the rest of it.
func (s *Stream) emit(all bool) string {
	if s.inKey {
		// Its beginning was shown as a placeholder; drop its other lines.
		lines := strings.LastIndexByte(s.buf, '\n') + 1
		if all || len(s.buf) > maxHeld {
			lines = len(s.buf)
		}
		n, more := keyLines(s.buf[:lines], shownKeyLine())
		if s.buf, s.inKey = s.buf[n:], more; more {
			return ""
		}
	}
	if all {
		return s.r.Redact(s.buf)
	}
	cut := strings.LastIndexByte(s.buf[:max(0, len(s.buf)-s.r.multi)], '\n') + 1
	if rest := len(s.buf) - cut; rest > 2*tail+s.r.multi {
		// A long line: at a blank, if there is one.
		line := cut
		cut = len(s.buf) - tail - s.r.multi
		if i := strings.LastIndexAny(s.buf[max(line, len(s.buf)-maxHeld):cut], " \t"); i >= 0 {
			cut = max(line, len(s.buf)-maxHeld) + i + 1
		} else if rest <= maxHeld {
			cut = line
		}
	}
	if open := openKey(s.buf); open >= 0 {
		cut = min(cut, open)
	}
	if cut == 0 {
		return s.later()
	}
	cut, spans := s.before(cut)
	if cut == 0 {
		return s.later()
	}
	s.inKey = slices.ContainsFunc(spans, func(sp span) bool {
		return sp.rule == privateKey && sp.from < cut && sp.to >= cut && !strings.Contains(sp.value, "-----END ")
	})
	out := s.r.Redact(s.buf[:cut])
	s.buf, s.tried = s.buf[cut:], 0
	return out
}

// before returns the last place before cut where nothing is cut that belongs
// together, and the secrets in what is held.
func (s *Stream) before(cut int) (int, []span) {
	spans, at := s.r.findSpans(s.buf, false)
	if at.hold < cut && len(s.buf)-at.hold <= maxHeld {
		cut = at.hold
	}
	whole := at.whole
	for _, sp := range spans {
		if sp.rule != privateKey || len(s.buf)-sp.from < maxHeld {
			whole = append(whole, [2]int{sp.from, sp.to})
		}
	}
	slices.SortFunc(whole, func(a, b [2]int) int { return a[0] - b[0] })
	for _, w := range slices.Backward(whole) {
		if w[0] < cut && w[1] > cut && len(s.buf)-w[0] <= 2*maxHeld {
			cut = w[0]
		}
	}
	return cut, spans
}

// Preview returns what of the rest may be shown for the moment, behind what Write
// gave: all but the last word, and nothing of what isn't understood before its end
// (a key, a Kubernetes object, a value whose quote is open). What follows may still
// take some of it back, so it is for a view that is replaced by the next one.
func (s *Stream) Preview() string {
	if s.inKey {
		return ""
	}
	cut := strings.LastIndexAny(s.buf, " \t\r\n") + 1
	line := strings.LastIndexByte(s.buf[:cut], '\n') + 1
	if m := openQuote().FindStringIndex(s.buf[line:]); m != nil {
		cut = min(cut, line+m[0])
	}
	if cut == 0 {
		return ""
	}
	cut, _ = s.before(cut)
	return s.r.Redact(s.buf[:cut])
}

// openQuote is a value in quotes at the end of a line, without its end.
var openQuote = lazy(`(?:[:=(]|=>|[ \t])[ \t]*(?:"[^"]*|'[^']*)$`)

// later gives nothing, and waits for a good piece more where no line ends.
func (s *Stream) later() string {
	s.tried = len(s.buf) + step
	return ""
}

// openKey returns where a private key begins whose end may still come, or -1.
func openKey(text string) int {
	from := max(0, len(text)-maxHeld+1)
	if i := strings.LastIndex(text[from:], "-----END "); i >= 0 {
		from += i
	}
	for at := from; ; at++ {
		i := strings.Index(text[at:], "-----BEGIN ")
		if i < 0 {
			return -1
		}
		if at += i; keyBegins().MatchString(text[at:]) {
			return at
		}
	}
}
