// Package storetest is what every engine of package store has to pass: [Run]
// for the contract of DB and Tx, [RunDurable] for engines that keep their rows,
// and [RunQueue] and [RunOutbox] for the packages that are written
// once over Tx and must hold on any engine.
//
// An engine's test is a few lines. It tests an engine through its interface
// only; what a power failure does to a file is the engine's own matter to test.
package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"countersign/store"
)

var errTest = errors.New("storetest: meant to fail")

// Run checks an engine. open returns an empty database each time it is called;
// the suite closes it.
func Run(t *testing.T, open func(t *testing.T) store.DB) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, db store.DB)
	}{
		{"a value set is the value got", testGetSet},
		{"a scan yields its half-open range in order", testScan},
		{"deleting the yielded key during a scan is allowed", testDeleteDuringScan},
		{"a transaction sees its own writes", testOwnWrites},
		{"a view keeps its snapshot", testSnapshot},
		{"an error rolls back and comes back", testError},
		{"an abort rolls back and comes back", testAbort},
		{"a panic rolls back and goes on its way", testPanic},
		{"a goroutine that ends inside leaves the database usable", testGoexit},
		{"a view cannot write", testReadOnly},
		{"keys have limits", testKeySize},
		{"slices are not aliased", testAlias},
		{"concurrent updates are serializable", testCounter},
		{"a failing update does not harm those beside it", testNeighbours},
		{"a waiting update ends with its context", testContext},
		{"a closed database refuses", testClosed},
		{"close waits for running transactions", testCloseWaits},
		{"big values and many rows survive", testBig},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t)
			defer closeDB(t, db)
			c.test(t, db)
		})
	}
	t.Run("any history equals the model's", func(t *testing.T) { testModel(t, open) })
}

// RunDurable checks that what Update acknowledged is there after the database
// was opened again. open opens the database in dir, and creates it at first.
func RunDurable(t *testing.T, open func(t *testing.T, dir string) store.DB) {
	t.Run("a reopened database has what was committed", func(t *testing.T) {
		dir := t.TempDir()
		want := map[string]string{}
		for round := range 5 {
			db := open(t, dir)
			view(t, db, func(tx store.Tx) { sameRows(t, tx, want) })
			for i := range 20 {
				key, val := fmt.Sprintf("k%02d", (i*7+round)%30), fmt.Sprintf("%d/%d", round, i)
				if i%5 == 4 {
					update(t, db, func(tx store.Tx) { tx.Delete([]byte(key)) })
					delete(want, key)
					continue
				}
				update(t, db, func(tx store.Tx) { tx.Set([]byte(key), []byte(val)) })
				want[key] = val
				if err := db.Update(t.Context(), func(tx store.Tx) error {
					tx.Set([]byte("lost"), []byte(val))
					return errTest
				}); !errors.Is(err, errTest) {
					t.Fatalf("Update = %v, want %v", err, errTest)
				}
			}
			closeDB(t, db)
		}
	})
	t.Run("any history survives reopening at any point", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			dir := t.TempDir()
			db := open(t, dir)
			defer func() { closeDB(t, db) }()
			model := map[string]string{}
			for range rapid.IntRange(1, 12).Draw(rt, "steps") {
				if rapid.IntRange(0, 3).Draw(rt, "step") == 0 {
					closeDB(t, db)
					db = open(t, dir)
				} else {
					model = modelUpdate(rt, t, db, model)
				}
				view(t, db, func(tx store.Tx) { sameRows(rt, tx, model) })
			}
		})
	})
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func update(t testing.TB, db store.DB, fn func(tx store.Tx)) {
	t.Helper()
	if err := db.Update(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatalf("Update: %v", err)
	}
}

