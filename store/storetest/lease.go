package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/lease"
)

// RunLease checks package lease over an engine.
func RunLease(t *testing.T, open func(t *testing.T) store.DB) {
	const ttl = time.Minute
	for _, c := range []struct {
		name string
		test func(t *testing.T, db store.DB)
	}{
		{"one holder at a time, until the lease expires", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				_, held := lease.Holder(tx, "shard", noon)
				want(t, "held at first", held, false)
				a, ok := lease.Acquire(tx, "shard", "a", noon, ttl)
				want(t, "a gets it", ok, true)
				want(t, "it ends", a.Expires.Equal(noon.Add(ttl)), true)
				other, ok := lease.Acquire(tx, "shard", "b", noon.Add(ttl-1), ttl)
				want(t, "b gets it too early", ok, false)
				want(t, "b is told who has it", other.Holder, "a")
				cur, held := lease.Holder(tx, "shard", noon.Add(ttl-1))
				want(t, "a holds it", held && cur.Holder == "a" && cur.Epoch == a.Epoch, true)
				_, held = lease.Holder(tx, "shard", noon.Add(ttl))
				want(t, "held when it expired", held, false)
				b, ok := lease.Acquire(tx, "shard", "b", noon.Add(ttl), ttl)
				want(t, "b gets it then", ok, true)
				want(t, "the epoch grows", b.Epoch > a.Epoch, true)
				want(t, "a's lease", a.Check(tx, noon.Add(ttl)), lease.ErrLost)
				want(t, "b's lease", b.Check(tx, noon.Add(ttl)), nil)
				_, err := lease.Renew(tx, a, noon.Add(ttl), ttl)
				want(t, "a's renewal", err, lease.ErrLost)
				lease.Release(tx, a) // does not touch b's
				want(t, "b's lease", b.Check(tx, noon.Add(ttl)), nil)
				_, ok = lease.Acquire(tx, "other", "a", noon, ttl)
				want(t, "another name is free", ok, true)
			})
		}},
		{"a renewal moves the end and keeps the epoch", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				a, _ := lease.Acquire(tx, "shard", "a", noon, ttl)
				b, err := lease.Renew(tx, a, noon.Add(ttl/2), ttl)
				want(t, "renewal", err, nil)
				want(t, "epoch", b.Epoch, a.Epoch)
				want(t, "end", b.Expires.Equal(noon.Add(ttl/2+ttl)), true)
				again, ok := lease.Acquire(tx, "shard", "a", noon.Add(ttl), ttl)
				want(t, "the holder acquires again", ok && again.Epoch == a.Epoch, true)
				_, err = lease.Renew(tx, again, again.Expires, ttl)
				want(t, "renewal of an expired lease", err, lease.ErrLost)
			})
		}},
		{"a released name is free at once and its next epoch is greater", func(t *testing.T, db store.DB) {
			update(t, db, func(tx store.Tx) {
				a, _ := lease.Acquire(tx, "shard", "a", noon, ttl)
				lease.Release(tx, a)
				_, held := lease.Holder(tx, "shard", noon)
				want(t, "held", held, false)
				want(t, "a's lease", a.Check(tx, noon), lease.ErrLost)
				b, ok := lease.Acquire(tx, "shard", "a", noon, ttl)
				want(t, "free", ok, true)
				want(t, "the epoch grows", b.Epoch > a.Epoch, true)
			})
			if err := db.Update(t.Context(), func(tx store.Tx) error { lease.Acquire(tx, "s", "", noon, ttl); return nil }); err == nil {
				t.Error("a holder without name gets a lease")
			}
			want(t, "zero lease", errors.Is(db.View(t.Context(), func(tx store.Tx) error { return lease.Lease{Name: "x"}.Check(tx, noon) }), lease.ErrLost), true)
		}},
		{"of many who try at once one gets it", func(t *testing.T, db store.DB) {
			var got atomic.Int32
			var wg sync.WaitGroup
			for i := range 32 {
				wg.Go(func() {
					var ok bool
					if err := db.Update(t.Context(), func(tx store.Tx) error {
						_, ok = lease.Acquire(tx, "shard", fmt.Sprint("h", i), noon, ttl)
						return nil
					}); err != nil {
						t.Errorf("Acquire: %v", err)
					}
					if ok {
						got.Add(1)
					}
				})
			}
			wg.Wait()
			want(t, "holders", got.Load(), 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t)
			defer closeDB(t, db)
			c.test(t, db)
		})
	}
}
