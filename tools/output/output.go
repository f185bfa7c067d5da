// Package output stores the full output of calls whose result was cut, so that the model can read
// on (the tool read_output) and people can download it.
//
// Output is a file in the data directory, mode 0600, with secrets removed before it is written. If
// replicas share a store, the text is also in rows of the store, up to a limit, so that every
// replica finds it. Output is not part of the transcript and is deleted when it expires; what the
// model saw stays in the thread's history.
//
// Rows have the key prefix "output" (see store.Key) and exist only if [Config] has a DB. Threads
// are named by their hashes, so that threads that began together are not adjacent in the store:
//
//	head  <thread> <id>                       -> which attempt counts, and its parts
//	part  <thread> <id> <attempt> <n u64>     -> a piece of the text, compressed as a whole
//	age   <hour i64> <thread> <id> <attempt>  -> when it was kept and in how many parts, for Prune
package output

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"countersign/store"
	"countersign/tools"
	"countersign/tools/truncate"
)

const (
	// DefaultMax is how many bytes of one call's output are kept.
	DefaultMax = 64 << 20
	// memoryLimit is how many bytes are buffered before a file is created.
	memoryLimit = 64 << 10
	// DefaultShared is how many bytes of one call's output the store keeps, before compression.
	DefaultShared = 8 << 20
	// maxEnds is how many bytes of an output's beginning and end are held for people.
	maxEnds = 64 << 10
)

// Cleaner removes secrets from text that arrives in pieces.
type Cleaner interface {
	Write(piece string) string
	Flush() string
}

// Config says where and how output is kept.
type Config struct {
	Dir     string         // created with mode 0700 for the first output
	Max     int64          // bytes per call; 0 means DefaultMax
	Cleaner func() Cleaner // nil removes nothing
	// Readable reports whether models are offered read_output; nil means yes.
	Readable func() bool
	// DB is the store that replicas share to find each other's output; nil for a single process.
	DB store.DB
	// Shared is how many bytes of one call's output are stored in DB, before compression. Of a
	// longer output these are the beginning and the end. 0 means DefaultShared.
	Shared int64
	// Owns reports whether this replica may still write for a thread. It is called in the
	// transaction that publishes an output; nil means yes.
	Owns func(tx store.Tx, thread string) bool
	Log  *slog.Logger     // logs when the store rejects output; nil discards
	Now  func() time.Time // nil means time.Now
}

// Log stores output. It is safe for concurrent use.
type Log struct{ cfg Config }

// New returns a Log. It writes nothing until output is kept.
func New(c Config) *Log {
	if c.Max <= 0 {
		c.Max = DefaultMax
	}
	if c.Cleaner == nil {
		c.Cleaner = func() Cleaner { return noCleaner{} }
	}
	if c.Shared <= 0 {
		c.Shared = DefaultShared
	}
	if c.Owns == nil {
		c.Owns = func(store.Tx, string) bool { return true }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Log{c}
}

type noCleaner struct{}

func (noCleaner) Write(s string) string { return s }
func (noCleaner) Flush() string         { return "" }

// Ref describes kept output.
type Ref struct {
	ID           string // "out-3f2a9c1b", unique in the thread
	Path         string
	Bytes, Lines int64
	Dropped      int64 // bytes beyond the limit, or that could not be written
	Readable     bool  // with read_output
	// SharedBytes is how many bytes other replicas have, if they have only the beginning and the
	// end; 0 if they have all of it or there are none.
	SharedBytes int64
	// LocalOnly means that the store did not accept it, so other replicas have nothing.
	LocalOnly bool
}

// Note returns the last line of a cut result; cut says where it was cut.
func (r Ref) Note(cut string) string {
	note := fmt.Sprintf("[Output truncated %s. Full output saved to: %s]\n[It has %d lines, %s", cut, r.Path, r.Lines, truncate.FormatSize(r.Bytes))
	if r.Readable {
		note += fmt.Sprintf("; read_output with %q reads it", r.ID)
	}
	if r.Dropped > 0 {
		note += fmt.Sprintf("; %s more were not kept", truncate.FormatSize(r.Dropped))
	}
	if r.SharedBytes > 0 {
		note += fmt.Sprintf("; other replicas of this bot have its beginning and its end, %s", truncate.FormatSize(r.SharedBytes))
	}
	if r.LocalOnly {
		note += "; only the replica of this bot that ran the call has it"
	}
	return note + ".]"
}

var (
	encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
	idForm   = regexp.MustCompile(`^out-[0-9a-z]{8}$`)
)

func shortHash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return encoding.EncodeToString(sum[:5])
}

