package session_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/store/mem"
	"countersign/targets/session"
	"countersign/targets/session/sessiontest"
	"countersign/targets/tmux"
)

// counted counts the transactions of a database.
type counted struct {
	store.DB
	views, updates atomic.Int64
}

func (c *counted) View(ctx context.Context, fn func(store.Tx) error) error {
	c.views.Add(1)
	return c.DB.View(ctx, fn)
}

func (c *counted) Update(ctx context.Context, fn func(store.Tx) error) error {
	c.updates.Add(1)
	return c.DB.Update(ctx, fn)
}

// fleet is several processes of the bot over one store and one terminal.
type fleet struct {
	t     testing.TB
	srv   *sessiontest.Server
	db    *counted
	now   time.Time
	books map[string]*session.Book
	films []string
}

func newFleet(t testing.TB, names ...string) *fleet {
	f := &fleet{t: t, srv: &sessiontest.Server{}, db: &counted{DB: mem.OpenTwice()}, now: time.Unix(1_700_000_000, 0), books: map[string]*session.Book{}}
	for _, n := range names {
		f.books[n] = session.New(f.config(n))
	}
	return f
}

func (f *fleet) config(name string) session.Config {
	return session.Config{
		Server: f.srv.Replica(), DB: f.db, Target: "far", Agent: "ops", Instance: "test", Dir: "/work", Driver: name,
		Owns: func(tx store.Tx, thread string) bool { return owns(tx, thread, name) }, Now: func() time.Time { return f.now },
		Record: func(_, _, pane string, _, _ int) (session.Recorder, error) {
			return &film{at: name + "/" + pane, out: &f.films}, nil
		},
	}
}

// Who owns a thread is a row, as in the real bot.
func owns(tx store.Tx, thread, name string) bool {
	v, ok := tx.Get(store.Key("owner", thread))
	return ok && string(v) == name
}

