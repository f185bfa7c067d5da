package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	maxBytesLine = 1 << 20                    // of a line that is read; ours are shorter
	maxTime      = 100 * 365 * 24 * time.Hour // of a recording
)

// Code tells what an [Event] is. Readers pass over codes that they don't know.
type Code string

// The codes of asciicast v3.
const (
	Output Code = "o" // what the terminal wrote
	Input  Code = "i" // what was typed; never written here
	Mark   Code = "m" // a marker, with its text
	Resize Code = "r" // the new size, COLSxROWS
	Exit   Code = "x" // the exit status as a number
)

// Event is one thing that happened.
type Event struct {
	At   time.Duration // since the recording began
	Code Code
	Data string
}

// Header is what a recording says about itself.
type Header struct {
	Session, Pane string // empty in recordings of other programs
	Thread        string // whose terminal it is, if that was said
	Title         string
	Cols, Rows    int
	Term          string
	Started       time.Time // to the second
}

type castHeader struct {
	Version int `json:"version"`
	Term    struct {
		Cols int    `json:"cols"`
		Rows int    `json:"rows"`
		Type string `json:"type,omitempty"`
	} `json:"term"`
	Timestamp int64    `json:"timestamp,omitempty"`
	Title     string   `json:"title,omitempty"`
	Tags      []string `json:"tags,omitempty"`
}

// The names are tags, because the format has no place for fields of others.
const (
	sessionTag = "session:"
	paneTag    = "pane:"
	threadTag  = "thread:"
)

func (h Header) encode() ([]byte, error) {
	c := castHeader{Version: 3, Timestamp: h.Started.Unix(), Title: h.Title, Tags: []string{sessionTag + h.Session, paneTag + h.Pane}}
	if h.Thread != "" {
		c.Tags = append(c.Tags, threadTag+h.Thread)
	}
	c.Term.Cols, c.Term.Rows, c.Term.Type = h.Cols, h.Rows, h.Term
	raw, err := json.Marshal(c)
	return append(raw, '\n'), err
}

func decodeHeader(line []byte) (Header, error) {
	var c castHeader
	if err := json.Unmarshal(line, &c); err != nil {
		return Header{}, fmt.Errorf("%w: its first line is no header: %w", ErrFormat, err)
	}
	if c.Version != 3 {
		return Header{}, fmt.Errorf("%w: it has version %d", ErrFormat, c.Version)
	}
	if c.Term.Cols < 1 || c.Term.Rows < 1 || c.Term.Cols > 1<<16 || c.Term.Rows > 1<<16 {
		return Header{}, fmt.Errorf("%w: its terminal has no size", ErrFormat)
	}
	h := Header{Title: c.Title, Cols: c.Term.Cols, Rows: c.Term.Rows, Term: c.Term.Type, Started: time.Unix(c.Timestamp, 0).UTC()}
	for _, t := range c.Tags {
		if s, ok := strings.CutPrefix(t, sessionTag); ok && h.Session == "" {
			h.Session = s
		}
		if s, ok := strings.CutPrefix(t, paneTag); ok && h.Pane == "" {
			h.Pane = s
		}
		if s, ok := strings.CutPrefix(t, threadTag); ok && h.Thread == "" {
			h.Thread = s
		}
	}
	return h, nil
}

// Reader reads a recording as a stream: it keeps one line, of at most 1 MiB. A
// last line that was cut, or spoilt by a crash, counts as not there. It has one
// owner.
type Reader struct {
	b      *bufio.Reader
	header Header
	at     time.Duration
	offset int64
	torn   bool
	err    error
}

// NewReader reads the header. Its error wraps [ErrFormat] unless reading failed.
func NewReader(r io.Reader) (*Reader, error) {
	d := &Reader{b: bufio.NewReaderSize(r, 64<<10)}
	line, err := d.line()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: its header is missing or cut", ErrFormat)
	}
	if err != nil {
		return nil, err
	}
	if d.header, err = decodeHeader(line); err != nil {
		return nil, err
	}
	d.offset = int64(len(line))
	return d, nil
}

// Header returns what the recording says about itself.
func (d *Reader) Header() Header { return d.header }

// Offset is where the last good line ends, in bytes.
func (d *Reader) Offset() int64 { return d.offset }

// Torn tells, after the end, whether a last line was left out.
func (d *Reader) Torn() bool { return d.torn }

// Next returns the next event, or io.EOF at the end. A bad line that is not the
// last one is an error that wraps [ErrFormat]; after an error the Reader is done.
func (d *Reader) Next() (Event, error) {
	if d.err != nil {
		return Event{}, d.err
	}
	e, err := d.next()
	d.err = err
	return e, err
}

func (d *Reader) next() (Event, error) {
	for {
		line, err := d.line()
		if err != nil {
			return Event{}, err
		}
		if line[0] == '#' || len(bytes.TrimSpace(line)) == 0 {
			d.offset += int64(len(line))
			continue
		}
		length := int64(len(line))
		e, err := d.event(line)
		if err != nil {
			if _, end := d.b.Peek(1); errors.Is(end, io.EOF) {
				d.torn = true
				return Event{}, io.EOF
			}
			return Event{}, err
		}
		d.offset += length
		return e, nil
	}
}

func (d *Reader) event(line []byte) (Event, error) {
	var fields []json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || len(fields) != 3 {
		return Event{}, fmt.Errorf("%w: the line at byte %d is no event", ErrFormat, d.offset)
	}
	var seconds *float64
	var code, data *string
	if json.Unmarshal(fields[0], &seconds) != nil || json.Unmarshal(fields[1], &code) != nil || json.Unmarshal(fields[2], &data) != nil ||
		seconds == nil || code == nil || data == nil {
		return Event{}, fmt.Errorf("%w: the event at byte %d has other fields than a number and two strings", ErrFormat, d.offset)
	}
	if *seconds < 0 || *seconds > maxTime.Seconds() {
		return Event{}, fmt.Errorf("%w: the event at byte %d has an impossible time", ErrFormat, d.offset)
	}
	at := d.at + time.Duration(*seconds*float64(time.Second)).Round(time.Microsecond)
	if at > maxTime {
		return Event{}, fmt.Errorf("%w: the event at byte %d has an impossible time", ErrFormat, d.offset)
	}
	d.at = at
	return Event{At: at, Code: Code(*code), Data: *data}, nil
}

// line returns the next line with its end; a line without one is not there.
func (d *Reader) line() ([]byte, error) {
	var long []byte
	for {
		part, err := d.b.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return part, nil
		case err == nil:
			long = append(long, part...)
			if len(long) > maxBytesLine {
				return nil, fmt.Errorf("%w: the line at byte %d is longer than %d bytes", ErrFormat, d.offset, maxBytesLine)
			}
			return long, nil
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			if len(long) > maxBytesLine {
				return nil, fmt.Errorf("%w: the line at byte %d is longer than %d bytes", ErrFormat, d.offset, maxBytesLine)
			}
		case errors.Is(err, io.EOF):
			d.torn = len(part)+len(long) > 0
			return nil, io.EOF
		default:
			return nil, err
		}
	}
}