func view(t testing.TB, db store.DB, fn func(tx store.Tx)) {
	t.Helper()
	if err := db.View(t.Context(), func(tx store.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatalf("View: %v", err)
	}
}

func closeDB(t testing.TB, db store.DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func set(tx store.Tx, kv ...string) {
	for i := 0; i < len(kv); i += 2 {
		tx.Set([]byte(kv[i]), []byte(kv[i+1]))
	}
}

func get(tx store.Tx, key string) string {
	val, ok := tx.Get([]byte(key))
	if !ok {
		return "none"
	}
	return string(val)
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func wantSlice[T comparable](t testing.TB, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// bound makes a range limit; "-" is nil.
func bound(s string) []byte {
	if s == "-" {
		return nil
	}
	return []byte(s)
}

func keys(tx store.Tx, start, end []byte) []string {
	got := []string{}
	for k := range tx.Scan(start, end) {
		got = append(got, string(k))
	}
	return got
}

func keysBack(tx store.Tx, start, end []byte) []string {
	got := []string{}
	for k := range tx.ScanBack(start, end) {
		got = append(got, string(k))
	}
	return got
}

func sameRows(t failer, tx store.Tx, model map[string]string) {
	t.Helper()
	got := map[string]string{}
	for k, v := range tx.Scan(nil, nil) {
		got[string(k)] = string(v)
	}
	if !maps.Equal(got, model) {
		t.Fatalf("the rows are %q, want %q", got, model)
	}
}

func testGetSet(t *testing.T, db store.DB) {
	view(t, db, func(tx store.Tx) {
		want(t, "a missing key", get(tx, "a"), "none")
		wantSlice(t, "rows of a new database", keys(tx, nil, nil))
	})
	update(t, db, func(tx store.Tx) { set(tx, "a", "1", "b", "", "c\x00", "3", "\x00", "0") })
	view(t, db, func(tx store.Tx) {
		want(t, "a", get(tx, "a"), "1")
		if val, ok := tx.Get([]byte("b")); !ok || val == nil || len(val) != 0 {
			t.Errorf("an empty value comes back as %v, %v", val, ok)
		}
		want(t, "c0", get(tx, "c\x00"), "3")
		want(t, "0", get(tx, "\x00"), "0")
		want(t, "c", get(tx, "c"), "none")
	})
	update(t, db, func(tx store.Tx) {
		set(tx, "a", "2")
		tx.Set([]byte("n"), nil)
		tx.Delete([]byte("b"))
		tx.Delete([]byte("missing"))
		tx.Delete(nil)
	})
	view(t, db, func(tx store.Tx) {
		want(t, "a", get(tx, "a"), "2")
		want(t, "a nil value", get(tx, "n"), "")
		want(t, "a deleted key", get(tx, "b"), "none")
		want(t, "the empty key", get(tx, ""), "none")
	})
}

func testScan(t *testing.T, db store.DB) {
	// In several transactions, so that an engine with layers has rows in each.
	for _, k := range []string{"d", "a", "c", "x", "b", "e"} {
		update(t, db, func(tx store.Tx) { set(tx, k, "old") })
	}
	update(t, db, func(tx store.Tx) { tx.Delete([]byte("x")); set(tx, "c", "new") })
	check := func(tx store.Tx) {
		for _, c := range []struct {
			start, end string
			want       []string
		}{
			{"-", "-", []string{"a", "b", "c", "d", "e"}},
			{"", "-", []string{"a", "b", "c", "d", "e"}},
			{"b", "d", []string{"b", "c"}},
			{"b\x00", "d\x00", []string{"c", "d"}},
			{"bb", "zz", []string{"c", "d", "e"}},
			{"b", "b", nil},
			{"d", "b", nil},
			{"e", "-", []string{"e"}},
			{"f", "-", nil},
			{"-", "a", nil},
			{"-", "", nil},
			{"-", "b", []string{"a"}},
		} {
			got := keys(tx, bound(c.start), bound(c.end))
			wantSlice(t, fmt.Sprintf("Scan(%q, %q)", c.start, c.end), got, c.want...)
			got = keysBack(tx, bound(c.start), bound(c.end))
			slices.Reverse(got)
			wantSlice(t, fmt.Sprintf("ScanBack(%q, %q), reversed,", c.start, c.end), got, c.want...)
		}
		for k, v := range tx.Scan([]byte("c"), nil) {
			want(t, "the first pair from c", string(k)+"="+string(v), "c=new")
			break
		}
		for k := range tx.ScanBack(nil, nil) {
			want(t, "the last key", string(k), "e")
			break
		}
	}
	view(t, db, check)
	update(t, db, check)
}

func testDeleteDuringScan(t *testing.T, db store.DB) {
	for i := range 50 {
		update(t, db, func(tx store.Tx) { set(tx, fmt.Sprintf("k%02d", i), "v") })
	}
	update(t, db, func(tx store.Tx) {
		n := 0
		for k := range tx.Scan([]byte("k10"), []byte("k40")) {
			want(t, "key", string(k), fmt.Sprintf("k%02d", 10+n))
			tx.Delete(k)
			n++
		}
		want(t, "keys yielded", n, 30)
		want(t, "keys left", len(keys(tx, nil, nil)), 20)
		for k := range tx.ScanBack(nil, nil) {
			tx.Delete(k)
		}
		want(t, "keys left", len(keys(tx, nil, nil)), 0)
	})
	view(t, db, func(tx store.Tx) { want(t, "keys left", len(keys(tx, nil, nil)), 0) })
}

func testOwnWrites(t *testing.T, db store.DB) {
	update(t, db, func(tx store.Tx) { set(tx, "a", "1", "b", "1") })
	update(t, db, func(tx store.Tx) {
		set(tx, "b", "2", "c", "2")
		tx.Delete([]byte("a"))
		wantSlice(t, "keys", keys(tx, nil, nil), "b", "c")
		want(t, "a", get(tx, "a"), "none")
		want(t, "b", get(tx, "b"), "2")
		set(tx, "a", "3")
		tx.Delete([]byte("c"))
		wantSlice(t, "keys", keysBack(tx, nil, nil), "b", "a")
	})
}

func testSnapshot(t *testing.T, db store.DB) {
	update(t, db, func(tx store.Tx) { set(tx, "a", "1") })
	view(t, db, func(tx store.Tx) {
		want(t, "a before", get(tx, "a"), "1")
		done := make(chan error)
		go func() {
			var err error
			for i := range 20 {
				err = errors.Join(err, db.Update(t.Context(), func(tx store.Tx) error {
					set(tx, "a", "2", fmt.Sprint("new", i), "2")
					return nil
				}))
			}
			done <- err
		}()
		if err := <-done; err != nil {
			t.Errorf("Update beside a View: %v", err)
		}
		want(t, "a after", get(tx, "a"), "1")
		wantSlice(t, "keys", keys(tx, nil, nil), "a")
	})
	view(t, db, func(tx store.Tx) { want(t, "a in the next view", get(tx, "a"), "2") })
}

func testError(t *testing.T, db store.DB) {
	update(t, db, func(tx store.Tx) { set(tx, "a", "1") })
	wrapped := fmt.Errorf("outer: %w", errTest)
	got := db.Update(t.Context(), func(tx store.Tx) error {
		set(tx, "a", "2", "b", "2")
		return wrapped
	})
	want(t, "the error of Update", got, wrapped)
	want(t, "the error of View", db.View(t.Context(), func(store.Tx) error { return wrapped }), wrapped)
	view(t, db, func(tx store.Tx) { sameRows(t, tx, map[string]string{"a": "1"}) })
}

func testAbort(t *testing.T, db store.DB) {
	got := db.Update(t.Context(), func(tx store.Tx) error {
		set(tx, "a", "2")
		for range tx.Scan(nil, nil) {
			store.Abort(errTest)
		}
		t.Error("Abort returned")
		return nil
	})
	want(t, "the error of Update", got, errTest)
	got = db.View(t.Context(), func(tx store.Tx) error {
		sameRows(t, tx, map[string]string{})
		store.Abort(errTest)
		return nil
	})
	want(t, "the error of View", got, errTest)
	update(t, db, func(tx store.Tx) { tx.Set([]byte("row"), []byte("{")) })
	err := db.View(t.Context(), func(tx store.Tx) error {
		store.Load[int](tx, []byte("row"))
		return nil
	})
	if err == nil {
		t.Error("a row that does not decode is not an error")
	}
}

func testPanic(t *testing.T, db store.DB) {
	for name, run := range map[string]func(context.Context, func(store.Tx) error) error{"Update": db.Update, "View": db.View} {
		func() {
			defer func() { want(t, "the panic of "+name, recover(), any("boom")) }()
			_ = run(t.Context(), func(tx store.Tx) error {
				if name == "Update" {
					set(tx, "a", "2")
				}
				panic("boom")
			})
		}()
	}
	update(t, db, func(tx store.Tx) {
		sameRows(t, tx, map[string]string{})
		set(tx, "b", "1")
	})
	view(t, db, func(tx store.Tx) { sameRows(t, tx, map[string]string{"b": "1"}) })
}

// testGoexit ends transactions as t.FailNow does.
func testGoexit(t *testing.T, db store.DB) {
	for _, run := range []func(context.Context, func(store.Tx) error) error{db.Update, db.View} {
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = run(t.Context(), func(store.Tx) error {
				runtime.Goexit()
				return nil
			})
		})
		wg.Wait()
	}
	update(t, db, func(tx store.Tx) { set(tx, "b", "1") })
}

func testReadOnly(t *testing.T, db store.DB) {
	for name, write := range map[string]func(store.Tx){
		"Set":    func(tx store.Tx) { set(tx, "a", "1") },
		"Delete": func(tx store.Tx) { tx.Delete([]byte("a")) },
	} {
		err := db.View(t.Context(), func(tx store.Tx) error { write(tx); return nil })
		if !errors.Is(err, store.ErrReadOnly) {
			t.Errorf("%s in a View: %v, want %v", name, err, store.ErrReadOnly)
		}
	}
}

func testKeySize(t *testing.T, db store.DB) {
	long := bytes.Repeat([]byte("k"), store.MaxKey)
	update(t, db, func(tx store.Tx) { tx.Set(long, []byte("v")) })
	view(t, db, func(tx store.Tx) { want(t, "the longest key", get(tx, string(long)), "v") })
	for _, key := range [][]byte{nil, {}, append(long, 'k')} {
		err := db.Update(t.Context(), func(tx store.Tx) error { tx.Set(key, []byte("v")); return nil })
		if !errors.Is(err, store.ErrKeySize) {
			t.Errorf("a key of %d bytes: %v, want %v", len(key), err, store.ErrKeySize)
		}
	}
}

func testAlias(t *testing.T, db store.DB) {
	scribble := func(b []byte) {
		for i := range b {
			b[i] = 'X'
		}
	}
	for i := range 3 { // through the layers of an engine that has some
		update(t, db, func(tx store.Tx) {
			key, val := []byte("key"), []byte("val")
			tx.Set(key, val)
			scribble(key)
			scribble(val)
			set(tx, fmt.Sprint("other", i), "o")
		})
		read := func(tx store.Tx) {
			val, _ := tx.Get([]byte("key"))
			want(t, "val", string(val), "val")
			scribble(val)
			for k, v := range tx.Scan([]byte("k"), []byte("l")) {
				want(t, "scanned", string(k)+string(v), "keyval")
				scribble(k)
				scribble(v)
			}
			for k, v := range tx.ScanBack([]byte("k"), []byte("l")) {
				want(t, "scanned back", string(k)+string(v), "keyval")
				scribble(k)
				scribble(v)
			}
			want(t, "val again", get(tx, "key"), "val")
		}
		view(t, db, read)
		update(t, db, read)
		view(t, db, read)
	}
	update(t, db, func(tx store.Tx) {
		key := []byte("gone")
		set(tx, "gone", "1")
		tx.Delete(key)
		scribble(key)
		want(t, "a deleted key", get(tx, "gone"), "none")
	})
}

func increment(tx store.Tx, key string) uint64 {
	var n uint64
	if val, ok := tx.Get([]byte(key)); ok {
		n = binary.BigEndian.Uint64(val)
	}
	n++
	tx.Set([]byte(key), binary.BigEndian.AppendUint64(nil, n))
	return n
}

func testCounter(t *testing.T, db store.DB) {
	const writers, rounds = 16, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var last uint64
			for range rounds {
				var now uint64
				run := db.Update
				if w%2 == 1 {
					run = func(ctx context.Context, fn func(store.Tx) error) error { return store.UpdateRelaxed(ctx, db, fn) }
				}
				if err := run(t.Context(), func(tx store.Tx) error {
					now = increment(tx, "total")
					increment(tx, fmt.Sprint("own", w))
					return nil
				}); err != nil {
					t.Errorf("Update: %v", err)
					return
				}
				if now <= last {
					t.Errorf("the counter went from %d to %d", last, now)
				}
				last = now
				if err := db.View(t.Context(), func(tx store.Tx) error {
					val, _ := tx.Get([]byte("total"))
					if n := binary.BigEndian.Uint64(val); n < now {
						t.Errorf("a view sees %d after %d was acknowledged", n, now)
					}
					var sum uint64
					for _, v := range tx.Scan([]byte("own"), []byte("owo")) {
						sum += binary.BigEndian.Uint64(v)
					}
					want(t, "the sum of the parts", sum, binary.BigEndian.Uint64(val))
					return nil
				}); err != nil {
					t.Errorf("View: %v", err)
				}
			}
		})
	}
	wg.Wait()
	view(t, db, func(tx store.Tx) {
		val, _ := tx.Get([]byte("total"))
		want(t, "the total", binary.BigEndian.Uint64(val), writers*rounds)
	})
}

