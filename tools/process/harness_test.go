package process_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/store"
	"countersign/store/mem"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/process"
	"countersign/tools/toolstest"
)

// patience bounds every wait.
const patience = 30 * time.Second

// machine is the local target with files of its own, another shell as "sh", and
// connections that get lost.
type machine struct {
	*local.Target
	temp, path string
	noProc     bool

	mu     sync.Mutex
	id     string
	starts int
	// fail, if not nil, says how a start goes wrong; nil results start it.
	fail func(s backend.Spec) error
	// lose makes starts succeed and their end unknown, with no word of output.
	lose bool
}

func (m *machine) ID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

func (m *machine) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *machine) Probe(ctx context.Context) (backend.Caps, error) {
	c, err := m.Target.Probe(ctx)
	c.TempDir = m.temp
	c.Procfs = c.Procfs && !m.noProc
	return c, err
}

func (m *machine) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.starts++
	fail, lose := m.fail, m.lose
	m.mu.Unlock()
	if fail != nil {
		if err := fail(s); err != nil {
			return nil, err
		}
	}
	if m.path != "" {
		for i, kv := range s.Env {
			if rest, ok := strings.CutPrefix(kv, "PATH="); ok {
				s.Env[i] = "PATH=" + m.path + ":" + rest
			}
		}
	}
	if lose {
		s.Stdout = nil
	}
	p, err := warranttest.Start(ctx, m.Target, s)
	if err == nil && lose {
		return losing{p}, nil
	}
	return p, err
}

type losing struct{ backend.Process }

func (l losing) Wait() (backend.Result, error) {
	_, _ = l.Process.Wait()
	return backend.Result{}, backend.ErrLost
}

// bot is what the tests drive: the tools over a store and a target.
type bot struct {
	t    testing.TB
	cfg  process.Config
	m    *machine // nil on other targets
	reg  *tools.Registry
	mu   sync.Mutex
	skew time.Duration // of its clock
	n    int
}

// newBot returns a bot on this machine.
func newBot(t testing.TB, change ...func(*process.Config)) *bot {
	t.Helper()
	m := &machine{Target: local.New(local.Options{}), temp: t.TempDir(), id: "local"}
	b := newBotOn(t, m, change...)
	b.m = m
	return b
}

func newBotOn(t testing.TB, target backend.Target, change ...func(*process.Config)) *bot {
	t.Helper()
	db := mem.Open()
	b := &bot{t: t}
	b.cfg = process.Config{Target: target, User: "tester", Dir: "/", DB: db, Now: b.now, Grace: 600 * time.Millisecond}
	for _, f := range change {
		f(&b.cfg)
	}
	b.restart()
	t.Cleanup(func() { b.end(db) })
	return b
}

// end ends what a test left running.
func (b *bot) end(db store.DB) {
	ctx := context.Background()
	if b.m != nil {
		b.m.set(func() { b.m.fail, b.m.lose = nil, false })
	}
	rows, err := process.Rows(ctx, db)
	if err != nil {
		b.t.Error(err)
	}
	const text = `for f in /proc/[0-9]*/environ; do
  m=$(tr '\000' '\n' <"$f" 2>/dev/null | grep ^COUNTERSIGN_PROCESS=) || continue
  for own in "$@"; do [ "$m" = "COUNTERSIGN_PROCESS=$own" ] && p=${f%/environ} && kill -KILL "${p#/proc/}"; done
done`
	var args []string
	for _, r := range rows {
		args = append(args, r.Mark)
	}
	p, err := warranttest.Start(ctx, b.cfg.Target, backend.Spec{Argv: append([]string{"sh", "-c", text, "sh"}, args...), Dir: "/"})
	if err == nil {
		_, err = p.Wait()
	}
	if err != nil {
		b.t.Error(err)
	}
	if len(rows) > 0 { // files outside of the directories of tests
		p, err := warranttest.Start(ctx, b.cfg.Target, backend.Spec{Argv: append([]string{"sh", "-c", `b=$1; cd "$b" && shift && rm -rf -- "$@"; cd / && rmdir "$b"`, "sh", rows[0].Base}, args...), Dir: "/"})
		if err == nil {
			_, _ = p.Wait()
		}
	}
	_ = db.Close()
}