func own(t testing.TB, db store.DB, thread, name string) {
	t.Helper()
	err := db.Update(t.Context(), func(tx store.Tx) error {
		tx.Set(store.Key("owner", thread), []byte(name))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// command runs a command as run_shell does, with its note.
func command(ctx context.Context, b *session.Book, p session.Pane, thread, call, text string) (tmux.Outcome, error) {
	ref, err := b.Find(ctx, thread, p.Session(), "")
	if err != nil {
		return tmux.Outcome{}, err
	}
	return p.Run(ctx, tmux.Command{Text: text, Before: func(w tmux.Where) error { return b.Began(ctx, thread, call, ref, w) }})
}

func TestTheOwnerOfAThreadDrivesItsTerminal(t *testing.T) {
	f := newFleet(t, "a", "b")
	ctx := t.Context()
	a, b := f.books["a"], f.books["b"]
	if _, _, err := a.Ensure(ctx, "th", "", ""); !errors.Is(err, tmux.ErrDriven) || !strings.Contains(err.Error(), "Another replica") {
		t.Fatalf("somebody who does not own the thread opens its terminal: %v", err)
	}
	if rows, err := a.List(ctx, "th"); err != nil || len(rows) != 0 {
		t.Errorf("and keeps its place: %+v, %v", rows, err)
	}
	own(t, f.db, "th", "a")
	pa, _, err := a.Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	pane := f.srv.Pane(pa.Session(), "shared")
	if _, err := command(ctx, a, pa, "th", "1", "first"); err != nil {
		t.Fatal(err)
	}
	// The other one looks and listens, and changes nothing by it.
	pb, err := b.Open(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := pb.Capture(ctx, tmux.CaptureOptions{}); err != nil {
		t.Error(err)
	}
	if _, _, err := pb.Watch(ctx); err != nil {
		t.Error(err)
	}
	if _, err := b.Reconcile(ctx); err != nil {
		t.Error(err)
	}
	if !pa.Driving() || pb.Driving() {
		t.Error("looking makes a driver")
	}
	for name, act := range map[string]func() error{
		"a command":         func() error { _, err := command(ctx, b, pb, "th", "2", "second"); return err },
		"a read":            func() error { _, err := pb.Run(ctx, tmux.Command{Text: "second"}); return err },
		"a dispatch":        func() error { return pb.Dispatch(ctx, tmux.Command{Text: "second"}) },
		"keys":              func() error { return pb.SendKeys(ctx, tmux.Keys{Enter: true}) },
		"an interrupt":      func() error { return pb.Interrupt(ctx) },
		"the end of a pane": func() error { return pb.Kill(ctx) },
		"another session":   func() error { _, err := b.CreateSession(ctx, "th", "more"); return err },
		"another pane":      func() error { _, err := b.CreatePane(ctx, "th", "", "more"); return err },
		"a command's note":  func() error { return b.Began(ctx, "th", "2", session.Ref{Session: pb.Session()}, tmux.Where{}) },
		"a command unstored": func() error {
			_, err := pb.Run(ctx, tmux.Command{Text: "x", Before: func(tmux.Where) error { return nil }})
			return err
		},
	} {
		var se *tmux.StateError
		if err := act(); !errors.Is(err, tmux.ErrDriven) || !errors.As(err, &se) {
			t.Errorf("%s of somebody who does not own the thread: %v", name, err)
		}
	}
	if got := pane.Commands(); !slices.Equal(got, []string{"first"}) || len(pane.Keys()) > 0 || pane.Interrupts() > 0 {
		t.Errorf("%q, %v", got, pane.Keys())
	}
	if err := f.db.Update(ctx, func(tx store.Tx) error { session.Settle(tx, "test", "far", "th", "1", true); return nil }); err != nil {
		t.Fatal(err)
	}
	if open, err := a.Unknown(ctx); err != nil || len(open) != 1 || open[0].Driver != "a" {
		t.Errorf("%+v, %v", open, err)
	}
	// The thread goes to the other one.
	own(t, f.db, "th", "b")
	if _, err := command(ctx, b, pb, "th", "2", "second"); err != nil || !pb.Driving() {
		t.Error(err)
	}
	if _, err := command(ctx, a, pa, "th", "3", "stale"); !errors.Is(err, tmux.ErrDriven) {
		t.Errorf("after the thread went to another one: %v", err)
	}
	// And back.
	own(t, f.db, "th", "a")
	if err := pa.Interrupt(ctx); err != nil {
		t.Error(err)
	}
	if _, err := pa.Run(ctx, tmux.Command{Text: "third"}); err != nil {
		t.Error(err)
	}
	if got := pane.Commands(); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("%q", got)
	}
}

func TestAProcessThatIsStoppedBeforeItsKeyTypesNothing(t *testing.T) {
	f := newFleet(t, "a", "b")
	ctx := t.Context()
	a, b := f.books["a"], f.books["b"]
	own(t, f.db, "th", "a")
	pa, _, err := a.Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := command(ctx, a, pa, "th", "1", "first"); err != nil {
		t.Fatal(err)
	}
	ref, err := a.Find(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	stops := 0
	_, err = pa.Run(ctx, tmux.Command{Text: "stale", Before: func(w tmux.Where) error {
		if err := a.Began(ctx, "th", "2", ref, w); err != nil {
			return err
		}
		stops++
		own(t, f.db, "th", "b")
		pb, _, err := b.Ensure(ctx, "th", "", "")
		if err == nil {
			_, err = command(ctx, b, pb, "th", "3", "other")
		}
		return err
	}})
	if !errors.Is(err, tmux.ErrDriven) || stops != 1 {
		t.Errorf("%v, stopped %d times", err, stops)
	}
	if got := f.srv.Pane(ref.Session, "shared").Commands(); !slices.Equal(got, []string{"first", "other"}) {
		t.Errorf("%q", got)
	}
}

func TestACommandCostsNoFurtherTransaction(t *testing.T) {
	cost := func(driver string) (write, read string) {
		f := newFleet(t)
		c := f.config(driver)
		c.Server = f.srv
		if driver != "" {
			c.Server = f.srv.Replica()
		} else {
			c.Owns = nil
		}
		b := session.New(c)
		own(t, f.db, "th", driver)
		p, _, err := b.Ensure(t.Context(), "th", "", "")
		if err != nil {
			t.Fatal(err)
		}
		ref, err := b.Find(t.Context(), "th", "", "")
		if err != nil {
			t.Fatal(err)
		}
		count := func(before func(tmux.Where) error) string {
			f.db.views.Store(0)
			f.db.updates.Store(0)
			if _, err := p.Run(t.Context(), tmux.Command{Text: "x", Before: before}); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d views, %d updates", f.db.views.Load(), f.db.updates.Load())
		}
		note := func(w tmux.Where) error { return b.Began(t.Context(), "th", "1", ref, w) }
		return count(note), count(nil)
	}
	write, read := cost("")
	if write != "0 views, 1 updates" || read != "0 views, 0 updates" {
		t.Errorf("alone: %s; %s", write, read)
	}
	write, read = cost("a")
	if write != "0 views, 1 updates" || read != "1 views, 0 updates" {
		t.Errorf("one of several: %s; %s", write, read)
	}
}

func TestAStoreOlderThanTheTerminalGoesOn(t *testing.T) {
	f := newFleet(t, "a")
	ctx := t.Context()
	own(t, f.db, "th", "a")
	p, _, err := f.books["a"].Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	name := p.Session()
	if err := f.srv.Drive(ctx, name, 41); err != nil { // by processes of which the store knows nothing
		t.Fatal(err)
	}
	if err := f.srv.Hand(ctx, name, true, 7); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.SendKeys(ctx, tmux.Keys{Enter: true}); err == nil || errors.Is(err, tmux.ErrDriven) {
			t.Errorf("people have the keyboard: %v", err)
		}
	}
	ann := session.Person{ID: "ann", Name: "Ann"}
	if _, err := f.books["a"].Take(ctx, "th", "", ann); err != nil {
		t.Fatal(err)
	}
	if _, err := f.books["a"].Give(ctx, "th", "", ann); err != nil {
		t.Fatal(err)
	}
	if err := p.SendKeys(ctx, tmux.Keys{Enter: true}); err != nil {
		t.Error(err)
	}
}

func TestAnyProcessHandsTheKeyboardOver(t *testing.T) {
	f := newFleet(t, "a", "b")
	ctx := t.Context()
	a, b := f.books["a"], f.books["b"]
	own(t, f.db, "th", "a")
	pa, _, err := a.Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	name := pa.Session()
	ann, mo := session.Person{ID: "ann", Name: "Ann"}, session.Person{ID: "mo", Name: "Mo", Moderator: true}
	if _, err := b.Take(ctx, "th", "", ann); err != nil {
		t.Fatal(err)
	}
	var se *tmux.StateError
	if err := pa.SendKeys(ctx, tmux.Keys{Enter: true}); !errors.As(err, &se) || se.State != tmux.StateHuman {
		t.Errorf("the bot types while people have the keyboard: %v", err)
	}
	if err := a.Writable(ctx, "th", ""); !errors.Is(err, session.ErrTaken) {
		t.Error(err)
	}
	f.srv.Pane(name, "shared").Typed(tmux.Done{Text: "df"})
	if g, err := a.Give(ctx, "th", "", ann); err != nil || g.Summary != "- `df`" {
		t.Errorf("%+v, %v", g, err)
	}
	if err := pa.SendKeys(ctx, tmux.Keys{Enter: true}); err != nil {
		t.Error(err)
	}
	// What runs is not disturbed to ask what was typed.
	f.srv.Pane(name, "shared").Set(func(i *tmux.Info) { i.State = tmux.StateRunning })
	if _, err := b.Take(ctx, "th", "", ann); err != nil || !pa.Driving() {
		t.Errorf("%v, driving %v", err, pa.Driving())
	}
	// A moderator takes it over at the moment at which it is given back.
	late := &lateHand{Server: f.srv.Replica(), before: func() {
		if _, err := a.Take(ctx, "th", "", mo); err != nil {
			t.Error(err)
		}
	}}
	c := f.config("c")
	c.Server = late
	if _, err := session.New(c).Give(ctx, "th", "", ann); !errors.Is(err, session.ErrTaken) {
		t.Errorf("%v", err)
	}
	if holder, _, err := a.Holder(ctx, "th"); holder != "Mo" || err != nil {
		t.Errorf("%q, %v", holder, err)
	}
	if err := pa.SendKeys(ctx, tmux.Keys{Enter: true}); !errors.As(err, &se) {
		t.Errorf("the keyboard is Mo's: %v", err)
	}
	// Nobody is told wrongly by a process that reconciles with what it read before.
	if _, err := b.Reconcile(ctx); err != nil {
		t.Error(err)
	}
	if _, err := b.Give(ctx, "th", "", mo); err != nil {
		t.Error(err)
	}
	if err := pa.SendKeys(ctx, tmux.Keys{Enter: true}); err != nil {
		t.Error(err)
	}
}

// lateHand is a process that is stopped before it tells tmux who has the keyboard.
type lateHand struct {
	session.Server
	before func()
}

func (l *lateHand) Hand(ctx context.Context, name string, people bool, turn int64) error {
	l.before()
	return l.Server.Hand(ctx, name, people, turn)
}

func TestAStaleEndOfASessionHarmsNoneThatCameAfterIt(t *testing.T) {
	f := newFleet(t, "a", "b")
	ctx := t.Context()
	a, b := f.books["a"], f.books["b"]
	own(t, f.db, "th", "a")
	m, err := a.CreateSession(ctx, "th", "more")
	if err != nil {
		t.Fatal(err)
	}
	c := f.config("c")
	stale := &lateKill{Server: f.srv.Replica(), before: func() {
		if _, err := b.Reconcile(ctx); err != nil { // which ends it
			t.Error(err)
		}
		own(t, f.db, "th", "a")
		if _, err := a.CreateSession(ctx, "th", "more"); err != nil {
			t.Error(err)
		}
	}}
	c.Server = stale
	own(t, f.db, "th", "c")
	if _, err := session.New(c).KillSession(ctx, "th", "more"); err != nil {
		t.Error(err)
	}
	if f.srv.Pane(m.Session, "shared") == nil {
		t.Error("the new session was ended")
	}
	if p, err := a.Open(ctx, "th", "more", ""); err != nil {
		t.Error(err)
	} else if _, err := command(ctx, a, p, "th", "1", "x"); err != nil {
		t.Error(err)
	}
}

type lateKill struct {
	session.Server
	before func()
}

func (l *lateKill) KillSession(ctx context.Context, name string, tags map[string]string) error {
	l.before()
	return l.Server.KillSession(ctx, name, tags)
}

func TestAnIdleSessionIsNotEndedUnderACommand(t *testing.T) {
	f := newFleet(t, "a", "b")
	ctx := t.Context()
	a := f.books["a"]
	own(t, f.db, "th", "a")
	pa, _, err := a.Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(25 * time.Hour)
	// The other one decides to end it, and is slow.
	c := f.config("b")
	c.Server = &lateKill{Server: f.srv.Replica(), before: func() {
		if _, err := command(ctx, a, pa, "th", "1", "late"); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("a command in a session that is being ended: %v", err)
		}
		p, _, err := a.Ensure(ctx, "th", "", "")
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := command(ctx, a, p, "th", "2", "again"); err != nil {
			t.Error(err)
		}
	}}
	if rep, err := session.New(c).Sweep(ctx); err != nil || len(rep.Idle) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	if p := f.srv.Pane(pa.Session(), "shared"); p == nil || !slices.Equal(p.Commands(), []string{"again"}) {
		t.Error("the new session was ended")
	}
}

func TestReconcileLeavesASessionThatIsBeingMade(t *testing.T) {
	f := newFleet(t, "b")
	ctx := t.Context()
	c := f.config("a")
	c.Server = &lateMake{Server: f.srv.Replica(), before: func() {
		if _, err := f.books["b"].Reconcile(ctx); err != nil {
			t.Error(err)
		}
	}}
	own(t, f.db, "th", "a")
	if _, _, err := session.New(c).Ensure(ctx, "th", "", ""); err != nil {
		t.Error(err)
	}
	c.Server = &lateMake{Server: f.srv.Replica(), before: func() { f.srv.Fail = func(string) error { return errors.New("no room") } }}
	own(t, f.db, "other", "a")
	if _, _, err := session.New(c).Ensure(ctx, "other", "", ""); err == nil {
		t.Error("it was made")
	}
	if rows, err := f.books["b"].List(ctx, ""); err != nil || len(rows) != 1 {
		t.Errorf("%+v, %v", rows, err)
	}
}

type lateMake struct {
	session.Server
	before func()
}

func (l *lateMake) NewSession(ctx context.Context, name string, tags map[string]string, first tmux.PaneSpec) (session.Pane, error) {
	l.before()
	return l.Server.NewSession(ctx, name, tags, first)
}

func TestSeveralProcessesOpenOneTerminal(t *testing.T) {
	f := newFleet(t)
	const n = 6
	var wg sync.WaitGroup
	ids := make([]string, n)
	for i := range n {
		c := f.config(fmt.Sprint("r", i))
		c.Owns, c.Record = nil, nil // the thread goes from one to the other
		b := session.New(c)
		wg.Go(func() {
			p, _, err := b.Ensure(t.Context(), "th", "", "")
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = p.ID()
		})
	}
	wg.Wait()
	if slices.Compact(slices.Sorted(slices.Values(ids)))[0] != ids[0] || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 1 {
		t.Errorf("panes %q", ids)
	}
	if log := f.srv.Log(); len(slices.DeleteFunc(log, func(l string) bool { return !strings.HasPrefix(l, "new-") })) != 1 {
		t.Errorf("%q", f.srv.Log())
	}
}

func TestEachProcessRecordsWhatItDrives(t *testing.T) {
	f := newFleet(t, "a", "b")
	ctx := t.Context()
	a, b := f.books["a"], f.books["b"]
	own(t, f.db, "th", "a")
	pa, _, err := a.Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	pane := f.srv.Pane(pa.Session(), "shared")
	pane.Print("one")
	pb, err := b.Open(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	pane.Print("two")
	own(t, f.db, "th", "b")
	if err := pb.SendKeys(ctx, tmux.Keys{Enter: true}); err != nil {
		t.Fatal(err)
	}
	pane.Print("three") // the fake has one tap, the last one
	if want := []string{"a/shared: one", "a/shared: two", "b/shared: three"}; !slices.Equal(f.films, want) {
		t.Errorf("%q", f.films)
	}
}

// Whoever owns a thread can type, and nobody else, however often it changes hands.
func TestOnlyTheOwnerEverTypes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFleet(t, "a", "b", "c")
		ctx := t.Context()
		names := []string{"a", "b", "c"}
		owner := rapid.SampledFrom(names).Draw(rt, "first")
		own(t, f.db, "th", owner)
		first, _, err := f.books[owner].Ensure(ctx, "th", "", "")
		if err != nil {
			rt.Fatal(err)
		}
		pane := f.srv.Pane(first.Session(), "shared")
		var want []string
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			who := rapid.SampledFrom(names).Draw(rt, "who")
			b := f.books[who]
			text := fmt.Sprint(who, i)
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0:
				owner = who
				own(t, f.db, "th", owner)
			case 1:
				if _, err := b.Reconcile(ctx); err != nil {
					rt.Fatal(err)
				}
			case 2:
				ann := session.Person{ID: "ann", Name: "Ann"}
				if _, err := b.Take(ctx, "th", "", ann); err != nil {
					rt.Fatal(err)
				}
				if _, err := f.books[rapid.SampledFrom(names).Draw(rt, "giver")].Give(ctx, "th", "", ann); err != nil {
					rt.Fatal(err)
				}
			default:
				p, _, err := b.Ensure(ctx, "th", "", "")
				if err != nil {
					rt.Fatal(err)
				}
				before := func(w tmux.Where) error {
					return b.Began(ctx, "th", text, session.Ref{Session: p.Session(), Pane: "shared"}, w)
				}
				if rapid.Bool().Draw(rt, "read") {
					before = nil
				}
				_, err = p.Run(ctx, tmux.Command{Text: text, Before: before})
				if (err == nil) != (who == owner) || err != nil && !errors.Is(err, tmux.ErrDriven) {
					rt.Fatalf("%s runs a command while %s owns the thread: %v", who, owner, err)
				}
				if err == nil {
					want = append(want, text)
				}
			}
		}
		if got := pane.Commands(); !slices.Equal(got, want) {
			rt.Fatalf("%q, want %q", got, want)
		}
	})
}

