package replica_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"countersign/store"
	"countersign/store/mem"
	"countersign/store/replica"
)

// member is one that runs until the test ends it.
type member struct {
	*replica.Member
	changes atomic.Int64
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// away is a store that cannot be reached while it is off.
type away struct {
	store.DB
	off atomic.Bool
}

var errAway = errors.New("the store is away")

func (a *away) View(ctx context.Context, fn func(store.Tx) error) error {
	if a.off.Load() {
		return errAway
	}
	return a.DB.View(ctx, fn)
}

func (a *away) Update(ctx context.Context, fn func(store.Tx) error) error {
	if a.off.Load() {
		return errAway
	}
	return a.DB.Update(ctx, fn)
}

func join(t *testing.T, db store.DB, name string) *member {
	t.Helper()
	m := &member{}
	m.Member = replica.New(replica.Config{DB: db, Name: name, Host: "on " + name, Changed: func() { m.changes.Add(1) }})
	if err := m.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.stop = func() { cancel(); m.wg.Wait() }
	m.wg.Go(func() { _ = m.Run(ctx) })
	t.Cleanup(m.stop)
	return m
}

// pass lets time pass, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func alive(t *testing.T, db store.DB, m *member, name string) (ok bool) {
	t.Helper()
	if err := db.View(t.Context(), func(tx store.Tx) error { ok = m.Alive(tx, name); return nil }); err != nil {
		t.Fatal(err)
	}
	return ok
}

func TestADeathIsFoundWithinFourSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		a, b := join(t, db, "a"), join(t, db, "b")
		pass(10 * time.Second)
		if !alive(t, db, b, "a") || !alive(t, db, a, "b") || !a.Fresh() {
			t.Fatal("they do not see each other")
		}
		before := b.changes.Load()
		a.stop()
		pass(replica.TTL - replica.Beat)
		if !alive(t, db, b, "a") {
			t.Error("dead before its time")
		}
		pass(2 * time.Second)
		if alive(t, db, b, "a") || b.changes.Load() != before+1 {
			t.Errorf("alive after four seconds; told %d times", b.changes.Load()-before)
		}
		if a.Fresh() {
			t.Error("one that does not beat is fresh")
		}
		if err := a.Freshen(t.Context()); err != nil || !a.Fresh() {
			t.Error("not fresh after a beat:", err)
		}
		pass(time.Second)
		if !alive(t, db, b, "a") {
			t.Error("one that beats again is dead")
		}
	})
}

func TestWhoLeavesIsGoneAtOnceAndWhoJustCameIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		a := join(t, db, "a")
		b := join(t, db, "b")
		if !alive(t, db, a, "b") { // before a's next look
			t.Error("one that joined a moment ago is dead")
		}
		b.stop()
		if err := b.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if alive(t, db, a, "b") {
			t.Error("one that left is alive")
		}
		if alive(t, db, a, "never") {
			t.Error("one that never was is alive")
		}
	})
}

func TestNobodyDiesBecauseTheStoreWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &away{DB: mem.Open()}
		a, b := join(t, db, "a"), join(t, db, "b")
		pass(5 * time.Second)
		db.off.Store(true)
		pass(time.Minute)
		if a.Fresh() || b.Fresh() {
			t.Error("fresh without a store")
		}
		db.off.Store(false)
		for range 100 {
			pass(50 * time.Millisecond)
			if !alive(t, db.DB, a, "b") || !alive(t, db.DB, b, "a") {
				t.Fatal("dead because the store was away")
			}
		}
		if !a.Fresh() || !b.Fresh() {
			t.Error("not fresh with the store back")
		}
	})
}

