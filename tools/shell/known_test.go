package shell_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/toolstest"
)

// farLocked is a target whose names can be looked at in one question, and that says it has a lock.
type farLocked struct {
	surveyed
	// slow, if not nil, is received from before names are looked at.
	slow chan struct{}
	fail error
	// printed, if not nil, is called when a command has printed something.
	printed func()
	// ended, if not nil, is called when a command has ended.
	ended func()
	// code, if not 0, is how each command ends.
	code int
}

type farFiles struct {
	surveyedFiles
	f *farLocked
}

func (f *farLocked) FS() backend.FileSystem {
	return farFiles{surveyedFiles{f.Target.FS(), &f.surveyed}, f}
}

func (f farFiles) StatAll(ctx context.Context, names []string) ([]backend.FileInfo, []error, error) {
	if f.f.slow != nil {
		<-f.f.slow
	}
	if f.f.fail != nil {
		return nil, nil, f.f.fail
	}
	return f.surveyedFiles.StatAll(ctx, names)
}

func (f *farLocked) Probe(ctx context.Context) (backend.Caps, error) {
	c, err := f.Target.Probe(ctx)
	c.Lock.By = "bot"
	return c, err
}

func (f *farLocked) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	s.Lock = nil
	if f.printed != nil {
		s.Stdout = printing{s.Stdout, f.printed}
	}
	p, err := warranttest.Start(ctx, f.Target, s)
	if err == nil {
		p = ending{p, f}
	}
	return p, err
}

type ending struct {
	backend.Process
	f *farLocked
}

func (e ending) Wait() (backend.Result, error) {
	if e.f.ended != nil {
		defer e.f.ended()
	}
	r, err := e.Process.Wait()
	if e.f.code != 0 {
		r.Code = e.f.code
	}
	return r, err
}

// printing tells when something was written.
type printing struct {
	io.Writer
	done func()
}

func (p printing) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	p.done()
	return n, err
}

// far returns a target with a file, a link to it and a link to a secret, whose directory was
// looked at before.
func far(t *testing.T) (*farLocked, *tools.Registry, string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"notes": "/etc/shadow", "link": "plain"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := &farLocked{surveyed: surveyed{Target: local.New(local.Options{Dir: dir})}}
	reg := registry(t, shell.New(shell.Config{Target: f, Dir: dir}))
	if _, err := plan(t, reg, call("touch x")); err != nil {
		t.Fatal(err)
	}
	f.asked = nil
	return f, reg, dir
}

func TestAReadOfAKnownDirectoryIsPlannedWithoutAsking(t *testing.T) {
	f, reg, dir := far(t)
	for command, want := range map[string]string{"uptime": "/", "cat plain": dir, "cat link": dir} {
		p, err := plan(t, reg, call(command))
		if err != nil || p.Action.Shell == "" || p.Action.Dir != want || len(f.asked) > 0 {
			t.Fatalf("%s: %v %+v, asked %q", command, err, p.Action, f.asked)
		}
	}
	p, err := plan(t, reg, call("rm plain"))
	if err != nil || p.Action.Shell != "" || len(f.asked) == 0 {
		t.Errorf("a change was planned unseen: %v %+v", err, p.Action)
	}
}

// Where its names lead is looked at while it runs. What a link to a secret would show is seen by
// nobody, and the call comes again as one that asks.
func TestAReadThroughALinkToASecretShowsNothing(t *testing.T) {
	f, reg, _ := far(t)
	for command, want := range map[string]string{"cat plain": "hello\n", "cat link": "hello\n", "cat plain notes": "", "tail -f plain notes": ""} {
		p, err := plan(t, reg, call(command))
		if err != nil || p.Action.Shell == "" {
			t.Fatalf("%s: %v %+v", command, err, p.Action)
		}
		out := toolstest.RunPlan(t.Context(), t, reg, p)
		var shown strings.Builder
		for _, e := range out.Events {
			if e.Kind == tools.Stdout || e.Kind == tools.Stderr {
				shown.WriteString(e.Text)
			}
		}
		if shown.String() != want || (out.Result.Tried == "") != (want != "") || (want == "") == strings.Contains(out.Text, "hello") {
			t.Errorf("%s: shown %q, %+v", command, shown.String(), out.Result)
		}
	}
	again, err := reg.Plan(t.Context(), tools.Call{ID: "1", Thread: thread, Name: "run_shell", Args: []byte(call("cat notes")), Tried: "x"})
	if err != nil || again.Action.Shell != "" {
		t.Errorf("it doesn't ask: %v %+v", err, again.Action)
	}
	f.fail = backend.ErrLost
	p, err := plan(t, reg, call("cat plain"))
	if err != nil {
		t.Fatal(err)
	}
	if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err == nil || strings.Contains(out.Text, "hello") || len(out.Events) > 1 && strings.Contains(out.Events[1].Text, "hello") {
		t.Errorf("nobody knows where it leads, and it is shown: %+v", out)
	}
}

