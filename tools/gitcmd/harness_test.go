package gitcmd_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
	"countersign/test/needstest"
	"countersign/tools"
	"countersign/tools/gitcmd"
	"countersign/tools/toolstest"
)

// machine is the local target with what was started there, and things that go wrong.
type machine struct {
	*local.Target
	mu    sync.Mutex
	specs []backend.Spec
	// before, if not nil, is called before each start and may change it.
	before func(*backend.Spec) error
	lose   string // the subcommand whose outcome nobody learns
}

func (m *machine) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := s.Permitted(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.specs = append(m.specs, s)
	before, lose := m.before, m.lose
	m.mu.Unlock()
	if before != nil {
		if err := before(&s); err != nil {
			return nil, err
		}
	}
	p, err := warranttest.Start(ctx, m.Target, s)
	if err == nil && lose != "" && len(s.Argv) > 1 && s.Argv[1] == lose {
		return losing{p}, nil
	}
	return p, err
}

type losing struct{ backend.Process }

func (l losing) Wait() (backend.Result, error) {
	_, _ = l.Process.Wait()
	return backend.Result{}, backend.ErrLost
}

// argvs are what was started, without looks.
func (m *machine) argvs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, s := range m.specs {
		out = append(out, strings.Join(s.Argv, " "))
	}
	return out
}

// bench is one repository with the tools over it.
type bench struct {
	t    *testing.T
	dir  string // of everything
	repo string
	m    *machine
	reg  *tools.Registry
	all  map[string]tools.Tool
}

func sh(t *testing.T, dir, text string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-ec", text)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", text, err, out)
	}
	return string(out)
}

// newBench makes a repository with two commits on main, and a bare remote that has the
// first of them.
// TestMain gives git a home of its own.
func TestMain(m *testing.M) {
	os.Exit(needstest.Tidy(6, func() int {
		home, err := os.MkdirTemp("", "countersign-git-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(home)
		const person = "[user]\n\tname = Test\n\temail = test@example.com\n[init]\n\tdefaultBranch = main\n"
		if err := errors.Join(os.Setenv("HOME", home), os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(person), 0o600)); err != nil {
			panic(err)
		}
		return m.Run()
	}))
}

func newBench(t *testing.T, change ...func(*gitcmd.Config)) *bench {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no git; install it")
		}
		t.Skip("there is no git; install it")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	sh(t, dir, `git init -q --bare remote.git
git init -q repo
cd repo
printf 'one\n' > a.txt
git add a.txt && git commit -qm first
git remote add origin `+dir+`/remote.git
git push -q origin main
printf 'two\n' > b.txt
git add b.txt && git commit -qm second`)
	b := &bench{t: t, dir: dir, repo: dir + "/repo"}
	b.m = &machine{Target: local.New(local.Options{Dir: b.repo})}
	c := gitcmd.Config{Target: b.m, User: "tester"}
	for _, f := range change {
		f(&c)
	}
	all := gitcmd.New(c)
	if b.reg, err = tools.NewRegistry(time.Now, all...); err != nil {
		t.Fatal(err)
	}
	b.all = map[string]tools.Tool{}
	for _, x := range all {
		b.all[x.Spec().Name] = x
	}
	return b
}

func (b *bench) sh(text string) string { b.t.Helper(); return sh(b.t, b.repo, text) }

func (b *bench) rev(name string) string {
	b.t.Helper()
	return strings.TrimSpace(b.sh("git rev-parse " + name))
}

// plan plans by the registry, and says the level that the tool itself gives.
func (b *bench) plan(name, args string) (tools.Plan, error) {
	b.t.Helper()
	p, err := b.reg.Plan(b.t.Context(), call(name, args))
	return p, err
}

func (b *bench) must(name, args string) tools.Plan {
	b.t.Helper()
	p, err := b.plan(name, args)
	if err != nil {
		b.t.Fatalf("%s %s: %v", name, args, err)
	}
	return p
}

func call(name, args string) tools.Call {
	return tools.Call{ID: "call_1", Thread: "test:1", By: "test:u", Name: name, Args: []byte(args)}
}

// level is what the tool says of its own call.
func (b *bench) level(name, args string) risk.Level {
	b.t.Helper()
	canonical := b.must(name, args).Action.Args
	p, err := b.all[name].Plan(b.t.Context(), call(name, string(canonical)))
	if err != nil {
		b.t.Fatal(err)
	}
	return p.Level
}

type answer struct {
	ExitCode  *int     `json:"exit_code"`
	Output    string   `json:"output"`
	Conflicts []string `json:"conflicts"`
	Notice    string   `json:"notice"`
}

func (b *bench) run(name, args string) (answer, toolstest.Outcome) {
	b.t.Helper()
	return b.runPlan(b.must(name, args))
}

func (b *bench) runPlan(p tools.Plan) (answer, toolstest.Outcome) {
	b.t.Helper()
	out := toolstest.RunPlan(b.t.Context(), b.t, b.reg, p)
	var env struct{ Result answer }
	if out.Err == nil {
		if err := json.Unmarshal([]byte(out.Text), &env); err != nil {
			b.t.Fatal(err)
		}
	}
	return env.Result, out
}

func code(a answer) int {
	if a.ExitCode == nil {
		return -1
	}
	return *a.ExitCode
}

// face is the text of the card.
func face(a approvals.Action) string {
	c := card.New(approvals.Record{State: approvals.Pending, Action: a}, "")
	return fmt.Sprint(c.Title, c.Code, "\n", c.Preview, "\n", c.Details, c.Warn)
}

// state is a number for everything in the repository and its remote: names, content,
// times.
func (b *bench) state() int {
	h := fnv.New32a()
	err := filepath.WalkDir(b.dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(h, p, i.Mode(), i.ModTime().UnixNano())
		if i.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%x\n", sha256.Sum256(data))
		}
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return int(h.Sum32())
}
