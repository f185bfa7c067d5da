package workflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/terminal"
)

func shippedBook(t testing.TB, name string) *Workflow {
	t.Helper()
	l, err := NewLibrary(Embedded())
	if err != nil {
		t.Fatal(err)
	}
	w, err := l.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// player is an engine without people: it answers from a table.
type player struct {
	t       *testing.T
	w       *Workflow
	inputs  map[string]string
	answers map[string]string // step to answer
	run     func(s Step, command string) Past
	past    []Past
	calls   []Step
}

func (p *player) play() Step {
	p.t.Helper()
	for range 200 {
		s := Next(p.w, p.inputs, p.past)
		switch s.Kind {
		case KindCall:
			p.calls = append(p.calls, s)
			var args struct {
				Command string `json:"command"`
			}
			if err := json.Unmarshal(s.Args, &args); err != nil {
				p.t.Fatal(err)
			}
			r := p.run(s, args.Command)
			r.Kind, r.Step = Ended, s.ID
			p.past = append(p.past, begun(s.ID, s.Try), r)
		case KindModel:
			p.past = append(p.past, begun(s.ID, s.Try), Past{Kind: Ended, Step: s.ID, OK: true, Output: "It is the log."})
		case KindWait:
			p.past = append(p.past, Past{Kind: Waiting, Step: s.ID}, Past{Kind: Waited, Step: s.ID})
		case KindAsk:
			if s.Problem != "" {
				p.t.Fatal(s.Problem)
			}
			p.past = append(p.past, begun(s.ID, 1), Past{Kind: Answered, Step: s.ID, By: "Ada", Text: p.answers[s.ID]})
		default:
			return s
		}
	}
	p.t.Fatal("it does not end")
	return Step{}
}

// examples are inputs and answers for each way through a shipped runbook; each value is
// as awkward as its place allows.
var examples = []struct {
	name, way string
	raw       map[string]any
	answers   map[string]string
	gates     []string
}{
	{"disk-full", "nothing", map[string]any{"directory": "/"}, map[string]string{"pick": "none"}, nil},
	{"disk-full", "empty", map[string]any{"directory": "/srv/it's $(id) here", "larger_than_mib": 5}, map[string]string{"pick": "/srv/it's $(id) here/a b.log"}, []string{"empty"}},
	{"service-down", "leave", map[string]any{"process": "nginx", "restart": "systemctl restart nginx", "unit": "nginx.service", "log": "/var/log/nginx/error.log"}, map[string]string{"decide": "2"}, nil},
	{"service-down", "restart", map[string]any{"process": "python3 -m app", "restart": "cd '/srv/my app' && ./run.sh >/dev/null 2>&1 &", "log": "/srv/my app/it's.log"}, map[string]string{"decide": "restart it"}, []string{"restart"}},
	{"high-load", "nothing", nil, map[string]string{"pick": "none"}, nil},
	{"high-load", "leave", nil, map[string]string{"pick": "4242", "decide": "leave it"}, nil},
	{"high-load", "slow", nil, map[string]string{"pick": "4242", "decide": "slow it down"}, []string{"slow"}},
	{"high-load", "end", nil, map[string]string{"pick": "4242", "decide": "end it"}, []string{"term"}},
}

// What looks runs unasked, because it is proven; what changes is a gate, and there is at
// most one of those on any way. All arguments are what run_shell takes.
func TestShippedRunbooksLookFirstAndChangeOneThing(t *testing.T) {
	engine, err := risk.New(risk.Extension{})
	if err != nil {
		t.Fatal(err)
	}
	schema := compiled(t, shell.New(shell.Config{}).Spec())
	looked := map[string]bool{}
	for _, c := range examples {
		t.Run(c.name+" "+c.way, func(t *testing.T) {
			w := shippedBook(t, c.name)
			in, err := w.Inputs(c.raw)
			if err != nil {
				t.Fatal(err)
			}
			p := &player{t: t, w: w, inputs: in, answers: c.answers, run: func(s Step, command string) Past {
				looked[c.name+"/"+s.ID] = true
				if v := engine.Judge(risk.Text{Command: command, Locked: true, Shell: risk.Bash}); v.Proves(command, true) == s.Gate {
					t.Errorf("step %s (gate: %v) is proven to only read: %v\n%s\n%v", s.ID, s.Gate, !s.Gate, command, v.Reasons)
				}
				var args any
				if err := json.Unmarshal(s.Args, &args); err != nil {
					t.Fatal(err)
				}
				if err := schema.Validate(args); err != nil || s.Tool != "run_shell" {
					t.Errorf("%s %s: %v", s.Tool, s.Args, err)
				}
				return Past{OK: true, Output: "12 it's", ExitCode: new(0)}
			}}
			if end := p.play(); end.Kind != KindDone || end.Text == "" {
				t.Errorf("%s", brief(end))
			}
			var gates []string
			for _, s := range p.calls {
				if s.Gate {
					gates = append(gates, s.ID)
				}
			}
			if !slices.Equal(gates, c.gates) {
				t.Errorf("gates %v, not %v", gates, c.gates)
			}
			for _, planned := range Plan(w, in) {
				if i := slices.IndexFunc(p.calls, func(s Step) bool { return s.ID == planned.ID }); i >= 0 && string(p.calls[i].Args) != string(planned.Args) {
					t.Errorf("planned %s\nasked   %s", planned.Args, p.calls[i].Args)
				}
			}
		})
	}
	for _, s := range Embedded() {
		w := shippedBook(t, s.Name)
		for i := range w.steps {
			if w.steps[i].kind == KindCall && !looked[w.Name+"/"+w.steps[i].id] {
				t.Errorf("no example comes through %s/%s", w.Name, w.steps[i].id)
			}
		}
	}
}

func compiled(t *testing.T, spec tools.Spec) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(spec.Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tool:///x.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("tool:///x.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The labels are added for the tools that require them and for no other, under every
// name that a registry knows.
func TestLabelsFollowTheSchemas(t *testing.T) {
	all := append([]tools.Tool{shell.New(shell.Config{}), shell.NewBash(shell.Config{}), shell.NewCode(shell.Config{}, shell.DefaultInterpreters())},
		terminal.New(terminal.Config{})...)
	found := map[string]bool{}
	for _, tool := range all {
		spec := tool.Spec()
		var s struct{ Required []string }
		if err := json.Unmarshal(spec.Schema, &s); err != nil {
			t.Fatal(err)
		}
		for _, name := range append([]string{spec.Name}, spec.Aliases...) {
			for _, spelling := range []string{name, strings.ReplaceAll(name, "-", "_")} {
				need := slices.Contains(s.Required, "mutation")
				if claims(spelling) != need {
					t.Errorf("%s requires labels: %v", spelling, need)
				}
				found[spelling] = true
			}
		}
	}
	for name := range maps.Keys(claimed) {
		if !found[name] {
			t.Errorf("%s is no tool", name)
		}
	}
}

// slim is what a slim Debian container has of the programs that the runbooks name: those
// of coreutils, findutils, grep, mawk and bsdutils.
var slim = []string{"awk", "cat", "cut", "df", "du", "false", "find", "grep", "head", "ls", "nproc", "readlink", "renice", "sh", "sleep", "sort", "tail", "test", "tr", "true"}

// machines are two kinds of PATH: that of this machine, and one of slim.
func machines(t *testing.T) map[string]string {
	t.Helper()
	const full = "/usr/local/bin:/usr/bin:/bin"
	dir := t.TempDir()
	for _, name := range slim {
		path, err := exec.LookPath(name)
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal("this machine has no ", name)
			}
			t.Skip("this machine has no ", name, ": install it to play the runbooks")
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{"this machine": full, "a slim container": dir}
}

// inShell runs commands for real, in the plainest shell.
func inShell(t *testing.T, path string) func(Step, string) Past {
	t.Helper()
	dir := t.TempDir()
	return func(s Step, command string) Past {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Env, cmd.Dir = []string{"PATH=" + path, "LC_ALL=C"}, dir
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		for _, bad := range []string{"yntax error", "not found", "nvalid option", "unrecognized"} {
			if strings.Contains(errs.String(), bad) {
				t.Errorf("step %s: %s", s.ID, errs.String())
			}
		}
		text := out.String()
		if text == "" {
			text = errs.String()
		}
		return Past{OK: err == nil, Output: text, ExitCode: new(cmd.ProcessState.ExitCode())}
	}
}

func TestDiskFullForReal(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(dir, "it's a log")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(logs, "app.log.1")
	refill := func() {
		if err := os.WriteFile(file, make([]byte, 3<<20), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	refill()
	for name, target := range map[string]string{"link": file, "dirlink": logs} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(dir, "it's a log too")
	if err := os.WriteFile(outside, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := machines(t)
	w := shippedBook(t, "disk-full")
	for _, c := range []struct {
		rule, directory, pick string
		want                  Kind
	}{
		{"a file below the directory", logs, file, KindDone},
		{"a directory with a slash", logs + "/", file, KindDone},
		{"everything", "/", file, KindDone},
		{"a directory that is a link", filepath.Join(dir, "dirlink"), file, KindDone},
		{"a file beside it", logs, outside, KindFailed},
		{"a way out", logs, logs + "/../it's a log too", KindFailed},
		{"a link", dir, filepath.Join(dir, "link"), KindFailed},
		{"a directory", dir, logs, KindFailed},
		{"the directory itself", logs, logs, KindFailed},
		{"a file that is not there", logs, file + ".2", KindFailed},
		{"a device", "/dev", "/dev/null", KindFailed},
	} {
		refill()
		in, err := w.Inputs(map[string]any{"directory": c.directory, "larger_than_mib": 1})
		if err != nil {
			t.Fatal(err)
		}
		run := inShell(t, paths["a slim container"])
		if c.want == KindDone {
			run = inShell(t, paths["this machine"])
		}
		p := &player{t: t, w: w, inputs: in, answers: map[string]string{"pick": c.pick}, run: func(s Step, command string) Past {
			if c.directory == "/" && (s.ID == "directories" || s.ID == "files") {
				return Past{OK: true} // the whole machine takes too long
			}
			return run(s, command)
		}}
		end := p.play()
		if end.Kind != c.want || end.Kind == KindFailed && end.ID != "verify" {
			t.Errorf("%s: %s\n%s", c.rule, brief(end), Ticks(w, in, p.past))
		}
		info, err := os.Stat(file)
		if err != nil || (info.Size() == 0) != (c.want == KindDone) || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %v, %v", c.rule, info, err)
		}
		if b, err := os.ReadFile(outside); err != nil || string(b) != "precious" {
			t.Errorf("%s: the file outside is %q, %v", c.rule, b, err)
		}
		if c.want == KindDone && c.directory == logs {
			for _, o := range Outcomes(w, in, p.past) {
				if o.ID == "files" && (!strings.Contains(o.Output, "app.log.1") || !strings.Contains(o.Output, "3145728")) {
					t.Errorf("the large file was not found: %q", o.Output)
				}
				if o.Kind == KindCall && o.State != Passed {
					t.Errorf("step %s: %s: %s", o.ID, o.State, o.Why)
				}
			}
		}
	}
}

func TestServiceDownForReal(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no /proc here")
		}
		t.Skip("there is no /proc here: play this runbook on Linux")
	}
	w := shippedBook(t, "service-down")
	for name, path := range machines(t) {
		t.Run(name, func(t *testing.T) {
			mark := strconv.Itoa(700000+os.Getpid()) + "." + strconv.Itoa(len(name)) // a time to sleep that no other process has
			in, err := w.Inputs(map[string]any{"process": "sleep " + mark, "restart": "sleep " + mark + " >/dev/null 2>&1 & echo $!"})
			if err != nil {
				t.Fatal(err)
			}
			p := &player{t: t, w: w, inputs: in, answers: map[string]string{"decide": "restart it"}, run: inShell(t, path)}
			end := p.play()
			out := map[string]string{}
			for _, o := range Outcomes(w, in, p.past) {
				out[o.ID] = o.Output
			}
			pid, err := strconv.Atoi(strings.TrimSpace(out["restart"]))
			if err != nil {
				t.Fatalf("%s\n%s", brief(end), Ticks(w, in, p.past))
			}
			proc, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := proc.Kill(); err != nil {
				t.Errorf("it does not run: %v", err)
			}
			if out["processes"] != "" || end.Kind != KindDone || !strings.Contains(out["check"], out["restart"][:len(strconv.Itoa(pid))]) {
				t.Errorf("before %q, after %q\n%s\n%s", out["processes"], out["check"], brief(end), Ticks(w, in, p.past))
			}
		})
	}
}

func TestHighLoadForReal(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no /proc here")
		}
		t.Skip("there is no /proc here: play this runbook on Linux")
	}
	w := shippedBook(t, "high-load")
	paths := machines(t)
	for way, machine := range map[string]string{"slow it down": "a slim container", "end it": "this machine"} {
		victim := exec.CommandContext(t.Context(), "sleep", "600")
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = victim.Wait() // it is killed: that is its error
		}()
		pid := strconv.Itoa(victim.Process.Pid)
		if len(pid) < 2 {
			t.Skip("the process has too small a number")
		}
		p := &player{t: t, w: w, inputs: map[string]string{}, answers: map[string]string{"pick": pid, "decide": way}, run: inShell(t, paths[machine])}
		end := p.play()
		if end.Kind != KindDone {
			t.Errorf("%s: %s\n%s", way, brief(end), Ticks(w, nil, p.past))
		}
		if way == "slow it down" {
			if err := victim.Process.Kill(); err != nil {
				t.Errorf("it is gone: %v", err)
			}
		}
		<-done
		// The number alone is not the process: with another time of birth nothing happens.
		for i, q := range p.past {
			if q.Step == "born" && q.Kind == Ended {
				p.past = p.past[:i+1]
				p.past[i].Output = "1"
				break
			}
		}
		p.answers["pick"] = pid
		if end := p.play(); end.Kind != KindFailed || end.ID != "slow" && end.ID != "term" {
			t.Errorf("another process was touched: %s", brief(end))
		}
	}
}
