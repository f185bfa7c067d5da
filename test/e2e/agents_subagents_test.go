package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// fullConfig offers everything, the built-in sub-agents too.
const fullConfig = "agent: {preset: full}" + plainConfig

// look is a command that is labelled as one that only reads.
func look(command string) call {
	return call{"run_shell", give(map[string]any{"command": command, "risk": "low", "mutation": false, "privesc": false, "why": "the test looks"})}
}

// handed is a call of a sub-agent's tool.
func handed(id, task string) call {
	return call{"sub_agent_" + id, give(map[string]any{"task": task})}
}

// checkNested checks what holds of every request of a sub-agent: it has exactly these
// tools, its own prompt, and nothing of the thread.
func checkNested(t *testing.T, s sent, prompt string, want ...string) {
	t.Helper()
	if got := sorted(s.names()); !slices.Equal(got, sorted(want)) {
		t.Errorf("the sub-agent has %q, want %q", got, sorted(want))
	}
	for _, n := range s.names() {
		if strings.HasPrefix(n, "sub_agent_") || n == "run_workflow" {
			t.Errorf("the sub-agent could hand work on: %s", n)
		}
	}
	if !strings.Contains(s.system(), prompt) {
		t.Errorf("the prompt %q is missing in:\n%s", prompt, s.system())
	}
	if strings.Contains(s.body, "marmalade") {
		t.Errorf("the sub-agent was told of the thread:\n%s", s.body)
	}
}

// progressOf is the one message that shows the progress of a sub-agent; there must not be a
// second.
func (c *chatter) progressOf(id string) string {
	c.t.Helper()
	var found []string
	for _, r := range c.rows() {
		if strings.HasPrefix(r.Text, "**"+id+"** · ") {
			found = append(found, r.Text)
		}
	}
	if len(found) != 1 {
		c.t.Errorf("%s has %d lines of progress: %q\n%s", id, len(found), found, c.page())
		return ""
	}
	return found[0]
}

// TestASubAgentOfTheConfigurationIsATool: a sub-agent that the configuration
// describes is a tool of every preset but none; it gets its task alone, works with its own tools, asks in
// the thread, and its last words are what the agent is told. Q-17.
//
func TestASubAgentOfTheConfigurationIsATool(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "made")
	model := newCrew(t,
		part{"TASK-locks", []turn{
			{text: "I look.", calls: []call{{"read_file", give(map[string]any{"path": "/etc/hostname"})}}},
			{calls: []call{{"sub_agent_code_explorer", give(map[string]any{"task": "deeper"})}}},
			{calls: []call{{"run_workflow", give(map[string]any{"name": "high-load"})}}},
			{calls: []call{shell("echo x >> " + file)}},
			{text: "The lock is held by 4711."},
		}},
		part{"marmalade", []turn{{text: "I ask the dba.", calls: []call{handed("dba", "TASK-locks: who holds the lock?")}}}},
	)
	c := model.enter(t, `
sub_agents:
  dba:
    description: Knows our PostgreSQL servers.
    prompt: |
      You look after PostgreSQL, in our own words.
    preset: none
    additional: [run_shell, read_file, read_output]
    when: [Queries wait for locks.]
`+plainConfig[1:])
	c.say("hello", false)
	first := model.last("hello")
	if !slices.Contains(first.names(), "sub_agent_dba") || slices.Contains(first.names(), "sub_agent_code_explorer") {
		t.Fatalf("offered are %q", first.names())
	}
	if !strings.Contains(first.body, "Knows our PostgreSQL servers.") || !strings.Contains(first.body, "Queries wait for locks.") {
		t.Error("the description is not what the configuration says")
	}
	before := c.ends()
	c.tell("the code word is marmalade, find the lock")
	c.sees("button: Approve (")
	if page := c.page(); !strings.Contains(page, "Made by: the sub-agent dba") || !strings.Contains(page, "Asked by: alice") {
		t.Errorf("the card does not say who made the call:\n%s", page)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it ran without asking: %v", err)
	}
	c.press("approve:")
	eventually(t, "the end", func() bool { return c.ends() > before }, c.shown)
	if n := lines(file); n != 1 {
		t.Errorf("the approved command ran %d times", n)
	}
	nested := model.last("TASK-locks")
	checkNested(t, nested, "You look after PostgreSQL, in our own words.", "run_shell", "read_file", "read_output")
	got := nested.results()
	if len(got) != 4 || !strings.HasPrefix(got[0], `{"harness_timestamp"`) || !strings.HasPrefix(got[3], `{"harness_timestamp"`) {
		t.Fatalf("%q", got)
	}
	for _, r := range got[1:3] {
		if !strings.HasPrefix(r, "Tool error: there is no tool ") {
			t.Errorf("a sub-agent that hands work on is told %q", r)
		}
	}
	parent := model.last("marmalade")
	if got := parent.results(); len(got) != 1 || !strings.HasPrefix(got[0], `{"harness_timestamp"`) || !strings.Contains(got[0], "The lock is held by 4711.") {
		t.Errorf("the agent was told %q", got)
	}
	if strings.Contains(parent.body, "I look.") || strings.Contains(parent.body, file) {
		t.Errorf("what the sub-agent did is in the agent's conversation:\n%s", parent.body)
	}
	if l := c.progressOf("dba"); l != "**dba** · 5 steps, 550 tokens · done" {
		t.Errorf("its line ends as %q", l)
	}
	if page := c.page(); strings.Contains(page, "The lock is held") || strings.Contains(page, "I look.") {
		t.Errorf("the words of the sub-agent are in the thread:\n%s", page)
	}
}

