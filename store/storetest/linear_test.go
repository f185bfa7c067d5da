package storetest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"iter"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"countersign/store"
)

// kept is a store of all its versions that can be broken in many ways. With all
// of them off it is serializable and its Views are linear. Each func says whether
// a transaction goes wrong.
type kept struct {
	lag      func() int  // how many versions a View is behind
	behind   func() int  // the same for Updates, which are then not checked
	snapshot bool        // Updates run beside each other; of two that write one key, one runs again
	careless bool        // and not even that
	lose     func() bool // acknowledges and keeps nothing
	half     func() bool // keeps the first write only
	twice    func() bool // runs the function again after it committed
	again    func() bool // does the writes of a former transaction again
	tear     func() bool // a View goes on with an older version
	keep     func() bool // keeps what a function that refused wrote
	lie      func() bool // says errBroken and keeps it
	doubt    func() bool // says errDoubt

	mu       sync.Mutex
	versions []map[string]string
	written  map[string]int // the version that wrote the key last
	former   map[string]*string
}

var (
	errBroken = errors.New("storetest: nothing was written")
	errDoubt  = errors.New("storetest: perhaps it was written")
)

func is(fn func() bool) bool { return fn != nil && fn() }

// one is true for one of n transactions.
func one(n int) func() bool { return func() bool { return rand.IntN(n) == 0 } }

func (db *kept) Close() error { return nil }

func (db *kept) version(back int) (map[string]string, int) {
	if len(db.versions) == 0 {
		db.versions = []map[string]string{{}}
	}
	n := max(len(db.versions)-1-back, 0)
	return db.versions[n], n
}

func (db *kept) View(_ context.Context, fn func(store.Tx) error) error {
	db.mu.Lock()
	back := 0
	if db.lag != nil {
		back = db.lag()
	}
	rows, n := db.version(back)
	t := &keptTx{rows: rows}
	if is(db.tear) {
		older := db.versions[max(n-3, 0)]
		t.later = &older
	}
	db.mu.Unlock()
	return t.run(fn)
}

func (db *kept) Update(_ context.Context, fn func(store.Tx) error) error {
	if !db.snapshot && !db.careless {
		db.mu.Lock()
		defer db.mu.Unlock()
		back := 0
		if db.behind != nil {
			back = db.behind()
		}
		rows, _ := db.version(back)
		t := &keptTx{rows: rows, over: map[string]*string{}}
		err := t.run(fn)
		return db.commit(t, fn, err)
	}
	for {
		db.mu.Lock()
		rows, n := db.version(0)
		db.mu.Unlock()
		t := &keptTx{rows: rows, over: map[string]*string{}}
		err := t.run(fn)
		runtime.Gosched()
		db.mu.Lock()
		clean := true
		for k := range t.over {
			clean = clean && (db.careless || db.written[k] <= n)
		}
		if clean {
			err = db.commit(t, fn, err)
		}
		db.mu.Unlock()
		if clean {
			return err
		}
	}
}

// commit is called under mu.
func (db *kept) commit(t *keptTx, fn func(store.Tx) error, err error) error {
	if err != nil && !is(db.keep) {
		return err
	}
	doubt := is(db.doubt)
	if err == nil && (is(db.lose) || doubt && rand.IntN(2) == 0) {
		if doubt {
			return errDoubt
		}
		return nil
	}
	if is(db.half) {
		for _, k := range slices.Sorted(maps.Keys(t.over))[min(len(t.over), 1):] {
			delete(t.over, k)
		}
	}
	db.apply(t.over)
	if db.former != nil && is(db.again) {
		db.apply(db.former)
	}
	if len(t.over) > 0 {
		db.former = t.over
	}
	if err == nil && is(db.twice) {
		rows, _ := db.version(0)
		second := &keptTx{rows: rows, over: map[string]*string{}}
		if second.run(fn) == nil {
			db.apply(second.over)
		}
	}
	switch {
	case err == nil && is(db.lie):
		return errBroken
	case doubt:
		return errDoubt
	}
	return err
}

func (db *kept) apply(over map[string]*string) {
	newest, n := db.version(0)
	rows := maps.Clone(newest)
	if db.written == nil {
		db.written = map[string]int{}
	}
	for k, v := range over {
		db.written[k] = n + 1
		if v == nil {
			delete(rows, k)
		} else {
			rows[k] = *v
		}
	}
	db.versions = append(db.versions, rows)
}

type keptTx struct {
	rows  map[string]string
	later *map[string]string // instead of rows, after the first read
	over  map[string]*string // nil in a View
}

func (t *keptTx) run(fn func(store.Tx) error) (err error) {
	defer store.Catch(&err)
	return fn(t)
}

func (t *keptTx) all() map[string]string {
	rows := maps.Clone(t.rows)
	for k, v := range t.over {
		if v == nil {
			delete(rows, k)
		} else {
			rows[k] = *v
		}
	}
	if t.later != nil {
		t.rows = *t.later
	}
	return rows
}

