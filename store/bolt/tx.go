package bolt

import (
	"bytes"
	"fmt"
	"iter"

	"go.etcd.io/bbolt"

	"countersign/store"
)

// tx merges the overlay over the rows of one bbolt transaction. The overlay is
// a value: a function that fails just leaves its own behind.
type tx struct {
	db       *DB
	base     *bbolt.Bucket
	over     overlay
	writable bool
	ops      []byte // what was written, as the journal wants it
	finished bool
}

func (t *tx) run(fn func(store.Tx) error) (err error) {
	defer func() { t.finished = true }()
	defer store.Catch(&err)
	return fn(t)
}

func (t *tx) Get(key []byte) ([]byte, bool) {
	t.check()
	if val, ok := t.over.Get(key); ok {
		return bytes.Clone(val), val != nil
	}
	val := t.get(key)
	return bytes.Clone(val), val != nil
}

func (t *tx) Set(key, val []byte) {
	t.checkWrite()
	if len(key) == 0 || len(key) > store.MaxKey {
		store.Abort(fmt.Errorf("%w, this one has %d", store.ErrKeySize, len(key)))
	}
	t.ops = appendSet(t.ops, key, val)
	both := make([]byte, len(key)+len(val)) // one allocation
	copy(both[copy(both, key):], val)
	t.over = t.over.Set(both[:len(key):len(key)], both[len(key):])
}

func (t *tx) Delete(key []byte) {
	t.checkWrite()
	if val, ok := t.over.Get(key); ok && val == nil || !ok && t.get(key) == nil {
		return
	}
	t.ops = appendDelete(t.ops, key)
	t.over = t.over.Set(bytes.Clone(key), nil)
}

func (t *tx) Scan(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		base, over := t.base.Cursor(), t.rows().Ascend(start)
		bkey, bval := t.step(func() ([]byte, []byte) { return base.Seek(start) })
		okey, oval, _ := over.Next()
		for {
			// The smaller key is next; the overlay hides an equal one.
			key, val := okey, oval
			c := order(bkey, okey)
			if c < 0 {
				key, val = bkey, bval
			}
			if key == nil || end != nil && bytes.Compare(key, end) >= 0 {
				return
			}
			if val != nil && !yield(bytes.Clone(key), bytes.Clone(val)) {
				return
			}
			if c <= 0 {
				bkey, bval = t.step(base.Next)
			}
			if c >= 0 {
				okey, oval, _ = over.Next()
			}
		}
	}
}

func (t *tx) ScanBack(start, end []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		base, over := t.base.Cursor(), t.rows().Descend(end)
		bkey, bval := t.step(func() ([]byte, []byte) {
			if end == nil {
				return base.Last()
			}
			if key, _ := base.Seek(end); key == nil {
				return base.Last()
			}
			return base.Prev()
		})
		okey, oval, _ := over.Next()
		for {
			key, val := okey, oval
			var c int
			switch {
			case bkey == nil:
				c = 1
			case okey == nil:
				c = -1
			default:
				c = bytes.Compare(okey, bkey)
			}
			if c < 0 {
				key, val = bkey, bval
			}
			if key == nil || bytes.Compare(key, start) < 0 {
				return
			}
			if val != nil && !yield(bytes.Clone(key), bytes.Clone(val)) {
				return
			}
			if c <= 0 {
				bkey, bval = t.step(base.Prev)
			}
			if c >= 0 {
				okey, oval, _ = over.Next()
			}
		}
	}
}

// rows returns the overlay for a scan, which goes on when t changes its own.
func (t *tx) rows() overlay {
	t.check()
	if t.writable {
		t.over = t.over.Edit()
	}
	return t.over
}

// order compares two keys; nil, the end, comes last.
func order(a, b []byte) int {
	switch {
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return bytes.Compare(a, b)
}

// get reads the bbolt file. bbolt panics on a damaged page.
func (t *tx) get(key []byte) []byte {
	defer t.abortDamage()
	return t.base.Get(key)
}

func (t *tx) step(move func() (key, val []byte)) (key, val []byte) {
	defer t.abortDamage()
	return move()
}

func (t *tx) abortDamage() {
	if r := recover(); r != nil {
		store.Abort(t.db.damaged(fmt.Errorf("%v", r)))
	}
}

// catchDamage is abortDamage for code outside of transaction functions.
func (db *DB) catchDamage(errp *error) {
	if r := recover(); r != nil {
		*errp = db.damaged(fmt.Errorf("%v", r))
	}
}

func (t *tx) check() {
	if t.finished {
		panic("store/bolt: a transaction was used after its function returned")
	}
}

func (t *tx) checkWrite() {
	t.check()
	if !t.writable {
		store.Abort(store.ErrReadOnly)
	}
}
