package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"countersign/store"
)

// actor is one transaction of a schedule.
type actor struct {
	name  string
	reads func(r *recorder) []int64
	// writes gets what reads returned; nil for one that writes nothing.
	writes func(r *recorder, read []int64) error
}

// schedule is a way for transactions to meet that some databases do not stand.
type schedule struct {
	name  string
	rows  []int64 // of the first keys, at first; absent is none
	cast  []actor
	order string // r0 begins actor 0 up to the end of its reads; c0 lets it write and commit
	views bool   // who writes nothing uses a View
}

func gets(keys ...int) func(*recorder) []int64 {
	return func(r *recorder) (vals []int64) {
		for _, k := range keys {
			vals = append(vals, r.get(k))
		}
		return vals
	}
}

// schedules are of Updates.
var schedules = []schedule{
	{
		name: "write skew: each of two leaves because the other stays",
		rows: []int64{1, 1},
		cast: []actor{
			{"a leaves", gets(0, 1), func(r *recorder, read []int64) error { return leave(r, 0, read) }},
			{"b leaves", gets(0, 1), func(r *recorder, read []int64) error { return leave(r, 1, read) }},
		},
		order: "r0 r1 c0 c1",
	},
	{
		name: "write skew over a range: each of two inserts because nobody has",
		cast: []actor{
			{"insert a", func(r *recorder) []int64 { return r.scan(0, 4, 4) }, func(r *recorder, read []int64) error { return insert(r, 0, read) }},
			{"insert c", func(r *recorder) []int64 { return r.scan(0, 4, 4) }, func(r *recorder, read []int64) error { return insert(r, 2, read) }},
		},
		order: "r0 r1 c1 c0",
	},
	{
		name: "two append after the last row",
		rows: []int64{7},
		cast: []actor{
			{"append", func(r *recorder) []int64 { return r.scanBack(0, 6, 1) }, func(r *recorder, read []int64) error { r.set(6-len(read)+1, 11); return nil }},
			{"append two", func(r *recorder) []int64 { return r.scanBack(0, 6, 1) }, func(r *recorder, read []int64) error {
				r.set(6-len(read)+1, 21)
				r.set(6-len(read)+2, 22)
				return nil
			}},
		},
		order: "r0 r1 c0 c1",
	},
	{
		name: "a ring of three: each writes what the next has read",
		rows: []int64{1, 2, 3},
		cast: []actor{
			{"a to b", gets(0), func(r *recorder, read []int64) error { r.set(1, read[0]+10); return nil }},
			{"b to c", gets(1), func(r *recorder, read []int64) error { r.set(2, read[0]+20); return nil }},
			{"c to a", gets(2), func(r *recorder, read []int64) error { r.set(0, read[0]+30); return nil }},
		},
		order: "r0 r1 r2 c0 c1 c2",
	},
	{
		// Fekete, O'Neil and O'Neil, "A read-only transaction anomaly under snapshot
		// isolation" (2004): without the reader there would be an order.
		name: "the read-only anomaly: one only reads and sees an order that nobody else does",
		rows: []int64{0, 0},
		cast: []actor{
			{"withdraw from a, with a fee if both are too little", gets(0, 1), func(r *recorder, read []int64) error {
				if read[0]+read[1] < 10 {
					r.set(0, 1_000+read[0]) // the fee
				} else {
					r.set(0, 2_000+read[0])
				}
				return nil
			}},
			{"pay into b", gets(1), func(r *recorder, read []int64) error { r.set(1, read[0]+20); return nil }},
			{"read both", gets(0, 1), nil},
		},
		order: "r0 r1 c1 r2 c2 c0",
	},
	{
		name: "a refusal tells what no order has",
		rows: []int64{0, 0},
		cast: []actor{
			{"write a if b is as it was", gets(1), func(r *recorder, read []int64) error { r.set(0, read[0]+1); return nil }},
			{"write b", gets(1), func(r *recorder, read []int64) error { r.set(1, read[0]+20); return nil }},
			{"read both and refuse", gets(0, 1), func(*recorder, []int64) error { return errRefused }},
		},
		order: "r0 r1 c1 r2 c2 c0",
	},
	{
		name: "two count on from the same number, the lost update",
		rows: []int64{5},
		cast: []actor{
			{"count", gets(0), func(r *recorder, read []int64) error { r.set(0, read[0]+1); return nil }},
			{"count", gets(0), func(r *recorder, read []int64) error { r.set(0, read[0]+1); return nil }},
		},
		order: "r0 r1 c0 c1",
	},
	{
		name: "two take the first row",
		rows: []int64{absent, 8, 9},
		cast: []actor{
			{"take", func(r *recorder) []int64 { return r.scan(0, 6, 1) }, take},
			{"take", func(r *recorder) []int64 { return r.scan(0, 6, 1) }, take},
		},
		order: "r0 r1 c0 c1",
	},
	{
		name: "two insert the same key once",
		cast: []actor{
			{"insert", gets(0), func(r *recorder, read []int64) error { return insert(r, 0, read) }},
			{"insert", gets(0), func(r *recorder, read []int64) error { return insert(r, 0, read) }},
		},
		order: "r0 r1 c0 c1",
	},
}

