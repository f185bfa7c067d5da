package record

import (
	"errors"
	"io"
	"strings"
	"time"
	"unicode"
)

// Hit is a place in a recording.
type Hit struct {
	At   time.Duration // since the recording began
	Text string        // a line that the terminal wrote, or a mark; long ones are cut around the first word
}

const (
	maxSearched = 4 << 10 // bytes of a line that is searched
	maxShown    = 200     // characters of it that are shown
)

// Search returns the first lines and marks of a recording that have all of some words, which are
// in lower case; at most a number of them. What moves the cursor or colours the text is left out.
func Search(r io.Reader, words []string, most int) ([]Hit, error) {
	d, err := NewReader(r)
	if err != nil {
		return nil, err
	}
	s := search{words: words}
	for len(s.hits) < most {
		e, err := d.Next()
		if err != nil {
			if s.end(); errors.Is(err, io.EOF) {
				err = nil
			}
			return s.hits[:min(len(s.hits), most)], err
		}
		switch e.Code {
		case Output:
			s.add(e)
		case Mark:
			s.match(e.At, e.Data)
		default:
		}
	}
	return s.hits[:most], nil
}

// search takes lines out of what a terminal wrote and keeps those that have the words.
type search struct {
	words []string
	hits  []Hit
	line  strings.Builder
	began time.Duration // of the line
	state escape
}

// escape is where in a control sequence a text is (ECMA-48, 5.3 to 5.6).
type escape int

const (
	inText  escape = iota
	inEsc          // after ESC
	inCSI          // until a final byte
	inOther        // a string, until BEL or ESC
)

func (s *search) add(e Event) {
	for _, r := range e.Data {
		switch {
		case r == 0x1b:
			s.state = inEsc
		case s.state == inEsc:
			switch r {
			case '[':
				s.state = inCSI
			case ']', 'P', '_', '^', 'X':
				s.state = inOther
			case '(', ')', '#', '%', ' ': // one more follows
			default:
				s.state = inText
			}
		case s.state == inCSI:
			if r >= '@' && r <= '~' {
				s.state = inText
			}
		case s.state == inOther:
			if r == 7 {
				s.state = inText
			}
		case r == '\n' || r == '\r':
			s.end()
		case unicode.IsControl(r) && r != '\t':
		case s.line.Len() < maxSearched:
			if s.line.Len() == 0 {
				s.began = e.At
			}
			s.line.WriteRune(r)
		}
	}
}

// end ends a line.
func (s *search) end() {
	if s.line.Len() > 0 {
		s.match(s.began, s.line.String())
		s.line.Reset()
	}
}

func (s *search) match(at time.Duration, text string) {
	text = strings.TrimSpace(text)
	low := strings.ToLower(text)
	for _, w := range s.words {
		if !strings.Contains(low, w) {
			return
		}
	}
	if r := []rune(text); len(r) > maxShown {
		from := 0
		if len(s.words) > 0 { // lower case may be longer, so this is about where the first one is
			from = min(max(len([]rune(low[:strings.Index(low, s.words[0])]))-maxShown/4, 0), len(r)-maxShown)
		}
		text = "…" + string(r[from:from+maxShown]) + "…"
	}
	s.hits = append(s.hits, Hit{at, text})
}
