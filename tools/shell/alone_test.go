package shell_test

import (
	"os"
	"strings"
	"testing"

	"countersign/store/mem"
	"countersign/targets/session"
	"countersign/targets/session/sessiontest"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/toolstest"
)

// alone plans a call that nothing follows.
func alone(t *testing.T, reg *tools.Registry, thread, args string) tools.Plan {
	t.Helper()
	p, err := reg.Plan(t.Context(), tools.Call{Direct: true, Alone: true, ID: "call_1", Thread: thread, By: "test:u", Name: "run_shell", Args: []byte(args)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestASingleCommandMakesNoTerminal(t *testing.T) {
	w := managed(t)
	for _, command := range []string{"ls", "touch x; exit 3", "set -e; touch x"} {
		p := alone(t, w.reg, "test:alone", call(command))
		if out := toolstest.RunPlan(t.Context(), t, w.reg, p); p.Action.Pane != "" || out.Err != nil || strings.Contains(out.Text, "terminal") {
			t.Errorf("%s: pane %q, %s", command, p.Action.Pane, out.Text)
		}
	}
	if log := w.srv.Log(); len(log) > 0 || len(w.target.Specs()) != 3 {
		t.Errorf("%d processes, and %q", len(w.target.Specs()), log)
	}
	// One that is there is used, and one that is asked for is made.
	w.run(call("touch x"))
	if p := alone(t, w.reg, thread, call("touch x")); p.Action.Pane != "shared" {
		t.Errorf("%+v", p.Action)
	}
	if p := alone(t, w.reg, "test:alone", call("touch x", `"pane":"shared"`)); p.Action.Pane != "shared" {
		t.Errorf("%+v", p.Action)
	}
}

// TestNobodyIsAskedAboutATerminalThatCannotBeMade: people would approve what can't run.
func TestNobodyIsAskedAboutATerminalThatCannotBeMade(t *testing.T) {
	w := &world{t: t, srv: &sessiontest.Server{}}
	w.book = session.New(session.Config{Server: w.srv, DB: mem.Open(), Target: "local", Agent: "ops", Instance: "test", Dir: "/work", Limits: session.Limits{Target: 1}})
	w.reg = registry(t, shell.New(shell.Config{Target: &toolstest.Target{Name: "local"}, Sessions: w.book, Dir: "/work"}))
	if _, _, err := w.book.Ensure(t.Context(), "test:other", "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := plan(t, w.reg, call("touch x")); err == nil || !strings.Contains(err.Error(), "max_target_sessions") {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, w.reg, call("ls")); err != nil {
		t.Errorf("a read needs none: %v", err)
	}
}

func TestRealADirectoryThatIsGone(t *testing.T) {
	r, reg := overTmux(t)
	dir := r.Dir + "/deep/er"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	runReal(t, reg, call("cd deep/er; touch x"))
	if out := runReal(t, reg, call("pwd")); !strings.Contains(out.Text, `"stdout":"`+dir+`\n"`) {
		t.Fatal(out.Text)
	}
	if err := os.RemoveAll(r.Dir + "/deep"); err != nil {
		t.Fatal(err)
	}
	// What is known of it may be from before.
	if out := runReal(t, reg, call("pwd")); !strings.Contains(out.Text, "is gone") {
		t.Errorf("%s", out.Text)
	}
	for _, command := range []string{"pwd", "cd / && pwd"} {
		if out := runReal(t, reg, call(command)); !strings.Contains(out.Text, `"stdout":"/\n"`) || !strings.Contains(out.Text, "The directory "+dir+" is gone") {
			t.Errorf("%s: %s", command, out.Text)
		}
	}
	if out := runReal(t, reg, call("touch /dev/null")); !strings.Contains(out.Text, `"exit_code":0`) {
		t.Errorf("a change: %s", out.Text)
	}
	if p, err := plan(t, reg, call("cd /")); err != nil || p.Action.Pane != "shared" {
		t.Errorf("%+v %v", p.Action, err)
	}
	if out := runReal(t, reg, call("cd /")); !strings.Contains(out.Text, `"exit_code":0`) {
		t.Errorf("%s", out.Text)
	}
	if out := runReal(t, reg, call("pwd")); !strings.HasSuffix(out.Text, `"result":{"exit_code":0,"stdout":"/\n","stderr":""}}`) {
		t.Errorf("%s", out.Text)
	}
}