// threadLabel is a thread's name in folders and rows. It is a hash, so that no thread can name
// another's.
func threadLabel(thread string) string {
	sum := sha256.Sum256([]byte(thread))
	return encoding.EncodeToString(sum[:10])
}

func (l *Log) folder(thread string) string { return filepath.Join(l.cfg.Dir, threadLabel(thread)) }

// Begin starts storing the output of a call. The caller must call Keep or Drop.
func (l *Log) Begin(thread, call string) *Writer {
	w := &Writer{l: l, thread: thread, dir: l.folder(thread), ref: Ref{ID: "out-" + shortHash(thread, call),
		Readable: l.cfg.Readable == nil || l.cfg.Readable()}, cleaners: map[tools.EventKind]Cleaner{}, ends: truncate.Halves(maxEnds)}
	w.ref.Path = filepath.Join(w.dir, w.ref.ID+".txt")
	if l.cfg.DB != nil {
		// Another replica may have stored output of the same call. The store says which attempt
		// counts, and the file name contains the attempt.
		w.attempt = newAttempt()
		w.ref.Path = filepath.Join(w.dir, w.ref.ID+"."+w.attempt+".txt")
	}
	return w
}

// Writer receives the output of one call. It is not safe for concurrent use. A nil Writer keeps
// nothing.
type Writer struct {
	l        *Log
	thread   string
	attempt  string // "" without a store
	dir      string
	ref      Ref
	cleaners map[tools.EventKind]Cleaner
	ends     *truncate.Writer
	layout   layout
	open     bool // the last line has no end yet
	pending  []byte
	file     *os.File
	err      error
}

// Event writes the text of an output event and ignores other events.
func (w *Writer) Event(e tools.Event) {
	if w == nil || e.Kind != tools.Stdout && e.Kind != tools.Stderr {
		return
	}
	c := w.cleaners[e.Kind]
	if c == nil {
		c = w.l.cfg.Cleaner()
		w.cleaners[e.Kind] = c
	}
	w.write(e.Kind, c.Write(e.Text))
}

func (w *Writer) write(kind tools.EventKind, text string) {
	_, _ = w.ends.Write([]byte(text)) // never fails
	if room := w.l.cfg.Max - w.ref.Bytes; int64(len(text)) > room {
		w.ref.Dropped += int64(len(text)) - room
		text = text[:room]
	}
	if text == "" {
		return
	}
	w.ref.Bytes += int64(len(text))
	if w.open { // the rest of a line that was counted
		w.ref.Lines--
	}
	w.ref.Lines += int64(strings.Count(text, "\n"))
	if w.open = !strings.HasSuffix(text, "\n"); w.open {
		w.ref.Lines++
	}
	w.layout.add(kind, len(text))
	w.pending = append(w.pending, text...)
	if len(w.pending) >= memoryLimit {
		w.flush()
	}
}

// flush writes the pending text. A write error ends the file, but not the call.
func (w *Writer) flush() {
	defer func() { w.pending = w.pending[:0] }()
	if w.err == nil && w.file == nil {
		w.file, w.err = create(w.dir, w.ref.Path)
	}
	if w.err == nil {
		_, w.err = w.file.Write(w.pending)
	}
	if w.err != nil {
		w.ref.Dropped += int64(len(w.pending))
		w.ref.Bytes -= int64(len(w.pending))
	}
}

