package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"countersign/adapters/slack/slackfake"
)

// TestAProgramsCardIsInTheTeamsChannel has programs ask in a channel of Slack, where the team decides.
func TestAProgramsCardIsInTheTeamsChannel(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t, slackfake.Config{}, newLedger(t, nil).url)
	w.bot.configure(t, slackConfig+"programs: {channel: \"slack:T1:COPS\"}\n")
	w.bot.env = append(w.bot.env, "XDG_CONFIG_HOME="+filepath.Join(w.bot.dir, "settings"))
	w.start()
	if _, errs, code := w.bot.run("", "login", w.bot.link(t, "alice")); code != 0 {
		t.Fatal(errs)
	}
	if out, errs, code := w.bot.run("", "exec", "--task", "release", "local", "--", "echo", "hi"); code != 0 || out != "hi\n" {
		t.Fatalf("a read: %d %s %s", code, out, errs)
	}
	ran := filepath.Join(w.bot.dir, "ran")
	var o, e logBuffer
	cmd := exec.CommandContext(t.Context(), binary, "exec", "--task", "release", "local", "--", "echo x >> "+ran)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = w.bot.env, w.bot.dir, &o, &e
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	root := ""
	eventually(t, "the program's thread", func() bool {
		for _, m := range w.Messages("COPS", "") {
			if m.BotID == "BBOT" && strings.Contains(m.Text+string(m.Blocks), "alice") {
				root = m.TS
			}
		}
		return root != ""
	}, func() string { return e.String() + w.bot.log.String() })
	w.sees("COPS", root, "echo x >> "+ran)
	w.sees("COPS", root, "Asked by alice")
	w.press("UBOB", "COPS", root, "Approve")
	if err := cmd.Wait(); err != nil || lines(ran) != 1 {
		t.Errorf("%v %s %s", err, o.String(), e.String())
	}
	roots := 0
	for _, m := range w.Messages("COPS", "") {
		if m.BotID == "BBOT" {
			roots++
		}
	}
	if roots != 1 {
		t.Errorf("%d threads for one task", roots)
	}
}
