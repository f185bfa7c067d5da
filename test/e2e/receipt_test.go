package e2e

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/container/enginetest"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// receipted is a conversation in which the model runs the script "work" in a directory, whose last line only
// works outside of a rehearsal.
func receipted(t *testing.T, config, extra string, env ...string) (c *chatter, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can record")
	}
	needstest.ProcessEvents(t)
	dir = shortDir(t)
	script := "echo done >" + dir + "/result\n[ ! -d /sys/kernel ] || { " + strings.ReplaceAll(extra, "DIR", dir) + "\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "work"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return newCrew(t, part{"work", []turn{{text: "I do it.", calls: []call{shell("sh " + dir + "/work")}}}}).enter(t, config, env...), dir
}

// runs approves the open card, and returns it when the command has ended.
func (c *chatter) runs(want string) string {
	c.t.Helper()
	c.as("bob").press("approve:")
	eventually(c.t, "the end", func() bool { return strings.Contains(c.lastCard(), want) }, c.shown)
	return c.lastCard()
}

func TestACommandThatDoesWhatItsRehearsalShowedIsAsApproved(t *testing.T) {
	terminal := strings.Replace(plainConfig, "tmux: false, ", "", 1)
	for name, config := range map[string]string{"plain": plainConfig, "terminal": terminal, "terminal elsewhere": terminal} {
		t.Run(name, func(t *testing.T) {
			var env []string
			if name == "terminal elsewhere" {
				env = append(env, "TMUX_TMPDIR="+shortDir(t))
			}
			c, dir := receipted(t, config, "true", env...)
			c.previewed("work", "creates 1 file with a generated name in "+dir)
			if got := c.runs("exit 0"); !strings.Contains(got, "exit 0 · as approved") || strings.Contains(got, "Also") {
				t.Error(got)
			}
		})
	}
}

func TestACommandThatDoesMoreThanItsRehearsalShowedIsRed(t *testing.T) {
	for name, config := range map[string]string{"plain": plainConfig, "terminal": strings.Replace(plainConfig, "tmux: false, ", "", 1)} {
		t.Run(name, func(t *testing.T) {
			c, dir := receipted(t, config, "mkdir DIR/.ssh; echo key >>DIR/.ssh/authorized_keys")
			c.previewed("work", "creates 1 file with a generated name in "+dir)
			got := c.runs("exit 0")
			if !strings.Contains(got, "Also: wrote "+filepath.Join(dir, ".ssh/authorized_keys")) || strings.Contains(got, "as approved") {
				t.Error(got)
			}
		})
	}
}

// Names that look like the bot's own files, and are none of this run's, hide nothing.
func TestFilesThatImitateTheBotsOwnAreRed(t *testing.T) {
	own := "/tmp/countersign-" + strings.ToLower(rand.Text())
	t.Cleanup(func() { _ = os.Remove(own) })
	mark := `m=$(tr '\0' '\n' </proc/$PPID/cmdline | sed -n 's|.*/running/local/||p' | head -n1); `
	for name, config := range map[string]string{"plain": plainConfig, "terminal": strings.Replace(plainConfig, "tmux: false, ", "", 1)} {
		t.Run(name, func(t *testing.T) {
			c, dir := receipted(t, config, mark+"echo x >DIR/1$m; echo x >DIR/2_history; echo x >"+own)
			c.previewed("work", "creates 1 file with a generated name in "+dir)
			got := c.runs("Also: ")
			for _, want := range []string{filepath.Join(dir, "1"), filepath.Join(dir, "2_history"), own} {
				if !strings.Contains(got, want) {
					t.Errorf("%s isn't told: %s", want, got)
				}
			}
		})
	}
}

func TestAReceiptComesOverSSH(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{Shell: "bash", Root: true})
	config := strings.Replace(plainConfig, "{kind: local, tmux: false, approvers: [oncall]}", sshTarget(s, ", known_hosts: ["+s.KnownHosts+"], tmux: false"), 1)
	c, dir := receipted(t, config, "echo key >>DIR/.bashrc; setsid sleep 20.5 >/dev/null 2>&1 &")
	c.previewed("work", "creates 1 file with a generated name in "+dir)
	got := c.runs("Also: ")
	if !strings.Contains(got, "Also: wrote "+filepath.Join(dir, ".bashrc")+"; left s") {
		t.Error(got)
	}
}

