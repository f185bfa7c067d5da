// Package record records what a terminal showed, as files in the format asciicast v3
// (https://docs.asciinema.org/manual/asciicast/v3/): one file per pane, with a marker for each
// command and approval, so that people can replay it. Secrets are removed before anything is
// written to disk.
//
// A recording shows what was displayed, not what ran; the audit record is separate and does not
// depend on it. The package does not know threads or people, does not read panes (its caller feeds
// it), and does not render. It does not sync after each event: a crash may cost the last moments,
// and a truncated line is dropped when the file is read.
//
// # Secrets
//
// Redaction needs text, so output is held back for a short time and redacted as a whole: an
// unfinished line for 250 ms of silence, one second in total, or 4 KiB. The text written just
// before is examined again with what follows, so that the rest of a secret is covered if its
// beginning was already written. Escape sequences and line editing within a secret hide it: a
// password that is typed slowly with echo leaves its first characters.
package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	defaultMax    = 50 << 20 // bytes of a recording
	defaultBuffer = 1 << 20  // bytes that wait to be written
	markReserve   = 64 << 10 // bytes of waiting markers beyond that
	maxRawMark    = 4 << 10  // bytes of a marker's text before redaction
	minMax        = 4 << 10  // the smallest cap that holds a header and the last marker
	defaultTerm   = "tmux-256color"
)

// ErrFormat is wrapped by the errors of Reader for files that are not asciicast v3.
var ErrFormat = errors.New("this is not an asciicast v3 recording")

// Options configure a recording.
type Options struct {
	// Dir holds the recordings. It is created with mode 0700, and refused if others may enter it.
	// Files have mode 0600.
	Dir string
	// Session and Pane are the terminal's names for people; any text of at most 256 bytes each.
	Session, Pane string
	// Thread is whose terminal it is, at most 256 bytes; "" is not said.
	Thread string
	// Cols and Rows are the terminal's size; 80x24 if unknown.
	Cols, Rows int
	// Term is the TERM of programs in the terminal; default tmux-256color.
	Term string
	// Redact removes secrets from a text. It is required, and not called concurrently.
	Redact func(string) string
	// MaxBytes is the maximum file size, beyond which output is left out; default 50 MiB, at least
	// 4 KiB.
	MaxBytes int64
	// Buffer is how many bytes may wait for the disk; default 1 MiB.
	Buffer int
	// Resume continues the latest recording of this session and pane if it is readable and has no
	// exit. Otherwise a new file is created.
	Resume bool
	// Log receives disk failures and recoveries; nil discards them.
	Log *slog.Logger
}

// Recorder writes one recording. Its methods are safe for concurrent use, never wait for the disk
// (except Close), and do nothing after Exit or Close. A file must have only one Recorder at a time.
type Recorder struct {
	id      string
	limit   int
	started time.Time     // carries the monotonic clock
	base    time.Duration // of the recording when it was opened
	wake    chan struct{}
	done    chan struct{}

	mu    sync.Mutex // guards the fields below
	queue []Event
	size  int // bytes that wait or are being written
	lost  int // bytes left out since the last item of the queue
	ended bool
	close bool
	full  bool
	err   error
}

