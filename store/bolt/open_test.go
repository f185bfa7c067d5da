package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/test/needstest"
)

func put(t *testing.T, db store.DB, kv ...string) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		for i := 0; i < len(kv); i += 2 {
			tx.Set([]byte(kv[i]), []byte(kv[i+1]))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func rows(t *testing.T, db store.DB) map[string]string {
	t.Helper()
	got := map[string]string{}
	if err := db.View(t.Context(), func(tx store.Tx) error {
		for k, v := range tx.Scan(nil, nil) {
			got[string(k)] = string(v)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func closeDB(t *testing.T, db *bolt.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// sentence checks an error of Open: of the right kind, on one line, naming what
// it is about and what to do.
func sentence(t *testing.T, err, kind error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("Open succeeded")
	}
	if kind != nil && !errors.Is(err, kind) {
		t.Errorf("%v is not a %v", err, kind)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%q does not say %q", err, p)
		}
	}
	if strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("%q is not one sentence", err)
	}
}

func TestEachOpenIsAnEpoch(t *testing.T) {
	dir := t.TempDir()
	for want := uint64(1); want <= 3; want++ {
		db := openIn(t, dir, 0)
		if got := db.Epoch(); got != want {
			t.Errorf("Epoch = %d, want %d", got, want)
		}
		closeDB(t, db)
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	closeDB(t, openIn(t, dir, 0))
	for name, want := range map[string]os.FileMode{"": 0o700, "state.db": 0o600, "state.db.journal": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, want %o", name, got, want)
		}
	}
}

func TestASecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	db := openIn(t, dir, 0)
	defer closeDB(t, db)
	_, err := bolt.Open(filepath.Join(dir, "state.db"), bolt.Options{Timeout: time.Millisecond})
	sentence(t, err, store.ErrLocked, dir, "stop that process")
	put(t, db, "a", "1")
}

func TestALockOfBboltItselfIsRespected(t *testing.T) {
	dir := t.TempDir()
	closeDB(t, openIn(t, dir, 0))
	tool, err := bbolt.Open(filepath.Join(dir, "state.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = bolt.Open(filepath.Join(dir, "state.db"), bolt.Options{Timeout: time.Millisecond})
	sentence(t, err, store.ErrLocked, dir)
	if err := tool.Close(); err != nil {
		t.Fatal(err)
	}
	closeDB(t, openIn(t, dir, 0))
}

func TestADirectoryThatCannotBeWrittenIsSaid(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := bolt.Open(filepath.Join(file, "state.db"), bolt.Options{})
	sentence(t, err, nil, file, "choose another")
	if os.Getuid() != 0 {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		_, err := bolt.Open(filepath.Join(dir, "state.db"), bolt.Options{})
		sentence(t, err, os.ErrPermission, dir, "choose another")
	}
}

func TestAFileOfAnotherProgramIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	other, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	}), other.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = bolt.Open(path, bolt.Options{})
	sentence(t, err, nil, path, "another program")
}

func TestANewerSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	closeDB(t, openIn(t, dir, 0))
	other, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("v1")).Bucket([]byte("meta")).Put([]byte("schema"), []byte{0, 0, 0, 9})
	}), other.Close()); err != nil {
		t.Fatal(err)
	}
	_, err = bolt.Open(path, bolt.Options{})
	sentence(t, err, nil, path, "newer version", "schema 9")
}

