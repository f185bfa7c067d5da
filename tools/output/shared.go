package output

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"countersign/store"
	"countersign/store/aging"
)

const (
	partSize      = 192 << 10        // bytes per row; below 256 KiB, see store/postgres
	perUpdate     = 6                // parts that one transaction writes, about 1 MiB
	shareTimeout  = 15 * time.Second // how long to wait for the store before the result goes on without it
	pruneBatch    = 20               // outputs that one transaction deletes
	maxLineSearch = 64 << 10         // how far from a limit to look for the end of a line
)

// errNotOwner means that another replica owns the thread now, and its output counts.
var errNotOwner = errors.New("output: another replica has the thread")

// head says which attempt is the output of a call.
type head struct {
	Attempt  string    `json:"attempt"`
	At       time.Time `json:"at"`
	Parts    uint64    `json:"parts"`
	Bytes    int64     `json:"bytes"`          // of the text
	EndsOnly bool      `json:"ends,omitempty"` // only the beginning and the end
	Layout   layout    `json:"layout,omitzero"`
}

// ageRow is what Prune must know about an attempt.
type ageRow struct {
	At    time.Time `json:"at"`
	Parts uint64    `json:"parts"`
}

func headKey(label, id string) []byte { return store.Key("output", "head", label, id) }

func partKey(label, id, attempt string, n uint64) []byte {
	return store.Key("output", "part", label, id, attempt, n)
}

// ages indexes attempts by time: label, id, attempt -> ageRow.
var ages = aging.Index{"output", "age"}

func newAttempt() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return encoding.EncodeToString(b[:])
}

// share copies the file to the store. If the store fails, the file gets the name under which only
// this replica finds it.
func (w *Writer) share(ctx context.Context) {
	h, err := w.put(ctx)
	if err == nil {
		if h.EndsOnly {
			w.ref.SharedBytes = h.Bytes
		}
		return
	}
	w.l.cfg.Log.WarnContext(ctx, "other replicas do not find the whole output of a call", "output", w.ref.ID, "error", err)
	w.ref.LocalOnly = true
	alone := filepath.Join(w.dir, w.ref.ID+".txt")
	if os.Rename(w.ref.Path, alone) == nil {
		_ = os.Rename(layoutPath(w.ref.Path), layoutPath(alone)) // often there is none
		w.ref.Path = alone
	}
}

// put writes the rows: first those with which Prune finds the others, last the head, which
// publishes the output.
func (w *Writer) put(ctx context.Context) (head, error) {
	f, err := os.Open(w.ref.Path)
	if err != nil {
		return head{}, err
	}
	defer func() { _ = f.Close() }()
	h := head{Attempt: w.attempt, At: w.l.cfg.Now().UTC(), Layout: w.layout.shared()}
	var packed partWriter
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return head{}, err
	}
	if h.Bytes, h.EndsOnly, err = copyEnds(z, f, w.l.cfg.Shared); err != nil {
		return head{}, err
	}
	if err := z.Close(); err != nil {
		return head{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	thread, id := threadLabel(w.thread), w.ref.ID
	n := uint64(0)
	h.Parts = uint64(len(packed))
	for batch := range slices.Chunk(packed, perUpdate) {
		err := w.l.cfg.DB.Update(ctx, func(tx store.Tx) error {
			if !w.l.cfg.Owns(tx, w.thread) {
				return errNotOwner
			}
			if n == 0 {
				store.Save(tx, ages.Key(h.At, thread, id, h.Attempt), ageRow{h.At, h.Parts})
			}
			for i, part := range batch {
				tx.Set(partKey(thread, id, h.Attempt, n+uint64(i)), part)
			}
			if n+uint64(len(batch)) < h.Parts {
				return nil
			}
			if old, ok := store.Load[head](tx, headKey(thread, id)); ok { // a call has one output
				remove(tx, thread, id, old.Attempt, ageRow{old.At, old.Parts})
			}
			store.Save(tx, headKey(thread, id), h)
			return nil
		})
		if err != nil {
			return head{}, err // Prune deletes the written parts
		}
		n += uint64(len(batch))
	}
	return h, nil
}

// remove deletes an attempt's parts and its age, but not the head.
func remove(tx store.Tx, thread, id, attempt string, a ageRow) {
	for n := range a.Parts {
		tx.Delete(partKey(thread, id, attempt, n))
	}
	tx.Delete(ages.Key(a.At, thread, id, attempt))
}

// partWriter splits its input into parts.
type partWriter [][]byte

func (p *partWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		last := len(*p) - 1
		if last < 0 || len((*p)[last]) == partSize {
			*p = append(*p, make([]byte, 0, min(partSize, max(len(b), 4<<10))))
			last++
		}
		k := min(len(b), partSize-len((*p)[last]))
		(*p)[last] = append((*p)[last], b[:k]...)
		b = b[k:]
	}
	return n, nil
}