func TestOutputWaitsUntilItMayBeShown(t *testing.T) {
	f, reg, dir := far(t)
	big := strings.Repeat("0123456789abcde\n", 3<<16) // more than is held back
	if err := os.WriteFile(filepath.Join(dir, "plain"), []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := plan(t, reg, call("cat plain"))
	if err != nil {
		t.Fatal(err)
	}
	f.slow = make(chan struct{})
	var shown, early atomic.Int64
	f.printed = sync.OnceFunc(func() {
		early.Store(shown.Load())
		close(f.slow)
	})
	out := toolstest.RunPlan(t.Context(), t, reg, p, func(e tools.Event) {
		if e.Kind == tools.Stdout {
			shown.Add(int64(len(e.Text)))
		}
	})
	if out.Err != nil || out.Result.Failed || shown.Load() != int64(len(big)) || early.Load() > 0 {
		t.Errorf("%d bytes, %d early: %+v", shown.Load(), early.Load(), out.Result)
	}
}

func TestAReadRunsInADirectoryThatWasReplaced(t *testing.T) {
	_, reg, dir := far(t)
	p, err := plan(t, reg, call("ls"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := parse(t, toolstest.RunPlan(t.Context(), t, reg, p)); r.Stdout != "new\n" {
		t.Errorf("%+v", r)
	}
}

// Whoever looks at a name while the command runs is too late for what waits in a pipe.
func TestAPipeOfAKnownDirectoryIsNotDrained(t *testing.T) {
	f, reg, dir := far(t)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe", filepath.Join(dir, "way")); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(filepath.Join(dir, "pipe"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	for _, command := range []string{"cat pipe", "head -n 1 way", "head -n 1 < " + dir + "/pipe", "cat plain pipe", "ls plain; cat pipe; ls pipe"} {
		if _, err := pipe.WriteString("what waits\n"); err != nil {
			t.Fatal(err)
		}
		f.slow = make(chan struct{})
		looks := sync.OnceFunc(func() { close(f.slow) })
		f.printed, f.ended = looks, looks
		p, err := plan(t, reg, call(command))
		if err != nil || !p.Action.Locked {
			t.Fatalf("%s: %+v, %v", command, p.Action, err)
		}
		if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Result.Tried == "" {
			t.Errorf("%s: %+v", command, out)
		}
		if err := pipe.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		waits := make([]byte, len("what waits\n"))
		if _, err := io.ReadFull(pipe, waits); err != nil {
			t.Fatalf("%s drained it: %v", command, err)
		}
	}
	f.slow, f.printed, f.ended = nil, nil, nil
	for command, want := range map[string]string{"cat plain": "hello\n", "cat plain /dev/null": "hello\n", "echo x | cat /dev/stdin": "x\n", "[ -p pipe ] && cat link": "hello\n"} {
		p, err := plan(t, reg, call(command))
		if err != nil {
			t.Fatal(err)
		}
		if r := parse(t, toolstest.RunPlan(t.Context(), t, reg, p)); r.Stdout != want {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// The kernel's signal says nothing to whoever reads it.
func TestAReadSaysThatItsTimeIsSpent(t *testing.T) {
	f, reg, dir := far(t)
	f.code = 128 + int(syscall.SIGXCPU)
	const want = "used its 2 minutes of processor time"
	p, err := plan(t, reg, call("cat plain"))
	if err != nil {
		t.Fatal(err)
	}
	if r := parse(t, toolstest.RunPlan(t.Context(), t, reg, p)); !strings.Contains(r.Notice, want) {
		t.Errorf("%+v", r)
	}
	if p, err = plan(t, reg, call("touch plain")); err != nil {
		t.Fatal(err)
	}
	if r := parse(t, toolstest.RunPlan(t.Context(), t, reg, p)); strings.Contains(r.Notice, want) {
		t.Errorf("a change: %+v", r)
	}
	reg = registry(t, shell.NewBash(shell.Config{Target: f, Dir: dir}))
	if p, err = planOf(t, reg, "bash", "cat plain"); err != nil {
		t.Fatal(err)
	}
	if out := toolstest.RunPlan(t.Context(), t, reg, p); !strings.Contains(out.Text, want) {
		t.Errorf("%+v", out)
	}
}

// A directory that is reached through a link may be another one tomorrow.
func TestADirectoryBehindALinkIsLookedAt(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	current := filepath.Join(dir, "current")
	if err := os.Symlink("one", current); err != nil {
		t.Fatal(err)
	}
	f := &farLocked{surveyed: surveyed{Target: local.New(local.Options{Dir: dir})}}
	reg := registry(t, shell.New(shell.Config{Target: f, Dir: current}))
	for _, want := range []string{"one\n", "two\n"} {
		p, err := plan(t, reg, call("ls"))
		if err != nil {
			t.Fatal(err)
		}
		if r := parse(t, toolstest.RunPlan(t.Context(), t, reg, p)); r.Stdout != want {
			t.Errorf("%q, want %q", r.Stdout, want)
		}
		if err := os.Remove(current); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("two", current); err != nil {
			t.Fatal(err)
		}
	}
}

// An approved call is looked at when it is planned for the last time. That look counts if it runs
// right away; one that was planned for people to read is looked at once more.
func TestAnApprovedCallIsLookedAtOnce(t *testing.T) {
	f, reg, _ := far(t)
	for approved, questions := range map[bool]int{true: 1, false: 2} {
		f.asked = nil
		p, err := reg.Plan(t.Context(), tools.Call{ID: "1", Thread: thread, Name: "run_shell", Args: []byte(call("touch plain")), Approved: approved})
		if err != nil || p.Action.Kind != approvals.KindShell {
			t.Fatal(err)
		}
		if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err != nil || len(f.asked) != questions {
			t.Errorf("approved %v: asked %q (%v)", approved, f.asked, out.Err)
		}
	}
}