// realFleet is two processes over one real terminal.
func realFleet(t *testing.T) (r *sessiontest.Real, a, b *session.Book) {
	r = sessiontest.NewReal(t)
	book := func(name string) *session.Book {
		return r.Replica(func(c *session.Config) {
			c.Driver = name
			c.Owns = func(tx store.Tx, thread string) bool { return owns(tx, thread, name) }
		})
	}
	return r, book("a"), book("b")
}

func TestRealStaleDriver(t *testing.T) {
	r, a, b := realFleet(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*sessiontest.Patience)
	defer cancel()
	own(t, r.DB, "th", "a")
	pa, _, err := a.Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if o, err := command(ctx, a, pa, "th", "1", "echo one; echo err >&2"); err != nil || o.Stdout.String() != "one\n" || o.Stderr.String() != "err\n" {
		t.Fatalf("%+v, %v", o, err)
	}
	ref, err := a.Find(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	// a has stored that it types, and is stopped. b takes the thread over and works.
	_, err = pa.Run(ctx, tmux.Command{Text: "touch stale", Before: func(w tmux.Where) error {
		if err := a.Began(ctx, "th", "2", ref, w); err != nil {
			return err
		}
		own(t, r.DB, "th", "b")
		pb, _, err := b.Ensure(ctx, "th", "", "")
		if err != nil {
			return err
		}
		o, err := command(ctx, b, pb, "th", "3", "cd /; echo two; echo err >&2")
		if o.Stdout.String() != "two\n" || o.Stderr.String() != "err\n" {
			t.Errorf("%+v", o)
		}
		// What a's command became is known to b: it can never run any more.
		if e, terr := b.Testify(ctx, "th", "2"); terr != nil || !e.Final {
			t.Errorf("%+v, %v", e, terr)
		}
		return err
	}})
	if !errors.Is(err, tmux.ErrDriven) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "stale")); !os.IsNotExist(err) {
		t.Error("the command was run")
	}
	if screen := r.Tmux("capture-pane", "-p", "-t", pa.ID()); strings.Contains(screen, "stale") {
		t.Errorf("it was typed:\n%s", screen)
	}
	if epoch := r.Tmux("show-options", "-v", "-t", "="+pa.Session()+":", "@countersign_epoch"); epoch != "2" {
		t.Errorf("epoch %s", epoch)
	}
	own(t, r.DB, "th", "a")
	if o, err := command(ctx, a, pa, "th", "4", "pwd"); err != nil || o.Stdout.String() != "/\n" {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestRealSeveralOpenOneTerminal(t *testing.T) {
	r := sessiontest.NewReal(t)
	const n = 3
	var wg sync.WaitGroup
	books, panes := make([]*session.Book, n), make([]session.Pane, n)
	for i := range n {
		books[i] = r.Replica(func(c *session.Config) { c.Driver = fmt.Sprint("r", i) })
		wg.Go(func() {
			p, _, err := books[i].Ensure(t.Context(), "th", "", "")
			if err != nil {
				t.Error(err)
			}
			panes[i] = p
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	if list := r.Tmux("list-panes", "-a", "-F", "#{pane_id}"); list != panes[0].ID() {
		t.Errorf("panes %q", list)
	}
	for i, p := range panes {
		if o := runIn(t, p, fmt.Sprintf("echo %d; echo e >&2", i)); o.Stdout.String() != fmt.Sprintf("%d\n", i) || o.Stderr.String() != "e\n" {
			t.Errorf("%+v", o)
		}
	}
	for i := range n {
		wg.Go(func() {
			if _, err := books[i].CreatePane(t.Context(), "th", "", "worker"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if list := r.Tmux("list-panes", "-a", "-F", "#{pane_id}"); strings.Count(list, "\n") != 1 {
		t.Errorf("panes %q", list)
	}
}

func TestRealPenOfAnotherProcess(t *testing.T) {
	r, a, b := realFleet(t)
	ctx := t.Context()
	own(t, r.DB, "th", "a")
	pa, _, err := a.Ensure(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	runIn(t, pa, "echo before")
	ann := session.Person{ID: "ann", Name: "Ann"}
	if _, err := b.Take(ctx, "th", "", ann); err != nil {
		t.Fatal(err)
	}
	if _, err := pa.Run(ctx, tmux.Command{Text: "echo bot"}); !errors.Is(err, tmux.ErrBusy) {
		t.Errorf("%v", err)
	}
	r.Tmux("send-keys", "-t", pa.ID(), "(exit 4)", "Enter")
	r.Eventually("it was run", func() bool {
		return strings.Count(r.Tmux("capture-pane", "-p", "-t", pa.ID()), "exit 4") == 1 && r.Tmux("display-message", "-p", "-t", pa.ID(), "#{pane_current_command}") == "bash"
	})
	g, err := b.Give(ctx, "th", "", ann)
	if err != nil || g.Summary != "- `(exit 4)` (exit code 4)" && g.Summary != "- `(exit 4)`" {
		t.Errorf("%+v, %v", g, err)
	}
	if o := runIn(t, pa, "echo after"); o.Stdout.String() != "after\n" {
		t.Errorf("%+v", o)
	}
}