// Open starts or continues a recording. The caller must close it.
func Open(o Options) (*Recorder, error) {
	if o.Redact == nil {
		return nil, errors.New("record: nothing would take secrets out: set Options.Redact")
	}
	if o.Session == "" || o.Pane == "" || len(o.Session) > maxName || len(o.Pane) > maxName || len(o.Thread) > maxName {
		return nil, fmt.Errorf("record: the names of the session and the pane must have 1 to %d bytes: shorten them", maxName)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMax
	}
	if o.MaxBytes < minMax {
		return nil, fmt.Errorf("record: a recording of %d bytes holds nothing: allow at least %d", o.MaxBytes, minMax)
	}
	if o.Buffer <= 0 {
		o.Buffer = defaultBuffer
	}
	if o.Cols <= 0 || o.Rows <= 0 {
		o.Cols, o.Rows = 80, 24
	}
	if o.Term == "" {
		o.Term = defaultTerm
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	root, err := openDir(o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	w, first, err := openCast(root, o)
	if err != nil {
		return nil, err
	}
	return start(w, o, first), nil
}

// openCast opens the file and returns the first events to write.
func openCast(root *os.Root, o Options) (w *writer, first []Event, err error) {
	now := time.Now()
	if o.Resume {
		if w, first = resume(root, o, now); w != nil {
			return w, first, nil
		}
	}
	h := Header{Session: o.Session, Pane: o.Pane, Thread: o.Thread, Title: o.Session + " " + o.Pane, Cols: o.Cols, Rows: o.Rows, Term: o.Term, Started: now}
	f, id, err := create(root, o, now)
	if err != nil {
		return nil, nil, fmt.Errorf("record: a recording cannot be made in %s: make room or correct its rights: %w", o.Dir, err)
	}
	w = &writer{f: f, id: id, max: o.MaxBytes}
	if err := w.header(h); err != nil {
		_ = f.Close()
		_ = root.Remove(id + suffix)
		return nil, nil, fmt.Errorf("record: a recording cannot be begun in %s: make room there: %w", o.Dir, err)
	}
	return w, nil, nil
}

func create(root *os.Root, o Options, now time.Time) (*os.File, string, error) {
	base := safeName(o.Session) + "." + safeName(o.Pane) + "." + now.UTC().Format(stamp)
	for i := 1; ; i++ {
		id := base
		if i > 1 {
			id += "-" + strconv.Itoa(i)
		}
		f, err := root.OpenFile(id+suffix, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) || i == 100 {
			return f, id, err
		}
	}
}

// resume returns nil if there is nothing to continue.
func resume(root *os.Root, o Options, now time.Time) (*writer, []Event) {
	old := list(root, Filter{Session: o.Session, Pane: o.Pane})
	if len(old) == 0 || old[0].Ended {
		return nil, nil
	}
	f, err := root.OpenFile(old[0].ID+suffix, os.O_RDWR, 0)
	if err != nil {
		return nil, nil
	}
	w, first, err := reopen(f, old[0].ID, o, now)
	if err != nil {
		_ = f.Close()
		return nil, nil
	}
	return w, first
}

// reopen reads a recording to its end and removes a truncated line.
func reopen(f *os.File, id string, o Options, now time.Time) (*writer, []Event, error) {
	r, err := NewReader(f)
	if err != nil {
		return nil, nil, err
	}
	w := &writer{f: f, id: id, max: o.MaxBytes}
	size := fmt.Sprintf("%dx%d", r.Header().Cols, r.Header().Rows)
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		w.last = e.At
		switch e.Code {
		case Resize:
			size = e.Data
		case Mark:
			w.full = w.full || e.Data == capText(o.MaxBytes)
		case Exit:
			return nil, nil, errors.New("it has ended")
		case Output, Input:
		}
	}
	w.size = r.Offset()
	if err := f.Truncate(w.size); err != nil {
		return nil, nil, err
	}
	if _, err := f.Seek(w.size, io.SeekStart); err != nil {
		return nil, nil, err
	}
	w.base = max(w.last, now.Sub(r.Header().Started)) // the clock may have been set back
	first := []Event{{At: w.base, Code: Mark, Data: "The recording goes on here: " + (w.base - w.last).Round(time.Second).String() + " were not recorded."}}
	if now := fmt.Sprintf("%dx%d", o.Cols, o.Rows); now != size {
		first = append(first, Event{At: w.base, Code: Resize, Data: now})
	}
	return w, first, nil
}

func start(w *writer, o Options, first []Event) *Recorder {
	r := &Recorder{
		id: w.id, limit: o.Buffer, started: time.Now(), base: w.base, queue: first, full: w.full,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if len(first) > 0 {
		r.wake <- struct{}{}
	}
	for _, e := range first {
		r.size += len(e.Data)
	}
	go r.run(w, &holder{redact: o.Redact}, o.Log)
	return r
}

// ID names the recording within its directory, for [OpenFile].
func (r *Recorder) ID() string { return r.id }

func (r *Recorder) now() time.Duration { return r.base + time.Since(r.started) }

// Output records terminal output. It copies b and never waits for the disk: if more than
// Options.Buffer bytes are waiting, b is left out and a marker says how much was.
func (r *Recorder) Output(b []byte) {
	if len(b) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.full {
		return
	}
	if r.size+len(b) > r.limit {
		r.lost += len(b)
		return
	}
	at := r.now()
	r.recordLoss(at)
	r.add(Event{At: at, Code: Output, Data: string(b)})
}

// recordLoss must be called with the lock held.
func (r *Recorder) recordLoss(at time.Duration) {
	if r.lost > 0 {
		text := fmt.Sprintf("%d bytes of output are missing here: more came than could be written.", r.lost)
		r.lost = 0
		r.size += len(text)
		r.queue = append(r.queue, Event{At: at, Code: Mark, Data: text})
	}
}

// add must be called with the lock held.
func (r *Recorder) add(e Event) {
	r.size += len(e.Data)
	r.queue = append(r.queue, e)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Marker records an event such as a command or an approval. Newlines become spaces; a text is cut
// to 1 KiB.
func (r *Recorder) Marker(text string) {
	r.mark(Mark, text[:min(len(text), maxRawMark)])
}

// Resize records the terminal's new size. Sizes that are not positive are
// ignored.
func (r *Recorder) Resize(cols, rows int) {
	if cols > 0 && rows > 0 {
		r.mark(Resize, fmt.Sprintf("%dx%d", cols, rows))
	}
}

// Exit records that the terminal's program exited with this status. Later events are ignored.
func (r *Recorder) Exit(code int) { r.mark(Exit, strconv.Itoa(code)) }

func (r *Recorder) mark(code Code, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = code == Exit
	if r.size+len(text) > r.limit+markReserve && code != Exit {
		return
	}
	at := r.now()
	r.recordLoss(at)
	r.add(Event{At: at, Code: code, Data: text})
}

// Close writes what is waiting, syncs the file and returns the last disk error if it lost part of
// the recording. It may be called again.
func (r *Recorder) Close() error {
	r.mu.Lock()
	r.ended, r.close = true, true
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// dequeue empties the queue.
func (r *Recorder) dequeue() (items []Event, closing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recordLoss(r.now())
	items, r.queue = r.queue, nil
	return items, r.close
}

// release frees buffer space.
func (r *Recorder) release(items []Event, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range items {
		r.size -= len(e.Data)
	}
	r.full = full
}

// run owns the file and the text that is held back.
func (r *Recorder) run(w *writer, h *holder, log *slog.Logger) {
	defer close(r.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var last error // of the disk
	write := func(events []Event) {
		if len(events) == 0 {
			return
		}
		err := w.write(events)
		if err != nil && last == nil {
			log.WarnContext(context.Background(), "a recording cannot be written: what comes meanwhile is left out", "recording", r.id, "error", err)
		}
		if err == nil && last != nil {
			log.InfoContext(context.Background(), "a recording can be written again", "recording", r.id)
		}
		if last = err; err != nil {
			r.mu.Lock()
			r.err = fmt.Errorf("record: some of %s is missing: %w", r.id, err)
			r.mu.Unlock()
		}
	}
	for {
		select {
		case <-r.wake:
		case <-timer.C:
		}
		items, closing := r.dequeue()
		var ready []Event
		for _, e := range items {
			ready = append(ready, h.add(e)...)
		}
		if closing {
			ready = append(ready, h.end()...)
		} else {
			ready = append(ready, h.due(r.now())...)
		}
		write(ready)
		r.release(items, w.full)
		if closing {
			if err := w.close(); err != nil {
				r.mu.Lock()
				r.err = errors.Join(r.err, fmt.Errorf("record: %s may not be on the disk: %w", r.id, err))
				r.mu.Unlock()
			}
			return
		}
		timer.Stop()
		if at, ok := h.deadline(); ok {
			timer.Reset(max(time.Millisecond, at-r.now()))
		}
	}
}
