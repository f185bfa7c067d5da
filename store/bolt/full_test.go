//go:build linux

package bolt_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"countersign/store"
	"countersign/store/bolt"
)

// smallDisk mounts a file system of 8 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	switch err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		// Not a matter of a missing package, so CI may skip it as well.
		t.Skip("mounting a small tmpfs needs root (CAP_SYS_ADMIN)")
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestAFullDiskKeepsWhatWasAcknowledgedAndHeals(t *testing.T) {
	for name, journal := range map[string]int64{"journal of two batches": 8 << 10, "journal of many": 256 << 10} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t)
			path := filepath.Join(dir, "state.db")
			db, err := bolt.Open(path, bolt.Options{Journal: journal})
			if err != nil {
				t.Fatal(err)
			}
			ballast := filepath.Join(dir, "ballast")
			if err := os.WriteFile(ballast, make([]byte, 3<<20), 0o600); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			n := 0
			write := func() error {
				n++
				k, v := fmt.Sprint("key", n), strings.Repeat(fmt.Sprint(n%10), 3000)
				err := db.Update(t.Context(), func(tx store.Tx) error { tx.Set([]byte(k), []byte(v)); return nil })
				if err == nil {
					want[k] = v
				}
				return err
			}
			failed := 0
			for range 4000 {
				if err = write(); err != nil {
					if failed++; !errors.Is(err, store.ErrFull) {
						t.Fatalf("Update on a full disk: %v", err)
					}
					if failed > 20 {
						break
					}
				}
			}
			if failed == 0 {
				t.Fatal("the disk never got full")
			}
			if got := rows(t, db); !maps.Equal(got, want) {
				t.Fatalf("%d rows, want the %d acknowledged", len(got), len(want))
			}
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			for range 50 {
				if err := write(); err != nil {
					t.Fatalf("Update after room was made: %v", err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if db, err = bolt.Open(path, bolt.Options{Journal: journal}); err != nil {
				t.Fatal(err)
			}
			defer closeDB(t, db)
			if got := rows(t, db); !maps.Equal(got, want) {
				t.Errorf("%d rows after reopening, want the %d acknowledged", len(got), len(want))
			}
		})
	}
}

func TestAFullDiskAtOpenIsSaid(t *testing.T) {
	dir := smallDisk(t)
	_, err := bolt.Open(filepath.Join(dir, "state.db"), bolt.Options{Journal: 32 << 20})
	sentence(t, err, store.ErrFull, dir, "make room")
}

func TestACloseOnAFullDiskLosesNothing(t *testing.T) {
	dir := smallDisk(t)
	path := filepath.Join(dir, "state.db")
	db, err := bolt.Open(path, bolt.Options{Journal: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		put(t, db, fmt.Sprint("key", i), strings.Repeat("v", 10000))
	}
	want := rows(t, db)
	// What is left of the disk, to the last block.
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	_ = f.Close()
	if err := db.Close(); !errors.Is(err, store.ErrFull) {
		t.Errorf("Close = %v, want %v", err, store.ErrFull)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if db, err = bolt.Open(path, bolt.Options{Journal: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	defer closeDB(t, db)
	if got := rows(t, db); !maps.Equal(got, want) {
		t.Errorf("%d rows after reopening, want %d", len(got), len(want))
	}
}
