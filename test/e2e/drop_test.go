package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStepsOfAPlanCanBeDropped: people take a step out of a plan before they approve it. The
// rest runs without another card, and the agent learns what to leave out.
func TestStepsOfAPlanCanBeDropped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	commands := []string{"mkdir " + filepath.Join(dir, "a"), "mkdir " + filepath.Join(dir, "b"), "mkdir " + filepath.Join(dir, "c")}
	var steps []map[string]any
	for _, c := range commands {
		steps = append(steps, map[string]any{"tool": "run_shell", "arguments": map[string]any{"command": c, "risk": "medium", "mutation": true, "privesc": false, "why": "to have it"}})
	}
	model := newCrew(t, part{"three", []turn{
		{calls: []call{{"propose_plan", give(map[string]any{"summary": "Makes three.", "steps": steps, "risk": "medium", "mutation": true, "privesc": false, "why": "to have them"})}}},
		{calls: []call{{"run_shell", give(steps[0]["arguments"].(map[string]any))}}},
		{calls: []call{{"run_shell", give(steps[2]["arguments"].(map[string]any))}}},
	}})
	c := model.enter(t, plainConfig)
	c.tell("three")
	c.sees("button: Approve all 3 (approve:")
	c.sees("button: Drop steps (edit:")
	bob := c.as("bob")
	bob.edit(bob.buttons("edit:")[0], "1 3")
	c.sees("button: Approve all 2 (approve:")
	c.sees("Shortened: by bob")
	bob.press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	for name, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v\n%s", name, err, c.shown())
		}
	}
	if cards := c.cards(); len(cards) != 2 || !strings.Contains(c.page(), "2 of 2 done") {
		t.Errorf("%d cards: %s", len(cards), c.page())
	}
	if told := strings.Join(model.last("three").results(), "\n"); !strings.Contains(told, "people dropped step 2 (run_shell): leave those out") {
		t.Errorf("the agent was told %s", told)
	}
}
