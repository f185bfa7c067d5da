package machines

import (
	"testing"

	"countersign/config"
)

// TestToolsWhereEachChangeTakesACertificate: whatever changes something there is a command with a
// certificate, or keys for a terminal whose account can't change files.
func TestToolsWhereEachChangeTakesACertificate(t *testing.T) {
	want := map[string]bool{
		"run_shell": true, "read_file": true, "grep": true, "ls": true, "send-keys": true, "capture-pane": true, "git_status": true,
		"bash": false, "execute_code": false, "write_file": false, "edit": false, "delete_file": false, "apply_patch": false, "undo": false, "run_bash_background": false, "git_commit": false,
	}
	for _, tool := range Patterns(config.ToolsConfig{}) {
		s := tool.Spec()
		if offered, ok := want[s.Name]; ok {
			if withCertificate(s) != offered {
				t.Errorf("%s is offered: %v", s.Name, !offered)
			}
			delete(want, s.Name)
		}
	}
	for name := range want {
		t.Errorf("there is no tool %s", name)
	}
}
