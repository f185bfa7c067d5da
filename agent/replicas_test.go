package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/store"
)

// fleet is several agents over one store.
type fleet struct {
	mu     sync.Mutex
	agents map[string]*agent.Agent
	dead   map[string]bool
	stale  map[string]bool // a beat of theirs is due
	deaf   bool            // hints are lost
	hints  atomic.Int64
}

func (f *fleet) add(name string, a *agent.Agent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents[name] = a
}

func (f *fleet) set(m map[string]bool, name string, v bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m[name] = v
}

func (f *fleet) is(m map[string]bool, name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return m[name]
}

type member struct {
	*fleet
	name string
}

func (m member) Alive(_ store.Tx, owner string) bool {
	return owner == m.name || !m.is(m.dead, owner)
}

// Hint comes a moment after the transaction, or never.
func (m member) Hint(_ store.Tx, owner string, thread chat.ThreadID) {
	m.mu.Lock()
	a, deaf := m.agents[owner], m.deaf
	m.mu.Unlock()
	if m.hints.Add(1); a != nil && !deaf {
		time.AfterFunc(time.Millisecond, func() { a.Notify(context.Background(), thread) })
	}
}

func (m member) Free(store.Tx) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.agents {
		time.AfterFunc(time.Millisecond, a.Rescan)
	}
}

func (m member) Fresh() bool { return !m.is(m.stale, m.name) }
func (m member) Freshen(context.Context) error {
	m.set(m.stale, m.name, false)
	return nil
}
func (m member) Timers() bool { return m.name == "bot/1" || m.is(m.dead, "bot/1") }

// replicas runs a test with two agents over one store.
func replicas(t *testing.T, rule string, m modelFunc, test func(t *testing.T, a, b *world)) {
	t.Helper()
	t.Run(rule, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newWorld(t, m)
			a.stop()
			a.runs, a.fleet = 0, &fleet{agents: map[string]*agent.Agent{}, dead: map[string]bool{}, stale: map[string]bool{}}
			a.start()
			b := &world{t: t, db: a.db, sh: a.sh, model: m, outputs: a.outputs, fleet: a.fleet, runs: 1, n: 100}
			b.start()
			defer func() { a.stop(); b.stop() }()
			test(t, a, b)
		})
	})
}

func TestReplicas(t *testing.T) {
	replicas(t, "a message and a click that come to another replica are worked on once", script("touch x"), func(t *testing.T, a, b *world) {
		a.say("do it")
		if x := b.press("approve"); !x.OK {
			t.Fatalf("%+v", x)
		}
		if a.sh.count("touch x") != 1 || !a.said("finished") {
			t.Fatalf("%v %+v", a.sh.ran, a.posts())
		}
	})
	replicas(t, "a message for a thread that another replica works on wakes that one", func(_ context.Context, r llm.Request) (llm.Reply, error) {
		if _, last := afterPerson(r); last == "" {
			return calls("hold"), nil
		}
		return says("finished"), nil
	}, func(t *testing.T, a, b *world) {
		a.sh.hold = make(chan struct{})
		a.say("look")
		a.press("approve")
		if a.sh.count("hold") != 1 {
			t.Fatal("it does not run")
		}
		b.say("and then?")
		if a.fleet.hints.Load() == 0 {
			t.Error("nobody told the owner")
		}
		close(a.sh.hold)
		a.settle()
		if !a.said("finished") || len(a.results()) != 1 {
			t.Fatalf("%+v", a.posts())
		}
	})
	for _, deaf := range []bool{false, true} {
		replicas(t, fmt.Sprintf("stop at another replica ends the running command, hints lost: %v", deaf), script("hold"), func(t *testing.T, a, b *world) {
			a.fleet.deaf = deaf
			a.sh.hold = make(chan struct{})
			a.say("look")
			a.press("approve")
			b.say("status")
			if !b.said("Working: running `hold`") {
				t.Errorf("the other replica does not know: %+v", b.posts())
			}
			b.say("stop")
			if !a.said("Stopped by alice") {
				t.Fatalf("%+v", a.posts())
			}
		})
	}
	replicas(t, "a thread whose owner died goes on elsewhere, and the command that ran is unknown", script("hold"), func(t *testing.T, a, b *world) {
		a.sh.hold = make(chan struct{})
		a.say("look")
		a.press("approve")
		a.fleet.set(a.fleet.dead, "bot/1", true)
		b.agent.Rescan()
		b.settle()
		if rs := b.results(); len(rs) != 1 || !rs[0].Unknown || !b.said("finished") || a.sh.count("hold") != 1 {
			t.Fatalf("%+v %+v", rs, b.posts())
		}
		// It only stood still: what it found out is not stored any more.
		close(a.sh.hold)
		a.settle()
		if rs := b.results(); len(rs) != 1 || a.sh.count("hold") != 1 {
			t.Fatalf("the one that was taken over wrote: %+v", rs)
		}
	})
	replicas(t, "one that stood still between the intent and the run does not run it", script("touch x"), func(t *testing.T, a, b *world) {
		a.say("do it")
		a.fleet.set(a.fleet.stale, "bot/1", true)
		a.fleet.set(a.fleet.stale, "bot/2", true)
		a.db.afterIntent = func() { // the other one takes it over in that moment
			a.fleet.set(a.fleet.dead, "bot/1", true)
			a.fleet.set(a.fleet.stale, "bot/2", false)
			b.agent.Rescan()
			time.Sleep(2 * time.Second)
		}
		a.press("approve")
		a.settle()
		rs := b.results()
		if len(rs) != 1 || a.sh.count("touch x") != 0 || !rs[0].Unknown {
			t.Fatalf("%v %+v", a.sh.ran, rs)
		}
	})
	replicas(t, "who stops gives its threads back at once, in the middle of their work", func(ctx context.Context, r llm.Request) (llm.Reply, error) {
		n, _ := afterPerson(r)
		if n < 8 {
			return calls(fmt.Sprint("echo ", n)), sleep(ctx, time.Second)
		}
		return says("finished"), nil
	}, func(t *testing.T, a, b *world) {
		if err := a.agent.Deliver(t.Context(), chat.Event{ID: "e0", Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Text: "look", At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
		before := time.Now()
		a.stop()
		if d := time.Since(before); d > 2*time.Second {
			t.Errorf("it stopped after %v", d)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if rs := b.results(); len(rs) != 8 || !b.said("finished") {
			t.Fatalf("%+v", rs)
		}
		for _, r := range b.results() {
			if r.Unknown || strings.Contains(r.Text, "error") {
				t.Errorf("%+v", r)
			}
		}
	})
	replicas(t, "timers go on when the replica that has them dies", script("touch x"), func(t *testing.T, a, b *world) {
		a.say("do it")
		a.stop()
		a.fleet.set(a.fleet.dead, "bot/1", true)
		time.Sleep(16 * time.Minute) // the request ends after fifteen
		b.settle()
		if !b.said("finished") {
			t.Fatalf("%+v", b.posts())
		}
		a.start()
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
