//go:build linux

package scale

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/store"
	"countersign/store/mem"
	"countersign/store/postgres"
	"countersign/store/queue"
)

// threadOf names a thread of the benchmark. All names have the same length.
func threadOf(n int) string { return fmt.Sprintf("web:scale/%07d", n) }

// stored is what threads leave in the store: the rows of one thread that was played for
// real, which become those of any other thread by its name.
type stored struct {
	name    []byte // of the thread that was played
	own     []row  // rows that name it
	hashed  []row  // rows under the hash of an event's ID
	shared  []row  // rows of all threads together
	entries int    // of its transcript
}

type row struct {
	key, val []byte
	parts    []any // of a hashed row's key
}

const playedTurns = 2

// played has turns in one thread of a bot on a store in memory.
func played(tb testing.TB) *stored {
	tb.Helper()
	const talk = 9_999_999
	db := mem.Open()
	posts := make(chan string, 100)
	b := &bot{dir: tb.TempDir(), log: slog.New(slog.DiscardHandler), db: db, tell: func(r report) { posts <- r.Text }}
	if err := b.assemble(nil, "scale/played", nil); err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { b.run(ctx) })
	for n := range playedTurns {
		tag := tagOf(talk, n+1, looks)
		if err := b.say(ctx, threadOf(talk), "m/"+tag, question(tag)); err != nil {
			tb.Fatal(err)
		}
		select {
		case got := <-posts:
			if got != tag {
				tb.Fatalf("%q was answered, not %q", got, tag)
			}
		case <-time.After(time.Minute):
			tb.Fatal("the thread that all others are made from was not answered")
		}
	}
	eventually(tb, "the thread is given back", func() (idle bool) {
		_ = db.View(ctx, func(tx store.Tx) error { idle = len(queue.Working(tx)) == 0; return nil })
		return idle
	})
	cancel()
	running.Wait()
	s := &stored{name: []byte(threadOf(talk))}
	err := db.View(tb.Context(), func(tx store.Tx) error {
		s.entries = len(history.Load(tx, chat.ThreadID(threadOf(talk))))
		for k, v := range tx.Scan(nil, nil) {
			parts, err := store.Parts(k)
			if err != nil {
				return err
			}
			last, hashed := parts[len(parts)-1].([]byte)
			switch {
			case bytes.Contains(k, s.name):
				s.own = append(s.own, row{key: k, val: v})
			case hashed && len(last) == 16 && parts[0] == "queue":
				s.hashed = append(s.hashed, row{parts: parts, val: v})
			default:
				s.shared = append(s.shared, row{key: k, val: v})
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// put writes the rows of thread n.
func (s *stored) put(tx store.Tx, n int) {
	name := []byte(threadOf(n))
	for _, r := range s.own {
		tx.Set(bytes.ReplaceAll(r.key, s.name, name), bytes.ReplaceAll(r.val, s.name, name))
	}
	for _, r := range s.hashed {
		parts := slices.Clone(r.parts)
		old, _ := parts[len(parts)-1].([]byte)
		sum := sha256.Sum256(binary.BigEndian.AppendUint64(slices.Clone(old), uint64(n)))
		parts[len(parts)-1] = sum[:16]
		tx.Set(store.Key(parts...), r.val)
	}
}

// fillBatch is how many threads one transaction writes, some megabytes.
const fillBatch = 250

// fill stores the threads from..to-1 by large transactions, side by side.
func (s *stored) fill(tb testing.TB, url string, from, to int) {
	tb.Helper()
	const writers = 2
	db, err := postgres.Open(tb.Context(), postgres.Options{URL: url, Replica: "fill", Writers: writers, NoHints: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(tb.Context(), func(tx store.Tx) error {
		for _, r := range s.shared {
			tx.Set(r.key, r.val)
		}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	var next atomic.Int64
	next.Store(int64(from))
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				first := int(next.Add(fillBatch)) - fillBatch
				if first >= to {
					return
				}
				if err := db.Update(tb.Context(), func(tx store.Tx) error {
					for n := first; n < min(first+fillBatch, to); n++ {
						s.put(tx, n)
					}
					return nil
				}); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}
