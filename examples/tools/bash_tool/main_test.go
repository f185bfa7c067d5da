package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/tools"
	"countersign/tools/plugin"
	"countersign/tools/toolstest"
)

// N-58: the example is built and works as a plugin.
// N-58.
func TestTheExampleIsAPlugin(t *testing.T) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bash_tool")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	h, err := plugin.New(t.Context(), plugin.Config{Plugins: []plugin.Plugin{{Path: bin}}, DataDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	reg, err := tools.NewRegistry(time.Now, h.Tools()...)
	if err != nil || len(h.Notices()) > 0 || len(h.Tools()) != 1 {
		t.Fatal(err, h.Notices())
	}
	for name, c := range map[string]struct{ args, want string }{
		"both streams":           {`{"command":"echo out; echo err >&2"}`, "out\\nerr\\n"},
		"its directory":          {`{"command":"pwd"}`, filepath.Join(dir, "plugins", "bash_tool")},
		"an exit code":           {`{"command":"echo no; exit 3"}`, "Tool error: no\n\n[exit code 3]"},
		"a deadline":             {`{"command":"echo begun; sleep 100","timeout":2}`, "Tool error: begun\n\n[ended after 2s]"},
		"much output":            {`{"command":"head -c 60000 /dev/zero | tr '\\0' x"}`, "[10848 more bytes]"},
		"nothing":                {`{"command":" "}`, "must not be empty"},
		"what it does not know":  {`{"command":"true","shell":"zsh"}`, `there is no parameter "shell"`},
		"a deadline of too much": {`{"command":"echo quick","timeout":100000}`, "quick"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := reg.Plan(t.Context(), tools.Call{ID: "1", Thread: "test:1", Name: "bash_tool", Args: []byte(c.args)})
			var got string
			if err != nil {
				got = tools.ErrorText(err)
			} else {
				got = toolstest.RunPlan(t.Context(), t, reg, p).Text
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("the model reads %q, want %q", got, c.want)
			}
		})
	}
	toolstest.Check(t, h.Tools()[0], nil, toolstest.Case{Name: "command", Args: `{"command":"date","timeout":5}`})
}

func TestTheEndOfTheInputEndsEverything(t *testing.T) {
	in, w := io.Pipe()
	var out bytes.Buffer
	go func() {
		_, _ = io.WriteString(w, "noise\n"+`{"type":"call","name":"bash_tool","call_id":"1","params":{"command":"sleep 100"}}`+"\n"+
			`{"type":"call","name":"other","call_id":"2","params":{}}`+"\n")
		_ = w.Close()
	}()
	if err := serve(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	ended := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var o outgoing
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if o.Type == "result" {
			ended[o.CallID] = o.IsError
		}
	}
	if len(ended) != 2 || !ended["1"] || !ended["2"] {
		t.Errorf("it wrote\n%s", out.String())
	}
}
