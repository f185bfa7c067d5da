package postgres

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/test/needstest"
)

func TestLongKeysSortAsAllOthers(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	a, b := strings.Repeat("a", maxShort), strings.Repeat("b", maxShort)
	pool := []string{"a", a[1:], a, a + "\x00", a + "a", a + "b", a + "\xff", a + strings.Repeat("\xff", 40), a + strings.Repeat("z", 20000), "ab", b[1:] + "a", b, b + "x", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		db := openOn(t, s, Options{NoHints: true})
		defer func() { _ = db.Close() }()
		keys := slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(rapid.SampledFrom(pool), 1, 14).Draw(rt, "keys"))))
		split := rapid.IntRange(0, len(keys)).Draw(rt, "committed")
		gone := rapid.SampledFrom(keys).Draw(rt, "deleted")
		from, to := rapid.SampledFrom(pool).Draw(rt, "from"), rapid.SampledFrom(pool).Draw(rt, "to")
		shuffled := rapid.Permutation(keys).Draw(rt, "order")
		update(t, db, func(tx store.Tx) {
			for _, k := range shuffled[:split] {
				tx.Set([]byte(k), []byte("v"+k))
			}
		})
		check := func(tx store.Tx, want []string) {
			for _, k := range pool {
				v, ok := tx.Get([]byte(k))
				if has := slices.Contains(want, k); ok != has || ok && string(v) != "v"+k {
					rt.Fatalf("Get of a key of %d bytes = %d bytes, %v", len(k), len(v), ok)
				}
			}
			var got, back []string
			for k, v := range tx.Scan([]byte(from), []byte(to)) {
				if string(v) != "v"+string(k) {
					rt.Fatalf("the value of a key of %d bytes has %d", len(k), len(v))
				}
				got = append(got, string(k))
			}
			for k := range tx.ScanBack([]byte(from), []byte(to)) {
				back = append(back, string(k))
			}
			slices.Reverse(back)
			inside := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return k < from || k >= to })
			if !slices.Equal(got, inside) || !slices.Equal(back, inside) {
				rt.Fatalf("scans yield %d and %d keys, want %d", len(got), len(back), len(inside))
			}
		}
		left := slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == gone })
		update(t, db, func(tx store.Tx) {
			for _, k := range shuffled[split:] {
				tx.Set([]byte(k), []byte("v"+k))
			}
			check(tx, keys)
			tx.Delete([]byte(gone))
			check(tx, left)
		})
		view(t, db, func(tx store.Tx) { check(tx, left) })
	})
}

func TestALongPrefixWithManyKeys(t *testing.T) {
	s := use(t)
	db := openOn(t, s, Options{NoHints: true})
	prefix := bytes.Repeat([]byte("p"), maxShort+5)
	const n = 300
	update(t, db, func(tx store.Tx) {
		tx.Set([]byte("a"), nil)
		tx.Set([]byte("z"), nil)
		for i := range n {
			tx.Set(fmt.Appendf(slices.Clone(prefix), "%03d", i), []byte("v"))
		}
	})
	view(t, db, func(tx store.Tx) {
		i := 0
		for k := range tx.Scan(fmt.Appendf(slices.Clone(prefix), "%03d", 7), []byte("q")) {
			if want := fmt.Sprintf("%03d", i+7); string(k[len(prefix):]) != want {
				t.Fatalf("key %d ends with %s", i+7, k[len(prefix):])
			}
			i++
		}
		if i != n-7 {
			t.Errorf("%d keys, want %d", i, n-7)
		}
	})
}

// FuzzDecode: a row that was written comes back, and no other is taken.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("k"), []byte("v"))
	f.Add(bytes.Repeat([]byte("k"), maxShort+1), []byte("v"))
	f.Add(bytes.Repeat([]byte("k"), maxShort+32), []byte{5, 1, 2})
	f.Fuzz(func(t *testing.T, key, val []byte) {
		if r, err := decode(key, val); err == nil && long(key) && !bytes.Equal(place(r.key), key) {
			t.Errorf("%x was taken for a row of another key", val)
		}
		if len(key) == 0 || len(key) > store.MaxKey {
			return
		}
		k := place(key)
		if r, err := decode(k, content(key, val)); err != nil || !bytes.Equal(r.key, key) || !bytes.Equal(r.val, val) {
			t.Errorf("%x = %x comes back as %x = %x, %v", key, val, r.key, r.val, err)
		}
		if bytes.Compare(k, lower(key)) < 0 || bytes.Compare(k, upper(append(bytes.Clone(key), 0))) >= 0 {
			t.Errorf("%x lies outside of its own range", key)
		}
	})
}

