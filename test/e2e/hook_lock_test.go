package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"countersign/test/needstest"
)

// TestAHookHoldsReadsUnderALock lets an agent run what is a read only under a lock, and rewrites it so
// that the lock holds it: what it would change stays as it is.
func TestAHookHoldsReadsUnderALock(t *testing.T) {
	t.Parallel()
	lock := filepath.Join(programs(t, "countersign-lock"), "countersign-lock")
	if out, err := exec.CommandContext(t.Context(), lock, "check").CombinedOutput(); err != nil {
		needstest.Missing(t, "a kernel that locks: "+string(out))
	}
	b := newBot(t, plainConfig, newLedger(t, nil).url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"), "SHELL=/bin/bash")
	if !b.start() {
		t.Fatal(b.log)
	}
	if _, errs, code := b.run("", "login", b.link(t, "alice")); code != 0 {
		t.Fatal(errs)
	}
	ask := func(program, command string) (out string) {
		out, errs, code := b.run(hooked{t, b, program}.event(command, nil), "hook", program, "--lock", lock)
		if code != 0 {
			t.Errorf("%s: %s", command, errs)
		}
		return out
	}
	loop := `for f in *.yaml; do wc -l "$f"; done`
	var said struct {
		Out struct {
			Decision string `json:"permissionDecision"`
			Input    struct {
				Command string `json:"command"`
			} `json:"updatedInput"`
		} `json:"hookSpecificOutput"`
	}
	if err := json.Unmarshal([]byte(ask("claude-code", loop)), &said); err != nil || said.Out.Decision != "allow" || !strings.Contains(said.Out.Input.Command, "countersign-lock") {
		t.Fatalf("%+v %v", said, err)
	}
	run := exec.CommandContext(t.Context(), "bash", "-c", said.Out.Input.Command)
	run.Dir = b.dir
	if out, err := run.CombinedOutput(); err != nil || !strings.Contains(string(out), "bot.yaml") {
		t.Errorf("it runs as %s %v", out, err)
	}
	// The same lock around something that isn't a read.
	file := filepath.Join(b.dir, "kept")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	held := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(said.Out.Input.Command, `wc -l "$f"`, "rm -f "+file))
	held.Dir = b.dir
	_ = held.Run() // it is refused
	if _, err := os.Stat(file); err != nil {
		t.Error("the lock doesn't hold it")
	}
	if out := ask("claude-code", "ls"); strings.Contains(out, "countersign-lock") || !strings.Contains(out, `"allow"`) {
		t.Errorf("a plain read is %s", out)
	}
	// An agent that runs only what it asked for can't be given a lock, and the shell's own directory would be lost in one.
	for program, command := range map[string]string{"codex": loop, "claude-code": "cd /tmp && " + loop} {
		_, _, _, stop := hooked{t, b, program}.waits(hooked{t, b, program}.event(command, map[string]any{"session_id": program}))
		stop(syscall.SIGTERM)
	}
}
