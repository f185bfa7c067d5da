package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/shell"
	"countersign/tools/toolstest"
)

// TestBash plays rows N-13 to N-18 with real processes.
func TestBash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/here", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reg, err := tools.NewRegistry(time.Now, shell.NewBash(shell.Config{Target: local.New(local.Options{Dir: dir}), User: "tester", Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		rule, args string
		want, err  string
		failed     bool
	}{
		{"N-15 in the working directory", `{"command":"ls; pwd"}`, "here\n" + dir + "\n", "", false},
		{"N-16 the streams in the order written", `{"command":"echo a; echo b >&2; echo c"}`, "a\nb\nc\n", "", false},
		{"N-17 the exit code when it is not 0", `{"command":"echo a; exit 3"}`, "a\n[exit code: 3]", "", true},
		{"N-17 and alone when nothing was printed", `{"command":"exit 3"}`, "[exit code: 3]", "", true},
		{"N-17 not when it is 0", `{"command":"true"}`, "", "", false},
		{"N-18 2000 lines", `{"command":"seq 1 3000"}`, "\n1200\n[... 5000 bytes in 1000 lines left out ...]\n2201\n" + numbers(2202, 3000), "", false},
		{"N-18 50 KB", `{"command":"head -c 60000 /dev/zero | tr '\\0' a"}`, "\n[... 8800 bytes in 0 lines left out ...]\n" + strings.Repeat("a", 20480), "", false},
		{"N-14 a timeout", `{"command":"echo begun; sleep 50","timeout":1}`, "", "timed out after 1s", true},
		{"no variables are kept", `{"command":"echo ${X-none}; X=1"}`, "none\n", "", false},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			out := toolstest.Run(t.Context(), t, reg, "bash", tt.args)
			if tt.err != "" {
				if out.Err == nil || !strings.Contains(out.Err.Error(), tt.err) || !strings.Contains(out.Err.Error(), "begun") {
					t.Errorf("%v", out.Err)
				}
				return
			}
			got := fmt.Sprint(out.Result.Value)
			if out.Err != nil || !strings.HasSuffix(got, tt.want) || out.Result.Failed != tt.failed || len(got) > 60<<10 || tt.want == "" && got != "" {
				t.Errorf("%v, failed %v, %d bytes, ends %q", out.Err, out.Result.Failed, len(got), got[max(0, len(got)-100):])
			}
		})
	}
}

func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestBashRunsWhereItIsTold: what executes is a backend.Target, whichever it is.
// N-19.
func TestBashRunsWhereItIsTold(t *testing.T) {
	var got []backend.Spec
	target := &toolstest.Target{Name: "box", Exec: func(_ context.Context, s backend.Spec) (backend.Result, error) {
		got = append(got, s)
		_, err := io.WriteString(s.Stdout, "from the box\n")
		return backend.Result{Code: 4}, err
	}}
	reg, err := tools.NewRegistry(time.Now, shell.NewBash(shell.Config{Target: target, User: "tester", Dir: "/work"}))
	if err != nil {
		t.Fatal(err)
	}
	out := toolstest.Run(t.Context(), t, reg, "bash", `{"command":"make test"}`)
	if out.Err != nil || out.Result.Value != "from the box\n[exit code: 4]" {
		t.Errorf("%v %v", out.Result.Value, out.Err)
	}
	if len(got) != 1 || !strings.Contains(got[0].Shell+strings.Join(got[0].Argv, " "), "make test") || got[0].Dir != "/work" {
		t.Errorf("the target was asked for %+v", got)
	}
}

func TestBashKeepsItsPromises(t *testing.T) {
	target := &toolstest.Target{Name: "box"}
	toolstest.Check(t, shell.NewBash(shell.Config{Target: target, User: "tester", Dir: "/work"}), target.Effects,
		toolstest.Case{Name: "call", Args: `{"command":"touch x","timeout":5}`})
}

