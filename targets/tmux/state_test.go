package tmux

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/test/needstest"
)

// typed types a line as a person does, and waits until it has run.
func (b *bench) typed(p *Pane, line string) {
	b.t.Helper()
	p.mu.Lock()
	seq := p.shell.seq
	p.mu.Unlock()
	b.tmux("send-keys", "-t", p.ID(), "-l", line)
	b.tmux("send-keys", "-t", p.ID(), "Enter")
	if strings.HasPrefix(line, "PROMPT_COMMAND=") { // no hook tells that it has ended
		eventually(b.t, line, func() bool {
			_, after, ok := strings.Cut(b.tmux("capture-pane", "-p", "-t", p.ID()), line)
			return ok && strings.TrimSpace(after) != ""
		})
		return
	}
	if err := p.wait(b.t.Context(), patience, func() bool { return p.shell.phase == phaseIdle && p.shell.seq > seq }); err != nil {
		b.t.Fatalf("%s: %v", line, err)
	}
}

// named is the state that the shell says it is in.
func named(t testing.TB, p *Pane) Shell {
	t.Helper()
	s, err := p.Shell(t.Context(), false)
	if err != nil || s.State == "" {
		t.Fatalf("%+v %v", s, err)
	}
	return s
}

// altering are lines that change what a later command does.
var altering = []string{
	"export PATH=/evil:$PATH", "export BASH_ENV=/tmp/e", "export LD_PRELOAD=", "export KUBECONFIG=/tmp/k AWS_PROFILE=prod DOCKER_HOST=tcp://e", "X=1",
	"rm() { command rm \"$@\"; }", "alias ls=true", "shopt -s expand_aliases extglob", "set -o noclobber", "set -x", "trap true DEBUG", "trap true ERR",
	"trap true EXIT", "enable -n echo", "readonly X", "umask 077", "ulimit -S -n 100", "export -f rm", "set -- a b", "set -f", "IFS=,", "set -a",
	"bind '\"q\": \"w\"'", "bind '\"%\": upcase-word'", "declare -i Y", "declare -l Z", "declare -n W", "export V", "readonly U", "PS4=x", "unset -f __cs_q", "PROMPT_COMMAND=; set -e", "set -u",
}

// harmless are lines that don't.
var harmless = []string{
	"ls / >/dev/null", "cd /", "cd - >/dev/null", "false", "(exit 3)", "cat <<< here | wc", "X=1 true", "sleep 0 & wait", "history -c", "echo $RANDOM $SECONDS",
	"(umask 077; cd /; export Y=1)", "PROMPT_COMMAND=", "hash -p /bin/false true; hash -r", "", "nosuchcommand", "echo 'a", "b'", "jobs", "type ls",
}

func TestACommandRunsOnlyInTheStateThatWasApproved(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	file := filepath.Join(t.TempDir(), "ran")
	ran := func() bool { _, err := os.Stat(file); _ = os.Remove(file); return err == nil }
	was := named(t, p)
	if was.State != InitialState || len(was.Names) != 0 || !was.Paths {
		t.Fatalf("a fresh shell: %+v", was)
	}
	forms := []string{"touch " + file, "touch " + file + "\ntrue", "touch " + file + "; : less"}
	run := func(text, state string) error {
		_, err := p.Run(t.Context(), Command{Text: text, State: state})
		return err
	}
	for i, line := range altering {
		was = named(t, p)
		b.typed(p, line)
		if err := run(forms[i%len(forms)], was.State); !errors.Is(err, ErrChanged) || ran() {
			t.Errorf("%s: after it: %v", line, err)
		}
		now := named(t, p)
		if now.State == was.State {
			t.Errorf("%s: the state kept its name %s", line, now.State)
		}
		if err := run(forms[i%2], now.State); err != nil || !ran() {
			t.Errorf("%s: in the state that it left: %v", line, err)
		}
		if line == "PROMPT_COMMAND=; set -e" {
			b.typed(p, "set +e")
		}
	}
	now := named(t, p)
	if !slices.Contains(now.Names, "rm") || !slices.Contains(now.Names, "ls") || now.Paths || now.Many {
		t.Errorf("%+v", now)
	}
	if err := run("exit", ""); err != nil {
		t.Fatal(err)
	}
	if now = named(t, p); now.State != InitialState {
		t.Errorf("a new shell: %+v", now)
	}
}