// An account that isn't root compares: names tell what is gone and what moved, and what its terminal was left running
// has that as its parent.
func TestAComparedReceiptTellsWhatIsGoneAndWhatIsLeft(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	dir := owned(t, s, "work")
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := strings.Replace(plainConfig, "{kind: local, tmux: false, approvers: [oncall]}", sshTarget(s, ", known_hosts: ["+s.KnownHosts+"]"), 1)
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("cd " + dir + " && mv a c && rm -f b && touch -d yesterday d && { sleep 33.25 >/dev/null 2>&1 & }")}}}}).enter(t, config)
	t.Cleanup(func() { endOn(t, s, c.b) })
	c.tell("do")
	eventually(t, "the card", func() bool { return len(c.buttons("approve:")) == 1 }, c.shown)
	got := c.runs("\nReceipt: ")
	for _, want := range []string{"deleted " + dir + "/a, " + dir + "/b", "wrote " + dir + "/c, " + dir + "/d", "sleep ("} {
		if !strings.Contains(got, want) {
			t.Errorf("it doesn't say %s: %s", want, got)
		}
	}
}

// Nobody recorded meanwhile, so it is looked at afterwards.
func TestACommandThatTheBotDidNotSeeEndHasAReceipt(t *testing.T) {
	c, dir := receipted(t, plainConfig, "sleep 3; echo '# planted' >/etc/cron.d/countersign-planted-2")
	t.Cleanup(func() { _ = os.Remove("/etc/cron.d/countersign-planted-2") })
	c.previewed("work", "creates 1 file with a generated name in "+dir)
	c.as("bob").press("approve:")
	eventually(t, "it runs", func() bool { _, err := os.Stat(filepath.Join(dir, "result")); return err == nil }, c.shown)
	c.b.kill()
	c.start()
	eventually(t, "the receipt", func() bool {
		return strings.Contains(c.lastCard(), "Also, by it or by somebody else: wrote /etc/cron.d/countersign-planted-2")
	}, c.shown)
	if !strings.Contains(c.lastCard(), "exit 0") {
		t.Error(c.lastCard())
	}
}

// What stands by for a receipt while a card waits is there once, and ends with the bot.
func TestWhatStandsByForAReceiptEndsWithTheBot(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	box := engine.Run(t, enginetest.Debian)
	c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("touch /tmp/one")}}}}).enter(t, boxConfig(engine, box, ""))
	stands := func() int {
		return strings.Count(engine.CLI(t, "exec", box, "sh", "-c", "cat /proc/[0-9]*/comm || true"), "perl")
	}
	c.tell("do")
	eventually(t, "something stands by", func() bool { return stands() == 1 }, c.shown)
	c.b.kill()
	eventually(t, "it ends", func() bool { return stands() == 0 }, func() string { return "" })
}

// boxConfig is a configuration whose target is a container.
func boxConfig(e *enginetest.Engine, box, more string) string {
	return fmt.Sprintf("agent: {target: box}\ntargets:\n  box: {kind: container, container: %s, engine: %q, tmux: false, %sapprovers: [oncall]}\ngroups:\n  oncall: {web: [alice, bob]}\n", box, e.Host, more)
}

// TestWhatAReceiptCosts says how long an approved command that takes 100 ms takes with and without a receipt,
// from the press to the result.
func TestWhatAReceiptCosts(t *testing.T) {
	needstest.Long(t)
	const n = 30
	bots := map[string]*chatter{}
	engine := enginetest.Docker(t)
	box := engine.Run(t, enginetest.Debian)
	for name, config := range map[string]string{
		"without":                strings.Replace(plainConfig, "tmux: false, ", "tmux: false, rehearse: off, receipts: off, ", 1),
		"with":                   strings.Replace(plainConfig, "tmux: false, ", "tmux: false, rehearse: off, ", 1),
		"without, in containers": boxConfig(engine, box, "rehearse: off, receipts: off, "),
		"with, in containers":    boxConfig(engine, box, "rehearse: off, "), // compared
	} {
		file := "/tmp/receipt-" + rand.Text()
		t.Cleanup(func() { _ = os.Remove(file) })
		bots[name] = newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell("sleep 0.1; echo x >>" + file)}}}}).enter(t, config)
	}
	bobs := map[string]*chatter{}
	took := map[string][]time.Duration{}
	for i := range n {
		for name, c := range bots { // by turns
			c.tell("do")
			eventually(t, "the card", func() bool { return len(c.buttons("approve:")) == 1 }, c.shown)
			id := c.buttons("approve:")[0]
			if bobs[name] == nil {
				bobs[name] = c.as("bob")
			}
			time.Sleep(250 * time.Millisecond) // a person reads the card
			begin := time.Now()
			bobs[name].click(id)
			for !strings.Contains(c.lastCard(), "exit 0") {
				time.Sleep(4 * time.Millisecond)
				if time.Since(begin) > time.Minute {
					t.Fatal(c.shown())
				}
			}
			if i >= 5 {
				took[name] = append(took[name], time.Since(begin))
			}
			eventually(t, "the end", func() bool { return c.ends() == i+1 }, c.shown)
		}
	}
	for name, all := range took {
		slices.Sort(all)
		t.Logf("%s a receipt: %v (from %v to %v)", name, all[len(all)/2], all[0], all[len(all)-1])
	}
}
