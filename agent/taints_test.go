package agent

import (
	"testing"

	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/taint"
)

// Names that a listing has found are what a command is about; those in a text that somebody wrote are told.
func TestNamesOfAListingAreNoWarning(t *testing.T) {
	for _, tc := range []struct {
		call llm.Call
		want string
	}{
		{llm.Call{Name: "run_shell", Args: `{"command":"ls -l logs"}`}, ""},
		{llm.Call{Name: "ls", Args: `{"path":"logs"}`}, ""},
		{llm.Call{Name: "run_shell", Args: `{"command":"cat README"}`}, `"debug.log.1" came from command output, not from a person.`},
		{llm.Call{Name: "read_file", Args: `{"path":"README"}`}, `"debug.log.1" came from the output of read_file, not from a person.`},
	} {
		tc.call.ID = "c1"
		entries := []history.Entry{{Reply: &history.Reply{Calls: []llm.Call{tc.call}}}, {Result: &history.Result{Call: "c1", Text: "debug.log.1"}}}
		if got := taint.Line("rm debug.log.1", taintSources(entries)); got != tc.want {
			t.Errorf("%s %s: %q", tc.call.Name, tc.call.Args, got)
		}
	}
}
