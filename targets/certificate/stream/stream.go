// Package stream is what the bot and the runner on a host say to each other during a run.
package stream

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

// Frame is what the bot sends a runner first, as a line of JSON, before the bytes of the action.
type Frame struct {
	Action int `json:"action"`          // how many bytes follow
	Limit  int `json:"limit,omitempty"` // seconds after which the command is ended; 0 is none
	// Skip are bytes of each stream that the bot has already; it is for Follow.
	Skip [2]int64 `json:"skip,omitempty"`
	// Peek asks only how the run is now.
	Peek bool `json:"peek,omitempty"`
}

// Stop is the line that ends a run.
const Stop = "stop\n"

// Stream is what a chunk of a runner's output is.
type Stream byte

// The streams.
const (
	Out Stream = 1 + iota
	Err
	Tell // an Event, as JSON
)

// Event is what a runner says of a run.
type Event struct {
	Began time.Time `json:"began,omitzero"`
	Why   string    `json:"why,omitempty"`  // it was not run, as a clause that follows "was not run: "
	None  bool      `json:"none,omitempty"` // the host has no record of it
	// Ended is set with the exit code; 128+n is a signal. Lost means that nothing tells how it ended.
	Ended time.Time `json:"ended,omitzero"`
	Code  int       `json:"code,omitempty"`
	Lost  bool      `json:"lost,omitempty"`
}

// MaxChunk is how long a chunk may be, in bytes.
const MaxChunk = 64 << 10

// WriteChunk writes a chunk: its stream, its length in four bytes, and its bytes.
func WriteChunk(w io.Writer, s Stream, b []byte) error {
	for {
		n := min(len(b), MaxChunk)
		head := []byte{byte(s), 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[1:], uint32(n))
		if _, err := w.Write(append(head, b[:n]...)); err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
}

// ReadChunk reads a chunk into buf, which has MaxChunk bytes.
func ReadChunk(r io.Reader, buf []byte) (Stream, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxChunk || head[0] < byte(Out) || head[0] > byte(Tell) {
		return 0, nil, errors.New("the host answers with something else than a runner does")
	}
	_, err := io.ReadFull(r, buf[:n])
	return Stream(head[0]), buf[:n], err
}
