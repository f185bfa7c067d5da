// Package wire is the conversation between the code index and the parser's program.
//
// Each message is its length in four bytes, big end first, and that many bytes. A request
// is two messages: JSON of a [Request], and the text. An answer is one: JSON of a
// [Parsed]. The parser begins with one of [Hello].
//
// Neither side believes the other: lengths are bounded before anything is read, and an
// answer is brought within its limits.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// Protocol is the version of the conversation.
	Protocol = 1
	// MaxText is the largest text, in bytes, that is parsed.
	MaxText = 1 << 20
	// MaxHead is the largest message that is neither a text nor an answer.
	MaxHead   = 4 << 10
	maxAnswer = 16 << 20
	// FileTime is how long a parser may take over one text before it is ended.
	FileTime = 8 * time.Second
)

// Limits of an answer. Names and signatures are in bytes.
const (
	MaxSymbols   = 20_000
	MaxMistakes  = 20
	MaxSignature = 240
	MaxName      = 200
)

// Languages are those that have a grammar, by Linguist's names.
func Languages() []string {
	return []string{"Go", "Python", "JavaScript", "JSX", "TypeScript", "TSX", "Rust", "Java", "Shell"}
}

// Parses reports whether a language has a grammar.
func Parses(lang string) bool { return slices.Contains(Languages(), lang) }

// Hello is the first thing that a worker says.
type Hello struct {
	Protocol int `json:"protocol"`
}

// Request asks to parse one file.
type Request struct {
	Language string `json:"language"`
	// Full also asks for the complexity of functions and for mistakes in the syntax.
	Full bool `json:"full"`
}

// Symbol is one declaration.
type Symbol struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Parent    string `json:"parent,omitempty"` // what it is in, from the outside, such as Server.Handler
	Signature string `json:"signature,omitempty"`
	Line      int    `json:"line"` // from 1
	End       int    `json:"end"`
	// Depth is how many declarations it is in.
	Depth int `json:"depth,omitempty"`
	// Complexity is one more than the branches of a function, and Nesting is how
	// many of them are in each other at most.
	Complexity int `json:"complexity,omitempty"`
	Nesting    int `json:"nesting,omitempty"`
}

// Mistake is a place where the text is not in its language.
type Mistake struct {
	Line   int    `json:"line"`
	Column int    `json:"column"` // in bytes, from 1
	Text   string `json:"text"`
}

// Parsed is what is in a file.
type Parsed struct {
	Symbols []Symbol `json:"symbols"`
	// Cut says that there are more than MaxSymbols.
	Cut      bool      `json:"cut,omitempty"`
	Mistakes []Mistake `json:"mistakes,omitempty"`
	// Broken says that there are mistakes, also where they were not asked for.
	Broken bool `json:"broken,omitempty"`
	// Refused says why it could not be parsed.
	Refused string `json:"refused,omitempty"`
}

// ErrTooLong means that a message is longer than any can be.
var ErrTooLong = errors.New("wire: the message is longer than any can be")

// WriteFrame writes one message.
func WriteFrame(w io.Writer, b []byte) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(b))) //nolint:gosec // no message is that long
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// ReadFrame reads a message of at most limit bytes. io.EOF means that there is none.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLong, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}

// WriteRequest writes the two messages of a request.
func WriteRequest(w io.Writer, q Request, text []byte) error {
	head, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if err := WriteFrame(w, head); err != nil {
		return err
	}
	return WriteFrame(w, text)
}

// ReadRequest reads what WriteRequest wrote. io.EOF means that there are no more.
func ReadRequest(r io.Reader) (q Request, text []byte, err error) {
	head, err := ReadFrame(r, MaxHead)
	if err != nil {
		return q, nil, err
	}
	if err := json.Unmarshal(head, &q); err != nil {
		return q, nil, fmt.Errorf("wire: the request is no JSON: %w", err)
	}
	text, err = ReadFrame(r, MaxText)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return q, text, err
}

// ReadAnswer reads an answer and brings it within what an answer may be: the worker
// reads hostile text with code in C, so nothing that it says is believed.
func ReadAnswer(r io.Reader, textLines int) (Parsed, error) {
	b, err := ReadFrame(r, maxAnswer)
	if err != nil {
		return Parsed{}, err
	}
	var p Parsed
	if err := json.Unmarshal(b, &p); err != nil {
		return Parsed{}, fmt.Errorf("wire: the answer is no JSON: %w", err)
	}
	if len(p.Symbols) > MaxSymbols {
		p.Symbols, p.Cut = p.Symbols[:MaxSymbols], true
	}
	p.Mistakes = p.Mistakes[:min(len(p.Mistakes), MaxMistakes)]
	last := max(textLines, 1)
	for i := range p.Symbols {
		s := &p.Symbols[i]
		s.Kind, s.Name, s.Parent = Line(s.Kind, 20), Line(s.Name, MaxName), Line(s.Parent, 2*MaxName)
		s.Signature = Line(s.Signature, MaxSignature)
		s.Line = min(max(s.Line, 1), last)
		s.End = min(max(s.End, s.Line), last)
		s.Depth, s.Complexity, s.Nesting = max(s.Depth, 0), max(s.Complexity, 0), max(s.Nesting, 0)
	}
	for i := range p.Mistakes {
		m := &p.Mistakes[i]
		m.Line, m.Column, m.Text = min(max(m.Line, 1), last), max(m.Column, 1), Line(m.Text, MaxName)
	}
	p.Refused = Line(p.Refused, MaxName)
	return p, nil
}

// Line makes foreign text one line of valid characters, at most n bytes and a mark.
func Line(s string, n int) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			space = b.Len() > 0
			continue
		case r < ' ' || r == 0x7f:
			r = utf8.RuneError
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		if b.Len()+utf8.RuneLen(r) > n {
			b.WriteString("...")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
