package shell_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"countersign/targets/session/sessiontest"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/toolstest"
)

// overTmux is run_shell over a real tmux.
func overTmux(t *testing.T) (*sessiontest.Real, *tools.Registry) {
	t.Helper()
	r := sessiontest.NewReal(t)
	return r, registry(t, shell.New(shell.Config{Target: r.Target, Sessions: r.Book, Dir: r.Dir}))
}

func runReal(t *testing.T, reg *tools.Registry, args string) toolstest.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*sessiontest.Patience)
	defer cancel()
	return toolstest.Run(ctx, t, reg, "run_shell", args)
}

func TestRealPaneResults(t *testing.T) {
	r, reg := overTmux(t)
	for _, c := range []struct{ command, want string }{
		{"echo o; echo e >&2; (exit 3)", `{"exit_code":3,"stdout":"o\n","stderr":"e\n"}`},
		{"printf 'no newline'; touch x", `{"exit_code":0,"stdout":"no newline","stderr":""}`},
		{"cd / && kept=yes", `{"exit_code":0,"stdout":"","stderr":""}`},
		{"pwd; echo $kept", `{"exit_code":0,"stdout":"/\nyes\n","stderr":""}`},
		{"HOME=/ bash -lc 'set -e; false; echo never'", `{"exit_code":1,"stdout":"","stderr":""}`},
		{"echo still here; touch x", `{"exit_code":0,"stdout":"still here\n","stderr":""}`},
		{"pwd", `{"exit_code":0,"stdout":"/\n","stderr":""}`}, // beside the pane, in its directory
	} {
		if out := runReal(t, reg, call(c.command)); !strings.HasSuffix(out.Text, `"result":`+c.want+`}`) {
			t.Errorf("%s: got  %s\nwant %s", c.command, out.Text, c.want)
		}
	}
	if got := r.Tmux("list-panes", "-a", "-F", "#{@cs_pane}"); got != "shared" {
		t.Errorf("B-104: panes %q", got)
	}
}

// B-28.
func TestRealTimeoutThenStop(t *testing.T) {
	t.Parallel()
	r, reg := overTmux(t)
	out := runReal(t, reg, call("sleep 100; touch x", `"wait":"1s"`))
	if !strings.HasPrefix(out.Text, "Tool error: command timed out after 1s (timeout) and is still running in pane %") {
		t.Fatal(out.Text)
	}
	out = runReal(t, reg, call("echo x > y"))
	if !strings.Contains(out.Text, "was not run") {
		t.Errorf("a busy pane: %s", out.Text)
	}
	if out = runReal(t, reg, call("echo x")); !strings.Contains(out.Text, `"stdout":"x\n"`) {
		t.Errorf("a read beside a busy pane: %s", out.Text)
	}
	p, err := r.Book.Open(t.Context(), thread, "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out = runReal(t, reg, call("echo x; touch y")); !strings.Contains(out.Text, `"stdout":"x\n"`) {
		t.Error(out.Text)
	}
}

func TestRealStopEndsTheCommand(t *testing.T) {
	_, reg := overTmux(t)
	runReal(t, reg, call("true"))
	p, err := plan(t, reg, call("echo ready; sleep 1000; touch x"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := toolstest.RunPlan(ctx, t, reg, p, func(e tools.Event) {
		if e.Kind == tools.Stdout {
			cancel()
		}
	})
	if r := parse(t, out); !out.Result.Failed || r.State != "stopped" || !strings.Contains(r.Notice, "Stopped before its end") {
		t.Errorf("%s %v", out.Text, out.Err)
	}
	if out = runReal(t, reg, call("echo free; touch y")); !strings.Contains(out.Text, `"stdout":"free\n"`) {
		t.Error(out.Text)
	}
}

// B-106.
// B-26.
func TestRealDispatchReturnsAtOnce(t *testing.T) {
	r, reg := overTmux(t)
	runReal(t, reg, call("true"))
	out := runReal(t, reg, call("sleep 30; touch x", `"wait":false`))
	if !strings.Contains(out.Text, `"result":"command dispatched to tmux pane %`) {
		t.Fatal(out.Text)
	}
	r.Eventually("the pane is busy", func() bool { return r.Tmux("list-panes", "-a", "-F", "#{pane_current_command}") == "sleep" })
}

func TestRealInputPromptReturns(t *testing.T) {
	t.Parallel()
	_, reg := overTmux(t)
	out := runReal(t, reg, call("read -p 'Continue? ' x"))
	if r := parse(t, out); r.State != "waiting-input" || !strings.Contains(r.Screen, "Continue?") || r.ExitCode != nil {
		t.Errorf("%s %v", out.Text, out.Err)
	}
}

// B-08: with somebody who listens.
// B-03.
func TestRealOutputStreams(t *testing.T) {
	_, reg := overTmux(t)
	p, err := plan(t, reg, call("echo 1; sleep 0.2; echo 2 >&2; sleep 0.2; echo 3; touch x"))
	if err != nil {
		t.Fatal(err)
	}
	var seen []time.Time
	out := toolstest.RunPlan(t.Context(), t, reg, p, func(e tools.Event) {
		if e.Kind == tools.Stdout || e.Kind == tools.Stderr {
			seen = append(seen, time.Now())
		}
	})
	if len(seen) < 3 || !strings.Contains(out.Text, `"stdout":"1\n3\n","stderr":"2\n"`) {
		t.Errorf("%d pieces, %s", len(seen), out.Text)
	}
}
