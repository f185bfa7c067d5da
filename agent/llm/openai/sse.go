package openai

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// errTooLarge means that a reply is larger than Config.MaxReplyBytes.
var errTooLarge = errors.New("the reply is too large")

// errHTML means that a web page came instead of a reply.
var errHTML = errors.New("a web page instead of a reply")

// cleaner turns the body of a reply into the subset of server-sent events that
// go-openai reads without losing anything: one "data:" line for each event,
// nothing else. An event that reports an error ends the stream with a
// [*frameError]; a body that is one JSON document becomes one event.
type cleaner struct {
	body io.ReadCloser
	in   *bufio.Reader
	w    *wire
	left int64 // bytes that may still be read

	event   string // of the event that is being read
	data    []byte
	started bool
	out     bytes.Buffer
	err     error
}

func newCleaner(body io.ReadCloser, w *wire, limit int64) *cleaner {
	c := &cleaner{body: body, w: w, left: limit}
	c.in = bufio.NewReaderSize(readerFunc(c.read), 32<<10)
	return c
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// read reads the body within the limit and notes that the server lives.
func (c *cleaner) read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooLarge
	}
	n, err := c.body.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if n > 0 {
		c.w.heard(false)
	}
	return n, err
}

// Close closes the body.
func (c *cleaner) Close() error { return c.body.Close() }

// Read implements io.Reader.
func (c *cleaner) Read(p []byte) (int, error) {
	for c.out.Len() == 0 {
		if c.err != nil {
			return 0, c.err
		}
		c.err = c.step()
	}
	return c.out.Read(p)
}

// step handles one line. Its error ends the stream after what is in out.
func (c *cleaner) step() error {
	line, err := c.line()
	if !c.started {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		if first := bytes.TrimSpace(line); len(first) > 0 {
			c.started = true
			switch first[0] {
			case '{', '[':
				return c.document(line, err)
			case '<':
				return errHTML
			}
		}
	}
	if ferr := c.field(line); ferr != nil {
		return ferr
	}
	if err != nil {
		if ferr := c.flush(); ferr != nil {
			return ferr
		}
	}
	return err
}

// line reads up to a line feed, without it.
func (c *cleaner) line() ([]byte, error) {
	line, err := c.in.ReadBytes('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

// document handles a body that is one JSON value and no event stream.
func (c *cleaner) document(first []byte, err error) error {
	c.data = append(c.data, first...)
	if err == nil {
		var rest []byte
		rest, err = io.ReadAll(c.in)
		c.data = append(c.data, rest...)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !json.Valid(c.data) {
		return io.ErrUnexpectedEOF
	}
	c.w.done = true
	if ferr := c.flush(); ferr != nil {
		return ferr
	}
	return io.EOF
}

// field handles one line of an event stream.
func (c *cleaner) field(line []byte) error {
	if len(line) == 0 {
		return c.flush()
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		// Some servers leave out the blank line between events.
		if len(c.data) > 0 && (json.Valid(c.data) || string(bytes.TrimSpace(c.data)) == "[DONE]") {
			if err := c.flush(); err != nil {
				return err
			}
		}
		if len(c.data) > 0 {
			c.data = append(c.data, ' ') // a line break within JSON is a space
		}
		c.data = append(c.data, value...)
	case "event":
		c.event = string(value)
	case "error": // llama.cpp: a line "error: {...}" of its own
		return newFrameError(value)
	}
	return nil
}

// flush ends the event that is being read.
func (c *cleaner) flush() error {
	data, event := bytes.TrimSpace(c.data), c.event
	c.data, c.event = nil, ""
	switch {
	case len(data) == 0:
		return nil
	case string(data) == "[DONE]":
		c.w.done = true
		return io.EOF
	}
	c.w.heard(true)
	if event == "error" {
		return newFrameError(data)
	}
	if data[0] == '[' { // one server wraps its errors in an array
		return newFrameError(data)
	}
	var frame struct {
		Error json.RawMessage `json:"error"`
	}
	// What is no JSON goes on to the assembler, which says so.
	if json.Unmarshal(data, &frame) == nil && !emptyJSON(frame.Error) {
		return newFrameError(data)
	}
	c.out.WriteString("data: ")
	c.out.Write(bytes.Map(func(r rune) rune { // what go-openai would take for the end of the line
		if r == '\n' || r == '\r' {
			return ' '
		}
		return r
	}, data))
	c.out.WriteByte('\n')
	return nil
}

// emptyJSON says whether raw is absent or says nothing.
func emptyJSON(raw json.RawMessage) bool {
	switch strings.TrimSpace(string(raw)) {
	case "", "null", `""`, "{}", "[]", "false":
		return true
	}
	return false
}

// frameError is an error that the server sent within a reply.
type frameError struct {
	detail detail
}

func newFrameError(data []byte) *frameError { return &frameError{parseDetail(data)} }

// Error implements error.
func (e *frameError) Error() string {
	return fmt.Sprintf("the server reported an error within the reply (%s)", e.detail.label())
}

// streamEnd is what an error of go-openai's reader means.
func streamEnd(err error) error {
	if err == io.EOF { //nolint:errorlint // a wrapped EOF is a failure, the bare one is the end
		return nil
	}
	return err
}
