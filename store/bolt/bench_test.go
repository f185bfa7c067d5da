//go:build linux

package bolt_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/bolt"
	"countersign/store/queue"
)

var eventBody = json.RawMessage(`{"text":"` + string(make1K()) + `"}`)

func make1K() []byte {
	b := make([]byte, 1000)
	for i := range b {
		b[i] = byte('a' + i%26)
	}
	return b
}

func event(n int64) queue.Item {
	return queue.Item{
		ID: fmt.Sprint("Ev", n), Thread: fmt.Sprint("slack:T1:C1:", n%200), Kind: "message",
		Body: eventBody, At: time.Unix(1_700_000_000+n, 0),
	}
}

// deliver makes one event durable, as an adapter does before it acknowledges.
func deliver(b *testing.B, db store.DB, n int64) {
	if err := db.Update(b.Context(), func(tx store.Tx) error {
		if !queue.Put(tx, event(n)) {
			b.Error("a fresh event counts as seen")
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
}

// bare returns a function that overwrites 4 KiB of an existing file and syncs
// it, the least that a durable write costs on this disk.
func bare(b *testing.B) func(i int) {
	f, err := os.Create(filepath.Join(b.TempDir(), "bare"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	const blocks = 1024
	if _, err := f.Write(make([]byte, blocks*4096)); err != nil {
		b.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	page := make([]byte, 4096)
	return func(i int) {
		if _, err := f.WriteAt(page, int64(i%blocks)*4096); err != nil {
			b.Fatal(err)
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDurableEntry is one event from nothing to durable by a lone writer,
// checkpoints included, as a multiple of a bare fdatasync of 4 KiB; the two take
// turns. Goal: x-fdatasync and x-fdatasync-p50 at most 1.5.
func BenchmarkDurableEntry(b *testing.B) {
	db, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	sync := bare(b)
	var entry, raw []time.Duration
	n := int64(0)
	for b.Loop() {
		start := time.Now()
		deliver(b, db, n)
		mid := time.Now()
		sync(int(n))
		n++
		entry, raw = append(entry, mid.Sub(start)), append(raw, time.Since(mid))
	}
	sum := func(ds []time.Duration) (s time.Duration) {
		for _, d := range ds {
			s += d
		}
		return s
	}
	b.ReportMetric(float64(sum(entry))/float64(sum(raw)), "x-fdatasync")
	slices.Sort(entry)
	slices.Sort(raw)
	b.ReportMetric(float64(entry[len(entry)/2])/float64(raw[len(raw)/2]), "x-fdatasync-p50")
	b.ReportMetric(float64(entry[len(entry)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(entry[len(entry)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(raw[len(raw)/2].Microseconds()), "fdatasync-p50-µs")
}

// BenchmarkConcurrentEntries is the rate of 64 writers as a multiple of the rate
// of a lone one; the two take turns, so that what else the machine does is the
// same for both. Goal: x-lone at least 5.
func BenchmarkConcurrentEntries(b *testing.B) {
	db, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	var next atomic.Int64
	write := func(writers, entries int) (took time.Duration) {
		start, end := time.Now(), next.Load()+int64(entries)
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for n := next.Add(1); n <= end; n = next.Add(1) {
					deliver(b, db, n)
				}
			})
		}
		wg.Wait()
		next.Store(end)
		return time.Since(start)
	}
	const part = 4096
	var lone, many time.Duration
	var batches uint64
	parts := 0
	b.ResetTimer()
	for done := 0; done < b.N; done += part {
		parts++
		lone += write(1, part/8)
		before := db.Stats().Batches
		many += write(64, part)
		batches += db.Stats().Batches - before
	}
	rate, loneRate := float64(parts*part)/many.Seconds(), float64(parts*part/8)/lone.Seconds()
	b.ReportMetric(rate, "entries/s")
	b.ReportMetric(loneRate, "lone-entries/s")
	b.ReportMetric(rate/loneRate, "x-lone")
	b.ReportMetric(float64(parts*part)/float64(batches), "entries/batch")
}

// BenchmarkOpenReady opens a store that knows 10,000 threads, 200 of them with
// work, and finds these.
func BenchmarkOpenReady(b *testing.B) {
	path := filepath.Join(b.TempDir(), "state.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		b.Fatal(err)
	}
	nobody := func(string) bool { return false }
	for i := range 100 {
		if err := db.Update(b.Context(), func(tx store.Tx) error {
			for j := range 100 {
				it := event(int64(i*100 + j))
				it.Thread = fmt.Sprint("slack:T1:C1:", i*100+j)
				queue.Put(tx, it)
				f, _ := queue.Claim(tx, it.Thread, "old", nobody)
				if j >= 2 {
					queue.Drain(tx, f, 0)
				}
				if !queue.Release(tx, f) {
					queue.Yield(tx, f)
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			b.Fatal(err)
		}
		var ready []string
		if err := db.View(b.Context(), func(tx store.Tx) error {
			ready = queue.Ready(tx, 0, nobody)
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		if len(ready) != 200 {
			b.Fatalf("%d threads are ready", len(ready))
		}
		b.StopTimer()
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
