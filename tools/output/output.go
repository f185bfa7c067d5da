// Package output keeps the whole output of calls whose result was cut, so that the model
// can read on (the tool read_output) and people can have it as a file.
//
// Output is a file of the data directory, mode 0600, with secrets taken out before it is
// written. Where several replicas share a store, the same text is also in rows of it, up
// to a limit, so that each of them finds it. It is not the transcript: what the model was
// told is in the thread's history, and output goes when its time is over.
//
// Rows, under the key "output" (see store.Key), only where [Config] has a DB. Threads are
// named by their hashes, so that neighbours in time are none in the store:
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
	// DefaultMax is how much of one call's output is kept, in bytes.
	DefaultMax = 64 << 20
	// lazy is how much waits in memory before there is a file.
	lazy = 64 << 10
	// DefaultShared is how much of one call's output the store keeps, in bytes of text.
	DefaultShared = 8 << 20
)

// Cleaner takes secrets out of text that comes in pieces.
type Cleaner interface {
	Write(piece string) string
	Flush() string
}

// Config says where and how output is kept.
type Config struct {
	Dir     string         // made with mode 0700 when the first output is kept
	Max     int64          // bytes of one call; 0 means DefaultMax
	Cleaner func() Cleaner // nil takes nothing out
	// Readable reports whether models are offered read_output; nil means that they are.
	Readable func() bool
	// DB is the store of all replicas, which then find each other's output; nil where
	// there is one process, whose files are enough.
	DB store.DB
	// Shared is how much of one call's output goes into DB, in bytes before they are
	// compressed; of a longer one these are the beginning and the end. 0 means
	// DefaultShared.
	Shared int64
	// Owns reports whether this replica may still write for a thread, in the
	// transaction that makes its output known; nil means that it may.
	Owns func(tx store.Tx, thread string) bool
	Log  *slog.Logger     // hears when the store takes no output; nil discards
	Now  func() time.Time // nil means time.Now
}

// Log keeps output. It is safe for concurrent use.
type Log struct{ cfg Config }

