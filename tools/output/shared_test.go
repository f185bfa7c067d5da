package output_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/mem"
	"countersign/tools"
	"countersign/tools/output"
	"countersign/tools/toolstest"
)

// two are the logs of two replicas, which share a store and no directory.
func two(t *testing.T, c output.Config) (a, b *output.Log, db store.DB) {
	t.Helper()
	if c.DB == nil {
		m := mem.Open()
		t.Cleanup(func() { _ = m.Close() })
		c.DB = m
	}
	return log(t, c), log(t, c), c.DB
}

// noise is text that does not get much smaller.
func noise(n int) string {
	raw := make([]byte, n/4*3)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(raw)
	text := []byte(base64.StdEncoding.EncodeToString(raw))
	for i := 70; i < len(text); i += 71 {
		text[i] = '\n'
	}
	return string(text)
}

func read(t *testing.T, l *output.Log, thread, id string) string {
	t.Helper()
	f, size, err := l.OpenContext(t.Context(), thread, id)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil || size != int64(len(text)) {
		t.Fatalf("%v: %d bytes, not %d", err, len(text), size)
	}
	return string(text)
}

// rows counts what the store has, and looks at each row.
func rows(t *testing.T, db store.DB) (n int) {
	t.Helper()
	err := db.View(t.Context(), func(tx store.Tx) error {
		n = 0
		for key, val := range tx.Scan([]byte{0}, nil) {
			n++
			if len(val) > 256<<10 || strings.Contains(string(key), "web:1") {
				t.Errorf("%s has %d bytes", store.Format(key), len(val))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEveryReplicaFindsIt(t *testing.T) {
	for name, text := range map[string]string{"a line": "x\n", "many lines": lines(50000), "many rows": noise(3 << 20)} {
		t.Run(name, func(t *testing.T) {
			a, b, db := two(t, output.Config{})
			ref := keep(t, a, "web:1", "c1", text)
			if ref.SharedBytes != 0 || ref.LocalOnly || strings.Contains(ref.Note("here"), "replica") {
				t.Errorf("%+v", ref)
			}
			here, err := os.ReadFile(ref.Path)
			if err != nil || string(here) != text {
				t.Errorf("%v: %d bytes in %s", err, len(here), ref.Path)
			}
			for _, l := range []*output.Log{a, b} {
				if got := read(t, l, "web:1", ref.ID); got != text {
					t.Errorf("%d bytes", len(got))
				}
				if got, cut, err := l.TextContext(t.Context(), "web:1", ref.ID, 10<<20); err != nil || cut || got != text {
					t.Errorf("%v %v %d", err, cut, len(got))
				}
				if _, _, err := l.Open("web:2", ref.ID); !errors.Is(err, output.ErrNone) {
					t.Errorf("another thread: %v", err)
				}
				if _, _, err := l.Open("web:1", "out-00000000"); !errors.Is(err, output.ErrNone) {
					t.Errorf("no such output: %v", err)
				}
			}
			if n := rows(t, db); n < 3 || name == "many rows" && n < 9 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

func TestReadOutputOnAnotherReplica(t *testing.T) {
	a, b, _ := two(t, output.Config{})
	ref := keep(t, a, "web:1", "c1", lines(5000))
	reg, err := tools.NewRegistry(time.Now, b.Reader())
	if err != nil {
		t.Fatal(err)
	}
	p, err := reg.Plan(t.Context(), tools.Call{ID: "r", Thread: "web:1", Name: "read_output", Args: []byte(`{"output":"` + ref.ID + `","offset":4999}`)})
	if err != nil {
		t.Fatal(err)
	}
	if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err != nil || out.Result.Text != "line 4999\nline 5000\n[end: 2 lines shown of 5000 lines]" {
		t.Errorf("%v %q", out.Err, out.Result.Text)
	}
}

func TestOfALongOneOthersHaveBothEnds(t *testing.T) {
	a, b, _ := two(t, output.Config{Shared: 1 << 20})
	text := noise(3 << 20)
	ref := keep(t, a, "web:1", "c1", text)
	if got := read(t, a, "web:1", ref.ID); got != text {
		t.Errorf("here: %d bytes", len(got))
	}
	got := read(t, b, "web:1", ref.ID)
	begin, end, ok := strings.Cut(got, "[... ")
	_, end, _ = strings.Cut(end, "]\n")
	if !ok || ref.SharedBytes != int64(len(got)) || !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, end) || len(begin) < 400<<10 || len(end) < 400<<10 || len(begin)+len(end) > 1<<20 {
		t.Errorf("%d and %d bytes, %+v", len(begin), len(end), ref)
	}
	if note := ref.Note("here"); !strings.Contains(note, "; other replicas of this bot have its beginning and its end, 1") {
		t.Error(note)
	}
	if _, cut, err := b.TextContext(t.Context(), "web:1", ref.ID, 10<<20); err != nil || !cut {
		t.Errorf("it is said to be whole: %v", err)
	}
	if _, cut, err := a.TextContext(t.Context(), "web:1", ref.ID, 10<<20); err != nil || cut {
		t.Errorf("it is said to be cut: %v", err)
	}
}

func TestSecretsAreTakenOutBeforeTheStore(t *testing.T) {
	r := redact.New("sesame-open-the-door")
	a, b, _ := two(t, output.Config{Cleaner: func() output.Cleaner { return r.Stream() }})
	ref := keep(t, a, "web:1", "c1", strings.Repeat("before sesame-open-the-door after\n", 100))
	if got := read(t, b, "web:1", ref.ID); strings.Contains(got, "sesame") || !strings.Contains(got, "before [redacted") {
		t.Errorf("%.60q", got)
	}
}

// A call that another replica runs again has that one's output, wherever it is read, also
// where the first one was cut short in the middle of writing.
func TestTheLastAttemptCounts(t *testing.T) {
	for name, first := range map[string]func(t *testing.T, a *output.Log){
		"kept": func(t *testing.T, a *output.Log) { keep(t, a, "web:1", "c1", noise(1<<20)) },
		"cut short": func(_ *testing.T, a *output.Log) {
			a.Begin("web:1", "c1").Event(tools.Event{Kind: tools.Stdout, Text: lines(50000)})
		},
		"never begun": func(*testing.T, *output.Log) {},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, db := two(t, output.Config{})
			first(t, a)
			ref := keep(t, b, "web:1", "c1", "second\n")
			for _, l := range []*output.Log{a, b} {
				if got := read(t, l, "web:1", ref.ID); got != "second\n" {
					t.Errorf("%.40q", got)
				}
			}
			if n := rows(t, db); n != 3 {
				t.Errorf("%d rows are left", n)
			}
		})
	}
}

// What was kept before there was a store to share is found where it is.
func TestFilesOfBeforeAreFound(t *testing.T) {
	dir := t.TempDir()
	ref := keep(t, output.New(output.Config{Dir: dir}), "web:1", "c1", "old\n")
	db := mem.Open()
	t.Cleanup(func() { _ = db.Close() })
	if got := read(t, output.New(output.Config{Dir: dir, DB: db}), "web:1", ref.ID); got != "old\n" {
		t.Errorf("%q", got)
	}
}

// faulty fails, or waits, from some Update on.
type faulty struct {
	store.DB
	fine int // Updates that work
	wait bool
}

var errAway = errors.New("the database is away")

func (f *faulty) Update(ctx context.Context, fn func(store.Tx) error) error {
	if f.fine--; f.fine >= 0 {
		return f.DB.Update(ctx, fn)
	}
	if f.wait {
		<-ctx.Done()
		return ctx.Err()
	}
	return errAway
}

// onlyHere checks that a replica has its output and says that others don't.
func onlyHere(t *testing.T, a, b *output.Log, ref output.Ref, text string) {
	t.Helper()
	if !ref.LocalOnly || !strings.Contains(ref.Note("here"), "; only the replica of this bot that ran the call has it.]") {
		t.Errorf("%+v", ref)
	}
	if got := read(t, a, "web:1", ref.ID); got != text {
		t.Errorf("%d bytes", len(got))
	}
	if b, err := os.ReadFile(ref.Path); err != nil || string(b) != text {
		t.Errorf("%v: %s", err, ref.Path)
	}
	if _, _, err := b.Open("web:1", ref.ID); !errors.Is(err, output.ErrNone) {
		t.Errorf("another replica: %v", err)
	}
}

func TestAStoreThatRefusesLeavesTheFile(t *testing.T) {
	for fine := range 3 { // the text takes three transactions
		text := noise(7 << 19)
		now := time.Now()
		db := &faulty{DB: mem.Open(), fine: fine}
		a, b, _ := two(t, output.Config{DB: db, Now: func() time.Time { return now }})
		onlyHere(t, a, b, keep(t, a, "web:1", "c1", text), text)
		db.fine = 100
		if left := rows(t, db); (left == 0) != (fine == 0) {
			t.Errorf("%d rows after %d transactions", left, fine)
		}
		if _, err := b.Prune(t.Context(), now.Add(time.Minute)); err != nil || rows(t, db) != 0 {
			t.Errorf("%v: %d rows are left for ever", err, rows(t, db))
		}
		_ = db.Close()
	}
}

func TestAStoreThatHangsIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := mem.Open()
		defer func() { _ = m.Close() }()
		a, b, _ := two(t, output.Config{DB: &faulty{DB: m, wait: true}})
		began := time.Now()
		onlyHere(t, a, b, keep(t, a, "web:1", "c1", "x\n"), "x\n")
		if d := time.Since(began); d != 15*time.Second {
			t.Error(d)
		}
	})
}

func TestWhoLostTheThreadTellsNobody(t *testing.T) {
	ours := false
	a, b, db := two(t, output.Config{Owns: func(_ store.Tx, thread string) bool { return ours && thread == "web:1" }})
	onlyHere(t, a, b, keep(t, a, "web:1", "c1", "x\n"), "x\n")
	if n := rows(t, db); n != 0 {
		t.Errorf("%d rows", n)
	}
	ours = true
	if ref := keep(t, b, "web:1", "c1", "y\n"); ref.LocalOnly || read(t, a, "web:1", ref.ID) != "y\n" {
		t.Errorf("%+v", ref)
	}
}

func TestADamagedOneIsAnError(t *testing.T) {
	for name, spoil := range map[string]func(tx store.Tx, key, val []byte){
		"a part is missing": func(tx store.Tx, key, _ []byte) { tx.Delete(key) },
		"a part is cut":     func(tx store.Tx, key, val []byte) { tx.Set(key, val[:len(val)/2]) },
		"a bit is another":  func(tx store.Tx, key, val []byte) { val[len(val)/2] ^= 1; tx.Set(key, val) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, db := two(t, output.Config{})
			ref := keep(t, a, "web:1", "c1", noise(1<<20))
			err := db.Update(t.Context(), func(tx store.Tx) error {
				var last, val []byte
				for k, v := range tx.Scan(store.Prefix("output", "part")) {
					last, val = k, v
				}
				spoil(tx, last, val)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			f, _, err := b.OpenContext(t.Context(), "web:1", ref.ID)
			if err == nil {
				_, err = io.Copy(io.Discard, f)
				_ = f.Close()
			}
			if err == nil || errors.Is(err, output.ErrNone) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestWhatIsDroppedIsInNoStore(t *testing.T) {
	a, _, db := two(t, output.Config{})
	w := a.Begin("web:1", "c1")
	w.Event(tools.Event{Kind: tools.Stdout, Text: lines(50000)})
	w.Drop()
	if n := rows(t, db); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestOldOutputGoesFromTheStore(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 30, 0, 0, time.UTC)
	now := begin
	a, b, db := two(t, output.Config{Now: func() time.Time { return now }})
	const many = 45 // more than a transaction removes
	for i := range many {
		keep(t, a, "web:1", fmt.Sprint(i), "x\n")
	}
	now = begin.Add(20 * time.Minute) // within the same hour
	young := keep(t, a, "web:1", "young", "y\n")
	for _, tt := range []struct {
		before time.Time
		n      int
	}{{begin, 0}, {begin.Add(time.Minute), many}, {begin.Add(time.Minute), 0}} {
		// The files are of today, and stay.
		if n, err := b.Prune(t.Context(), tt.before); err != nil || n != tt.n {
			t.Errorf("%v: %d, %v", tt.before, n, err)
		}
	}
	if n := rows(t, db); n != 3 || read(t, b, "web:1", young.ID) != "y\n" {
		t.Errorf("%d rows are left", n)
	}
	if n, err := b.Prune(t.Context(), now.Add(time.Second)); err != nil || n != 1 || rows(t, db) != 0 {
		t.Errorf("%d %v", n, err)
	}
}

// A new attempt is not removed with the age of an old one.
func TestPruneLeavesTheNextAttempt(t *testing.T) {
	now := time.Now().Add(-100 * time.Hour)
	db := &faulty{DB: mem.Open(), fine: 2}
	t.Cleanup(func() { _ = db.Close() })
	a, b, _ := two(t, output.Config{DB: db, Now: func() time.Time { return now }})
	keep(t, a, "web:1", "c1", noise(7<<19)) // in part
	now, db.fine = time.Now(), 1000
	ref := keep(t, b, "web:1", "c1", "y\n")
	if _, err := b.Prune(t.Context(), now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n := rows(t, db); n != 3 || read(t, b, "web:1", ref.ID) != "y\n" {
		t.Errorf("%d rows", n)
	}
}

func TestReplicasKeepAndPruneAtOnce(t *testing.T) {
	begin := time.Now().Add(-time.Minute) // times of files are from a coarser clock
	a, b, db := two(t, output.Config{})
	var wg sync.WaitGroup
	for i := range 20 {
		l := a
		if i%2 == 0 {
			l = b
		}
		wg.Go(func() {
			w := l.Begin("web:1", fmt.Sprint(i/2)) // both keep each call
			w.Event(tools.Event{Kind: tools.Stdout, Text: lines(1000)})
			if ref, err := w.KeepContext(t.Context(), ""); err != nil || ref.LocalOnly {
				t.Error(ref, err)
			}
			if _, err := l.Prune(t.Context(), begin); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := rows(t, db); n != 30 {
		t.Errorf("%d rows", n)
	}
	total := make([]int, 2)
	for i, l := range []*output.Log{a, b} {
		wg.Go(func() {
			var err error
			if total[i], err = l.Prune(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if rows(t, db) != 0 || total[0]+total[1] != 30 { // 20 files and 10 outputs of the store
		t.Errorf("%d removed, %d rows are left", total, rows(t, db))
	}
}
