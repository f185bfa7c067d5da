package shell_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"countersign/tools"
	"countersign/tools/backend/local"
	"countersign/tools/shell"
	"countersign/tools/toolstest"
)

// TestBash plays rows N-13 to N-18 with real processes.
func TestBash(t *testing.T) {
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
		{"N-18 2000 lines", `{"command":"seq 1 3000"}`, "\n2000\n[Output truncated after 2000 lines: there were 13893 bytes in 3000 lines]", "", false},
		{"N-18 50 KB", `{"command":"head -c 60000 /dev/zero | tr '\\0' a"}`, "\n[Output truncated at 50KB: there were 60000 bytes in 0 lines]", "", false},
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

func TestBashKeepsItsPromises(t *testing.T) {
	target := &toolstest.Target{Name: "box"}
	toolstest.Check(t, shell.NewBash(shell.Config{Target: target, User: "tester", Dir: "/work"}), target.Effects,
		toolstest.Case{Name: "call", Args: `{"command":"touch x","timeout":5}`})
}
