package shell_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/toolstest"
)

// withLock is a fake target that has bash and a lock.
type withLock struct{ withBash }

func (w *withLock) Probe(ctx context.Context) (backend.Caps, error) {
	c, err := w.withBash.Probe(ctx)
	c.Lock.By, c.Home = "bot", "/home/tester"
	return c, err
}

func planOf(t *testing.T, reg *tools.Registry, tool, command string) (tools.Plan, error) {
	t.Helper()
	args := call(command)
	if tool == "bash" {
		args = fmt.Sprintf(`{"command":%q}`, command)
	}
	return reg.Plan(t.Context(), tools.Call{ID: "call_1", Thread: thread, Name: tool, Args: []byte(args)})
}

// loop is proven under a lock only.
const loop = "for i in 1 2; do echo $i; done"

func TestAReadRunsUnderTheLockOfItsTarget(t *testing.T) {
	target := &withLock{}
	c := shell.Config{Target: target, Dir: "/"}
	for tool, reg := range map[string]*tools.Registry{"run_shell": registry(t, shell.New(c)), "bash": registry(t, shell.NewBash(c))} {
		for _, command := range []string{"ls -l", loop} {
			p, err := planOf(t, reg, tool, command)
			if err != nil || !p.Action.Locked || p.Action.Shell != "bash" {
				t.Fatalf("%s %q: %+v %v", tool, command, p.Action, err)
			}
			toolstest.RunPlan(t.Context(), t, reg, p)
		}
		p, err := planOf(t, reg, tool, "touch x")
		if err != nil || p.Action.Locked {
			t.Fatalf("%s: a change is locked (%v)", tool, err)
		}
		toolstest.RunPlan(t.Context(), t, reg, p)
		specs := target.Specs()
		if n := len(specs); n < 3 || specs[n-3].Lock == nil || specs[n-2].Lock == nil || specs[n-1].Lock != nil {
			t.Errorf("%s: %+v", tool, specs)
		}
	}
}

func TestALockLeavesOpenWhatTheProgramsNeed(t *testing.T) {
	target := &withLock{}
	classify := func(tx risk.Text) risk.Verdict {
		v := risk.Judge(tx)
		v.Needs = []risk.Need{risk.NeedAdmin, risk.NeedDevices, risk.NeedNet, risk.NeedNetlink, risk.NeedProcesses, risk.NeedUnix + "/run/a.sock", "new"}
		return v
	}
	reg := registry(t, shell.New(shell.Config{Target: target, Dir: "/", Classify: classify}))
	toolstest.Run(t.Context(), t, reg, "run_shell", call("ls"))
	l := target.Specs()[0].Lock
	if l == nil || !l.Admin || !l.Devices || !l.Net || !l.Netlink || !l.Processes || len(l.Sockets) != 1 || l.Sockets[0] != "/run/a.sock" {
		t.Errorf("%+v", l)
	}
}

func TestReadsAsConfigured(t *testing.T) {
	for _, tc := range []struct {
		rule        string
		set         approvals.Reads
		target      backend.Target
		plain, loop bool // read
	}{
		{"a lock", "", &withLock{}, true, true},
		{"no lock", "", &withBash{}, true, false},
		{"enforced without a lock", approvals.ReadsEnforced, &withBash{}, false, false},
		{"plain with a lock", approvals.ReadsPlain, &withLock{}, true, false},
		{"ask", approvals.ReadsAsk, &withLock{}, false, false},
	} {
		reg := registry(t, shell.New(shell.Config{
			Target: tc.target, Dir: "/", Reads: func(lock bool) approvals.Reads { return approvals.Effective(tc.set, "", lock) },
		}))
		for command, want := range map[string]bool{"ls -l": tc.plain, loop: tc.loop} {
			p, err := plan(t, reg, call(command))
			if err != nil || (p.Action.Shell != "") != want {
				t.Errorf("%s: %q: %+v (%v)", tc.rule, command, p.Action, err)
			}
		}
	}
}