func testNeighbours(t *testing.T, db store.DB) {
	const writers = 32
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range 10 {
				key := fmt.Sprintf("%02d-%02d", w, i)
				func() {
					defer func() { _ = recover() }()
					err := db.Update(t.Context(), func(tx store.Tx) error {
						set(tx, key, "v")
						increment(tx, "count")
						switch w % 4 {
						case 1:
							return errTest
						case 2:
							store.Abort(errTest)
						case 3:
							panic("boom")
						}
						return nil
					})
					if failed := w%4 != 0; errors.Is(err, errTest) != failed {
						t.Errorf("%s: %v", key, err)
					}
				}()
			}
		})
	}
	wg.Wait()
	view(t, db, func(tx store.Tx) {
		rows := keys(tx, []byte("0"), []byte("9"))
		want(t, "rows", len(rows), writers/4*10)
		for _, k := range rows {
			var w int
			if _, err := fmt.Sscanf(k, "%02d-", &w); err != nil || w%4 != 0 {
				t.Errorf("%s was kept although it failed", k)
			}
		}
		val, _ := tx.Get([]byte("count"))
		want(t, "count", binary.BigEndian.Uint64(val), writers/4*10)
	})
}

func testContext(t *testing.T, db store.DB) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ran := func(store.Tx) error { t.Error("the function ran"); return nil }
	want(t, "Update with a dead context", errors.Is(db.Update(ctx, ran), context.Canceled), true)
	want(t, "View with a dead context", errors.Is(db.View(ctx, ran), context.Canceled), true)

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	started, hold, first := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		first <- db.Update(t.Context(), func(tx store.Tx) error {
			close(started)
			<-hold
			set(tx, "first", "1")
			return nil
		})
	}()
	<-started
	second := make(chan error)
	go func() { second <- db.Update(ctx, ran) }()
	cancel()
	want(t, "a waiting Update", errors.Is(<-second, context.Canceled), true)
	close(hold)
	want(t, "the first Update", <-first, nil)

	ctx, cancel = context.WithCancel(t.Context())
	if err := db.Update(ctx, func(tx store.Tx) error {
		cancel()
		set(tx, "third", "1")
		return nil
	}); err != nil {
		t.Errorf("an Update whose context ended while it ran: %v", err)
	}
	view(t, db, func(tx store.Tx) { wantSlice(t, "keys", keys(tx, nil, nil), "first", "third") })
}

