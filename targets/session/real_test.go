package session_test

import (
	"context"
	"strings"
	"testing"

	"countersign/targets/session"
	"countersign/targets/session/sessiontest"
	"countersign/targets/tmux"
)

func runIn(t *testing.T, p session.Pane, text string) tmux.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sessiontest.Patience)
	defer cancel()
	o, err := p.Run(ctx, tmux.Command{Text: text})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return o
}

func TestRealSessionsAndTheirTags(t *testing.T) {
	r := sessiontest.NewReal(t)
	p, _, err := r.Book.Ensure(t.Context(), "slack:T1:C1:1.2", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if o := runIn(t, p, "pwd"); o.Stdout.String() != r.Dir+"\n" {
		t.Errorf("pwd says %q", o.Stdout.String())
	}
	if got := r.Tmux("list-sessions", "-F", "#{session_name} #{@cs_thread}"); got != p.Session()+" slack:T1:C1:1.2" {
		t.Errorf("tmux has %q", got)
	}
	m, err := r.Book.CreateSession(t.Context(), "slack:T1:C1:1.2", "Ops Prod!")
	if err != nil || m.Session != "countersign-ops-ops-prod" {
		t.Fatalf("%+v, %v", m, err)
	}
	w, err := r.Book.CreatePane(t.Context(), "slack:T1:C1:1.2", "ops-prod", "Worker 1")
	if err != nil || w.Pane != "worker-1" {
		t.Fatalf("%+v, %v", w, err)
	}
	if got := r.Tmux("list-panes", "-s", "-t", "=countersign-ops-ops-prod", "-F", "#{@cs_pane}"); got != "shared\nworker-1" {
		t.Errorf("panes %q", got)
	}
	if _, err := r.Book.KillPane(t.Context(), "slack:T1:C1:1.2", "ops-prod", "worker-1"); err != nil {
		t.Fatal(err)
	}
	if got := r.Tmux("list-panes", "-s", "-t", "=countersign-ops-ops-prod", "-F", "#{@cs_pane}"); got != "shared" {
		t.Errorf("panes after the kill %q", got)
	}
	r.Tmux("new-session", "-d", "-s", "byhand")
	_, err = r.Book.KillSession(t.Context(), "slack:T1:C1:1.2", "byhand")
	wantErr(t, err, session.ErrUnmanaged)
	if _, err := r.Book.KillSession(t.Context(), "slack:T1:C1:1.2", "ops-prod"); err != nil {
		t.Fatal(err)
	}
	if got := r.Tmux("list-sessions", "-F", "#{session_name}"); strings.Contains(got, "ops-prod") || !strings.Contains(got, "byhand") {
		t.Errorf("sessions after the kill %q", got)
	}
}

func TestRealRestartKeepsTheShell(t *testing.T) {
	r := sessiontest.NewReal(t)
	p, _, err := r.Book.Ensure(t.Context(), "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	runIn(t, p, "cd / && mark=kept")
	before, err := r.Book.Find(t.Context(), "th", "", "")
	if err != nil || before.Dir != "/" {
		t.Fatalf("%+v, %v", before, err)
	}
	r.Restart()
	rep, err := r.Book.Reconcile(t.Context())
	if err != nil || len(rep.Adopted) != 1 {
		t.Fatalf("%+v, %v", rep, err)
	}
	after, err := r.Book.Find(t.Context(), "th", "", "")
	if err != nil || after != before {
		t.Errorf("found %+v, before the restart %+v, %v", after, before, err)
	}
	q, notice, err := r.Book.Ensure(t.Context(), "th", "", "")
	if err != nil || q.ID() != p.ID() || notice != "" {
		t.Fatalf("%v %q %v", q, notice, err)
	}
	if o := runIn(t, q, "echo $mark"); o.Stdout.String() != "kept\n" {
		t.Errorf("the variable is %q", o.Stdout.String())
	}
}

// Where a shell is at its prompt is known without asking the target: whoever changed it, and only
// while nothing else may be in front.
func TestRealPromptIsKnownWithoutAsking(t *testing.T) {
	r := sessiontest.NewReal(t)
	if dir, ok := r.Book.Prompt(t.Context(), "th", "", ""); ok {
		t.Errorf("a pane that was never made is at %q", dir)
	}
	p, _, err := r.Book.Ensure(t.Context(), "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	at := func(want string) {
		t.Helper()
		r.Eventually("the prompt is in "+want, func() bool {
			dir, ok := r.Book.Prompt(t.Context(), "th", "", "")
			return dir == want && ok
		})
	}
	recent := func(want string) {
		t.Helper()
		i, err := p.Info(tmux.AcceptRecent(t.Context()))
		if err != nil || i.Dir != want {
			t.Errorf("it is in %q, want %q (%v)", i.Dir, want, err)
		}
	}
	runIn(t, p, "cd /")
	at("/")
	recent("/")
	r.Tmux("send-keys", "-t", p.ID(), "cd /usr", "Enter") // a person
	at("/usr")
	recent("/usr") // what was said before the pane showed something else doesn't count
	r.Tmux("send-keys", "-t", p.ID(), "cd /tmp; cat", "Enter")
	r.Eventually("something else is in front", func() bool {
		_, ok := r.Book.Prompt(t.Context(), "th", "", "")
		return !ok
	})
	r.Tmux("send-keys", "-t", p.ID(), "C-d")
	at("/tmp")
	r.Tmux("kill-server")
	r.Eventually("the terminal is gone", func() bool {
		_, ok := r.Book.Prompt(t.Context(), "th", "", "")
		return !ok
	})
}

func TestRealTerminalThatIsKilledIsMadeAgain(t *testing.T) {
	r := sessiontest.NewReal(t)
	p, _, err := r.Book.Ensure(t.Context(), "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	r.Tmux("kill-server")
	var q session.Pane
	var notice string
	r.Eventually("a new pane", func() bool {
		q, notice, err = r.Book.Ensure(t.Context(), "th", "", "")
		return err == nil && notice != ""
	})
	if o := runIn(t, q, "echo here"); o.Stdout.String() != "here\n" || q.Session() != p.Session() {
		t.Errorf("%s says %q", q.Session(), o.Stdout.String())
	}
}

func TestRealShellThatEndedIsStartedAgain(t *testing.T) {
	r := sessiontest.NewReal(t)
	p, _, err := r.Book.Ensure(t.Context(), "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	runIn(t, p, "MARK=old")
	if err := p.SendKeys(t.Context(), tmux.Keys{Literal: "exit", Enter: true}); err != nil {
		t.Fatal(err)
	}
	// The pane starts the next shell by itself, and says so once.
	// A command that is typed in the very moment in which the old one ends is not
	// told, but the next is.
	var o tmux.Outcome
	told := false
	r.Eventually("a new shell", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), sessiontest.Patience)
		defer cancel()
		o, err = p.Run(ctx, tmux.Command{Text: "echo [$MARK]"})
		told = told || o.Notice != ""
		return err == nil && o.Stdout.String() == "[]\n"
	})
	if !told && runIn(t, p, "true").Notice == "" {
		t.Error("nobody is told that the shell was started again")
	}
	r.Restart() // also a bot that comes back to it
	q, _, err := r.Book.Ensure(t.Context(), "th", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if o := runIn(t, q, "echo back"); o.Stdout.String() != "back\n" {
		t.Errorf("%q", o.Stdout.String())
	}
}