func TestABigRangeComesInPages(t *testing.T) {
	s := use(t)
	schema := freshSchema()
	db := openOn(t, s, Options{URL: s.url(schema), NoHints: true})
	const n = 100_000
	s.admin(t, `INSERT INTO `+schema+`.kv SELECT convert_to(lpad(i::text, 8, '0'), 'UTF8'), '\x00'::bytea FROM generate_series(0, $1::int - 1) i`, n)
	started := time.Now()
	update(t, db, func(in store.Tx) {
		i, pages := 0, 0
		for k := range in.Scan(nil, nil) {
			if want := fmt.Sprintf("%08d", i); string(k) != want {
				t.Fatalf("row %d is %s", i, k)
			}
			if i%1000 == 999 {
				in.Delete(k)
				pages++
			}
			i++
		}
		if i != n {
			t.Errorf("%d rows", i)
		}
		for range in.ScanBack(nil, nil) {
			i--
		}
		if i != pages {
			t.Errorf("%d rows backwards, want %d", n-i, n-pages)
		}
		c := in.(*tx).cursor(nil, nil, false)
		most := 0
		for _, ok := c.next(); ok; _, ok = c.next() {
			most = max(most, len(c.buf)+1)
		}
		if most > maxPage {
			t.Errorf("a page of %d rows", most)
		}
	})
	t.Logf("three scans of %d rows in %v", n, time.Since(started).Round(time.Millisecond))
}

func TestBigValuesMakeSmallPages(t *testing.T) {
	s := use(t)
	db := openOn(t, s, Options{NoHints: true})
	big := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	for i := range 40 {
		update(t, db, func(tx store.Tx) { tx.Set(fmt.Appendf(nil, "%02d", i), big) })
	}
	view(t, db, func(in store.Tx) {
		c := in.(*tx).cursor(nil, nil, false)
		n := 0
		for r, ok := c.next(); ok; r, ok = c.next() {
			n++
			if !bytes.Equal(r.val, big) || len(c.buf) >= firstPage {
				t.Fatalf("row %d has %d bytes, and %d more came with it", n, len(r.val), len(c.buf))
			}
		}
		if n != 40 {
			t.Errorf("%d rows", n)
		}
	})
}

// A predicate lock of a whole table makes every transaction conflict with every
// other one. The planner likes to read small tables whole.
func TestNoStatementLocksAWholeTable(t *testing.T) {
	s := use(t)
	schema := freshSchema()
	db := openOn(t, s, Options{URL: s.url(schema), Replica: schema, NoHints: true})
	update(t, db, func(tx store.Tx) { setNumber(tx, "a", 1); setNumber(tx, "b", 1); setNumber(tx, "c", 1) })
	for range 8 { // past the plans that are made anew each time
		view(t, db, func(tx store.Tx) { number(tx, "a") })
		update(t, db, func(tx store.Tx) {
			number(tx, "a")
			number(tx, "none")
			for range tx.Scan([]byte("b"), []byte("c")) {
			}
			for range tx.ScanBack(nil, nil) {
				break
			}
			for range tx.Scan([]byte("c"), nil) {
				break
			}
			if n := s.ask(t, `SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE l.mode = 'SIReadLock' AND l.locktype = 'relation' AND n.nspname = $1`, schema); n != 0 {
				t.Errorf("%d predicate locks of whole tables", n)
			}
			if n := s.ask(t, `SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock'`); n == 0 {
				t.Error("no predicate locks at all: this shows nothing")
			}
			setNumber(tx, "a", 2)
			tx.Delete([]byte("c"))
			setNumber(tx, "c", 3)
			tx.Delete([]byte("d"))
		})
	}
}

// Without predicates two such transactions would both commit.
func TestWriteSkewIsPrevented(t *testing.T) {
	s := use(t)
	f := openFleet(t, s, Options{NoHints: true})
	update(t, f, func(tx store.Tx) { setNumber(tx, "on/a", 1); setNumber(tx, "on/b", 1) })
	both := make(chan struct{})
	done := make(chan error, 2)
	for i, key := range []string{"on/a", "on/b"} {
		first := true
		go func() {
			done <- f.dbs[i].Update(t.Context(), func(tx store.Tx) error {
				n := 0
				for range tx.Scan([]byte("on"), []byte("oo")) {
					n++
				}
				if first {
					first = false
					select {
					case both <- struct{}{}:
					case <-both:
					}
				}
				if n > 1 {
					tx.Delete([]byte(key))
				}
				return nil
			})
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	view(t, f, func(tx store.Tx) {
		n := 0
		for range tx.Scan([]byte("on"), []byte("oo")) {
			n++
		}
		if n != 1 {
			t.Errorf("%d are on, want 1", n)
		}
	})
}

func TestAnErrorIsOnlyToldIfWhatItRestsOnIsSerializable(t *testing.T) {
	s := use(t)
	f := openFleet(t, s, Options{NoHints: true})
	update(t, f, func(tx store.Tx) { setNumber(tx, "a", 1); setNumber(tx, "b", 1) })
	runs := 0
	wrong := fmt.Errorf("a and b differ")
	if err := f.dbs[0].Update(t.Context(), func(tx store.Tx) error {
		runs++
		a := number(tx, "a")
		if runs == 1 {
			update(t, f.dbs[1], func(tx store.Tx) { setNumber(tx, "a", 2); setNumber(tx, "b", 2) })
		}
		if b := number(tx, "b"); a != b {
			return wrong
		}
		return nil
	}); err != nil {
		t.Errorf("Update = %v after %d runs", err, runs)
	}
}
