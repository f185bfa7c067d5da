package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"

	"countersign/store"
)

// errRefused is what the functions of clients return to keep nothing.
var errRefused = errors.New("storetest: the client refuses")

// recorder is a Tx that notes what is done to it. Keys are numbers.
type recorder struct {
	h     *history
	tx    store.Tx
	yield uint64 // bit n: let others run before step n
	steps []step
	odd   error // something that no order of transactions explains
}

func (r *recorder) key(i int) []byte { return fmt.Appendf(nil, "%s%c", r.h.prefix, 'a'+i) }

func (r *recorder) note(s step) {
	r.steps = append(r.steps, s)
	if r.yield>>(len(r.steps)%64)&1 != 0 {
		runtime.Gosched()
	}
}

func (r *recorder) number(val []byte) int64 {
	n, err := strconv.ParseInt(string(val), 10, 64)
	if err != nil && r.odd == nil {
		r.odd = fmt.Errorf("nobody wrote the value %q", val)
	}
	return n
}

func (r *recorder) get(i int) int64 {
	n := int64(absent)
	if val, ok := r.tx.Get(r.key(i)); ok {
		n = r.number(val)
	}
	r.note(step{key: i, vals: []int64{n}})
	return n
}

// count is get, with zero for what is not there.
func (r *recorder) count(i int) int64 { return max(r.get(i), 0) }

func (r *recorder) set(i int, n int64) {
	r.tx.Set(r.key(i), strconv.AppendInt(nil, n, 10))
	r.note(step{write: true, key: i, vals: []int64{n}})
}

func (r *recorder) del(i int) {
	r.tx.Delete(r.key(i))
	r.note(step{write: true, key: i, vals: []int64{absent}})
}

// scan reads the keys from lo up to hi, and ends when it has had rows of them. It
// returns the values of all keys that it passed.
func (r *recorder) scan(lo, hi, rows int) []int64 { return r.read(lo, hi, rows, false) }

// scanBack is scan from the other end; what it returns is in ascending order.
func (r *recorder) scanBack(lo, hi, rows int) []int64 { return r.read(lo, hi, rows, true) }

func (r *recorder) read(lo, hi, rows int, back bool) []int64 {
	vals := make([]int64, hi-lo)
	for i := range vals {
		vals[i] = absent
	}
	from, to := lo, hi // what was passed
	pairs := r.tx.Scan(r.key(lo), r.key(hi))
	if back {
		pairs = r.tx.ScanBack(r.key(lo), r.key(hi))
	}
	last := lo - 1
	if back {
		last = hi
	}
	for k, v := range pairs {
		i := -1
		if tail, ok := strings.CutPrefix(string(k), r.h.prefix); ok && len(tail) == 1 {
			i = int(tail[0]) - 'a'
		}
		if i < lo || i >= hi || !back && i <= last || back && i >= last {
			r.odd = fmt.Errorf("a scan from %d to %d yields %q after %d", lo, hi, k, last)
			break
		}
		vals[i-lo], last = r.number(v), i
		if rows--; rows == 0 {
			from, to = lo, i+1
			if back {
				from, to = i, hi
			}
			break
		}
	}
	vals = vals[from-lo : to-lo]
	r.note(step{key: from, vals: vals})
	return vals
}

// plan draws what one client does: all of it comes from the seed.
type plan struct {
	rng    *rand.Rand
	client int
	keys   int
	dbs    int
	serial int64
}

func newPlan(seed uint64, client, keys, dbs int) *plan {
	return &plan{rng: rand.New(rand.NewPCG(seed, uint64(client))), client: client, keys: keys, dbs: dbs}
}

// move is one transaction of a plan.
type move struct {
	kind    *kind
	a, b, c int   // different keys
	n       int64 // a value that nobody else writes, but for sums
	small   int64 // 0 to 4
	yield   uint64
	db      int
	view    bool
}

func (p *plan) next() move {
	p.serial++
	perm := p.rng.Perm(p.keys)
	m := move{
		a: perm[0], b: perm[1], c: perm[2], small: p.rng.Int64N(5), yield: p.rng.Uint64() & p.rng.Uint64(), db: p.rng.IntN(p.dbs),
		n: int64(p.client+1)*1_000_000_000 + p.serial*1000,
	}
	m.kind = &kinds[p.rng.IntN(len(kinds))]
	if p.rng.IntN(6) == 0 { // the more is seen, the less the check has to guess
		m.kind = &kinds[p.rng.IntN(2)]
	}
	m.view = m.kind.reads && p.rng.IntN(3) > 0
	return m
}

