package record

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	quiet        = 250 * time.Millisecond // an unfinished line goes after so much silence
	maxDelay     = time.Second            // and after so long in all
	maxLine      = 4 << 10                // and when it has so many bytes
	maxHeld      = 64 << 10               // bytes after which finished lines don't wait for the clock
	contextBytes = 8 << 10                // bytes of what was written that are looked at again
	maxTries     = 8                      // to find a place to cut
	maxCuts      = 64                     // in one piece with a secret, to keep the times
	redactedText = "[redacted]"
)

// holder turns bytes into events without secrets. It has one owner.
type holder struct {
	redact func(string) string
	rest   []byte        // an unfinished character
	text   []byte        // held back, valid UTF-8
	parts  []part        // what text is made of, and what came in between
	before string        // what was let go last, as it came
	latest time.Duration // when the last output came
	out    []Event
}

// part begins at text[pos:]; a mark stands there.
type part struct {
	pos  int
	at   time.Duration
	mark *Event // nil: output
}

// add takes what came and returns what may be written by now.
func (h *holder) add(e Event) []Event {
	switch e.Code {
	case Output:
		if s := h.decode(e.Data); s != "" {
			h.parts = append(h.parts, part{pos: len(h.text), at: e.At})
			h.text = append(h.text, s...)
			h.latest = e.At
		}
		if len(h.text) > maxHeld {
			h.release(h.cut())
		}
	case Exit:
		h.all()
		h.out = append(h.out, e)
	default:
		if e.Code == Mark {
			e.Data = markText(h.redact(e.Data))
		}
		if len(h.text) == 0 {
			h.out = append(h.out, e)
		} else {
			h.parts = append(h.parts, part{pos: len(h.text), at: e.At, mark: &e})
		}
	}
	return h.give()
}

// due returns what has waited long enough.
func (h *holder) due(now time.Duration) []Event {
	if len(h.text) == 0 {
		return h.give()
	}
	if now-h.latest >= quiet {
		h.release(len(h.text))
	} else if now-h.parts[0].at >= maxDelay {
		n := h.cut()
		if n < len(h.text) && now-h.at(n) >= maxDelay {
			n = len(h.text)
		}
		h.release(n)
	}
	return h.give()
}

// deadline tells when due has something to do.
func (h *holder) deadline() (at time.Duration, ok bool) {
	if len(h.text) == 0 {
		return 0, false
	}
	return min(h.latest+quiet, h.parts[0].at+maxDelay), true
}

// end returns everything.
func (h *holder) end() []Event {
	h.all()
	return h.give()
}

func (h *holder) all() {
	if len(h.rest) > 0 { // the rest of this character never came
		h.parts = append(h.parts, part{pos: len(h.text), at: h.latest})
		h.text = append(h.text, strings.Repeat("\uFFFD", len(h.rest))...)
		h.rest = nil
	}
	if len(h.text) > 0 {
		h.release(len(h.text))
	}
}

func (h *holder) give() []Event {
	out := h.out
	h.out = nil
	return out
}

// decode replaces bytes that are no UTF-8, each by U+FFFD, and keeps a character
// that isn't complete.
func (h *holder) decode(s string) string {
	if len(h.rest) > 0 {
		s, h.rest = string(h.rest)+s, nil
	}
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 && !utf8.FullRuneInString(s) {
			h.rest = []byte(s)
			break
		}
		b.WriteRune(r)
		s = s[n:]
	}
	return b.String()
}

// at tells when the byte at pos came.
func (h *holder) at(pos int) time.Duration {
	at := h.parts[0].at
	for _, p := range h.parts {
		if p.pos > pos {
			break
		}
		if p.mark == nil {
			at = p.at
		}
	}
	return at
}

// cut returns where the unfinished line begins, or where enough of it is left
// to see a secret.
func (h *holder) cut() int {
	n := bytes.LastIndexByte(h.text, '\n') + 1
	if len(h.text)-n > maxLine {
		n = len(h.text) - maxLine
		if i := bytes.LastIndexByte(h.text[n-maxLine/2:n], ' '); i >= 0 {
			n += i + 1 - maxLine/2
		}
		for !utf8.RuneStart(h.text[n]) {
			n--
		}
	}
	return n
}

