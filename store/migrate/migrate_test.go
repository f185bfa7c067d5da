package migrate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/mem"
)

type rows map[string]string

func fill(t testing.TB, db store.DB, all rows) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		for k, v := range all {
			tx.Set([]byte(k), []byte(v))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func dump(t testing.TB, db store.DB) rows {
	t.Helper()
	all := rows{}
	if err := db.View(t.Context(), func(tx store.Tx) error {
		clear(all)
		for k, v := range tx.Scan(nil, nil) {
			if string(k) != string(key()) {
				all[string(k)] = string(v)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// some are rows of all kinds.
func some() rows {
	all := rows{"\x00": "zero", "\x00\x00": "", "\xff": "last", "\xff\xff\xff": "\x00", "plain": "", string(key()) + "x": "beside the marker's key",
		strings.Repeat("k", store.MaxKey): "a long key", "large": strings.Repeat("v", 3<<20), "empty": ""}
	for i := range 1200 {
		all[string(store.Key("thread", i%7, uint64(i), time.Unix(int64(i), 0), []byte{0, 0xff}))] = fmt.Sprint(i)
	}
	return all
}

// broken is a database whose Updates fail after some.
type broken struct {
	store.DB
	left  int  // Updates that work
	after bool // of the one that fails its writes are there all the same
}

var errBroken = errors.New("it broke")

func (b *broken) Update(ctx context.Context, fn func(store.Tx) error) error {
	if b.left--; b.left >= 0 {
		return b.DB.Update(ctx, fn)
	}
	if b.after {
		if err := b.DB.Update(ctx, fn); err != nil {
			return err
		}
	}
	return errBroken
}

func TestAllRowsAreCopiedAndNothingElse(t *testing.T) {
	from, to := mem.Open(), mem.OpenTwice()
	all := some()
	fill(t, from, all)
	var told []Progress
	checked := 0
	r, err := Copy(t.Context(), from, to, Options{
		Progress: func(p Progress) { told = append(told, p) },
		Check: func(ctx context.Context, db store.DB) error {
			checked++
			if err := Unfinished(ctx, db); !errors.Is(err, ErrUnfinished) {
				t.Errorf("before the check is content: %v", err)
			}
			return nil
		},
	})
	if err != nil || r.Copied != int64(len(all)) || r.Present != 0 || r.Rows != r.Copied || checked != 1 {
		t.Fatalf("%+v %v, checked %d times", r, err, checked)
	}
	if got := dump(t, to); !maps.Equal(got, all) {
		t.Errorf("%d rows arrived of %d", len(got), len(all))
	}
	if err := Unfinished(t.Context(), to); err != nil {
		t.Error(err)
	}
	seen := map[Stage]Progress{}
	for _, p := range told {
		if last := seen[p.Stage]; p.Rows < last.Rows || p.Bytes < last.Bytes || p.Rows-last.Rows > defaultRows {
			t.Errorf("from %+v to %+v", last, p)
		}
		seen[p.Stage] = p
	}
	for _, stage := range []Stage{Reading, Copying, Verifying} {
		if seen[stage].Rows != r.Rows || seen[stage].Bytes != r.Bytes {
			t.Errorf("%s ended with %+v", stage, seen[stage])
		}
	}

	// Once more, when somebody works with the target already: there is nothing to do.
	fill(t, to, rows{"new": "1"})
	r, err = Copy(t.Context(), from, to, Options{
		Check:  func(context.Context, store.DB) error { checked++; return nil },
		Finish: func(store.Tx) error { t.Error("it is finished"); return nil },
	})
	if err != nil || r.Copied != 0 || r.Present != int64(len(all)) || !r.Before || checked != 2 {
		t.Errorf("again: %+v %v", r, err)
	}
	if dump(t, to)["new"] != "1" {
		t.Error("a finished copy was changed")
	}
}

func TestWhatTheSourceKeepsElsewhereComesWithTheEnd(t *testing.T) {
	from, to := mem.Open(), mem.OpenTwice()
	fill(t, from, rows{"a": "1"})
	o := Options{Finish: func(store.Tx) error { return errBroken }}
	if _, err := Copy(t.Context(), from, to, o); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if err := Unfinished(t.Context(), to); !errors.Is(err, ErrUnfinished) {
		t.Errorf("without its end: %v", err)
	}
	o.Finish = func(tx store.Tx) error { tx.Set([]byte("b"), []byte("2")); return nil }
	if r, err := Copy(t.Context(), from, to, o); err != nil || r.Copied != 0 || r.Before {
		t.Fatalf("%+v %v", r, err)
	}
	if got := dump(t, to); !maps.Equal(got, rows{"a": "1", "b": "2"}) {
		t.Errorf("%q", got)
	}

	// What was copied is a source like any other, and its mark stays behind.
	back := mem.Open()
	r, err := Copy(t.Context(), to, back, Options{})
	if err != nil || r.Rows != 2 || !maps.Equal(dump(t, back), rows{"a": "1", "b": "2"}) {
		t.Errorf("back: %+v %v", r, err)
	}
}

func TestNothingIsCopiedFromAnEmptyStore(t *testing.T) {
	from, to := mem.Open(), mem.Open()
	if r, err := Copy(t.Context(), from, to, Options{}); err != nil || r.Rows != 0 || len(dump(t, to)) != 0 {
		t.Errorf("%+v %v %v", r, err, dump(t, to))
	}
	if err := Unfinished(t.Context(), to); err != nil {
		t.Error(err)
	}
}

// bounded counts what each transaction reads and writes.
type bounded struct {
	store.DB
	rows, bytes int // the most of any
}

type counting struct {
	store.Tx
	rows, bytes int
}

func (c *counting) Set(k, v []byte) {
	c.rows, c.bytes = c.rows+1, c.bytes+len(k)+len(v)
	c.Tx.Set(k, v)
}

func (b *bounded) Update(ctx context.Context, fn func(store.Tx) error) error {
	return b.DB.Update(ctx, func(tx store.Tx) error {
		c := &counting{Tx: tx}
		err := fn(c)
		b.rows, b.bytes = max(b.rows, c.rows), max(b.bytes, c.bytes)
		return err
	})
}

func TestTransactionsAreSmall(t *testing.T) {
	from, to := mem.Open(), &bounded{DB: mem.Open()}
	all := some()
	delete(all, "large")
	delete(all, strings.Repeat("k", store.MaxKey))
	fill(t, from, all)
	if _, err := Copy(t.Context(), from, to, Options{Rows: 100, Bytes: 2000}); err != nil || to.rows > 100 || to.bytes > 2000 {
		t.Errorf("%v: %d rows, %d bytes in one transaction", err, to.rows, to.bytes)
	}
}

// Whatever the rows are and wherever a run breaks off, the next one brings the copy to
// its end and writes only what is missing.
func TestAnInterruptedCopyGoesOn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 1, 4), rapid.Custom(func(rt *rapid.T) []byte {
			return bytes.Repeat([]byte{rapid.SampledFrom([]byte{0, 'a', 0xff}).Draw(rt, "byte")}, rapid.IntRange(1, 1100).Draw(rt, "length"))
		}))
		all := rows{}
		for range rapid.IntRange(0, 60).Draw(rt, "rows") {
			all[string(keys.Draw(rt, "key"))] = strings.Repeat("x", rapid.IntRange(0, 300).Draw(rt, "value"))
		}
		from, to := mem.Open(), mem.Open()
		fill(t, from, all)
		o := Options{Rows: rapid.IntRange(1, 20).Draw(rt, "batch"), Bytes: rapid.IntRange(1, 2000).Draw(rt, "bytes")}
		var copied int64
		for run := 0; ; run++ {
			db := &broken{DB: to, left: rapid.IntRange(0, 40).Draw(rt, "works"), after: rapid.Bool().Draw(rt, "after")}
			if run > 5 {
				db.left = 1 << 20
			}
			r, err := Copy(t.Context(), from, db, o)
			copied += r.Copied
			if err == nil {
				break
			}
			if !errors.Is(err, errBroken) {
				rt.Fatalf("run %d: %v", run, err)
			}
			if got := dump(t, to); len(got) > 0 && !maps.Equal(got, all) {
				if err := Unfinished(t.Context(), to); !errors.Is(err, ErrUnfinished) {
					rt.Fatalf("half of a copy passes for a store: %v", err)
				}
			}
		}
		if got := dump(t, to); !maps.Equal(got, all) {
			rt.Fatalf("%d rows arrived of %d", len(got), len(all))
		}
		if copied > int64(len(all)) {
			rt.Fatalf("%d rows were written for %d", copied, len(all))
		}
	})
}

func TestRefusals(t *testing.T) {
	small := rows{"a": "1", "c": "3", "e": "5"}
	begun := func(t *testing.T, from store.DB) store.DB {
		to := mem.Open()
		if _, err := Copy(t.Context(), from, &broken{DB: to, left: 2}, Options{Rows: 1}); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		return to
	}
	for rule, tc := range map[string]struct {
		spoil func(t *testing.T, from store.DB) store.DB // makes the target
		want  error
		state State
		keeps rows // what the target is afterwards; nil: that is not looked at
	}{
		"rows of somebody": {func(t *testing.T, _ store.DB) store.DB {
			to := mem.Open()
			fill(t, to, rows{"mine": "1"})
			return to
		}, ErrForeign, Foreign, rows{"mine": "1"}},
		"a finished copy of what the source was": {func(t *testing.T, from store.DB) store.DB {
			to := mem.Open()
			if _, err := Copy(t.Context(), from, to, Options{}); err != nil {
				t.Fatal(err)
			}
			fill(t, from, rows{"c": "4"})
			return to
		}, ErrForeign, Foreign, small},
		"the source went on after the first run": {func(t *testing.T, from store.DB) store.DB {
			to := begun(t, from)
			fill(t, from, rows{"c": "4"})
			return to
		}, ErrChanged, Stale, nil},
		"the source lost a row after the first run": {func(t *testing.T, from store.DB) store.DB {
			to := begun(t, from)
			if err := from.Update(t.Context(), func(tx store.Tx) error { tx.Delete([]byte("e")); return nil }); err != nil {
				t.Fatal(err)
			}
			return to
		}, ErrChanged, Stale, nil},
		"somebody wrote a row into the half copy": {func(t *testing.T, from store.DB) store.DB {
			to := begun(t, from)
			fill(t, to, rows{"b": "1"})
			return to
		}, ErrForeign, Begun, nil},
		"somebody wrote behind the last row": {func(t *testing.T, from store.DB) store.DB {
			to := begun(t, from)
			fill(t, to, rows{"z": "1"})
			return to
		}, ErrForeign, Begun, nil},
		"somebody wrote before the first row": {func(t *testing.T, from store.DB) store.DB {
			to := begun(t, from)
			fill(t, to, rows{"A": "1"})
			return to
		}, ErrForeign, Begun, nil},
		"somebody changed a row of the half copy": {func(t *testing.T, from store.DB) store.DB {
			to := begun(t, from)
			fill(t, to, rows{"a": "one"})
			return to
		}, ErrForeign, Begun, nil},
	} {
		t.Run(rule, func(t *testing.T) {
			from := mem.Open()
			fill(t, from, small)
			to := tc.spoil(t, from)
			if _, state, err := Inspect(t.Context(), from, to); err != nil || state != tc.state {
				t.Errorf("it looks %q, want %q (%v)", state, tc.state, err)
			}
			r, err := Copy(t.Context(), from, to, Options{Rows: 1})
			if !errors.Is(err, tc.want) {
				t.Errorf("%+v %v, want %v", r, err, tc.want)
			}
			if got := dump(t, to); tc.keeps != nil && !maps.Equal(got, tc.keeps) {
				t.Errorf("the target was changed: %q", got)
			}
		})
	}
}

func TestAnUnfinishedCopyIsNoSource(t *testing.T) {
	from, half := mem.Open(), mem.Open()
	fill(t, from, rows{"a": "1", "b": "2"})
	if _, err := Copy(t.Context(), from, &broken{DB: half, left: 1}, Options{Rows: 1}); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), half, mem.Open(), Options{}); !errors.Is(err, ErrUnfinished) {
		t.Error(err)
	}
	if _, _, err := Inspect(t.Context(), half, nil); !errors.Is(err, ErrUnfinished) {
		t.Error(err)
	}
}

