package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"countersign/store"
	"countersign/store/storetest"
)

// journals are big enough, soon full, and too small for two batches.
var journals = []int64{256 << 10, 16 << 10, 4 << 10}

func TestLinearizable(t *testing.T) {
	for _, journal := range journals {
		t.Run(fmt.Sprint("journal of ", journal), func(t *testing.T) {
			storetest.Linearizable(t, func(t *testing.T) []store.DB {
				return []store.DB{openAt(t, filepath.Join(t.TempDir(), "state.db"), journal)}
			}, storetest.LinearOptions{Rounds: 2, Ops: 40})
		})
	}
}

func TestAnomalies(t *testing.T) {
	storetest.Anomalies(t, func(t *testing.T) []store.DB {
		return []store.DB{openAt(t, filepath.Join(t.TempDir(), "state.db"), 16<<10)}
	}, storetest.LinearViews, false)
}

func TestLinearizableOnABadDisk(t *testing.T) {
	var bad *faulty
	storetest.Linearizable(t, func(t *testing.T) []store.DB {
		db := openAt(t, filepath.Join(t.TempDir(), "state.db"), 64<<10)
		bad = &faulty{disk: db.journal.file}
		db.journal.file = bad
		return []store.DB{db}
	}, storetest.LinearOptions{
		Broken: func(err error) bool { return errors.Is(err, errDisk) },
		Beside: func(_ *testing.T, await func(n int)) {
			for range 10 {
				await(3)
				bad.fail.Store(true)
				await(1)
				bad.fail.Store(false)
			}
		},
	})
}

// crash leaves the files as a power failure does, and opens them.
func crash(t *testing.T, db *DB, journal int64) *DB {
	t.Helper()
	db.turn.acquireFirst() // nothing runs
	if db.running != nil {
		<-db.running.done // a copy made meanwhile would be of no moment
	}
	path := filepath.Join(t.TempDir(), "state.db")
	copyFile(t, db.path, path)
	copyFile(t, db.path+".journal", path+".journal")
	db.turn.release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return openAt(t, path, journal)
}

func TestMachine(t *testing.T) {
	t.Parallel()
	for _, journal := range journals {
		t.Run(fmt.Sprint("journal of ", journal), func(t *testing.T) {
			t.Parallel()
			storetest.Machine(t, 3, func(t *testing.T) *storetest.Fleet {
				return &storetest.Fleet{
					DBs: []store.DB{openAt(t, filepath.Join(t.TempDir(), "state.db"), journal)},
					Reopen: func(t *testing.T, db store.DB) store.DB {
						old := db.(*DB)
						if err := old.Close(); err != nil {
							t.Fatal(err)
						}
						return openAt(t, old.path, journal)
					},
					Crash: func(t *testing.T, db store.DB) store.DB { return crash(t, db.(*DB), journal) },
				}
			})
		})
	}
}
