package bolt

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"countersign/store"
)

// maxScratch is how much of the buffer of one function is kept for the next.
const maxScratch = 1 << 20

// maxRelaxed is the longest record that is written without a sync: each function
// that joins it writes the whole of it again.
const maxRelaxed = 64 << 10

// batch is a group of functions whose writes become durable together. The first of them
// that waits for that leads it.
type batch struct {
	rec   []byte        // the journal record, its head still empty
	prev  *batch        // must be done first; nil when it was
	led   bool          // somebody waits for it; guarded by the turn, as is shown
	shown int           // how many bytes of rec are in the journal, and readers see, while nobody leads it
	done  chan struct{} // closed when err is final
	err   error
}

func (b *batch) isDone() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// View implements [store.DB].
func (db *DB) View(ctx context.Context, fn func(store.Tx) error) (err error) {
	if err := db.begin(ctx); err != nil {
		return err
	}
	defer db.busy.Done()
	base, rows, err := db.snapshot()
	if err != nil {
		return err
	}
	defer func() { _ = base.Rollback() }()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	t := &tx{db: db, base: rowsOf(base), over: rows}
	return t.run(fn)
}

// snapshot pairs a bbolt transaction with the overlay that belongs to the
// generation it sees. A checkpoint may end in between: then it tries again.
func (db *DB) snapshot() (*bbolt.Tx, overlay, error) {
	for {
		base, err := db.file.Begin(false)
		if err != nil {
			return nil, overlay{}, err
		}
		gen, s := generation(base), db.durable.Load()
		switch gen {
		case s.gen:
			return base, s.rows, nil
		case s.next:
			return base, s.since, nil
		}
		if err := base.Rollback(); err != nil {
			return nil, overlay{}, err
		}
	}
}

func rowsOf(base *bbolt.Tx) *bbolt.Bucket { return base.Bucket(rootBucket).Bucket(rowBucket) }

func generation(base *bbolt.Tx) uint64 {
	h, _ := decodeHead(base.Bucket(rootBucket).Bucket(metaBucket).Get(journalKey))
	return h.gen
}

// Update implements [store.DB]. fn runs once, on the caller's goroutine. ctx
// counts until fn starts: from then on the outcome is waited for.
func (db *DB) Update(ctx context.Context, fn func(store.Tx) error) error {
	return db.update(ctx, fn, false)
}

// UpdateRelaxed implements [store.Relaxed].
func (db *DB) UpdateRelaxed(ctx context.Context, fn func(store.Tx) error) error {
	return db.update(ctx, fn, true)
}

func (db *DB) update(ctx context.Context, fn func(store.Tx) error, relaxed bool) error {
	if err := db.begin(ctx); err != nil {
		return err
	}
	defer db.busy.Done()
	b, end, part, err := db.execute(ctx, fn, relaxed)
	if part == relaxes {
		var failed error
		if part, failed = db.publish(b, end); part == relaxes {
			if failed != nil {
				return failed
			}
			return err
		}
	}
	if part == leads {
		db.lead(b)
	}
	if b == nil {
		return err
	}
	// A function that wrote nothing, or failed, has read what the batches before
	// it wrote: its answer must not get out before they are durable.
	<-b.done
	if b.err != nil { // what it read was never committed
		return b.err
	}
	return err
}

// part is what a caller does for the batch of its function.
type part int

const (
	waits   part = iota // until somebody else has led it
	leads               // it
	relaxes             // nothing: it need not be durable yet
)

// execute runs fn on the newest rows. It returns the batch of fn, or the one to wait for,
// nil for none, and how long that is with what fn wrote and read.
func (db *DB) execute(ctx context.Context, fn func(store.Tx) error, relaxed bool) (*batch, int, part, error) {
	if err := db.turn.acquire(ctx); err != nil {
		return nil, 0, waits, err
	}
	defer db.turn.release()
	if db.broken != nil {
		return nil, 0, waits, db.broken
	}
	// The file may be ahead of the overlay's generation by a checkpoint: what that
	// wrote is still in the overlay, so it makes no difference.
	if db.base == nil {
		base, err := db.file.Begin(false)
		if err != nil {
			return nil, 0, waits, err
		}
		db.base, db.rows = base, rowsOf(base)
	}
	defer func() {
		if db.open == nil || !db.open.led { // else who leads it does so, soon
			db.closeBase()
		}
	}()
	t := &tx{db: db, base: db.rows, over: db.head.Edit(), writable: true, ops: db.scratch[:0]}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err := t.run(fn)
	if db.scratch = t.ops; cap(t.ops) > maxScratch {
		db.scratch = nil
	}
	if err != nil || len(t.ops) == 0 {
		switch last := db.last; {
		case last == nil || last.isDone():
			return nil, 0, waits, err
		case last.led:
			return last, 0, waits, err
		default:
			return last, len(last.rec), relaxes, err // what it read is to be seen by others, and no more
		}
	}
	if db.open == nil {
		db.open = &batch{done: make(chan struct{})}
		if spare := db.spare.Swap(nil); spare != nil {
			db.open.rec = (*spare)[:0]
		}
		db.open.rec = append(db.open.rec, make([]byte, headerSize)...)
		if db.last != nil && !db.last.isDone() {
			db.open.prev = db.last
		}
		db.last = db.open
	}
	db.open.rec = append(db.open.rec, t.ops...)
	db.head = t.over.Freeze()
	db.updates.Add(1)
	switch {
	case db.open.led:
		return db.open, len(db.open.rec), waits, nil
	case relaxed:
		return db.open, len(db.open.rec), relaxes, nil
	}
	db.open.led = true
	return db.open, len(db.open.rec), leads, nil
}

