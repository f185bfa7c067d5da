package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// TestCallsOfOneReplyAreApprovedTogether: one card, one press, and each command runs in its
// turn, also in a terminal that the first of them makes.
func TestCallsOfOneReplyAreApprovedTogether(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"plainly": plainConfig, "in a terminal": strings.Replace(plainConfig, "tmux: false, ", "", 1)} {
		t.Run(name, func(t *testing.T) {
			if config != plainConfig {
				needstest.Program(t, "tmux", "apt-get install tmux")
			}
			dir := t.TempDir()
			a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			model := newCrew(t, part{"both", []turn{{text: "I make both files.", calls: []call{shell("mkdir " + a), shell("cp -r " + a + " " + b)}}}})
			c := model.enter(t, config)
			t.Cleanup(c.b.endTerminals)
			c.tell("both")
			c.sees("button: Approve all 2 (approve:")
			c.as("bob").press("approve:")
			eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
			for _, f := range []string{a, b} {
				if _, err := os.Stat(f); err != nil {
					t.Errorf("%v\n%s", err, c.shown())
				}
			}
			if cards := c.cards(); len(cards) != 1 || !strings.Contains(c.page(), "2 of 2 done") {
				t.Errorf("%d cards: %s", len(cards), c.page())
			}
		})
	}
}
