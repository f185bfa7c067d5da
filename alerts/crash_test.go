package alerts_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/alerts/notice"
	"countersign/store"
)

var errDead = errors.New("the process is dead")

// mortal is a store of a process that dies at one of its writes: before it is
// durable or right after it.
type mortal struct {
	store.DB

	mu    sync.Mutex
	left  int
	after bool
	dead  bool
}

func (m *mortal) View(ctx context.Context, fn func(store.Tx) error) error {
	m.mu.Lock()
	dead := m.dead
	m.mu.Unlock()
	if dead {
		return errDead
	}
	return m.DB.View(ctx, fn)
}

func (m *mortal) Update(ctx context.Context, fn func(store.Tx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	m.left--
	if m.left >= 0 {
		return m.DB.Update(ctx, fn)
	}
	m.dead = true
	if m.after {
		_ = m.DB.Update(ctx, fn)
	}
	return errDead
}

func (m *mortal) died() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// story is what a house went through, as people see it in the end.
type story struct {
	threads int
	events  []string // that the bot was asked under
	posts   []string // key and first line
}

// live plays the scenario in a process that dies at its write number at, and then
// in a new one.
func live(t *testing.T, at int, after bool) (s story, died bool) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config()
		cfg.NewThreads = 2
		h := newHouse(t, cfg)
		m := &mortal{DB: h.db, left: at, after: after}
		h.in = h.intake(m)
		h.run()
		defer func() { h.stop() }()
		n := 0
		accept := func(list ...notice.Notice) {
			for _, x := range list {
				n++
				x.ID, x.At = fmt.Sprint("message ", n), time.Now()
				// The sender tries again until it is acknowledged.
				for h.in.Accept(context.Background(), x) != nil {
					if m.died() && !died {
						died = true
						h.stop()
						h.in = h.intake(h.db)
						h.run()
					}
					settle(time.Second)
				}
			}
		}
		pause := func(d time.Duration) {
			settle(d)
			if m.died() && !died {
				died = true
				h.stop()
				h.in = h.intake(h.db)
				h.run()
				settle(time.Second)
			}
		}
		changed := fires("a")
		changed.Change = "acknowledged"
		accept(fires("a"))
		pause(5 * time.Second)
		accept(fires("b"), fires("c"), fires("d"))
		pause(30 * time.Second)
		accept(fires("a"), changed)
		pause(2 * time.Minute)
		accept(over("a"), over("c"))
		pause(2 * time.Minute)
		accept(over("d"))
		pause(5 * time.Minute)

		s.threads = len(h.net.Threads())
		for _, ev := range h.questions() {
			s.events = append(s.events, string(ev.ID))
		}
		slices.Sort(s.events)
		for _, th := range h.net.Threads() {
			got := h.texts(th)
			for _, key := range slices.Sorted(maps.Keys(got)) {
				line, _, _ := strings.Cut(got[key], "\n")
				if strings.HasPrefix(line, "✅ Resolved after") || strings.HasPrefix(line, "Still firing") {
					line = line[:len("Still firin")] // a time follows
				}
				// Which message of the thread a line is depends on when it came.
				s.posts = append(s.posts, strings.TrimRight(key, "0123456789")+" "+line)
			}
		}
		slices.Sort(s.posts)
		// Nothing is left to be done.
		_ = h.db.View(context.Background(), func(tx store.Tx) error {
			for range tx.Scan(store.Prefix("alerts", "in")) {
				t.Error("a notice was not taken")
			}
			return nil
		})
	})
	return s, died
}

// TestACrashAtAnyWriteLosesAndRepeatsNothing: the process dies at each of its
// writes in turn, before and after it is durable.
func TestACrashAtAnyWriteLosesAndRepeatsNothing(t *testing.T) {
	want, _ := live(t, 1<<30, false)
	if want.threads != 3 || len(want.events) != 3 {
		t.Fatalf("without a crash it is %+v", want)
	}
	for _, after := range []bool{false, true} {
		for at := range 200 {
			got, died := live(t, at, after)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("death at write %d (after it: %v):\ngot  %+v\nwant %+v", at, after, got, want)
			}
			if !died {
				if at < 15 {
					t.Errorf("the scenario has %d writes only", at)
				}
				break
			}
		}
	}
}
