package lease_test

import (
	"testing"
	"time"

	"countersign/store"
	"countersign/store/lease"
	"countersign/store/mem"
	"countersign/store/storetest"
)

func TestLease(t *testing.T) {
	storetest.RunLease(t, func(*testing.T) store.DB { return mem.Open() })
}

// TestAnOldGrantReleasesNothing: the same holder, and an earlier epoch.
func TestAnOldGrantReleasesNothing(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	if err := mem.Open().Update(t.Context(), func(tx store.Tx) error {
		old, _ := lease.Acquire(tx, "shard", "a", noon, time.Minute)
		later := noon.Add(time.Hour)
		cur, ok := lease.Acquire(tx, "shard", "a", later, time.Minute)
		if !ok || cur.Epoch == old.Epoch {
			t.Fatalf("%+v after %+v", cur, old)
		}
		other := cur
		other.Holder = "b"
		for _, l := range []lease.Lease{old, other} {
			lease.Release(tx, l)
			if err := cur.Check(tx, later); err != nil {
				t.Errorf("%+v released the lease: %v", l, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
