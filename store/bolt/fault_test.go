package bolt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"countersign/store"
)

func openAt(t *testing.T, path string, journal int64) *DB {
	t.Helper()
	db, err := Open(path, Options{Journal: journal})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func all(t *testing.T, db *DB) map[string]string {
	t.Helper()
	got := map[string]string{}
	if err := db.View(context.Background(), func(tx store.Tx) error {
		clear(got)
		for k, v := range tx.Scan(nil, nil) {
			got[string(k)] = string(v)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// copyFile copies what a power failure would leave of a file that is not
// written at the moment.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The worst moment is when the next half of the journal is in use and the
// checkpoint of the first one has not reached the disk.
func TestAPowerFailureDuringACheckpointLosesNothing(t *testing.T) {
	for crashAt := range 4 {
		t.Run(fmt.Sprint(crashAt, " updates into the checkpoint"), func(t *testing.T) {
			dir, after := t.TempDir(), t.TempDir()
			path, copied := filepath.Join(dir, "state.db"), filepath.Join(after, "state.db")
			db := openAt(t, path, 32<<10)
			defer func() { _ = db.Close() }()
			model := map[string]string{}
			n := 0
			update := func() {
				t.Helper()
				n++
				if err := db.Update(t.Context(), func(tx store.Tx) error {
					k, v := fmt.Sprint("k", n%17), fmt.Sprint("v", n)
					tx.Set([]byte(k), []byte(v))
					model[k] = v
					if n%5 == 0 {
						gone := fmt.Sprint("k", n%7)
						tx.Delete([]byte(gone))
						delete(model, gone)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			for db.running == nil {
				copyFile(t, path, copied) // before the checkpoint
				update()
			}
			for range crashAt { // the other half takes four
				update()
			}
			if n < 5 {
				t.Fatalf("a checkpoint began after %d updates", n)
			}
			copyFile(t, path+".journal", copied+".journal")
			back := openAt(t, copied, 32<<10+int64(crashAt)*block)
			defer func() { _ = back.Close() }()
			if got := all(t, back); !maps.Equal(got, model) {
				t.Errorf("after the failure the rows are %q, want %q", got, model)
			}
		})
	}
}

// faulty fails Datasync when told to, after the bytes were written: the worst
// case, a record that is there although nobody may count on it.
type faulty struct {
	disk
	fail atomic.Bool
}

var errDisk = errors.New("the disk has a bad day")

func (d *faulty) Datasync() error {
	fail := d.fail.Load()
	if err := d.disk.Datasync(); err != nil || !fail {
		return err
	}
	return errDisk
}

func TestAJournalWriteThatFailsLeavesNoTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := openAt(t, path, 64<<10)
	bad := &faulty{disk: db.journal.file}
	db.journal.file = bad
	set := func(key string) error {
		return db.Update(t.Context(), func(tx store.Tx) error { tx.Set([]byte(key), nil); return nil })
	}
	model := map[string]string{}
	for i := range 40 {
		key := fmt.Sprint("k", i)
		bad.fail.Store(i%7 == 3)
		err := set(key)
		if failed := errors.Is(err, errDisk); failed != (i%7 == 3) || !failed && err != nil {
			t.Fatalf("Update %d = %v", i, err)
		}
		if err == nil {
			model[key] = ""
		}
		if got := all(t, db); !maps.Equal(got, model) {
			t.Fatalf("after update %d the rows are %q, want %q", i, got, model)
		}
		if err != nil {
			now := filepath.Join(t.TempDir(), "state.db")
			copyFile(t, path, now)
			copyFile(t, path+".journal", now+".journal")
			back := openAt(t, now, 8<<10)
			if got := all(t, back); !maps.Equal(got, model) {
				t.Errorf("after a crash right after update %d failed the rows are %q, want %q", i, got, model)
			}
			if err := back.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	crashed := filepath.Join(t.TempDir(), "state.db")
	copyFile(t, path, crashed)
	copyFile(t, path+".journal", crashed+".journal")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, crashed} {
		back := openAt(t, p, 64<<10)
		if got := all(t, back); !maps.Equal(got, model) {
			t.Errorf("reopened the rows are %q, want %q", got, model)
		}
		if err := back.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestABatchThatFailsTakesThoseBuiltOnItAlong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := openAt(t, path, 64<<10)
	bad := &faulty{disk: db.journal.file}
	db.journal.file = bad
	var mu sync.Mutex
	acked := map[string]string{}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := range 50 {
				if w == 0 {
					bad.fail.Store(i%4 == 1)
				}
				key := fmt.Sprintf("%d-%d", w, i)
				err := db.Update(t.Context(), func(tx store.Tx) error { tx.Set([]byte(key), nil); return nil })
				if err == nil {
					mu.Lock()
					acked[key] = ""
					mu.Unlock()
				} else if !errors.Is(err, errDisk) {
					t.Errorf("Update: %v", err)
				}
			}
		})
	}
	wg.Wait()
	bad.fail.Store(false)
	if got := all(t, db); !maps.Equal(got, acked) {
		t.Errorf("%d rows, want the %d acknowledged", len(got), len(acked))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openAt(t, path, 0)
	defer func() { _ = db.Close() }()
	if got := all(t, db); !maps.Equal(got, acked) {
		t.Errorf("%d rows after reopening, want the %d acknowledged", len(got), len(acked))
	}
}
