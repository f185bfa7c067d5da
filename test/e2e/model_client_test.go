package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"countersign/agent/llm"
	"countersign/agent/llm/openai"
)

const clientFixtures = `{"fixtures":[
 {"match":{"userMessage":"disk full","hasToolResult":false},
  "response":{"content":"Let me look.","reasoning":"let me think","toolCalls":[
    {"id":"call_df_1","name":"run_shell","arguments":{"command":"df -h /var"}},
    {"id":"call_uptime_1","name":"run_shell","arguments":"{\"command\":\"uptime\"}"}]},
  "latency":1,"chunkSize":7},
 {"match":{"userMessage":"disk full","hasToolResult":true},
  "response":{"content":"Disk /var is at 97 percent.","usage":{"prompt_tokens":321,"completion_tokens":17,"total_tokens":338,"input_tokens":321,"output_tokens":17}}},
 {"match":{"userMessage":"limit","sequenceIndex":0},"response":{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"},"status":429,"retryAfter":7}},
 {"match":{"userMessage":"limit"},"response":{"content":"after the limit"}},
 {"match":{"userMessage":"cut","sequenceIndex":0},"response":{"content":"this will be cut somewhere"},"chunkSize":5,"latency":5,"truncateAfterChunks":6},
 {"match":{"userMessage":"cut"},"response":{"content":"whole"}},
 {"match":{"userMessage":"gone","sequenceIndex":0},"response":{"content":"this will end"},"chunkSize":2,"latency":30,"disconnectAfterMs":60},
 {"match":{"userMessage":"gone"},"response":{"content":"whole"}},
 {"match":{"userMessage":"lengthy"},"response":{"content":"abc","finishReason":"length"}},
 {"match":{"userMessage":"other","model":"first"},"response":{"error":{"message":"overloaded","type":"server_error"},"status":503}},
 {"match":{"userMessage":"other","model":"second"},"response":{"content":"from the second"}},
 {"match":{"userMessage":"key"},"response":{"error":{"message":"bad key","type":"authentication_error"},"status":401}}
]}`

