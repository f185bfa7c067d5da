package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"countersign/store"
)

// Flags of the test binaries of engines.
var (
	linearSeed = flag.Uint64("linear.seed", 0, "the plans of the clients of storetest.Linearizable; 0 means others each time")
	linearFor  = flag.Duration("linear.for", 0, "how long each storetest.Linearizable goes on with rounds at least")
	linearOut  = flag.String("linear.out", os.TempDir(), "where storetest.Linearizable draws a history that it refuses")
)

// ViewPromise is what an engine promises of its Views.
type ViewPromise int

const (
	// LinearViews have a place among the Updates in one serial order that agrees
	// with the clock.
	LinearViews ViewPromise = iota
	// SnapshotViews see the state between two commits, all that was acknowledged
	// before them included. Updates have a serial order that agrees with the clock,
	// but two of them may have been committed the other way round, as long as no
	// Update can tell. Two Views never disagree on the order of commits.
	SnapshotViews
)

// LinearOptions tune [Linearizable]. The zero value is right for an engine whose
// Views are linear and that has no faults.
type LinearOptions struct {
	// Views is what is asked of Views. An Update that writes nothing is an Update.
	Views ViewPromise
	// Clients do one transaction after the other, each for itself; zero means 6.
	Clients int
	// Ops is how many each client does in a round; zero means 50. With Beside they
	// go on until that returns.
	Ops int
	// Rounds is how many histories are made, each on keys of its own; zero means 1.
	Rounds int
	// Keys is how many keys there are, from 4 to 12; zero means 6.
	Keys int
	// Maybe says that an Update's error leaves open whether it was committed. It may
	// then take effect at any later time, or never. Nil means that no error does,
	// which is what [store.DB] says.
	Maybe func(error) bool
	// Marks makes each Update write a row of its own, which tells after a round
	// whether it was committed. That is for histories with more than a few Updates
	// of which nobody knows: the time that the check takes doubles with each of them.
	Marks bool
	// Broken says that an error is one that the test provokes. Nothing of such an
	// Update may be seen by anybody; what it read is not looked at. Other errors
	// fail the test.
	Broken func(error) bool
	// Beside runs on the test's goroutine while the clients work: it does harm and
	// repairs it. await waits until every client has ended n more transactions.
	Beside func(t *testing.T, await func(n int))
	// Budget is how long the check of one history may take; zero means a minute.
	Budget time.Duration
}

func (o *LinearOptions) defaults() {
	set := func(n *int, to int) {
		if *n <= 0 {
			*n = to
		}
	}
	set(&o.Clients, 6)
	set(&o.Ops, 50)
	set(&o.Rounds, 1)
	set(&o.Keys, 6)
	if o.Budget <= 0 {
		o.Budget = time.Minute
	}
	no := func(error) bool { return false }
	if o.Maybe == nil {
		o.Maybe = no
	}
	if o.Broken == nil {
		o.Broken = no
	}
}

// Linearizable lets clients do random transactions on a few keys of a database,
// through one or several DBs that share it, and looks for an order of all of them
// that explains every answer and agrees with the clock. open returns the DBs,
// without the rows that the suite makes; the suite closes them.
//
// The flags -linear.seed, -linear.for and -linear.out set the clients' plans, the
// time that is spent, and where a refused history is drawn. A seed fixes what each
// client does and on which DB, not how the clients meet.
func Linearizable(t *testing.T, open func(t *testing.T) []store.DB, o LinearOptions) {
	o.defaults()
	seed := *linearSeed
	if seed == 0 {
		seed = rand.Uint64()>>1 | 1
	}
	dbs := open(t)
	defer func() {
		for _, db := range dbs {
			closeDB(t, db)
		}
	}()
	started := time.Now()
	var sum tally
	var checks time.Duration
	rounds := 0
	for ; rounds < o.Rounds || time.Since(started) < *linearFor; rounds++ {
		seed := seed + uint64(rounds)
		h := play(t, dbs, o, seed)
		for _, err := range h.errs[:min(len(h.errs), 5)] {
			t.Errorf("%v", err)
		}
		played := time.Now()
		v := h.judge(o.Views, o.Budget)
		checks += time.Since(played)
		if v.result != porcupine.Ok {
			t.Errorf("%s", v.explain(seed, o.Budget))
		}
		if t.Failed() {
			t.Fatalf("round %d; -linear.seed=%d gives the clients the same plans", rounds, seed)
		}
		sum.add(h.tally)
	}
	t.Logf("%d rounds in %v, %v of it to check: %v", rounds, time.Since(started).Round(time.Millisecond), checks.Round(time.Millisecond), &sum)
}

// tally is what a history consists of.
type tally struct{ updates, views, refused, maybe, broken, again int }

