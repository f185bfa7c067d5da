package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/client"
	"countersign/test/needstest"
)

// balancer sends each request to a replica that answers.
func balancer(t *testing.T, f func() []string) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme = "http" },
		Transport: roundTrips(func(r *http.Request) (res *http.Response, err error) {
			for _, url := range f() {
				r.URL.Host = strings.TrimPrefix(url, "http://")
				r.Host = r.URL.Host
				var c net.Conn
				if c, err = net.Dial("tcp", r.URL.Host); err != nil {
					continue
				}
				_ = c.Close()
				return http.DefaultTransport.RoundTrip(r)
			}
			return nil, err
		}),
	})
	t.Cleanup(srv.Close)
	return srv
}

type roundTrips func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAgentsAJobAndAProgramAskAtTheSameTime has an agent with the bot's tools, an agent with its own
// shell, a job in CI and a program ask two replicas, of which one is killed while they wait: each
// change runs once, is decided by somebody who may, and is in one record.
func TestAgentsAJobAndAProgramAskAtTheSameTime(t *testing.T) {
	needstest.Long(t)
	var f *replicaSet
	lb := balancer(t, func() (urls []string) {
		for _, b := range f.bots {
			urls = append(urls, b.url)
		}
		return urls
	})
	keys := filepath.Join(t.TempDir(), "keys.json")
	p := newCIProvider(t, keys)
	config := fmt.Sprintf(jobConfig, strings.TrimPrefix(lb.URL, "http://"), keys)
	f = newReplicas(t, 2, config, newLedger(t, nil).url)
	first, second := f.bots[0], f.bots[1]
	out, errs, code := first.run("", "login", "--print", "--scope", "ask", first.link(t, "alice"))
	_, token, _ := strings.Cut(strings.TrimSpace(out), "COUNTERSIGN_TOKEN=")
	if code != 0 {
		t.Fatal(out, errs)
	}
	env := append(append([]string(nil), first.env...), "COUNTERSIGN_URL="+lb.URL, "COUNTERSIGN_TOKEN="+token, "SHELL=/bin/bash")
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }

	var wg sync.WaitGroup
	agent := exec.CommandContext(t.Context(), binary, "mcp")
	agent.Env, agent.Dir = env, dir
	s, err := mcp.NewClient(&mcp.Implementation{Name: "coder", Version: "1"}, nil).Connect(t.Context(), &mcp.CommandTransport{Command: agent}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wg.Go(func() {
		res, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "run_shell", Arguments: map[string]any{"target": "local", "command": "echo agent >> " + file("agent")}})
		if raw, _ := json.Marshal(res); err != nil || !strings.Contains(string(raw), `"exit_code":0`) {
			t.Errorf("the agent: %s %v", raw, err)
		}
	})
	event, _ := json.Marshal(map[string]any{"session_id": "s", "cwd": dir, "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": map[string]any{"command": "touch " + file("hook")}})
	wg.Go(func() {
		hook := exec.Command(binary, "hook", "claude-code")
		hook.Env, hook.Dir, hook.Stdin = env, dir, strings.NewReader(string(event))
		if out, err := hook.CombinedOutput(); err != nil || !strings.Contains(string(out), `"permissionDecision":"allow"`) {
			t.Errorf("the hook: %s %v", out, err)
		}
	})
	wg.Go(func() {
		job := exec.Command(binary, "exec", "--key", "run-7", "local", "--", "echo job >> "+file("job"))
		job.Env, job.Dir = append(append([]string(nil), first.env...), "COUNTERSIGN_URL="+lb.URL, "ACTIONS_ID_TOKEN_REQUEST_URL="+p.runner.URL+"/?v=2", "ACTIONS_ID_TOKEN_REQUEST_TOKEN=runner-secret"), dir
		if out, err := job.CombinedOutput(); err != nil {
			t.Errorf("the job: %s %v", out, err)
		}
	})
	wg.Go(func() {
		r, err := client.New(lb.URL, token).Run(context.Background(), client.Request{
			Key: "release-7", Target: "local", Command: "echo program >> " + file("program"), Caller: client.Caller{Way: client.WayAPI, Program: "release-bot"},
		})
		if err != nil || r.ExitCode == nil || *r.ExitCode != 0 {
			t.Errorf("the program: %+v %v", r, err)
		}
	})

	bob := second.login("bob")
	type asked struct {
		Thread string
		Card   struct {
			Code, Footer string
			Choose       []struct{ ID string }
		}
	}
	var cards []asked
	eventually(t, "four cards", func() bool {
		var home struct{ Yours []asked }
		_, err := bob.do("GET", "/api/home", nil, &home)
		cards = home.Yours
		return err == nil && len(cards) == 4
	}, f.logs)
	first.kill()
	who := map[string]string{
		"agent": "alice through the program coder", "hook": "alice through the program Claude Code", "job": "deploys through the job deploy in github.com/acme/shop at main", "program": "alice through the program release-bot",
	}
	for _, c := range cards {
		for name, asker := range who {
			if strings.Contains(c.Card.Code, file(name)) && !strings.Contains(c.Card.Footer, "Asked by "+asker) {
				t.Errorf("%s: the card says %q", name, c.Card.Footer)
			}
		}
		bob.click(t, c.Thread, c.Card.Choose[0].ID)
	}
	wg.Wait()
	for _, name := range []string{"agent", "job", "program"} {
		if n := lines(file(name)); n != 1 {
			t.Errorf("the command of the %s ran %d times\n%s", name, n, f.logs())
		}
	}
	if _, err := os.Stat(file("hook")); err == nil {
		t.Error("the bot ran what the hook asked about")
	}
	// What is sent again, as by a job that is started again, finds what became of it.
	r, err := client.New(lb.URL, token).Run(t.Context(), client.Request{
		Key: "release-7", Target: "local", Command: "echo program >> " + file("program"), Caller: client.Caller{Way: client.WayAPI, Program: "release-bot"},
	})
	if err != nil || r.ExitCode == nil || lines(file("program")) != 1 {
		t.Errorf("again: %+v %v", r, err)
	}
	log, _, _ := second.run("", "audit", "export")
	for _, want := range []string{"through the program coder", "through the program Claude Code", "through the job deploy", "through the program release-bot"} {
		if !strings.Contains(log, want) {
			t.Errorf("the record doesn't have %q", want)
		}
	}
	if n := strings.Count(log, `"what":"approved"`); n != 4 {
		t.Errorf("the record has %d approvals: %.2000s", n, log)
	}
}
