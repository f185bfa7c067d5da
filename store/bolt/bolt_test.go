package bolt_test

import (
	"path/filepath"
	"testing"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/storetest"
	"countersign/test/needstest"
)

// engines are the sizes of journals that the suites run with: one that is rarely full, one
// that checkpoints every few batches, and one that no batch fits in beside
// another.
var engines = map[string]int64{"big journal": 256 << 10, "small journal": 16 << 10, "tiny journal": 4 << 10}

func openIn(t *testing.T, dir string, journal int64) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, "state.db"), bolt.Options{Journal: journal})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, journal := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) store.DB { return openIn(t, t.TempDir(), journal) })
		})
	}
}

func TestDurable(t *testing.T) {
	t.Parallel()
	for name, journal := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunDurable(t, func(t *testing.T, dir string) store.DB { return openIn(t, dir, journal) })
		})
	}
}

func TestPackagesOverBolt(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	open := func(t *testing.T) store.DB { return openIn(t, t.TempDir(), 16<<10) }
	t.Run("queue", func(t *testing.T) { storetest.RunQueue(t, open) })
	t.Run("outbox", func(t *testing.T) { storetest.RunOutbox(t, open) })
}