// publish makes the writes of a batch that nobody leads visible to readers, up to end at
// least. The caller has another part if the batch has to be durable after all.
func (db *DB) publish(b *batch, end int) (part, error) {
	for {
		if err := db.turn.acquire(context.Background()); err != nil {
			return waits, err
		}
		prev := b.prev
		switch {
		case b.shown >= end: // by another; from then on it stays, whatever becomes of the rest
			db.turn.release()
			return relaxes, nil
		case b.led:
			db.turn.release()
			return waits, nil
		case b.err != nil: // the batch before it failed, and it was built on that
			db.turn.release()
			return relaxes, b.err
		case prev == nil || prev.isDone():
			defer db.turn.release()
			// The journal is ours: the batches before this one are done, and after it there is none.
			if len(b.rec) > maxRelaxed || !db.journal.fits(len(b.rec)) || db.journal.write(b.rec) != nil {
				b.led = true
				return leads, nil
			}
			b.prev, b.shown = nil, len(b.rec)
			db.show(b, db.head)
			return relaxes, nil
		}
		db.turn.release()
		<-prev.done
	}
}

// show makes rows, which hold the writes of the batch, visible to readers.
func (db *DB) show(b *batch, rows overlay) {
	s := *db.durable.Load()
	s.rows = rows
	if s.next != s.gen {
		s.since = b.applyTo(s.since)
	}
	db.durable.Store(&s)
}

// lead makes a batch durable and visible, when its turn comes.
func (db *DB) lead(b *batch) {
	defer close(b.done)
	if b.prev != nil {
		<-b.prev.done
		// Those who waited for the batch before run first: their next functions can
		// then be collected while this one waits for the disk.
		runtime.Gosched()
	}
	db.turn.acquireFirst()
	b.prev = nil
	if b.err != nil { // the batch before this one failed, and this one was built on it
		db.turn.release()
		return
	}
	db.open = nil
	db.closeBase()
	written, err := db.makeRoom(b)
	rows := db.head
	db.turn.release()
	if written || err != nil {
		b.err = err
		return
	}
	if err := db.journal.append(b.rec); err != nil {
		b.err = writeError(fmt.Errorf("append to the journal of %s: %w", db.path, err))
		db.undo(b.err)
		return
	}
	db.show(b, rows)
	db.batches.Add(1)
	if cap(b.rec) <= maxScratch {
		db.spare.Store(&b.rec)
	}
}

// applyTo puts the writes of the batch into rows.
func (b *batch) applyTo(rows overlay) overlay {
	rows, err := apply(rows, b.rec[headerSize:])
	if err != nil {
		panic("store/bolt: a batch does not decode: " + err.Error()) // it was encoded in this process
	}
	return rows
}

// undo drops what was built on a batch that could not be written.
func (db *DB) undo(cause error) {
	db.turn.acquireFirst()
	defer db.turn.release()
	if b := db.open; b != nil {
		b.err = cause
		db.drop()
	}
	db.closeBase()
	db.head = db.durable.Load().rows
	db.settle(nil)
	// Whatever reached the disk of the failed record is void once the file's head
	// points behind it. If that fails too, the next batch tries again before it is
	// acknowledged.
	if err := db.checkpoint(false); err != nil {
		db.log.Error("store cannot write", "file", db.path, "error", err)
	}
}

// drop closes the open batch to further functions. The caller has the turn.
func (db *DB) drop() {
	if b := db.open; b != nil && !b.led {
		close(b.done) // else its leader does
	}
	db.open = nil
}