// copyEnds copies a file, or if it is longer than limit its beginning and its end, in whole lines
// if possible, with a line in between that counts what is left out. It returns the bytes written
// and whether something was left out.
func copyEnds(to io.Writer, f *os.File, limit int64) (n int64, cut bool, err error) {
	st, err := f.Stat()
	if err != nil {
		return 0, false, err
	}
	size := st.Size()
	if size <= limit {
		n, err = io.Copy(to, f)
		return n, false, err
	}
	look := max(utf8.UTFMax, min(maxLineSearch, limit/8))
	first, line, err := lineBoundary(f, limit-limit/2-look, limit-limit/2, true)
	if err != nil {
		return 0, false, err
	}
	last, _, err := lineBoundary(f, size-limit/2-1, size-limit/2+look, false)
	if err != nil {
		return 0, false, err
	}
	var left counter
	if _, err := io.Copy(&left, io.NewSectionReader(f, first, last-first)); err != nil {
		return 0, false, err
	}
	mark := fmt.Sprintf("[... %d bytes in %d lines left out ...]\n", last-first, left)
	if !line {
		mark = "\n" + mark
	}
	for _, r := range []io.Reader{io.NewSectionReader(f, 0, first), bytes.NewReader([]byte(mark)), io.NewSectionReader(f, last, size-last)} {
		k, err := io.Copy(to, r)
		if n += k; err != nil {
			return n, true, err
		}
	}
	return n, true, nil
}

// counter counts lines.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(bytes.Count(b, []byte("\n")))
	return len(b), nil
}

// lineBoundary returns an offset after from and at most to that follows the end of a line: the last
// or the first such offset. If there is none, it returns the outermost offset on that side that is
// between two characters.
func lineBoundary(f *os.File, from, to int64, last bool) (at int64, line bool, err error) {
	from = max(from, 0)
	window := make([]byte, to-from)
	k, err := f.ReadAt(window, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, false, err
	}
	window = window[:k]
	i := bytes.IndexByte(window, '\n')
	if last {
		i = bytes.LastIndexByte(window, '\n')
	}
	if i >= 0 {
		return from + int64(i) + 1, true, nil
	}
	if !last {
		for i = 1; i < min(len(window), utf8.UTFMax) && !utf8.RuneStart(window[i]); {
			i++
		}
		return from + int64(i), false, nil
	}
	// The rest of the window's last character may follow it.
	i = len(window)
	for back := 1; back <= min(len(window), utf8.UTFMax); back++ {
		if utf8.RuneStart(window[i-back]) {
			if !utf8.FullRune(window[i-back:]) {
				i -= back
			}
			break
		}
	}
	return from + int64(i), false, nil
}

// openShared opens the attempt that counts: this replica's file if it is its own, otherwise the
// rows.
func (l *Log) openShared(ctx context.Context, thread, id string) (o opened, err error) {
	name := threadLabel(thread)
	var h head
	find := func(tx store.Tx) (ok bool) {
		h, ok = store.Load[head](tx, headKey(name, id))
		return ok
	}
	err = l.cfg.DB.View(ctx, func(tx store.Tx) error {
		if !find(tx) {
			return ErrNone
		}
		return nil
	})
	if err != nil {
		return o, err
	}
	if o, err := l.openFile(thread, id+"."+h.Attempt+".txt"); err == nil {
		return o, nil
	}
	var parts []io.Reader
	err = l.cfg.DB.View(ctx, func(tx store.Tx) error {
		parts = nil
		if !find(tx) { // it may be another attempt by now, or deleted
			return ErrNone
		}
		for n := range h.Parts {
			b, ok := tx.Get(partKey(name, id, h.Attempt, n))
			if !ok {
				return fmt.Errorf("output: part %d of %d of %s is missing in the store", n+1, h.Parts, id)
			}
			parts = append(parts, bytes.NewReader(b))
		}
		return nil
	})
	if err != nil {
		return o, err
	}
	z, err := gzip.NewReader(io.MultiReader(parts...))
	if err != nil {
		return o, fmt.Errorf("output: %s is damaged in the store: %w", id, err)
	}
	return opened{z, h.Bytes, h.EndsOnly, h.Layout}, nil
}

// pruneShared deletes stored output from before a time, in batches.
func (l *Log) pruneShared(ctx context.Context, before time.Time) (int, error) {
	type row struct {
		key                 []byte
		thread, id, attempt string
		ageRow
	}
	total := 0
	for {
		var old []row
		err := l.cfg.DB.View(ctx, func(tx store.Tx) error {
			old = nil
			for age := range ages.Until(tx, before) {
				r := row{key: age.Key}
				store.Decode(age.Key, age.Value, &r.ageRow)
				if len(age.Parts) != 3 {
					return fmt.Errorf("output: the row %s is not an age of an output", store.Format(age.Key))
				}
				for i, to := range []*string{&r.thread, &r.id, &r.attempt} {
					*to, _ = age.Parts[i].(string)
				}
				if r.At.Before(before) {
					old = append(old, r)
				}
				if len(old) == pruneBatch {
					break
				}
			}
			return nil
		})
		if err != nil || len(old) == 0 {
			return total, err
		}
		n := 0
		err = l.cfg.DB.Update(ctx, func(tx store.Tx) error {
			n = 0
			for _, r := range old {
				if _, ok := tx.Get(r.key); !ok {
					continue // another replica deleted it
				}
				remove(tx, r.thread, r.id, r.attempt, r.ageRow)
				if h, ok := store.Load[head](tx, headKey(r.thread, r.id)); ok && h.Attempt == r.attempt {
					tx.Delete(headKey(r.thread, r.id))
					n++
				}
			}
			return nil
		})
		if err != nil {
			return total, err
		}
		total += n
	}
}
