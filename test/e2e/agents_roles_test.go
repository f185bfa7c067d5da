package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"countersign/adapters/slack/slackfake"
	"countersign/test/needstest"
)

// catalogue is what `bot tools --preset full` prints: the names, in order, and the level of
// each.
func catalogue(t *testing.T, b *bot) (names []string, levels map[string]string) {
	t.Helper()
	out, errs, code := b.run("", "tools", "--preset", "full", "--json")
	var list []struct {
		Function struct{ Name string } `json:"function"`
	}
	if code != 0 || json.Unmarshal([]byte(out), &list) != nil || len(list) < 30 {
		t.Fatalf("%d, %d tools: %s", code, len(list), errs)
	}
	for _, x := range list {
		names = append(names, x.Function.Name)
	}
	if out, errs, code = b.run("", "tools", "--preset", "full"); code != 0 {
		t.Fatal(errs)
	}
	levels = map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 2 {
			levels[f[0]] = f[1]
		}
	}
	return names, levels
}

// TestAgentsRolesDecideWhatAThreadIsOffered gives one thread each of the built-in roles
// in turn, and reads in the next request what the model may use..
func TestAgentsRolesDecideWhatAThreadIsOffered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "made")
	model := newCrew(t,
		part{"try to change", []turn{{calls: []call{
			{"write_file", give(map[string]any{"path": file, "content": "x"})},
			shell("echo x >> " + file),
			{"execute_code", give(map[string]any{"language": "python", "code": "open('" + file + "', 'w')"})},
			{"git_push", give(map[string]any{"path": dir})},
			{"read_file", give(map[string]any{"path": "/etc/hostname"})},
		}}}},
		part{"make the file", []turn{{calls: []call{{"write_file", give(map[string]any{"path": file, "content": "x"})}}}}},
	)
	c := model.enter(t, plainConfig)
	all, levels := catalogue(t, c.b)

	// Without a role the agent is as the configuration says.
	c.say("hello", false)
	plain := model.last("hello").names()
	if !slices.Contains(plain, "run_shell") || slices.Contains(plain, "execute_code") || len(plain) >= len(all) {
		t.Fatalf("without a role: %q", plain)
	}

	c.tell("role oracle")
	c.sees("From the next step on I'm `oracle`.")
	c.say("try to change it", false)
	req := model.last("try to change it")
	names := req.names()
	for _, n := range names {
		if levels[n] != "read" {
			t.Errorf("X-23: the oracle has %s, which is of level %q", n, levels[n])
		}
	}
	for n, level := range levels {
		nested := strings.HasPrefix(n, "sub_agent_") || n == "run_workflow"
		commands := n == "run_shell" || n == "git_branch" || n == "git_stash" // a text decides what they do
		if level == "read" && !nested && !commands != slices.Contains(names, n) {
			t.Errorf("X-23: offered is %v of %s", slices.Contains(names, n), n)
		}
	}
	for _, n := range []string{"run_shell", "bash", "execute_code", "write_file", "edit", "delete_file", "apply_patch", "propose_plan", "run_bash_background", "sub_agent_code_writer", "run_workflow"} {
		if slices.Contains(names, n) {
			t.Errorf("X-23: the oracle has %s", n)
		}
	}
	if !strings.Contains(req.system(), "You are asked what is going on. You look and explain; you change nothing") {
		t.Errorf("X-23: the prompt of the oracle is missing in:\n%s", req.system())
	}
	got := req.results()
	if len(got) != 5 || !strings.HasPrefix(got[4], `{"harness_timestamp"`) {
		t.Fatalf("%q", got)
	}
	for i, r := range got[:4] {
		if !strings.HasPrefix(r, "Tool error: ") {
			t.Errorf("X-23: change %d was answered %q", i+1, r)
		}
	}
	if cards := c.cards(); len(cards) != 0 {
		t.Errorf("X-23: a change of the oracle is asked for: %q", cards)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("X-23: the oracle changed something: %v", err)
	}

	c.tell("role architect")
	c.sees("From the next step on I'm `architect`.")
	c.say("what do you think", false)
	if req = model.last("what do you think"); req.raw["tools"] != nil || req.raw["tool_choice"] != nil || req.raw["messages"] == nil {
		t.Errorf("X-24: tools is %s", req.raw["tools"])
	}
	if !strings.Contains(req.system(), "You have no tools and see nothing but this thread") || strings.Contains(req.system(), "You are asked what is going on.") {
		t.Errorf("X-24: %s", req.system())
	}
	// What is called all the same is not there.
	c.say("try to change it again", false)
	for i, r := range model.last("again").results()[5:] {
		if !strings.HasPrefix(r, "Tool error: ") {
			t.Errorf("X-24: call %d was answered %q", i+1, r)
		}
	}

	// A role outlives the program.
	c.b.stop()
	c.again()
	c.say("still the same?", false)
	if model.last("still the same?").raw["tools"] != nil {
		t.Error("the role is gone after a restart")
	}

	for _, role := range []string{"seraph", "operator"} {
		c.tell("role " + role)
		c.sees("From the next step on I'm `" + role + "`.")
		c.say("and now as "+role, false)
		if got := model.last("and now as " + role).names(); !slices.Equal(sorted(got), sorted(all)) {
			t.Errorf("X-25, X-26: %s has %q, and everything is %q", role, got, all)
		}
	}
	// All tools is not all rights.
	before := c.ends()
	c.tell("make the file")
	c.sees("button: Approve (")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the operator wrote without asking: %v", err)
	}
	c.press("approve:")
	eventually(t, "the file is made", func() bool { _, err := os.Stat(file); return err == nil }, c.shown)
	eventually(t, "the end", func() bool { return c.ends() > before }, c.shown)

	c.tell("role default")
	c.sees("From the next step on I work as configured, without a role.")
	c.say("back again", false)
	if got := model.last("back again").names(); !slices.Equal(got, plain) {
		t.Errorf("after role default: %q", got)
	}
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

// TestAgentsRolesOfTheConfigurationAndOfAChannel: the role of agent.role is that of threads
// that nobody gave another one, and a channel may have its own..
func TestAgentsRolesOfTheConfigurationAndOfAChannel(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	t.Run("agent.role", func(t *testing.T) {
		model := newCrew(t)
		c := model.enter(t, "agent: {role: oracle}"+plainConfig)
		c.say("hello", false)
		if names := model.last("hello").names(); slices.Contains(names, "run_shell") || !slices.Contains(names, "grep") {
			t.Errorf("offered are %q", names)
		}
		c.tell("role")
		c.sees("| `oracle` (now) | Looks and explains")
		c.tell("role default")
		c.sees("I work as configured")
		c.say("and now", false)
		if names := model.last("and now").names(); !slices.Contains(names, "run_shell") {
			t.Errorf("after role default: %q", names)
		}
	})
	t.Run("the role of a channel", func(t *testing.T) {
		model := newCrew(t)
		w := newWorkspace(t, slackfake.Config{}, model.url)
		config := strings.ReplaceAll(slackConfig, "id: CLOOK, mode: readonly", "id: CLOOK, role: architect")
		if err := os.WriteFile(filepath.Join(w.bot.dir, "bot.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		w.start()
		for _, channel := range []string{"CLOOK", "COPS"} {
			root := w.ask("UALICE", channel, "hello from "+channel)
			w.sees(channel, root, "the end")
			if none := model.last("hello from " + channel).raw["tools"] == nil; none != (channel == "CLOOK") {
				t.Errorf("in %s there are no tools: %v", channel, none)
			}
		}
	})
}
