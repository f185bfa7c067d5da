package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// maxKeys is the most keys that a history may use.
const maxKeys = 12

// absent is the value of a key that is not there; values are not negative.
const absent = -1

// cells are the values of all keys. It is the whole state of the model.
type cells [maxKeys]int64

func empty() (c cells) {
	for i := range c {
		c[i] = absent
	}
	return c
}

// step is one thing that a transaction's function did to its Tx.
type step struct {
	write bool
	key   int     // the first one of a read
	vals  []int64 // what was read of key and those after it, or the one written
}

// entry is one View or Update of a history.
type entry struct {
	client, db int
	serial     int64 // differs from that of others
	what       string
	call, ret  int64 // nanoseconds of one monotonic clock
	update     bool
	steps      []step // of the last run of the function
	refused    bool   // the function returned an error, so nothing may be kept
	maybe      bool   // nobody knows whether it was committed
	end        bool   // comes after all that is known to have ended
}

// never is when an entry ends that may take effect at any time.
const never = math.MaxInt64

// state is what the models carry from entry to entry.
type state struct {
	cells cells
	over  bool // the end was seen: what may have been done from now on was not
}

// strict says whether an entry fits at this point of a serial history, and the
// state after it: what it read is there, its own writes before the read included.
func strict(s state, e *entry) (state, bool) {
	switch {
	case e.end:
		s.over = true
		return s, true
	case e.maybe && s.over:
		return s, true
	}
	now := s.cells
	for _, st := range e.steps {
		if st.write {
			now[st.key] = st.vals[0]
		} else if !slices.Equal(now[st.key:st.key+len(st.vals)], st.vals) {
			return s, false
		}
	}
	if e.update && !e.refused {
		s.cells = now
	}
	return s, true
}

// effect is what an Update changes, apart from what it read elsewhere.
type effect struct {
	needs   []step // read before it was written; one value each
	writes  []step
	perhaps []int // deleted without a look: an engine may find nothing to delete
}

func (e *entry) effect() effect {
	var f effect
	if !e.update || e.refused {
		return f
	}
	first, last := map[int]int64{}, map[int]int64{} // read before any write; written
	for _, st := range e.steps {
		for i, val := range st.vals {
			k := st.key + i
			if st.write {
				last[k] = val
				continue
			}
			_, wrote := last[k]
			if _, read := first[k]; !read && !wrote {
				first[k] = val
			}
		}
	}
	for k := range maxKeys {
		val, wrote := last[k]
		if !wrote {
			continue
		}
		before, read := first[k]
		switch {
		case read && before == absent && val == absent:
		case !read && val == absent:
			f.perhaps = append(f.perhaps, k)
		default:
			if read {
				f.needs = append(f.needs, step{key: k, vals: []int64{before}})
			}
			f.writes = append(f.writes, step{write: true, key: k, vals: []int64{val}})
		}
	}
	return f
}

func (f effect) none() bool { return len(f.writes) == 0 && len(f.perhaps) == 0 }

// commits are the states after an entry in a history in the order of commits,
// where a View is a snapshot between two commits. That order need not be the one
// in which Updates are serializable, so of what an Update read only the rows that
// it changes are looked at: nobody else can have changed them in between.
func commits(s state, e *entry, f effect) []state {
	switch {
	case e.end:
		s.over = true
		return []state{s}
	case e.maybe && s.over:
		return []state{s}
	case !e.update:
		_, ok := strict(s, e)
		if !ok {
			return nil
		}
		return []state{s}
	}
	for _, n := range f.needs {
		if s.cells[n.key] != n.vals[0] {
			return nil
		}
	}
	for _, w := range f.writes {
		s.cells[w.key] = w.vals[0]
	}
	all := []state{s}
	for _, k := range f.perhaps {
		for _, s := range slices.Clone(all) {
			if s.cells[k] != absent {
				s.cells[k] = absent
				all = append(all, s)
			}
		}
	}
	return all
}

