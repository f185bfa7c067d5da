package postgres

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/storetest"
	"countersign/test/needstest"
)

// replicas are DBs on one schema.
func replicas(t *testing.T, s *server, os ...Options) []store.DB {
	t.Helper()
	schema := freshSchema()
	var dbs []store.DB
	for _, o := range os {
		if o.URL == "" {
			o.URL = s.url(schema)
		}
		o.NoHints = true
		dbs = append(dbs, openOn(t, s, o))
	}
	return dbs
}

func TestLinearizable(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	for _, c := range []struct {
		name string
		o    storetest.LinearOptions
	}{
		{"few keys", storetest.LinearOptions{Keys: 4, Ops: 30}},
		{"more keys and clients", storetest.LinearOptions{Keys: 10, Clients: 9, Ops: 30}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Views = storetest.SnapshotViews
			storetest.Linearizable(t, func(t *testing.T) []store.DB { return replicas(t, s, Options{}, Options{}, Options{}) }, c.o)
		})
	}
}

func TestAnomalies(t *testing.T) {
	t.Parallel()
	s := use(t)
	storetest.Anomalies(t, func(t *testing.T) []store.DB {
		return replicas(t, s, Options{}, Options{}, Options{})
	}, storetest.SnapshotViews, true)
}

func unknown(err error) bool { return errors.Is(err, ErrUnknown) }

// known are all other errors: of them nothing was written.
func known(err error) bool { return !unknown(err) }

func TestLinearizableWhenConnectionsAreCut(t *testing.T) {
	t.Parallel()
	s := use(t)
	p := newProxy(t, s)
	o := Options{URL: p.url(s, freshSchema()), Timeout: 2 * time.Second}
	hasty := o
	hasty.Patience = time.Nanosecond // one look at what came of a commit, and it may be cut itself
	storetest.Linearizable(t, func(t *testing.T) []store.DB { return replicas(t, s, o, o, hasty) }, storetest.LinearOptions{
		Views: storetest.SnapshotViews, Maybe: unknown, Broken: known, Marks: true,
		Beside: func(_ *testing.T, await func(n int)) {
			p.next(func() verdict {
				if rand.IntN(10) > 0 {
					return pass
				}
				return []verdict{cutRequest, lateRequest, swallowReply}[rand.IntN(3)]
			})
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for tick := time.NewTicker(20 * time.Millisecond); ; { // so late are those that are late
					select {
					case <-tick.C:
						p.let()
					case <-stop:
						return
					}
				}
			}()
			defer func() {
				close(stop)
				<-stopped
				p.next(func() verdict { return pass })
				p.let()
			}()
			await(40)
		},
	})
}

func TestLinearizableWhenTheServerIsKilled(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := own(t)
	storetest.Linearizable(t, func(t *testing.T) []store.DB {
		return replicas(t, s, Options{}, Options{}, Options{Patience: 50 * time.Millisecond})
	}, storetest.LinearOptions{
		Views: storetest.SnapshotViews, Maybe: unknown, Broken: known,
		Beside: func(t *testing.T, await func(n int)) {
			for range 2 {
				await(2 + rand.IntN(6))
				s.kill()
				if err := s.start(); err != nil {
					t.Fatal(err)
				}
			}
			await(3)
		},
	})
}

// follow makes standby, a server that does not run, the synchronous standby of
// primary.
func follow(t *testing.T, standby, primary *server) {
	t.Helper()
	if err := os.RemoveAll(standby.data()); err != nil {
		t.Fatal(err)
	}
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
}

func TestLinearizableThroughAFailOver(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	primary := own(t, "wal_level = replica")
	standby, err := blank()
	need(t, err)
	t.Cleanup(standby.destroy)
	follow(t, standby, primary)
	url := fmt.Sprintf("postgres://admin@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&search_path=%s", standby.port, primary.port, freshSchema())
	first := true
	storetest.Linearizable(t, func(t *testing.T) []store.DB {
		return replicas(t, nil, Options{URL: url}, Options{URL: url}, Options{URL: url, Patience: 50 * time.Millisecond})
	}, storetest.LinearOptions{
		Views: storetest.SnapshotViews, Maybe: unknown, Broken: known,
		Beside: func(t *testing.T, await func(n int)) {
			if !first { // what was the primary follows now
				follow(t, standby, primary)
			}
			first = false
			await(5)
			primary.kill()
			if err := standby.run("pg_ctl", "promote", "-D", standby.data(), "-w"); err != nil {
				t.Fatal(err)
			}
			primary, standby = standby, primary
			primary.admin(t, `ALTER SYSTEM RESET synchronous_standby_names`)
			primary.admin(t, `SELECT pg_reload_conf()`)
			await(5)
		},
	})
}

func TestMachine(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := use(t)
	// Views stay open for as long as a busy machine takes.
	o := Options{URL: s.url(freshSchema()), Timeout: 5 * time.Minute}
	dbs := replicas(t, s, o, o, o)
	storetest.Machine(t, 6, func(*testing.T) *storetest.Fleet {
		return &storetest.Fleet{
			DBs: dbs, Reuse: true,
			Reopen: func(t *testing.T, db store.DB) store.DB {
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				return replicas(t, s, o)[0]
			},
		}
	})
}