// A read that tries to write is no read: its result says so, and the call is planned as
// a change when it comes again.
func TestAReadThatHitsItsLockSaysSo(t *testing.T) {
	target := &withLock{}
	reg := registry(t, shell.New(shell.Config{Target: target, Dir: "/"}))
	for _, tc := range []struct {
		rule  string
		hits  []backend.Hit
		code  int
		tried string
	}{
		{"nothing", nil, 1, ""},
		{"a file", []backend.Hit{{Kind: backend.HitWrite, Name: "/etc/x"}}, 1, "write to /etc/x"},
		{"a file, and it ended well", []backend.Hit{{Kind: backend.HitWrite, Name: "/etc/x"}}, 0, "write to /etc/x"},
		{"a habit", []backend.Hit{{Kind: backend.HitChange, Name: "/home/tester/.config/procps"}}, 0, ""},
		{"a habit that it cannot do without", []backend.Hit{{Kind: backend.HitChange, Name: "/home/tester/.config/procps"}}, 2, "change /home/tester/.config/procps"},
		{"a habit, and it fails for another reason", []backend.Hit{{Kind: backend.HitChange, Name: "/home/tester/.kube/cache/x"}}, 1, ""},
		{"a habit, and it says that it was refused", []backend.Hit{{Kind: backend.HitChange, Name: "/home/tester/.kube/cache/y"}}, 1, "change /home/tester/.kube/cache/y"},
		{"a file that only looks like one", []backend.Hit{{Kind: backend.HitWrite, Name: "/home/tester/.bashrc"}}, 0, "write to /home/tester/.bashrc"},
		{"a connection", []backend.Hit{{Kind: backend.HitConnect}}, 0, "open a network connection"},
	} {
		target.Exec = func(_ context.Context, s backend.Spec) (backend.Result, error) {
			switch {
			case strings.Contains(tc.rule, "another reason"):
				_, _ = io.WriteString(s.Stderr, `Error from server (NotFound): pods "x" not found`)
			case strings.Contains(tc.rule, "it was refused"):
				_, _ = io.WriteString(s.Stderr, "mkdir y: Permission denied")
			}
			return backend.Result{Code: tc.code, Hits: tc.hits}, nil
		}
		out := toolstest.Run(t.Context(), t, reg, "run_shell", call("ls"))
		if out.Err != nil || out.Result.Tried != tc.tried {
			t.Errorf("%s: %q (%v)", tc.rule, out.Result.Tried, out.Err)
		}
	}
	target.Exec = nil
	p, err := reg.Plan(t.Context(), tools.Call{ID: "1", Thread: thread, Name: "run_shell", Args: []byte(call("ls")), Tried: "write to /etc/x"})
	if err != nil || p.Action.Locked || p.Action.Shell != "" {
		t.Errorf("%+v %v", p.Action, err)
	}
	if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Result.Tried != "" {
		t.Error(out.Result.Tried)
	}
	if specs := target.Specs(); specs[len(specs)-1].Lock != nil || !strings.Contains(specs[len(specs)-1].Shell, "ls") {
		t.Errorf("%+v", specs[len(specs)-1])
	}
}

// A read that names no files of its directory runs in "/", and with the variables that its proof wants.
func TestAReadRunsWhereItsProofHolds(t *testing.T) {
	for _, tc := range []struct{ command, dir, env string }{
		{"firewall-cmd --state", "/", ""},
		{"ls -l", "/srv/repo", ""},
		{"uptime", "/", ""},
		{"psql -c 'select 1'", "/", "PGOPTIONS=-c search_path=pg_catalog -c default_transaction_read_only=on"},
	} {
		target := &withLock{}
		target.Put("/srv/repo/.keep", "")
		c := shell.Config{Target: target, Dir: "/srv/repo"}
		for tool, reg := range map[string]*tools.Registry{"run_shell": registry(t, shell.New(c)), "bash": registry(t, shell.NewBash(c))} {
			p, err := planOf(t, reg, tool, tc.command)
			if err != nil || p.Action.Shell == "" || p.Action.Dir != tc.dir || !risk.Judge(p.Action.Text()).Proves(tc.command, true) {
				t.Errorf("%s: %s: %+v (%v)", tool, tc.command, p.Action, err)
				continue
			}
			if out := toolstest.RunPlan(t.Context(), t, reg, p); out.Err != nil {
				t.Errorf("%s: %s: %v", tool, tc.command, out.Err)
			}
			specs := target.Specs()
			s := specs[len(specs)-1]
			extra := slices.DeleteFunc(slices.Clone(s.Env), func(v string) bool { return !strings.HasPrefix(v, "PG") })
			if s.Dir != tc.dir || strings.Join(extra, "") != tc.env {
				t.Errorf("%s: %s ran in %s with %q", tool, tc.command, s.Dir, extra)
			}
		}
		reg := registry(t, shell.New(c))
		for _, command := range []string{"ls; firewall-cmd --state", "cd /srv/repo && firewall-cmd --state", "PGOPTIONS=x psql -c 'select 1'"} {
			if p, err := planOf(t, reg, "run_shell", command); err != nil || p.Action.Shell != "" {
				t.Errorf("%s is planned as a read: %+v (%v)", command, p.Action, err)
			}
		}
	}
}

