// Package store is the interface between the bot and its database: ordered keys
// and transactions, with no knowledge of what the rows mean. Each package owns
// its keys, and its doc comment shows their shape. The engines in store/bolt,
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
	// ErrFull is wrapped by Update when the disk is full. The transaction is
	// rolled back, and later ones work once there is space.
	ErrFull = errors.New("store: no space left on the disk")
)

// DB is a database of ordered keys. All methods are safe for concurrent use.
type DB interface {
	// View runs fn in a read-only transaction. fn must not keep the Tx.
	View(ctx context.Context, fn func(Tx) error) error
	// Update runs fn in a serializable read-write transaction. If it returns
	// nil, the writes are durable (fsynced). If fn returns an error, or the
	// engine fails, nothing is written and Update returns that error.
	// fn may run more than once, so it must have no effect outside tx.
	Update(ctx context.Context, fn func(Tx) error) error
	// Close waits for running transactions and releases the database.
	Close() error
}

// Relaxed is a [DB] that can leave the waiting for the disk to a later transaction.
type Relaxed interface {
	// UpdateRelaxed is Update, but the writes may not be durable yet when it returns. They
	// are visible to every later transaction, survive the death of the process, and become
	// durable with the next Update or Close. A power failure before that undoes them
	// together with everything that came after them, never by themselves.
	UpdateRelaxed(ctx context.Context, fn func(Tx) error) error
}

// UpdateRelaxed runs fn in an UpdateRelaxed of a db that has one, else in an Update. It is
// for writes that the next start would repeat if they were lost, before whose end nothing
// leaves the process that must not be repeated.
func UpdateRelaxed(ctx context.Context, db DB, fn func(Tx) error) error {
	if r, ok := db.(Relaxed); ok {
		return r.UpdateRelaxed(ctx, fn)
	}
	return db.Update(ctx, fn)
}

// Tx is a transaction. One goroutine uses it, only inside the function it was
// passed to. An engine failure aborts that function, and View or Update returns
// it, so domain code needs no handling of I/O errors (see [Abort]).
type Tx interface {
	// Get returns a copy of the value under key that the caller may keep.
	Get(key []byte) (val []byte, ok bool)
	// Set stores val under key. The caller may reuse both slices afterwards.
	// In a read-only transaction it aborts.
	Set(key, val []byte)
	// Delete removes key. It does nothing if key is missing.
	Delete(key []byte)
	// Scan yields the pairs with start <= key < end in ascending order; a nil
	// end means "to the end". The slices are copies. During a scan, the only
	// permitted change to the range is deleting the key just yielded.
	Scan(start, end []byte) iter.Seq2[[]byte, []byte]
	// ScanBack is Scan in descending order.
	ScanBack(start, end []byte) iter.Seq2[[]byte, []byte]
}
