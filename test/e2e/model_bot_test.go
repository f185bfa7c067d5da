package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// TestModelBot lets the built bot work with an independent server, over both APIs:
// a proven read runs, a change waits for a person, a limit is waited for and a
// reply that breaks off is asked for again.
func TestModelBot(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "made")
	args := func(command string, mutation bool) string {
		b, _ := json.Marshal(map[string]any{"command": command, "risk": "low", "mutation": mutation, "privesc": false, "why": "the test asks for it"})
		return string(b)
	}
	calls, _ := json.Marshal([]map[string]any{
		{"id": "call_look", "name": "run_shell", "arguments": args("uptime", false)},
		{"id": "call_make", "name": "run_shell", "arguments": args("echo x >> "+file, true)},
	})
	s := newModelServer(t, fmt.Sprintf(`{"fixtures":[
 {"match":{"userMessage":"disk full","hasToolResult":false},"response":{"content":"Let me look.","reasoning":"let me think","toolCalls":%s},"latency":1,"chunkSize":7},
 {"match":{"userMessage":"disk full","hasToolResult":true},"response":{"content":"the end"}},
 {"match":{"userMessage":"limit","sequenceIndex":0},"response":{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"},"status":429,"retryAfter":1}},
 {"match":{"userMessage":"limit"},"response":{"content":"the end"}},
 {"match":{"userMessage":"cut","sequenceIndex":0},"response":{"content":"this will be cut somewhere"},"chunkSize":5,"latency":5,"truncateAfterChunks":6},
 {"match":{"userMessage":"cut"},"response":{"content":"the end"}}
]}`, calls))
	for _, api := range []string{"chat", "responses"} {
		t.Run(api, func(t *testing.T) {
			_ = os.Remove(file)
			c := &chatter{t: t, b: newBot(t, strings.TrimLeft(plainConfig, "\n"), s.url, "COUNTERSIGN_MODEL_API="+api, "COUNTERSIGN_MODEL_HEADERS=X-Test-Id=bot-"+api)}
			c.start()
			c.say("disk full", true)
			if made, err := os.ReadFile(file); err != nil || string(made) != "x\n" {
				t.Errorf("the approved command left %q, %v\n%s", made, err, c.detail())
			}
			c.say("limit", false)
			c.say("cut", false)
			sent := s.requests(t, "bot-"+api)
			// A request for each reply, and one more for the limit and the cut.
			if len(sent) != 6 {
				t.Fatalf("%d requests: %q", len(sent), sent)
			}
			turn := map[string]string{
				"chat":      "system user assistant+call+call tool tool",
				"responses": "system user reasoning assistant function_call function_call function_call_output function_call_output",
			}[api]
			next := map[string]string{"chat": " assistant user", "responses": " reasoning assistant user"}[api] // this server thinks before each response
			for i, want := range []string{"system user", turn, turn + next, turn + next, turn + next + next, turn + next + next} {
				if got := sent[i].places(t); got != want {
					t.Errorf("request %d is made of %s, want %s", i, got, want)
				}
			}
			if strings.Contains(c.detail(), "this will be cut") {
				t.Errorf("a reply that broke off is in the thread\n%s", c.detail())
			}
		})
	}
}