func leave(r *recorder, i int, read []int64) error {
	if slices.Contains(read, absent) {
		return errRefused
	}
	r.del(i)
	return nil
}

func insert(r *recorder, i int, read []int64) error {
	for _, v := range read {
		if v != absent {
			return errRefused
		}
	}
	r.set(i, 100+int64(i))
	return nil
}

func take(r *recorder, read []int64) error {
	if len(read) == 0 || read[len(read)-1] == absent {
		return errRefused
	}
	r.del(len(read) - 1)
	return nil
}

// Anomalies checks that Updates which meet in the ways that break snapshot
// isolation have a serial order all the same, and that a View in the place of one
// that writes nothing keeps its promise. overlap says that the functions of
// Updates run beside each other; they are then made to meet. Otherwise they race
// for it. The suite closes what open returns, once for each schedule.
func Anomalies(t *testing.T, open func(t *testing.T) []store.DB, views ViewPromise, overlap bool) {
	all := slices.Clone(schedules)
	for _, s := range schedules {
		if slices.ContainsFunc(s.cast, func(a actor) bool { return a.writes == nil }) {
			s.name, s.views = s.name+", as a View", true
			all = append(all, s)
		}
	}
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			dbs := open(t)
			defer func() {
				for _, db := range dbs {
					closeDB(t, db)
				}
			}()
			rounds := 20
			if overlap {
				rounds = 3
			}
			for round := range rounds {
				h := s.play(t, dbs, overlap, uint64(round))
				for _, err := range h.errs {
					t.Error(err)
				}
				if v := h.judge(views, time.Minute); v.result != porcupine.Ok {
					t.Fatal(v.explain(uint64(round), time.Minute))
				}
			}
		})
	}
}

// play runs the schedule once.
func (s schedule) play(t *testing.T, dbs []store.DB, overlap bool, round uint64) *history {
	t.Helper()
	o := LinearOptions{}
	o.defaults()
	h := newHistory(dbs, o, round)
	h.prefix += s.name + "/"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h.do(ctx, len(s.cast), 0, "begin", true, func(r *recorder) error {
		for i, n := range s.rows {
			if n != absent {
				r.set(i, n)
			}
		}
		return nil
	})
	stages := make([]stages, len(s.cast))
	var wg sync.WaitGroup
	for i, a := range s.cast {
		st := newStages(overlap)
		stages[i] = st
		wg.Go(func() {
			defer close(st.ended)
			wait(ctx, st.begin)
			h.do(ctx, i, i%len(dbs), a.name, a.writes != nil || !s.views, func(r *recorder) error {
				read := a.reads(r)
				st.once.Do(func() { // the runs after a conflict do not wait
					close(st.read)
					wait(ctx, st.commit)
				})
				if a.writes == nil {
					return nil
				}
				return a.writes(r, read)
			})
		})
	}
	if overlap {
		for step := range strings.FieldsSeq(s.order) {
			var what rune
			var i int
			if _, err := fmt.Sscanf(step, "%c%d", &what, &i); err != nil {
				t.Fatal(err)
			}
			if what == 'r' {
				close(stages[i].begin)
				wait(ctx, stages[i].read, stages[i].ended)
			} else {
				close(stages[i].commit)
				wait(ctx, stages[i].ended)
			}
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal("the transactions did not meet within a minute")
	}
	h.do(ctx, len(s.cast), 0, "end", true, func(r *recorder) error { r.scan(0, h.keys, h.keys); return nil })
	return h
}

// stages are where an actor stands.
type stages struct {
	begin, read, commit, ended chan struct{}
	once                       *sync.Once
}

func newStages(overlap bool) stages {
	s := stages{make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{}), &sync.Once{}}
	if !overlap {
		close(s.begin)
		close(s.commit)
	}
	return s
}

// wait ends with the first of them.
func wait(ctx context.Context, c chan struct{}, or ...chan struct{}) {
	var other chan struct{}
	if len(or) > 0 {
		other = or[0]
	}
	select {
	case <-c:
	case <-other:
	case <-ctx.Done():
	}
}