func TestAJobHasOneHolderAndGoesOnWhenThatOneDiesOrLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		var running, most atomic.Int64
		var epochs []uint64
		var mu sync.Mutex
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		work := func(m *member) context.CancelFunc {
			ctx, stop := context.WithCancel(ctx)
			wg.Go(func() {
				err := m.Do(ctx, "shard", func(ctx context.Context, j *replica.Job) error {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					mu.Lock()
					epochs = append(epochs, j.Epoch)
					mu.Unlock()
					if err := db.View(ctx, j.Check); err != nil {
						t.Error(err)
					}
					<-ctx.Done()
					return nil
				})
				if ctx.Err() == nil {
					t.Error("it ended by itself:", err)
				}
			})
			return stop
		}
		a, b := join(t, db, "a"), join(t, db, "b")
		stopA := work(a)
		pass(2 * time.Second)
		work(b)
		pass(10 * time.Second)
		if running.Load() != 1 || len(epochs) != 1 {
			t.Fatalf("%d run; grants %v", running.Load(), epochs)
		}
		stopA() // gives it back
		pass(2 * time.Second)
		if running.Load() != 1 || len(epochs) != 2 || epochs[1] <= epochs[0] {
			t.Fatalf("%d run; grants %v", running.Load(), epochs)
		}
		work(a)
		b.stop() // without leaving: it is dead in a while
		pass(5 * time.Second)
		if len(epochs) != 3 || most.Load() > 2 {
			t.Fatalf("grants %v, %d at once", epochs, most.Load())
		}
		cancel()
		wg.Wait()
	})
}

func TestAMemberThatCannotBeatGivesUpItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &away{DB: mem.Open()}
		a := join(t, db, "a")
		grants := 0
		lost := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = a.Do(ctx, "shard", func(ctx context.Context, _ *replica.Job) error {
				if grants++; grants == 1 {
					<-ctx.Done()
					lost <- context.Cause(ctx)
					return nil
				}
				<-ctx.Done()
				return nil
			})
		})
		pass(2 * time.Second)
		db.off.Store(true)
		pass(5 * time.Second)
		select {
		case err := <-lost:
			if !errors.Is(err, replica.ErrLost) {
				t.Error(err)
			}
		default:
			t.Error("it holds the job although it may be dead for all others")
		}
		db.off.Store(false)
		pass(5 * time.Second)
		if grants != 2 {
			t.Errorf("%d grants; the job is free again", grants)
		}
		cancel()
		wg.Wait()
	})
}

func TestAnErrorOfTheWorkEndsDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		a := join(t, db, "a")
		broken := errors.New("broken")
		if err := a.Do(t.Context(), "x", func(context.Context, *replica.Job) error { return broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
		if err := a.Do(t.Context(), "x", func(context.Context, *replica.Job) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestAlone(t *testing.T) {
	m := replica.Alone("me")
	db := mem.Open()
	if err := errors.Join(m.Join(t.Context()), m.Leave(t.Context()), m.Freshen(t.Context())); err != nil {
		t.Error(err)
	}
	if err := m.Do(t.Context(), "x", func(ctx context.Context, j *replica.Job) error { return db.View(ctx, j.Check) }); err != nil {
		t.Error(err)
	}
	_ = db.View(t.Context(), func(tx store.Tx) error {
		if !m.Alive(tx, "me") || m.Alive(tx, "who was before") || !m.Fresh() {
			t.Error("it is alone")
		}
		return nil
	})
}

func TestADeadMembersRowIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		a, b := join(t, db, "a"), join(t, db, "b")
		b.stop()
		pass(8 * time.Second)
		if l := a.List(); len(l) != 2 || l[0].Name != "a" || !l[0].Alive || l[1].Alive || l[1].Host != "on b" {
			t.Errorf("%+v", l)
		}
		pass(11 * time.Minute)
		if l := a.List(); len(l) != 1 {
			t.Errorf("%+v", l)
		}
	})
}

func TestMembersHearWhatTheLivingOthersPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := mem.Open()
		a, b := join(t, db, "a"), join(t, db, "b")
		heard := func(m *member) (out []string) {
			m.Published("calls", func(words json.RawMessage, read time.Time) {
				if age := time.Since(read); age > replica.Beat {
					t.Errorf("read %v ago", age)
				}
				out = append(out, string(words))
			})
			return out
		}
		var said atomic.Int64
		a.Publish("calls", func() json.RawMessage { return json.RawMessage(strconv.FormatInt(said.Add(1), 10)) })
		b.Publish("calls", func() json.RawMessage { return nil })
		pass(2 * replica.Beat)
		n := said.Load()
		if got := heard(b); len(got) != 1 || got[0] != strconv.FormatInt(n, 10) && got[0] != strconv.FormatInt(n-1, 10) {
			t.Errorf("%q, the last was %d", got, n)
		}
		if got := heard(a); got != nil {
			t.Errorf("%q", got)
		}
		a.stop()
		pass(replica.TTL + 2*replica.Beat)
		if got := heard(b); got != nil {
			t.Errorf("the dead say %q", got)
		}
	})
}
