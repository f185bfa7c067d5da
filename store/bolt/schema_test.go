package bolt

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"countersign/store"
)

func setRow(t *testing.T, db store.DB, key, val string) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error { tx.Set([]byte(key), []byte(val)); return nil }); err != nil {
		t.Fatal(err)
	}
}

func allRows(t *testing.T, db store.DB) string {
	t.Helper()
	var b strings.Builder
	if err := db.View(t.Context(), func(tx store.Tx) error {
		for k, v := range tx.Scan(nil, nil) {
			b.WriteString(string(k) + "=" + string(v) + " ")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// made is a store of one row, closed or as a crash leaves it.
func made(t *testing.T, crashed bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := Open(path, Options{Journal: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	setRow(t, db, "a", "1")
	if !crashed {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	to := filepath.Join(t.TempDir(), "state.db")
	for _, suffix := range []string{"", ".journal"} {
		raw, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

// edit changes the schema row of a closed file; nil removes it.
func edit(t *testing.T, path string, schema []byte) {
	t.Helper()
	f, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Update(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(rootBucket).Bucket(metaBucket)
		if schema == nil {
			return meta.Delete(schemaKey)
		}
		return meta.Put(schemaKey, schema)
	})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func schemaRow(t *testing.T, path string) (row []byte) {
	t.Helper()
	f, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	err = f.View(func(tx *bbolt.Tx) error {
		row = bytes.Clone(tx.Bucket(rootBucket).Bucket(metaBucket).Get(schemaKey))
		return nil
	})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return row
}

func TestSchemaAndItsStepsAreOfOneMind(t *testing.T) {
	if got := (&DB{steps: steps()}).newest(); got != schema {
		t.Errorf("the steps lead to %d, and backups are written as %d", got, schema)
	}
}

func appends(s string) step {
	return func(rows *bbolt.Bucket) error {
		return rows.Put([]byte("a"), append(bytes.Clone(rows.Get([]byte("a"))), s...))
	}
}

func TestSchemaMigration(t *testing.T) {
	fails := func(rows *bbolt.Bucket) error {
		_ = rows.Put([]byte("a"), []byte("spoiled"))
		return errors.New("it cannot be")
	}
	panics := func(rows *bbolt.Bucket) error {
		_ = rows.Put([]byte("a"), []byte("spoiled"))
		panic("it cannot be")
	}
	for rule, tc := range map[string]struct {
		crashed bool
		row     []byte
		steps   []step
		said    string // "" when it opens
		rows    string
		left    byte
	}{
		"a file without the row is of version 1":            {row: nil, rows: "a=1", left: 1},
		"a file without the row is led forward":             {row: nil, steps: []step{appends("-2")}, rows: "a=1-2", left: 2},
		"a current file stays as it is":                     {row: []byte{0, 0, 0, 1}, rows: "a=1", left: 1},
		"a current file of a later version stays as it is":  {row: []byte{0, 0, 0, 3}, steps: []step{appends("-2"), appends("-3")}, rows: "a=1", left: 3},
		"steps run in order from the version of the file":   {row: []byte{0, 0, 0, 2}, steps: []step{appends("-2"), appends("-3"), appends("-4")}, rows: "a=1-3-4", left: 4},
		"what the journal has is led forward too":           {crashed: true, row: []byte{0, 0, 0, 1}, steps: []step{appends("-2")}, rows: "a=1-2", left: 2},
		"a newer file is refused":                           {row: []byte{0, 0, 0, 9}, steps: []step{appends("-2")}, said: "newer version (schema 9, this one knows 2): start that version", left: 9},
		"a malformed version is damage":                     {row: []byte{1}, said: "malformed", left: 1},
		"version 0 is damage":                               {row: []byte{0, 0, 0, 0}, said: "malformed", left: 0},
		"a failing step changes nothing":                    {row: []byte{0, 0, 0, 1}, steps: []step{fails}, said: "its change from schema 1 to 2 failed and was taken back (it cannot be)", rows: "a=1", left: 1},
		"a panicking step changes nothing":                  {row: nil, steps: []step{panics}, said: "its change from schema 1 to 2 failed", rows: "a=1", left: 1},
		"a failing step keeps the steps before it":          {row: []byte{0, 0, 0, 1}, steps: []step{appends("-2"), fails}, said: "from schema 2 to 3 failed", rows: "a=1-2", left: 2},
		"a failing step loses nothing of a crash's journal": {crashed: true, row: []byte{0, 0, 0, 1}, steps: []step{fails}, said: "from schema 1 to 2 failed", rows: "a=1", left: 1},
		"without the row, what the journal has is kept":     {crashed: true, row: nil, rows: "a=1", left: 1},
	} {
		t.Run(rule, func(t *testing.T) {
			path := made(t, tc.crashed)
			edit(t, path, tc.row)
			db, err := open(path, Options{Journal: 64 << 10}, tc.steps)
			switch {
			case tc.said == "" && err != nil:
				t.Fatal(err)
			case tc.said != "" && (err == nil || !strings.Contains(err.Error(), tc.said) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), path)):
				t.Fatalf("Open: %v", err)
			}
			if db != nil {
				if got := allRows(t, db); got != tc.rows {
					t.Errorf("rows are %s", got)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if row := schemaRow(t, path); len(row) == 0 || row[len(row)-1] != tc.left {
				t.Errorf("the schema row is %v", row)
			}
			if tc.rows == "" {
				return
			}
			// The version that the file is of now opens it.
			db, err = open(path, Options{Journal: 64 << 10}, make([]step, tc.left-1))
			if err != nil {
				t.Fatal(err)
			}
			if got := allRows(t, db); got != tc.rows {
				t.Errorf("afterwards rows are %s", got)
			}
			setRow(t, db, "b", "2")
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSchemaOfANewFileIsTheNewest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	never := func(*bbolt.Bucket) error { return errors.New("a new file has nothing to change") }
	db, err := open(path, Options{Journal: 64 << 10}, []step{never, never})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if row := schemaRow(t, path); !bytes.Equal(row, []byte{0, 0, 0, 3}) {
		t.Errorf("the schema row is %v", row)
	}
}

func contents(t *testing.T, path string) (all []byte) {
	t.Helper()
	for _, suffix := range []string{"", ".journal"} {
		raw, err := os.ReadFile(path + suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		all = append(all, raw...)
	}
	return all
}

func TestStoreReaderSeesTheJournalAndChangesNothing(t *testing.T) {
	for rule, crashed := range map[string]bool{"after a crash": true, "after a clean end": false} {
		t.Run(rule, func(t *testing.T) {
			path := made(t, crashed)
			before := contents(t, path)
			r, err := OpenReader(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := allRows(t, r); got != "a=1" {
				t.Errorf("rows are %s", got)
			}
			if r.Schema() != 1 || r.Epoch() != 1 || (r.Pending() == 1) != crashed {
				t.Errorf("schema %d, epoch %d, pending %d", r.Schema(), r.Epoch(), r.Pending())
			}
			if err := r.Update(t.Context(), func(store.Tx) error { return nil }); !errors.Is(err, store.ErrReadOnly) {
				t.Errorf("Update: %v", err)
			}
			if _, err := Open(path, Options{Timeout: time.Millisecond}); !errors.Is(err, store.ErrLocked) {
				t.Errorf("Open beside it: %v", err)
			}
			if err := errors.Join(r.Close(), r.Close()); err != nil {
				t.Fatal(err)
			}
			if err := r.View(t.Context(), func(store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
				t.Errorf("View after Close: %v", err)
			}
			if !bytes.Equal(contents(t, path), before) {
				t.Error("the files were changed")
			}
		})
	}
}

func TestStoreReaderRefusals(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	newer, lost, locked := made(t, false), made(t, true), made(t, false)
	edit(t, newer, []byte{0, 0, 0, 9})
	if err := os.Remove(lost + ".journal"); err != nil {
		t.Fatal(err)
	}
	db, err := Open(locked, Options{Journal: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for rule, tc := range map[string]struct {
		path string
		is   error
		said string
	}{
		"no file":           {filepath.Join(dir, "none"), fs.ErrNotExist, "name another file"},
		"a directory":       {dir, ErrDamaged, "it is no file"},
		"an empty file":     {write("empty", ""), ErrDamaged, "head pages"},
		"another text":      {write("text", "hello"), ErrDamaged, "head pages"},
		"a newer version":   {newer, nil, "schema 9, this one knows 1"},
		"a missing journal": {lost, ErrDamaged, "is missing"},
		"one in use":        {locked, store.ErrLocked, "stop that process first"},
	} {
		t.Run(rule, func(t *testing.T) {
			for name, fn := range map[string]func() error{
				"OpenReader": func() error { _, err := OpenReader(tc.path); return err },
				"Compact":    func() error { _, _, err := Compact(t.Context(), tc.path); return err },
			} {
				err := fn()
				if err == nil || tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.said) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "none.journal")); err == nil {
		t.Error("a journal was made beside nothing")
	}
}

func TestStoreCopyIsWholeAndNew(t *testing.T) {
	path := made(t, true)
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	name := filepath.Join(t.TempDir(), "copy")
	if err := r.Copy(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := r.Copy(t.Context(), name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	c, err := OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got := allRows(t, c); got != "a=1" || c.Pending() != 0 || c.Epoch() != 1 {
		t.Errorf("the copy has %s, pending %d, epoch %d", got, c.Pending(), c.Epoch())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	gone := filepath.Join(t.TempDir(), "copy")
	if err := r.Copy(ctx, gone); !errors.Is(err, context.Canceled) {
		t.Errorf("Copy: %v", err)
	}
	if _, err := os.Stat(gone); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a broken copy stayed: %v", err)
	}
}

// The file of an older version keeps its version in a copy, so that the older
// program can use it.
func TestStoreCopyKeepsTheVersion(t *testing.T) {
	path := made(t, false)
	r := &Reader{db: &DB{path: path, steps: make([]step, 1)}}
	edit(t, path, nil)
	if err := r.open(os.O_RDONLY); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	name := filepath.Join(t.TempDir(), "copy")
	if err := r.Copy(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if row := schemaRow(t, name); r.Schema() != 1 || !bytes.Equal(row, []byte{0, 0, 0, 1}) {
		t.Errorf("schema %d, the copy's row is %v", r.Schema(), row)
	}
}

func TestStoreCompactMakesTheFileSmallerAndKeepsEveryRow(t *testing.T) {
	for rule, prepare := range map[string]func(path string) error{
		"as it is":                      func(string) error { return nil },
		"without a journal":             func(path string) error { return os.Remove(path + ".journal") },
		"beside an interrupted run's":   func(path string) error { return os.WriteFile(path+".compact", []byte("half"), 0o600) },
		"of a file without its version": func(path string) error { edit(t, path, nil); return nil },
	} {
		t.Run(rule, func(t *testing.T) {
			path := made(t, false)
			db, err := Open(path, Options{Journal: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			big := strings.Repeat("x", 1<<20)
			for _, k := range []string{"p", "q", "r"} {
				setRow(t, db, k, big)
			}
			if err := db.Update(t.Context(), func(tx store.Tx) error {
				for _, k := range []string{"p", "q", "r"} {
					tx.Delete([]byte(k))
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Close(), prepare(path)); err != nil {
				t.Fatal(err)
			}
			before, after, err := Compact(t.Context(), path)
			if err != nil || before < 1<<20 || after > before/2 {
				t.Fatalf("from %d to %d: %v", before, after, err)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.compact*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			db, err = Open(path, Options{Journal: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			if got := allRows(t, db); got != "a=1" || db.Epoch() != 3 {
				t.Errorf("rows are %s, epoch %d", got, db.Epoch())
			}
		})
	}
}

// A compaction of a store that a crash left sees its journal, and a crash of the
// compaction leaves the old store.
func TestStoreCompactAfterACrash(t *testing.T) {
	path := made(t, true)
	before := contents(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Compact(ctx, path); !errors.Is(err, context.Canceled) {
		t.Fatalf("Compact: %v", err)
	}
	if !bytes.Equal(contents(t, path), before) {
		t.Error("the files were changed")
	}
	if _, _, err := Compact(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	db, err := Open(path, Options{Journal: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if got := allRows(t, db); got != "a=1" {
		t.Errorf("rows are %s", got)
	}
}
