package openai

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/agent/llm"
)

func frame(t *rapid.T, delta map[string]any, finish any) []byte {
	b, err := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// split cuts s between runes into one or more pieces.
func split(t *rapid.T, s string) []string {
	out := []string{}
	for r := []rune(s); ; {
		n := rapid.IntRange(0, len(r)).Draw(t, "cut")
		out = append(out, string(r[:n]))
		if r = r[n:]; len(r) == 0 || len(out) > 20 {
			return append(out, string(r))
		}
	}
}

func TestAnySplitOfTheDeltasGivesTheSameReply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := llm.Reply{Text: rapid.String().Draw(t, "text"), Finish: llm.FinishStop}
		n := rapid.IntRange(0, 4).Draw(t, "calls")
		for i := range n {
			args, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "args"))
			if err != nil {
				t.Fatal(err)
			}
			want.Calls = append(want.Calls, llm.Call{ID: string(rune('a' + i)), Name: rapid.StringMatching(`[a-z_]{1,9}`).Draw(t, "name"), Args: string(args)})
			want.Finish = llm.FinishCalls
		}
		indexed := rapid.Bool().Draw(t, "indexed")
		var a assembly
		add := func(b []byte) {
			if _, f := a.add(b); f != nil {
				t.Fatalf("%v for %s", f, b)
			}
		}
		for _, s := range split(t, want.Text) {
			add(frame(t, map[string]any{"content": s}, nil))
		}
		// With an index the pieces of different calls may come in any order.
		queues := make([][]map[string]any, n)
		for i, c := range want.Calls {
			for j, s := range split(t, c.Args) {
				part := map[string]any{"function": map[string]any{"arguments": s}}
				if j == 0 {
					part = map[string]any{"id": c.ID, "type": "function", "function": map[string]any{"name": c.Name, "arguments": s}}
				}
				if indexed {
					part["index"] = i
				}
				queues[i] = append(queues[i], part)
			}
		}
		begun := 0
		for {
			var ready []int
			for i, q := range queues {
				// calls begin in their order
				if len(q) > 0 && (i < begun || i == begun) {
					ready = append(ready, i)
				}
			}
			if len(ready) == 0 {
				break
			}
			i := ready[0]
			if indexed {
				i = rapid.SampledFrom(ready).Draw(t, "next")
			}
			begun = max(begun, i+1)
			add(frame(t, map[string]any{"tool_calls": []any{queues[i][0]}}, nil))
			queues[i] = queues[i][1:]
		}
		add(frame(t, map[string]any{}, "stop"))
		if got := a.reply(); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

func FuzzServerBytes(f *testing.F) {
	for _, s := range []string{
		good.body, "", "<html>", `{"error":"x"}`, `[{"error":{"message":["a"]}}]`, "data: null\n", "data: []\n", "data: [DONE]\n",
		sse(callFrame(`{"index":-1,"id":7,"function":{"name":null,"arguments":[1]}}`), finishFrame("stop")),
		sse(`{"error":{"message":"x","code":{}}}`), "data: {\"error\":", "event: x\ndata:{}\n\ndata:\n:\n",
		`{"choices":[{"message":{"tool_calls":[{"function":{}}]}}]}`,
	} {
		f.Add([]byte(s), 200, false)
		f.Add([]byte(s), 400, false)
	}
	for _, s := range []string{
		respEvents(respThought("1"), respText("fine"), respCall("a", "f", "{}")), respDelta(0, "x") + respItem(0, respCall("a", "f", "{}")) + respEvents(),
		`{"object":"response","output":[{"type":"message","content":[{"text":null}]}]}`, sse(`{"type":"response.failed","response":{"error":{"code":7}}}`), sse(`{"type":"response.completed"}`),
	} {
		f.Add([]byte(s), 200, true)
	}
	f.Fuzz(func(t *testing.T, body []byte, status int, responses bool) {
		api := "chat"
		if responses {
			api = "responses"
		}
		if status < 200 || status > 599 {
			status = 200
		}
		c, err := New(Config{
			BaseURL: "http://model.test/v1", MaxAttempts: 2, API: api,
			Sleep:  func(context.Context, time.Duration) error { return nil },
			Jitter: func(time.Duration) time.Duration { return 0 },
			HTTPClient: doer(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(string(body)))}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Reply(t.Context(), ask(), nil)
		var e *llm.Error
		if err != nil && (!errors.As(err, &e) || e.Sentence == "" || strings.ContainsAny(e.Sentence, "\n\r\x00") || len(r.Calls) > 0) {
			t.Fatalf("%+v, %v", r, err)
		}
		seen := map[string]bool{}
		for _, call := range r.Calls {
			if !usable(call.ID) || seen[call.ID] {
				t.Fatalf("id %q", call.ID)
			}
			seen[call.ID] = true
		}
	})
}