func testClosed(t *testing.T, db store.DB) {
	update(t, db, func(tx store.Tx) { set(tx, "a", "1") })
	closeDB(t, db)
	ran := func(store.Tx) error { t.Error("the function ran"); return nil }
	want(t, "Update", errors.Is(db.Update(t.Context(), ran), store.ErrClosed), true)
	want(t, "View", errors.Is(db.View(t.Context(), ran), store.ErrClosed), true)
	closeDB(t, db)
}

func testCloseWaits(t *testing.T, db store.DB) {
	started, hold := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	for _, run := range []func(context.Context, func(store.Tx) error) error{db.Update, db.View} {
		go func() {
			results <- run(t.Context(), func(tx store.Tx) error {
				started <- struct{}{}
				<-hold
				get(tx, "a")
				return nil
			})
		}()
		<-started
	}
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	for refused := false; !refused; runtime.Gosched() {
		ctx, cancel := context.WithCancel(t.Context())
		// Until Close began the view still runs.
		refused = errors.Is(db.View(ctx, func(store.Tx) error { return nil }), store.ErrClosed)
		cancel()
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned %v while transactions ran", err)
	default:
	}
	close(hold)
	want(t, "a transaction", <-results, nil)
	want(t, "a transaction", <-results, nil)
	want(t, "Close", <-closed, nil)
}