func TestWhatPeopleOnlyLookAtOrLeaveAsItWasDoesNotStopACommand(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := start(t)
	p := b.pane()
	for _, state := range []string{InitialState, "another"} {
		if state != InitialState {
			b.typed(p, "export A=1 B=$'two\\nlines'; f() { :; }; alias g=h; trap : USR1")
			state = named(t, p).State
		}
		for _, line := range harmless {
			if line == "echo 'a" {
				b.tmux("send-keys", "-t", p.ID(), "-l", line)
				b.tmux("send-keys", "-t", p.ID(), "Enter")
				continue
			}
			b.typed(p, line)
			for _, text := range []string{"true", "true\ntrue", ": less"} {
				if o, err := p.Run(t.Context(), Command{Text: text, State: state}); err != nil || o.Code != 0 {
					t.Errorf("%q, then %q: %v %+v", line, text, err, o)
				}
			}
		}
		b.tmux("resize-window", "-t", p.ID(), "-x", "90", "-y", "30")
		if o, err := p.Run(t.Context(), Command{Text: "true", State: state}); err != nil || o.Code != 0 {
			t.Errorf("another size of the window: %v", err)
		}
		if now := named(t, p).State; now != state {
			t.Errorf("%s, and then %s", state, now)
		}
	}
}

// What was put in the shell's table of paths is not what runs.
func TestAPathThatTheShellWasToldToRememberIsNotUsed(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	dir := t.TempDir()
	evil := filepath.Join(dir, "evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\ntouch "+dir+"/ran\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.typed(p, "hash -p "+evil+" ls; BASH_CMDS[cat]="+evil)
	if o, err := p.Run(t.Context(), Command{Text: "ls /; cat /dev/null", State: InitialState}); err != nil || o.Code != 0 {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/ran"); err == nil {
		t.Error("it ran")
	}
}

func TestAStateThatComesBackHasItsNameAgainOnlyIfItIsTheFirst(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	b.typed(p, "X=1")
	one := named(t, p).State
	b.typed(p, "unset X")
	if now := named(t, p).State; now != InitialState {
		t.Error(now)
	}
	b.typed(p, "X=1")
	if now := named(t, p).State; now == one || now == InitialState {
		t.Error(now)
	}
}

func TestARefusedCommandLeavesThePromptAndNoTrace(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	b.typed(p, "X=1; set -x")
	var where Where
	_, err := p.Run(t.Context(), Command{Text: "echo hidden", State: InitialState, Before: func(w Where) error { where = w; return nil }})
	if !errors.Is(err, ErrChanged) {
		t.Fatal(err)
	}
	if err := p.Dispatch(t.Context(), Command{Text: "echo hidden", State: InitialState}); !errors.Is(err, ErrChanged) {
		t.Fatal(err)
	}
	if err := p.wait(t.Context(), patience, func() bool { return p.shell.phase == phaseIdle }); err != nil {
		t.Fatal(err)
	}
	if test, err := p.Testify(t.Context(), where); err != nil || !test.Refused || test.Ended {
		t.Errorf("%+v %v", test, err)
	}
	if o, err := p.Resume(t.Context(), where, time.Now(), Command{Text: "echo hidden"}); !errors.Is(err, ErrChanged) {
		t.Errorf("%+v %v", o, err)
	}
	past, _, err := p.Past(t.Context())
	if err != nil || len(past) != 1 {
		t.Errorf("%+v %v", past, err)
	}
	expect(t, p, "set +x; echo a >&2", 0, "", "+ set +x\na\n")
	screen := b.tmux("capture-pane", "-p", "-t", p.ID())
	if strings.Contains(screen, "hidden") || strings.Count(screen, "# not run:") != 2 {
		t.Error(screen)
	}
}

func FuzzParseState(f *testing.F) {
	for _, s := range []string{"0;1;", "12.3;0;rm ls", "1.1;1;*", "1.1;2;", ";;", "0;1", "-1.2;1;a;b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, args string) {
		s, ok := parseState(args)
		if ok != stateName.MatchString(s.State) || !ok && (s.State != "" || s.Names != nil) || s.Many && s.Names != nil {
			t.Errorf("%q: %+v %v", args, s, ok)
		}
	})
}

func TestACommandIsNotRunWhereNothingCompares(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	b.typed(p, "unset -f __cs_t")
	for _, text := range []string{"touch never", "touch never\ntrue"} {
		if o, err := p.Run(t.Context(), Command{Text: text, State: InitialState}); !errors.Is(err, ErrChanged) {
			t.Errorf("%+v %v", o, err)
		}
	}
}

// After a text that ended too early, bash may read "[[" as a command.
func TestAnIncompleteCommandBeforeItDoesNotHideAChange(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	for i, text := range []string{"echo 'open", "cat <<X\na", "if true; then\necho a", "f() {", "echo $((1", "((", "[[ a", "a=(1"} {
		state := named(t, p).State
		run(t, p, text)
		if o, err := p.Run(t.Context(), Command{Text: "true", State: state}); err != nil || o.Code != 0 {
			t.Errorf("%q: %+v %v", text, o, err)
		}
		run(t, p, text)
		run(t, p, "X="+string(rune('a'+i)))
		run(t, p, text)
		if _, err := p.Run(t.Context(), Command{Text: "true", State: state}); !errors.Is(err, ErrChanged) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
