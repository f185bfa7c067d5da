package search

import (
	"bytes"
	"strings"
)

// needle is a plain text to search for, optionally ignoring the case of ASCII letters. (Go also
// folds the long s and the Kelvin sign; needle does not find those.)
type needle struct {
	text string
	fold bool
	at   int // offset of the rarest byte in text; low and up are its lower and upper case
	low  byte
	up   byte
}

// commonBytes lists bytes from the most frequent in logs and code to rarer ones; others are rarer
// still.
const commonBytes = " e0ta1ionsr2dl3cu45m/p.f67g89h=b-y:_vw\"k,()xj'qz"

// newNeedle prepares a search. An empty text is never found.
func newNeedle(text string, fold bool) needle {
	n := needle{text: text, fold: fold && strings.ToLower(text) != strings.ToUpper(text)}
	if !n.fold {
		return n
	}
	n.text = strings.ToLower(text)
	best := -1
	for i := range len(n.text) {
		rank := strings.IndexByte(commonBytes, n.text[i])
		if rank < 0 {
			rank = len(commonBytes)
		}
		if rank > best {
			best, n.at = rank, i
		}
	}
	n.low = n.text[n.at]
	n.up = n.low
	if n.low >= 'a' && n.low <= 'z' {
		n.up = n.low - 'a' + 'A'
	}
	return n
}

// index returns the offset of the text in b, or -1.
func (n needle) index(b []byte) int {
	if n.text == "" {
		return -1
	}
	if !n.fold {
		return bytes.Index(b, []byte(n.text))
	}
	lower, upper := -2, -2 // next offsets of the rarest byte at or after "from"; -2: not searched yet
	for from := n.at; ; {
		if from >= len(b) {
			return -1
		}
		if lower != -1 && lower < from {
			lower = nextByte(b, from, n.low)
		}
		switch {
		case n.up == n.low:
			upper = -1
		case upper != -1 && upper < from:
			upper = nextByte(b, from, n.up)
		}
		at := lower
		if at < 0 || upper >= 0 && upper < at {
			at = upper
		}
		if at < 0 {
			return -1
		}
		if start := at - n.at; start+len(n.text) <= len(b) && n.equalAt(b[start:start+len(n.text)]) {
			return start
		}
		from = at + 1
	}
}

func nextByte(b []byte, from int, c byte) int {
	if i := bytes.IndexByte(b[from:], c); i >= 0 {
		return from + i
	}
	return -1
}

// equalAt compares the text with the beginning of b, optionally ignoring ASCII case.
func (n needle) equalAt(b []byte) bool {
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != n.text[i] {
			return false
		}
	}
	return true
}
