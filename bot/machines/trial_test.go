package machines

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// A timer undoes as the button does: not what somebody else has changed since.
func TestATimerLeavesWhatSomebodyChangedSince(t *testing.T) {
	needstest.Long(t)
	needstest.Program(t, "bash", "a machine without it has no timers")
	sh := func(script, in string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
		cmd.Stdin = strings.NewReader(in)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	for _, tt := range []struct {
		name, then  string // what it is when its time is up
		end, leaves string
	}{
		{"nobody changed it", "new", "undone", "old"},
		{"somebody did", "theirs", "undo failed", "theirs"},
		{"the bot didn't see the end", "", "undone", "old"},
		{"it can't be looked at any more", "locked", "undone", "old"},
	} {
		for _, kind := range []string{"files", "a setting"} { // such as a rule of the firewall, a mount or a value of the kernel's
			t.Run(kind+": "+tt.name, func(t *testing.T) {
				dir := t.TempDir()
				file, timer := filepath.Join(dir, "f"), filepath.Join(dir, "timers", "request-x")
				write := func(text string) {
					if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				look, paths := stateScript+"\n! grep -q locked "+file+" || exit 4", file+"\x00"
				if kind != "files" {
					look, paths = "cat -- "+file+"; ! grep -q locked "+file+" || exit 4", "\x00"
				}
				sh(trialScript, paths, timer, "3600", "printf old >"+file, look)
				write("new")
				if tt.then != "" {
					sh(settleScript, "", timer, "after")
					write(tt.then)
				}
				end, note, err := trialEnd(sh(settleScript, "", timer, "now"))
				for ; end == "" && err == nil; end, note, err = trialEnd(sh(settleScript, "", timer, "look")) {
					if t.Context().Err() != nil {
						t.Fatal("it isn't undone")
					}
				}
				got, _ := os.ReadFile(file)
				if err != nil || string(end) != tt.end || string(got) != tt.leaves || (note == sayChangedSince) != (tt.end == "undo failed") {
					t.Errorf("%s, %q, %v; the file has %q", end, note, err, got)
				}
			})
		}
	}
}
