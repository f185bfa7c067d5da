package storetest

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"countersign/store"
)

// Fleet is one database as [Machine] uses it.
type Fleet struct {
	// DBs share the database. The suite closes them, unless Reuse says that they are
	// used again.
	DBs   []store.DB
	Reuse bool
	// Reopen closes a DB and opens it again; nil means that this cannot be tested.
	Reopen func(t *testing.T, db store.DB) store.DB
	// Crash leaves a DB as the end of its process or machine would, and opens what
	// is left of it; nil means that this cannot be tested.
	Crash func(t *testing.T, db store.DB) store.DB
}

// Machine compares a database with a map while a random series of Updates runs on
// its DBs, Views stay open over them, and DBs are reopened and crash: what Update
// acknowledged, and nothing else, is there at any time and through each DB, and a
// View keeps the rows of the time when it began. start is called for each of the
// series, of which there are checks, or as many as the flag -rapid.checks says if
// that is less; it may return the same database again, whose rows are then deleted.
func Machine(t *testing.T, checks int64, start func(t *testing.T) *Fleet) {
	checkMachine(t, t, checks, start)
}

// checkMachine fails tb. t is for what has to do with the test's files.
func checkMachine(t *testing.T, tb testing.TB, checks int64, start func(t *testing.T) *Fleet) {
	var begun atomic.Int64
	var failed atomic.Bool
	rapid.Check(tb, func(rt *rapid.T) {
		if begun.Add(1) > checks && !failed.Load() {
			return // but not while a failure is made smaller
		}
		passed := false
		defer func() {
			if !passed {
				failed.Store(true)
			}
		}()
		m := &machine{t: t, fleet: start(t), model: map[string]string{}}
		defer m.close()
		m.run(rt)
		passed = !rt.Failed()
	})
}

type machine struct {
	t     *testing.T
	fleet *Fleet
	model map[string]string
	held  []*held
	looks int
}

// held is a View that stays open.
type held struct {
	db    int
	model map[string]string
	look  chan struct{}
	err   chan error
}

func (m *machine) run(rt *rapid.T) {
	update(m.t, m.fleet.DBs[0], func(tx store.Tx) {
		for k := range tx.Scan(nil, nil) {
			tx.Delete(k)
		}
	})
	pick := func(rt *rapid.T) int { return rapid.IntRange(0, len(m.fleet.DBs)-1).Draw(rt, "db") }
	actions := map[string]func(*rapid.T){
		"": func(rt *rapid.T) {
			m.looks++ // each time through another DB
			view(m.t, m.fleet.DBs[m.looks%len(m.fleet.DBs)], func(tx store.Tx) { sameRows(rt, tx, m.model) })
		},
		"update": func(rt *rapid.T) { m.model = modelUpdate(rt, m.t, m.fleet.DBs[pick(rt)], m.model) },
		"hold a view": func(rt *rapid.T) {
			if len(m.held) == 3 {
				rt.Skip("enough")
			}
			m.hold(pick(rt))
		},
		"look through a view and end it": func(rt *rapid.T) {
			if len(m.held) == 0 {
				rt.Skip("there is none")
			}
			i := rapid.IntRange(0, len(m.held)-1).Draw(rt, "view")
			m.release(rt, i)
		},
	}
	replace := func(how func(*testing.T, store.DB) store.DB) func(*rapid.T) {
		return func(rt *rapid.T) {
			db := pick(rt)
			for i, h := range slices.Backward(m.held) { // Close would wait for them
				if h.db == db {
					m.release(rt, i)
				}
			}
			m.fleet.DBs[db] = how(m.t, m.fleet.DBs[db])
		}
	}
	if m.fleet.Reopen != nil {
		actions["reopen"] = replace(m.fleet.Reopen)
	}
	if m.fleet.Crash != nil {
		actions["crash"] = replace(m.fleet.Crash)
	}
	rt.Repeat(actions)
	for len(m.held) > 0 {
		m.release(rt, 0)
	}
}

func (m *machine) hold(db int) {
	h := &held{db: db, model: maps.Clone(m.model), look: make(chan struct{}), err: make(chan error, 1)}
	began := make(chan struct{})
	go func() {
		h.err <- m.fleet.DBs[db].View(m.t.Context(), func(tx store.Tx) error {
			tx.Get([]byte("a")) // from here on it is a snapshot
			close(began)
			<-h.look
			var bad firstFailure
			sameRows(&bad, tx, h.model)
			return bad.err
		})
	}()
	select {
	case <-began:
		m.held = append(m.held, h)
	case err := <-h.err:
		m.t.Fatalf("View: %v", err)
	}
}

func (m *machine) release(rt *rapid.T, i int) {
	h := m.held[i]
	m.held = append(m.held[:i:i], m.held[i+1:]...)
	close(h.look)
	if err := <-h.err; err != nil {
		rt.Fatalf("a View that was held open: %v", err)
	}
}

// close also ends what a failure left.
func (m *machine) close() {
	for _, h := range m.held {
		close(h.look)
		if err := <-h.err; err != nil {
			m.t.Log(err)
		}
	}
	if m.fleet.Reuse {
		return
	}
	for _, db := range m.fleet.DBs {
		closeDB(m.t, db)
	}
}

// firstFailure keeps what sameRows says, for another goroutine.
type firstFailure struct{ err error }

func (f *firstFailure) Helper() {}

func (f *firstFailure) Fatalf(format string, args ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}
