// Package tokens estimates how much of a model's context window a text takes: a
// [Counter] counts with the byte pairs of o200k, and a [Calibration] learns how far
// each model's own count is from that.
//
// It does not decide what a model is shown (agent/history does), does no I/O and
// keeps nothing beyond the life of its values.
package tokens

import (
	"sync"
	"unicode/utf8"

	// Not the package above it, which links the vocabularies of older models, 5 MB.
	"github.com/tiktoken-go/tokenizer/codec"
)

// Sizes in bytes. 52 KB of log take 13 ms to count, so a text of a megabyte is
// sampled.
const (
	maxExact   = 12 << 10 // that are counted as they are
	sampleSize = 1 << 10  // of one sample
	samples    = 8        // of a longer text
	maxToken   = 128      // of the longest token of o200k_base, a run of blanks
)

// Counter counts tokens. It is safe for concurrent use. The first count loads the
// vocabulary, some 20 ms and a few megabytes, so a program makes one Counter.
type Counter struct{ codec func() *codec.Codec }

// New returns a counter with the vocabulary o200k_base, which is that of the models of
// OpenAI since GPT-4o. Other models differ; see [Calibration].
func New() *Counter { return &Counter{sync.OnceValue(codec.NewO200kBase)} }

// Count returns the number of tokens of text. Up to 12 KiB it is exact; of a longer text
// eight samples are counted and scaled by a cheap look at the whole, so that any
// text takes a few milliseconds at most. It is never more than the bytes of text.
func (c *Counter) Count(text string) int {
	if len(text) <= maxExact {
		return c.exact(text)
	}
	counted, weighed := 0, 0
	gap := (len(text) - sampleSize) / (samples - 1)
	for i := range samples {
		piece := text[boundary(text, i*gap):boundary(text, i*gap+sampleSize)]
		counted += c.exact(piece)
		weighed += weigh(piece)
	}
	n := int(float64(counted) * float64(weigh(text)) / float64(max(weighed, 1)))
	return min(max(n, counted), len(text))
}

func (c *Counter) exact(text string) int {
	n, err := c.codec().Count(text)
	if err != nil {
		return len(text)/2 + 1 // nothing that people or programs write is denser
	}
	// The library gives nothing for a few control characters.
	return max(n, (len(text)+maxToken-1)/maxToken)
}

// boundary moves i on to the next beginning of a character, if one is near.
func boundary(text string, i int) int {
	for end := min(i+utf8.UTFMax, len(text)); i < end; i++ {
		if utf8.RuneStart(text[i]) {
			return i
		}
	}
	return i
}

// class is what a byte is to [weigh].
type class uint8

const (
	space class = iota
	letter
	digit
	mark  // punctuation
	wide  // a byte of a character that is not ASCII
	ctrl  // other control characters
	kinds // how many there are
)

// span is how many bytes of a class make about one token, in a row.
func span(c class) int {
	return [kinds]int{space: 16, letter: 6, digit: 3, mark: 2, wide: 3, ctrl: 1}[c]
}

func classOf(b byte) class {
	switch {
	case b == ' ' || b == '\t' || b == '\n' || b == '\r':
		return space
	case b|0x20 >= 'a' && b|0x20 <= 'z':
		return letter
	case b >= '0' && b <= '9':
		return digit
	case b >= 0x80:
		return wide
	case b < ' ' || b == 0x7f:
		return ctrl
	}
	return mark
}

// weigh is a rough number of tokens, which only has to be wrong by the same factor in
// all parts of a text: the runs of letters, digits and marks, by their length.
func weigh(text string) int {
	var classes [256]class
	for i := range classes {
		classes[i] = classOf(byte(i))
	}
	n, run, was := 0, 0, kinds
	for i := range len(text) {
		c := classes[text[i]]
		if c != was || run == span(c) {
			if c != space || was == space { // one blank belongs to the word after it
				n++
			}
			was, run = c, 0
		}
		run++
	}
	return n
}
