package code

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The conversation with the parser's process. Each message is its length in four bytes,
// big end first, and that many bytes. A request is two messages: JSON of a request, and the
// text. An answer is one: JSON of parsed. The worker begins with one of hello.
const (
	maxHead   = 4 << 10
	maxAnswer = 16 << 20
	protocol  = 1
)

// hello is the first thing that a worker says.
type hello struct {
	Protocol int `json:"protocol"`
}

// request asks to parse one file.
type request struct {
	Language string `json:"language"`
	// Full also asks for the complexity of functions and for mistakes in the syntax.
	Full bool `json:"full"`
}

// symbol is one declaration.
type symbol struct {
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

// mistake is a place where the text is not in its language.
type mistake struct {
	Line   int    `json:"line"`
	Column int    `json:"column"` // in bytes, from 1
	Text   string `json:"text"`
}

// parsed is what is in a file.
type parsed struct {
	Symbols []symbol `json:"symbols"`
	// Cut says that there are more than maxSymbols.
	Cut      bool      `json:"cut,omitempty"`
	Mistakes []mistake `json:"mistakes,omitempty"`
	// Broken says that there are mistakes, also where they were not asked for.
	Broken bool `json:"broken,omitempty"`
	// Refused says why it could not be parsed.
	Refused string `json:"refused,omitempty"`
}

const (
	maxSymbols   = 20_000
	maxMistakes  = 20
	maxSignature = 240
	maxName      = 200
)

var errFrame = errors.New("code: the message is longer than any can be")

func writeFrame(w io.Writer, b []byte) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(b))) //nolint:gosec // no message is that long
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// readFrame reads a message of at most limit bytes. io.EOF means that there is none.
func readFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}

func writeRequest(w io.Writer, q request, text []byte) error {
	head, err := json.Marshal(q)
	if err != nil {
		return err
	}
	if err := writeFrame(w, head); err != nil {
		return err
	}
	return writeFrame(w, text)
}

// readRequest reads what writeRequest wrote. io.EOF means that there are no more.
func readRequest(r io.Reader) (q request, text []byte, err error) {
	head, err := readFrame(r, maxHead)
	if err != nil {
		return q, nil, err
	}
	if err := json.Unmarshal(head, &q); err != nil {
		return q, nil, fmt.Errorf("code: the request is no JSON: %w", err)
	}
	text, err = readFrame(r, maxFile)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return q, text, err
}

// readAnswer reads an answer and brings it within what an answer may be: the worker
// reads hostile text with code in C, so nothing that it says is believed.
func readAnswer(r io.Reader, textLines int) (parsed, error) {
	b, err := readFrame(r, maxAnswer)
	if err != nil {
		return parsed{}, err
	}
	var p parsed
	if err := json.Unmarshal(b, &p); err != nil {
		return parsed{}, fmt.Errorf("code: the answer is no JSON: %w", err)
	}
	if len(p.Symbols) > maxSymbols {
		p.Symbols, p.Cut = p.Symbols[:maxSymbols], true
	}
	p.Mistakes = p.Mistakes[:min(len(p.Mistakes), maxMistakes)]
	last := max(textLines, 1)
	for i := range p.Symbols {
		s := &p.Symbols[i]
		s.Kind, s.Name, s.Parent = one(s.Kind, 20), one(s.Name, maxName), one(s.Parent, 2*maxName)
		s.Signature = one(s.Signature, maxSignature)
		s.Line = min(max(s.Line, 1), last)
		s.End = min(max(s.End, s.Line), last)
		s.Depth, s.Complexity, s.Nesting = max(s.Depth, 0), max(s.Complexity, 0), max(s.Nesting, 0)
	}
	for i := range p.Mistakes {
		m := &p.Mistakes[i]
		m.Line, m.Column, m.Text = min(max(m.Line, 1), last), max(m.Column, 1), one(m.Text, maxName)
	}
	p.Refused = one(p.Refused, maxName)
	return p, nil
}
