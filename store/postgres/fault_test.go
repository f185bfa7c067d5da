package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/store"
	"countersign/test/needstest"
)

// add is one Update that reads and writes two counters.
func add(ctx context.Context, db store.DB, key string) error {
	return db.Update(ctx, func(tx store.Tx) error {
		setNumber(tx, key, number(tx, key)+1)
		setNumber(tx, "total", number(tx, "total")+1)
		return nil
	})
}

func TestACommitWhoseAnswerIsLostCountsOnce(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	for _, c := range []struct {
		name    string
		verdict verdict
		runs    int // of the function
		before  bool
	}{
		{"the answer is swallowed", swallowReply, 1, false},
		{"the answer never comes", hangReply, 1, false},
		{"the request is lost", cutRequest, 2, false},
		{"the request comes when it is too late", lateRequest, 2, false},
		{"the request breaks off before the commit", halfRequest, 2, true},
	} {
		for _, reads := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, after reads: %v", c.name, reads), func(t *testing.T) {
				p := newProxy(t, s)
				schema := freshSchema()
				db := openOn(t, s, Options{URL: p.url(s, schema), Timeout: 2 * time.Second})
				direct := openOn(t, s, Options{URL: s.url(schema)})
				update(t, db, func(tx store.Tx) { setNumber(tx, "n", 0) })
				for round := range 3 {
					p.once(c.verdict)
					if c.before { // the server holds the locks until its side breaks
						stop := time.AfterFunc(300*time.Millisecond, p.let)
						defer stop.Stop()
					}
					runs := 0
					if err := db.Update(t.Context(), func(tx store.Tx) error {
						runs++
						n := round
						if reads {
							n = number(tx, "n")
						}
						setNumber(tx, "n", n+1)
						tx.Set(fmt.Appendf(nil, "run%d/%d", round, runs), nil)
						return nil
					}); err != nil {
						t.Fatal(err)
					}
					if runs != c.runs {
						t.Errorf("the function ran %d times, want %d", runs, c.runs)
					}
					p.let()
					view(t, direct, func(tx store.Tx) {
						if got := number(tx, "n"); got != round+1 {
							t.Errorf("the counter is %d, want %d", got, round+1)
						}
						n := 0
						for range tx.Scan(fmt.Appendf(nil, "run%d/", round), fmt.Appendf(nil, "run%d0", round)) {
							n++
						}
						if n != 1 {
							t.Errorf("%d runs of the function were committed", n)
						}
					})
				}
				if got := db.Stats(); got.Resolved != 3 || got.Unknown != 0 {
					t.Errorf("the stats are %+v, want 3 resolved", got)
				}
			})
		}
	}
}

func TestACommitThatNobodyCanAskAboutIsUnknown(t *testing.T) {
	s := use(t)
	p := newProxy(t, s)
	schema := freshSchema()
	db := openOn(t, s, Options{URL: p.url(s, schema), Timeout: time.Second, Patience: 300 * time.Millisecond, NoHints: true})
	p.next(func() verdict {
		_ = p.l.Close() // no new connections
		return swallowReply
	})
	err := add(t.Context(), db, "n")
	if !errors.Is(err, ErrUnknown) {
		t.Errorf("Update = %v, want %v", err, ErrUnknown)
	}
	if db.Stats().Unknown != 1 {
		t.Errorf("the stats are %+v", db.Stats())
	}
	view(t, openOn(t, s, Options{URL: s.url(schema)}), func(tx store.Tx) {
		if got := number(tx, "n"); got != 1 {
			t.Errorf("the counter is %d", got)
		}
	})
}

func TestRandomFaultsAtCommitsLoseAndDoubleNothing(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	p := newProxy(t, s)
	schema := freshSchema()
	var faults atomic.Int64
	p.next(func() verdict {
		if rand.IntN(6) > 0 {
			return pass
		}
		faults.Add(1)
		return []verdict{cutRequest, lateRequest, swallowReply}[rand.IntN(3)]
	})
	const writers, rounds = 4, 25
	var wg sync.WaitGroup
	for w := range writers {
		db := openOn(t, s, Options{URL: p.url(s, schema), Timeout: 5 * time.Second})
		wg.Go(func() {
			for i := range rounds {
				if err := add(t.Context(), db, fmt.Sprint("w", w)); err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
				if i%5 == 0 {
					p.let()
				}
			}
		})
	}
	wg.Wait()
	p.next(func() verdict { return pass })
	p.let()
	checkCounters(t, openOn(t, s, Options{URL: s.url(schema)}), writers, rounds)
	t.Logf("%d faults", faults.Load())
}