// background is a checkpoint on its own goroutine.
type background struct {
	pos  position
	done chan struct{} // closed when err is final
	err  error
}

// makeRoom sees to it that the batch fits into the journal. When one half is
// full it goes on in the other while a checkpoint frees the first; when there is
// no other way it writes the batch to the bbolt file itself. The caller is its
// leader and has the turn.
func (db *DB) makeRoom(b *batch) (written bool, err error) {
	select {
	case <-db.running.finished():
		db.settle(b)
	default:
	}
	if db.journal.fits(len(b.rec)) {
		return false, nil
	}
	db.settle(b)
	if db.broken != nil {
		return false, db.broken
	}
	// The record of what is relaxed can only be replaced in its place. If it cannot be made
	// durable the journal is stale, and a checkpoint writes it.
	_ = db.journal.seal()
	if db.journal.stale || db.journal.both || padded(len(b.rec)) > db.journal.half {
		return true, db.checkpoint(false)
	}
	s := db.durable.Load()
	c := &background{pos: db.journal.turn(), done: make(chan struct{})}
	db.durable.Store(&state{gen: s.gen, next: s.gen + 1, rows: s.rows})
	db.journal.goTo(c.pos)
	db.journal.both = true
	db.running = c
	go func() {
		defer close(c.done)
		c.err = db.timedWrite(s.rows, head{gen: s.gen + 1, pos: c.pos})
	}()
	return false, nil
}

// finished is done, also of no checkpoint at all: nil, which is never ready.
func (c *background) finished() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.done
}

// settle waits for the checkpoint that runs, if any, and drops the rows that it
// wrote from the overlay. b is the batch that head has beyond the durable rows.
func (db *DB) settle(b *batch) {
	c := db.running
	if c == nil {
		return
	}
	<-c.done
	db.running = nil
	s := db.durable.Load()
	if c.err != nil {
		db.log.Error("store cannot write", "file", db.path, "error", db.keepState(s, c.err))
		return
	}
	db.durable.Store(&state{gen: s.next, next: s.next, rows: s.since})
	db.journal.both = false
	db.head = s.since
	if b != nil {
		db.head = b.applyTo(db.head)
	}
}

// checkpoint writes the newest rows to the bbolt file and begins the journal
// anew. The caller has the turn, is the leader (or Close), and has settled.
// Head becomes the durable state; after an error it falls back to that.
func (db *DB) checkpoint(clean bool) error {
	s := db.durable.Load()
	pos := db.journal.turn()
	db.durable.Store(&state{gen: s.gen, next: s.gen + 1, rows: s.rows})
	if err := db.timedWrite(db.head, head{gen: s.gen + 1, pos: pos, clean: clean}); err != nil {
		db.head = s.rows
		return db.keepState(s, err)
	}
	db.head = overlay{}
	db.durable.Store(&state{gen: s.gen + 1, next: s.gen + 1})
	db.journal.goTo(pos)
	db.journal.both = false
	db.batches.Add(1)
	return nil
}

// keepState continues with the rows of s after a failed checkpoint.
func (db *DB) keepState(s *state, err error) error {
	err = writeError(fmt.Errorf("checkpoint %s: %w", db.path, err))
	if gen, rerr := db.diskGeneration(); rerr != nil || gen != s.gen {
		// The new head was written but perhaps not synced: after a crash the file may
		// be of either generation, so no record can be acknowledged any more.
		db.broken = fmt.Errorf("%w; restart to go on", err)
		return db.broken
	}
	db.durable.Store(&state{gen: s.gen, next: s.gen, rows: s.rows})
	return err
}

func (db *DB) timedWrite(rows overlay, h head) error {
	start := time.Now()
	if err := db.write(rows, h, false); err != nil {
		return err
	}
	db.checkpoints.Add(1)
	db.checkpointNanos.Store(int64(time.Since(start)))
	return nil
}

// closeBase ends the bbolt transaction of the functions of a batch. Who has the turn
// calls it before it waits for a checkpoint: a checkpoint that has to map a
// bigger file waits for open transactions.
func (db *DB) closeBase() {
	if db.base != nil {
		_ = db.base.Rollback()
		db.base, db.rows = nil, nil
	}
}

// diskGeneration reads the generation of the bbolt file.
func (db *DB) diskGeneration() (gen uint64, err error) {
	defer db.catchDamage(&err)
	err = db.file.View(func(tx *bbolt.Tx) error {
		gen = generation(tx)
		return nil
	})
	return gen, err
}

func writeError(err error) error {
	if isFull(err) {
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return fmt.Errorf("store: %w", err)
}