// crash opens a database, writes, and returns a copy of its files as a crash
// would leave them.
func crash(t *testing.T, journal int64, n int) (path string, want map[string]string) {
	t.Helper()
	dir := t.TempDir()
	db := openIn(t, dir, journal)
	defer closeDB(t, db)
	want = map[string]string{}
	for i := range n {
		k, v := fmt.Sprint("key", i), strings.Repeat(fmt.Sprint(i), 100)
		put(t, db, k, v)
		want[k] = v
	}
	path = filepath.Join(t.TempDir(), "state.db")
	for _, suffix := range []string{"", ".journal"} {
		data, err := os.ReadFile(filepath.Join(dir, "state.db"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path, want
}

func TestTheJournalIsReplayedAfterACrash(t *testing.T) {
	path, want := crash(t, 0, 20)
	for range 2 { // the second time there is nothing to replay
		db, err := bolt.Open(path, bolt.Options{Journal: 8 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if got := rows(t, db); !maps.Equal(got, want) {
			t.Errorf("%d rows, want %d", len(got), len(want))
		}
		closeDB(t, db)
	}
}

func TestAMissingJournalIsNoticedAfterACrashOnly(t *testing.T) {
	path, _ := crash(t, 0, 5)
	if err := os.Remove(path + ".journal"); err != nil {
		t.Fatal(err)
	}
	_, err := bolt.Open(path, bolt.Options{})
	sentence(t, err, bolt.ErrDamaged, path+".journal", "missing", "restore")

	dir := t.TempDir()
	db := openIn(t, dir, 0)
	put(t, db, "a", "1")
	closeDB(t, db)
	if err := os.Remove(filepath.Join(dir, "state.db.journal")); err != nil {
		t.Fatal(err)
	}
	db = openIn(t, dir, 0)
	defer closeDB(t, db)
	if got := rows(t, db); got["a"] != "1" {
		t.Errorf("rows are %q", got)
	}
}

func TestARottenJournalIsRefused(t *testing.T) {
	path, _ := crash(t, 0, 5)
	data, err := os.ReadFile(path + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("key2"))
	data[at] ^= 0x20
	if err := os.WriteFile(path+".journal", data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = bolt.Open(path, bolt.Options{})
	sentence(t, err, bolt.ErrDamaged, path+".journal", "backup")
	// Nothing was changed: with the byte put back it opens.
	data[at] ^= 0x20
	if err := os.WriteFile(path+".journal", data, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)
}

// used returns the part of a bbolt file that is in use.
func used(t *testing.T, path string) []byte {
	t.Helper()
	tool, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	var size int64
	if err := errors.Join(tool.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }), tool.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data[:size]
}

// A damaged bbolt file makes bbolt panic, partly on goroutines of its own. Open
// must tell, or open if what was hit carries no structure; it must not crash.
func TestADamagedFileIsAnErrorNotAPanic(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir := t.TempDir()
	db := openIn(t, dir, 0)
	for i := range 300 {
		put(t, db, fmt.Sprintf("key%04d", i*37%300), strings.Repeat("v", 20+i))
	}
	put(t, db, "big", strings.Repeat("b", 20000))
	closeDB(t, db)
	path := filepath.Join(dir, "state.db")
	whole := used(t, path)
	attempt := func(name string, data []byte) error {
		t.Helper()
		bad := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(bad, bolt.Options{Journal: 8 << 10})
		if err == nil {
			rows(t, db)
			_ = db.Close()
			return nil
		}
		if errors.Is(err, bolt.ErrDamaged) {
			sentence(t, err, bolt.ErrDamaged, bad, "backup")
		} else if !strings.Contains(err.Error(), "another program") { // its first bucket's name was hit
			t.Errorf("%s: %v", name, err)
		}
		return err
	}
	for _, n := range []int{1, 100, 4096, 8192, 12288, 20000, 40960} {
		if attempt(fmt.Sprint("cut to ", n), whole[:n]) == nil {
			t.Errorf("a file cut to %d bytes opens", n)
		}
	}
	if attempt("zeros", make([]byte, len(whole))) == nil {
		t.Error("a file of zeros opens")
	}
	if attempt("text", []byte("this is not a database\n")) == nil {
		t.Error("a text file opens")
	}
	found := 0
	random := rand.New(rand.NewPCG(1, 2))
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	for i := range rounds {
		data := bytes.Clone(whole)
		page := random.IntN(len(data)/4096) * 4096
		for range 1 + random.IntN(4) {
			data[page+random.IntN(256)] = byte(random.Uint32())
		}
		if attempt(fmt.Sprint("round ", i), data) != nil {
			found++
		}
	}
	if found < rounds/10 {
		t.Errorf("%d of %d damaged files were found", found, rounds)
	}
}

func TestABackupIsAWholeDatabase(t *testing.T) {
	dir := t.TempDir()
	db := openIn(t, dir, 64<<10)
	want := map[string]string{}
	for i := range 500 {
		k, v := fmt.Sprint("key", i), strings.Repeat("v", i*31%3000)
		put(t, db, k, v)
		want[k] = v
	}
	var copied bytes.Buffer
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // it goes on while others write
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				put(t, db, "later", fmt.Sprint(i), fmt.Sprint("later", i), "")
			}
		}
	}()
	err := db.Backup(t.Context(), &copied)
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	closeDB(t, db)

	path := filepath.Join(dir, "state.db")
	if err := os.WriteFile(path, copied.Bytes(), 0o600); err != nil { // beside the journal of the original
		t.Fatal(err)
	}
	back := openIn(t, dir, 0)
	defer closeDB(t, back)
	got := rows(t, back)
	later := got["later"]
	maps.DeleteFunc(got, func(k, _ string) bool { return strings.HasPrefix(k, "later") })
	if !maps.Equal(got, want) {
		t.Errorf("the backup has %d rows, want %d", len(got), len(want))
	}
	if later != "" {
		if got := rows(t, back); got["later"+later] != "" || !has(got, "later"+later) {
			t.Errorf("the backup has half of a transaction: later is %s", later)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".backup-*")); len(left) > 0 {
		t.Errorf("temporary files were left: %v", left)
	}
	if back.Epoch() != 2 {
		t.Errorf("Epoch = %d, want one more than the backup's", back.Epoch())
	}
}

func has(m map[string]string, k string) bool { _, ok := m[k]; return ok }

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestABackupThatFailsSaysSo(t *testing.T) {
	dir := t.TempDir()
	db := openIn(t, dir, 0)
	defer closeDB(t, db)
	put(t, db, "a", "1")
	if err := db.Backup(t.Context(), brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Backup = %v, want %v", err, io.ErrClosedPipe)
	}
	put(t, db, "b", "1")
	if left, _ := filepath.Glob(filepath.Join(dir, ".backup-*")); len(left) > 0 {
		t.Errorf("temporary files were left: %v", left)
	}
}

func TestStats(t *testing.T) {
	db := openIn(t, t.TempDir(), 16<<10)
	defer closeDB(t, db)
	for i := range 10 {
		put(t, db, fmt.Sprint(i), "v")
	}
	s := db.Stats()
	if s.Updates != 10 || s.Batches != 10 || s.Checkpoints == 0 || s.JournalBytes != 16<<10 || s.FileBytes == 0 || s.Epoch != 1 || s.Checkpoint <= 0 {
		t.Errorf("Stats = %+v", s)
	}
}
