package terminal_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"countersign/targets/session/sessiontest"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/terminal"
	"countersign/tools/toolstest"
)

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// desk is the shell and the terminal tools over a real tmux.
type desk struct {
	*sessiontest.Real
	t   *testing.T
	reg *tools.Registry
}

func newReal(t *testing.T) *desk {
	t.Helper()
	r := &desk{Real: sessiontest.NewReal(t), t: t}
	ts := terminal.New(terminal.Config{Target: "local", Book: r.Book})
	reg, err := tools.NewRegistry(time.Now, append(ts, shell.New(shell.Config{Target: r.Target, Sessions: r.Book, Dir: r.Dir}))...)
	if err != nil {
		t.Fatal(err)
	}
	r.reg = reg
	return r
}

func (r *desk) run(name, args string) string {
	r.t.Helper()
	if name != "capture-pane" {
		args = strings.TrimSuffix(args, "}") + "," + claim + "}"
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*sessiontest.Patience)
	defer cancel()
	out := toolstest.Run(ctx, r.t, r.reg, name, args)
	if out.Err != nil {
		return out.Text
	}
	return out.Result.Text
}

// screen captures until the text is there.
func (r *desk) screen(args, want string) string {
	r.t.Helper()
	var got string
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("the last screen was %q", got)
		}
	})
	r.Eventually("the screen shows "+want, func() bool {
		got = r.run("capture-pane", args)
		return strings.Contains(got, want)
	})
	return got
}

// foreground waits until a program runs: before, its shell would swallow keys.
func (r *desk) foreground(program string) {
	r.t.Helper()
	r.Eventually(program+" runs", func() bool { return r.Tmux("list-panes", "-a", "-F", "#{pane_current_command}") == program })
}

// B-79.
func TestRealDispatchThenCapture(t *testing.T) {
	r := newReal(t)
	if got := r.run("run_shell", `{"command":"sleep 0.3; echo do''ne","wait":false}`); !strings.HasPrefix(got, "command dispatched to tmux pane %") {
		t.Fatal(got)
	}
	r.screen(`{"delay":"500ms"}`, "done")
}

// B-83: Enter comes last. B-86: without a pane it is the one that everybody shares.
// B-81, B-82, B-85.
func TestRealInterruptAndKeys(t *testing.T) {
	r := newReal(t)
	r.run("run_shell", `{"command":"cat; echo ca''t ended","wait":false}`)
	r.foreground("cat")
	r.run("send-keys", `{"literal_text":"C-c","keys":["Space","x"],"enter":true}`)
	got := r.screen(`{}`, "C-c x\nC-c x\n")
	if strings.Contains(got, "cat ended") {
		t.Errorf("the literal text was taken as a key:\n%s", got)
	}
	r.run("send-keys", `{"keys":["C-d"]}`)
	r.screen(`{}`, "cat ended")
	r.Eventually("the next command starts", func() bool {
		return strings.HasPrefix(r.run("run_shell", `{"command":"sleep 100","wait":false}`), "command dispatched")
	})
	r.foreground("sleep")
	r.run("send-keys", `{"keys":["C-c"]}`)
	r.Eventually("the prompt is back", func() bool {
		return strings.HasSuffix(r.run("run_shell", `{"command":"echo free; touch x"}`), "exit code 0")
	})
}

// B-68 to B-74.
func TestRealCaptures(t *testing.T) {
	r := newReal(t)
	r.run("run_shell", `{"command":"seq 1 300; printf 'a   \\n'; printf '\\033[31mred\\033[0m\\n'; printf '%0300d\\n' 7; touch x; echo en''d"}`)
	r.screen(`{}`, "end")
	if got := r.run("capture-pane", `{}`); strings.Contains(got, "\n100\n") {
		t.Error("without start the history is there")
	}
	all := r.run("capture-pane", `{"start":"-"}`)
	if !strings.Contains(all, "\n1\n2\n3\n") || !strings.Contains(all, strings.Repeat("0", 299)+"7") || !strings.Contains(all, "\na\n") || strings.Contains(all, "\x1b[") {
		t.Errorf("%q", all)
	}
	if got := r.run("capture-pane", `{"start":"-","join_wrapped_lines":false}`); strings.Contains(got, strings.Repeat("0", 299)+"7") {
		t.Error("B-70: lines are joined")
	}
	if got := r.run("capture-pane", `{"start":"-","preserve_trailing_spaces":true}`); !strings.Contains(got, "\na   ") {
		t.Error("B-71: no trailing spaces")
	}
	if got := r.run("capture-pane", `{"include_escape_sequences":true}`); !strings.Contains(got, "\x1b[31mred") {
		t.Errorf("B-72: %q", got)
	}
	if got := r.run("capture-pane", `{"include_escape_sequences":true,"escape_non_printable":true}`); !strings.Contains(got, `\033[31mred`) {
		t.Errorf("B-73: %q", got)
	}
	if got := r.run("capture-pane", `{"include_alternate_screen":true}`); !strings.Contains(got, "[notice: ") {
		t.Errorf("B-77: %q", got)
	}
	got := r.run("capture-pane", `{"start":"0","end":"0"}`)
	if strings.Count(got, "\n") != 1 {
		t.Errorf("B-69: %q", got)
	}
}

// B-90, B-94, B-96.
func TestRealManagedPanes(t *testing.T) {
	r := newReal(t)
	if got := r.run("tmux-create-session", `{"session":"Ops Prod!"}`); !strings.HasPrefix(got, "created tmux session countersign-ops-ops-prod") {
		t.Fatal(got)
	}
	r.run("tmux-create-pane", `{"session":"ops-prod","pane":"worker"}`)
	if got := r.run("run_shell", `{"command":"echo here; touch x","session":"ops-prod","pane":"worker"}`); got != "here\nexit code 0" {
		t.Error(got)
	}
	if got := r.screen(`{"session":"ops-prod","pane":"worker"}`, "here"); strings.Contains(got, "notice") {
		t.Error(got)
	}
	if got := r.run("capture-pane", `{"pane":"ghost"}`); !strings.HasPrefix(got, "[notice: there is no pane ghost") {
		t.Error(got)
	}
	if got := r.run("tmux-kill-pane", `{"session":"ops-prod","pane":"worker"}`); !strings.HasPrefix(got, "killed") {
		t.Error(got)
	}
	if got := r.run("tmux-kill-session", `{"session":"ops-prod"}`); !strings.HasPrefix(got, "killed") {
		t.Error(got)
	}
}