// repository is a small checkout with a commit.
func repository(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("git is missing: install it")
		}
		t.Skip("git is missing: install it to test the sub-agents that read code")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("pay.go", "package pay\n\n// Retry retries.\nfunc Retry() {}\n")
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "the first change"}} {
		cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return dir
}

// TestAgentsTheBuiltInSubAgents hands a task to each of the sub-agents that come with the
// program. Each gets its own tools and prompt and no more; what it looks at runs, what it
// changes asks in the thread, its report is the result..
func TestAgentsTheBuiltInSubAgents(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	dir := repository(t)
	searched := make(chan string, 10)
	search := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		searched <- r.URL.Query().Get("q")
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"query":"x","results":[{"url":"https://example.org/notes","title":"Release notes","content":"Fixed in 17.3."}]}`)
	}))
	t.Cleanup(search.Close)
	host := strings.TrimPrefix(search.URL, "http://")
	config := fullConfig + fmt.Sprintf("internet: {provider: searxng, search_url: %q, allow: [%q], unasked: true}\n", search.URL, host)

	indexer := []string{"indexer_search_code", "indexer_search_files", "indexer_analyze_file", "indexer_extract_symbols", "indexer_get_metrics", "indexer_detect_language"}
	for _, tt := range []struct {
		id, prompt string
		tools      []string
		calls      []call   // of the sub-agent
		told       []string // what is in its results
		asks       int      // how many of them ask
		effect     func() error
	}{
		{
			id: "code_explorer", prompt: "You find your way around a code base",
			tools: append([]string{"read", "grep", "find", "ls", "git_log", "git_status", "read_output"}, indexer...),
			calls: []call{
				{"indexer_search_code", give(map[string]any{"pattern": "func R[a-z]+", "path": dir})},
				{"grep", give(map[string]any{"pattern": "Retry", "path": dir})},
				{"git_status", give(map[string]any{"path": dir})},
			},
			told: []string{"pay.go", "pay.go", ""},
		},
		{
			id: "code_analyzer", prompt: "You work out what code really does",
			tools: append([]string{"read", "grep", "ls", "git_log", "git_diff", "read_output"}, indexer...),
			calls: []call{
				{"read", give(map[string]any{"path": filepath.Join(dir, "pay.go")})},
				{"git_log", give(map[string]any{"path": dir})},
			},
			told: []string{"func Retry() {}", "the first change"},
		},
		{
			id: "code_writer", prompt: "You make the change that the task describes",
			tools: []string{
				"read", "grep", "find", "ls", "indexer_search_code", "indexer_extract_symbols", "edit", "write_file", "create_file", "apply_patch",
				"run_shell", "git_status", "git_diff", "git_log", "read_output",
			},
			calls: []call{
				{"create_file", give(map[string]any{"path": filepath.Join(dir, "new.go"), "content": "package pay\n"})},
				shell("echo '// more' >> " + filepath.Join(dir, "new.go")),
			},
			told: []string{"new.go", `"exit_code":0`}, asks: 2,
			effect: func() error {
				if raw, err := os.ReadFile(filepath.Join(dir, "new.go")); err != nil || string(raw) != "package pay\n// more\n" {
					return fmt.Errorf("%q, %w", raw, err)
				}
				return nil
			},
		},
		{
			id: "researcher", prompt: "You find out what is known outside the house",
			tools: []string{"web_search", "web_fetch", "read_output", "time"},
			calls: []call{{"web_search", give(map[string]any{"query": "replication slots 17.2"})}},
			told:  []string{"https://example.org/notes"},
			effect: func() error {
				select {
				case q := <-searched:
					if q != "replication slots 17.2" {
						return fmt.Errorf("the search was for %q", q)
					}
					return nil
				default:
					return fmt.Errorf("nothing was searched")
				}
			},
		},
		{
			id: "shell_executor", prompt: "You carry out a series of commands",
			tools: []string{"run_bash_background", "get_background_status", "get_background_output", "interrupt_background_process", "run_shell", "read_file", "read_output", "time"},
			calls: []call{look("uptime"), shell("echo x >> " + filepath.Join(dir, "ran"))},
			told:  []string{`"exit_code":0`, `"exit_code":0`}, asks: 1,
			effect: func() error {
				if n := lines(filepath.Join(dir, "ran")); n != 1 {
					return fmt.Errorf("it ran %d times", n)
				}
				return nil
			},
		},
	} {
		t.Run(tt.id, func(t *testing.T) {
			var turns []turn
			for _, x := range tt.calls {
				turns = append(turns, turn{text: "A thought of mine.", calls: []call{x}})
			}
			model := newCrew(t,
				part{"TASK", append(turns, turn{text: "This is my report."})},
				part{"marmalade", []turn{{calls: []call{handed(tt.id, "TASK: do it.")}}}},
			)
			c := model.enter(t, config)
			c.tell("marmalade")
			for i := range tt.asks {
				eventually(t, "a card", func() bool { return len(c.cards()) == i+1 && len(c.buttons("approve:")) == 1 }, c.shown)
				if n := strings.Count(c.page(), "Made by: the sub-agent "+tt.id); n != i+1 {
					t.Errorf("%d of %d cards say who made the call:\n%s", n, i+1, c.page())
				}
				if model.count("marmalade") != 1 {
					t.Error("the agent went on while its sub-agent waits")
				}
				c.press("approve:")
			}
			eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
			if tt.effect != nil {
				if err := tt.effect(); err != nil {
					t.Errorf("%v\n%s", err, c.shown())
				}
			}
			if n := len(c.cards()); n != tt.asks {
				t.Errorf("%d cards, want %d: %q", n, tt.asks, c.cards())
			}
			parent, nested := model.last("marmalade"), model.last("TASK")
			if !slices.Contains(parent.names(), "sub_agent_"+tt.id) {
				t.Errorf("the preset full does not offer it: %q", parent.names())
			}
			checkNested(t, nested, tt.prompt, tt.tools...)
			got := nested.results()
			for i, want := range tt.told {
				if i >= len(got) || !strings.HasPrefix(got[i], `{"harness_timestamp"`) || !strings.Contains(got[i], want) {
					t.Errorf("result %d has no %q: %q", i+1, want, got)
				}
			}
			if got := parent.results(); len(got) != 1 || !strings.Contains(got[0], "This is my report.") {
				t.Errorf("the agent was told %q", got)
			}
			if strings.Contains(parent.body, "A thought of mine.") || strings.Contains(c.page(), "A thought of mine.") {
				t.Error("the thoughts of the sub-agent left it")
			}
			n := len(tt.calls) + 1
			if l, want := c.progressOf(tt.id), fmt.Sprintf("**%s** · %d steps, %d tokens · done", tt.id, n, 110*n); l != want {
				t.Errorf("its line ends as %q, want %q", l, want)
			}
		})
	}
}

// TestAgentsACardOfASubAgentOutlivesTheBot kills the bot while a sub-agent's card waits, and
// at moments around the beginning of the approved command. After the start the sub-agent goes
// on where it was: what had not begun runs once, and what may have begun, without a terminal
// that tells, is said to be unknown and is not run again.
//
func TestAgentsACardOfASubAgentOutlivesTheBot(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for _, tt := range []struct {
		name, point string // where the bot dies after Approve; "" is before
		ran         int
		told        string
	}{
		{"while people are asked", "", 1, `"exit_code":0`},
		{"when the vote is stored", "vote-stored", 1, `"exit_code":0`},
		{"before the command begins", "intent-stored", 1, `"exit_code":0`},
		{"when it is about to start", "command-noted", 0, "the outcome of this call is unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "ran")
			model := newCrew(t,
				part{"TASK", []turn{{calls: []call{look("uptime")}}, {calls: []call{shell("echo x >> " + file)}}, {text: "My report."}}},
				part{"marmalade", []turn{{calls: []call{handed("code_writer", "TASK: do it.")}}}},
			)
			c := &chatter{t: t, b: newBot(t, strings.TrimLeft(fullConfig, "\n"), model.url)}
			c.again("COUNTERSIGN_FAILPOINT=" + tt.point + ":1")
			c.tell("marmalade")
			c.sees("Made by: the sub-agent code_writer")
			asked := model.count("TASK")
			if tt.point == "" {
				c.b.kill()
				c.again()
				c.press("approve:")
			} else {
				button := c.buttons("approve:")[0]
				_, _ = c.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": "dies", "button": button}, nil)
				eventually(t, "the bot dies at "+tt.point, func() bool { return !c.b.alive() }, c.b.log.String)
				c.again()
			}
			eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
			if n := lines(file); n != tt.ran {
				t.Errorf("it ran %d times, want %d\n%s", n, tt.ran, c.shown())
			}
			if n := len(c.cards()); n != 1 {
				t.Errorf("%d cards: %q", n, c.cards())
			}
			nested := model.last("TASK")
			if got := nested.results(); len(got) != 2 || !strings.Contains(got[1], tt.told) {
				t.Errorf("the sub-agent was told %q", got)
			}
			if n := model.count("TASK"); n != asked+1 {
				t.Errorf("the sub-agent was asked %d times after %d: it began anew", n, asked)
			}
			if got := model.last("marmalade").results(); len(got) != 1 || !strings.Contains(got[0], "My report.") {
				t.Errorf("the agent was told %q", got)
			}
			if l := c.progressOf("code_writer"); l != "**code_writer** · 3 steps, 330 tokens · done" {
				t.Errorf("its line ends as %q", l)
			}
		})
	}
}

// TestAgentsADenialAndAStopReachASubAgent: a sub-agent learns why people said no, and a stop
// ends it with everything that it has open..
func TestAgentsADenialAndAStopReachASubAgent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ran")
	model := newCrew(t,
		part{"TASK", []turn{{calls: []call{shell("echo x >> " + file)}}, {text: "It was denied."}}},
		part{"marmalade", []turn{{calls: []call{handed("shell_executor", "TASK: do it.")}}}},
	)
	c := model.enter(t, fullConfig)
	c.tell("marmalade")
	c.sees("Made by: the sub-agent shell_executor")
	id := c.buttons("deny:")[0]
	if st, err := c.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": "no", "button": id, "reason": "not on a Friday"}, nil); err != nil || st != http.StatusOK {
		t.Fatalf("deny: %d %v", st, err)
	}
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	if got := model.last("TASK").results(); len(got) != 1 || !strings.Contains(got[0], "not on a Friday") {
		t.Errorf("the sub-agent was told %q", got)
	}
	if got := model.last("marmalade").results(); len(got) != 1 || !strings.Contains(got[0], "It was denied.") {
		t.Errorf("the agent was told %q", got)
	}

	c.tell("marmalade once more")
	eventually(t, "a second card", func() bool { return len(c.cards()) == 2 && len(c.buttons("approve:")) == 1 }, c.shown)
	asked := len(model.requests())
	c.tell("stop")
	c.sees("Stopped by alice.")
	eventually(t, "no button is left", func() bool { return len(c.buttons("approve:")) == 0 }, c.shown)
	c.tell("status")
	c.sees("Idle: I'm waiting for a message.")
	if n := lines(file); n != 0 || len(model.requests()) != asked {
		t.Errorf("after the denial and the stop it ran %d times, and the model was asked %d times more", n, len(model.requests())-asked)
	}
	// The next turn begins with a history that the model accepts.
	c.say("hello again", false)
	if got := model.last("hello again").results(); len(got) != 2 || !strings.Contains(got[1], "stopped by alice") {
		t.Errorf("the agent was told %q", got)
	}
}