// TestModelClient lets the client work with an independent server, over both APIs.
func TestModelClient(t *testing.T) {
	t.Parallel()
	s := newModelServer(t, clientFixtures)
	for _, api := range []string{"chat", "responses"} {
		t.Run(api, func(t *testing.T) { modelClient(t, s, api) })
	}
	t.Run("azure", func(t *testing.T) {
		c, err := openai.New(openai.Config{APIKey: "k-not-a-key", BaseURL: s.url + "/openai/deployments/prod?api-version=2025-01-01-preview", Headers: map[string]string{"X-Test-Id": "azure"},
			Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Reply(t.Context(), llm.Request{Items: []llm.Item{{Role: llm.User, Text: "limit"}}}, nil)
		if err != nil || r.Text != "after the limit" || r.Model != "prod" {
			t.Fatal(r, err)
		}
		if j := s.journal(t, "azure"); len(j) != 2 || j[1].Headers["api-key"] == "" || j[1].Headers["authorization"] != "" || !strings.Contains(j[1].Path, "/deployments/prod/chat/completions") {
			t.Errorf("%+v", j)
		}
	})
}

func modelClient(t *testing.T, s *modelServer, api string) {
	type script struct {
		id    string
		waits []time.Duration
		shown string
		notes []string
	}
	ask := func(t *testing.T, x *script, c openai.Config, items ...llm.Item) (llm.Reply, error) {
		t.Helper()
		c.APIKey, c.BaseURL, c.API, c.Headers = "k-not-a-key", s.url+"/v1", api, map[string]string{"X-Test-Id": x.id}
		if c.Model == "" {
			c.Model = "gpt-test"
		}
		c.Sleep = func(ctx context.Context, d time.Duration) error { x.waits = append(x.waits, d); return ctx.Err() }
		m, err := openai.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return m.Reply(t.Context(), llm.Request{Thread: "web:1", MaxOut: 500, Items: append([]llm.Item{{Role: llm.System, Text: "Be brief."}}, items...), Tools: []llm.ToolSpec{
			{Name: "run_shell", Description: "Runs.", Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"],"additionalProperties":false}`)},
			{Name: "time"},
		}}, func(d llm.Delta) {
			if d.Reset {
				x.shown = ""
			}
			x.shown += d.Text
			if d.Note != "" {
				x.notes = append(x.notes, d.Note)
			}
		})
	}
	user := func(text string) llm.Item { return llm.Item{Role: llm.User, Text: text} }

	t.Run("calls made at once, then an answer", func(t *testing.T) {
		x := &script{id: api + "-calls"}
		first, err := ask(t, x, openai.Config{}, user("disk full"))
		if err != nil || first.Finish != llm.FinishCalls || first.Text != "Let me look." || x.shown != first.Text ||
			fmt.Sprint(first.Calls) != fmt.Sprint([]llm.Call{{ID: "call_df_1", Name: "run_shell", Args: `{"command":"df -h /var"}`}, {ID: "call_uptime_1", Name: "run_shell", Args: `{"command":"uptime"}`}}) {
			t.Fatalf("%+v, %v, shown %q", first, err, x.shown)
		}
		x.shown = ""
		second, err := ask(t, x, openai.Config{}, user("disk full"), llm.Item{Role: llm.Assistant, Text: first.Text, Calls: first.Calls, Opaque: first.Opaque},
			llm.Item{Role: llm.Tool, CallID: "call_df_1", Text: "97%"}, llm.Item{Role: llm.Tool, CallID: "call_uptime_1"})
		if err != nil || second.Finish != llm.FinishStop || second.Text != "Disk /var is at 97 percent." || x.shown != second.Text || second.Usage.In != 321 || second.Usage.Out != 17 {
			t.Fatalf("%+v, %v, shown %q", second, err, x.shown)
		}
		sent := s.requests(t, x.id)
		want := map[string]string{
			"chat":      "system user assistant+call+call tool tool",
			"responses": "system user reasoning assistant function_call function_call function_call_output function_call_output",
		}[api]
		if len(sent) != 2 || sent[1].places(t) != want {
			t.Errorf("%q", sent)
		}
		if thought := map[string]string{"chat": `"reasoning_content":"let me think"`, "responses": `"encrypted_content":"`}[api]; !strings.Contains(string(sent[1].body), thought) {
			t.Errorf("the thought is missing: %s", sent[1])
		}
	})
	t.Run("a limit says how long to wait", func(t *testing.T) {
		x := &script{id: api + "-limit"}
		r, err := ask(t, x, openai.Config{}, user("limit"))
		if err != nil || r.Text != "after the limit" || fmt.Sprint(x.waits) != "[7s]" || len(x.notes) != 1 || !strings.Contains(x.notes[0], "overloaded") || len(s.requests(t, x.id)) != 2 {
			t.Fatalf("%+v, %v, %+v", r, err, x)
		}
	})
	for _, word := range []string{"cut", "gone"} {
		t.Run("a reply that breaks off is asked for again: "+word, func(t *testing.T) {
			x := &script{id: api + "-" + word}
			r, err := ask(t, x, openai.Config{}, user(word))
			if err != nil || r.Text != "whole" || x.shown != "whole" || len(x.notes) != 1 || len(s.requests(t, x.id)) != 2 {
				t.Fatalf("%+v, %v, %+v", r, err, x)
			}
		})
	}
	t.Run("a reply that is bounded", func(t *testing.T) {
		x := &script{id: api + "-length"}
		if r, err := ask(t, x, openai.Config{}, user("lengthy")); err != nil || r.Finish != llm.FinishLength || r.Text != "abc" {
			t.Fatalf("%+v, %v", r, err)
		}
		s.requests(t, x.id)
	})
	t.Run("another model answers", func(t *testing.T) {
		x := &script{id: api + "-other"}
		r, err := ask(t, x, openai.Config{Model: "first", Fallback: []string{"second"}}, user("other"))
		if err != nil || r.Text != "from the second" || r.Model != "second" || len(s.requests(t, x.id)) != 5 || x.notes[len(x.notes)-1] != "first does not answer; asking second instead." {
			t.Fatalf("%+v, %v, %+v", r, err, x)
		}
	})
	t.Run("a key that is refused is final", func(t *testing.T) {
		x := &script{id: api + "-key"}
		_, err := ask(t, x, openai.Config{Fallback: []string{"second"}}, user("key"))
		var e *llm.Error
		if !errors.As(err, &e) || e.Status != http.StatusUnauthorized || len(s.requests(t, x.id)) != 1 {
			t.Fatal(err)
		}
	})
}
