package openaitest_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"countersign/agent/llm"
	"countersign/agent/llm/openai"
	"countersign/agent/llm/openai/openaitest"
)

func model(t *testing.T, next func(openaitest.Conversation) openaitest.Turn) (*openai.Client, string) {
	t.Helper()
	s := httptest.NewServer(openaitest.New(next))
	t.Cleanup(s.Close)
	c, err := openai.New(openai.Config{
		BaseURL: s.URL + "/v1", Model: "scripted",
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, s.URL
}

func TestAConversationWithCalls(t *testing.T) {
	args := `{"command":"df -h /var/log","why":"schauen, wie voll — die Platte ist"}`
	c, _ := model(t, func(v openaitest.Conversation) openaitest.Turn {
		switch {
		case v.User != "why?" || v.Messages < 2:
			return openaitest.Turn{Status: 500, Text: "unexpected"}
		case v.Results == 0:
			return openaitest.Turn{Text: "Let me look.", Calls: []openaitest.Call{{Name: "run_shell", Args: args}, {Name: "now", Args: "{}"}}}
		case v.Results == 2 && v.Last == "12:00":
			return openaitest.Turn{Text: "The disk is full: /var/log holds everything.", Delay: time.Millisecond}
		}
		return openaitest.Turn{Status: 500, Text: "unexpected"}
	})
	items := []llm.Item{{Role: llm.System, Text: "s"}, {Role: llm.User, Text: "old"}, {Role: llm.Assistant, Text: "ok"}, {Role: llm.User, Text: "why?"}}
	first, err := c.Reply(t.Context(), llm.Request{Items: items}, nil)
	if err != nil || first.Finish != llm.FinishCalls || first.Text != "Let me look." || len(first.Calls) != 2 ||
		first.Calls[0].Name != "run_shell" || first.Calls[0].Args != args || first.Calls[1].Args != "{}" || first.Usage.In == 0 || first.Usage.Out == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	items = append(items, llm.Item{Role: llm.Assistant, Text: first.Text, Calls: first.Calls},
		llm.Item{Role: llm.Tool, CallID: first.Calls[0].ID, Text: "100%"}, llm.Item{Role: llm.Tool, CallID: first.Calls[1].ID, Text: "12:00"})
	pieces := 0
	second, err := c.Reply(t.Context(), llm.Request{Items: items}, func(llm.Delta) { pieces++ })
	if err != nil || second.Finish != llm.FinishStop || !strings.HasPrefix(second.Text, "The disk is full") || pieces < 3 {
		t.Fatalf("%+v, %v, %d pieces", second, err, pieces)
	}
}

func TestAStatusIsAnErrorAndCanBeRetried(t *testing.T) {
	n := 0
	c, _ := model(t, func(openaitest.Conversation) openaitest.Turn {
		if n++; n == 1 {
			return openaitest.Turn{Status: 429, RetryAfter: "2", Text: "slow down"}
		}
		return openaitest.Turn{Text: "ok"}
	})
	resets := 0
	r, err := c.Reply(t.Context(), llm.Request{Items: []llm.Item{{Role: llm.User, Text: "u"}}}, func(d llm.Delta) {
		if d.Reset {
			resets++
		}
	})
	if err != nil || r.Text != "ok" || resets != 1 {
		t.Fatal(r, err, resets)
	}
}

func TestConversationsThatDoNotMatchAreRefused(t *testing.T) {
	call := []llm.Call{{ID: "a", Name: "f", Args: "{}"}}
	tests := []struct {
		name  string
		items []llm.Item
	}{
		{"nothing at all", nil},
		{"a result without its call", []llm.Item{{Role: llm.User, Text: "u"}, {Role: llm.Tool, CallID: "a", Text: "x"}}},
		{"a call without its result", []llm.Item{{Role: llm.Assistant, Calls: call}, {Role: llm.User, Text: "u"}}},
		{"a call without its result at the end", []llm.Item{{Role: llm.User, Text: "u"}, {Role: llm.Assistant, Calls: call}}},
		{"two results of one call", []llm.Item{{Role: llm.Assistant, Calls: call}, {Role: llm.Tool, CallID: "a", Text: "x"}, {Role: llm.Tool, CallID: "a", Text: "x"}}},
		{"two calls with one id", []llm.Item{{Role: llm.Assistant, Calls: append(call, call...)}, {Role: llm.Tool, CallID: "a", Text: "x"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := model(t, func(openaitest.Conversation) openaitest.Turn { return openaitest.Turn{Text: "ok"} })
			_, err := c.Reply(t.Context(), llm.Request{Items: tt.items}, nil)
			var e *llm.Error
			if !errors.As(err, &e) || e.Status != http.StatusBadRequest {
				t.Fatal(err)
			}
		})
	}
}

func TestPlainHTTP(t *testing.T) {
	_, url := model(t, func(v openaitest.Conversation) openaitest.Turn {
		return openaitest.Turn{Text: "you said " + v.User, Calls: []openaitest.Call{{Name: "f", Args: "{}"}}}
	})
	tests := []struct {
		name, method, path, body string
		status                   int
		has                      string
	}{
		{"models are listed", "GET", "/v1/models", "", 200, `"id":"scripted"`},
		{"without stream the answer is one completion", "POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}`, 200, `"content":"you said hi"`},
		{"a body that is not JSON is refused", "POST", "/v1/chat/completions", `{`, 400, `"invalid_request_error"`},
		{"another path is not found", "POST", "/chat/completions", `{}`, 404, "Invalid URL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, url+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(b), tt.has) {
				t.Fatal(resp.Status, string(b), err)
			}
		})
	}
}