func (m move) run(r *recorder) error {
	r.yield = m.yield
	return m.kind.run(r, m)
}

// kind is a sort of transaction.
type kind struct {
	name  string
	reads bool // and writes nothing, so it can be a View
	run   func(r *recorder, m move) error
}

// kinds read much and write little of what they read: that is where engines that
// are not serializable go wrong.
var kinds = []kind{
	{"scan everything", true, func(r *recorder, _ move) error {
		r.scan(0, r.h.keys, r.h.keys)
		return nil
	}},
	{"look at one key after the other, and scan them", true, func(r *recorder, m move) error {
		for i := range r.h.keys {
			r.get((m.a + i) % r.h.keys)
		}
		r.scan(0, r.h.keys, r.h.keys)
		return nil
	}},
	{"look at two keys", true, func(r *recorder, m move) error {
		r.get(m.a)
		r.get(m.b)
		return nil
	}},
	{"scan a part back", true, func(r *recorder, m move) error {
		r.scanBack(min(m.a, m.b), max(m.a, m.b), 2)
		return nil
	}},
	{"set blindly", false, func(r *recorder, m move) error {
		r.set(m.a, m.n)
		return nil
	}},
	{"set two blindly", false, func(r *recorder, m move) error {
		r.set(m.a, m.n)
		r.set(m.b, m.n+1)
		return nil
	}},
	{"delete blindly", false, func(r *recorder, m move) error {
		r.del(m.a)
		return nil
	}},
	{"count", false, func(r *recorder, m move) error {
		r.set(m.a, r.count(m.a)+1)
		return nil
	}},
	{"transfer", false, func(r *recorder, m move) error {
		from, to := r.count(m.a), r.count(m.b)
		if from < m.small {
			return errRefused
		}
		r.set(m.a, from-m.small)
		r.set(m.b, to+m.small)
		return nil
	}},
	{"compare and set two", false, func(r *recorder, m move) error {
		a, b := r.get(m.a), r.get(m.b)
		if (a+b)%3 == 0 {
			return errRefused
		}
		r.set(m.a, m.n)
		r.set(m.b, m.n+1)
		return nil
	}},
	{"set one for the other", false, func(r *recorder, m move) error {
		r.set(m.b, r.count(m.a)+m.n%1_000_000)
		return nil
	}},
	{"leave if another stays", false, func(r *recorder, m move) error {
		if r.get(m.a) == absent || r.get(m.b) == absent {
			r.set(m.a, m.n)
			return nil
		}
		r.del(m.a)
		return nil
	}},
	{"insert once", false, func(r *recorder, m move) error {
		if r.get(m.a) != absent {
			return errRefused
		}
		r.set(m.a, m.n)
		return nil
	}},
	{"take the first", false, func(r *recorder, m move) error {
		for i, v := range r.scan(0, r.h.keys, 1) {
			if v != absent {
				r.del(i)
				r.set(m.c, m.n)
				return nil
			}
		}
		return errRefused
	}},
	{"take the last", false, func(r *recorder, m move) error {
		from := min(m.a, m.b)
		vals := r.scanBack(from, r.h.keys, 1)
		if vals[0] == absent {
			return errRefused
		}
		r.del(r.h.keys - len(vals))
		return nil
	}},
	{"insert while there is room", false, func(r *recorder, m move) error {
		full := 0
		for _, v := range r.scan(0, r.h.keys, r.h.keys) {
			if v != absent {
				full++
			}
		}
		if full > r.h.keys/2 || r.get(m.a) != absent {
			return errRefused
		}
		r.set(m.a, m.n)
		return nil
	}},
	{"clear", false, func(r *recorder, m move) error {
		lo, hi := min(m.a, m.b), max(m.a, m.b)
		for i, v := range r.scan(lo, hi, hi) {
			if v != absent {
				r.del(lo + i)
			}
		}
		return nil
	}},
	{"write, look and refuse", false, func(r *recorder, m move) error {
		r.set(m.a, m.n)
		r.del(m.b)
		r.scan(0, r.h.keys, r.h.keys)
		return errRefused
	}},
	{"look at its own writes", false, func(r *recorder, m move) error {
		r.set(m.a, m.n)
		r.get(m.a)
		r.del(m.b)
		r.get(m.c)
		r.scan(min(m.b, m.c), r.h.keys, r.h.keys)
		return nil
	}},
}
