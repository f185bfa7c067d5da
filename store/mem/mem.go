// Package mem is the engine for tests: everything in memory, with the
// semantics of the durable engines. A snapshot costs nothing, writers take
// turns, and a failed transaction leaves no trace.
//
// It keeps nothing when the process ends.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"sync"

	"countersign/store"
	"countersign/store/internal/tree"
)

// DB is an in-memory [store.DB].
type DB struct {
	twice   bool
	writing chan struct{} // holds one token; who has it may write

	mu     sync.Mutex // guards what follows
	rows   tree.Map[[]byte]
	closed bool
	busy   sync.WaitGroup // running transactions; Add under mu, never after closed
}

var _ store.DB = (*DB)(nil)

// Open returns an empty database.
func Open() *DB {
	return &DB{writing: make(chan struct{}, 1)}
}

// OpenTwice returns an empty database that runs the function of each Update
// twice and forgets what the first run wrote, so that a test finds functions
// with effects outside their transaction.
func OpenTwice() *DB {
	db := Open()
	db.twice = true
	return db
}

// View implements [store.DB].
func (db *DB) View(ctx context.Context, fn func(store.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := db.begin(); err != nil {
		return err
	}
	defer db.busy.Done()
	_, err := run(db.snapshot(), false, fn)
	return err
}

// Update implements [store.DB].
func (db *DB) Update(ctx context.Context, fn func(store.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := db.begin(); err != nil {
		return err
	}
	defer db.busy.Done()
	select {
	case db.writing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-db.writing }()
	rows, err := run(db.snapshot(), true, fn)
	if err == nil && db.twice {
		rows, err = run(db.snapshot(), true, fn)
	}
	if err != nil {
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

func (db *DB) begin() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return store.ErrClosed
	}
	db.busy.Add(1)
	return nil
}

func (db *DB) snapshot() tree.Map[[]byte] {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.rows
}

func run(rows tree.Map[[]byte], writable bool, fn func(store.Tx) error) (_ tree.Map[[]byte], err error) {
	t := &tx{rows: rows, writable: writable}
	defer func() { t.over = true }()
	defer store.Catch(&err)
	err = fn(t)
	return t.rows, err
}

type tx struct {
	rows     tree.Map[[]byte]
	writable bool
	over     bool
}

func (t *tx) Get(key []byte) ([]byte, bool) {
	t.check()
	val, ok := t.rows.Get(key)
	return bytes.Clone(val), ok
}

func (t *tx) Set(key, val []byte) {
	t.checkWrite()
	if len(key) == 0 || len(key) > store.MaxKey {
		store.Abort(fmt.Errorf("%w, this one has %d", store.ErrKeySize, len(key)))
	}
	t.rows = t.rows.Set(bytes.Clone(key), append([]byte{}, val...))
}

func (t *tx) Delete(key []byte) {
	t.checkWrite()
	t.rows = t.rows.Delete(key)
}

func (t *tx) Scan(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		t.check()
		for c := t.rows.Ascend(start); ; {
			key, val, ok := c.Next()
			if !ok || end != nil && bytes.Compare(key, end) >= 0 || !yield(bytes.Clone(key), bytes.Clone(val)) {
				return
			}
		}
	}
}

func (t *tx) ScanBack(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		t.check()
		for c := t.rows.Descend(end); ; {
			key, val, ok := c.Next()
			if !ok || bytes.Compare(key, start) < 0 || !yield(bytes.Clone(key), bytes.Clone(val)) {
				return
			}
		}
	}
}

func (t *tx) check() {
	if t.over {
		panic("store/mem: a transaction was used after its function returned")
	}
}

func (t *tx) checkWrite() {
	t.check()
	if !t.writable {
		store.Abort(store.ErrReadOnly)
	}
}
