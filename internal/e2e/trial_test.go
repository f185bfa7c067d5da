package e2e

import (
	"strings"
	"testing"
	"time"
)

// trialConfig has changes on trial wait to be kept for a time that a test can wait for.
const trialConfig = plainConfig + "policy: {approve: {keep_within: 6s}}\n"

// onTrial approves the command "logs" so that it undoes itself, and returns what the directory was before
// and is then.
func onTrial(t *testing.T, config string) (c *chatter, dir, before, after string) {
	t.Helper()
	c, dir = rehearsing(t, config)
	before = tree(t, dir)
	c.previewed("logs", "One press back: ")
	c.as("bob").press("trial:")
	c.sees("Undo: restores 3 files")
	c.sees("done run_shell")
	if after = tree(t, dir); after == before {
		t.Fatalf("nothing happened\n%s", c.shown())
	}
	return c, dir, before, after
}

func TestAChangeThatNobodyKeepsUndoesItself(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"plainly": trialConfig, "in a terminal": strings.Replace(trialConfig, "tmux: false, ", "", 1)} {
		t.Run(name, func(t *testing.T) {
			c, dir, before, _ := onTrial(t, config)
			t.Cleanup(c.b.endTerminals)
			eventually(t, "it is undone", func() bool { return tree(t, dir) == before }, c.shown)
			c.sees("Undone: nobody kept it")
		})
	}
}

// The timer is the target's: it needs no bot.
func TestAChangeUndoesItselfWithoutTheBot(t *testing.T) {
	t.Parallel()
	c, dir, before, _ := onTrial(t, trialConfig)
	c.b.kill()
	eventually(t, "it is undone", func() bool { return tree(t, dir) == before }, c.b.log.String)
	c.b.start()
	c.sees("Undone: nobody kept it")
}

func TestAKeptChangeStays(t *testing.T) {
	t.Parallel()
	c, dir, _, after := onTrial(t, trialConfig)
	begin := time.Now()
	if said := c.press("keep:"); !strings.Contains(said, "approve") && !strings.Contains(said, "ask") {
		t.Errorf("who asked for it may not keep it: %q", said)
	}
	c.as("bob").press("keep:")
	c.sees("Kept by bob")
	// There is nothing to wait for but the end of its time.
	for time.Since(begin) < 9*time.Second {
		if tree(t, dir) != after {
			t.Fatal("it was undone")
		}
		time.Sleep(time.Second)
	}
}

func TestAChangeIsUndoneNow(t *testing.T) {
	t.Parallel()
	c, dir, before, _ := onTrial(t, strings.Replace(trialConfig, "6s", "10m", 1))
	c.press("undo-now:")
	eventually(t, "it is undone", func() bool { return tree(t, dir) == before }, c.shown)
	c.sees("Undone by alice")
}
