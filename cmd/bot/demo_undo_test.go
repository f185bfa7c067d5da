package main

import (
	"strings"
	"testing"

	"countersign/agent/llm/openai/openaitest"
	"countersign/cli/incident"
)

// After an undo of a command the demo's model looks how the service is, and doesn't go on with its story.
func TestTheDemosModelLooksAfterAnUndo(t *testing.T) {
	call := func(name string) openaitest.Message {
		return openaitest.Message{Role: "assistant", Calls: []openaitest.Call{{Name: name}}}
	}
	said, tool := openaitest.Message{Role: "user", Text: incident.Opening}, openaitest.Message{Role: "tool"}
	undone := []openaitest.Message{said, call("run_shell"), tool, call("undo_command"), tool}
	for _, tc := range []struct {
		all   []openaitest.Message
		ok    bool
		last  string
		reply string
	}{
		{undone[:3], false, "", ""},
		{undone, true, "", "I'll check"},
		{append(undone[:5:5], call("run_shell"), tool), true, "unhealthy: cannot write order 4711", "refuses orders again"},
		{append(undone[:5:5], call("run_shell"), tool), true, "healthy: last order 4712", "still accepts"},
		{append(undone[:5:5], said), false, "", ""},
	} {
		calls, ok := sinceUndo(openaitest.Conversation{All: tc.all})
		if ok != tc.ok || ok && !strings.Contains(incident.Undone(calls > 0, tc.last).Text, tc.reply) {
			t.Errorf("%+v: %d, %v", tc.all, calls, ok)
		}
	}
}