func (s *tally) add(o tally) {
	s.updates += o.updates
	s.views += o.views
	s.refused += o.refused
	s.maybe += o.maybe
	s.broken += o.broken
	s.again += o.again
}

func (s *tally) String() string {
	return fmt.Sprintf("%d updates and %d views; %d refused, %d unknown, %d broken, %d run again",
		s.updates, s.views, s.refused, s.maybe, s.broken, s.again)
}

// history records what the clients of one round did.
type history struct {
	prefix string
	keys   int
	o      LinearOptions
	base   time.Time
	dbs    []store.DB

	serial  atomic.Int64
	mu      sync.Mutex
	entries []*entry
	broken  []*entry // of which nothing may be there
	errs    []error
	tally   tally
}

func newHistory(dbs []store.DB, o LinearOptions, seed uint64) *history {
	return &history{prefix: fmt.Sprintf("linear/%016x/", seed), keys: o.Keys, o: o, base: time.Now(), dbs: dbs}
}

func (h *history) now() int64 { return int64(time.Since(h.base)) }

// do runs one transaction and records it. fn runs it on the Tx.
func (h *history) do(ctx context.Context, client, db int, what string, update bool, fn func(*recorder) error) {
	e := &entry{client: client, db: db, what: what, update: update, serial: h.serial.Add(1)}
	runs := 0
	var last error
	var odd error
	body := func(tx store.Tx) error {
		runs++
		r := &recorder{h: h, tx: tx}
		last = store.ErrReadOnly // until fn returns
		defer func() { e.steps, odd = r.steps, errors.Join(odd, r.odd) }()
		if last = fn(r); last == nil && h.o.Marks && slices.ContainsFunc(r.steps, func(s step) bool { return s.write }) {
			tx.Set(h.mark(e.serial), nil)
		}
		return last
	}
	run := h.dbs[db].View
	switch {
	case update && e.serial%3 == 0:
		e.what = "relaxed, " + what
		run = func(ctx context.Context, fn func(store.Tx) error) error {
			return store.UpdateRelaxed(ctx, h.dbs[db], fn)
		}
	case update:
		run = h.dbs[db].Update
	}
	e.call = h.now()
	err := run(ctx, body)
	e.ret = h.now()

	h.mu.Lock()
	defer h.mu.Unlock()
	h.tally.again += max(runs-1, 0)
	if odd != nil {
		h.errs = append(h.errs, fmt.Errorf("%v: %w", e, odd))
	}
	switch {
	case err == nil && runs > 0 && last == nil:
	case errors.Is(err, errRefused) && errors.Is(last, errRefused):
		e.refused = true
		h.tally.refused++
	case err != nil && update && h.o.Maybe(err):
		e.maybe, e.ret = true, never
		h.tally.maybe++
	case err != nil && h.o.Broken(err):
		h.tally.broken++
		h.broken = append(h.broken, e)
		return
	default:
		h.errs = append(h.errs, fmt.Errorf("%v returned %w after %d runs, the last of which returned %w", e, orNil(err), runs, orNil(last)))
		return
	}
	if update {
		h.tally.updates++
	} else {
		h.tally.views++
	}
	h.entries = append(h.entries, e)
}

func (h *history) mark(serial int64) []byte {
	return fmt.Appendf(nil, "marks/%s%08d", h.prefix, serial)
}

// settle reads the marks, when all else is done, and makes certain what nobody
// knew. What is committed later than that nobody has seen.
func (h *history) settle(ctx context.Context, db store.DB) {
	there := map[string]bool{}
	look := func() error {
		return db.Update(ctx, func(tx store.Tx) error {
			clear(there)
			for k := range tx.Scan(h.mark(0), h.mark(99_999_999)) {
				there[string(k)] = true
			}
			return nil
		})
	}
	err := look()
	for tries := 0; err != nil && tries < 50 && (h.o.Maybe(err) || h.o.Broken(err)); tries++ {
		err = look()
	}
	if err != nil {
		h.errs = append(h.errs, fmt.Errorf("the marks cannot be read: %w", err))
		return
	}
	end := h.now()
	for _, e := range h.broken {
		if there[string(h.mark(e.serial))] {
			h.errs = append(h.errs, fmt.Errorf("%v has failed, and was committed", e))
		}
	}
	h.entries = slices.DeleteFunc(h.entries, func(e *entry) bool {
		marked := there[string(h.mark(e.serial))]
		wrote := e.update && slices.ContainsFunc(e.steps, func(s step) bool { return s.write })
		switch {
		case e.maybe && marked:
			e.maybe, e.ret = false, end
		case e.maybe:
			return true
		case marked != (wrote && !e.refused):
			h.errs = append(h.errs, fmt.Errorf("%v left a mark: %v", e, marked))
		}
		return false
	})
}

