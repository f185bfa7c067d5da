// Package migrate copies all rows of one store into another one, whatever their
// engines are, and proves that both hold the same afterwards.
//
// It knows rows as bytes: what an engine keeps for itself (how often it was opened,
// its journal, the version of its tables) is no row and is not copied, and nothing
// in the rows is changed. It does not know whether somebody uses either store; the
// caller sees to that. Should somebody write all the same, [Copy] fails: it compares
// the source before and after, and every row of the target.
//
// The target has one row more, which a copy never takes for one of the source's:
//
//	"migrate" -> mark: the [Sum] of the source, and whether the copy was finished
//
// It is written before the first rows and stays, so that a target that is empty, one
// that is half filled, one that is finished and one that belongs to somebody can be
// told apart. Whoever works on a store asks [Unfinished] first.
package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"

	"countersign/store"
)

var (
	// ErrForeign means that the target has rows which are no copy of the source's.
	// Where the copy had not begun, nothing was written.
	ErrForeign = errors.New("migrate: the target has rows that are not the source's")
	// ErrChanged means that the source is not what it was when the copy began.
	ErrChanged = errors.New("migrate: the source has changed since the copy was begun")
	// ErrUnfinished means that a store is a copy that was not brought to its end.
	ErrUnfinished = errors.New("migrate: the store is a copy that was not finished")
	// ErrDiffers means that the two stores are not the same after the copy.
	ErrDiffers = errors.New("migrate: the copy is not the same as the source")
)

const (
	defaultRows  = 500
	defaultBytes = 1 << 20
)

// Options configure a copy. The zero value has sensible defaults.
type Options struct {
	// Rows and Bytes limit what one transaction reads or writes, keys and values
	// together; zero means 500 rows and 1 MiB. A larger row gets its own transaction.
	Rows, Bytes int
	// Progress, if set, is called after each transaction, on the goroutine of Copy.
	Progress func(Progress)
	// Check, if set, verifies the target once all rows are copied and compared, before
	// the copy counts as finished. Copy returns its error unchanged.
	Check func(ctx context.Context, to store.DB) error
	// Finish, if set, adds to the target what the source keeps elsewhere, in the
	// transaction that finishes the copy. It may run more than once.
	Finish func(tx store.Tx) error
}

