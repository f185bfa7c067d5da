package search

import (
	"bytes"
	"strings"
)

// needle is a plain text to look for, of ASCII letters where capital letters do not
// matter. (Go also folds the long s and the Kelvin sign; those are not found by it.)
type needle struct {
	text string
	fold bool
	at   int // the place in text of its rarest byte, lower and upper case
	low  byte
	up   byte
}

// common are bytes from the most frequent in logs and code to rarer ones; others are
// rarer still.
const common = " e0ta1ionsr2dl3cu45m/p.f67g89h=b-y:_vw\"k,()xj'qz"

// newNeedle prepares a search. An empty text is found nowhere.
func newNeedle(text string, fold bool) needle {
	n := needle{text: text, fold: fold && strings.ToLower(text) != strings.ToUpper(text)}
	if !n.fold {
		return n
	}
	n.text = strings.ToLower(text)
	best := -1
	for i := range len(n.text) {
		rank := strings.IndexByte(common, n.text[i])
		if rank < 0 {
			rank = len(common)
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

// index finds the text in b, or -1.
func (n needle) index(b []byte) int {
	if n.text == "" {
		return -1
	}
	if !n.fold {
		return bytes.Index(b, []byte(n.text))
	}
	lower, upper := -2, -2 // the next places of the rarest byte from "from" on; -2: not looked for
	for from := n.at; ; {
		if from >= len(b) {
			return -1
		}
		if lower != -1 && lower < from {
			lower = next(b, from, n.low)
		}
		switch {
		case n.up == n.low:
			upper = -1
		case upper != -1 && upper < from:
			upper = next(b, from, n.up)
		}
		at := lower
		if at < 0 || upper >= 0 && upper < at {
			at = upper
		}
		if at < 0 {
			return -1
		}
		if start := at - n.at; start+len(n.text) <= len(b) && n.is(b[start:start+len(n.text)]) {
			return start
		}
		from = at + 1
	}
}

func next(b []byte, from int, c byte) int {
	if i := bytes.IndexByte(b[from:], c); i >= 0 {
		return from + i
	}
	return -1
}

// is compares, without regard to capital ASCII letters.
func (n needle) is(b []byte) bool {
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
