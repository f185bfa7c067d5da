// Package wire is the protocol between the code index and the parser's program.
//
// Each message is its length in four bytes, big-endian, followed by that many bytes. A request is
// two messages: the JSON of a [Request], and the text. An answer is one: the JSON of a [Parsed].
// The parser starts by sending the JSON of a [Hello].
//
// Neither side trusts the other: lengths are checked before anything is read, and an answer is cut
// to its limits.
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
	// Protocol is the version of the protocol.
	Protocol = 1
	// MaxText is the largest text that is parsed, in bytes.
	MaxText = 1 << 20
	// MaxHead is the largest message that is neither a text nor an answer, in bytes.
	MaxHead   = 4 << 10
	maxAnswer = 16 << 20
	// FileTime is how long a parser may take for one text before it is killed.
	FileTime = 8 * time.Second
)

// Limits of an answer. Those of names and signatures are in bytes.
const (
	MaxSymbols      = 20_000
	MaxSyntaxErrors = 20
	MaxSignature    = 240
	MaxName         = 200
)

// Languages returns the languages that have a grammar, by Linguist's names.
func Languages() []string {
	return []string{"Go", "Python", "JavaScript", "JSX", "TypeScript", "TSX", "Rust", "Java", "Shell"}
}

// Parses reports whether a language has a grammar.
func Parses(lang string) bool { return slices.Contains(Languages(), lang) }

// Hello is the first message of a worker.
type Hello struct {
	Protocol int `json:"protocol"`
}

// Request asks to parse one file.
type Request struct {
	Language string `json:"language"`
	// Full also requests the complexity of functions and the syntax errors.
	Full bool `json:"full"`
}

// Symbol is one declaration.
type Symbol struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Parent    string `json:"parent,omitempty"` // the enclosing declarations, outermost first, such as Server.Handler
	Signature string `json:"signature,omitempty"`
	Line      int    `json:"line"` // from 1
	End       int    `json:"end"`
	// Depth is how many declarations enclose it.
	Depth int `json:"depth,omitempty"`
	// Complexity is the number of a function's branches plus one, and Nesting is their maximum
	// nesting.
	Complexity int `json:"complexity,omitempty"`
	Nesting    int `json:"nesting,omitempty"`
}

// SyntaxError is a place where the text is not valid in its language.
type SyntaxError struct {
	Line   int    `json:"line"`
	Column int    `json:"column"` // in bytes, from 1
	Text   string `json:"text"`
}

// Parsed is the result of parsing a file.
type Parsed struct {
	Symbols []Symbol `json:"symbols"`
	// Truncated reports that there are more than MaxSymbols.
	Truncated    bool          `json:"cut,omitempty"`
	SyntaxErrors []SyntaxError `json:"mistakes,omitempty"`
	// HasErrors reports syntax errors, even when they were not requested.
	HasErrors bool `json:"broken,omitempty"`
	// Refused is the reason why the file could not be parsed, or "".
	Refused string `json:"refused,omitempty"`
}

// ErrTooLong means that a message exceeds the largest possible size.
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

// ReadRequest reads a request. io.EOF means that there are no more.
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

// ReadAnswer reads an answer and cuts it to the limits of an answer. The worker runs C code on
// untrusted text, so nothing that it sends is trusted.
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
		p.Symbols, p.Truncated = p.Symbols[:MaxSymbols], true
	}
	p.SyntaxErrors = p.SyntaxErrors[:min(len(p.SyntaxErrors), MaxSyntaxErrors)]
	last := max(textLines, 1)
	for i := range p.Symbols {
		s := &p.Symbols[i]
		s.Kind, s.Name, s.Parent = Line(s.Kind, 20), Line(s.Name, MaxName), Line(s.Parent, 2*MaxName)
		s.Signature = Line(s.Signature, MaxSignature)
		s.Line = min(max(s.Line, 1), last)
		s.End = min(max(s.End, s.Line), last)
		s.Depth, s.Complexity, s.Nesting = max(s.Depth, 0), max(s.Complexity, 0), max(s.Nesting, 0)
	}
	for i := range p.SyntaxErrors {
		m := &p.SyntaxErrors[i]
		m.Line, m.Column, m.Text = min(max(m.Line, 1), last), max(m.Column, 1), Line(m.Text, MaxName)
	}
	p.Refused = Line(p.Refused, MaxName)
	return p, nil
}

// Line returns s as one line of valid UTF-8, at most n bytes and then an ellipsis.
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
