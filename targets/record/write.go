package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

const (
	maxMark  = 1 << 10  // bytes of a marker's text
	maxPiece = 32 << 10 // bytes of output in one line of the file
	maxExit  = 64       // bytes kept for the exit
)

// sink is a file; tests have slow and broken ones.
type sink interface {
	io.WriteCloser
	io.Seeker
	Truncate(size int64) error
	Sync() error
}

var errBroken = errors.New("a line that was written in part could not be taken back")

// writer puts events into the file, whole lines or nothing. It has one owner.
type writer struct {
	f      sink
	id     string
	size   int64 // of the file
	max    int64
	base   time.Duration // of the recording when the file was opened
	last   time.Duration // of the last event in the file
	full   bool          // no more output
	lost   int           // bytes that the disk refused
	broken bool          // nothing can be written any more
	buf    bytes.Buffer
}

// reserve is what markers may use after the last output.
func (w *writer) reserve() int64 { return min(64<<10, w.max/4) }

func capText(limit int64) string {
	return fmt.Sprintf("The recording has reached its limit of %s: output that comes later is not in it.", bytesText(limit))
}

func bytesText(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

func (w *writer) header(h Header) error {
	raw, err := h.encode()
	if err != nil {
		return err
	}
	if int64(len(raw)) > w.max/2 {
		return errors.New("the header is too large")
	}
	w.buf.Reset()
	w.buf.Write(raw)
	return w.flush()
}

// write appends events. When the disk fails, they are left out and the file
// ends as before; the next ones are tried again.
func (w *writer) write(events []Event) error {
	if w.broken {
		return errBroken
	}
	lastBefore, fullBefore, lostBefore := w.last, w.full, w.lost
	w.buf.Reset()
	if w.lost > 0 {
		w.put(Event{At: events[0].At, Code: Mark, Data: fmt.Sprintf("%d bytes of output are missing here: they could not be written.", w.lost)})
		w.lost = 0
	}
	n := 0
	for _, e := range events {
		if e.Code != Output {
			w.put(e)
			continue
		}
		n += len(e.Data)
		for rest := e.Data; rest != ""; {
			piece := rest
			if len(piece) > maxPiece {
				cut := maxPiece
				for !utf8.RuneStart(piece[cut]) {
					cut--
				}
				piece = piece[:cut]
			}
			rest = rest[len(piece):]
			e.Data = piece
			w.put(e)
		}
	}
	if err := w.flush(); err != nil {
		w.last, w.full, w.lost = lastBefore, fullBefore, lostBefore+n
		return err
	}
	return nil
}

// put adds a line to the buffer if there is room for it in the file.
func (w *writer) put(e Event) {
	line, at := e.encode(w.last)
	room := w.max - w.size - int64(w.buf.Len()) - int64(len(line))
	switch e.Code {
	case Output, Resize:
		if w.full {
			return
		}
		if room < w.reserve() {
			w.full = true
			w.put(Event{At: e.At, Code: Mark, Data: capText(w.max)})
			return
		}
	case Exit:
		if room < 0 {
			return
		}
	default:
		if room < maxExit {
			return
		}
	}
	w.last = at
	w.buf.Write(line)
}

func (w *writer) flush() error {
	if w.buf.Len() == 0 {
		return nil
	}
	n, err := w.f.Write(w.buf.Bytes())
	if err == nil {
		w.size += int64(n)
		return nil
	}
	if n > 0 {
		_, seek := w.f.Seek(w.size, io.SeekStart)
		if seek != nil || w.f.Truncate(w.size) != nil {
			w.broken = true
		}
	}
	return err
}

func (w *writer) close() error {
	err := w.f.Sync()
	return errors.Join(err, w.f.Close())
}

// encode returns the event's line after an event at last, and the time that a
// reader gets for it: times are kept in milliseconds and never go back.
func (e Event) encode(last time.Duration) (line []byte, at time.Duration) {
	at = max(last, e.At.Round(time.Millisecond))
	ms := (at - last).Milliseconds()
	var b bytes.Buffer
	fmt.Fprintf(&b, "[%d.%03d, %q, ", ms/1000, ms%1000, string(e.Code))
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(e.Data) // a string never fails
	b.Truncate(b.Len() - 1)
	b.WriteString("]\n")
	return b.Bytes(), at
}