func TestLookWritesNothing(t *testing.T) {
	from, to := mem.Open(), mem.Open()
	fill(t, from, some())
	want, err := Measure(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []store.DB{nil, to} {
		if got, state, err := Inspect(t.Context(), from, target); err != nil || state != Empty || got != want {
			t.Errorf("%+v %q %v", got, state, err)
		}
	}
	if len(dump(t, to)) != 0 {
		t.Error("a look wrote")
	}
	if _, err := Copy(t.Context(), from, to, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, state, err := Inspect(t.Context(), from, to); err != nil || state != Done {
		t.Errorf("%q %v", state, err)
	}
}

// meddler writes into a store while it is copied.
type meddler struct {
	store.DB
	in   store.DB
	when int // Update
	rows rows
}

func (m *meddler) Update(ctx context.Context, fn func(store.Tx) error) error {
	if m.when--; m.when == 0 {
		_ = m.in.Update(ctx, func(tx store.Tx) error {
			for k, v := range m.rows {
				tx.Set([]byte(k), []byte(v))
			}
			return nil
		})
	}
	return m.DB.Update(ctx, fn)
}

func TestWhoeverWritesMeanwhileIsNoticed(t *testing.T) {
	all := rows{}
	for i := range 10 {
		all[fmt.Sprint(i)] = "x"
	}
	for when := 1; when <= len(all)+1; when++ {
		for _, key := range []string{"0", "00", "5", "55", "9", "99"} {
			from, to := mem.Open(), mem.Open()
			fill(t, from, all)
			_, err := Copy(t.Context(), from, &meddler{DB: to, in: from, when: when, rows: rows{key: "new"}}, Options{Rows: 1})
			if !errors.Is(err, ErrChanged) {
				t.Errorf("the source's %s, at %d: %v", key, when, err)
			}
			from, to = mem.Open(), mem.Open()
			fill(t, from, all)
			_, err = Copy(t.Context(), from, &meddler{DB: to, in: to, when: when, rows: rows{key: "new"}}, Options{Rows: 1})
			if !errors.Is(err, ErrForeign) && !errors.Is(err, ErrDiffers) {
				t.Errorf("the target's %s, at %d: %v", key, when, err)
			}
		}
	}
}

func TestTheCallersCheckDecides(t *testing.T) {
	from, to := mem.Open(), mem.Open()
	fill(t, from, some())
	if _, err := Copy(t.Context(), from, to, Options{Check: func(context.Context, store.DB) error { return errBroken }}); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	if err := Unfinished(t.Context(), to); !errors.Is(err, ErrUnfinished) {
		t.Errorf("after a check that failed: %v", err)
	}
	if r, err := Copy(t.Context(), from, to, Options{}); err != nil || r.Copied != 0 {
		t.Errorf("%+v %v", r, err)
	}
}

func TestTheEndOfTheContextEndsACopy(t *testing.T) {
	from := mem.Open()
	fill(t, from, some())
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Copy(ctx, from, mem.Open(), Options{Progress: func(p Progress) {
		if p.Stage == Copying {
			cancel()
		}
	}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The Sum of a pair of rows cannot be that of another pair whose bytes are the same
// in a row.
func TestSumsTellWhereARowEnds(t *testing.T) {
	seen := map[Sum]string{}
	for name, all := range map[string]rows{
		"ab/c": {"ab": "c"}, "a/bc": {"a": "bc"}, "a,b": {"a": "", "b": ""}, "ab": {"ab": ""}, "a/b": {"a": "b"},
	} {
		db := mem.Open()
		fill(t, db, all)
		s, err := Measure(t.Context(), db)
		if err != nil || seen[s] != "" {
			t.Errorf("%s and %s: %+v %v", name, seen[s], s, err)
		}
		seen[s] = name
	}
}

// TestCopierProcess is no test: it is the process that TestAKilledProcess kills.
func TestCopierProcess(t *testing.T) {
	dir := os.Getenv("COUNTERSIGN_TEST_COPY")
	if dir == "" {
		t.Skip("run by TestAKilledProcess")
	}
	from, err := bolt.OpenReader(filepath.Join(dir, "from.db"))
	if err != nil {
		t.Fatal(err)
	}
	to, err := bolt.Open(filepath.Join(dir, "to.db"), bolt.Options{Journal: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), from, to, Options{Rows: 20, Progress: func(p Progress) { fmt.Println("at", p.Stage, p.Rows) }}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("finished")
}

func TestAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	from, err := bolt.Open(filepath.Join(dir, "from.db"), bolt.Options{Journal: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	all := some()
	fill(t, from, all)
	if err := from.Close(); err != nil {
		t.Fatal(err)
	}
	steps := 3*(len(all)/20) + 4 // lines that a whole run prints, about
	finished := false
	for run := 0; !finished && run < 12; run++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCopierProcess$")
		cmd.Env = append(os.Environ(), "COUNTERSIGN_TEST_COPY="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		left := rand.IntN(steps)
		if run == 11 {
			left = 1 << 20
		}
		var said []string
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said = append(said, lines.Text())
			finished = finished || lines.Text() == "finished"
			if left--; left == 0 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		t.Log("run " + strconv.Itoa(run) + ": " + said[max(0, len(said)-2)])
	}
	to, err := bolt.Open(filepath.Join(dir, "to.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = to.Close() }()
	if got := dump(t, to); !finished || !maps.Equal(got, all) {
		t.Errorf("finished %t, %d rows of %d", finished, len(got), len(all))
	}
}
