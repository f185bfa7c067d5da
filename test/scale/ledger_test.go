//go:build linux

package scale

import (
	"context"
	"iter"
	"maps"
	"runtime"
	"strings"
	"sync"

	"countersign/store"
	"countersign/store/postgres"
)

// ledger is the database with a book of who used it. It costs some microseconds a
// transaction, so it is only there when transactions are counted.
type ledger struct {
	*postgres.DB

	mu sync.Mutex
	by map[string]cost
}

// cost is what the transactions of one place came to.
type cost struct {
	Updates int `json:"updates"`
	Commits int `json:"commits"` // Updates that wrote
	Tries   int `json:"tries"`   // runs of their functions
	Views   int `json:"views"`
	Trips   int `json:"trips"` // exchanges with the server, commits included
	Rows    int `json:"rows"`  // written or deleted
}

func (c cost) plus(o cost) cost {
	return cost{c.Updates + o.Updates, c.Commits + o.Commits, c.Tries + o.Tries, c.Views + o.Views, c.Trips + o.Trips, c.Rows + o.Rows}
}

func (l *ledger) take() map[string]cost {
	l.mu.Lock()
	defer l.mu.Unlock()
	by := maps.Clone(l.by)
	clear(l.by)
	return by
}

func (l *ledger) book(place string, add func(*cost)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.by[place]
	add(&c)
	l.by[place] = c
}

func (l *ledger) View(ctx context.Context, fn func(store.Tx) error) error {
	where := place()
	var t *counting
	err := l.DB.View(ctx, func(tx store.Tx) error { t = count(tx); return fn(t) })
	if t == nil {
		return err
	}
	trips := t.trips
	if trips > 0 {
		trips++ // its end
	}
	l.book(where, func(c *cost) { c.Views++; c.Trips += trips })
	return err
}

func (l *ledger) Update(ctx context.Context, fn func(store.Tx) error) error {
	where := place()
	var t *counting
	tries, trips := 0, 0
	err := l.DB.Update(ctx, func(tx store.Tx) error {
		if t != nil {
			trips += t.trips + 1
		}
		t, tries = count(tx), tries+1
		return fn(t)
	})
	if t == nil {
		return err
	}
	rows := len(t.own)
	if t.trips > 0 || rows > 0 {
		trips += t.trips + 1
	}
	l.book(where, func(c *cost) {
		c.Updates++
		c.Tries += tries
		c.Trips += trips
		if err == nil && rows > 0 {
			c.Commits++
			c.Rows += rows
		}
	})
	return err
}

// counting is a transaction whose exchanges with the server are counted as
// store/postgres makes them.
type counting struct {
	store.Tx
	own, read map[string]bool
	trips     int
}

func count(tx store.Tx) *counting {
	return &counting{Tx: tx, own: map[string]bool{}, read: map[string]bool{}}
}

// bare is the engine's own transaction, which it has to be given for a hint.
func bare(tx store.Tx) store.Tx {
	if t, ok := tx.(*counting); ok {
		return t.Tx
	}
	return tx
}

func (t *counting) Get(key []byte) ([]byte, bool) {
	if !t.own[string(key)] && !t.read[string(key)] {
		t.trips++
		t.read[string(key)] = true
	}
	return t.Tx.Get(key)
}

func (t *counting) Set(key, val []byte) {
	t.own[string(key)] = true
	t.Tx.Set(key, val)
}

func (t *counting) Delete(key []byte) {
	t.own[string(key)] = true
	t.Tx.Delete(key)
}

func (t *counting) Scan(start, end []byte) iter.Seq2[[]byte, []byte] {
	return t.pages(t.Tx.Scan(start, end))
}

func (t *counting) ScanBack(start, end []byte) iter.Seq2[[]byte, []byte] {
	return t.pages(t.Tx.ScanBack(start, end))
}

// pages counts the pages of a scan: 8 rows, then eight times more each time up to 1024.
func (t *counting) pages(rows iter.Seq2[[]byte, []byte]) iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		t.trips++
		page, left := 8, 8
		for k, v := range rows {
			if left == 0 {
				page = min(8*page, 1024)
				left = page
				t.trips++
			}
			left--
			if !yield(k, v) {
				return
			}
		}
	}
}

// place names the code that asked for a transaction: the functions of ours that lead to
// it, the nearest first, without those that everything goes through.
func place() string {
	var pcs [24]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var names []string
	for more := true; more && len(names) < 2; {
		var f runtime.Frame
		f, more = frames.Next()
		name, ours := strings.CutPrefix(f.Function, "countersign/")
		if !ours || strings.HasPrefix(name, "test/scale") {
			continue
		}
		name = strings.NewReplacer("(*", "", ")", "").Replace(name[strings.LastIndex(name, "/")+1:])
		name, _, _ = strings.Cut(name, ".func")
		switch name {
		case "agent.worker.write", "agent.worker.insist", "agent.worker.once", "agent.worker.steps", "agent.worker.run", "replica.Member.every", "replica.Member.Run":
			continue
		}
		if len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return strings.Join(names, " < ")
}