// strictModel asks for one serial order of all entries that agrees with the clock.
func strictModel() porcupine.Model {
	return described(porcupine.Model{
		Init: func() any { return state{cells: empty()} },
		Step: func(s, in, _ any) (bool, any) {
			next, ok := strict(s.(state), in.(*entry))
			return ok, next
		},
		Hash: func(s any) uint64 { return s.(state).hash() },
	})
}

// snapshotModel asks for one order of commits that agrees with the clock, in which
// each View is a snapshot.
func snapshotModel(entries []*entry) porcupine.Model {
	effects := map[*entry]effect{}
	for _, e := range entries {
		effects[e] = e.effect()
	}
	nm := &porcupine.NondeterministicModel{
		Init: func() []any { return []any{state{cells: empty()}} },
		Step: func(s, in, _ any) []any {
			e := in.(*entry)
			var all []any
			for _, next := range commits(s.(state), e, effects[e]) {
				all = append(all, next)
			}
			return all
		},
		Hash:              func(s any) uint64 { return s.(state).hash() },
		DescribeOperation: func(in, _ any) string { return fmt.Sprint(in) },
		DescribeState:     func(s any) string { return fmt.Sprint(s) },
	}
	return nm.ToModel()
}

func described(m porcupine.Model) porcupine.Model {
	m.DescribeOperation = func(in, _ any) string { return fmt.Sprint(in) }
	m.DescribeState = func(s any) string { return fmt.Sprint(s) }
	return m
}

func (s state) hash() uint64 {
	h := uint64(14695981039346656037) // FNV-1a, by words
	for _, v := range s.cells {
		h = (h ^ uint64(v)) * 1099511628211
		h ^= h >> 29
	}
	return h
}

func (s state) String() string {
	var all []string
	for i, v := range s.cells {
		if v != absent {
			all = append(all, fmt.Sprintf("%c=%d", 'a'+i, v))
		}
	}
	return "{" + strings.Join(all, " ") + "}"
}

func (e *entry) String() string {
	if e.end {
		return "end"
	}
	kind := "View"
	if e.update {
		kind = "Update"
	}
	parts := []string{fmt.Sprintf("%s on db %d: %s:", kind, e.db, e.what)}
	for _, st := range e.steps {
		parts = append(parts, st.String())
	}
	if e.refused {
		parts = append(parts, "refused")
	}
	if e.maybe {
		parts = append(parts, "maybe")
	}
	return strings.Join(parts, " ")
}

func (st step) String() string {
	var vals []string
	for _, v := range st.vals {
		if v == absent {
			vals = append(vals, "-")
		} else {
			vals = append(vals, fmt.Sprint(v))
		}
	}
	name := fmt.Sprintf("%c", 'a'+st.key)
	switch {
	case st.write && st.vals[0] == absent:
		return "delete " + name
	case st.write:
		return name + ":=" + vals[0]
	case len(st.vals) == 1:
		return name + "=" + vals[0]
	}
	return fmt.Sprintf("%s..%c=[%s]", name, 'a'+st.key+len(st.vals)-1, strings.Join(vals, " "))
}

// operations are a history as porcupine wants it. End comes after everything that
// is known to have ended; what may have been done has to fit before it, or was not
// done.
func operations(entries []*entry) []porcupine.Operation {
	var ops []porcupine.Operation
	last, clients := int64(0), 0
	for _, e := range entries {
		clients = max(clients, e.client)
		last = max(last, e.call)
		if !e.maybe {
			last = max(last, e.ret)
		}
	}
	open := 0
	for _, e := range entries {
		op := porcupine.Operation{ClientId: e.client, Input: e, Call: e.call, Return: e.ret}
		if e.maybe { // it goes on beside what its client does next
			open++
			op.ClientId, op.Return = clients+1+open, last+3
		}
		ops = append(ops, op)
	}
	if open > 0 {
		ops = append(ops, porcupine.Operation{ClientId: clients + 1, Input: &entry{end: true}, Call: last + 1, Return: last + 2})
	}
	return ops
}