// TestExecuteCode plays row Q-06 with real interpreters.
//
func TestExecuteCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/here", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := shell.Interpreters{"bash": shell.DefaultInterpreters()["bash"], "awkward": {"cat"}, "none": {"no-such-interpreter", "-"}}
	tool := shell.NewCode(shell.Config{Target: local.New(local.Options{Dir: dir}), User: "tester", Dir: dir}, m)
	if tool.Spec().Level != risk.Critical {
		t.Errorf("its level is %v", tool.Spec().Level)
	}
	reg, err := tools.NewRegistry(time.Now, tool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Plan(t.Context(), tools.Call{ID: "c", Thread: "t:1", Name: "execute_code", Args: []byte(`{"language":"cobol","code":"x"}`)}); err == nil || !strings.Contains(err.Error(), `must be awkward, bash or none, not "cobol"`) {
		t.Errorf("a language that nobody named: %v", err)
	}
	for _, tt := range []struct {
		rule, language, code string
		timeout              int
		want, err            string
		failed               bool
	}{
		{rule: "in the working directory", language: "bash", code: "ls; pwd", want: "here\n" + dir + "\n"},
		{rule: "the program is not quoted", language: "awkward", code: "a 'b \"c\" $d\n\\e", want: "a 'b \"c\" $d\n\\e"},
		{rule: "the streams in the order written", language: "bash", code: "echo a\necho b >&2\necho c", want: "a\nb\nc\n"},
		{rule: "the exit code when it is not 0", language: "bash", code: "exit 3", want: "[exit code: 3]", failed: true},
		{rule: "an end to its time", language: "bash", code: "echo begun; sleep 50", timeout: 1, err: "timed out after 1s"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			args, err := json.Marshal(map[string]any{"language": tt.language, "code": tt.code, "timeout": max(tt.timeout, 1)})
			if err != nil {
				t.Fatal(err)
			}
			if tt.timeout == 0 {
				args = []byte(strings.Replace(string(args), `,"timeout":1`, "", 1))
			}
			out := toolstest.Run(t.Context(), t, reg, "execute_code", string(args))
			if tt.err != "" {
				if out.Err == nil || !strings.Contains(out.Err.Error(), tt.err) {
					t.Errorf("%v, %v", out.Err, out.Result.Value)
				}
				return
			}
			if got := fmt.Sprint(out.Result.Value); out.Err != nil || got != tt.want || out.Result.Failed != tt.failed {
				t.Errorf("%v, failed %v, %q", out.Err, out.Result.Failed, got)
			}
		})
	}
}

func TestExecuteCodeKeepsItsPromises(t *testing.T) {
	target := &toolstest.Target{Name: "box"}
	target.Put("/usr/bin/python3", "")
	target.Put("/usr/bin/perl", "")
	toolstest.Check(t, shell.NewCode(shell.Config{Target: target, User: "tester", Dir: "/work"}, shell.DefaultInterpreters()), target.Effects,
		toolstest.Case{Name: "call", Args: `{"language":"python","code":"print(1)","timeout":5}`, Other: map[string]string{"language": `"perl"`}})
}

// T2: nobody is asked for what cannot run.
func TestAProgramOfALanguageThatIsNotThereIsRefusedWhilePlanning(t *testing.T) {
	target := &toolstest.Target{Name: "box"}
	target.Put("/usr/bin/python3", "")
	reg := registry(t, shell.NewCode(shell.Config{Target: target, User: "tester", Dir: "/work"}, shell.DefaultInterpreters()))
	for language, ok := range map[string]bool{"python": true, "ruby": false} {
		_, err := reg.Plan(t.Context(), tools.Call{Name: "execute_code", Args: []byte(`{"language":"` + language + `","code":"1"}`)})
		if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "ruby is not installed on box") {
			t.Errorf("%s: %v", language, err)
		}
	}
}

func TestInterpretersWithoutAProgramAreRefused(t *testing.T) {
	for name, argv := range map[string][]string{"a": nil, "b": {""}, "": {"x"}} {
		if (shell.Interpreters{name: argv}).Check() == nil {
			t.Errorf("%q: %q is taken", name, argv)
		}
	}
	if err := shell.DefaultInterpreters().Check(); err != nil {
		t.Error(err)
	}
}
