package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/internal/failpoint"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// trialConfig has changes on trial wait to be kept for a time that a test can wait for.
const trialConfig = plainConfig + "policy: {approve: {keep_within: 6s}}\n"

// onTrial approves the command "logs" so that it undoes itself, and returns what the directory was before
// and is then.
func onTrial(t *testing.T, config string) (c *chatter, dir, before, after string) {
	t.Helper()
	c, dir = rehearsing(t, config)
	before = tree(t, dir)
	c.previewed("logs", "Undo: ")
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
			if name != "plainly" {
				needstest.Long(t)
			}
			t.Parallel()
			c, dir, before, _ := onTrial(t, config)
			t.Cleanup(c.b.endTerminals)
			eventually(t, "it is undone", func() bool { return tree(t, dir) == before }, c.shown)
			c.sees("Undone: nobody kept it")
		})
	}
}

// The timer is the target's: it needs no bot.
func TestAChangeUndoesItselfWithoutTheBot(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	c, dir, before, _ := onTrial(t, trialConfig)
	c.b.kill()
	eventually(t, "it is undone", func() bool { return tree(t, dir) == before }, c.b.log.String)
	c.b.start()
	c.sees("Undone: nobody kept it")
}

func TestAKeptChangeStays(t *testing.T) {
	needstest.Long(t)
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

// A rule of the firewall that cuts the bot off its SSH target takes itself back, and the bot finds that out
// when the target answers again. What is rehearsed on a target over SSH is shown as well.
func TestARuleThatCutsTheBotOffTakesItselfBack(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	needstest.Program(t, "iptables", "apt-get install iptables")
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can change the firewall")
	}
	s := sshtest.Start(t, sshtest.Options{Shell: "bash", Root: true})
	rule := fmt.Sprintf("INPUT -p tcp --dport %d -j DROP", s.Port)
	there := func() bool {
		return exec.CommandContext(t.Context(), "sh", "-c", "iptables -C "+rule+" 2>/dev/null").Run() == nil
	}
	t.Cleanup(func() { _ = exec.Command("sh", "-c", "iptables -D "+rule+" 2>/dev/null").Run() })
	dir := t.TempDir()
	model := newCrew(t,
		part{"cut", []turn{{text: "I close the port.", calls: []call{shell("iptables -I " + rule)}}}},
		part{"look", []turn{{text: "I make a file.", calls: []call{shell("touch " + filepath.Join(dir, "new"))}}}})
	c := model.enter(t, fmt.Sprintf(`
agent: {target: web-1}
targets:
  web-1: {kind: ssh, host: %s, port: %d, user: %s, identities: [%s], known_hosts: [%s], tmux: false, approvers: [oncall]}
groups:
  oncall: {web: [alice, bob]}
policy: {approve: {keep_within: 8s}}
`, s.Host, s.Port, s.User, s.KeyFile, s.KnownHosts))
	c.previewed("look", "Rehearsed: creates "+filepath.Join(dir, "new"))
	ended := c.ends() // those that took too long to rehearse
	c.as("bob").press("deny:")
	eventually(t, "the end", func() bool { return c.ends() == ended+1 }, c.shown)
	c.previewed("cut", "Undo: iptables -D INPUT 1")
	c.as("bob").press("trial:")
	eventually(t, "the port is closed", there, c.shown)
	eventually(t, "the target took the rule back", func() bool { return !there() }, c.shown)
	c.sees("Undone: nobody kept it")
}

// What nothing would set a timer for isn't offered to undo itself, and can't be approved so by a press of
// one's own making.
func TestWhatCannotUndoItselfIsNotApprovedSo(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can make a view of the files")
	}
	file := filepath.Join(t.TempDir(), "new")
	model := newCrew(t, part{"later", []turn{{text: "I do it.", calls: []call{{"run_shell", give(map[string]any{
		"command": "touch " + file, "wait": false, "risk": "low", "mutation": true, "privesc": false, "why": "the test asks for it",
	})}}}}})
	c := model.enter(t, strings.Replace(trialConfig, "tmux: false, ", "", 1))
	c.previewed("later", "Rehearsed: creates "+file)
	if page := c.page(); strings.Contains(page, "Undo: ") || len(c.buttons("trial:")) > 0 {
		t.Errorf("it is offered a way back: %s", page)
	}
	approve := c.buttons("approve:")[0]
	if said := c.as("bob").click("trial:" + strings.TrimPrefix(approve, "approve:")); !strings.Contains(said, "can't undo itself") {
		t.Errorf("%q", said)
	}
	if len(c.buttons("approve:")) != 1 {
		t.Errorf("it was decided: %s", c.page())
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("it ran")
	}
}

// diedOnTrial approves the command "logs" so that it undoes itself, to a bot that dies at a point, and starts
// it again.
func diedOnTrial(t *testing.T, point failpoint.Point) (c *chatter, dir, before string) {
	t.Helper()
	c, dir = rehearsing(t, trialConfig)
	before = tree(t, dir)
	c.previewed("logs", "Undo: ")
	c.b.kill()
	c.again("COUNTERSIGN_FAILPOINT=" + string(point) + ":1")
	bob := c.as("bob")
	for _, id := range c.buttons("trial:") { // the bot may die before it answers
		_, _ = bob.p.do("POST", "/api/threads/"+c.thread+"/clicks", map[string]string{"id": "c1", "button": id}, &struct{}{})
	}
	select {
	case <-c.b.done:
	case <-time.After(20 * time.Second):
		t.Fatalf("the bot did not die\n%s", c.shown())
	}
	c.again()
	return c, dir, before
}

// A bot that dies between setting the timer and the run sets another one: the first must not take the change
// back that people keep.
func TestAKeptChangeStaysAfterACrash(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for _, point := range []failpoint.Point{failpoint.TimerSet, failpoint.OutcomeStored} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			c, dir, before := diedOnTrial(t, point)
			begin := time.Now()
			c.sees("done run_shell")
			after := tree(t, dir)
			if after == before {
				t.Fatalf("nothing happened\n%s", c.shown())
			}
			c.as("bob").press("keep:")
			c.sees("Kept by bob")
			for time.Since(begin) < 9*time.Second { // all timers are over by then
				if tree(t, dir) != after {
					t.Fatalf("it was undone\n%s", c.shown())
				}
				time.Sleep(time.Second)
			}
		})
	}
}

func TestAChangeUndoesItselfAfterACrashAtEachStep(t *testing.T) {
	t.Parallel()
	needstest.Long(t)
	for _, point := range []failpoint.Point{
		failpoint.VoteStored, failpoint.IntentStored, failpoint.TimerSet, failpoint.CommandNoted, failpoint.OutcomeStored, failpoint.ReplyPosted,
	} {
		t.Run(string(point), func(t *testing.T) {
			c, dir, before := diedOnTrial(t, point)
			c.sees("Undone: nobody kept it")
			if now := tree(t, dir); now != before {
				t.Errorf("it is\n%s\nand was\n%s", now, before)
			}
		})
	}
}
