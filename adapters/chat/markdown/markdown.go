// Package markdown reads the Markdown that a model or the bot writes into a
// small neutral tree that every chat network can render, writes it as plain
// text, and splits it into parts that fit a network's limits.
//
// The input is hostile. In the tree, text is only ever text: raw HTML, images
// and reference definitions come out as the characters that were written, and
// a link leads to http, https and mailto only and never hides where.
//
// It does not know any network, does not escape anything and does not make
// invisible characters visible: that is the renderer's part.
package markdown

import "strings"

// Kind tells what a [Block] is, and with that which of its fields are set.
type Kind int

// The kinds.
const (
	Paragraph Kind = iota // Spans
	Heading               // Level, Spans
	Code                  // Lang, Text
	List                  // Items
	Quote                 // Blocks
	Table                 // Rows, Align
	Rule                  // nothing
)

// Align is how a column of a table stands.
type Align int

// The alignments.
const (
	AlignNone Align = iota
	AlignLeft
	AlignCenter
	AlignRight
)

// Span is a run of text in one style. Text may contain newlines.
type Span struct {
	Text   string
	Bold   bool
	Italic bool
	Strike bool
	Code   bool
	// Link, when not empty, is an absolute http, https or mailto address of
	// printable ASCII without spaces, quotes, angle brackets or bars.
	Link string
}

// Named reports whether the span is a link whose Text is not its address, so
// that a renderer has to show both: the text may claim another place.
func (s Span) Named() bool {
	return s.Link != "" && s.Text != s.Link && "http://"+s.Text != s.Link && "mailto:"+s.Text != s.Link
}

// Plain is the span as plain text: a named link is "text (address)".
func (s Span) Plain() string {
	if s.Named() {
		return strings.TrimRight(s.Text, " ") + " (" + s.Link + ")"
	}
	return s.Text
}

// Cell is one cell of a table.
type Cell []Span

// Item is one line of a list, nested lists laid flat: Depth says how deep it
// stands. Blocks are what stands below its Spans inside the item: further
// paragraphs, code, quotes, tables.
type Item struct {
	Depth   int
	Ordered bool
	Number  int   // of an ordered item
	Task    *bool // a checkbox: ticked or not; nil: none
	// More marks the continuation of an item above it at this Depth, after a
	// nested list or in the next part: it has no bullet of its own.
	More   bool
	Spans  []Span
	Blocks []Block
}

// Block is one element of a document. See [Kind] for the fields in use.
type Block struct {
	Kind  Kind
	Level int    // 1 to 6
	Lang  string // one word, as written after the fence; may be empty
	// Text is the exact content of a code block, without its last newline.
	Text   string
	Spans  []Span
	Items  []Item
	Rows   [][]Cell // the first is the header; all have the same length
	Align  []Align  // one for each column
	Blocks []Block
	// More is set by [Split] on a block that goes on with the last block of the
	// part before. A table with More repeats the header row; code that was cut
	// after a line keeps that line's newline at the end of the part before.
	More bool
}
