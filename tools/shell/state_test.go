package shell_test

import (
	"strings"
	"testing"

	"countersign/approvals"
	"countersign/targets/tmux"
	"countersign/tools"
	"countersign/tools/toolstest"
)

func TestTheStateOfTheTerminalIsPartOfWhatIsApproved(t *testing.T) {
	w := managed(t)
	w.run(call("touch x"))
	for rule, tc := range map[string]struct {
		says              tmux.Shell
		command           string
		fact, differently string
	}{
		"a shell that names no state": {tmux.Shell{}, "rm x", "as commands and people left it", ""},
		"as at its start":             {tmux.Shell{State: tmux.InitialState, Paths: true}, "rm x", "as at its start", ""},
		"in a state of its own":       {tmux.Shell{State: "7.2", Paths: true, Names: []string{"ls"}}, "rm ls", "as commands and people left it, state 7.2", ""},
		"a function for a word":       {tmux.Shell{State: "7.2", Paths: true, Names: []string{"ls", "rm"}}, "sudo true && { rm x; rm y; }", "state 7.2", `"rm" is a function or alias of this terminal.`},
		"more functions than it says": {tmux.Shell{State: "7.2", Paths: true, Many: true}, "rm x", "state 7.2", "This terminal has functions or aliases that may replace commands."},
		"another PATH":                {tmux.Shell{State: "7.2"}, "rm x", "state 7.2", "This terminal finds programs or libraries in other places than at its start."},
	} {
		w.shared().Says(tc.says)
		p, err := plan(t, w.reg, call(tc.command))
		if err != nil {
			t.Fatal(err)
		}
		if fact := p.Action.Env[approvals.ShellFact]; !strings.HasSuffix(fact, tc.fact) || !strings.Contains(fact, w.shared().ID()) {
			t.Errorf("%s: %s", rule, fact)
		}
		if got := p.Action.Env[approvals.TerminalFact]; got != tc.differently {
			t.Errorf("%s: %s", rule, got)
		}
		// Between the last look and the key that runs it, the shell itself compares.
		n := len(w.shared().Commands())
		w.shared().Says(tmux.Shell{State: "7.9"})
		out := toolstest.RunPlan(t.Context(), t, w.reg, p)
		if tc.says.State == "" {
			continue
		}
		if !strings.Contains(out.Text, "was not run: "+approvals.ShellChanged) || len(w.shared().Commands()) != n {
			t.Errorf("%s: %s", rule, out.Text)
		}
	}
}

func TestALaterStepOfAPlanRunsInWhatEarlierStepsLeft(t *testing.T) {
	w := managed(t)
	w.run(call("touch x"))
	w.shared().Says(tmux.Shell{State: "7.2", Paths: true})
	first, err := plan(t, w.reg, call("export A=1"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.reg.Plan(t.Context(), tools.Call{ID: "call_2", Thread: thread, Name: "run_shell", Args: []byte(call("rm x")), Before: []approvals.Action{first.Action}})
	if err != nil || second.Action.Env[approvals.ShellFact] != approvals.LeftBySteps {
		t.Fatal(second.Action.Env, err)
	}
	w.shared().Says(tmux.Shell{State: "7.3", Paths: true})
	if out := toolstest.RunPlan(t.Context(), t, w.reg, second); strings.Contains(out.Text, "not run") {
		t.Error(out.Text)
	}
}

func TestARealTerminalThatSomebodyChangedRunsNothingThatWasApprovedBefore(t *testing.T) {
	r, reg := overTmux(t)
	types := func(line, shows string) {
		t.Helper()
		pane := r.Tmux("list-panes", "-a", "-F", "#{pane_id}")
		r.Tmux("send-keys", "-t", pane, "-l", line+"; echo typ''ed "+shows)
		r.Tmux("send-keys", "-t", pane, "Enter")
		r.Eventually("it was typed", func() bool {
			_, after, ok := strings.Cut(r.Tmux("capture-pane", "-p", "-t", pane), "typed "+shows)
			return ok && strings.TrimSpace(after) != ""
		})
	}
	runReal(t, reg, call("touch start"))
	approved, err := plan(t, reg, call("touch kept"))
	if err != nil || !strings.HasSuffix(approved.Action.Env[approvals.ShellFact], "as at its start") {
		t.Fatal(approved.Action.Env, err)
	}
	types("ls", "one")
	types("cd . && false", "two")
	if again, err := plan(t, reg, call("touch kept")); err != nil || approvals.Drift(approved.Action, again.Action) != nil {
		t.Error(approvals.Drift(approved.Action, again.Action), err)
	}
	if out := toolstest.RunPlan(t.Context(), t, reg, approved); !strings.Contains(out.Text, `"exit_code":0`) {
		t.Error(out.Text)
	}
	if approved, err = plan(t, reg, call("touch never")); err != nil {
		t.Fatal(err)
	}
	types("touch() { echo evil; }", "three")
	if out := toolstest.RunPlan(t.Context(), t, reg, approved); !strings.Contains(out.Text, "was not run: "+approvals.ShellChanged) {
		t.Error(out.Text)
	}
	if again, err := plan(t, reg, call("touch never")); err != nil || again.Action.Env[approvals.TerminalFact] != `"touch" is a function or alias of this terminal.` ||
		strings.Join(approvals.Drift(approved.Action, again.Action), ", ") != "the terminal's environment" {
		t.Error(again.Action.Env, err)
	}
}