func (t *keptTx) Get(key []byte) ([]byte, bool) {
	v, ok := t.all()[string(key)]
	return []byte(v), ok
}

func (t *keptTx) Set(key, val []byte) { s := string(val); t.over[string(key)] = &s }
func (t *keptTx) Delete(key []byte)   { t.over[string(key)] = nil }

func (t *keptTx) pairs(start, end []byte, back bool) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		rows := t.all()
		keys := slices.Sorted(maps.Keys(rows))
		if back {
			slices.Reverse(keys)
		}
		for _, k := range keys {
			if bytes.Compare([]byte(k), start) >= 0 && (end == nil || bytes.Compare([]byte(k), end) < 0) && !yield([]byte(k), []byte(rows[k])) {
				return
			}
		}
	}
}

func (t *keptTx) Scan(start, end []byte) iter.Seq2[[]byte, []byte] { return t.pairs(start, end, false) }
func (t *keptTx) ScanBack(start, end []byte) iter.Seq2[[]byte, []byte] {
	return t.pairs(start, end, true)
}

func TestTheCheckerFindsABrokenStore(t *testing.T) {
	t.Parallel()
	late := func(by int) func() int {
		return func() int {
			if rand.IntN(10) == 0 {
				return by
			}
			return 0
		}
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	for _, c := range []struct {
		name string
		open func() *kept
		o    LinearOptions
		// what must be found with Views of either sort; none means nothing is wrong
		linear, snapshot bool
	}{
		{"nothing is wrong", func() *kept { return &kept{} }, LinearOptions{}, false, false},
		{"it loses a transaction", func() *kept { return &kept{lose: one(40)} }, LinearOptions{}, true, true},
		{"it loses a part of a transaction", func() *kept { return &kept{half: one(10)} }, LinearOptions{}, true, true},
		{"it commits a transaction twice", func() *kept { return &kept{twice: one(20)} }, LinearOptions{}, true, true},
		{"it does old writes again", func() *kept { return &kept{again: one(20)} }, LinearOptions{}, true, true},
		{"its views are one commit late", func() *kept { return &kept{lag: late(1)} }, LinearOptions{}, true, true},
		{"its views are many commits late", func() *kept { return &kept{lag: late(20)} }, LinearOptions{}, true, true},
		{"its updates read old rows", func() *kept { return &kept{behind: late(2)} }, LinearOptions{}, true, true},
		{"its views are of two versions", func() *kept { return &kept{tear: one(3)} }, LinearOptions{}, true, true},
		{"it is snapshot isolation only", func() *kept { return &kept{snapshot: true} }, LinearOptions{}, true, true},
		{"it loses updates", func() *kept { return &kept{careless: true} }, LinearOptions{}, true, true},
		{"it keeps what was refused", func() *kept { return &kept{keep: one(20)} }, LinearOptions{}, true, true},
		{"it says that it failed and has committed", func() *kept { return &kept{lie: one(20)} }, LinearOptions{Broken: is(errBroken)}, true, true},
		{"it does not know, and says so", func() *kept { return &kept{doubt: one(30)} }, LinearOptions{Maybe: is(errDoubt)}, false, false},
		{"it does not know, and marks tell", func() *kept { return &kept{doubt: one(5)} }, LinearOptions{Maybe: is(errDoubt), Marks: true}, false, false},
		{"it does not know, and loses what marks tell", func() *kept { return &kept{doubt: one(5), half: one(10)} }, LinearOptions{Maybe: is(errDoubt), Marks: true}, true, true},
		{"it does not know, and says that it failed", func() *kept { return &kept{doubt: one(20)} }, LinearOptions{Broken: is(errDoubt)}, true, true},
		{"it does not know, and loses a transaction, too", func() *kept { return &kept{doubt: one(40), lose: one(40)} }, LinearOptions{Maybe: is(errDoubt)}, true, true},
	} {
		for views, bad := range map[ViewPromise]bool{LinearViews: c.linear, SnapshotViews: c.snapshot} {
			name := c.name + ", views are linear"
			if views == SnapshotViews {
				name = c.name + ", views are snapshots"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := c.o
				o.Views = views
				o.defaults()
				started := time.Now()
				const most = 40
				for round := range most {
					seed := rand.Uint64()
					h := play(t, []store.DB{c.open()}, o, seed)
					v := h.judge(views, 20*time.Second)
					switch {
					case len(h.errs) > 0 && !bad:
						t.Fatal(h.errs[0])
					case v.result == porcupine.Unknown:
						t.Fatalf("seed %d: %s", seed, v.explain(seed, time.Second))
					case v.result == porcupine.Illegal && !bad:
						t.Fatalf("seed %d: %s", seed, v.explain(seed, time.Second))
					case v.result == porcupine.Illegal:
						t.Logf("found in round %d, after %v, by asking for %s", round, time.Since(started).Round(time.Millisecond), v.asked)
						return
					case !bad && round == 3:
						return
					}
				}
				t.Fatalf("it was not found in %d rounds", most)
			})
		}
	}
}