func (o *Options) defaults() {
	if o.Rows <= 0 {
		o.Rows = defaultRows
	}
	if o.Bytes <= 0 {
		o.Bytes = defaultBytes
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
}

// Stage is a part of a copy.
type Stage string

// The stages in their order.
const (
	Reading   Stage = "reading"   // all of the source, for its sum
	Copying   Stage = "copying"   // rows that are there already are compared
	Verifying Stage = "verifying" // all of the target, then all of the source again
)

// Progress is how far a stage is.
type Progress struct {
	Stage Stage
	Rows  int64
	Bytes int64
	Of    int64 // rows of the source; 0 while reading, when that is not known
}

// Sum is what a store holds: two stores of the same Sum have the same keys and
// values.
type Sum struct {
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"` // keys and values
	Hash  string `json:"hash"`  // SHA-256 over all keys and values with their lengths, in order
}

// Result is what a copy did.
type Result struct {
	Sum           // of both stores
	Copied  int64 // rows that were written
	Present int64 // rows that were there: of an earlier run
	// Before says that an earlier run finished the copy: nothing was done but Check.
	Before bool
}

// key is that of the mark.
func key() []byte { return store.Key("migrate") }

// mark is the row in which a target describes its copy. Fields may be added or removed,
// but JSON names must not change.
type mark struct {
	Of   Sum  `json:"of"`
	Done bool `json:"done,omitempty"`
}

// Unfinished returns an error that wraps [ErrUnfinished] if db is the target of an
// unfinished copy, in which rows are missing.
func Unfinished(ctx context.Context, db store.DB) error {
	half := false
	if err := db.View(ctx, func(tx store.Tx) error {
		m, ok := store.Load[mark](tx, key())
		half = ok && !m.Done
		return nil
	}); err != nil {
		return err
	}
	if half {
		return fmt.Errorf("%w: run the same migration again, it goes on where it was", ErrUnfinished)
	}
	return nil
}

// Measure reads all rows of db. It uses many transactions, so the Sum is only meaningful
// if nobody writes in the meantime.
func Measure(ctx context.Context, db store.DB) (Sum, error) {
	return measure(ctx, db, Options{}, func(Progress) {})
}

func measure(ctx context.Context, db store.DB, o Options, tell func(Progress)) (Sum, error) {
	o.defaults()
	s := newSummer()
	err := pages(ctx, db, o, func(rows []row, _ []byte) error {
		s.add(rows)
		tell(Progress{Rows: s.rows, Bytes: s.bytes})
		return nil
	})
	return s.sum(), err
}

// State is the state of a target with respect to a source.
type State string

// The states of a target.
const (
	Empty   State = "empty"
	Begun   State = "begun"   // an unfinished copy of this source, which Copy goes on with
	Done    State = "done"    // a copy of this source that was finished, perhaps in use since
	Foreign State = "foreign" // Copy refuses it
	Stale   State = "stale"   // an unfinished copy of another source, or of this one before it changed; Copy refuses it
)

// Inspect returns what Copy would find, without writing anything. A nil target is empty.
func Inspect(ctx context.Context, from, to store.DB) (Sum, State, error) {
	if err := Unfinished(ctx, from); err != nil {
		return Sum{}, "", err
	}
	want, err := Measure(ctx, from)
	if err != nil || to == nil {
		return want, Empty, err
	}
	state, err := inspect(ctx, to, want)
	return want, state, err
}

func inspect(ctx context.Context, to store.DB, want Sum) (state State, err error) {
	err = to.View(ctx, func(tx store.Tx) error {
		m, ok := store.Load[mark](tx, key())
		switch {
		case ok && m.Of == want && m.Done:
			state = Done
		case ok && m.Of == want:
			state = Begun
		case ok && !m.Done:
			state = Stale
		default:
			state = Empty
			for range tx.Scan(nil, nil) {
				state = Foreign
				break
			}
		}
		return nil
	})
	return state, err
}

// Copy copies all rows of from to to, in transactions of bounded size, and verifies the
// result: it reads back every row, compares the number of rows and the hash with those of
// the source, which it reads again, and calls o.Check.
//
// Another call continues an interrupted copy, at whatever point it stopped: existing rows
// are compared instead of written. Errors wrap [ErrForeign], [ErrChanged],
// [ErrUnfinished] (of the source) or [ErrDiffers]; others come from the engines, o.Check
// and o.Finish.
func Copy(ctx context.Context, from, to store.DB, o Options) (Result, error) {
	o.defaults()
	if err := Unfinished(ctx, from); err != nil {
		return Result{}, fmt.Errorf("the source cannot be copied: %w", err)
	}
	tell := func(stage Stage, of int64) func(Progress) {
		return func(p Progress) { p.Stage, p.Of = stage, of; o.Progress(p) }
	}
	want, err := measure(ctx, from, o, tell(Reading, 0))
	if err != nil {
		return Result{}, err
	}
	r := Result{Sum: want}
	state, err := inspect(ctx, to, want)
	if err != nil {
		return r, err
	}
	switch state {
	case Done:
		r.Present, r.Before = want.Rows, true
		if o.Check != nil {
			err = o.Check(ctx, to)
		}
		return r, err
	case Stale:
		return r, fmt.Errorf("%w: the target holds an unfinished copy of what it was before, so begin with an empty target", ErrChanged)
	case Foreign:
		return r, fmt.Errorf("%w: name a target that is empty", ErrForeign)
	case Begun:
	case Empty:
		if err := writeMark(ctx, to, want); err != nil {
			return r, err
		}
	}
	if err := r.copyRows(ctx, from, to, o, tell(Copying, want.Rows)); err != nil {
		return r, err
	}
	if err := r.verify(ctx, from, to, o, tell(Verifying, want.Rows)); err != nil {
		return r, err
	}
	return r, to.Update(ctx, func(tx store.Tx) error {
		if err := checkOwned(tx, want); err != nil {
			return err
		}
		store.Save(tx, key(), mark{Of: want, Done: true})
		if o.Finish == nil {
			return nil
		}
		return o.Finish(tx)
	})
}

// writeMark marks an empty target.
func writeMark(ctx context.Context, to store.DB, want Sum) error {
	return to.Update(ctx, func(tx store.Tx) error {
		for k := range tx.Scan(nil, nil) {
			if bytes.Equal(k, key()) {
				return checkOwned(tx, want) // an earlier run of this function may have committed
			}
			return fmt.Errorf("%w: somebody has just written %s, so stop who uses the target", ErrForeign, store.Format(k))
		}
		store.Save(tx, key(), mark{Of: want})
		return nil
	})
}

// checkOwned returns an error unless the target still belongs to this copy.
func checkOwned(tx store.Tx, want Sum) error {
	if m, ok := store.Load[mark](tx, key()); !ok || m.Done || m.Of != want {
		return fmt.Errorf("%w: another run has finished or begun a copy there meanwhile, so see that one runs at a time", ErrForeign)
	}
	return nil
}

// copyRows copies every row. Each transaction covers a range of keys, and the ranges leave
// no gaps, so any row of the target that the source lacks is found.
func (r *Result) copyRows(ctx context.Context, from, to store.DB, o Options, tell func(Progress)) error {
	s := newSummer()
	var low []byte
	err := pages(ctx, from, o, func(rows []row, next []byte) error {
		s.add(rows)
		var copied, present int64
		err := to.Update(ctx, func(tx store.Tx) error {
			if err := checkOwned(tx, r.Sum); err != nil {
				return err
			}
			var err error
			copied, present, err = put(tx, rows, low, next)
			return err
		})
		if err != nil {
			return err
		}
		r.Copied, r.Present, low = r.Copied+copied, r.Present+present, next
		tell(Progress{Rows: s.rows, Bytes: s.bytes})
		return nil
	})
	if err == nil && s.sum() != r.Sum {
		err = fmt.Errorf("%w: stop who uses the source, and begin with an empty target", ErrChanged)
	}
	return err
}

// put writes the rows of the range from low to high that are missing, and compares the
// others.
func put(tx store.Tx, rows []row, low, high []byte) (copied, present int64, err error) {
	var missing []row // written after the scan, which forbids changes to its range
	for k, v := range tx.Scan(low, high) {
		if bytes.Equal(k, key()) {
			continue
		}
		for len(rows) > 0 && bytes.Compare(rows[0].key, k) < 0 {
			missing, rows = append(missing, rows[0]), rows[1:]
		}
		switch {
		case len(rows) == 0 || !bytes.Equal(rows[0].key, k):
			return 0, 0, fmt.Errorf("%w: it has %s, so begin with an empty target", ErrForeign, store.Format(k))
		case !bytes.Equal(rows[0].val, v):
			return 0, 0, fmt.Errorf("%w: %s is another one there, so begin with an empty target", ErrForeign, store.Format(k))
		}
		rows = rows[1:]
		present++
	}
	missing = append(missing, rows...)
	for _, x := range missing {
		tx.Set(x.key, x.val)
	}
	return int64(len(missing)), present, nil
}

// verify compares both stores and calls o.Check.
func (r *Result) verify(ctx context.Context, from, to store.DB, o Options, tell func(Progress)) error {
	got, err := measure(ctx, to, o, tell)
	if err != nil {
		return err
	}
	if got != r.Sum {
		return fmt.Errorf("%w: %d rows of %d bytes there, %d of %d here, and the hashes are %s and %s; stop who uses either store, and begin with an empty target",
			ErrDiffers, got.Rows, got.Bytes, r.Rows, r.Bytes, short(got.Hash), short(r.Hash))
	}
	again, err := measure(ctx, from, o, func(Progress) {})
	if err != nil {
		return err
	}
	if again != r.Sum {
		return fmt.Errorf("%w: stop who uses the source, and begin with an empty target", ErrChanged)
	}
	if o.Check != nil {
		return o.Check(ctx, to)
	}
	return nil
}

func short(hash string) string { return hash[:min(len(hash), 12)] }

type row struct{ key, val []byte }

// pages calls each with all rows of db except the mark, in order. Each page is read in one
// transaction and passed on outside of it. next is the key that starts the following page,
// nil after the last one. An empty store has one empty page.
func pages(ctx context.Context, db store.DB, o Options, each func(rows []row, next []byte) error) error {
	for start, more := []byte(nil), true; more; {
		var rows []row
		var next []byte
		err := db.View(ctx, func(tx store.Tx) error {
			rows, next = nil, nil
			size := 0
			for k, v := range tx.Scan(start, nil) {
				if len(rows) > 0 && (len(rows) >= o.Rows || size+len(k)+len(v) > o.Bytes) {
					next = k
					break
				}
				if bytes.Equal(k, key()) {
					continue
				}
				rows = append(rows, row{k, v})
				size += len(k) + len(v)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := each(rows, next); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		start, more = next, next != nil
	}
	return nil
}

// summer makes a Sum.
type summer struct {
	rows, bytes int64
	hash        hash.Hash
	head        []byte
}

func newSummer() *summer { return &summer{hash: sha256.New()} }

func (s *summer) add(rows []row) {
	for _, r := range rows {
		s.rows++
		s.bytes += int64(len(r.key) + len(r.val))
		s.head = binary.AppendUvarint(s.head[:0], uint64(len(r.key)))
		s.head = binary.AppendUvarint(s.head, uint64(len(r.val)))
		for _, b := range [][]byte{s.head, r.key, r.val} {
			_, _ = s.hash.Write(b) // it never fails
		}
	}
}

func (s *summer) sum() Sum { return Sum{s.rows, s.bytes, hex.EncodeToString(s.hash.Sum(nil))} }