func (b *bot) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.skew)
}

// later moves the bot's clock.
func (b *bot) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skew += d
}

// restart makes new tools over the same store, as a bot that was started again does.
func (b *bot) restart() {
	b.t.Helper()
	var err error
	if b.reg, err = tools.NewRegistry(b.now, process.New(b.cfg)...); err != nil {
		b.t.Fatal(err)
	}
}

// plan plans a call of a thread.
func (b *bot) plan(thread, name string, args any) (tools.Plan, error) {
	b.t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.n++
	id := "call_" + strconv.Itoa(b.n)
	b.mu.Unlock()
	return b.reg.Plan(b.t.Context(), tools.Call{ID: id, Thread: thread, By: "test:u", Name: name, Args: raw})
}

// call plans and runs one; it must plan.
func (b *bot) call(name string, args any) toolstest.Outcome {
	b.t.Helper()
	return b.callIn("test:1", name, args)
}

func (b *bot) callIn(thread, name string, args any) toolstest.Outcome {
	b.t.Helper()
	p, err := b.plan(thread, name, args)
	if err != nil {
		b.t.Fatalf("Plan %s %v: %v", name, args, err)
	}
	return toolstest.RunPlan(b.t.Context(), b.t, b.reg, p)
}

type dict = map[string]any

// value is a result as the model gets it.
func value(t testing.TB, o toolstest.Outcome) dict {
	t.Helper()
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	raw, err := json.Marshal(o.Result.Value)
	if err != nil {
		t.Fatal(err)
	}
	var v dict
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// start starts a command and returns the id of the process.
func (b *bot) start(command string) string {
	b.t.Helper()
	o := b.call("run_bash_background", dict{"command": command})
	v := value(b.t, o)
	if v["state"] != "running" || o.Result.Unknown {
		b.t.Fatalf("not started: %v", v)
	}
	id, _ := v["process_id"].(string)
	return id
}

// status is the status of a process.
func (b *bot) status(id string) dict {
	b.t.Helper()
	return value(b.t, b.call("get_background_status", dict{"process_id": id}))
}

// until waits for a status.
func (b *bot) until(id, state string) dict {
	b.t.Helper()
	var v dict
	defer func() {
		if b.t.Failed() {
			b.t.Logf("the last status: %v", v)
		}
	}()
	b.eventually(id+" is "+state, func() bool {
		v = b.status(id)
		return v["state"] == state
	})
	return v
}

func (b *bot) output(id string, args dict) dict {
	b.t.Helper()
	all := dict{"process_id": id}
	maps.Copy(all, args)
	return value(b.t, b.call("get_background_output", all))
}

// says waits until an output holds a text, and returns it.
func (b *bot) says(id, text string) string {
	b.t.Helper()
	var out string
	b.eventually(id+" says "+strconv.Quote(text), func() bool {
		out, _ = b.output(id, nil)["output"].(string)
		return strings.Contains(out, text)
	})
	return out
}

func (b *bot) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("not within %v: %s", patience, what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// row is what the store knows of a process.
func (b *bot) row(id string) process.Row {
	b.t.Helper()
	all, err := process.Rows(b.t.Context(), b.cfg.DB)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range all {
		if r.ID == id {
			return r
		}
	}
	b.t.Fatalf("no row of %s", id)
	return process.Row{}
}

// alive reports whether a process of this machine runs.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// shells are programs that may be /bin/sh somewhere, each in a directory where it is
// called sh.
func shells(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{"dash", "bash", "busybox"} {
		p, err := exec.LookPath(name)
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is missing: apt-get install dash bash busybox-static", name)
			}
			t.Logf("%s is left out: apt-get install dash bash busybox-static", name)
			continue
		}
		dir := t.TempDir()
		if err := os.Symlink(p, filepath.Join(dir, "sh")); err != nil {
			t.Fatal(err)
		}
		if name == "busybox" { // with its own tools, too
			for _, applet := range []string{"cat", "date", "grep", "head", "mkdir", "mv", "rm", "setsid", "sleep", "stat", "tail", "tr", "wc", "chmod"} {
				if err := os.Symlink(p, filepath.Join(dir, applet)); err != nil {
					t.Fatal(err)
				}
			}
		}
		out[name] = dir
	}
	return out
}