// release lets go of text[:n], or of all where no cut near n is safe: one at
// which both sides look the same alone as together.
func (h *holder) release(n int) {
	text := string(h.text)
	var alone string
	whole := h.redact(text)
	for try := 0; ; try++ {
		if n <= 0 || n >= len(text) || try == maxTries {
			n, alone = len(text), whole
			break
		}
		if alone = h.redact(text[:n]); alone+h.redact(text[n:]) == whole {
			break
		}
		n = stepBack(text, n)
	}
	gone := text[:n]
	var in, later []part
	for _, p := range h.parts {
		switch {
		case p.pos < n || p.pos == n && p.mark != nil:
			in = append(in, p)
		default:
			p.pos -= n
			later = append(later, p)
		}
	}
	h.text = append(h.text[:0], text[n:]...)
	if len(h.text) > 0 && (len(later) == 0 || later[0].pos > 0) {
		at := in[0].at
		for _, p := range in {
			if p.mark == nil {
				at = p.at
			}
		}
		later = append([]part{{at: at}}, later...)
	}
	h.parts = later
	h.pieces(gone, alone, in)
	h.before = lastOf(h.before + gone)
}

// stepBack returns the next place before n to cut at: a line, a word, or just
// somewhere else.
func stepBack(text string, n int) int {
	from := max(0, n-1-maxLine/8)
	if i := strings.LastIndexAny(text[from:n-1], "\n "); i >= 0 {
		return from + i + 1
	}
	for from > 0 && !utf8.RuneStart(text[from]) {
		from--
	}
	return from
}

// pieces writes text with the times at which its parts came, as far as that
// doesn't cut a secret. alone is the text redacted.
func (h *holder) pieces(text, alone string, parts []part) {
	clean := h.inContext(text, alone)
	if clean != alone {
		// A secret goes on from before: don't take it apart.
		for _, p := range parts {
			if p.mark != nil {
				h.out = append(h.out, *p.mark)
			}
		}
		h.out = append(h.out, Event{At: parts[0].at, Code: Output, Data: clean})
		return
	}
	from, at, tries := 0, parts[0].at, 0
	say := func(to int) {
		if to > from {
			h.out = append(h.out, Event{At: at, Code: Output, Data: h.redact(text[from:to])})
		}
		from = to
	}
	exact := clean == text
	if exact {
		say = func(to int) {
			if to > from {
				h.out = append(h.out, Event{At: at, Code: Output, Data: text[from:to]})
			}
			from = to
		}
	}
	for _, p := range parts {
		safe := exact || p.pos == from || p.pos == len(text)
		if !safe && (p.mark != nil || tries < maxCuts) {
			tries++
			left := h.redact(text[from:p.pos])
			safe = left+h.redact(text[p.pos:]) == h.redact(text[from:])
		}
		if safe {
			say(p.pos)
			if p.mark == nil {
				at = p.at
			}
		}
		if p.mark != nil { // in the middle of a secret it goes first
			h.out = append(h.out, *p.mark)
		}
	}
	say(len(text))
}

// inContext is redact for a text that stands after what was written before.
func (h *holder) inContext(text, alone string) string {
	if h.before == "" {
		return alone
	}
	both := h.redact(h.before + text)
	if rest, ok := strings.CutPrefix(both, h.redact(h.before)); ok {
		return rest
	}
	// A secret began before and ends in here, or doesn't end. What follows it
	// looks the same from both sides.
	n := 0
	for n < len(both) && n < len(alone) && both[len(both)-1-n] == alone[len(alone)-1-n] {
		n++
	}
	same := alone[len(alone)-n:]
	for same != "" && !utf8.RuneStart(same[0]) {
		same = same[1:]
	}
	return redactedText + same
}

// lastOf returns the last lines that are looked at again.
func lastOf(s string) string {
	if len(s) <= contextBytes {
		return s
	}
	s = s[len(s)-contextBytes:]
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return s[i+1:]
	}
	for !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}

// markText is a marker as it is written: one line.
func markText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) <= maxMark {
		return s
	}
	s = s[:maxMark-len("…")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}
