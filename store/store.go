// Package store is the seam between the bot and its database: ordered keys,
// transactions, and nothing about what the rows mean. Each package owns its
// keys (its doc comment shows their shape); the engines under store/bolt,
// store/postgres and store/mem know no domain type.
//
// It does not queue, lease or dedupe: those are written once, over [Tx], in
// store/queue, store/outbox and store/replica.
package store

import (
	"context"
	"errors"
	"iter"
)

var (
	// ErrClosed is returned by View and Update after Close.
	ErrClosed = errors.New("store: closed")
	// ErrLocked is returned when another process has the database open.
	ErrLocked = errors.New("store: another process has the database open")
	// ErrFull is wrapped by Update when the disk has no room left. Nothing of
	// that transaction was kept, and later ones work once there is room.
	ErrFull = errors.New("store: no space left on the disk")
)

// DB is a database of ordered keys. All methods are safe for concurrent use.
type DB interface {
	// View runs fn in a read-only transaction. fn must not keep the Tx.
	View(ctx context.Context, fn func(Tx) error) error
	// Update runs fn in a serializable read-write transaction. When it returns
	// nil the writes are durable (fsynced). When fn returns an error, or an
	// engine fails, nothing was written and that error comes back.
	// fn may run more than once: it must have no effect outside tx.
	Update(ctx context.Context, fn func(Tx) error) error
	// Close waits for running transactions and releases the database.
	Close() error
}

// Tx is a transaction. It is used by one goroutine, and only inside the
// function it was given to. An engine failure aborts that function and comes
// back from View or Update, so domain code stays free of I/O errors (see
// [Abort]).
type Tx interface {
	// Get returns a copy of the value under key that the caller may keep.
	Get(key []byte) (val []byte, ok bool)
	// Set stores val under key. The caller may reuse both slices afterwards.
	// In a read-only transaction it aborts.
	Set(key, val []byte)
	// Delete removes key; a missing key is fine.
	Delete(key []byte)
	// Scan yields the pairs with start <= key < end in ascending order; a nil
	// end means "to the end". The slices are copies. The range may be changed
	// while it is scanned only by deleting the key just yielded.
	Scan(start, end []byte) iter.Seq2[[]byte, []byte]
	// ScanBack is Scan in descending order.
	ScanBack(start, end []byte) iter.Seq2[[]byte, []byte]
}