func checkCounters(t *testing.T, db store.DB, writers, rounds int) {
	t.Helper()
	view(t, db, func(tx store.Tx) {
		for w := range writers {
			if got := number(tx, fmt.Sprint("w", w)); got != rounds {
				t.Errorf("writer %d: %d were committed and %d acknowledged", w, got, rounds)
			}
		}
		if got := number(tx, "total"); got != writers*rounds {
			t.Errorf("the total is %d, want %d", got, writers*rounds)
		}
	})
}

func terminate(tb testing.TB, s *server, replica string) {
	s.admin(tb, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, "countersign/"+replica)
}

func TestAConnectionThatIsCutIsReplaced(t *testing.T) {
	s := use(t)
	for step, name := range []string{"before the first read", "after the first read", "after the second read", "before a commit without writes"} {
		t.Run(name, func(t *testing.T) {
			schema := freshSchema()
			db := openOn(t, s, Options{URL: s.url(schema), Replica: schema, NoHints: true})
			update(t, db, func(tx store.Tx) { setNumber(tx, "n", 1) })
			runs := 0
			at := func(here int) {
				if here == step && runs == 1 {
					terminate(t, s, schema)
				}
			}
			if err := db.Update(t.Context(), func(tx store.Tx) error {
				runs++
				at(0)
				n := number(tx, "n")
				at(1)
				for range tx.Scan(nil, nil) {
					n++
				}
				at(2)
				at(3)
				if step != 3 {
					setNumber(tx, "n", n)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if runs != 2 {
				t.Errorf("the function ran %d times, want 2", runs)
			}
			want := 2
			if step == 3 {
				want = 1
			}
			view(t, db, func(tx store.Tx) {
				if got := number(tx, "n"); got != want {
					t.Errorf("n is %d, want %d", got, want)
				}
			})
		})
	}
	t.Run("right at the commit", func(t *testing.T) {
		schema := freshSchema()
		db := openOn(t, s, Options{URL: s.url(schema), Replica: schema, NoHints: true})
		slowCommit(t, s, schema, 2)
		runs := 0
		cut := make(chan struct{})
		go func() {
			defer close(cut)
			for s.ask(t, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'`, "countersign/"+schema) == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			terminate(t, s, schema)
		}()
		defer func() { <-cut }()
		if err := db.Update(t.Context(), func(tx store.Tx) error {
			runs++
			setNumber(tx, "n", number(tx, "n")+1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		view(t, db, func(tx store.Tx) {
			if got := number(tx, "n"); got != 1 || runs != 2 {
				t.Errorf("n is %d after %d runs, want 1 after 2", got, runs)
			}
		})
		if got := db.Stats().Resolved; got != 1 {
			t.Errorf("%d commits were asked about, want 1", got)
		}
	})
	t.Run("a view, before and after its first read", func(t *testing.T) {
		schema := freshSchema()
		db := openOn(t, s, Options{URL: s.url(schema), Replica: schema, NoHints: true})
		update(t, db, func(tx store.Tx) { setNumber(tx, "n", 1) })
		runs := 0
		if err := db.View(t.Context(), func(tx store.Tx) error {
			runs++
			terminate(t, s, schema)
			if got := number(tx, "n"); got != 1 {
				t.Errorf("n is %d", got)
			}
			return nil
		}); err != nil || runs != 1 {
			t.Errorf("the view ran %d times: %v", runs, err)
		}
		err := db.View(t.Context(), func(tx store.Tx) error {
			runs++
			number(tx, "n")
			terminate(t, s, schema)
			number(tx, "m")
			t.Error("the view goes on after its snapshot was lost")
			return nil
		})
		if err == nil || runs != 2 {
			t.Errorf("the view ran %d times: %v", runs-1, err)
		}
		view(t, db, func(tx store.Tx) { number(tx, "n") })
	})
}

// slowCommit makes every commit that writes rows take some seconds, before it is
// durable and after all statements.
func slowCommit(tb testing.TB, s *server, schema string, seconds float64) {
	s.admin(tb, strings.NewReplacer("{s}", schema, "{t}", fmt.Sprint(seconds)).Replace(`
		CREATE FUNCTION {s}.slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep({t}); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON {s}.receipt DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.n > 0) EXECUTE FUNCTION {s}.slow();`))
}

// load runs writers on several DBs until stop is closed, and counts what was
// acknowledged.
type load struct {
	dbs   []*DB
	acked []atomic.Int64
	wg    sync.WaitGroup
	stop  chan struct{}
}

func startLoad(t *testing.T, writers int, dbs ...*DB) *load {
	l := &load{dbs: dbs, acked: make([]atomic.Int64, writers), stop: make(chan struct{})}
	for w := range writers {
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if err := add(t.Context(), dbs[w%len(dbs)], fmt.Sprint("w", w)); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				l.acked[w].Add(1)
			}
		})
	}
	return l
}

// await waits until every writer was acknowledged n more times.
func (l *load) await(t *testing.T, n int64) {
	t.Helper()
	before := make([]int64, len(l.acked))
	for w := range l.acked {
		before[w] = l.acked[w].Load()
	}
	deadline := time.Now().Add(60 * time.Second)
	for w := range l.acked {
		for l.acked[w].Load() < before[w]+n {
			if time.Now().After(deadline) {
				t.Fatalf("writer %d makes no progress", w)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func (l *load) finish(t *testing.T, db store.DB) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	total := 0
	view(t, db, func(tx store.Tx) {
		for w := range l.acked {
			acked := int(l.acked[w].Load())
			total += acked
			if got := number(tx, fmt.Sprint("w", w)); got != acked {
				t.Errorf("writer %d: %d were committed and %d acknowledged", w, got, acked)
			}
		}
		if got := number(tx, "total"); got != total {
			t.Errorf("the total is %d and %d were acknowledged", got, total)
		}
	})
	var faults, resolved uint64
	for _, db := range l.dbs {
		faults, resolved = faults+db.Stats().Faults, resolved+db.Stats().Resolved
	}
	t.Logf("%d acknowledged; %d faults, %d commits asked about", total, faults, resolved)
}

func TestAKilledServerLosesAndDoublesNothing(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := own(t)
	url := s.url("countersign")
	a, b := openOn(t, s, Options{URL: url}), openOn(t, s, Options{URL: url})
	l := startLoad(t, 6, a, b)
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		l.await(t, 3+rand.Int64N(20))
		s.kill()
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
	}
	l.await(t, 5)
	l.finish(t, a)
}

func TestFailOverToASynchronousStandbyLosesAndDoublesNothing(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	primary := own(t, "wal_level = replica")
	standby, err := blank()
	need(t, err)
	t.Cleanup(standby.destroy)
	if err := standby.run("pg_basebackup", "-D", standby.data(), "-R", "-c", "fast", "-d",
		fmt.Sprintf("host=127.0.0.1 port=%d user=admin application_name=second", primary.port)); err != nil {
		t.Fatal(err)
	}
	if err := standby.start(); err != nil {
		t.Fatal(err)
	}
	primary.admin(t, `ALTER SYSTEM SET synchronous_standby_names = 'second'`)
	primary.admin(t, `SELECT pg_reload_conf()`)
	for primary.ask(t, `SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	url := fmt.Sprintf("postgres://admin@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable", standby.port, primary.port)
	a, b := openOn(t, nil, Options{URL: url, Replica: "a"}), openOn(t, nil, Options{URL: url, Replica: "b"})
	l := startLoad(t, 6, a, b)
	l.await(t, 10)

	// Backends that are ended while they wait for the standby have committed, but
	// only here: nobody may be told so before the standby has it, too.
	waitForStandby := func(name string) {
		primary.admin(t, `ALTER SYSTEM SET synchronous_standby_names = '`+name+`'`)
		primary.admin(t, `SELECT pg_reload_conf()`)
	}
	waitForStandby("nobody")
	time.Sleep(200 * time.Millisecond)
	terminate(t, primary, "a")
	before := l.acked[0].Load()
	time.Sleep(200 * time.Millisecond)
	if got := l.acked[0].Load(); got > before+1 {
		t.Errorf("%d commits were acknowledged without the standby", got-before)
	}
	waitForStandby("second")
	l.await(t, 10)

	started := time.Now()
	primary.kill()
	if err := standby.run("pg_ctl", "promote", "-D", standby.data(), "-w"); err != nil {
		t.Fatal(err)
	}
	l.await(t, 10)
	t.Logf("%v from the kill to ten more commits of each writer", time.Since(started).Round(time.Millisecond))
	l.finish(t, a)
}

func TestAStormOnOneKeyCountsEachOnce(t *testing.T) {
	s := use(t)
	f := openFleet(t, s, Options{NoHints: true})
	const writers, rounds = 8, 15
	var wg sync.WaitGroup
	started := time.Now()
	var slowest atomic.Int64
	for i, db := range f.dbs {
		for w := range writers {
			wg.Go(func() {
				for range rounds {
					began := time.Now()
					if err := add(t.Context(), db, fmt.Sprint("w", i*writers+w)); err != nil {
						t.Errorf("Update: %v", err)
					}
					for took := int64(time.Since(began)); took > slowest.Load(); {
						slowest.Store(took)
					}
				}
			})
		}
	}
	wg.Wait()
	took := time.Since(started)
	checkCounters(t, f, 3*writers, rounds)
	var conflicts uint64
	for _, db := range f.dbs {
		conflicts += db.Stats().Conflicts
	}
	t.Logf("%d commits, %d conflicts, %.0f commits/s, the slowest took %v", 3*writers*rounds, conflicts,
		float64(3*writers*rounds)/took.Seconds(), time.Duration(slowest.Load()).Round(time.Millisecond))
}