// Reading a pipe takes away what was queued in it.
func TestANamedPipeIsNoRead(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "queue"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("queue", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	plainly := local.New(local.Options{Dir: dir})
	for name, target := range map[string]backend.Target{"local": plainly, "surveyed": &surveyed{Target: plainly}} {
		reg := registry(t, shell.NewBash(shell.Config{Target: target, Dir: dir}))
		for command, read := range map[string]bool{
			"cat queue": false, "cat link": false, "head -1 < queue": false, "cat " + dir + "/queue": false, "grep -h x /etc/hosts queue": false, "cat /dev/null": true, "echo x | cat /dev/stdin": true, "cat /etc/hosts": true,
			"cd " + dir + " && cat queue": false,
		} {
			p, err := planOf(t, reg, "bash", command)
			if err != nil || (p.Action.Shell != "") != read {
				t.Errorf("%s: %q: shell %q (%v)", name, command, p.Action.Shell, err)
			}
		}
	}
}

// The proof knows a secret by its name; where a name leads is looked at.
func TestALinkToASecretIsNoRead(t *testing.T) {
	dir := t.TempDir()
	for name, to := range map[string]string{"notes": "/etc/shadow", "plain": "/etc/hostname", "root": "/root"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	target := local.New(local.Options{Dir: dir})
	reg := registry(t, shell.NewBash(shell.Config{Target: target, Dir: dir}))
	for command, read := range map[string]bool{
		"cat plain": true, "cat notes": false, "cat ./notes": false, "cat " + dir + "/notes": false, "head -3 plain notes": false,
		"cat root/.ssh/id_rsa": false, "cat missing": true, "ls -l": true,
	} {
		p, err := planOf(t, reg, "bash", command)
		if err != nil || (p.Action.Shell != "") != read {
			t.Errorf("%q: shell %q (%v)", command, p.Action.Shell, err)
		}
	}
}

// What waits in a named pipe is for somebody else: reading it asks, looking at it doesn't.
func TestANamedPipeIsNotReadUnasked(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	reg := registry(t, shell.New(shell.Config{Target: local.New(local.Options{Dir: dir}), Dir: dir}))
	for command, read := range map[string]bool{
		"cat file": true, "cat pipe": false, "head -n 1 " + dir + "/pipe": false, "cat link": false, "ls -l pipe": true, "stat pipe": true,
		"cat /dev/null": true, "grep x file pipe": false, "[ -p pipe ] && head -1 < pipe": false, "cat pipe; ls -l pipe": false, "head -1 < pipe; ls pipe": false,
		"find ./pipe -exec wc -l {} +": false, "find pipe -newer file": true, "for f in pipe; do cat $f; ls $f; done": false, "ls pipe; stat pipe": true,
	} {
		if p, err := planOf(t, reg, "run_shell", command); err != nil || p.Action.Locked != read {
			t.Errorf("%s: a read: %v, want %v; %v", command, p.Action.Locked, read, err)
		}
	}
}

// Who is given the socket of a daemon starts without what a directory or an account has prepared for it.
func TestAClientOfADaemonSeesTheSystemOnly(t *testing.T) {
	l := shell.Lock([]risk.Need{risk.NeedUnix + "/run/docker.sock"})
	if !l.System || shell.Lock([]risk.Need{risk.NeedNet}).System {
		t.Fatalf("%+v", l)
	}
	for _, state := range []struct {
		backend.LockState
		lock backend.Lock
		want bool
	}{
		{backend.LockState{By: "bot", Root: true, Landlock: true}, *l, true},
		{backend.LockState{By: "bot", Root: true}, *l, false},
		{backend.LockState{By: "bot"}, *l, true},
		{backend.LockState{By: "bot", Root: true, Landlock: true}, backend.Lock{System: true, Processes: true}, false},
		{backend.LockState{By: "bot", Root: true}, backend.Lock{Processes: true}, true},
	} {
		if got := state.Holds(state.lock); got != state.want {
			t.Errorf("%+v: %v", state, got)
		}
	}
}
