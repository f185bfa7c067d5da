package plugins_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/approvals/risk"
	"countersign/test/needstest"
	"countersign/tools"
	"countersign/tools/plugin"
	"countersign/tools/toolstest"
)

// N-52: plugins in any language; the one in Go is examples/tools/bash_tool.
// N-52.
func TestPluginsInPythonAndSh(t *testing.T) {
	needstest.Program(t, "python3", "apt-get install python3")
	h, err := plugin.New(t.Context(), plugin.Config{
		Plugins: []plugin.Plugin{
			{Name: "words", Path: "python/plugin.py"},
			{Name: "disks", Path: "sh/plugin.sh", Tools: map[string]risk.Level{"disk_free": risk.Read}},
			{Name: "args", Path: "/bin/sh", Args: []string{abs(t, "sh/plugin.sh")}},
		},
		DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if n := strings.Join(h.Notices(), "\n"); n != `tool "disk_free" of plugin args is not offered: plugin disks has a tool of this name` {
		t.Errorf("the notices are %q", n)
	}
	reg, err := tools.NewRegistry(time.Now, h.Tools()...)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ tool, args, want string }{
		"python":             {"count_words", `{"text":"to be or not to be"}`, `"result":"6 words, 4 different"`},
		"an error in python": {"count_words", `{"text":" "}`, "Tool error: the text has no words"},
		"sh":                 {"disk_free", `{"path":"/"}`, "Mounted on"},
		"an error in sh":     {"disk_free", `{"path":"/no/such/place"}`, "Tool error: "},
		"foreign arguments":  {"disk_free", `{"path":"/$(id)"}`, "validation error: "},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := reg.Plan(t.Context(), tools.Call{ID: "1", Thread: "test:1", Name: c.tool, Args: []byte(c.args)})
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
	toolstest.Check(t, h.Tools()[0], nil, toolstest.Case{Name: "python", Args: `{"text":"a b"}`})
	toolstest.Check(t, h.Tools()[1], nil, toolstest.Case{Name: "sh", Args: `{"path":"/tmp"}`})
}

func abs(t *testing.T, name string) string {
	t.Helper()
	p, err := filepath.Abs(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
