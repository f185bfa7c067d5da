package tmux

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/test/needstest"
)

// replicas opens n processes of the bot over one tmux server.
func replicas(t *testing.T, n int, change ...func(*Options, *backend.Target)) (*bench, []*Server) {
	t.Helper()
	b := start(t, change...)
	all := []*Server{b.s}
	for range n - 1 {
		s, err := Open(t.Context(), b.tgt, b.o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		all = append(all, s)
	}
	for _, s := range all {
		s.Share()
	}
	return b, all
}

func makeMain(t *testing.T, s *Server, epoch int64) *Pane {
	t.Helper()
	p, err := s.NewSession(t.Context(), "main", nil, PaneSpec{Name: "shared", Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func adoptMain(t *testing.T, s *Server, id string) *Pane {
	t.Helper()
	p, err := s.Adopt(t.Context(), "main", id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func drive(t *testing.T, p *Pane, epoch int64) {
	t.Helper()
	if err := p.Drive(t.Context(), epoch); err != nil {
		t.Fatal(err)
	}
}

// pretendDriving makes a process believe that it is still the driver under an epoch, as if
// it had been stopped and had received nothing since.
func pretendDriving(p *Pane, epoch int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lease.acquire(epoch)
}

func TestADriverThatWasReplacedDoesNothing(t *testing.T) {
	t.Parallel()
	b, s := replicas(t, 2)
	dir := t.TempDir()
	a := makeMain(t, s[0], 1)
	run(t, a, "cd "+shellQuote(dir))
	other := adoptMain(t, s[1], a.ID())
	if _, err := other.Run(t.Context(), Command{Text: "touch listener"}); !errors.Is(err, ErrDriven) {
		t.Errorf("who only listens types: %v", err)
	}
	expect(t, a, "echo still; echo mine >&2", 0, "still\n", "mine\n")

	// It is stopped between its record and its key, and the other process works there.
	o, err := a.Run(t.Context(), Command{Text: "touch stale", Before: func(Where) error {
		drive(t, other, 2)
		expect(t, other, "echo other; echo e >&2", 0, "other\n", "e\n")
		pretendDriving(a, 1)
		return nil
	}})
	var se *StateError
	var de *DrivenError
	if !errors.Is(err, ErrDriven) || !errors.As(err, &se) || !errors.As(err, &de) || de.Epoch != 2 {
		t.Errorf("Run: %v %+v", err, o)
	}
	eventually(t, "all is on the screen", func() bool {
		return strings.Count(b.tmux("capture-pane", "-p", "-t", a.ID()), "\ne\n") == 1
	})
	eventually(t, "the prompt is back", func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		return other.stderr.mirror.idle()
	})
	screen := b.tmux("capture-pane", "-p", "-t", a.ID())
	for name, act := range map[string]func() error{
		"Run":       func() error { _, err := a.Run(t.Context(), Command{Text: "touch stale"}); return err },
		"Dispatch":  func() error { return a.Dispatch(t.Context(), Command{Text: "touch stale"}) },
		"SendKeys":  func() error { return a.SendKeys(t.Context(), Keys{Literal: "touch stale", Enter: true}) },
		"many keys": func() error { return a.SendKeys(t.Context(), Keys{Literal: strings.Repeat("x", 9000)}) },
		"Kill":      func() error { return a.Kill(t.Context()) },
		"Past":      func() error { _, _, err := a.Past(t.Context()); return err },
		"spawn":     func() error { return a.spawn(t.Context(), dir) },
		"NewPane":   func() error { _, err := s[0].NewPane(t.Context(), "main", PaneSpec{Epoch: 1}); return err },
		"Drive":     func() error { return s[0].Drive(t.Context(), "main", 1) },
	} {
		pretendDriving(a, 1)
		if err := act(); !errors.Is(err, ErrDriven) {
			t.Errorf("%s: %v", name, err)
		}
	}
	pretendDriving(a, 1)
	if err := a.queryStatus(t.Context()); !errors.Is(err, ErrDriven) || a.Driving() {
		t.Errorf("a question to the shell: %v", err)
	}
	if now := b.tmux("capture-pane", "-p", "-t", a.ID()); now != screen {
		t.Errorf("the pane was\n%s\nand is\n%s", screen, now)
	}
	if err := other.Dispatch(t.Context(), Command{Text: "sleep 300"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "everybody hears that a command runs", func() bool { return state(t, a) == StateRunning })
	pretendDriving(a, 1)
	if err := a.Interrupt(t.Context()); !errors.Is(err, ErrDriven) {
		t.Errorf("Interrupt: %v", err)
	}
	if got := state(t, other); got != StateRunning {
		t.Errorf("a driver that was replaced has ended a command: %s", got)
	}
	if err := other.Interrupt(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if panes := b.tmux("list-panes", "-s", "-t", "=main:"); strings.Count(panes, "\n") != 0 {
		t.Errorf("panes %s", panes)
	}

	// It may drive again, and then knows what the other process did.
	run(t, other, "cd /; x=$PWD")
	drive(t, a, 3)
	if o := expect(t, a, "echo $x $PWD; echo e >&2", 0, "/ /\n", "e\n"); o.Dir != "/" {
		t.Errorf("directory %s", o.Dir)
	}
}

func TestEverybodyHearsOfANewDriver(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	_, s := replicas(t, 2)
	a := makeMain(t, s[0], 1)
	other := adoptMain(t, s[1], a.ID())
	drive(t, other, 2)
	eventually(t, "by the shell's answer", func() bool { return !a.Driving() })
	drive(t, a, 3)
	eventually(t, "by the shell's answer", func() bool { return !other.Driving() })
	if err := s[1].Drive(t.Context(), "main", 4); err != nil { // which asks no shell
		t.Fatal(err)
	}
	eventually(t, "by the subscription", func() bool { return !a.Driving() })
}

func TestARunningCommandSurvivesANewDriver(t *testing.T) {
	t.Parallel()
	_, s := replicas(t, 2)
	a := makeMain(t, s[0], 1)
	dir := t.TempDir()
	run(t, a, "cd "+shellQuote(dir))
	other := adoptMain(t, s[1], a.ID())
	begun, done := make(chan struct{}), make(chan Outcome, 1)
	go func() {
		o, err := a.Run(t.Context(), Command{
			Text:   "echo begun; until [ -e go ]; do sleep 0.01; done; echo out; echo err >&2; (exit 3)",
			Output: whenSaid("begun", func() { close(begun) }),
		})
		if err != nil {
			t.Error(err)
		}
		done <- o
	}()
	<-begun
	drive(t, other, 2)
	if _, err := other.Run(t.Context(), Command{Text: "touch second"}); !errors.Is(err, ErrBusy) || errors.Is(err, ErrDriven) {
		t.Errorf("a second command: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := <-done; o.Code != 3 || o.Stdout.String() != "begun\nout\n" || o.Stderr.String() != "err\n" {
		t.Errorf("%+v", o)
	}
	eventually(t, "the new driver knows that it has ended", func() bool { return state(t, other) == StateIdle })
	expect(t, other, "echo next", 0, "next\n", "")
}

func TestPeopleSeeStandardErrorOnceWhoeverListens(t *testing.T) {
	t.Parallel()
	b, s := replicas(t, 3)
	a := makeMain(t, s[0], 1)
	second, third := adoptMain(t, s[1], a.ID()), adoptMain(t, s[2], a.ID())
	for i, p := range []*Pane{a, second, third, a} {
		word := fmt.Sprintf("word-%d", i)
		drive(t, p, int64(i+1))
		expect(t, p, "printf 'w%s\\n' ord-"+word[5:]+" >&2", 0, "", word+"\n")
		expect(t, p, "true", 0, "", "") // by now the last one's is on the screen
		eventually(t, "it is on the screen", func() bool { return strings.Contains(b.tmux("capture-pane", "-p", "-t", a.ID()), word) })
		if n := strings.Count(b.tmux("capture-pane", "-p", "-t", a.ID()), word); n != 1 {
			t.Errorf("%s is there %d times:\n%s", word, n, b.tmux("capture-pane", "-p", "-t", a.ID()))
		}
	}
}

func TestOneOfSeveralMakesASession(t *testing.T) {
	t.Parallel()
	b, s := replicas(t, 3)
	var wg sync.WaitGroup
	panes, errs := make([]*Pane, len(s)), make([]error, len(s))
	for i := range s {
		wg.Go(func() {
			panes[i], errs[i] = s[i].NewSession(t.Context(), "main", nil, PaneSpec{Epoch: int64(i + 1)})
		})
	}
	wg.Wait()
	made := 0
	for i := range s {
		switch {
		case errs[i] == nil:
			made++
			expect(t, panes[i], "echo hi; echo e >&2", 0, "hi\n", "e\n")
		case !errors.Is(errs[i], ErrExists):
			t.Error(errs[i])
		}
	}
	if made != 1 || b.tmux("list-sessions", "-F", "#{session_name}") != "main" {
		t.Errorf("%d were made", made)
	}
	var left []string
	for _, p := range []string{"rc-*", "sh-*", "e-*"} {
		found, err := filepath.Glob(filepath.Join(b.o.Dir, p))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	if len(left) != 3 {
		t.Errorf("the files of those that were not made: %q", left)
	}
}

func TestAPaneWhoseMakerStoppedGetsItsShell(t *testing.T) {
	t.Parallel()
	b, s := replicas(t, 2)
	makeMain(t, s[0], 1)
	dir := t.TempDir()
	// All of NewPane but the start of the shell.
	sp, err := s[0].preparePane(t.Context(), PaneSpec{Name: "worker", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	c := s[0].sessions["main"]
	id := b.tmux("new-window", "-d", "-P", "-F", "#{pane_id}", placeholder)
	for _, o := range sp.opts {
		b.tmux("set-option", "-p", "-t", id, o[0], o[1])
	}
	p := adoptMain(t, s[1], id)
	drive(t, p, 2)
	expect(t, p, "pwd; echo e >&2", 0, dir+"\n", "e\n")
	// Then its creator goes on.
	n, _ := paneNumber(id)
	sp.epoch = 1
	if _, err := s[0].bootOrKill(t.Context(), c, "main", n, sp); !errors.Is(err, ErrDriven) {
		t.Errorf("%v", err)
	}
	expect(t, p, "echo hi", 0, "hi\n", "")
}

func TestWhoErrsThatAPaneIsGoneTakesNothingFromOthers(t *testing.T) {
	t.Parallel()
	_, s := replicas(t, 2)
	a := makeMain(t, s[0], 1)
	other := adoptMain(t, s[1], a.ID())
	other.lost(true)
	s[1].discardPane(a.key)
	expect(t, a, "echo hi; echo e >&2", 0, "hi\n", "e\n")
	again := adoptMain(t, s[1], a.ID())
	drive(t, again, 2)
	expect(t, again, "echo hi; echo e >&2", 0, "hi\n", "e\n")
	if err := s[0].Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, again, "echo alone; echo e >&2", 0, "alone\n", "e\n")
}

// Only keys of the highest epoch ever reach the pane, whatever the processes believe.
func TestOnlyTheHighestEpochTypes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	b, s := replicas(t, 3)
	panes := []*Pane{makeMain(t, s[0], 1)}
	for _, x := range s[1:] {
		panes = append(panes, adoptMain(t, x, panes[0].ID()))
	}
	mine := map[int]int64{0: 1} // the epoch of each process, which nobody else has
	top, want, next := int64(1), "", int64(1)
	for range 150 {
		i := rnd.IntN(len(panes))
		p := panes[i]
		switch rnd.IntN(4) {
		case 0: // it got a new epoch from the store some time ago
			next++
			mine[i] = next
		case 1: // and comes to use it
			if mine[i] == 0 {
				continue
			}
			err := s[i].Drive(t.Context(), "main", mine[i])
			if (err == nil) != (mine[i] >= top) {
				t.Fatalf("epoch %d over %d: %v", mine[i], top, err)
			}
			top = max(top, mine[i])
		default:
			pretendDriving(p, mine[i])
			letter := string(rune('a' + rnd.IntN(26)))
			err := p.SendKeys(t.Context(), Keys{Literal: letter})
			if (err == nil) != (mine[i] == top) || err != nil && !errors.Is(err, ErrDriven) {
				t.Fatalf("typed with epoch %d where %d drives: %v", mine[i], top, err)
			}
			if err == nil {
				want += letter
			}
		}
	}
	eventually(t, "nothing but "+want+" is on the line", func() bool {
		screen := strings.TrimSpace(strings.ReplaceAll(b.tmux("capture-pane", "-p", "-J", "-t", panes[0].ID()), "\n", ""))
		return strings.HasSuffix(screen, "$ "+want) || strings.HasSuffix(screen, "# "+want)
	})
}

func TestPeopleAreTreatedTheSameByAllReplicas(t *testing.T) {
	t.Parallel()
	b, s := replicas(t, 2, func(o *Options, _ *backend.Target) { o.Guard = true })
	a := makeMain(t, s[0], 1)
	other := adoptMain(t, s[1], a.ID())
	b.tmux("set-option", "-g", "assume-paste-time", "0")
	clients := func(control, readonly string) int {
		return strings.Count(b.tmux("list-clients", "-F", "["+"#{client_control_mode}#{client_readonly}]"), "["+control+readonly+"]")
	}
	// settled waits for both processes to have done what they do about clients.
	settled := func() {
		t.Helper()
		for _, x := range s {
			if err := x.applyGuard(t.Context(), x.sessions["main"], "main"); err != nil {
				t.Fatal(err)
			}
		}
	}
	pe := b.person(t)
	eventually(t, "a person is there", func() bool { return clients("0", "0")+clients("0", "1") == 1 })
	for range 3 {
		settled()
		if clients("0", "1") != 1 {
			t.Fatal("a person may type")
		}
	}
	late := b.person(t)
	eventually(t, "another one is there", func() bool { return clients("0", "0")+clients("0", "1") == 2 })
	settled()
	if clients("0", "1") != 2 {
		t.Fatal("a person may type")
	}
	expect(t, a, "echo bot", 0, "bot\n", "")

	// The keyboard is handed over by one, and taken back by the other.
	if err := s[1].Hand(t.Context(), "main", true, 1); err != nil {
		t.Fatal(err)
	}
	settled()
	if clients("0", "0") != 2 {
		t.Error("nobody may type")
	}
	if _, err := a.Run(t.Context(), Command{Text: "echo bot"}); !errors.Is(err, errKeyboardHeld) {
		t.Errorf("the bot types while people have the keyboard: %v", err)
	}
	if err := a.SendKeys(t.Context(), Keys{Literal: "x"}); !errors.Is(err, errKeyboardHeld) {
		t.Errorf("the bot presses keys while people have the keyboard: %v", err)
	}
	pe.types("x=human\r")
	eventually(t, "the shell ran it", func() bool { other.mu.Lock(); defer other.mu.Unlock(); return other.shell.seq > 2 })
	b.person(t)
	eventually(t, "a third one is there", func() bool { return clients("0", "0")+clients("0", "1") == 3 })
	settled()
	if clients("0", "0") != 3 {
		t.Error("who comes later may not type")
	}
	if err := s[0].Hand(t.Context(), "main", false, 2); err != nil {
		t.Fatal(err)
	}
	settled()
	if clients("0", "1") != 3 {
		t.Error("somebody may still type")
	}
	late.types("x=late\r")
	// The first one was stopped on its way to hand it over.
	var turn *TurnError
	if err := s[1].Hand(t.Context(), "main", true, 1); !errors.As(err, &turn) || turn.Turn != 2 {
		t.Errorf("a turn that is over: %v", err)
	}
	if err := s[1].Hand(t.Context(), "main", false, 2); err != nil {
		t.Errorf("the same turn again: %v", err)
	}
	settled()
	if clients("0", "1") != 3 || clients("1", "0") != 2 {
		t.Error("clients of people and of the bot:\n" + b.tmux("list-clients", "-F", "#{client_control_mode}#{client_readonly}"))
	}
	eventually(t, "the bot sees what the person did", func() bool {
		o, err := a.Run(t.Context(), Command{Text: "echo $x"})
		return err == nil && o.Stdout.String() == "human\n"
	})
}

func TestACommandWhoseErrorsNeverEndEndsOnce(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	companion := func() *companion {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.stderr.companion
	}
	c := companion()
	// The companion's terminal is gone from the shell, so the end mark cannot come.
	o := run(t, p, "echo out; exec 19>/dev/null")
	if o.Kind != Exited || o.Stdout.String() != "out\n" || !strings.Contains(o.Notice, "The end of standard error could not be seen") {
		t.Errorf("%+v", o)
	}
	expect(t, p, "echo hi; echo e >&2", 0, "hi\n", "e\n")
	if companion() == c {
		t.Error("the companion was not replaced")
	}
}
