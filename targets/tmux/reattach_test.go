package tmux

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/targets/backend"
)

// cut ends the control clients as a lost connection does; tmux and the shell go on.
func (b *bench) cut() {
	for _, c := range []*conn{b.s.sessions["main"], b.s.relay} {
		c.proc.Kill()
		<-c.dead
	}
}

func TestALostConnectionIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, command string
		release       bool // the command ends after the connection is back
		out           string
	}{
		{"the command ends while nobody listens", "echo begun; until [ -e go ]; do sleep 0.01; done; echo unseen; exit_code() { return 7; }; exit_code",
			false, "begun\n"},
		{"the command ends when somebody listens again", "echo begun; until [ -e go ]; do sleep 0.01; done; echo seen; (exit 7)", true, "begun\nseen\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			p := b.pane()
			dir := t.TempDir()
			run(t, p, "cd "+shellQuote(dir))
			begun := make(chan struct{})
			var once sync.Once
			back := make(chan struct{})
			var notes []string
			var where Where
			done := make(chan Outcome, 1)
			go func() {
				o, err := p.Run(t.Context(), Command{
					Text:   tt.command,
					Before: func(w Where) error { where = w; return nil },
					Output: func(Stream, []byte) { once.Do(func() { close(begun) }) },
					Note: func(s string) {
						notes = append(notes, s)
						if strings.Contains(s, "is back") {
							close(back)
						}
					},
				})
				if err != nil {
					t.Error(err)
				}
				done <- o
			}()
			<-begun
			goOn := func() { b.tmux("run-shell", "touch '"+dir+"/go'") }
			if !tt.release {
				// Nobody can attach while the session is set up by somebody else.
				unlock, err := b.s.lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				b.cut()
				goOn()
				eventually(t, "the shell noted the end", func() bool {
					got, err := b.tgt.FS().ReadFile(t.Context(), b.s.file("r-"+p.key), 0)
					ok := findEnd(string(got), where).Ended
					return err == nil && ok
				})
				unlock()
			} else {
				b.cut()
				<-back
				goOn()
			}
			o := <-done
			if o.Kind != Exited || o.Code != 7 || o.Stdout.String() != tt.out || !strings.Contains(o.Notice, "connection was lost") {
				t.Errorf("%+v out %q", o, o.Stdout.String())
			}
			if !tt.release && !strings.Contains(o.Screen, "unseen") {
				t.Errorf("the screen does not show what was missed: %q", o.Screen)
			}
			if len(notes) != 2 {
				t.Errorf("signs of life: %q", notes)
			}
			expect(t, p, "echo next; echo e >&2", 0, "next\n", "e\n")
		})
	}
}

