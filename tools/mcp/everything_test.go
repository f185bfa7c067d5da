package mcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/test/npmtest"
	"countersign/tools"
	"countersign/tools/toolstest"
)

// everything returns the program of @modelcontextprotocol/server-everything, the
// reference server of the protocol, which shares no code with this module. It is
// installed once into the user's cache.
func everything(t *testing.T) (node, script string) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages: not in -short")
	}
	dir := npmtest.Packages(t, filepath.Join("testdata", "everything"), "test against the reference server")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatal(err)
	}
	script = filepath.Join(dir, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
	return node, script
}

// botSecret is in the bot's environment, and must not be in the server's.
const botSecret = "xoxb-the-bots-own-token"

func TestReferenceServerOverStdio(t *testing.T) {
	node, script := everything(t)
	t.Setenv("SLACK_BOT_TOKEN", botSecret)
	t.Setenv("SERVER_KEY", "only-for-the-server")
	s := Server{Command: []string{node, script}, Env: []string{"SERVER_KEY"}, AllowAll: true, Timeout: 20 * time.Second}
	w := startHost(t, nil, map[string]Server{"everything": s})
	useReference(t, w)

	t.Run("it sees no secret of the bot", func(t *testing.T) {
		out := w.call("mcp_everything_get-env", "{}")
		env, _ := out.Result.Value.(string)
		if out.Err != nil || !strings.Contains(env, `"PATH"`) || !strings.Contains(env, `"SERVER_KEY": "[redacted]"`) {
			t.Fatalf("%+v", out)
		}
		for _, bad := range []string{botSecret, "SLACK", "only-for-the-server", os.Getenv("HOME") + `"`} {
			if strings.Contains(env, bad) {
				t.Errorf("%q is in\n%s", bad, env)
			}
		}
		if want := filepath.Join(w.cfg.DataDir, "mcp", "everything"); !strings.Contains(env, `"HOME": "`+want+`"`) {
			t.Errorf("its home is not %s:\n%s", want, env)
		}
	})
	t.Run("killed, it is started again", func(t *testing.T) {
		w.mu.Lock()
		p, _ := w.servers[0].link.closer.(*process)
		w.mu.Unlock()
		reg := w.registry()
		long, err := reg.Plan(t.Context(), tools.Call{Name: "mcp_everything_trigger-long-running-operation", Args: []byte(`{"duration":30,"steps":300}`)})
		if err != nil {
			t.Fatal(err)
		}
		out := toolstest.RunPlan(t.Context(), t, reg, long, func(e tools.Event) {
			if e.Kind == tools.Info {
				p.Signal(syscall.SIGKILL)
			}
		})
		if out.Err != nil || !out.Result.Unknown {
			t.Errorf("%+v", out)
		}
		w.until("it answers", func() bool {
			p, err := reg.Plan(t.Context(), tools.Call{Name: "mcp_everything_echo", Args: []byte(`{"message":"again"}`)})
			return err == nil && toolstest.RunPlan(t.Context(), t, reg, p).Result.Value == "Echo: again"
		})
	})
	t.Run("it ignores that its input closes", func(t *testing.T) {
		begin := time.Now()
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > 3*terminateAfter {
			t.Errorf("closing took %s", d)
		}
	})
}

func TestReferenceServerOverHTTP(t *testing.T) {
	t.Parallel()
	node, script := everything(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, node, script, "streamableHttp")
	cmd.Env = []string{"PORT=" + port, "PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	w := startHost(t, nil, map[string]Server{"everything": {
		URL: "http://" + addr + "/mcp", Loopback: true, AllowAll: true, Timeout: 20 * time.Second, Headers: map[string]redact.Secret{"Authorization": "Bearer unused-unused"},
	}})
	w.until("it is connected", func() bool { return len(w.Tools()) > 0 && len(w.Notices()) == 0 })
	useReference(t, w)
}

// useReference is what both ways to the reference server have in common.
func useReference(t *testing.T, w *world) {
	t.Helper()
	for _, want := range []string{"mcp_everything_echo", "mcp_everything_get-sum", "mcp_everything_get-env", "mcp_everything_trigger-long-running-operation"} {
		if !slices.Contains(w.names(), want) {
			t.Errorf("%s is not in %v", want, w.names())
		}
	}
	for _, s := range w.registry().Specs(nil) {
		if s.Level != risk.High {
			t.Errorf("%s has the level %s", s.Name, s.Level)
		}
	}
	t.Run("echo and sum", func(t *testing.T) {
		if out := w.call("mcp_everything_echo", `{"message":"hi"}`); out.Err != nil || out.Result.Value != "Echo: hi" || out.Result.Failed {
			t.Errorf("%+v", out)
		}
		if out := w.call("mcp_everything_get-sum", `{"a":2,"b":40}`); out.Err != nil || !strings.Contains(fmt.Sprint(out.Result.Value), "42") {
			t.Errorf("%+v", out)
		}
	})
	t.Run("wrong arguments do not reach it", func(t *testing.T) {
		_, err := w.registry().Plan(t.Context(), tools.Call{Name: "mcp_everything_get-sum", Args: []byte(`{"a":"two"}`)})
		if err == nil || !strings.Contains(err.Error(), "validation error") {
			t.Error(err)
		}
	})
	t.Run("an error of the tool", func(t *testing.T) {
		out := w.call("mcp_everything_get-resource-reference", `{"resourceType":"Text","resourceId":-1}`)
		if out.Err != nil || !out.Result.Failed || out.Result.Unknown {
			t.Errorf("%+v", out)
		}
	})
	t.Run("an image", func(t *testing.T) {
		out := w.call("mcp_everything_get-tiny-image", `{}`)
		if s := fmt.Sprint(out.Result.Value); out.Err != nil || !strings.Contains(s, "a file of the kind image/png with ") || !strings.Contains(s, "was dropped") {
			t.Errorf("%+v", out)
		}
	})
	t.Run("progress", func(t *testing.T) {
		out := w.call("mcp_everything_trigger-long-running-operation", `{"duration":0.4,"steps":4}`)
		var lines []string
		for _, e := range out.Events {
			if e.Kind == tools.Info {
				lines = append(lines, e.Text)
			}
		}
		// The last of them may lose the race against the result, and is dropped then.
		want := []string{"1 of 4", "2 of 4", "3 of 4", "4 of 4"}
		if out.Err != nil || len(lines) < 2 || !slices.Equal(lines, want[:min(len(lines), len(want))]) {
			t.Errorf("%q, %+v", lines, out)
		}
		if kinds := out.Kinds(); !slices.Equal(kinds, []tools.EventKind{tools.Started, tools.Info, tools.Completed}) {
			t.Errorf("%v", kinds)
		}
	})
	t.Run("the time for a call", func(t *testing.T) {
		s := w.servers[0]
		was := s.cfg.Timeout
		s.cfg.Timeout = 300 * time.Millisecond
		begin := time.Now()
		out := w.call("mcp_everything_trigger-long-running-operation", `{"duration":20,"steps":2}`)
		s.cfg.Timeout = was
		if d := time.Since(begin); out.Err != nil || !out.Result.Unknown || d > 5*time.Second {
			t.Errorf("%s, %+v", d, out)
		}
	})
}
