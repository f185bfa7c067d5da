package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/queue"
)

var (
	benchBody = make([]byte, 1024)
	benchRun  atomic.Int64
)

// deliver is what an adapter does with an event: a dedupe row, a sequence row of
// one of 200 threads, and an item of 1 KiB.
func deliver(tx store.Tx, n int64) {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(n)*0x9e3779b97f4a7c15) // spread, as a hash is
	dedupe := store.Key("b", "seen", id[:])
	if _, ok := tx.Get(dedupe); ok {
		return
	}
	tx.Set(dedupe, nil)
	thread := fmt.Sprint("slack:T1:C1:", n%200)
	seqKey := store.Key("b", "seq", thread)
	var seq uint64
	if v, ok := tx.Get(seqKey); ok {
		seq = binary.BigEndian.Uint64(v)
	}
	seq++
	tx.Set(seqKey, binary.BigEndian.AppendUint64(nil, seq))
	tx.Set(store.Key("b", "item", thread, seq), benchBody)
}

// enter is the same by package queue, which writes five rows.
func enter(tx store.Tx, n int64) {
	queue.Put(tx, queue.Item{
		ID: fmt.Sprint("Ev", n), Thread: fmt.Sprint("slack:T1:C1:", n%200), Kind: "message",
		Body: []byte(`"` + string(slices.Repeat([]byte("x"), 1000)) + `"`), At: time.Unix(1_700_000_000+n&0xffff, 0),
	})
}

// saturate runs b.N transactions by some goroutines for each DB.
func saturate(b *testing.B, dbs []store.DB, each int, fn func(store.Tx, int64)) {
	var next atomic.Int64
	base := benchRun.Add(1) << 32
	took := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	for _, db := range dbs {
		for range each {
			wg.Go(func() {
				for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
					began := time.Now()
					if err := db.Update(context.Background(), func(tx store.Tx) error { fn(tx, base+i); return nil }); err != nil {
						b.Error(err)
						return
					}
					took[i] = time.Since(began)
				}
			})
		}
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
	var conflicts, commits uint64
	for _, db := range dbs {
		if pg, ok := db.(*DB); ok {
			conflicts, commits = conflicts+pg.Stats().Conflicts, commits+pg.Stats().Commits
		}
	}
	if commits > 0 {
		b.ReportMetric(100*float64(conflicts)/float64(conflicts+commits), "retry-%")
	}
}

// fill makes the table a big one.
func fill(b *testing.B, s *server, schema string) {
	s.admin(b, `INSERT INTO `+schema+`.kv SELECT '\x20'::bytea || decode(md5(i::text), 'hex'), decode(repeat(md5(i::text), 8), 'hex') FROM generate_series(1, 100000) i`)
	s.admin(b, `VACUUM ANALYZE `+schema+`.kv`)
}

// BenchmarkUpdate compares replicas, writers and the time that a commit takes;
// bolt is the embedded engine under the same load.
func BenchmarkUpdate(b *testing.B) {
	s := use(b)
	for _, work := range []struct {
		name string
		fn   func(store.Tx, int64)
	}{{"event", deliver}, {"queue", enter}} {
		for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
			for _, c := range []struct{ dbs, each, writers int }{{1, 1, 4}, {1, 8, 1}, {1, 8, 4}, {1, 8, 8}, {1, 64, 4}, {3, 1, 4}, {3, 8, 1}, {3, 8, 2}, {3, 8, 4}, {3, 8, 8}} {
				if work.name == "queue" && (c.writers != 4 || c.each > 8) {
					continue
				}
				b.Run(fmt.Sprintf("%s/postgres/commit+%v/dbs=%d/goroutines=%d/writers=%d", work.name, delay, c.dbs, c.dbs*c.each, c.writers), func(b *testing.B) {
					schema := freshSchema()
					var dbs []store.DB
					for range c.dbs {
						dbs = append(dbs, openOn(b, s, Options{URL: s.url(schema), Writers: c.writers, NoHints: true}))
					}
					fill(b, s, schema)
					if delay > 0 {
						slowCommit(b, s, schema, delay.Seconds())
					}
					saturate(b, dbs, c.each, work.fn)
				})
			}
		}
		for _, each := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/bolt/goroutines=%d", work.name, each), func(b *testing.B) {
				db, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), bolt.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = db.Close() }()
				saturate(b, []store.DB{db}, each, work.fn)
			})
		}
	}
}

// BenchmarkPaced is three replicas at a rate that a busy instance has.
func BenchmarkPaced(b *testing.B) {
	s := use(b)
	for _, delay := range []time.Duration{0, 2 * time.Millisecond} {
		for _, rate := range []int{50, 200} {
			b.Run(fmt.Sprintf("commit+%v/rate=%d", delay, rate), func(b *testing.B) {
				schema := freshSchema()
				dbs := []*DB{}
				for range 3 {
					dbs = append(dbs, openOn(b, s, Options{URL: s.url(schema), NoHints: true}))
				}
				fill(b, s, schema)
				if delay > 0 {
					slowCommit(b, s, schema, delay.Seconds())
				}
				base := benchRun.Add(1) << 32
				took := make([]time.Duration, b.N)
				tick := time.NewTicker(time.Second / time.Duration(rate))
				defer tick.Stop()
				var wg sync.WaitGroup
				b.ResetTimer()
				for i := range b.N {
					<-tick.C
					wg.Go(func() {
						began := time.Now()
						if err := dbs[i%3].Update(context.Background(), func(tx store.Tx) error { deliver(tx, base+int64(i)); return nil }); err != nil {
							b.Error(err)
						}
						took[i] = time.Since(began)
					})
				}
				wg.Wait()
				b.StopTimer()
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(0, "ns/op")
				var conflicts uint64
				for _, db := range dbs {
					conflicts += db.Stats().Conflicts
				}
				b.ReportMetric(100*float64(conflicts)/float64(conflicts+uint64(b.N)), "retry-%")
			})
		}
	}
}

// through is a transaction that sends each write at once, to compare with.
type through struct{ *tx }

func (t through) Set(key, val []byte) {
	t.tx.Set(key, val)
	b := &pgx.Batch{}
	t.prelude(b)
	t.flush(b)
	if err := t.s.conn.SendBatch(t.ctx, b).Close(); err != nil {
		t.fail(err)
	}
	t.began, t.over = true, overlay{}.Edit()
}

// BenchmarkWriteThrough compares writes that wait for the commit with writes that
// are sent as they come.
func BenchmarkWriteThrough(b *testing.B) {
	s := use(b)
	for name, fn := range map[string]func(store.Tx, int64){
		"together": deliver,
		"one-by-one": func(in store.Tx, n int64) {
			t := in.(*tx)
			deliver(through{t}, n)
			t.Set(store.Key("b", "so that there is a receipt", n), nil)
		},
		"together-one-more": func(in store.Tx, n int64) {
			deliver(in, n)
			in.Set(store.Key("b", "so that there is a receipt", n), nil)
		},
	} {
		for _, dbs := range []int{1, 3} {
			b.Run(fmt.Sprintf("%s/dbs=%d", name, dbs), func(b *testing.B) {
				schema := freshSchema()
				var all []store.DB
				for range dbs {
					all = append(all, openOn(b, s, Options{URL: s.url(schema), NoHints: true}))
				}
				fill(b, s, schema)
				saturate(b, all, 1+dbs/3*7, fn)
			})
		}
	}
}