func TestAPaneTellsWhatBecameOfACommand(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	var where Where
	note := func(w Where) error { where = w; return nil }
	testify := func() Testimony {
		t.Helper()
		got, err := p.Testify(t.Context(), where)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	stop := errors.New("not now")
	if _, err := p.Run(t.Context(), Command{Text: "echo never", Before: func(w Where) error { where = w; return stop }}); !errors.Is(err, stop) {
		t.Fatalf("%v", err)
	}
	if got := testify(); got != (Testimony{Unstarted: true}) {
		t.Errorf("a command that was not typed: %+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := p.Run(ctx, Command{Text: "read -r x; (exit 9)", Before: note}); err != nil {
		t.Fatal(err)
	}
	if got := testify(); got != (Testimony{Running: true}) {
		t.Errorf("a command that runs: %+v", got)
	}
	if err := p.SendKeys(t.Context(), Keys{Enter: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool { return testify().Ended })
	first := where
	expect(t, p, "set -o noclobber; echo more", 0, "more\n", "")
	if got, err := p.Testify(t.Context(), first); err != nil || !got.Ended || got.Code != 9 {
		t.Errorf("after others: %+v, %v", got, err)
	}
	// The notes outlive the shell and the bot, and another shell's numbers are not
	// taken for this one's.
	if _, err := p.Run(t.Context(), Command{Text: "exit 3", Before: note}); err != nil {
		t.Fatal(err)
	}
	expect(t, p, "true", 0, "", "")
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), b.tgt, b.o)
	if err != nil {
		t.Fatal(err)
	}
	b.s = s
	if p, err = s.Adopt(t.Context(), "main", p.ID()); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Testify(t.Context(), first); err != nil || !got.Ended || got.Code != 9 {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	if got := testify(); got != (Testimony{}) {
		t.Errorf("a command that ended its shell: %+v", got)
	}
}

func TestNothingIsTypedIntoCopyModeEvenIfNobodyKnewOfIt(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	run(t, p, "cd "+shellQuote(t.TempDir()))
	p.c.rtt = time.Second // a far away server: its status is not asked for first
	b.tmux("copy-mode", "-t", p.ID())
	_, err := p.Run(t.Context(), Command{Text: "touch q-q-q"})
	var se *StateError
	if !errors.As(err, &se) || se.State != StateHuman {
		t.Fatalf("%v", err)
	}
	b.tmux("send-keys", "-t", p.ID(), "-X", "cancel")
	p.c.rtt = 0
	expect(t, p, "ls", 0, "", "")
	p.c.rtt = time.Second
	expect(t, p, "echo far; echo e >&2", 0, "far\n", "e\n")
	b.tmux("new-window", "-d", "sleep 300") // or the session would end with the pane
	b.tmux("kill-pane", "-t", p.ID())
	if _, err := p.Run(t.Context(), Command{Text: "true"}); !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestWhatPeopleTypedIsKnownAfterwards(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	b.tmux("set-option", "-g", "assume-paste-time", "0")
	expect(t, p, "echo bots own", 0, "bots own\n", "")
	past := func() []Done {
		t.Helper()
		var list []Done
		eventually(t, "the shell is asked", func() bool {
			got, complete, err := p.Past(t.Context())
			list = got
			return err == nil && complete
		})
		return list
	}
	past() // what was before
	if got := past(); len(got) != 0 {
		t.Errorf("nothing was typed: %+v", got)
	}
	pe := b.person(t)
	seq := func() int { p.mu.Lock(); defer p.mu.Unlock(); return p.shell.seq }
	for _, line := range []string{"true 100% \"sure\"", "(exit 4)", "for i in 1 2\rdo true $i\rdone", "", "echo é"} {
		before := seq()
		pe.types(line + "\r")
		eventually(t, "the prompt is back", func() bool { return seq() > before && state(t, p) == StateIdle })
	}
	want := []Done{{`true 100% "sure"`, 0, true}, {"(exit 4)", 4, true}, {"for i in 1 2; do true $i; done", 0, true}, {"echo é", 0, true}}
	got := past()
	for i := range got { // bash joins lines with ";" or keeps them
		got[i].Text = strings.Join(strings.Fields(strings.ReplaceAll(got[i].Text, "\n", "; ")), " ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
	pe.types("false\r")
	eventually(t, "it has ended", func() bool {
		return state(t, p) == StateIdle && strings.Contains(b.tmux("capture-pane", "-p", "-t", p.ID()), "false")
	})
	eventually(t, "its code is known", func() bool { g := past(); return len(g) == 1 && g[0] == Done{"false", 1, true} || len(g) == 0 })
}

func TestOneWriterAtATime(t *testing.T) {
	t.Parallel()
	b := start(t, func(o *Options, _ *backend.Target) { o.Guard = true })
	p := b.pane()
	b.tmux("set-option", "-g", "assume-paste-time", "0")
	pe := b.person(t)
	clients := func() string { return b.tmux("list-clients", "-F", "#{client_control_mode}#{client_readonly}") }
	locked := func() bool { return strings.Contains(clients(), "01") }
	eventually(t, "the person's client is read-only", locked)
	pe.types("touch x\r")
	expect(t, p, "echo bot", 0, "bot\n", "")
	if err := b.s.Hand(t.Context(), "main", true, 1); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the person may type", func() bool { return !locked() })
	pe.types("x=human\r")
	eventually(t, "the shell ran it", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.history.codes) == 1 })
	if err := b.s.Hand(t.Context(), "main", false, 2); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bot has the keyboard again", locked)
	pe.types("x=late\r")
	eventually(t, "the bot sees what the person did", func() bool {
		o, err := p.Run(t.Context(), Command{Text: "echo $x"})
		return err == nil && o.Stdout.String() == "human\n"
	})
	if line := b.s.WriteCommand("main"); strings.Contains(line, "-r") || !strings.Contains(line, "attach -t '=main:'") {
		t.Errorf("%s", line)
	}
}

func TestATapMissesNothing(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	expect(t, p, "echo before", 0, "before\n", "")
	var mu sync.Mutex
	var got []byte
	if err := p.Tap(t.Context(), func(x []byte) { mu.Lock(); defer mu.Unlock(); got = append(got, x...) }); err != nil {
		t.Fatal(err)
	}
	expect(t, p, "seq 1 20000 | tail -n 1", 0, "20000\n", "")
	run(t, p, "seq 1 20000")
	mu.Lock()
	text := string(got)
	mu.Unlock()
	for _, want := range []string{"before", "1\r\n2\r\n3\r\n", "\n19999\r\n20000\r\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %d bytes", want, len(text))
		}
	}
	if strings.Contains(text, p.nonce) {
		t.Error("the marks are in it")
	}
	if err := p.Tap(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// Whoever makes a pane may be killed at any moment. The pane's directory and what is in front of
// it must then be those that a command finds, not those of a shell that is only coming up.
func TestAPaneWhoseMakerWasKilledIsAdoptedAtItsPrompt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		start func(script string) string // what the pane runs when its maker goes away
	}{
		{"before it started a shell", func(string) string { return placeholder }},
		{"while the shell starts", func(script string) string { // which it does when somebody is attached
			return "until tmux list-clients -F x -t main | grep -q x; do sleep 0.02; done; exec /bin/sh " + shellWord(script)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			dir := t.TempDir()
			p, err := b.s.NewSession(t.Context(), "main", nil, PaneSpec{Name: "shared", Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			id := p.ID()
			if err := b.s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(b.s.file("r-"+p.key), 0); err != nil {
				t.Fatal(err)
			}
			b.tmux("respawn-pane", "-k", "-c", "/", "-t", id, "cd "+shellWord(dir)+"; "+tt.start(b.s.file("sh-"+p.key)))
			if b.s, err = Open(t.Context(), b.tgt, b.o); err != nil {
				t.Fatal(err)
			}
			again := adoptMain(t, b.s, id)
			eventually(t, "the prompt is there", func() bool { again.mu.Lock(); defer again.mu.Unlock(); return again.shell.phase == phaseIdle })
			i, err := again.Info(t.Context())
			if err != nil || i.Dir != dir || i.State != StateIdle || !i.Fresh {
				t.Errorf("%+v %v", i, err)
			}
			expect(t, again, "pwd; echo e >&2", 0, dir+"\n", "e\n")
		})
	}
}
