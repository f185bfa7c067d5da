package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestAnotherAgentAsksThroughTheGate lets an MCP client run commands: a read at once, a change once
// somebody approves it, a denial with its reason, and a call that is taken back.
func TestAnotherAgentAsksThroughTheGate(t *testing.T) {
	t.Parallel()
	b := newBot(t, plainConfig, newLedger(t, nil).url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	if _, errs, code := b.run("", "login", b.link(t, "alice")); code != 0 {
		t.Fatal(errs)
	}
	var told atomic.Int64
	client := mcp.NewClient(&mcp.Implementation{Name: "coder", Title: "Coder: \u202e1.0", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if strings.Contains(r.Params.Message, "waits for approval") {
				told.Add(1)
			}
		},
	})
	cmd := exec.CommandContext(t.Context(), binary, "mcp")
	cmd.Env, cmd.Dir = b.env, b.dir
	s, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	type shellResult struct {
		ExitCode *int   `json:"exit_code"`
		Stdout   string `json:"stdout"`
		NotRun   string `json:"not_run"`
	}
	run := func(ctx context.Context, command string) (x shellResult, err error) {
		p := &mcp.CallToolParams{Name: "run_shell", Arguments: map[string]any{"target": "local", "command": command}}
		p.SetProgressToken(command)
		res, err := s.CallTool(ctx, p)
		if err != nil {
			return x, err
		}
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil || res.IsError {
			t.Errorf("%q: %+v %v", command, res, err)
		}
		return x, json.Unmarshal(raw, &x)
	}
	if res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_targets"}); err != nil || res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, `"name":"local"`) {
		t.Fatalf("%+v %v", res, err)
	}
	if x, err := run(t.Context(), "echo hi"); err != nil || x.ExitCode == nil || *x.ExitCode != 0 || x.Stdout != "hi\n" {
		t.Fatalf("a read: %+v %v", x, err)
	}
	ran := filepath.Join(b.dir, "ran")
	alice := b.login("alice")
	last := "" // the first page is a moment behind
	waits := func() (thread, button string) {
		eventually(t, "a card", func() bool {
			var home struct {
				Yours []struct {
					Thread string
					Card   struct {
						Footer string
						Choose []struct{ ID string }
					}
				}
			}
			if _, err := alice.do("GET", "/api/home", nil, &home); err != nil || len(home.Yours) != 1 || home.Yours[0].Card.Choose[0].ID == last {
				return false
			}
			if said := home.Yours[0].Card.Footer; !strings.Contains(said, "Asked by alice through the program Coder 1.0") {
				t.Errorf("the card says %q", said)
			}
			thread, button = home.Yours[0].Thread, home.Yours[0].Card.Choose[0].ID
			return true
		}, b.log.String)
		last = button
		return thread, button
	}
	decide := func(deny string) func() {
		return func() {
			thread, button := waits()
			press := map[string]string{"id": "p" + button, "button": button}
			if deny != "" {
				press["button"], press["reason"] = strings.Replace(button, "approve:", "deny:", 1), deny
			}
			var said struct{ OK bool }
			if _, err := alice.do("POST", "/api/threads/"+thread+"/clicks", press, &said); err != nil || !said.OK {
				t.Errorf("%+v %v", said, err)
			}
		}
	}
	asked := func(ctx context.Context, command string, then func()) (x shellResult, err error) {
		done := make(chan struct{})
		go func() { defer close(done); x, err = run(ctx, command) }()
		then()
		<-done
		return x, err
	}
	if x, err := asked(t.Context(), "echo x >> "+ran, decide("")); err != nil || x.ExitCode == nil || *x.ExitCode != 0 || lines(ran) != 1 {
		t.Errorf("approved: %+v %v", x, err)
	}
	if x, err := asked(t.Context(), "echo y >> "+ran, decide("not now")); err != nil || x.ExitCode != nil || x.NotRun != "denied: not now" || lines(ran) != 1 {
		t.Errorf("denied: %+v %v", x, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := asked(ctx, "echo z >> "+ran, func() { waits(); cancel() }); err == nil {
		t.Error("a call that was taken back has a result")
	}
	eventually(t, "the card's withdrawal", func() bool {
		var home struct{ Yours []struct{ ID string } }
		_, err := alice.do("GET", "/api/home", nil, &home)
		return err == nil && len(home.Yours) == 0
	}, b.log.String)
	if lines(ran) != 1 || told.Load() == 0 {
		t.Errorf("%d lines, told %d times", lines(ran), told.Load())
	}
	var threads struct{ Threads []struct{ ID string } }
	if _, err := alice.do("GET", "/api/threads", nil, &threads); err != nil || len(threads.Threads) != 1 {
		t.Errorf("%+v %v", threads, err)
	}
}
