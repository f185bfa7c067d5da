package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"countersign/test/needstest"
	"countersign/test/npmtest"
)

// scriptedModel is a model for coding agents: whatever they are asked, they run its commands in order, by the
// protocols of four vendors.
type scriptedModel struct {
	t        *testing.T
	commands []string
	srv      *httptest.Server

	mu      sync.Mutex
	results []string // what the tools answered, as the agent told the model
	asked   map[string]int
}

func newScriptedModel(t *testing.T, commands ...string) *scriptedModel {
	t.Helper()
	s := &scriptedModel{t: t, commands: commands, asked: map[string]int{}}
	s.srv = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.srv.Close)
	return s
}

// collect finds the results of tools in a request.
func collect(v any, is func(map[string]any) (any, bool)) (out []string) {
	switch x := v.(type) {
	case map[string]any:
		if r, ok := is(x); ok {
			raw, _ := json.Marshal(r)
			return []string{string(raw)}
		}
		for _, key := range []string{"messages", "input", "contents", "content", "parts"} {
			out = append(out, collect(x[key], is)...)
		}
	case []any:
		for _, e := range x {
			out = append(out, collect(e, is)...)
		}
	}
	return out
}

func (s *scriptedModel) serve(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var in map[string]any
	_ = json.Unmarshal(raw, &in)
	tools, _ := in["tools"].([]any)
	s.mu.Lock()
	s.asked[r.URL.Path]++
	s.mu.Unlock()
	events := func(list ...any) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range list {
			raw, _ := json.Marshal(e)
			if m, ok := e.(map[string]any); ok && m["type"] != nil {
				_, _ = fmt.Fprintf(w, "event: %s\n", m["type"])
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", raw)
		}
	}
	next := func(is func(map[string]any) (any, bool)) (n int, command string) {
		got := collect(in, is)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(got) > len(s.results) {
			s.results = got
		}
		if len(tools) == 0 || len(got) >= len(s.commands) {
			return len(got), ""
		}
		return len(got), s.commands[len(got)]
	}
	type m = map[string]any
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/messages"):
		n, command := next(func(x map[string]any) (any, bool) { return x["content"], x["type"] == "tool_result" })
		block, delta, stop := m{"type": "text", "text": ""}, m{"type": "text_delta", "text": "done"}, "end_turn"
		if command != "" {
			args, _ := json.Marshal(m{"command": command, "description": "It is harmless"})
			block, delta, stop = m{"type": "tool_use", "id": fmt.Sprint("toolu_", n), "name": "Bash", "input": m{}}, m{"type": "input_json_delta", "partial_json": string(args)}, "tool_use"
		}
		events(m{"type": "message_start", "message": m{"id": fmt.Sprint("msg_", n), "type": "message", "role": "assistant", "model": in["model"], "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": m{"input_tokens": 1, "output_tokens": 1}}},
			m{"type": "content_block_start", "index": 0, "content_block": block}, m{"type": "content_block_delta", "index": 0, "delta": delta}, m{"type": "content_block_stop", "index": 0},
			m{"type": "message_delta", "delta": m{"stop_reason": stop, "stop_sequence": nil}, "usage": m{"output_tokens": 1}}, m{"type": "message_stop"})
	case strings.HasSuffix(path, "/responses"):
		n, command := next(func(x map[string]any) (any, bool) {
			return x["output"], x["type"] == "function_call_output" || x["type"] == "custom_tool_call_output"
		})
		item := m{"type": "message", "role": "assistant", "id": fmt.Sprint("msg_", n), "status": "completed", "content": []any{m{"type": "output_text", "text": "done", "annotations": []any{}}}}
		if command != "" {
			args, _ := json.Marshal(m{"command": []string{"bash", "-lc", command}, "cmd": command, "sandbox_permissions": "require_escalated", "justification": "It is harmless"})
			item = m{"type": "function_call", "id": fmt.Sprint("fc_", n), "call_id": fmt.Sprint("call_", n), "name": shellOf(tools), "arguments": string(args), "status": "completed"}
		}
		id := fmt.Sprint("resp_", n)
		events(m{"type": "response.created", "response": m{"id": id}}, m{"type": "response.output_item.done", "output_index": 0, "item": item},
			m{"type": "response.completed", "response": m{"id": id, "output": []any{item}, "usage": m{"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}}})
	case strings.HasSuffix(path, "/chat/completions"):
		n, command := next(func(x map[string]any) (any, bool) { return x["content"], x["role"] == "tool" })
		delta, finish := m{"role": "assistant", "content": "done"}, "stop"
		if command != "" {
			args, _ := json.Marshal(m{"command": command, "description": "It is harmless"})
			delta, finish = m{"role": "assistant", "tool_calls": []any{m{"index": 0, "id": fmt.Sprint("call_", n), "type": "function", "function": m{"name": "bash", "arguments": string(args)}}}}, "tool_calls"
		}
		chunk := func(delta m, finish any) m {
			return m{"id": fmt.Sprint("c", n), "object": "chat.completion.chunk", "created": 1, "model": in["model"], "choices": []any{m{"index": 0, "delta": delta, "finish_reason": finish}}}
		}
		events(chunk(delta, nil), chunk(m{}, finish))
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	case strings.Contains(path, "streamGenerateContent"), strings.Contains(path, "generateContent"):
		_, command := next(func(x map[string]any) (any, bool) { r, ok := x["functionResponse"]; return r, ok })
		part := m{"text": "done"}
		if len(tools) == 0 { // whether it goes round in circles
			part = m{"text": `{"unproductive_state_analysis": "none", "unproductive_state_confidence": 0.0}`}
		}
		if command != "" {
			part = m{"functionCall": m{"name": "run_shell_command", "args": m{"command": command, "description": "It is harmless"}}}
		}
		out := m{"candidates": []any{m{"content": m{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}}, "usageMetadata": m{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
		if strings.Contains(path, "streamGenerateContent") {
			events(out)
		} else {
			_ = json.NewEncoder(w).Encode(out)
		}
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"input_tokens":1,"totalTokens":1,"data":[],"models":[]}`)
	}
}

// shellOf is what Codex calls its shell for this model.
func shellOf(tools []any) string {
	for _, t := range tools {
		m, _ := t.(map[string]any)
		for _, name := range []string{"exec_command", "shell_command", "shell", "local_shell"} {
			if m["name"] == name {
				return name
			}
		}
	}
	return "shell"
}

// codingAgent is a real one, in a fresh home directory.
type codingAgent struct {
	id, program string
	args        func(s *scriptedModel) []string
	env         func(s *scriptedModel) []string
	settings    func(t *testing.T, home string, s *scriptedModel)
	modes       []agentMode
	before      func() // is called when its hook is installed
}

// agentMode is how far an agent goes without its person.
type agentMode struct {
	name string
	args []string
	runs bool // what people approve; it refuses everything otherwise
	// terminal is whether it needs one, and goes on after its work.
	terminal bool
}

func modesOf(flag string, runs bool, names ...string) (out []agentMode) {
	for _, name := range names {
		out = append(out, agentMode{name: name, args: []string{flag, name}, runs: runs})
	}
	return out
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var codingAgents = []codingAgent{
	{
		id: "claude-code", program: ".bin/claude",
		args: func(*scriptedModel) []string {
			return []string{"-p", "go", "--output-format", "json", "--model", "claude-sonnet-4-5"}
		},
		env: func(s *scriptedModel) []string {
			return []string{"ANTHROPIC_BASE_URL=" + s.srv.URL, "ANTHROPIC_API_KEY=sk-ant-test", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1"}
		},
		settings: func(*testing.T, string, *scriptedModel) {},
		modes:    append(modesOf("--permission-mode", true, "default", "acceptEdits", "auto", "dontAsk", "bypassPermissions"), modesOf("--permission-mode", false, "plan")...),
	},
	{
		id: "codex", program: ".bin/codex",
		modes: []agentMode{
			// without a terminal it never asks anybody
			{"on-request, workspace-write", []string{"-c", `approval_policy="on-request"`}, true, true}, {"on-request, read-only", []string{"-c", `sandbox_mode="read-only"`}, true, true},
		},
		args: func(*scriptedModel) []string { return []string{"go"} },
		env:  func(*scriptedModel) []string { return []string{"SCRIPT_KEY=sk-test"} },
		settings: func(t *testing.T, home string, s *scriptedModel) {
			writeFile(t, filepath.Join(home, ".codex/config.toml"), `model = "scripted"
model_provider = "script"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false
[features]
hooks = true
[projects."`+filepath.Join(home, "work")+`"]
trust_level = "trusted"
[model_providers.script]
name = "script"
base_url = "`+s.srv.URL+`/v1"
env_key = "SCRIPT_KEY"
wire_api = "responses"
`)
		},
	},
	{
		id: "gemini-cli", program: ".bin/gemini",
		args: func(*scriptedModel) []string {
			return []string{"--skip-trust", "-m", "gemini-2.5-pro"}
		},
		modes: []agentMode{{name: "yolo", args: []string{"-p", "go", "--yolo"}, runs: true}, {name: "default", args: []string{"-i", "go"}, runs: true, terminal: true}},
		env: func(s *scriptedModel) []string {
			return []string{"GOOGLE_GEMINI_BASE_URL=" + s.srv.URL, "GEMINI_API_KEY=test", "GEMINI_CLI_TRUST_WORKSPACE=true"}
		},
		settings: func(t *testing.T, home string, _ *scriptedModel) {
			writeFile(t, filepath.Join(home, ".gemini/settings.json"), `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}, "general": {"disableAutoUpdate": true}}`)
		},
	},
	{
		id: "opencode", program: "opencode-linux-x64-baseline/bin/opencode",
		args: func(*scriptedModel) []string { return []string{"run", "-m", "script/scripted", "go"} },
		env: func(*scriptedModel) []string {
			return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"}
		},
		modes: []agentMode{{name: "its only mode", runs: true}},
		settings: func(t *testing.T, home string, s *scriptedModel) {
			writeFile(t, filepath.Join(home, ".config/opencode/opencode.json"), `{"provider": {"script": {"npm": "@ai-sdk/openai-compatible", "name": "script", "options": {"baseURL": "`+s.srv.URL+`/v1", "apiKey": "k"}, "models": {"scripted": {"name": "scripted", "tool_call": true}}}}}`)
		},
	},
}

// installed is where npm has put the agents. One of them links its program when it is installed.
func installed(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(npmtest.Packages(t, "testdata/agents", "run the coding agents that ask by a hook"), "node_modules")
	link := exec.CommandContext(t.Context(), "node", "install.cjs")
	link.Dir = filepath.Join(dir, "@anthropic-ai/claude-code")
	if out, err := link.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return dir
}

func isThere(path string) bool { _, err := os.Stat(path); return err == nil }

// run has the agent work until it has nothing more to do.
func (a codingAgent) run(t *testing.T, bin string, b *bot, s *scriptedModel, m agentMode, hooked bool) (out string, took time.Duration) {
	t.Helper()
	home := filepath.Join(b.dir, "home-"+a.id)
	if !hooked {
		home += "-plain"
	}
	a.settings(t, home, s)
	work := filepath.Join(home, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what it started may still write there
		for range 250 {
			left := false
			all, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, name := range all {
				if env, err := os.ReadFile(name); err == nil && strings.Contains(string(env), "HOME="+home+"\x00") {
					pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
					_, left = syscall.Kill(pid, syscall.SIGKILL), true
				}
			}
			if !left {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SHELL=/bin/bash", "TERM=xterm", "XDG_CONFIG_HOME=" + filepath.Join(home, ".config")}, a.env(s)...)
	if hooked {
		login := exec.CommandContext(t.Context(), binary, "login", b.link(t, "alice"))
		login.Env = env
		b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(home, ".config"))
		if out, err := login.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		install := exec.CommandContext(t.Context(), binary, "hook", "install", a.id)
		env[0] = "PATH=" + programs(t, "countersign-lock") + ":" + os.Getenv("PATH")
		install.Env, install.Stdin = env, strings.NewReader("yes\n")
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if a.before != nil {
		a.before()
	}
	var o logBuffer
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, a.program), append(a.args(s), m.args...)...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, work, &o, &o, 5*time.Second
	begun := time.Now()
	var err error
	if m.terminal {
		err = inTerminal(t, cmd, &o, s)
	} else {
		err = cmd.Run()
	}
	took = time.Since(begun)
	if err != nil {
		t.Logf("%s ends with %v", a.id, err)
	}
	return o.String(), took
}

// inTerminal runs a program in a terminal until the model has nothing more to do.
func inTerminal(t *testing.T, cmd *exec.Cmd, o *logBuffer, s *scriptedModel) error {
	t.Helper()
	cmd.Stdout, cmd.Stderr = nil, nil
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 200})
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	go func() { // it asks the terminal what it is
		buf := make([]byte, 1<<16)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			_, _ = o.Write(buf[:n])
			if strings.Contains(string(buf[:n]), "\x1b[6n") {
				_, _ = f.WriteString("\x1b[1;1R")
			}
			if strings.Contains(string(buf[:n]), "\x1b[c") {
				_, _ = f.WriteString("\x1b[?62;c")
			}
		}
	}()
	allowed := 0
	eventuallyIn(t, 3*time.Minute, "the end of its work", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.asked) == 0 && strings.Contains(o.String(), "trusting") { // Codex shows a new hook once
			_, _ = f.WriteString("2")
			_, _ = f.WriteString("\r")
		}
		if n := strings.Count(o.String(), "Allow execution"); n > allowed { // Gemini CLI asks its own person, too
			allowed = n
			_, _ = f.WriteString("\r")
		}
		return len(s.results) >= len(s.commands)
	}, o.String)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	return nil
}

// session is what the scripted model has an agent run in its working directory: 18 reads, 8 changes
// that people approve, 2 that they deny and 2 that they change.
func session() (commands []string) {
	reads := []string{
		"ls -la", "cat notes.txt", "git status --short", "pwd", "wc -l notes.txt", "grep -n two notes.txt", "head -n 1 notes.txt", "find . -maxdepth 1 -type f", "git log --oneline",
		"tail -n 1 notes.txt", "stat notes.txt", "sort notes.txt | uniq -c", "git diff", "du -sh .", "date", "cat notes.txt | grep one", "ls src && cat src/a.txt", "id -un",
	}
	changes := []string{"echo 1 >> ran", "mkdir -p out && echo 2 >> ran", "echo 3 >> ran", "rm -rf out; echo 4 >> ran", "sed -i s/one/eins/ notes.txt && echo 5 >> ran", "echo 6 >> ran", "cp notes.txt copy.txt && echo 7 >> ran", "touch x && echo 8 >> ran"}
	others := []string{"rm -rf src # denied", "echo denied >> ran", "touch wrong-1", "touch wrong-2"}
	for i, r := range reads {
		commands = append(commands, r)
		if i < len(changes) {
			commands = append(commands, changes[i])
		}
		if i < len(others) {
			commands = append(commands, others[i])
		}
	}
	return commands
}

// decisions are what people do with the cards of a session until the test ends.
func decisions(t *testing.T, alice, bob *person) (cards func() []string) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]string{}
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped })
	press := func(who *person, thread string, body map[string]any) {
		var said struct {
			OK     bool
			Notice string
		}
		if _, err := who.do("POST", "/api/threads/"+thread+"/clicks", body, &said); err != nil || !said.OK {
			t.Errorf("%v: %+v %v", body, said, err)
		}
	}
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			var home struct {
				Yours []struct {
					Thread string
					Card   struct {
						Code   string
						Choose []struct{ ID, Style string }
					}
				}
			}
			if _, err := bob.do("GET", "/api/home", nil, &home); err != nil {
				continue
			}
			for _, y := range home.Yours {
				var approve, deny, edit string
				for _, c := range y.Card.Choose {
					switch {
					case strings.HasPrefix(c.ID, "approve:"):
						approve = c.ID
					case strings.HasPrefix(c.ID, "deny:"):
						deny = c.ID
					case strings.HasPrefix(c.ID, "edit:"):
						edit = c.ID
					}
				}
				mu.Lock()
				_, known := seen[approve]
				seen[approve] = y.Card.Code
				mu.Unlock()
				switch {
				case known || approve == "": // the page is a moment behind
				case strings.Contains(y.Card.Code, "denied"):
					press(bob, y.Thread, map[string]any{"id": "d" + deny, "button": deny, "reason": "not today"})
				case strings.Contains(y.Card.Code, "wrong"):
					mu.Lock()
					delete(seen, approve)
					mu.Unlock()
					press(bob, y.Thread, map[string]any{"id": "e" + edit, "button": edit, "text": strings.ReplaceAll(y.Card.Code, "wrong", "right")})
				case strings.Contains(y.Card.Code, "right"):
					press(alice, y.Thread, map[string]any{"id": "a" + approve, "button": approve})
				default:
					press(bob, y.Thread, map[string]any{"id": "a" + approve, "button": approve})
				}
			}
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Values(seen))
	}
}

// TestRealCodingAgentsAskByTheirHooks runs the agents as they are published, against a scripted model:
// each read is allowed unasked, each change is one card, and the agent runs exactly what was allowed.
func TestRealCodingAgentsAskByTheirHooks(t *testing.T) {
	needstest.Long(t)
	if runtime.GOARCH != "amd64" {
		needstest.Missing(t, "the agents are locked for amd64")
	}
	bin := installed(t)
	for _, a := range codingAgents {
		t.Run(a.id, func(t *testing.T) {
			b := newBot(t, plainConfig+"programs: {open: 100, per_hour: 1000}\n", newLedger(t, nil).url)
			if !b.start() {
				t.Fatal(b.log)
			}
			alice, bob := b.login("alice"), b.login("bob")
			cards := decisions(t, alice, bob)
			commands := session()
			s := newScriptedModel(t, commands...)
			work := filepath.Join(b.dir, "home-"+a.id, "work")
			prepare(t, work)
			out, took := a.run(t, bin, b, s, a.modes[0], true)
			if len(s.results) != len(commands) {
				open, _, _ := b.run("", "approvals", "-o", "json")
				t.Fatalf("%d of %d calls were made: %s\n%s", len(s.results), len(commands), out[max(0, len(out)-3000):], open)
			}
			ran, _ := os.ReadFile(filepath.Join(work, "ran"))
			if string(ran) != "1\n2\n3\n4\n5\n6\n7\n8\n" {
				t.Errorf("what ran is %q", ran)
			}
			if !isThere(filepath.Join(work, "src/a.txt")) || isThere(filepath.Join(work, "wrong-1")) || isThere(filepath.Join(work, "wrong-2")) {
				t.Error("something ran that people denied or changed")
			}
			if changed := a.id == "claude-code" || a.id == "opencode"; changed != (isThere(filepath.Join(work, "right-1")) && isThere(filepath.Join(work, "right-2"))) {
				t.Error("what people made of a command is not what ran")
			}
			if all := strings.Join(s.results, "\n"); strings.Count(all, "not today") < 2 {
				t.Errorf("the agent doesn't know why: %s", all)
			}
			if all := cards(); len(all) != 15 { // 12, and git three times: what it runs is in the configuration of a repository
				t.Errorf("%d cards: %q", len(all), all)
			}
			t.Logf("%s: %d calls, %d of them asked people, %.1f s", a.id, len(commands), len(cards()), took.Seconds())
			if a.id == "opencode" { // without the hook it asks nobody
				plain := newScriptedModel(t, commands...)
				work := filepath.Join(b.dir, "home-"+a.id+"-plain", "work")
				prepare(t, work)
				a.run(t, bin, b, plain, a.modes[0], false)
				ran, _ := os.ReadFile(filepath.Join(work, "ran"))
				t.Logf("%s without the hook: %d calls, it ran %q, and the file that people want to keep is there: %v", a.id, len(plain.results), ran, isThere(filepath.Join(work, "src/a.txt")))
			}
			if a.id == "claude-code" { // it says in the end what its own rules would have asked about
				plain := newScriptedModel(t, commands...)
				prepare(t, filepath.Join(b.dir, "home-"+a.id+"-plain", "work"))
				out, _ := a.run(t, bin, b, plain, a.modes[0], false)
				_, denied, _ := strings.Cut(out, `"permission_denials":[`)
				denied, _, _ = strings.Cut(denied, `],"terminal_reason"`)
				t.Logf("%s without the hook: %d of the %d calls ask", a.id, strings.Count(denied, `"tool_use_id"`), len(plain.results))
			}
		})
	}
}

// TestNothingRunsInAnyModeOfAnAgentWithoutAnAnswer runs one change in each mode: with a bot, of which
// people approve it, with a bot that is away, and with one that is killed while the card waits.
func TestNothingRunsInAnyModeOfAnAgentWithoutAnAnswer(t *testing.T) {
	needstest.Long(t)
	if runtime.GOARCH != "amd64" {
		needstest.Missing(t, "the agents are locked for amd64")
	}
	bin := installed(t)
	for _, a := range codingAgents {
		for _, m := range a.modes {
			for _, state := range []string{"up", "away", "killed"} {
				t.Run(a.id+", "+m.name+", bot "+state, func(t *testing.T) {
					t.Parallel()
					a := a
					b := newBot(t, plainConfig, newLedger(t, nil).url)
					if !b.start() {
						t.Fatal(b.log)
					}
					bob := b.login("bob")
					cards := func() int { return 0 }
					switch state {
					case "up":
						made := decisions(t, b.login("alice"), bob)
						cards = func() int { return len(made()) }
					case "away":
						a.before = b.kill
					case "killed":
						var asked atomic.Int64
						cards = func() int { return int(asked.Load()) }
						a.before = func() {
							go func() {
								for t.Context().Err() == nil && asked.Load() == 0 {
									var home struct{ Yours []any }
									if _, err := bob.do("GET", "/api/home", nil, &home); err == nil && len(home.Yours) > 0 {
										asked.Store(int64(len(home.Yours)))
										b.kill()
									}
									time.Sleep(20 * time.Millisecond)
								}
							}()
						}
					}
					s := newScriptedModel(t, "echo ran >> ran")
					work := filepath.Join(b.dir, "home-"+a.id, "work")
					prepare(t, work)
					out, took := a.run(t, bin, b, s, m, true)
					if len(s.results) != 1 {
						t.Fatalf("it ended before its work: %s", out[max(0, len(out)-3000):])
					}
					ran := isThere(filepath.Join(work, "ran"))
					t.Logf("asked people: %d, ran: %v, %.1f s; the model reads %.200s", cards(), ran, took.Seconds(), s.results[0])
					if want := state == "up" && m.runs; ran != want {
						t.Errorf("it ran: %v", ran)
					}
					if want := state != "away"; (cards() == 1) != want {
						t.Errorf("%d cards", cards())
					}
				})
			}
		}
	}
}

// programs builds small programs of ours into a directory.
func programs(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), "./cmd/"+name)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(string(out), err)
		}
	}
	return dir
}

// prepare makes a working directory with a repository.
func prepare(t *testing.T, dir string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, "notes.txt"), "one\ntwo\n")
	writeFile(t, filepath.Join(dir, "src/a.txt"), "a\n")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "begun"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(string(out), err)
		}
	}
}
