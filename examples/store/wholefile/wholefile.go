// Package wholefile is an example of a store engine: all rows are in memory, and each
// Update writes all of them to a new file that takes the old one's place. That is too slow
// for more than a few thousand rows, and short enough to read in five minutes.
package wholefile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"countersign/store"
)

// DB is a [store.DB] in one file. It does not lock the file: one process at a time may
// have it open.
type DB struct {
	path    string
	writing chan struct{} // holds one token; its holder may write

	mu     sync.Mutex // guards what follows
	rows   []row      // in the order of their keys; never changed in place, so a snapshot is the slice
	closed bool
	busy   sync.WaitGroup // running transactions; Add under mu, never after closed
}

var _ store.DB = (*DB)(nil)

type row struct{ Key, Val []byte }

// Open opens the database in the file at path. A missing file is an empty database.
func Open(path string) (*DB, error) {
	db := &DB{path: path, writing: make(chan struct{}, 1)}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return db, nil
	case err != nil:
		return nil, err
	}
	if err := json.Unmarshal(b, &db.rows); err != nil {
		return nil, fmt.Errorf("wholefile: %s is damaged: %w", path, err)
	}
	return db, nil
}

// View implements [store.DB].
func (db *DB) View(ctx context.Context, fn func(store.Tx) error) error {
	rows, err := db.begin(ctx)
	if err != nil {
		return err
	}
	defer db.busy.Done()
	_, err = run(&tx{rows: rows}, fn)
	return err
}

// Update implements [store.DB]. Writers take turns, which makes them serializable.
func (db *DB) Update(ctx context.Context, fn func(store.Tx) error) error {
	if _, err := db.begin(ctx); err != nil {
		return err
	}
	defer db.busy.Done()
	select {
	case db.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-db.writing }()
	db.mu.Lock()
	rows := slices.Clone(db.rows)
	db.mu.Unlock()
	rows, err := run(&tx{rows: rows, writable: true}, fn)
	if err != nil {
		return err
	}
	if err := write(db.path, rows); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.rows = rows
	return nil
}

// Close implements [store.DB]. Closing twice is fine.
func (db *DB) Close() error {
	db.mu.Lock()
	db.closed = true
	db.mu.Unlock()
	db.busy.Wait()
	return nil
}

// begin counts a transaction and returns the rows of now.
func (db *DB) begin(ctx context.Context) ([]row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil, store.ErrClosed
	}
	db.busy.Add(1)
	return db.rows, nil
}

// run calls fn. A panic and the end of the goroutine leave through it, and nothing of t is
// kept then: only a nil error returns its rows to be kept.
func run(t *tx, fn func(store.Tx) error) (_ []row, err error) {
	defer func() { t.over = true }()
	defer store.Catch(&err)
	err = fn(t)
	return t.rows, err
}

// write makes the rows durable: when it returns nil, a power failure leaves them, and when
// it fails, the file is as it was.
func write(path string, rows []row) error {
	b, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return syncDir(filepath.Dir(path)) // the rename itself
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type tx struct {
	rows     []row
	writable bool
	over     bool
}

// find returns where key is, or where it would be.
func (t *tx) find(key []byte) (int, bool) {
	if t.over {
		panic("wholefile: a transaction was used after its function returned")
	}
	return slices.BinarySearchFunc(t.rows, key, func(r row, k []byte) int { return bytes.Compare(r.Key, k) })
}

func (t *tx) mustWrite() {
	if !t.writable {
		store.Abort(store.ErrReadOnly)
	}
}

func (t *tx) Get(key []byte) ([]byte, bool) {
	i, ok := t.find(key)
	if !ok {
		return nil, false
	}
	return bytes.Clone(t.rows[i].Val), true
}

func (t *tx) Set(key, val []byte) {
	t.mustWrite()
	if len(key) == 0 || len(key) > store.MaxKey {
		store.Abort(fmt.Errorf("%w, this one has %d", store.ErrKeySize, len(key)))
	}
	r := row{bytes.Clone(key), append([]byte{}, val...)}
	if i, ok := t.find(key); ok {
		t.rows[i] = r
	} else {
		t.rows = slices.Insert(t.rows, i, r)
	}
}

func (t *tx) Delete(key []byte) {
	t.mustWrite()
	if i, ok := t.find(key); ok {
		t.rows = slices.Delete(t.rows, i, i+1)
	}
}

func (t *tx) Scan(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for i, _ := t.find(start); i < len(t.rows); {
			r := t.rows[i]
			if end != nil && bytes.Compare(r.Key, end) >= 0 || !yield(bytes.Clone(r.Key), bytes.Clone(r.Val)) {
				return
			}
			// The row may have been deleted meanwhile.
			if j, ok := t.find(r.Key); ok {
				i = j + 1
			} else {
				i = j
			}
		}
	}
}

func (t *tx) ScanBack(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		i := len(t.rows)
		if end != nil {
			i, _ = t.find(end)
		}
		for i > 0 {
			r := t.rows[i-1]
			if bytes.Compare(r.Key, start) < 0 || !yield(bytes.Clone(r.Key), bytes.Clone(r.Val)) {
				return
			}
			i, _ = t.find(r.Key)
		}
	}
}