func testBig(t *testing.T, db store.DB) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 64<<10/16)
	for i := range 20 {
		update(t, db, func(tx store.Tx) {
			for j := range 50 {
				set(tx, fmt.Sprintf("row%02d%02d", i, j), fmt.Sprint(i, j))
			}
			tx.Set(fmt.Appendf(nil, "big%02d", i), append(big, byte(i)))
		})
	}
	view(t, db, func(tx store.Tx) {
		want(t, "rows", len(keys(tx, []byte("row"), []byte("rox"))), 1000)
		for i := range 20 {
			val, _ := tx.Get(fmt.Appendf(nil, "big%02d", i))
			if !bytes.Equal(val, append(big, byte(i))) {
				t.Errorf("big value %d came back with %d bytes", i, len(val))
			}
		}
	})
}

var modelKeys = rapid.StringOfN(rapid.RuneFrom([]rune{'a', 'b', 'c', 0}), 1, 3, -1)

// modelUpdate runs one random Update against db and model and returns the model
// after it.
func modelUpdate(rt *rapid.T, t *testing.T, db store.DB, model map[string]string) map[string]string {
	type op struct {
		kind       int
		key, upper string
		val        string
	}
	ops := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) op {
		return op{
			kind:  rapid.IntRange(0, 6).Draw(rt, "kind"),
			key:   modelKeys.Draw(rt, "key"),
			upper: modelKeys.Draw(rt, "upper"),
			val:   rapid.StringN(0, 40, -1).Draw(rt, "val"),
		}
	}), 1, 12).Draw(rt, "ops")
	fail := rapid.IntRange(0, 4).Draw(rt, "fail")
	run := db.Update
	if rapid.Bool().Draw(rt, "relaxed") {
		run = func(ctx context.Context, fn func(store.Tx) error) error { return store.UpdateRelaxed(ctx, db, fn) }
	}
	var after map[string]string
	err := run(t.Context(), func(tx store.Tx) error {
		after = maps.Clone(model)
		for _, o := range ops {
			inside := []string{}
			for _, k := range slices.Sorted(maps.Keys(after)) {
				if k >= o.key && (k < o.upper || o.val == "") {
					inside = append(inside, k)
				}
			}
			end := []byte(o.upper)
			if o.val == "" {
				end = nil
			}
			switch o.kind {
			case 0, 1, 2:
				set(tx, o.key, o.val)
				after[o.key] = o.val
			case 3:
				tx.Delete([]byte(o.key))
				delete(after, o.key)
			case 4:
				for k := range tx.Scan([]byte(o.key), end) {
					tx.Delete(k)
					delete(after, string(k))
				}
			case 5:
				if got := keys(tx, []byte(o.key), end); !slices.Equal(got, inside) {
					rt.Fatalf("Scan(%q, %q) = %q, want %q", o.key, end, got, inside)
				}
				got := keysBack(tx, []byte(o.key), end)
				slices.Reverse(got)
				if !slices.Equal(got, inside) {
					rt.Fatalf("ScanBack(%q, %q) reversed = %q, want %q", o.key, end, got, inside)
				}
			case 6:
				val, ok := tx.Get([]byte(o.key))
				if exp, has := after[o.key]; ok != has || string(val) != exp {
					rt.Fatalf("Get(%q) = %q, %v, want %q, %v", o.key, val, ok, exp, has)
				}
			}
		}
		sameRows(rt, tx, after)
		switch fail {
		case 1:
			return errTest
		case 2:
			store.Abort(errTest)
		}
		return nil
	})
	failed := fail == 1 || fail == 2
	if failed != errors.Is(err, errTest) || !failed && err != nil {
		rt.Fatalf("Update = %v", err)
	}
	if failed {
		return model
	}
	return after
}

func testModel(t *testing.T, open func(t *testing.T) store.DB) {
	rapid.Check(t, func(rt *rapid.T) {
		db := open(t)
		defer closeDB(t, db)
		model := map[string]string{}
		for range rapid.IntRange(1, 15).Draw(rt, "updates") {
			model = modelUpdate(rt, t, db, model)
			view(t, db, func(tx store.Tx) { sameRows(rt, tx, model) })
		}
	})
}
