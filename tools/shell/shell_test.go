package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/store/mem"
	"countersign/targets/backend"
	"countersign/targets/local"
	"countersign/targets/session"
	"countersign/targets/session/sessiontest"
	"countersign/targets/tmux"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/toolstest"
)

const thread = "test:1"

// world is run_shell over a tmux server in memory.
type world struct {
	t    *testing.T
	srv  *sessiontest.Server
	book *session.Book
	tool tools.Tool
	reg  *tools.Registry

	target *toolstest.Target
}

func managed(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, srv: &sessiontest.Server{}}
	w.book = session.New(session.Config{Server: w.srv, DB: mem.Open(), Target: "local", Agent: "ops", Instance: "test", Dir: "/work"})
	w.target = &toolstest.Target{Name: "local"}
	w.target.Put("/work/.keep", "")
	w.tool = shell.New(shell.Config{Target: w.target, Sessions: w.book, User: "tester", Dir: "/work"})
	w.reg = registry(t, w.tool)
	return w
}

func registry(t *testing.T, ts ...tools.Tool) *tools.Registry {
	t.Helper()
	r, err := tools.NewRegistry(time.Now, ts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// call makes arguments of a command and further JSON members.
func call(command string, more ...string) string {
	c, _ := json.Marshal(command)
	s := `{"command":` + string(c) + `,"risk":"low","mutation":false,"privesc":false,"why":"test"`
	for _, m := range more {
		s += "," + m
	}
	return s + "}"
}

func plan(t *testing.T, reg *tools.Registry, args string) (tools.Plan, error) {
	t.Helper()
	return reg.Plan(t.Context(), tools.Call{ID: "call_1", Thread: thread, Name: "run_shell", Args: []byte(args)})
}

func (w *world) run(args string) toolstest.Outcome {
	w.t.Helper()
	return toolstest.Run(w.t.Context(), w.t, w.reg, "run_shell", args)
}

// shared returns the thread's default shared pane.
func (w *world) shared() *sessiontest.Pane {
	w.t.Helper()
	ref, err := w.book.Find(w.t.Context(), thread, "", "")
	if err != nil {
		w.t.Fatal(err)
	}
	p := w.srv.Pane(ref.Session, ref.Pane)
	if p == nil {
		w.t.Fatal("there is no shared pane")
	}
	return p
}

type result struct {
	ExitCode              *int `json:"exit_code"`
	Stdout, Stderr        string
	State, Screen, Notice string
}

// parse reads the result out of the envelope.
func parse(t *testing.T, out toolstest.Outcome) result {
	t.Helper()
	var e struct {
		Result result
	}
	if err := json.Unmarshal([]byte(out.Text), &e); err != nil {
		t.Fatalf("%s: %v", out.Text, err)
	}
	return e.Result
}

func TestToolKeepsItsPromises(t *testing.T) {
	w := managed(t)
	for _, s := range []string{"ops", "web"} {
		if _, err := w.book.CreateSession(t.Context(), thread, s); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{"a", "b"} {
			if _, err := w.book.CreatePane(t.Context(), thread, s, p); err != nil {
				t.Fatal(err)
			}
		}
	}
	toolstest.Check(t, w.tool, func() int { return len(w.srv.Log()) },
		toolstest.Case{Name: "managed", Args: call("ls", `"wait":"30s"`, `"session":"ops"`, `"pane":"a"`),
			Other: map[string]string{"wait": `"31s"`, "session": `"web"`, "pane": `"b"`}})
	target := &toolstest.Target{}
	plain := registry(t, shell.New(shell.Config{Target: target, Dir: "/"}))
	if _, err := plan(t, plain, call("ls")); err != nil || target.Effects() != 0 {
		t.Errorf("plain: %v, %d effects", err, target.Effects())
	}
}

// B-13, B-24.
func TestSchema(t *testing.T) {
	var s struct {
		Properties map[string]struct {
			Type    any
			Default any
		}
		Required []string
	}
	if err := json.Unmarshal(managed(t).tool.Spec().Schema, &s); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Properties["wait"].Type); got != "[boolean string integer]" || s.Properties["wait"].Default != true {
		t.Errorf("wait is %s, default %v", got, s.Properties["wait"].Default)
	}
	if want := []string{"command", "risk", "mutation", "privesc", "why"}; !slices.Equal(s.Required, want) {
		t.Errorf("required %v", s.Required)
	}
}

// B-30.
func TestWaitValues(t *testing.T) {
	w := managed(t)
	for arg, ok := range map[string]bool{
		`true`: true, `false`: true, `"30s"`: true, `"10m"`: true, `"1h"`: true, `500`: true, `"500"`: true, `"true"`: true, `"1h30m"`: true,
		`"banana"`: false, `""`: false, `0`: false, `-1`: false, `"-1s"`: false, `"25h"`: false, `90000`: false, `"99999999999"`: false,
		`1.5`: false, `null`: false, `[]`: false,
	} {
		_, err := plan(t, w.reg, call("ls", `"wait":`+arg))
		var te *tools.Error
		if ok != (err == nil) || err != nil && (!errors.As(err, &te) || te.Kind != tools.InvalidArguments) {
			t.Errorf("wait %s: %v", arg, err)
		}
	}
}

func TestPlanIsCompleteAndWithoutTheClaim(t *testing.T) {
	w := managed(t)
	p, err := plan(t, w.reg, call("df -h > x", `"wait":5`))
	if err != nil {
		t.Fatal(err)
	}
	a := p.Action
	if a.Tool != "run_shell" || a.Kind != approvals.KindShell || a.Target != "local" || a.User != "tester" || a.Dir != "/work" ||
		string(a.Bytes) != "df -h > x" || a.Pane != "shared" || !strings.HasPrefix(a.Session, "countersign-ops-") ||
		string(a.Args) != `{"command":"df -h > x","wait":5}` {
		t.Errorf("%+v", a)
	}
	if want := (approvals.Claim{Risk: "low", Why: "test", Given: true}); p.Claim != want {
		t.Errorf("claim %+v", p.Claim)
	}
}

func TestPlanFollowsTheDirectoryOfThePane(t *testing.T) {
	w := managed(t)
	w.run(call("touch x"))
	before, err := plan(t, w.reg, call("rm x"))
	if err != nil {
		t.Fatal(err)
	}
	w.shared().Set(func(i *tmux.Info) { i.Dir = "/etc" })
	after, err := plan(t, w.reg, call("rm x"))
	if err != nil || after.Action.Dir != "/etc" || after.Action.Digest() == before.Action.Digest() {
		t.Errorf("dir %q, %v", after.Action.Dir, err)
	}
}

// B-03, B-33.
func TestEventsAndResult(t *testing.T) {
	w := managed(t)
	w.srv.OnRun = func(_ context.Context, _ *sessiontest.Pane, c tmux.Command) (tmux.Outcome, error) {
		c.Output(tmux.Out, []byte("o\xc3"))
		c.Output(tmux.Err, []byte("e"))
		c.Output(tmux.Out, []byte("\xa9"))
		return tmux.Outcome{
			Kind: tmux.Exited, Code: 3, Split: true, Dir: "/work", Duration: 1234 * time.Millisecond,
			Stdout: tmux.Captured{Head: []byte("oé"), Total: 3}, Stderr: tmux.Captured{Head: []byte("e"), Total: 1},
		}, nil
	}
	out := w.run(call("exit_3"))
	if !strings.HasSuffix(out.Text, `"result":{"exit_code":3,"stdout":"oé","stderr":"e"}}`) {
		t.Error(out.Text)
	}
	if !out.Result.Failed || out.Result.Unknown || !strings.HasSuffix(out.Result.Text, "exit code 3") {
		t.Errorf("%+v", out.Result)
	}
	var got strings.Builder
	for _, e := range out.Events {
		fmt.Fprintf(&got, "%s=%s;", e.Kind, e.Text)
	}
	if want := "started=exit_3;stdout=o;stderr=e;stdout=é;info=ended after 1.2s in /work;completed=exit code 3;"; got.String() != want {
		t.Errorf("events %s", got.String())
	}
	if got := w.shared().Commands(); !slices.Equal(got, []string{"exit_3"}) {
		t.Errorf("commands %q", got)
	}
}

// B-26, B-31.
func TestDispatch(t *testing.T) {
	w := managed(t)
	out := w.run(call("sleep 30", `"wait":false`))
	if !strings.HasSuffix(out.Text, `"result":"command dispatched to tmux pane %1"}`) || out.Result.Failed {
		t.Error(out.Text)
	}
	if got := w.shared().Commands(); !slices.Equal(got, []string{"sleep 30"}) {
		t.Errorf("commands %q", got)
	}
}

// B-27.
func TestWaitFalseNeedsTmux(t *testing.T) {
	reg := registry(t, shell.New(shell.Config{Target: &toolstest.Target{}}))
	for _, more := range []string{`"wait":false`, `"pane":"x"`, `"session":"x"`} {
		if _, err := plan(t, reg, call("ls", more)); err == nil || !strings.Contains(err.Error(), "tmux") {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// B-28.
func TestTimeoutLeavesTheCommandInItsPane(t *testing.T) {
	w := managed(t)
	w.srv.OnRun = func(ctx context.Context, _ *sessiontest.Pane, _ tmux.Command) (tmux.Outcome, error) {
		<-ctx.Done()
		return tmux.Outcome{Kind: tmux.TimedOut, Stdout: tmux.Captured{Head: []byte("half"), Total: 4}}, nil
	}
	out := w.run(call("make all", `"wait":"10ms"`))
	want := "Tool error: command timed out after 10ms (timeout) and is still running in pane %1; look at it with capture-pane, or stop it with send-keys and C-c\nstdout so far:\nhalf"
	if out.Text != want {
		t.Errorf("got  %s\nwant %s", out.Text, want)
	}
	if w.shared().Interrupts() != 0 {
		t.Error("a timeout stopped the command")
	}
}

// B-34.
func TestOutputIsCutByCharacters(t *testing.T) {
	w := managed(t)
	big := []byte(strings.Repeat("é", 10_000))
	w.srv.OnRun = func(context.Context, *sessiontest.Pane, tmux.Command) (tmux.Outcome, error) {
		return tmux.Outcome{
			Kind: tmux.Exited, Split: true,
			Stdout: tmux.Captured{Head: big, Total: int64(len(big))},
			Stderr: tmux.Captured{Head: []byte(strings.Repeat("€", 11_000)), Tail: []byte("end"), Total: 1 << 30},
		}, nil
	}
	r := parse(t, w.run(call("yes")))
	half := func(s string) string { return strings.Repeat(s, 2000) }
	if r.Stdout != half("é")+"\n[... 12000 bytes left out ...]\n"+half("é") {
		t.Errorf("%q", r.Stdout)
	}
	if left := 1<<30 - 6000 - 3; r.Stderr != half("€")+fmt.Sprintf("\n[... %d bytes left out ...]\nend", left) {
		t.Errorf("%q", r.Stderr)
	}
}

// B-46, B-47, B-48, B-50.
func TestGuardHoldsInManagedPanesAndNotElsewhere(t *testing.T) {
	w := managed(t)
	plain := registry(t, shell.New(shell.Config{Target: &toolstest.Target{}}))
	for _, c := range []string{"exit 0", "logout", "exec sleep 1", "set -e", "set -o errexit", "setopt errexit"} {
		if _, err := plan(t, w.reg, call(c)); err == nil {
			t.Errorf("%q is accepted in a managed pane", c)
		}
		if _, err := plan(t, plain, call(c)); err != nil {
			t.Errorf("B-50: %q on a plain target: %v", c, err)
		}
	}
	if _, err := plan(t, w.reg, call("bash -lc 'set -e; false'")); err != nil {
		t.Errorf("B-49: %v", err)
	}
}

// B-39, B-40.
func TestSelectorsMustExist(t *testing.T) {
	w := managed(t)
	for _, more := range []string{`"session":"ghost"`, `"pane":"ghost"`} {
		if _, err := plan(t, w.reg, call("ls", more)); err == nil || !strings.Contains(err.Error(), "ghost") {
			t.Errorf("%s: %v", more, err)
		}
	}
	if _, err := w.book.CreatePane(t.Context(), thread, "", "worker"); err != nil {
		t.Fatal(err)
	}
	w.run(call("touch x", `"pane":"worker"`))
	ref, err := w.book.Find(t.Context(), thread, "", "worker")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.srv.Pane(ref.Session, "worker").Commands(); len(got) != 1 || len(w.shared().Commands()) != 0 {
		t.Errorf("commands %q", got)
	}
}

func TestInteractiveStatesReturnAtOnce(t *testing.T) {
	for kind, word := range map[tmux.OutcomeKind]string{
		tmux.WaitingPassword: "password", tmux.WaitingInput: "waits for input", tmux.Fullscreen: "full-screen",
	} {
		w := managed(t)
		w.srv.OnRun = func(context.Context, *sessiontest.Pane, tmux.Command) (tmux.Outcome, error) {
			return tmux.Outcome{Kind: kind, Screen: "Continue? [y/N]"}, nil
		}
		out := w.run(call("apt upgrade"))
		r := parse(t, out)
		if r.ExitCode != nil || r.State != string(kind) || r.Screen != "Continue? [y/N]" || !strings.Contains(r.Notice, word) || out.Result.Unknown {
			t.Errorf("%s: %+v", kind, r)
		}
	}
}

func TestLostIsUnknown(t *testing.T) {
	w := managed(t)
	for name, run := range map[string]func() (tmux.Outcome, error){
		"outcome": func() (tmux.Outcome, error) { return tmux.Outcome{Kind: tmux.Lost}, nil },
		"error":   func() (tmux.Outcome, error) { return tmux.Outcome{}, fmt.Errorf("x: %w", backend.ErrLost) },
	} {
		w.srv.OnRun = func(context.Context, *sessiontest.Pane, tmux.Command) (tmux.Outcome, error) { return run() }
		out := w.run(call("touch x"))
		if out.Err != nil || !out.Result.Unknown || parse(t, out).State != "lost" {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestABusyPaneSaysSo(t *testing.T) {
	w := managed(t)
	w.srv.OnRun = func(context.Context, *sessiontest.Pane, tmux.Command) (tmux.Outcome, error) {
		return tmux.Outcome{}, &tmux.StateError{State: tmux.StateHuman, Sentence: "somebody is typing; wait"}
	}
	out := w.run(call("touch x"))
	if out.Text != "Tool error: the command was not run: the pane %1 is human: somebody is typing; wait" || !errors.Is(out.Err, tmux.ErrBusy) {
		t.Error(out.Text)
	}
}

// cancelled runs a command that goes on until its context ends with cause.
func (w *world) cancelled(cause error) (toolstest.Outcome, *sessiontest.Pane) {
	w.t.Helper()
	started := make(chan struct{})
	w.srv.OnRun = func(ctx context.Context, p *sessiontest.Pane, _ tmux.Command) (tmux.Outcome, error) {
		p.Set(func(i *tmux.Info) { i.State = tmux.StateRunning })
		close(started)
		<-ctx.Done()
		return tmux.Outcome{Kind: tmux.Cancelled}, nil
	}
	ctx, cancel := context.WithCancelCause(w.t.Context())
	defer cancel(nil)
	go func() {
		<-started
		cancel(cause)
	}()
	return toolstest.Run(ctx, w.t, w.reg, "run_shell", call("make all")), w.shared()
}

func TestStopInterruptsTheCommandAndReportsIt(t *testing.T) {
	w := managed(t)
	out, p := w.cancelled(errors.New("stopped by a person"))
	r := parse(t, out)
	if p.Interrupts() != 1 || !out.Result.Failed || out.Result.Unknown || r.State != "stopped" || !strings.Contains(r.Notice, "Stopped before its end") {
		t.Errorf("%d interrupts, %+v", p.Interrupts(), r)
	}
}

func TestOnceLeavesNothingRunning(t *testing.T) {
	w := managed(t)
	w.tool = shell.New(shell.Config{Target: &toolstest.Target{Name: "local"}, Sessions: w.book, User: "tester", Dir: "/work", Once: true, StopWithin: 50 * time.Millisecond})
	w.reg = registry(t, w.tool)
	if _, err := plan(t, w.reg, call("touch x", `"wait":false`)); err == nil || !strings.Contains(err.Error(), "the terminal closes when this command exits") {
		t.Error(err)
	}
	for kind, want := range map[tmux.OutcomeKind]string{tmux.TimedOut: "allow more time", tmux.WaitingPassword: "asked for a password", tmux.WaitingInput: "waited for input", tmux.Fullscreen: "opened a full-screen program"} {
		for _, obeys := range []bool{true, false} {
			w.srv.OnRun = func(_ context.Context, p *sessiontest.Pane, _ tmux.Command) (tmux.Outcome, error) {
				p.Set(func(i *tmux.Info) { i.State = tmux.StateRunning })
				p.Ignores = !obeys
				return tmux.Outcome{Kind: kind}, nil
			}
			out := w.run(call("touch x"))
			ended := "was ended with Ctrl-C"
			if !obeys {
				ended = "its terminal closes when this command exits"
			}
			if !strings.Contains(out.Text, want) || !strings.Contains(out.Text, ended) || strings.Contains(out.Text, "still running") || strings.Contains(out.Text, "send-keys") {
				t.Errorf("%s, obeys %v: %s", kind, obeys, out.Text)
			}
			w.srv.Vanish(w.shared().Session())
		}
	}
	out, p := w.cancelled(fmt.Errorf("going: %w", tools.ErrShutdown))
	if p.Interrupts() != 1 || strings.Contains(out.Text, "left running") {
		t.Errorf("%d interrupts, %s", p.Interrupts(), out.Text)
	}
}

func TestShutdownLeavesTheCommandRunning(t *testing.T) {
	w := managed(t)
	out, p := w.cancelled(fmt.Errorf("going: %w", tools.ErrShutdown))
	if p.Interrupts() != 0 || !out.Result.Unknown || !strings.Contains(out.Text, "left running") {
		t.Errorf("%d interrupts, %s", p.Interrupts(), out.Text)
	}
}

func TestANoticeAboutAPaneThatWasMadeAgainReachesTheModel(t *testing.T) {
	w := managed(t)
	w.run(call("touch x"))
	w.srv.Vanish(w.shared().Session())
	if r := parse(t, w.run(call("touch x"))); !strings.Contains(r.Notice, "made again") {
		t.Errorf("%+v", r)
	}
}

func TestOutputAfterTheCallBelongsToNobody(t *testing.T) {
	w := managed(t)
	var late func(tmux.Stream, []byte)
	seen := 0
	w.srv.OnRun = func(_ context.Context, _ *sessiontest.Pane, c tmux.Command) (tmux.Outcome, error) {
		late = c.Output
		return tmux.Outcome{Kind: tmux.TimedOut}, nil
	}
	p, err := plan(t, w.reg, call("x", `"wait":1`))
	if err != nil {
		t.Fatal(err)
	}
	toolstest.RunPlan(t.Context(), t, w.reg, p, func(tools.Event) { seen++ })
	before := seen
	late(tmux.Out, []byte("late"))
	if seen != before {
		t.Error("an event after the end")
	}
}

func plainLocal(t *testing.T) *tools.Registry {
	t.Helper()
	dir := t.TempDir()
	return registry(t, shell.New(shell.Config{Target: local.New(local.Options{Dir: dir}), Dir: dir}))
}

func TestPlainTargetRunsRealCommands(t *testing.T) {
	reg := plainLocal(t)
	for name, c := range map[string]struct{ command, want string }{
		"B-23 sh -c":      {"echo ${0##*/}", `{"exit_code":0,"stdout":"sh\n","stderr":""}`},
		"B-33 split":      {"echo o; echo e >&2; (exit 3)", `{"exit_code":3,"stdout":"o\n","stderr":"e\n"}`},
		"B-50 set -e":     {"set -e; echo x; false; echo y", `{"exit_code":1,"stdout":"x\n","stderr":""}`},
		"B-25 waits":      {"sleep 0.2; echo late", `{"exit_code":0,"stdout":"late\n","stderr":""}`},
		"a signal":        {"kill -TERM $$", `{"exit_code":143,"stdout":"","stderr":"","notice":"The command was ended by the signal`},
		"byte for byte":   {"printf '%s' 'a\"b\\c'", `{"exit_code":0,"stdout":"a\"b\\c","stderr":""}`},
		"invalid visible": {`printf 'a\377b'`, `{"exit_code":0,"stdout":"a` + "\ufffd" + `b","stderr":""}`},
	} {
		t.Run(name, func(t *testing.T) {
			out := toolstest.Run(t.Context(), t, reg, "run_shell", call(c.command))
			if !strings.Contains(out.Text, `"result":`+c.want) {
				t.Errorf("got  %s\nwant %s", out.Text, c.want)
			}
			kinds := out.Kinds()
			if kinds[0] != tools.Started || kinds[len(kinds)-1] != tools.Completed || kinds[len(kinds)-2] != tools.Info {
				t.Errorf("events %v", kinds)
			}
		})
	}
}

func TestPlainTargetCutsStreams(t *testing.T) {
	out := toolstest.Run(t.Context(), t, plainLocal(t), "run_shell",
		call(`i=0; while [ $i -lt 10000 ]; do printf é; printf ü >&2; i=$((i+1)); done`))
	r := parse(t, out)
	ends := func(s string) string {
		return strings.Repeat(s, 2000) + "\n[... 12000 bytes left out ...]\n" + strings.Repeat(s, 2000)
	}
	if r.Stdout != ends("é") || r.Stderr != ends("ü") {
		t.Errorf("%d and %d characters", len([]rune(r.Stdout)), len([]rune(r.Stderr)))
	}
}

// B-29.
func TestPlainTimeoutKills(t *testing.T) {
	t.Parallel()
	out := toolstest.Run(t.Context(), t, plainLocal(t), "run_shell", call("echo a; sleep 100", `"wait":1`))
	if !strings.HasPrefix(out.Text, "Tool error: command timed out after 1s (timeout) and was killed") || !strings.HasSuffix(out.Text, "stdout so far:\na\n") {
		t.Error(out.Text)
	}
}

func TestPlainStopKillsAndReports(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reg := plainLocal(t)
	p, err := plan(t, reg, call("echo ready; sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	out := toolstest.RunPlan(ctx, t, reg, p, func(e tools.Event) {
		if e.Kind == tools.Stdout {
			cancel()
		}
	})
	r := parse(t, out)
	if !out.Result.Failed || r.State != "stopped" || r.Stdout != "ready\n" || !strings.Contains(r.Notice, "killed") {
		t.Errorf("%s", out.Text)
	}
}

func TestPlainTargetLost(t *testing.T) {
	target := &toolstest.Target{Exec: func(context.Context, backend.Spec) (backend.Result, error) {
		return backend.Result{}, backend.ErrLost
	}}
	out := toolstest.Run(t.Context(), t, registry(t, shell.New(shell.Config{Target: target})), "run_shell", call("ls"))
	if !out.Result.Unknown || parse(t, out).State != "lost" {
		t.Error(out.Text)
	}
	if s := target.Specs(); len(s) != 1 || s[0].Shell != "ls" {
		t.Errorf("%+v", s)
	}
	again, err := shell.New(shell.Config{Target: target}).(tools.Resumer).Resume(t.Context(), tools.Call{Args: json.RawMessage(call("ls"))}, func(tools.Event) {})
	if err != nil || !again.Unknown || !strings.Contains(again.Why, "keeps no record") {
		t.Errorf("after a restart: %+v, %v", again, err)
	}
}