// New returns a log; nothing is written until output is kept.
func New(c Config) *Log {
	if c.Max <= 0 {
		c.Max = DefaultMax
	}
	if c.Cleaner == nil {
		c.Cleaner = func() Cleaner { return plain{} }
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

type plain struct{}

func (plain) Write(s string) string { return s }
func (plain) Flush() string         { return "" }

// Ref names kept output.
type Ref struct {
	ID           string // "out-3f2a9c1b", unique in the thread
	Path         string
	Bytes, Lines int64
	Dropped      int64 // bytes that came after the limit, or that the disk refused
	Readable     bool  // with read_output
	// Ends is how much other replicas have, in bytes, where that is the beginning and
	// the end only. 0 means that they have all of it, or that there are none.
	Ends int64
	// Here means that the store did not take it, so that other replicas have nothing.
	Here bool
}

// Note is the line that a cut result ends with; cut says where it was cut.
func (r Ref) Note(cut string) string {
	note := fmt.Sprintf("[Output truncated %s. Full output saved to: %s]\n[It has %d lines, %s", cut, r.Path, r.Lines, truncate.FormatSize(r.Bytes))
	if r.Readable {
		note += fmt.Sprintf("; read_output with %q reads it", r.ID)
	}
	if r.Dropped > 0 {
		note += fmt.Sprintf("; %s more were not kept", truncate.FormatSize(r.Dropped))
	}
	if r.Ends > 0 {
		note += fmt.Sprintf("; other replicas of this bot have its beginning and its end, %s", truncate.FormatSize(r.Ends))
	}
	if r.Here {
		note += "; only the replica of this bot that ran the call has it"
	}
	return note + ".]"
}

var (
	encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)
	idForm   = regexp.MustCompile(`^out-[0-9a-z]{8}$`)
)

func short(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return encoding.EncodeToString(sum[:5])
}

// label stands for a thread in the names of folders and rows: another thread's cannot be
// named.
func label(thread string) string {
	sum := sha256.Sum256([]byte(thread))
	return encoding.EncodeToString(sum[:10])
}

func (l *Log) folder(thread string) string { return filepath.Join(l.cfg.Dir, label(thread)) }

// Begin starts to keep the output of a call. The Writer must be ended by Keep or Drop.
func (l *Log) Begin(thread, call string) *Writer {
	w := &Writer{l: l, thread: thread, dir: l.folder(thread), ref: Ref{ID: "out-" + short(thread, call), Readable: l.cfg.Readable == nil || l.cfg.Readable()}, cleaners: map[tools.EventKind]Cleaner{}}
	w.ref.Path = filepath.Join(w.dir, w.ref.ID+".txt")
	if l.cfg.DB != nil {
		// Another replica may have kept output of the same call: which one counts is in
		// the store, and a file says of which attempt it is.
		w.attempt = newAttempt()
		w.ref.Path = filepath.Join(w.dir, w.ref.ID+"."+w.attempt+".txt")
	}
	return w
}

// Writer takes the output of one call. It is used by one goroutine at a time; a nil
// Writer keeps nothing.
type Writer struct {
	l        *Log
	thread   string
	attempt  string // "" without a store
	dir      string
	ref      Ref
	cleaners map[tools.EventKind]Cleaner
	waiting  []byte
	file     *os.File
	broken   error
}

// Event takes a piece of output; other events are none.
func (w *Writer) Event(e tools.Event) {
	if w == nil || e.Kind != tools.Stdout && e.Kind != tools.Stderr {
		return
	}
	c := w.cleaners[e.Kind]
	if c == nil {
		c = w.l.cfg.Cleaner()
		w.cleaners[e.Kind] = c
	}
	w.write(c.Write(e.Text))
}

func (w *Writer) write(text string) {
	if room := w.l.cfg.Max - w.ref.Bytes; int64(len(text)) > room {
		w.ref.Dropped += int64(len(text)) - room
		text = text[:room]
	}
	if text == "" {
		return
	}
	w.ref.Bytes += int64(len(text))
	w.ref.Lines += int64(strings.Count(text, "\n"))
	w.waiting = append(w.waiting, text...)
	if len(w.waiting) >= lazy {
		w.flush()
	}
}

// flush writes what waits. A disk that refuses ends the file, and nothing else.
func (w *Writer) flush() {
	defer func() { w.waiting = w.waiting[:0] }()
	if w.broken == nil && w.file == nil {
		w.file, w.broken = create(w.dir, w.ref.Path)
	}
	if w.broken == nil {
		_, w.broken = w.file.Write(w.waiting)
	}
	if w.broken != nil {
		w.ref.Dropped += int64(len(w.waiting))
		w.ref.Bytes -= int64(len(w.waiting))
	}
}

func create(dir, path string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// A call has one output: that of a run that was cut short goes.
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// Bytes is how much has come so far.
func (w *Writer) Bytes() int64 {
	if w == nil {
		return 0
	}
	return w.ref.Bytes + w.ref.Dropped
}

// Keep is KeepContext without a context.
func (w *Writer) Keep(full string) (Ref, error) {
	return w.KeepContext(context.Background(), full)
}

// KeepContext ends the writer and keeps what came, or full in its place where that is not
// empty. It fails when there is nothing to keep, or the disk refused. When it returns,
// other replicas find it; a store that does not take it within 15 s is no error, but is
// said in the Ref.
func (w *Writer) KeepContext(ctx context.Context, full string) (Ref, error) {
	if full != "" && w.Bytes() == 0 {
		w.Event(tools.Event{Kind: tools.Stdout, Text: full})
	}
	for _, k := range []tools.EventKind{tools.Stdout, tools.Stderr} {
		if c := w.cleaners[k]; c != nil {
			w.write(c.Flush())
		}
	}
	if w.Bytes() == 0 {
		return Ref{}, errors.New("output: there is none")
	}
	w.flush()
	if w.file != nil {
		w.broken = errors.Join(w.broken, w.file.Close())
	}
	if w.broken != nil && w.ref.Bytes == 0 {
		return Ref{}, fmt.Errorf("output: it could not be kept: %w", w.broken)
	}
	if w.l.cfg.DB != nil {
		w.share(ctx)
	}
	return w.ref, nil
}

// Drop ends the writer and keeps nothing.
func (w *Writer) Drop() {
	if w != nil && w.file != nil {
		_ = w.file.Close()
		_ = os.Remove(w.ref.Path)
	}
}

// ErrNone means that a thread has no such output, or no longer.
var ErrNone = errors.New("output: there is no such output")

// Open is OpenContext without a context.
func (l *Log) Open(thread, id string) (io.ReadCloser, int64, error) {
	return l.OpenContext(context.Background(), thread, id)
}

// OpenContext opens the output of a thread, wherever it is, and tells its length in bytes:
// all of it where this replica kept it, and otherwise what the store has. The context is
// for finding it; what is read then needs none.
func (l *Log) OpenContext(ctx context.Context, thread, id string) (io.ReadCloser, int64, error) {
	f, size, _, err := l.open(ctx, thread, id)
	return f, size, err
}

func (l *Log) open(ctx context.Context, thread, id string) (f io.ReadCloser, size int64, cut bool, err error) {
	if !idForm.MatchString(id) {
		return nil, 0, false, ErrNone
	}
	if l.cfg.DB != nil {
		if f, size, cut, err = l.openShared(ctx, thread, id); !errors.Is(err, ErrNone) {
			return f, size, cut, err
		}
	}
	f, size, err = l.openFile(thread, id+".txt")
	return f, size, false, err
}

func (l *Log) openFile(thread, name string) (io.ReadCloser, int64, error) {
	f, err := os.Open(filepath.Join(l.folder(thread), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, ErrNone
	}
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

// Text is TextContext without a context.
func (l *Log) Text(thread, id string, maxBytes int) (text string, cut bool, err error) {
	return l.TextContext(context.Background(), thread, id, maxBytes)
}

// TextContext is the output of a thread as a text of at most maxBytes: its beginning and
// its end where it is longer, or where the store has no more.
func (l *Log) TextContext(ctx context.Context, thread, id string, maxBytes int) (text string, cut bool, err error) {
	f, _, ends, err := l.open(ctx, thread, id)
	if err != nil {
		return "", false, err
	}
	defer func() { _ = f.Close() }()
	w := truncate.Halves(maxBytes)
	if _, err := io.Copy(w, f); err != nil {
		return "", false, err
	}
	text, where := w.Text()
	return text, ends || where != "", nil
}

// Prune removes output that was kept before a time: the files of this replica with the
// folders that are empty then, and what the store has. Each replica has to do it, for its
// files. It returns how many files and outputs of the store went.
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
			if st, err := f.Info(); err == nil && st.ModTime().Before(before) && os.Remove(filepath.Join(dir, f.Name())) == nil {
				n++
			}
		}
		_ = os.Remove(dir) // refuses while something is in it
	}
	return n, nil
}