// Of the schedules, snapshot isolation prevents those in which two write one key.
func TestSnapshotIsolationFailsTheSchedules(t *testing.T) {
	for _, s := range schedules {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				db   *kept
				good bool
			}{
				{"snapshot isolation", &kept{snapshot: true}, strings.HasPrefix(s.name, "two ")},
				{"no isolation of writes", &kept{careless: true}, false},
			} {
				h := s.play(t, []store.DB{c.db}, true, 1)
				if len(h.errs) > 0 {
					t.Fatal(h.errs[0])
				}
				if got := h.judge(LinearViews, time.Minute).result; (got == porcupine.Ok) != c.good {
					t.Errorf("%s: %v", c.name, got)
				}
				// The order of commits is one: only reads tell.
				if got := h.judge(SnapshotViews, time.Minute).result; (got == porcupine.Ok) != c.good {
					t.Errorf("%s, with Views as snapshots: %v", c.name, got)
				}
			}
		})
	}
}

func TestASerializableStorePassesTheSchedules(t *testing.T) {
	Anomalies(t, func(*testing.T) []store.DB { return []store.DB{&kept{}} }, LinearViews, false)
}

// quiet is a test that may fail.
type quiet struct {
	testing.TB
	failed bool
}

func (q *quiet) Errorf(string, ...any) { q.failed = true }
func (q *quiet) Fatalf(string, ...any) { q.FailNow() }
func (q *quiet) Logf(string, ...any)   {}
func (q *quiet) Log(...any)            {}
func (q *quiet) Failed() bool          { return q.failed }
func (q *quiet) FailNow() {
	q.failed = true
	runtime.Goexit()
}

func TestTheMachineFindsABrokenStore(t *testing.T) {
	if err := flag.Set("rapid.nofailfile", "true"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flag.Set("rapid.nofailfile", "false") }()
	for _, c := range []struct {
		name string
		open func() *kept
		good bool
	}{
		{"nothing is wrong", func() *kept { return &kept{} }, true},
		{"it loses a transaction", func() *kept { return &kept{lose: one(20)} }, false},
		{"it loses a part of a transaction", func() *kept { return &kept{half: one(10)} }, false},
		{"it does old writes again", func() *kept { return &kept{again: one(10)} }, false},
		{"its views are late", func() *kept { return &kept{lag: func() int { return rand.IntN(2) }} }, false},
		{"its views do not keep their snapshot", func() *kept { return &kept{tear: one(3)} }, false},
		{"it keeps what was refused", func() *kept { return &kept{keep: one(5)} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &quiet{TB: t}
			// What is broken by chance is looked for until it is found.
			for try := 0; try == 0 || !c.good && !q.failed && try < 50; try++ {
				var wg sync.WaitGroup
				wg.Go(func() {
					checkMachine(t, q, 30, func(*testing.T) *Fleet { db := c.open(); return &Fleet{DBs: []store.DB{db, db}} })
				})
				wg.Wait()
			}
			if q.failed == c.good {
				t.Errorf("it failed: %v", q.failed)
			}
		})
	}
}

func TestARefusedHistoryIsExplained(t *testing.T) {
	dir := t.TempDir()
	old := *linearOut
	*linearOut = dir
	defer func() { *linearOut = old }()
	o := LinearOptions{}
	o.defaults()
	for {
		h := play(t, []store.DB{&kept{lose: one(10)}}, o, 7)
		v := h.judge(LinearViews, time.Minute)
		if v.result == porcupine.Ok {
			continue
		}
		text := v.explain(7, time.Minute)
		for _, part := range []string{"one serial order of Updates and Views: there is none", " + [", " - [", "client", "linear-7.html"} {
			if !strings.Contains(text, part) {
				t.Errorf("the explanation lacks %q:\n%s", part, text)
			}
		}
		return
	}
}

func TestASeedGivesTheSamePlans(t *testing.T) {
	type drawn struct {
		kind    string
		a, b, c int
		n, s    int64
		yield   uint64
		db      int
		view    bool
	}
	draw := func(seed uint64, client int) (all []drawn) {
		p := newPlan(seed, client, 6, 3)
		for range 100 {
			m := p.next()
			all = append(all, drawn{m.kind.name, m.a, m.b, m.c, m.n, m.small, m.yield, m.db, m.view})
		}
		return all
	}
	if !slices.Equal(draw(3, 1), draw(3, 1)) {
		t.Error("the same seed gives two plans")
	}
	if slices.Equal(draw(3, 1), draw(4, 1)) || slices.Equal(draw(3, 1), draw(3, 2)) {
		t.Error("another seed, or another client, has the same plan")
	}
}
