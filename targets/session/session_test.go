package session_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/store"
	"countersign/store/mem"
	"countersign/targets/session"
	"countersign/targets/session/sessiontest"
	"countersign/targets/tmux"
)

type world struct {
	t    *testing.T
	srv  *sessiontest.Server
	db   store.DB
	now  time.Time
	book *session.Book

	record session.Recordings
}

// settle stores the outcome of a call.
func (w *world) settle(thread, call string, unknown bool) {
	w.t.Helper()
	if err := w.db.Update(w.t.Context(), func(tx store.Tx) error {
		session.Settle(tx, "test", "local", thread, call, unknown)
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

func newWorld(t *testing.T, lim session.Limits) *world {
	t.Helper()
	w := &world{t: t, srv: &sessiontest.Server{}, db: mem.OpenTwice(), now: time.Unix(1_700_000_000, 0)}
	w.restart(lim)
	return w
}

// restart is a new process over the same store and terminal.
func (w *world) restart(lim session.Limits) {
	w.book = session.New(session.Config{
		Server: w.srv, DB: w.db, Target: "local", Agent: "Ops", Instance: "test", Dir: "/work",
		Limits: lim, Record: w.record, Now: func() time.Time { return w.now },
	})
}

func (w *world) ensure(thread, s, p string) (session.Pane, string) {
	w.t.Helper()
	pane, notice, err := w.book.Ensure(w.t.Context(), thread, s, p)
	if err != nil {
		w.t.Fatalf("Ensure(%q, %q, %q): %v", thread, s, p, err)
	}
	return pane, notice
}

func (w *world) create(thread, s string) session.Made {
	w.t.Helper()
	m, err := w.book.CreateSession(w.t.Context(), thread, s)
	if err != nil {
		w.t.Fatalf("CreateSession(%q, %q): %v", thread, s, err)
	}
	return m
}

func wantErr(t *testing.T, err, reason error, words ...string) {
	t.Helper()
	if !errors.Is(err, reason) {
		t.Fatalf("error %v, want one that is %v", err, reason)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestFindHasNoEffectAndKnowsTheDefaultBeforeItExists(t *testing.T) {
	w := newWorld(t, session.Limits{})
	ref, err := w.book.Find(t.Context(), "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if !ref.Default || ref.Exists || ref.Known || ref.Pane != "shared" || ref.Dir != "/work" {
		t.Errorf("ref = %+v", ref)
	}
	if len(w.srv.Log()) != 0 {
		t.Errorf("Find changed the server: %v", w.srv.Log())
	}
	w.ensure("th", "", "")
	again, err := w.book.Find(t.Context(), "th", "shared-pane", "default-pane")
	if err != nil || again.Session != ref.Session || !again.Exists || again.Program != "bash" {
		t.Errorf("after Ensure: %+v, %v", again, err)
	}
}

// B-39.
func TestExplicitSessionAndPaneMustExist(t *testing.T) {
	w := newWorld(t, session.Limits{})
	_, err := w.book.Find(t.Context(), "th", "ghost", "")
	wantErr(t, err, session.ErrNoSession, "tmux-create-session")
	_, err = w.book.Find(t.Context(), "th", "", "ghost")
	wantErr(t, err, session.ErrNoPane, "tmux-create-pane")
	_, _, err = w.book.Ensure(t.Context(), "th", "ghost", "")
	wantErr(t, err, session.ErrNoSession)
	_, _, err = w.book.Ensure(t.Context(), "th", "", "ghost")
	wantErr(t, err, session.ErrNoPane)
	if len(w.srv.Log()) != 0 {
		t.Errorf("a missing selector made something: %v", w.srv.Log())
	}
}

func TestEnsureReusesTheSamePane(t *testing.T) {
	w := newWorld(t, session.Limits{})
	a, _ := w.ensure("th", "", "")
	b, notice := w.ensure("th", "default", "shared")
	if a.ID() != b.ID() || notice != "" {
		t.Errorf("%s, then %s %q", a.ID(), b.ID(), notice)
	}
	if got := w.srv.Log(); len(got) != 1 {
		t.Errorf("log %v", got)
	}
}

func TestEachThreadHasItsOwnDefaultSession(t *testing.T) {
	w := newWorld(t, session.Limits{})
	a, _ := w.ensure("slack:1", "", "")
	b, _ := w.ensure("slack:2", "", "")
	if a.Session() == b.Session() {
		t.Errorf("both threads use %s", a.Session())
	}
	if !regexp.MustCompile(`^countersign-ops-[0-9a-f]{8}$`).MatchString(a.Session()) {
		t.Errorf("default session is named %s", a.Session())
	}
}

// B-90.
func TestCreateOrReuse(t *testing.T) {
	w := newWorld(t, session.Limits{})
	first := w.create("th", "ops")
	second := w.create("th", "ops")
	if first.Reused || !second.Reused || first.ID != second.ID || first.Pane != "shared" {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if !strings.Contains(first.Attach, first.Session) {
		t.Errorf("attach line %q", first.Attach)
	}
}

// B-91.
func TestNamesAreCanonical(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"Ops Prod!", "countersign-ops-ops-prod"},
		{"ops-prod", "countersign-ops-ops-prod"},
		{"countersign-ops-ops-prod", "countersign-ops-ops-prod"},
		{"a_b..c::d", "countersign-ops-a_b-c-d"},
		{"  Ünï  ", "countersign-ops-n"},
	} {
		w := newWorld(t, session.Limits{})
		if got := w.create("th", c.in).Session; got != c.want {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.want)
		}
	}
}

// B-91.
func TestWordsForTheDefaultSession(t *testing.T) {
	w := newWorld(t, session.Limits{})
	want, _ := w.book.Find(t.Context(), "th", "", "")
	for _, s := range []string{"default", "shared", "shared-pane", "default-pane", "Default", want.Session} {
		if m := w.create("th", s); m.Session != want.Session || !m.Default {
			t.Errorf("%q is %s, want the default session", s, m.Session)
		}
	}
}

func TestANameThatCannotBeUsedIsRefused(t *testing.T) {
	w := newWorld(t, session.Limits{})
	other, _ := w.book.Find(t.Context(), "other thread", "", "")
	for _, s := range []string{"!!!", "生产", "countersign-ops-", other.Session, "0123abcd"} {
		_, err := w.book.CreateSession(t.Context(), "th", s)
		wantErr(t, err, session.ErrName, "choose another name")
	}
	_, err := w.book.CreatePane(t.Context(), "th", "", "%7")
	wantErr(t, err, session.ErrName)
	_, err = w.book.CreatePane(t.Context(), "th", "", "??")
	wantErr(t, err, session.ErrName)
}

func TestNamesAreValidAndStable(t *testing.T) {
	valid := regexp.MustCompile(`^countersign-ops-[a-z0-9_-]+$`)
	w := newWorld(t, session.Limits{Sessions: 1 << 30, Instance: 1 << 30})
	rapid.Check(t, func(rt *rapid.T) {
		in := rapid.String().Draw(rt, "name")
		ref, err := w.book.CheckCreate(t.Context(), "th", in, "")
		if errors.Is(err, session.ErrName) {
			return
		}
		if err != nil {
			rt.Fatal(err)
		}
		if len(ref.Session) > 48 || !valid.MatchString(ref.Session) {
			rt.Fatalf("%q becomes %q", in, ref.Session)
		}
		again, err := w.book.CheckCreate(t.Context(), "th", ref.Session, "")
		if err != nil || again.Session != ref.Session {
			rt.Fatalf("%q becomes %q, then %q (%v)", in, ref.Session, again.Session, err)
		}
	})
}

func TestLongNamesStayApart(t *testing.T) {
	w := newWorld(t, session.Limits{})
	a := w.create("th", strings.Repeat("x", 60)+"1").Session
	b := w.create("th", strings.Repeat("x", 60)+"2").Session
	if a == b || len(a) > 48 {
		t.Errorf("%s and %s", a, b)
	}
}

// B-92.
func TestSessionLimitNamesItself(t *testing.T) {
	w := newWorld(t, session.Limits{})
	w.ensure("th", "", "") // the default session does not count
	w.create("th", "a")
	w.create("th", "b")
	_, err := w.book.CreateSession(t.Context(), "th", "c")
	wantErr(t, err, session.ErrLimit, "max_sessions", "2")
	_, err = w.book.CheckCreate(t.Context(), "th", "c", "")
	wantErr(t, err, session.ErrLimit)
	if m := w.create("th", "b"); !m.Reused {
		t.Error("reuse counts against the limit")
	}
	w.create("other", "c") // limits are of a thread
	if _, err := w.book.KillSession(t.Context(), "th", "a"); err != nil {
		t.Fatal(err)
	}
	w.create("th", "d")
}

// B-95.
func TestPaneLimitAndNames(t *testing.T) {
	w := newWorld(t, session.Limits{})
	for i := range 5 {
		m, err := w.book.CreatePane(t.Context(), "th", "", fmt.Sprintf("Worker #%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("worker-%d", i); m.Pane != want || m.Reused {
			t.Errorf("made %+v, want pane %s", m, want)
		}
	}
	_, err := w.book.CreatePane(t.Context(), "th", "", "one more")
	wantErr(t, err, session.ErrLimit, "max_panes", "5")
	m, err := w.book.CreatePane(t.Context(), "th", "", "worker-0")
	if err != nil || !m.Reused {
		t.Errorf("reuse: %+v, %v", m, err)
	}
	m, err = w.book.CreatePane(t.Context(), "th", "", "shared")
	if err != nil || !m.Reused || m.Pane != "shared" {
		t.Errorf("shared: %+v, %v", m, err)
	}
	if _, err := w.book.KillPane(t.Context(), "th", "", "worker-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.book.CreatePane(t.Context(), "th", "", "one more"); err != nil {
		t.Errorf("after a kill there is room: %v", err)
	}
}

func TestInstanceLimitCountsAllThreads(t *testing.T) {
	w := newWorld(t, session.Limits{Instance: 2})
	w.ensure("1", "", "")
	w.ensure("2", "", "")
	_, _, err := w.book.Ensure(t.Context(), "3", "", "")
	wantErr(t, err, session.ErrLimit, "2")
}

func TestLimitsHoldUnderConcurrency(t *testing.T) {
	w := newWorld(t, session.Limits{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for i := range 12 {
		wg.Go(func() {
			if _, err := w.book.CreateSession(t.Context(), "th", fmt.Sprintf("s%d", i)); err == nil {
				mu.Lock()
				made++
				mu.Unlock()
			} else if !errors.Is(err, session.ErrLimit) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, _, err := w.book.Ensure(t.Context(), "th", "", ""); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != 2 {
		t.Errorf("%d sessions were made, the limit is 2", made)
	}
	if got := len(w.srv.Log()); got != 3 {
		t.Errorf("the server saw %v", w.srv.Log())
	}
}

func TestAFailedCreationGivesItsPlaceBack(t *testing.T) {
	w := newWorld(t, session.Limits{Sessions: 1, Panes: 1})
	w.srv.Fail = func(what string) error {
		if what == "new-session" {
			return errors.New("no space")
		}
		return nil
	}
	if _, err := w.book.CreateSession(t.Context(), "th", "a"); err == nil {
		t.Fatal("no error")
	}
	w.srv.Fail = nil
	w.create("th", "b")
	w.srv.Fail = func(what string) error {
		if what == "new-pane" {
			return errors.New("no space")
		}
		return nil
	}
	if _, err := w.book.CreatePane(t.Context(), "th", "b", "p"); err == nil {
		t.Fatal("no error")
	}
	w.srv.Fail = nil
	if _, err := w.book.CreatePane(t.Context(), "th", "b", "q"); err != nil {
		t.Fatal(err)
	}
}

// D-04.
func TestAnotherThreadCannotUseASession(t *testing.T) {
	w := newWorld(t, session.Limits{})
	m := w.create("a", "ops")
	const say = "belongs to another thread"
	_, err := w.book.Find(t.Context(), "b", "ops", "")
	wantErr(t, err, session.ErrForeign, say)
	_, _, err = w.book.Ensure(t.Context(), "b", "ops", "")
	wantErr(t, err, session.ErrForeign, say)
	_, err = w.book.CreateSession(t.Context(), "b", "ops")
	wantErr(t, err, session.ErrForeign, say)
	_, err = w.book.CreatePane(t.Context(), "b", "ops", "x")
	wantErr(t, err, session.ErrForeign, say)
	_, err = w.book.KillSession(t.Context(), "b", "ops")
	wantErr(t, err, session.ErrForeign, say)
	_, err = w.book.Open(t.Context(), "b", "", m.ID)
	wantErr(t, err, session.ErrForeign, say)
}

// B-93.
func TestKillSession(t *testing.T) {
	w := newWorld(t, session.Limits{})
	w.ensure("th", "", "")
	w.create("th", "ops")
	w.srv.Plant("byhand", nil)
	w.srv.Plant("countersign-ops-fake", nil)
	for _, s := range []string{"default", ""} {
		_, err := w.book.KillSession(t.Context(), "th", s)
		wantErr(t, err, session.ErrProtected, "protected")
	}
	for _, s := range []string{"byhand", "fake", "countersign-ops-fake"} {
		_, err := w.book.KillSession(t.Context(), "th", s)
		wantErr(t, err, session.ErrUnmanaged, "not managed")
		_, err = w.book.CheckKill(t.Context(), "th", s, "")
		wantErr(t, err, session.ErrUnmanaged)
	}
	_, err := w.book.KillSession(t.Context(), "th", "nothing")
	wantErr(t, err, session.ErrNoSession)
	if ref, err := w.book.KillSession(t.Context(), "th", "Ops"); err != nil || ref.Session != "countersign-ops-ops" {
		t.Errorf("%+v, %v", ref, err)
	}
	if w.srv.Pane("byhand", "shared") == nil || w.srv.Pane("countersign-ops-ops", "shared") != nil {
		t.Errorf("log %v", w.srv.Log())
	}
	_, err = w.book.Find(t.Context(), "th", "ops", "")
	wantErr(t, err, session.ErrNoSession)
}

// B-96.
func TestKillPane(t *testing.T) {
	w := newWorld(t, session.Limits{})
	m, err := w.book.CreatePane(t.Context(), "th", "", "worker")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"shared", "shared-pane", "default"} {
		_, err := w.book.KillPane(t.Context(), "th", "", p)
		wantErr(t, err, session.ErrProtected, "shared")
	}
	_, err = w.book.KillPane(t.Context(), "th", "", "ghost")
	wantErr(t, err, session.ErrNoPane)
	hand := w.srv.Plant("byhand", nil)
	_, err = w.book.KillPane(t.Context(), "th", "", hand.ID())
	wantErr(t, err, session.ErrNoPane)
	if _, err := w.book.KillPane(t.Context(), "th", "", m.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.book.Find(t.Context(), "th", "", "worker")
	wantErr(t, err, session.ErrNoPane)
}

// D-04.
func TestRestartAdoptsWhatIsThere(t *testing.T) {
	w := newWorld(t, session.Limits{})
	a, _ := w.ensure("th", "", "")
	m, err := w.book.CreatePane(t.Context(), "th", "", "worker")
	if err != nil {
		t.Fatal(err)
	}
	w.restart(session.Limits{})
	rep, err := w.book.Reconcile(t.Context())
	if err != nil || !slices.Equal(rep.Adopted, []string{a.Session()}) || len(rep.Lost)+len(rep.Orphans) != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	b, notice := w.ensure("th", "", "")
	c, _ := w.ensure("th", "", "worker")
	if b.ID() != a.ID() || c.ID() != m.ID || notice != "" {
		t.Errorf("shared %s was %s, worker %s was %s, notice %q", b.ID(), a.ID(), c.ID(), m.ID, notice)
	}
}

func TestALostSessionIsMadeAgainWithANotice(t *testing.T) {
	w := newWorld(t, session.Limits{})
	m := w.create("th", "ops")
	if _, err := w.book.CreatePane(t.Context(), "th", "ops", "worker"); err != nil {
		t.Fatal(err)
	}
	w.srv.Vanish(m.Session)
	w.restart(session.Limits{})
	rep, err := w.book.Reconcile(t.Context())
	if err != nil || !slices.Equal(rep.Lost, []string{m.Session}) {
		t.Fatalf("%+v, %v", rep, err)
	}
	p, notice := w.ensure("th", "ops", "worker")
	if !strings.Contains(notice, "was gone") || p.Session() != m.Session {
		t.Errorf("pane %s %s, notice %q", p.Session(), p.ID(), notice)
	}
	if _, notice := w.ensure("th", "ops", "worker"); notice != "" {
		t.Errorf("notice again: %q", notice)
	}
}

func TestALostSessionIsNoticedWithoutARestart(t *testing.T) {
	w := newWorld(t, session.Limits{})
	a, _ := w.ensure("th", "", "")
	w.srv.Vanish(a.Session())
	b, notice := w.ensure("th", "", "")
	if b.ID() == a.ID() || !strings.Contains(notice, "made again") {
		t.Errorf("%s, notice %q", b.ID(), notice)
	}
}

func TestAPaneWhoseShellHasEndedIsKept(t *testing.T) {
	w := newWorld(t, session.Limits{})
	a, _ := w.ensure("th", "", "")
	w.srv.Pane(a.Session(), "shared").Set(func(i *tmux.Info) { i.State = tmux.StateDead })
	look, err := w.book.Open(t.Context(), "th", "", "")
	if err != nil || look.ID() != a.ID() {
		t.Fatalf("Open: %v, %v", look, err)
	}
	if ref, err := w.book.Find(t.Context(), "th", "", ""); err != nil || !ref.Exists || !ref.Dead {
		t.Errorf("%+v, %v", ref, err)
	}
	if b, notice := w.ensure("th", "", ""); b.ID() != a.ID() || notice != "" {
		t.Errorf("%s, notice %q", b.ID(), notice)
	}
}

func TestALostPaneIsMadeAgainWithANotice(t *testing.T) {
	w := newWorld(t, session.Limits{})
	m, err := w.book.CreatePane(t.Context(), "th", "", "worker")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.srv.Pane(m.Session, "worker").Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, notice := w.ensure("th", "", "worker")
	if b.ID() == m.ID || !strings.Contains(notice, "pane worker") || !strings.Contains(notice, "made again") {
		t.Errorf("%s, notice %q", b.ID(), notice)
	}
}

func TestOpenMakesNothing(t *testing.T) {
	w := newWorld(t, session.Limits{})
	_, err := w.book.Open(t.Context(), "th", "", "")
	wantErr(t, err, session.ErrNoPane)
	if len(w.srv.Log()) != 0 {
		t.Errorf("log %v", w.srv.Log())
	}
}

func TestSweepEndsOnlyOldOrphansOfThisInstance(t *testing.T) {
	w := newWorld(t, session.Limits{Idle: -1})
	mine, _ := w.ensure("th", "", "")
	w.srv.Plant("orphan", map[string]string{"cs_instance": "test", "cs_target": "local", "cs_session": "x1", "cs_thread": "old"})
	w.srv.Plant("theirs", map[string]string{"cs_instance": "another", "cs_target": "local", "cs_session": "x2"})
	w.srv.Plant("elsewhere", map[string]string{"cs_instance": "test", "cs_target": "web-1", "cs_session": "x3"}) // another target's
	w.srv.Plant("byhand", nil)
	rep, err := w.book.Sweep(t.Context())
	if err != nil || len(rep.Killed) != 0 || len(rep.Orphans) != 1 || rep.Orphans[0].Name != "orphan" || rep.Orphans[0].Thread != "old" {
		t.Fatalf("%+v, %v", rep, err)
	}
	w.restart(session.Limits{Idle: -1}) // the first sighting survives a restart
	w.now = w.now.Add(session.OrphanGrace)
	rep, err = w.book.Sweep(t.Context())
	if err != nil || !slices.Equal(rep.Killed, []string{"orphan"}) || len(rep.Orphans) != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	w.now = w.now.Add(1000 * time.Hour)
	if rep, err = w.book.Sweep(t.Context()); err != nil || len(rep.Killed) != 0 {
		t.Fatalf("%+v, %v", rep, err)
	}
	for _, s := range []string{"theirs", "byhand", mine.Session()} {
		if w.srv.Pane(s, "shared") == nil {
			t.Errorf("%s is gone", s)
		}
	}
}

func TestASessionWithOurNameThatIsNotOursIsLeftAlone(t *testing.T) {
	w := newWorld(t, session.Limits{})
	ref, _ := w.book.Find(t.Context(), "th", "", "")
	w.srv.Plant(ref.Session, nil)
	_, _, err := w.book.Ensure(t.Context(), "th", "", "")
	wantErr(t, err, session.ErrUnmanaged, "does not manage")
}

func TestAStoreOlderThanTheTerminalTakesItsSessionOver(t *testing.T) {
	w := newWorld(t, session.Limits{})
	a, _ := w.ensure("th", "", "")
	w.db = mem.OpenTwice()
	w.restart(session.Limits{})
	b, _ := w.ensure("th", "", "")
	if a.ID() != b.ID() {
		t.Errorf("%s, then %s", a.ID(), b.ID())
	}
	if rep, err := w.book.Reconcile(t.Context()); err != nil || len(rep.Orphans) != 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

func TestAKillThatWasInterruptedIsFinished(t *testing.T) {
	w := newWorld(t, session.Limits{})
	m := w.create("th", "ops")
	w.srv.Fail = func(what string) error {
		if what == "kill-session" {
			return errors.New("connection lost")
		}
		return nil
	}
	if _, err := w.book.KillSession(t.Context(), "th", "ops"); err == nil {
		t.Fatal("no error")
	}
	w.srv.Fail = nil
	w.restart(session.Limits{})
	rep, err := w.book.Reconcile(t.Context())
	if err != nil || !slices.Equal(rep.Closed, []string{m.Session}) || w.srv.Pane(m.Session, "shared") != nil {
		t.Fatalf("%+v, %v", rep, err)
	}
}

func TestListAndDescribe(t *testing.T) {
	w := newWorld(t, session.Limits{})
	if got, has := w.book.Describe(t.Context(), "th"); has || !strings.Contains(got, "no terminal yet") {
		t.Error(got)
	}
	w.create("th", "ops")
	w.ensure("th", "", "")
	w.ensure("other", "", "")
	all, err := w.book.List(t.Context(), "th")
	if err != nil || len(all) != 2 || !all[0].Default || all[1].Name != "countersign-ops-ops" || len(all[1].Panes) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	got, _ := w.book.Describe(t.Context(), "th")
	for _, want := range []string{all[0].Name, "attach -r", "shared (%", "`/work`"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
}

func TestTagsAreSetInTheMomentOfCreation(t *testing.T) {
	w := newWorld(t, session.Limits{})
	w.ensure("th", "", "")
	all, err := w.srv.Sessions(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	s := all[0]
	if s.Tags["cs_instance"] != "test" || s.Tags["cs_thread"] != "th" || s.Tags["cs_session"] == "" {
		t.Errorf("session tags %v", s.Tags)
	}
	if p := s.Panes[0].Tags; p["cs_pane"] != "shared" || p["cs_session"] != s.Tags["cs_session"] {
		t.Errorf("pane tags %v", p)
	}
}

func TestThePenOfASession(t *testing.T) {
	w := newWorld(t, session.Limits{})
	ctx := t.Context()
	ann, bob, mod := session.Person{ID: "web:ann", Name: "Ann"}, session.Person{ID: "web:bob", Name: "Bob"}, session.Person{ID: "web:mod", Name: "Mo", Moderator: true}
	if _, err := w.book.Give(ctx, "th", "", ann); !errors.Is(err, session.ErrNoSession) && !errors.Is(err, session.ErrUnmanaged) {
		t.Errorf("giving what nobody took: %v", err)
	}
	got, err := w.book.Take(ctx, "th", "", ann)
	if err != nil || got.Again || got.From != "" || strings.Contains(got.Attach, " -r") || !strings.Contains(got.Attach, got.Session) {
		t.Fatalf("%+v, %v", got, err)
	}
	if again, err := w.book.Take(ctx, "th", "", ann); err != nil || !again.Again {
		t.Errorf("twice: %+v, %v", again, err)
	}
	ref, err := w.book.Find(ctx, "th", "", "")
	if err != nil || ref.Taken != "Ann" {
		t.Errorf("%+v, %v", ref, err)
	}
	if err := w.book.Writable(ctx, "th", ""); !errors.Is(err, session.ErrTaken) || !strings.HasPrefix(err.Error(), "Ann has the keyboard") {
		t.Errorf("%v", err)
	}
	if err := w.book.Writable(ctx, "other", ""); err != nil {
		t.Errorf("another thread's: %v", err)
	}
	if _, err := w.book.Take(ctx, "th", "", bob); !errors.Is(err, session.ErrTaken) {
		t.Errorf("from somebody: %v", err)
	}
	if _, err := w.book.Give(ctx, "th", "", bob); !errors.Is(err, session.ErrTaken) {
		t.Errorf("somebody else gives: %v", err)
	}
	w.restart(session.Limits{})
	if _, err := w.book.Reconcile(ctx); err != nil {
		t.Fatal(err)
	}
	if text, _ := w.book.Describe(ctx, "th"); !strings.Contains(text, "Ann has the keyboard") {
		t.Errorf("after a restart: %s", text)
	}
	if log := w.srv.Log(); log[len(log)-1] != "hand "+got.Session+" true" && !slices.Contains(log, "hand "+got.Session+" true") {
		t.Errorf("%q", log)
	}
	if taken, err := w.book.Take(ctx, "th", "", mod); err != nil || taken.From != "Ann" {
		t.Errorf("a moderator takes over: %+v, %v", taken, err)
	}
	w.srv.Pane(got.Session, "shared").Typed(tmux.Done{Text: "df `pwd`", Known: true}, tmux.Done{Text: "vi x"})
	g, err := w.book.Give(ctx, "th", "", mod)
	if err != nil || g.Holder != "Mo" || g.Summary != "- `df 'pwd'` (exit code 0)\n- `vi x`" {
		t.Errorf("%+v, %v", g, err)
	}
	if err := w.book.Writable(ctx, "th", ""); err != nil {
		t.Errorf("given back: %v", err)
	}
	if holder, _, err := w.book.Holder(ctx, "th"); holder != "" || err != nil {
		t.Errorf("%q, %v", holder, err)
	}
	if _, err := w.book.Take(ctx, "th", "", ann); err != nil {
		t.Fatal(err)
	}
	elsewhere := session.New(session.Config{Server: &sessiontest.Server{}, DB: w.db, Target: "web-1", Agent: "Ops", Instance: "test", Dir: "/work"})
	if holder, _, err := elsewhere.Holder(ctx, "th"); holder != "Ann" || err != nil {
		t.Errorf("asked on another target: %q, %v", holder, err)
	}
	if holder, _, err := elsewhere.Holder(ctx, "th2"); holder != "" || err != nil {
		t.Errorf("of another thread: %q, %v", holder, err)
	}
}

func TestKeysThatArePressedInTheConsole(t *testing.T) {
	w := newWorld(t, session.Limits{})
	ctx := t.Context()
	ann, bob := session.Person{ID: "web:ann", Name: "Ann"}, session.Person{ID: "web:bob", Name: "Bob"}
	p, _ := w.ensure("th", "", "")
	press := func(who session.Person, keys string) (err error) {
		w.book.Press(ctx, "th", p.ID(), who.ID, []byte(keys), func(e error) { err = e })
		return err
	}
	silent := func() (out []string) {
		list, err := w.book.Silent(ctx, w.now.Add(-10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			out = append(out, s.Thread+" "+s.Holder)
		}
		return out
	}
	if err := press(ann, "x"); !errors.Is(err, session.ErrUnmanaged) {
		t.Errorf("while the bot has it: %v", err)
	}
	if _, err := w.book.Take(ctx, "th", "", ann); err != nil {
		t.Fatal(err)
	}
	if err := w.book.Resize(ctx, "th", p.ID(), ann.ID, 80, 24); err != nil {
		t.Error(err)
	}
	w.now = w.now.Add(time.Hour)
	if got := silent(); got != nil {
		t.Errorf("who may type through tmux: %q", got)
	}
	if err := press(ann, "x"); err != nil {
		t.Error(err)
	}
	if err := press(bob, "y"); !errors.Is(err, session.ErrTaken) {
		t.Errorf("somebody else: %v", err)
	}
	if err := w.book.Resize(ctx, "th", p.ID(), bob.ID, 80, 24); !errors.Is(err, session.ErrTaken) {
		t.Errorf("somebody else resizes: %v", err)
	}
	if _, err := w.book.Pass(ctx, "th", "", bob, bob); !errors.Is(err, session.ErrTaken) {
		t.Errorf("somebody else hands it over: %v", err)
	}
	if got := silent(); got != nil {
		t.Errorf("who has just typed: %q", got)
	}
	w.now = w.now.Add(12 * time.Minute)
	if got := silent(); !slices.Equal(got, []string{"th web:ann"}) {
		t.Errorf("%q", got)
	}
	if passed, err := w.book.Pass(ctx, "th", "", ann, bob); err != nil || passed.From != "Ann" {
		t.Errorf("%+v, %v", passed, err)
	}
	if got := silent(); got != nil {
		t.Errorf("the next one: %q", got)
	}
	if h, err := w.book.Hands(ctx, "th", p.ID()); err != nil || h.Holder != bob.ID || h.Name != "Bob" {
		t.Errorf("%+v, %v", h, err)
	}
	if err := press(ann, "z"); !errors.Is(err, session.ErrTaken) {
		t.Errorf("who handed it over: %v", err)
	}
	if _, err := w.book.Hands(ctx, "other", p.ID()); !errors.Is(err, session.ErrForeign) {
		t.Errorf("another thread: %v", err)
	}
}

func TestEvidenceOfACommandThatNobodyWaitedFor(t *testing.T) {
	w := newWorld(t, session.Limits{})
	ctx := t.Context()
	w.ensure("th", "", "")
	ref, err := w.book.Find(ctx, "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	pane := w.srv.Pane(ref.Session, "shared")
	for _, tt := range []struct {
		rule  string
		told  tmux.Testimony
		want  string
		final bool
	}{
		{"the shell knows the end", tmux.Testimony{Ended: true, Code: 3}, "ended with exit code 3", true},
		{"it still runs", tmux.Testimony{Running: true}, "still runs", false},
		{"it was never typed", tmux.Testimony{Unstarted: true}, "it was not run", true},
		{"nobody knows yet", tmux.Testimony{}, "", false},
	} {
		if err := w.book.Began(ctx, "th", tt.rule, ref, tmux.Where{Shell: "1", Seq: 4}); err != nil {
			t.Fatal(err)
		}
		pane.Tell(tt.told)
		if e, err := w.book.Testify(ctx, "th", tt.rule); err != nil || !strings.Contains(e.Text, tt.want) {
			t.Errorf("%s, before the outcome is stored: %+v, %v", tt.rule, e, err)
		}
		if _, ok, err := w.book.Typed(ctx, "th", tt.rule); !ok || err != nil {
			t.Errorf("%s is forgotten before its outcome is stored: %v", tt.rule, err)
		}
		w.settle("th", tt.rule, true)
		e, err := w.book.Testify(ctx, "th", tt.rule)
		if err != nil || e.Final != tt.final || !strings.Contains(e.Text, tt.want) || (tt.want == "") != (e.Text == "") {
			t.Errorf("%s: %+v, %v", tt.rule, e, err)
		}
	}
	open, err := w.book.Unknown(ctx)
	if err != nil || len(open) != 2 {
		t.Errorf("what is final is forgotten: %+v, %v", open, err)
	}
	if err := w.book.Began(ctx, "th", "open", ref, tmux.Where{Shell: "1", Seq: 4}); err != nil {
		t.Fatal(err)
	}
	if more, err := w.book.Unknown(ctx); err != nil || len(more) != len(open) {
		t.Errorf("a call without a stored outcome is not unknown: %+v, %v", more, err)
	}
	if got, ok, err := w.book.Typed(ctx, "th", "open"); err != nil || !ok || got.Pane.ID() != pane.ID() || got.Where.Seq != 4 || !got.At.Equal(w.now) {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	w.settle("th", "open", false)
	if _, ok, err := w.book.Typed(ctx, "th", "open"); err != nil || ok {
		t.Errorf("a note outlives the outcome: %v", err)
	}
	w.srv.Vanish(ref.Session)
	if _, ok, err := w.book.Typed(ctx, "th", "it still runs"); !ok || !errors.Is(err, session.ErrNoSession) && !errors.Is(err, session.ErrNoPane) {
		t.Errorf("the pane is gone: %v, %v", ok, err)
	}
	e, err := w.book.Testify(ctx, "th", "it still runs")
	if err != nil || !e.Final || !strings.Contains(e.Text, "is gone") {
		t.Errorf("the pane is gone: %+v, %v", e, err)
	}
	if e, err := w.book.Testify(ctx, "th", "never heard of"); err != nil || !e.Final || e.Text != "" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestPanesAreRecorded(t *testing.T) {
	var films []string
	w := newWorld(t, session.Limits{})
	w.record = func(thread, _, pane string, _, _ int) (session.Recorder, error) {
		return &film{at: thread + "/" + pane, out: &films}, nil
	}
	w.restart(session.Limits{})
	w.ensure("th", "", "")
	ref, err := w.book.Find(t.Context(), "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	w.srv.Pane(ref.Session, "shared").Print("hello")
	w.book.Mark(ref.Session, "shared", "approved")
	w.book.Mark(ref.Session, "none", "nobody")
	w.srv.Vanish(ref.Session)
	w.ensure("th", "", "") // made again: another recorder
	w.book.Close()
	want := []string{"th/shared: hello", "th/shared# approved", "th/shared closed", "th/shared closed"}
	if !slices.Equal(films, want) {
		t.Errorf("%q", films)
	}
}

// film is a recorder that notes what it gets.
type film struct {
	at  string
	out *[]string
}

func (f *film) Output(b []byte)    { *f.out = append(*f.out, f.at+": "+string(b)) }
func (f *film) Marker(text string) { *f.out = append(*f.out, f.at+"# "+text) }
func (f *film) Close() error       { *f.out = append(*f.out, f.at+" closed"); return nil }

func TestSessionsThatNobodyUsesAreEnded(t *testing.T) {
	w := newWorld(t, session.Limits{Idle: time.Hour})
	ctx := t.Context()
	for _, th := range []string{"idle", "busy", "used", "taken"} {
		w.ensure(th, "", "")
	}
	name := func(th string) string {
		ref, err := w.book.Find(ctx, th, "", "")
		if err != nil {
			t.Fatal(err)
		}
		return ref.Session
	}
	busy, idle := name("busy"), name("idle")
	w.srv.Pane(busy, "shared").Set(func(i *tmux.Info) { i.State = tmux.StateRunning })
	if _, err := w.book.Take(ctx, "taken", "", session.Person{ID: "ann", Name: "Ann"}); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(50 * time.Minute)
	w.ensure("used", "", "")
	if rep, err := w.book.Sweep(ctx); err != nil || len(rep.Idle) > 0 {
		t.Errorf("too early: %+v, %v", rep.Idle, err)
	}
	w.now = w.now.Add(11 * time.Minute)
	rep, err := w.book.Sweep(ctx)
	if err != nil || len(rep.Idle) != 1 || rep.Idle[0] != (session.Ended{Name: idle, Thread: "idle"}) {
		t.Fatalf("%+v, %v", rep.Idle, err)
	}
	if w.srv.Pane(idle, "shared") != nil {
		t.Error("it is still there")
	}
	if _, notice := w.ensure("idle", "", ""); notice != "" {
		t.Errorf("a new one is no loss: %q", notice)
	}
}

func TestTheLimitOfATarget(t *testing.T) {
	w := newWorld(t, session.Limits{Target: 2})
	w.ensure("a", "", "")
	w.ensure("b", "", "")
	if _, _, err := w.book.Ensure(t.Context(), "c", "", ""); !errors.Is(err, session.ErrLimit) || !strings.Contains(err.Error(), "max_target_sessions") {
		t.Errorf("%v", err)
	}
	w.ensure("a", "", "") // what is there is used on
}

// The limit of a thread is its own: no other thread's terminal gives way to it. The limit of a target gives way, so a
// plan doesn't refuse.
func TestOnlyTheLimitOfATargetMakesRoom(t *testing.T) {
	w := newWorld(t, session.Limits{Sessions: 1, Target: 3})
	idle, _ := w.ensure("idle", "", "")
	w.now = w.now.Add(50 * time.Minute)
	w.create("a", "one")
	if _, err := w.book.CreateSession(t.Context(), "a", "two"); !errors.Is(err, session.ErrLimit) {
		t.Fatal(err)
	}
	if w.srv.Pane(idle.Session(), "shared") == nil {
		t.Error("the terminal of another thread is gone")
	}
	w.ensure("b", "", "")
	if _, err := w.book.CheckCreate(t.Context(), "c", "new", ""); err != nil {
		t.Error(err)
	}
	if _, err := w.book.CreateSession(t.Context(), "c", "new"); err != nil {
		t.Error(err)
	}
}

// At the limit for all targets together the terminals of another target give way.
func TestTheLimitOfAllTargetsMakesRoom(t *testing.T) {
	w := newWorld(t, session.Limits{Instance: 2})
	var others []*session.Book
	second := session.New(session.Config{
		Server: &sessiontest.Server{}, DB: w.db, Target: "web-1", Agent: "Ops", Instance: "test", Dir: "/work",
		Limits: session.Limits{Instance: 2}, Now: func() time.Time { return w.now }, Others: func() []*session.Book { return others },
	})
	w.ensure("a", "", "")
	w.ensure("b", "", "")
	w.now = w.now.Add(time.Hour)
	if _, err := second.CheckCreate(t.Context(), "c", "", ""); !errors.Is(err, session.ErrLimit) || !strings.Contains(err.Error(), "max_instance_sessions") {
		t.Errorf("%v", err)
	}
	others = []*session.Book{w.book}
	if _, err := second.CheckCreate(t.Context(), "c", "", ""); err != nil {
		t.Error(err)
	}
	if _, _, err := second.Ensure(t.Context(), "c", "", ""); err != nil {
		t.Error(err)
	}
	if len(w.srv.Log()) != 3 {
		t.Errorf("%q", w.srv.Log())
	}
}

// A target at its limit is used on: what is gone takes no place, and then the terminal gives way that nobody
// has used for longest. What runs, is watched or was just used stays; where that is all, a plan refuses.
func TestATargetAtItsLimitRecovers(t *testing.T) {
	w := newWorld(t, session.Limits{Target: 3})
	one, _ := w.ensure("one", "", "")
	two, _ := w.ensure("two", "", "")
	w.ensure("three", "", "")
	w.srv.Vanish(one.Session())
	w.srv.Vanish(two.Session())
	w.restart(session.Limits{Target: 3}) // as after a restart of the machine
	if _, err := w.book.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, th := range []string{"four", "five"} {
		if _, notice := w.ensure(th, "", ""); notice != "" {
			t.Errorf("%s: %q", th, notice)
		}
	}
	full := func(th string) {
		t.Helper()
		if _, _, err := w.book.Ensure(t.Context(), th, "", ""); !errors.Is(err, session.ErrLimit) {
			t.Errorf("%s: %v", th, err)
		}
	}
	full("six")
	four, _ := w.ensure("four", "", "")
	w.srv.Pane(four.Session(), "shared").Set(func(i *tmux.Info) { i.State, i.Program = tmux.StateRunning, "sleep" })
	w.now = w.now.Add(11 * time.Minute)
	w.ensure("three", "", "")
	five, _ := w.book.Find(t.Context(), "five", "", "")
	w.ensure("six", "", "")
	if w.srv.Pane(five.Session, "shared") != nil || w.srv.Pane(four.Session(), "shared") == nil {
		t.Error("another one than the idle one gave way")
	}
	full("seven")
	if _, err := w.book.CheckCreate(t.Context(), "seven", "", ""); !errors.Is(err, session.ErrLimit) {
		t.Errorf("a plan: %v", err)
	}
	for i := range 100 {
		w.now = w.now.Add(2 * time.Minute)
		th := fmt.Sprint("many", i)
		if _, err := w.book.CheckCreate(t.Context(), th, "", ""); err != nil {
			t.Fatalf("%s: %v", th, err)
		}
		w.ensure(th, "", "")
	}
	if w.srv.Pane(four.Session(), "shared") == nil {
		t.Error("one in which something runs gave way")
	}
}