func create(dir, path string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// A call has one output, so that of an interrupted run is overwritten.
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Bytes returns the number of bytes so far.
func (w *Writer) Bytes() int64 {
	if w == nil {
		return 0
	}
	return w.ref.Bytes + w.ref.Dropped
}

// Ends are the beginning and the end of an output, for people.
type Ends struct {
	Head, Tail   string // Tail is empty if Head is all of it
	Bytes, Lines int64  // of all of it, also of what is not kept
}

// Ends ends the output and returns both ends of it. The caller must call Keep or Drop all the same.
func (w *Writer) Ends() Ends {
	if w == nil {
		return Ends{}
	}
	w.finish()
	var e Ends
	e.Head, e.Tail, e.Bytes, e.Lines = w.ends.Ends()
	return e
}

// finish writes what the cleaners hold back.
func (w *Writer) finish() {
	for _, k := range []tools.EventKind{tools.Stdout, tools.Stderr} {
		if c := w.cleaners[k]; c != nil {
			w.write(k, c.Flush())
		}
	}
}

// Keep is KeepContext without a context.
func (w *Writer) Keep(full string) (Ref, error) {
	return w.KeepContext(context.Background(), full)
}

// KeepContext ends the writer and keeps its output, or full instead if that is not empty. It fails
// if there is nothing to keep or the disk fails. When it returns, other replicas find the output.
// If the store does not accept it within 15 s, that is not an error but noted in the Ref.
func (w *Writer) KeepContext(ctx context.Context, full string) (Ref, error) {
	if full != "" && w.Bytes() == 0 {
		w.Event(tools.Event{Kind: tools.Stdout, Text: full})
	}
	w.finish()
	if w.Bytes() == 0 {
		return Ref{}, errors.New("output: there is none")
	}
	w.flush()
	if w.file != nil {
		w.err = errors.Join(w.err, w.file.Close())
	}
	if w.err != nil && w.ref.Bytes == 0 {
		return Ref{}, fmt.Errorf("output: it could not be kept: %w", w.err)
	}
	w.layout.Dropped = w.ref.Dropped
	if err := w.layout.save(w.ref.Path); err != nil {
		return Ref{}, fmt.Errorf("output: it could not be kept: %w", err)
	}
	if w.l.cfg.DB != nil {
		w.share(ctx)
	}
	return w.ref, nil
}

// Drop ends the writer and discards its output.
func (w *Writer) Drop() {
	if w != nil && w.file != nil {
		_ = w.file.Close()
		_ = os.Remove(w.ref.Path)
	}
}

// ErrNone means that a thread has no such output, or no longer has it.
var ErrNone = errors.New("output: there is no such output")

// Open is OpenContext without a context.
func (l *Log) Open(thread, id string) (io.ReadCloser, int64, error) {
	return l.OpenContext(context.Background(), thread, id)
}

// OpenContext opens an output of a thread, whichever replica has it, and returns its length in
// bytes: all of it if this replica kept it, otherwise what the store has. ctx is not needed for
// reading afterwards.
func (l *Log) OpenContext(ctx context.Context, thread, id string) (io.ReadCloser, int64, error) {
	o, err := l.open(ctx, thread, id)
	return o.ReadCloser, o.size, err
}

// opened is an output that is read.
type opened struct {
	io.ReadCloser
	size   int64
	cut    bool // only the beginning and the end
	layout layout
}

func (l *Log) open(ctx context.Context, thread, id string) (o opened, err error) {
	if !idForm.MatchString(id) {
		return o, ErrNone
	}
	if l.cfg.DB != nil {
		if o, err = l.openShared(ctx, thread, id); !errors.Is(err, ErrNone) {
			return o, err
		}
	}
	return l.openFile(thread, id+".txt")
}

func (l *Log) openFile(thread, name string) (o opened, err error) {
	path := filepath.Join(l.folder(thread), name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, ErrNone
	}
	if err != nil {
		return o, err
	}
	st, err := f.Stat()
	if err == nil {
		o.layout, err = loadLayout(path)
	}
	if err != nil {
		_ = f.Close()
		return o, err
	}
	o.ReadCloser, o.size = f, st.Size()
	return o, nil
}

// Text is TextContext without a context.
func (l *Log) Text(thread, id string, maxBytes int) (text string, cut bool, err error) {
	return l.TextContext(context.Background(), thread, id, maxBytes)
}

// TextContext returns an output as text of at most maxBytes: its beginning and end if it is longer,
// or if the store has no more.
func (l *Log) TextContext(ctx context.Context, thread, id string, maxBytes int) (text string, cut bool, err error) {
	o, err := l.open(ctx, thread, id)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = o.Close() }()
	w := truncate.Halves(maxBytes)
	if _, err := io.Copy(w, o); err != nil {
		return "", false, err
	}
	text, where := w.Text()
	return text, o.cut || where != "", nil
}

// Prune deletes output that was kept before a time: this replica's files and empty folders, and the
// rows in the store. Each replica must call it for its files. It returns how many files and stored
// outputs were deleted.
func (l *Log) Prune(ctx context.Context, before time.Time) (int, error) {
	n, err := l.pruneFiles(ctx, before)
	if l.cfg.DB == nil {
		return n, err
	}
	k, shared := l.pruneShared(ctx, before)
	return n + k, errors.Join(err, shared)
}

func (l *Log) pruneFiles(ctx context.Context, before time.Time) (int, error) {
	n := 0
	folders, err := os.ReadDir(l.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, folder := range folders {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		dir := filepath.Join(l.cfg.Dir, folder.Name())
		files, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process uses the directory, too
		}
		if err != nil {
			return n, err
		}
		for _, f := range files {
			if st, err := f.Info(); err == nil && st.ModTime().Before(before) && os.Remove(filepath.Join(dir, f.Name())) == nil && strings.HasSuffix(f.Name(), ".txt") {
				n++
			}
		}
		_ = os.Remove(dir) // fails unless the directory is empty
	}
	return n, nil
}
