package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/test/needstest"
)

// TestAnotherAgentAsksThroughTheGate lets an MCP client run commands: a read at once, a change once
// somebody approves it, a denial with its reason, and a call that is taken back.
func TestAnotherAgentAsksThroughTheGate(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBotWithClient(t)
	var told, offered atomic.Int64
	client := mcp.NewClient(&mcp.Implementation{Name: "coder", Title: "Coder: \u202e1.0", Version: "1"}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapabilities{URL: &mcp.URLElicitationCapabilities{}}},
		ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if strings.HasPrefix(r.Params.URL, b.url+"/#t=web:") {
				offered.Add(1)
			}
			return &mcp.ElicitResult{Action: "decline"}, nil // it decides nothing
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if strings.Contains(r.Params.Message, "waits for approval") {
				told.Add(1)
			}
		},
	})
	cmd := exec.CommandContext(t.Context(), binary, "mcp")
	cmd.Env, cmd.Dir = b.env, b.dir
	// The version that agents speak today; TestAnAgentIsServedOverHTTP speaks the newest one.
	s, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
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
	if lines(ran) != 1 || told.Load() == 0 || offered.Load() == 0 {
		t.Errorf("%d lines, told %d times, offered the card %d times", lines(ran), told.Load(), offered.Load())
	}
	// What waits can be looked at, waited for and taken back; files and terminals are the bot's own tools.
	call := func(name string, args map[string]any) string {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		if err != nil {
			t.Fatal(name, err)
		}
		raw, _ := json.Marshal(res.Content)
		return string(raw)
	}
	file := filepath.Join(b.dir, "named")
	if err := os.WriteFile(file, []byte("what it says"), 0o600); err != nil {
		t.Fatal(err)
	}
	if said := call("read_file", map[string]any{"path": file}); !strings.Contains(said, "what it says") {
		t.Errorf("a file: %s", said)
	}
	if res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "search_history", Arguments: map[string]any{}}); err == nil {
		t.Errorf("a tool that isn't about targets: %+v", res)
	}
	var begun struct{ ID, State string }
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_shell", Arguments: map[string]any{"target": "local", "command": "echo b >> " + ran, "background": true}})
	raw, _ := json.Marshal(res.StructuredContent)
	if err != nil || json.Unmarshal(raw, &begun) != nil || begun.ID == "" || begun.State == "" {
		t.Fatalf("in the background: %s %v", raw, err)
	}
	if said := call("status", nil); !strings.Contains(said, begun.ID) {
		t.Errorf("status: %s", said)
	}
	if said := call("wait", map[string]any{"id": begun.ID, "seconds": 1}); !strings.Contains(said, "waiting") {
		t.Errorf("wait: %s", said)
	}
	if said := call("withdraw", map[string]any{"id": begun.ID}); !strings.Contains(said, "stopped by alice") || lines(ran) != 1 {
		t.Errorf("withdraw: %s", said)
	}
	var threads struct{ Threads []struct{ ID string } }
	if _, err := alice.do("GET", "/api/threads", nil, &threads); err != nil || len(threads.Threads) != 1 {
		t.Errorf("%+v %v", threads, err)
	}
}

// TestAnAgentIsServedOverHTTP asks at the bot's own address with a token, and learns by the protocol
// that it needs one.
func TestAnAgentIsServedOverHTTP(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := newBot(t, plainConfig, newLedger(t, nil).url)
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	out, errs, code := b.run("", "login", "--print", b.link(t, "alice"))
	_, token, _ := strings.Cut(strings.TrimSpace(out), "COUNTERSIGN_TOKEN=")
	if code != 0 || token == "" {
		t.Fatal(out, errs)
	}
	res, err := http.Post(b.url+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("without a token: %d %v", res.StatusCode, res.Header)
	}
	var told atomic.Int64
	client := mcp.NewClient(&mcp.Implementation{Name: "coder", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			if strings.Contains(r.Params.Message, "waits for approval") {
				told.Add(1)
			}
		},
	})
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: b.url + "/mcp", HTTPClient: &http.Client{Transport: bearing(token)}, DisableStandaloneSSE: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func(ctx context.Context, command string) (string, error) {
		p := &mcp.CallToolParams{Name: "run_shell", Arguments: map[string]any{"target": "local", "command": command}}
		p.SetProgressToken(command)
		res, err := s.CallTool(ctx, p)
		if err != nil {
			return "", err
		}
		raw, _ := json.Marshal(res.StructuredContent)
		return string(raw), nil
	}
	if said, err := run(t.Context(), "echo hi"); err != nil || !strings.Contains(said, `"stdout":"hi\n"`) {
		t.Fatalf("a read: %s %v", said, err)
	}
	bob := b.login("bob")
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
			if _, err := bob.do("GET", "/api/home", nil, &home); err != nil || len(home.Yours) != 1 {
				return false
			}
			if said := home.Yours[0].Card.Footer; !strings.Contains(said, "Asked by alice through the program") {
				t.Errorf("the card says %q", said)
			}
			thread, button = home.Yours[0].Thread, home.Yours[0].Card.Choose[0].ID
			return true
		}, b.log.String)
		return thread, button
	}
	ran := filepath.Join(b.dir, "ran")
	done := make(chan string, 1)
	go func() {
		said, err := run(t.Context(), "echo x >> "+ran)
		done <- fmt.Sprint(said, err)
	}()
	thread, button := waits()
	bob.click(t, thread, button)
	if said := <-done; !strings.Contains(said, `"exit_code":0`) || lines(ran) != 1 || told.Load() == 0 {
		t.Errorf("approved: %s, told %d times", said, told.Load())
	}
	gone := func() bool {
		var home struct{ Yours []struct{ ID string } }
		_, err := bob.do("GET", "/api/home", nil, &home)
		return err == nil && len(home.Yours) == 0
	}
	eventually(t, "the decided card is gone", gone, b.log.String)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		said, err := run(ctx, "echo y >> "+ran)
		done <- fmt.Sprint(said, err)
	}()
	waits()
	cancel()
	<-done
	eventually(t, "the card's withdrawal", gone, b.log.String)
	if lines(ran) != 1 {
		t.Error("a call that was taken back has run")
	}
}

// bearing sends requests with a token.
type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
