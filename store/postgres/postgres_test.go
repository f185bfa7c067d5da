package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"countersign/store"
	"countersign/store/storetest"
	"countersign/test/needstest"
)

// fleet is several DBs on one schema, as replicas are, that take turns to run
// what is asked of the whole.
type fleet struct {
	dbs  []*DB
	next atomic.Uint64
}

func (f *fleet) one() *DB { return f.dbs[f.next.Add(1)%uint64(len(f.dbs))] }

func (f *fleet) View(ctx context.Context, fn func(store.Tx) error) error {
	return f.one().View(ctx, fn)
}

func (f *fleet) Update(ctx context.Context, fn func(store.Tx) error) error {
	return f.one().Update(ctx, fn)
}

func (f *fleet) Close() error {
	for _, db := range f.dbs {
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

func openFleet(t *testing.T, s *server, o Options) *fleet {
	t.Helper()
	f := &fleet{}
	o.URL = s.url(freshSchema())
	for range 3 {
		f.dbs = append(f.dbs, openOn(t, s, o))
	}
	return f
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := use(t)
	_ = needstest.Whole(t) // it has fewer histories in short
	storetest.Run(t, func(t *testing.T) store.DB { return openOn(t, s, Options{NoHints: true}) })
}

// The rest of the contract over replicas, without what it says of Updates that
// wait for each other: here they do not.
func TestReplicasAreSerializable(t *testing.T) {
	t.Parallel()
	s := use(t)
	f := openFleet(t, s, Options{NoHints: true})
	const writers, rounds = 12, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			last := 0
			for range rounds {
				var now int
				if err := f.Update(t.Context(), func(tx store.Tx) error {
					now = number(tx, "total") + 1
					setNumber(tx, "total", now)
					own := fmt.Sprint("own", w)
					setNumber(tx, own, number(tx, own)+1)
					return nil
				}); err != nil {
					t.Errorf("Update: %v", err)
					return
				}
				if now <= last {
					t.Errorf("the counter went from %d to %d", last, now)
				}
				last = now
				view(t, f, func(tx store.Tx) { // of another replica
					total, sum := number(tx, "total"), 0
					for k := range tx.Scan([]byte("own"), []byte("owo")) {
						sum += number(tx, string(k))
					}
					if total < now || sum != total {
						t.Errorf("a view sees a total of %d and a sum of %d after %d was acknowledged", total, sum, now)
					}
				})
			}
		})
	}
	wg.Wait()
	view(t, f, func(tx store.Tx) {
		if got := number(tx, "total"); got != writers*rounds {
			t.Errorf("the total is %d, want %d", got, writers*rounds)
		}
	})
}

// A pooler in transaction mode wants no prepared statements.
func TestConformanceWithoutPreparedStatements(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	storetest.Run(t, func(t *testing.T) store.DB {
		return openOn(t, s, Options{URL: s.url(freshSchema()) + "&default_query_exec_mode=exec", Writers: 1})
	})
}

func TestDurable(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	_ = needstest.Whole(t) // it has fewer histories in short
	storetest.RunDurable(t, func(t *testing.T, dir string) store.DB {
		return openOn(t, s, Options{URL: s.url(schemaOf(dir)), NoHints: true})
	})
}

func TestPackagesOverPostgres(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	open := func(t *testing.T) store.DB { return openOn(t, s, Options{NoHints: true}) }
	t.Run("queue", func(t *testing.T) { storetest.RunQueue(t, open) })
	t.Run("outbox", func(t *testing.T) { storetest.RunOutbox(t, open) })
}

func TestPackagesOverReplicas(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	open := func(t *testing.T) store.DB { return openFleet(t, s, Options{NoHints: true}) }
	t.Run("queue", func(t *testing.T) { storetest.RunQueue(t, open) })
	t.Run("outbox", func(t *testing.T) { storetest.RunOutbox(t, open) })
}