var errNil = errors.New("nil")

func orNil(err error) error {
	if err == nil {
		return errNil
	}
	return err
}

// play is one round.
func play(t *testing.T, dbs []store.DB, o LinearOptions, seed uint64) *history {
	t.Helper()
	h := newHistory(dbs, o, seed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop := make(chan struct{})
	done := make([]atomic.Int64, o.Clients)
	var wg sync.WaitGroup
	finish := sync.OnceFunc(func() { close(stop); wg.Wait() })
	defer finish() // also when Beside ends the test
	for c := range o.Clients {
		p := newPlan(seed, c, o.Keys, len(dbs))
		wg.Go(func() {
			for n := 0; o.Beside != nil || n < o.Ops; n++ {
				select {
				case <-stop:
					return
				default:
				}
				move := p.next()
				h.do(ctx, c, move.db, move.kind.name, !move.view, move.run)
				done[c].Add(1)
			}
		})
	}
	if o.Beside != nil {
		o.Beside(t, func(n int) { t.Helper(); awaitAll(t, done, n) })
		finish()
	}
	wg.Wait()
	for db := range dbs { // what is left of everything
		for _, update := range []bool{true, false} {
			h.do(ctx, o.Clients, db, "end", update, func(r *recorder) error { r.scan(0, o.Keys, o.Keys); return nil })
		}
	}
	if o.Marks {
		h.settle(ctx, dbs[0])
	}
	return h
}

// awaitAll waits until each counter grew by n.
func awaitAll(t *testing.T, done []atomic.Int64, n int) {
	t.Helper()
	want := make([]int64, len(done))
	for c := range done {
		want[c] = done[c].Load() + int64(n)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for c := range done {
		for done[c].Load() < want[c] {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("client %d makes no progress", c)
			}
		}
	}
}

// verdict is what came of a check.
type verdict struct {
	result porcupine.CheckResult
	asked  string
	model  porcupine.Model
	ops    []porcupine.Operation
}

// judge checks the history. It returns the first verdict that is not Ok.
func (h *history) judge(views ViewPromise, budget time.Duration) (v verdict) {
	return judge(h.entries, views, budget)
}

func judge(entries []*entry, views ViewPromise, budget time.Duration) verdict {
	check := func(asked string, model porcupine.Model, entries []*entry) verdict {
		v := verdict{asked: asked, model: model, ops: operations(entries)}
		v.result = porcupine.CheckOperationsTimeout(model, v.ops, budget)
		return v
	}
	if views == LinearViews {
		return check("one serial order of Updates and Views", strictModel(), entries)
	}
	isView := func(e *entry) bool { return !e.update }
	v := check("one serial order of Updates", strictModel(), slices.DeleteFunc(slices.Clone(entries), isView))
	if v.result != porcupine.Ok {
		return v
	}
	changes := slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.update && e.effect().none() })
	return check("one order of commits with Views as snapshots", snapshotModel(changes), changes)
}

// explain says what is wrong and draws it.
func (v verdict) explain(seed uint64, budget time.Duration) string {
	if v.result == porcupine.Unknown {
		return fmt.Sprintf("%s: no answer for %d transactions within %v: use fewer clients or fewer keys", v.asked, len(v.ops), budget)
	}
	_, info := porcupine.CheckOperationsVerbose(v.model, v.ops, budget)
	lines := []string{fmt.Sprintf("%s: there is none for these %d transactions", v.asked, len(v.ops))}
	var longest []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	fits := map[any]bool{}
	for _, op := range longest {
		fits[op.Input] = true
	}
	lines = append(lines, fmt.Sprintf("one with the first %d exists; it ends with, and does not go on with:", len(longest)))
	for _, op := range longest[max(0, len(longest)-6):] {
		lines = append(lines, line(" + ", op))
	}
	rest := slices.DeleteFunc(slices.Clone(v.ops), func(op porcupine.Operation) bool { return fits[op.Input] })
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, op := range rest[:min(len(rest), 8)] {
		lines = append(lines, line(" - ", op))
	}
	path := filepath.Join(*linearOut, fmt.Sprintf("linear-%d.html", seed))
	if err := porcupine.VisualizePath(v.model, info, path); err != nil {
		lines = append(lines, fmt.Sprintf("the history cannot be drawn: %v", err))
	} else {
		lines = append(lines, "the history is drawn in "+path)
	}
	return strings.Join(lines, "\n")
}

func line(mark string, op porcupine.Operation) string {
	return fmt.Sprintf("%s[%v to %v] client %d: %v", mark, time.Duration(op.Call), time.Duration(op.Return), op.ClientId, op.Input)
}
