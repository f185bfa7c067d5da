package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"countersign/agent/llm"
)

// served is one scripted response.
type served struct {
	status  int
	headers map[string]string
	body    string
	cut     bool // reset the connection after body
	hang    bool // say nothing more after body
}

// server answers with the steps in order, the last one again and again.
func server(t *testing.T, steps ...served) (*httptest.Server, func() int) {
	t.Helper()
	var mu sync.Mutex
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		step := steps[min(n, len(steps)-1)]
		n++
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		for k, v := range step.headers {
			w.Header().Set(k, v)
		}
		if step.status != 0 {
			w.WriteHeader(step.status)
		}
		_, _ = io.WriteString(w, step.body)
		_ = http.NewResponseController(w).Flush()
		if step.hang {
			<-r.Context().Done()
		}
		if step.cut {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
		}
	}))
	t.Cleanup(s.Close)
	return s, func() int { mu.Lock(); defer mu.Unlock(); return n }
}

const key = "sk-test-0123456789abcdef"

func client(t *testing.T, base string, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{
		APIKey: key, BaseURL: base + "/v1", Model: "m",
		Sleep:  func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
		Jitter: func(d time.Duration) time.Duration { return d },
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sse(frames ...string) string {
	var b strings.Builder
	for _, f := range frames {
		b.WriteString("data: " + f + "\n\n")
	}
	return b.String()
}

func textFrame(s string) string { return `{"choices":[{"index":0,"delta":{"content":"` + s + `"}}]}` }
func callFrame(s string) string {
	return `{"choices":[{"index":0,"delta":{"tool_calls":[` + s + `]}}]}`
}
func finishFrame(s string) string {
	return `{"choices":[{"index":0,"delta":{},"finish_reason":"` + s + `"}]}`
}

const done = "[DONE]"

var (
	good     = served{body: sse(textFrame("fine"), finishFrame("stop"), done)}
	nineChar = regexp.MustCompile(`^[A-Za-z0-9]{9}$`)
)

func ask() llm.Request {
	return llm.Request{Thread: "slack:C1:1", Items: []llm.Item{{Role: llm.User, Text: "hi"}}}
}

type shown struct {
	text   string
	resets []string
}

func (s *shown) show(d llm.Delta) {
	if d.Reset {
		s.text = ""
		s.resets = append(s.resets, d.Note)
	}
	s.text += d.Text
}

func TestAssemblyRules(t *testing.T) {
	idx := func(i int, id, name, args string) string {
		return fmt.Sprintf(`{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}`, i, id, name, args)
	}
	type call struct{ id, name, args string } // id "9": nine made characters
	tests := []struct {
		name   string
		body   string
		used   []string
		kind   string // content type
		text   string
		calls  []call
		finish llm.Finish
		usage  llm.Usage
	}{
		{name: "text in pieces is joined", body: sse(textFrame("a"), textFrame("b"), finishFrame("stop"), done), text: "ab", finish: llm.FinishStop},
		{name: "a stream that ends with a finish reason but without DONE is complete", body: sse(textFrame("a"), finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "the last line may lack its line break", body: strings.TrimSpace(sse(textFrame("a"), finishFrame("stop"))), text: "a", finish: llm.FinishStop},
		{name: "arguments in pieces are joined by index", body: sse(callFrame(idx(0, "a", "f", "")), callFrame(idx(1, "b", "g", "")),
			callFrame(`{"index":0,"function":{"arguments":"{\"x\""}}`), callFrame(`{"index":1,"function":{"arguments":"{}"}}`),
			callFrame(`{"index":0,"function":{"arguments":":1}"}}`), finishFrame("tool_calls"), done),
			calls: []call{{"a", "f", `{"x":1}`}, {"b", "g", "{}"}}, finish: llm.FinishCalls},
		{name: "two calls in one delta without index do not merge", body: sse(callFrame(`{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{}"}}`), finishFrame("tool_calls")),
			calls: []call{{"a", "f", "{}"}, {"b", "f", "{}"}}, finish: llm.FinishCalls},
		{name: "without index and id, each named call of a delta is one", body: sse(callFrame(`{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":"{}"}}`), finishFrame("tool_calls")),
			calls: []call{{"9", "f", "{}"}, {"9", "f", "{}"}}, finish: llm.FinishCalls},
		{name: "without index, later arguments go to the last call", body: sse(callFrame(`{"id":"a","function":{"name":"f","arguments":"{\"x\""}}`), callFrame(`{"function":{"arguments":":1}"}}`), finishFrame("stop")),
			calls: []call{{"a", "f", `{"x":1}`}}, finish: llm.FinishCalls},
		{name: "without index, later arguments of several calls go by position", body: sse(callFrame(`{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"g"}}`), callFrame(`{"function":{"arguments":"{\"x\":1}"}},{"function":{"arguments":"{\"y\":2}"}}`), finishFrame("stop")),
			calls: []call{{"a", "f", `{"x":1}`}, {"b", "g", `{"y":2}`}}, finish: llm.FinishCalls},
		{name: "calls that are all numbered 0 stay apart", body: sse(callFrame(idx(0, "a", "f", "{}")), callFrame(idx(0, "b", "g", "{}")), finishFrame("stop")),
			calls: []call{{"a", "f", "{}"}, {"b", "g", "{}"}}, finish: llm.FinishCalls},
		{name: "a missing id is made", body: sse(callFrame(idx(0, "", "f", "{}")), finishFrame("tool_calls")), calls: []call{{"9", "f", "{}"}}, finish: llm.FinishCalls},
		{name: "a duplicate id is replaced", body: sse(callFrame(idx(0, "a", "f", "{}")), callFrame(idx(1, "a", "g", "{}")), finishFrame("tool_calls")),
			calls: []call{{"a", "f", "{}"}, {"9", "g", "{}"}}, finish: llm.FinishCalls},
		{name: "a duplicate id without index is another call", body: sse(callFrame(`{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"a","function":{"name":"g","arguments":"{}"}}`), finishFrame("tool_calls")),
			calls: []call{{"a", "f", "{}"}, {"9", "g", "{}"}}, finish: llm.FinishCalls},
		{name: "an id that the thread knows is replaced", body: sse(callFrame(idx(0, "a", "f", "{}")), finishFrame("tool_calls")), used: []string{"a"},
			calls: []call{{"9", "f", "{}"}}, finish: llm.FinishCalls},
		{name: "an id with odd characters is replaced", body: sse(callFrame(idx(0, "a/../b c", "f", "{}")), finishFrame("tool_calls")), calls: []call{{"9", "f", "{}"}}, finish: llm.FinishCalls},
		{name: "arguments may be an object", body: sse(callFrame(`{"index":0,"id":"a","function":{"name":"f","arguments":{"x": 1}}}`), finishFrame("tool_calls")),
			calls: []call{{"a", "f", `{"x":1}`}}, finish: llm.FinishCalls},
		{name: "a repeated name is set, not joined", body: sse(callFrame(idx(0, "a", "f", "")), callFrame(idx(0, "a", "f", `{"x"`)), callFrame(idx(0, "a", "f", `:1}`)), finishFrame("tool_calls")),
			calls: []call{{"a", "f", `{"x":1}`}}, finish: llm.FinishCalls},
		{name: "a repeated name without index is no new call", body: sse(callFrame(`{"function":{"name":"f","arguments":"{\"x\""}}`), callFrame(`{"function":{"name":"f","arguments":":1}"}}`), callFrame(`{"function":{"name":"f","arguments":""}}`), finishFrame("tool_calls")),
			calls: []call{{"9", "f", `{"x":1}`}}, finish: llm.FinishCalls},
		{name: "a delta with neither name nor arguments is skipped", body: sse(callFrame(`{"index":0}`), callFrame(`{}`), textFrame("a"), finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "invalid arguments are kept byte for byte", body: sse(callFrame(idx(0, "a", "f", `{"x": tru`)), finishFrame("tool_calls")), calls: []call{{"a", "f", `{"x": tru`}}, finish: llm.FinishCalls},
		{name: "stop with calls means tool_calls", body: sse(callFrame(idx(0, "a", "f", "{}")), finishFrame("stop")), calls: []call{{"a", "f", "{}"}}, finish: llm.FinishCalls},
		{name: "length with a partial call is length", body: sse(callFrame(idx(0, "a", "f", `{"x":`)), finishFrame("length")), calls: []call{{"a", "f", `{"x":`}}, finish: llm.FinishLength},
		{name: "a filtered reply has no calls", body: sse(textFrame("a"), callFrame(idx(0, "a", "f", "{}")), finishFrame("content_filter")), text: "a", finish: llm.FinishFilter},
		{name: "tool_calls without calls is stop", body: sse(textFrame("a"), finishFrame("tool_calls")), text: "a", finish: llm.FinishStop},
		{name: "complete calls and DONE are complete", body: sse(callFrame(idx(0, "a", "f", "{}")), done), calls: []call{{"a", "f", "{}"}}, finish: llm.FinishCalls},
		{name: "content may be null, absent or a list", body: sse(`{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}`, `{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"a"}]}}]}`, finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "only the first choice counts", body: sse(`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"a"}}]}`, finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "a chunk may hold usage alone", body: sse(textFrame("a"), finishFrame("stop"), `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}}`, done),
			text: "a", finish: llm.FinishStop, usage: llm.Usage{In: 7, Out: 3, Cached: 5}},
		{name: "usage and error may be null", body: sse(`{"error":null,"usage":null,"choices":[{"index":0,"delta":{"content":"a"}}]}`, finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "an error that says nothing does no harm", body: sse(`{"error":{},"choices":[]}`, textFrame("a"), finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "an event of another kind does no harm", body: "event: error_count\n" + sse(textFrame("a")) + "event: done\n" + sse(finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "usage of an odd shape does no harm", body: sse(textFrame("a"), finishFrame("stop"), `{"choices":[],"usage":"none"}`, done), text: "a", finish: llm.FinishStop},
		{name: "hundreds of keep-alive comments do no harm", body: strings.Repeat(": OPENROUTER PROCESSING\n\n", 1000) + sse(textFrame("a"), finishFrame("stop")), text: "a", finish: llm.FinishStop},
		{name: "event, id and retry lines and CRLF do no harm", body: strings.ReplaceAll("event: message\nid: 1\nretry: 5\n"+sse(textFrame("a"))+"event: message\n"+sse(finishFrame("stop")), "\n", "\r\n"), text: "a", finish: llm.FinishStop},
		{name: "data needs no space after its colon", body: strings.ReplaceAll(sse(textFrame("a"), finishFrame("stop")), "data: ", "data:"), text: "a", finish: llm.FinishStop},
		{name: "an answer that is not streamed is one completion", kind: "application/json",
			body: "{\n \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}],\n \"usage\":{\"prompt_tokens\":2}}",
			text: "a", calls: []call{{"x", "f", "{}"}}, finish: llm.FinishCalls, usage: llm.Usage{In: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			step := served{body: tt.body}
			if tt.kind != "" {
				step.headers = map[string]string{"Content-Type": tt.kind}
			}
			s, _ := server(t, step)
			req := ask()
			req.UsedCallIDs = map[string]bool{}
			for _, id := range tt.used {
				req.UsedCallIDs[id] = true
			}
			c := client(t, s.URL, func(c *Config) { c.MaxAttempts = 1 })
			var sh shown
			r, err := c.Reply(t.Context(), req, sh.show)
			if err != nil {
				t.Fatal(err)
			}
			if r.Text != tt.text || sh.text != tt.text || r.Finish != tt.finish || r.Usage != tt.usage || len(r.Calls) != len(tt.calls) {
				t.Fatalf("reply %+v, shown %q", r, sh.text)
			}
			seen := map[string]bool{}
			for i, want := range tt.calls {
				got := r.Calls[i]
				if got.Name != want.name || got.Args != want.args || (want.id != "9" && got.ID != want.id) || (want.id == "9" && !nineChar.MatchString(got.ID)) {
					t.Errorf("call %d is %+v", i, got)
				}
				if seen[got.ID] || req.UsedCallIDs[got.ID] {
					t.Errorf("id %q is not unique", got.ID)
				}
				seen[got.ID] = true
			}
			again, err := c.Reply(t.Context(), req, nil)
			if err != nil || fmt.Sprint(again) != fmt.Sprint(r) {
				t.Errorf("the same stream gave another reply: %+v, %v", again, err)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	const partial = `{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}`
	jsonType := map[string]string{"Content-Type": "application/json"}
	tests := []struct {
		name  string
		step  served
		retry bool // else one attempt
		says  []string
		not   []string
		is    int // status
		long  bool
	}{
		{name: "a truncated stream is tried again and yields no calls", step: served{body: sse(textFrame("a"), callFrame(partial))}, retry: true, says: []string{"was cut off"}},
		{name: "text and DONE without a finish reason is truncated", step: served{body: sse(textFrame("a"), done)}, retry: true},
		{name: "DONE after a cut call is truncated", step: served{body: sse(callFrame(`{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}`), done)}, retry: true},
		{name: "a cut in the middle of a frame is truncated", step: served{body: sse(textFrame("a")) + `data: {"choices":[{"ind`}, retry: true, says: []string{"was cut off"}},
		{name: "an empty answer is truncated", step: served{status: 200}, retry: true},
		{name: "a hard cut is tried again", step: served{body: sse(textFrame("a")), cut: true}, retry: true},
		{name: "an error after comments and event lines keeps its message", step: served{body: ": hello\n\n" + sse(textFrame("a")) + "event: error\n" + sse(`{"error":{"message":"the engine is busy","type":"overloaded"}}`)}, retry: true, says: []string{"the engine is busy"}},
		{name: "an inline error chunk is an error", step: served{body: sse(`{"id":"1","error":{"code":502,"message":"upstream went away"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`)}, retry: true, is: 502},
		{name: "finish reason error is an error", step: served{body: sse(textFrame("a"), finishFrame("error"))}, retry: true},
		{name: "an error in a stream may be text", step: served{body: sse(`{"error":"no memory"}`)}, retry: true, says: []string{"no memory"}},
		{name: "a reason that means giving up yields no calls", step: served{body: sse(textFrame("a"), callFrame(partial), finishFrame("insufficient_system_resource"), done)}, retry: true},
		{name: "an aborted reply yields no calls", step: served{body: sse(callFrame(partial), finishFrame("abort"), done)}, retry: true},
		{name: "an error after the reason yields no calls", step: served{body: sse(callFrame(partial), finishFrame("tool_calls"), `{"error":{"message":"gone"}}`)}, retry: true, says: []string{"gone"}},
		{name: "an event of the kind error is one whatever its shape", step: served{body: "event: error\n" + sse(`{"message":"no luck"}`)}, retry: true, says: []string{"no luck"}},
		{name: "an event of the kind error may be text", step: served{body: "event: error\n" + sse(`no luck at all`)}, retry: true, says: []string{"no luck at all"}},
		{name: "an error may have a field of its own", step: served{body: sse(textFrame("a")) + "error: {\"message\":\"slot lost\"}\n\n"}, retry: true, says: []string{"slot lost"}},
		{name: "an error in a stream may be in a list", step: served{body: sse(`[{"error":{"message":"quota of the day","code":503}}]`)}, retry: true, is: 503},
		{name: "an error in a choice is an error", step: served{body: sse(`{"choices":[{"index":0,"delta":{},"error":{"message":"bad luck"}}]}`)}, retry: true, says: []string{"bad luck"}},
		{name: "a list of errors with status 200 is an error", step: served{body: `[{"error":{"message":"later","code":503}}]`}, retry: true, is: 503},
		{name: "a filter that left nothing is told", step: served{body: sse(finishFrame("content_filter"), done)}, says: []string{"content filter"}},
		{name: "a request larger than a minute's allowance is too long", step: served{status: 429, body: `{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 30000, Requested 45000.","code":"rate_limit_exceeded"}}`}, is: 429, long: true},
		{name: "an error in a stream that is our fault is final", step: served{body: sse(`{"error":{"message":"bad tool","type":"invalid_request_error","code":400}}`)}, says: []string{"bad tool"}, is: 400},
		{name: "a garbled frame is tried again", step: served{body: sse(`{"choices":[{]}`, finishFrame("stop"))}, retry: true},
		{name: "silence within an answer is tried again", step: served{body: sse(textFrame("a")), hang: true}, retry: true, says: []string{"timed out"}},
		{name: "429 is tried again", step: served{status: 429, body: `{"error":{"message":"slow down"}}`}, retry: true, is: 429, says: []string{"rate limit"}},
		{name: "an empty account is final", step: served{status: 429, body: `{"error":{"message":"quota","code":"insufficient_quota"}}`}, is: 429, says: []string{"billing", "OPENAI_API_KEY"}},
		{name: "a longer wait than a minute is told instead of waited for", step: served{status: 429, headers: map[string]string{"Retry-After": "3600"}}, is: 429, says: []string{"1h0m0s"}},
		{name: "500 is tried again", step: served{status: 500, body: "oops"}, retry: true, is: 500, not: []string{"oops"}},
		{name: "503 is tried again", step: served{status: 503}, retry: true, is: 503},
		{name: "x-should-retry false is final", step: served{status: 500, headers: map[string]string{"X-Should-Retry": "false"}}, is: 500},
		{name: "x-should-retry true is tried again", step: served{status: 400, headers: map[string]string{"X-Should-Retry": "true"}}, retry: true, is: 400},
		{name: "401 says to check the key and shows none", step: served{status: 401, body: `{"error":{"message":"Incorrect API key provided: ` + key + `"}}`}, is: 401, says: []string{"OPENAI_API_KEY"}, not: []string{key, "Incorrect"}},
		{name: "403 says to check key and model", step: served{status: 403}, is: 403, says: []string{"OPENAI_API_KEY", "OPENAI_MODEL"}},
		{name: "404 says to check model and address", step: served{status: 404, body: "404 page not found"}, is: 404, says: []string{"OPENAI_MODEL", "OPENAI_BASE_URL"}, not: []string{"page not found"}},
		{name: "400 shows the server's words without the key", step: served{status: 400, body: `{"error":{"message":"tools are not\nsupported, key ` + key + `"}}`}, is: 400, says: []string{"tools are not supported, key ***", "OPENAI_MODEL"}, not: []string{key}},
		{name: "a redirect is not followed", step: served{status: 307, headers: map[string]string{"Location": "http://127.0.0.1:1/"}}, is: 307, says: []string{"OPENAI_BASE_URL"}},
		{name: "context_length_exceeded is too long", step: served{status: 400, body: `{"error":{"message":"x","code":"context_length_exceeded"}}`}, is: 400, long: true},
		{name: "too long by its words", step: served{status: 400, body: `{"error":{"message":"This model's maximum context length is 8192 tokens."}}`}, is: 400, long: true},
		{name: "too long within a stream", step: served{body: sse(`{"error":{"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`)}, long: true},
		{name: "an error body may be a list", step: served{status: 400, headers: jsonType, body: `[{"error":{"code":400,"message":"thought missing","status":"INVALID_ARGUMENT"}}]`}, is: 400, says: []string{"thought missing"}},
		{name: "an error may be text", step: served{status: 400, headers: jsonType, body: `{"error":"model is not loaded"}`}, is: 400, says: []string{"model is not loaded"}},
		{name: "an error body that is a web page is not shown", step: served{status: 400, body: "<html><body>nginx</body></html>"}, is: 400, not: []string{"<", "nginx"}},
		{name: "a message that is a web page is not shown", step: served{status: 400, body: `{"error":{"message":"<!DOCTYPE html><p>nginx"}}`}, is: 400, not: []string{"<", "nginx"}},
		{name: "a web page instead of an answer says to check the address", step: served{headers: map[string]string{"Content-Type": "text/html"}, body: "<!doctype html><p>login"}, says: []string{"web page", "OPENAI_BASE_URL"}, not: []string{"login"}},
		{name: "an error with status 200 is an error", step: served{headers: jsonType, body: `{"error":{"message":"no such model","type":"invalid_request_error"}}`}, says: []string{"no such model"}},
		{name: "broken JSON with status 200 is tried again", step: served{headers: jsonType, body: `{"choices":`}, retry: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			idle := func(c *Config) {
				if tt.step.hang {
					c.Idle = 20 * time.Millisecond
				}
			}
			var log strings.Builder
			logged := func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }
			s, count := server(t, tt.step)
			var sh shown
			r, err := client(t, s.URL, idle, logged).Reply(t.Context(), ask(), sh.show)
			var e *llm.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, %v", r, err)
			}
			if len(r.Calls) != 0 {
				t.Error("a failed reply has calls")
			}
			want := 1
			if tt.retry {
				want = 4
			}
			if count() != want || len(sh.resets) != want-1 {
				t.Errorf("%d attempts and %d resets, want %d attempts", count(), len(sh.resets), want)
			}
			if e.Status != tt.is || e.TooLong != tt.long {
				t.Errorf("error %+v", e)
			}
			for _, s := range tt.says {
				if !strings.Contains(e.Sentence, s) {
					t.Errorf("%q is missing in %q", s, e.Sentence)
				}
			}
			for _, s := range append(tt.not, "\n", key) {
				if strings.Contains(e.Sentence, s) || strings.Contains(err.Error(), s) || (s != "\n" && strings.Contains(log.String(), s)) {
					t.Errorf("%q is in %q or the log", s, err)
				}
			}
			if !strings.HasSuffix(e.Sentence, ".") {
				t.Errorf("%q is no sentence", e.Sentence)
			}
			if tt.retry {
				s, _ := server(t, tt.step, good)
				var sh shown
				r, err := client(t, s.URL, idle).Reply(t.Context(), ask(), sh.show)
				if err != nil || r.Text != "fine" || sh.text != "fine" || len(sh.resets) != 1 || sh.resets[0] == "" {
					t.Errorf("after a retry: %+v, %v, shown %+v", r, err, sh)
				}
			}
		})
	}
}

func TestASilentServerAfterTheFinishReasonHasAnswered(t *testing.T) {
	s, _ := server(t, served{body: sse(textFrame("a"), finishFrame("stop")), hang: true})
	r, err := client(t, s.URL, func(c *Config) { c.Idle = 20 * time.Millisecond }).Reply(t.Context(), ask(), nil)
	if err != nil || r.Text != "a" {
		t.Fatal(r, err)
	}
}

func TestWaits(t *testing.T) {
	tests := []struct {
		name    string
		headers map[string]string
		total   time.Duration
		want    []time.Duration
	}{
		{"1s, 2s, 4s without a word from the server", nil, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		{"Retry-After in seconds is honoured", map[string]string{"Retry-After": "7"}, 0, []time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}},
		{"retry-after-ms wins", map[string]string{"Retry-After": "7", "Retry-After-Ms": "250"}, 0, []time.Duration{250 * time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond}},
		{"nonsense is not honoured", map[string]string{"Retry-After": "-3"}, 0, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		{"all waits together stay under the cap", map[string]string{"Retry-After": "40"}, 0, []time.Duration{40 * time.Second, 40 * time.Second}},
		{"the cap can be smaller than a wait", map[string]string{"Retry-After": "40"}, 10 * time.Second, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var waits []time.Duration
				c := client(t, "http://model.test", func(c *Config) {
					c.TotalRetry = tt.total
					c.HTTPClient = doer(func(*http.Request) (*http.Response, error) {
						h := http.Header{}
						for k, v := range tt.headers {
							h.Set(k, v)
						}
						return &http.Response{StatusCode: http.StatusTooManyRequests, Header: h, Body: http.NoBody}, nil
					})
					c.Sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
				})
				_, err := c.Reply(t.Context(), ask(), nil)
				if err == nil || fmt.Sprint(waits) != fmt.Sprint(tt.want) {
					t.Fatalf("waits %v, %v", waits, err)
				}
			})
		})
	}
}

func TestRetryAfterMayBeADate(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := http.Header{"Retry-After": {now.Add(30 * time.Second).Format(http.TimeFormat)}}
	if got := retryAfter(h, now); got != 30*time.Second {
		t.Fatal(got)
	}
	h.Set("Date", now.Add(20*time.Second).Format(http.TimeFormat)) // a clock that goes fast
	if got := retryAfter(h, now); got != 10*time.Second {
		t.Fatal(got)
	}
	h.Set("Retry-After", now.Add(-time.Hour).Format(http.TimeFormat))
	if got := retryAfter(h, now); got != 0 {
		t.Fatal(got)
	}
}

// doer is a Doer from a function.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// mute is a body that says nothing until its request ends.
type mute struct{ ctx context.Context }

func (m mute) Read([]byte) (int, error) { <-m.ctx.Done(); return 0, m.ctx.Err() }
func (mute) Close() error               { return nil }

func TestTimesInABubble(t *testing.T) {
	silentFor := func(body func(*http.Request) io.ReadCloser) func(*Config) {
		return func(c *Config) {
			c.Sleep, c.Jitter = nil, nil
			c.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body(r)}, nil
			})
		}
	}
	t.Run("a server that never begins is given up after the first-byte time, once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			_, err := client(t, "http://model.test", silentFor(func(r *http.Request) io.ReadCloser { return mute{r.Context()} })).Reply(t.Context(), ask(), nil)
			if err == nil || time.Since(begun) != 120*time.Second {
				t.Fatal(err, time.Since(begun))
			}
		})
	})
	t.Run("keep-alives keep a slow answer alive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			body := func(r *http.Request) io.ReadCloser {
				out, in := io.Pipe()
				go func() {
					for range 10 {
						if sleep(r.Context(), 50*time.Second) != nil {
							break
						}
						_, _ = io.WriteString(in, ": wait\n\n")
					}
					_, _ = io.WriteString(in, good.body)
					_ = in.Close()
				}()
				return out
			}
			r, err := client(t, "http://model.test", silentFor(body)).Reply(t.Context(), ask(), nil)
			if err != nil || r.Text != "fine" {
				t.Fatal(r, err)
			}
		})
	})
	drip := func(first string, every time.Duration) func(*http.Request) io.ReadCloser {
		return func(r *http.Request) io.ReadCloser {
			out, in := io.Pipe()
			go func() {
				_, err := io.WriteString(in, first)
				for err == nil && sleep(r.Context(), every) == nil {
					_, err = io.WriteString(in, ": wait\n\n")
				}
				_ = in.CloseWithError(r.Context().Err())
			}()
			return out
		}
	}
	t.Run("keep-alives alone keep nothing alive for ever", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			c := client(t, "http://model.test", silentFor(drip(": wait\n\n", 50*time.Second)), func(c *Config) { c.MaxAttempts = 1 })
			_, err := c.Reply(t.Context(), ask(), nil)
			if d := time.Since(begun); err == nil || d < chatter || d > chatter+2*time.Minute {
				t.Fatal(err, d)
			}
		})
	})
	t.Run("keep-alives after the reason keep nobody waiting", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			r, err := client(t, "http://model.test", silentFor(drip(sse(textFrame("a"), finishFrame("stop")), time.Second))).Reply(t.Context(), ask(), nil)
			if err != nil || r.Text != "a" || time.Since(begun) != afterFinish {
				t.Fatal(r, err, time.Since(begun))
			}
		})
	})
	t.Run("an ended context ends the reply and the wait at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			for _, status := range []int{200, 429} {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				begun := time.Now()
				_, err := client(t, "http://model.test", func(c *Config) {
					c.Sleep = nil
					c.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
						if status == 429 {
							return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody}, nil
						}
						return &http.Response{StatusCode: http.StatusOK, Body: mute{r.Context()}}, nil
					})
				}).Reply(ctx, ask(), nil)
				cancel()
				var e *llm.Error
				if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || time.Since(begun) != 500*time.Millisecond {
					t.Fatal(err, time.Since(begun))
				}
			}
		})
	})
}

func TestAServerThatIsNotThereIsNamedAndTriedAgain(t *testing.T) {
	s, _ := server(t, good)
	host := strings.TrimPrefix(s.URL, "http://")
	s.Close()
	var sh shown
	_, err := client(t, s.URL).Reply(t.Context(), ask(), sh.show)
	var e *llm.Error
	if !errors.As(err, &e) || !strings.Contains(e.Sentence, host) || !strings.Contains(e.Sentence, "OPENAI_BASE_URL") || len(sh.resets) != 3 {
		t.Fatal(err, sh)
	}
}

func TestAnUntrustedCertificateIsFinal(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	s.Config.ErrorLog = nil
	var sh shown
	_, err := client(t, s.URL).Reply(t.Context(), ask(), sh.show)
	var e *llm.Error
	if !errors.As(err, &e) || !strings.Contains(e.Sentence, "certificate") || len(sh.resets) != 0 {
		t.Fatal(err, sh)
	}
}

func TestAModelThatNeedsTheResponsesAPIIsNamed(t *testing.T) {
	s, count := server(t, good)
	req := ask()
	req.Tools = []llm.ToolSpec{{Name: "f"}}
	_, err := client(t, s.URL, func(c *Config) { c.Model, c.API = "gpt-6-astra", "chat" }).Reply(t.Context(), req, nil)
	var e *llm.Error
	if !errors.As(err, &e) || !strings.Contains(e.Sentence, "Responses API") || !strings.Contains(e.Sentence, "gpt-6-astra") || count() != 0 {
		t.Fatal(err)
	}
}

func TestHeadersGoWithEveryRequest(t *testing.T) {
	got := make(chan http.Header, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	_, err := client(t, s.URL, func(c *Config) { c.Headers = map[string]string{"X-Team": "ops"}; c.MaxAttempts = 2 }).Reply(t.Context(), ask(), nil)
	if err == nil {
		t.Fatal("no error")
	}
	for range 2 {
		h := <-got
		if h.Get("X-Team") != "ops" || h.Get("Authorization") != "Bearer "+key {
			t.Fatal(h)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name string
		cfg  Config
		says string // "" means that it is accepted
	}{
		{"no model at api.openai.com", Config{APIKey: "k"}, "OPENAI_MODEL is not set"},
		{"no key at api.openai.com", Config{Model: "m"}, "OPENAI_API_KEY is not set"},
		{"nothing but an address elsewhere is enough", Config{BaseURL: "http://127.0.0.1:11434/v1"}, ""},
		{"an address without scheme", Config{BaseURL: "127.0.0.1:11434", Model: "m"}, "OPENAI_BASE_URL"},
		{"a password in the address", Config{BaseURL: "https://u:p@h/v1", Model: "m"}, "OPENAI_API_KEY"},
		{"responses", Config{APIKey: "k", Model: "m", API: "responses"}, ""},
		{"a query that is no version of Azure", Config{BaseURL: "http://127.0.0.1:1/v1?key=x"}, "OPENAI_BASE_URL"},
		{"another query at Azure", Config{BaseURL: "https://n.openai.azure.com/openai/v1?api-version=1&key=x"}, "OPENAI_BASE_URL"},
		{"a classic address of Azure without its version", Config{BaseURL: "https://n.openai.azure.com/openai/deployments/d"}, "api-version"},
		{"a classic address of Azure without its deployment", Config{BaseURL: "https://n.openai.azure.com/openai/deployments/?api-version=1"}, "deployment"},
		{"a classic address of Azure", Config{BaseURL: "https://n.openai.azure.com/openai/deployments/d?api-version=2025-01-01-preview"}, ""},
		{"an unknown API", Config{APIKey: "k", Model: "m", API: "soap"}, "auto, chat or responses"},
		{"a header with a line break", Config{APIKey: "k", Model: "m", Headers: map[string]string{"X": "a\nb"}}, "COUNTERSIGN_MODEL_HEADERS"},
		{"a key with a line break", Config{APIKey: "a\nb", Model: "m"}, "OPENAI_API_KEY"},
		{"chat", Config{APIKey: "k", Model: "m", API: "chat", Headers: map[string]string{"X-A": "b"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.cfg)
			if (err == nil) != (tt.says == "") || (err != nil && !strings.Contains(err.Error(), tt.says)) {
				t.Fatal(err)
			}
		})
	}
}

func TestProviderDataGoesBackWithItsCall(t *testing.T) {
	s, _ := server(t, served{body: sse(callFrame(`{"index":0,"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"abc"}}}`), finishFrame("tool_calls"))})
	r, err := client(t, s.URL).Reply(t.Context(), ask(), nil)
	if err != nil || len(r.Calls) != 1 || string(r.Calls[0].Meta) != `{"google":{"thought_signature":"abc"}}` {
		t.Fatal(r, err)
	}
	body := sent(t, llm.Request{Items: []llm.Item{{Role: llm.User, Text: "<hi>"}, {Role: llm.Assistant, Calls: r.Calls}, {Role: llm.Tool, CallID: "a", Text: "x"}}})
	if !strings.Contains(string(body), `"extra_content":{"google":{"thought_signature":"abc"}}`) || !strings.Contains(string(body), `"<hi>"`) && !strings.Contains(string(body), `\u003chi`) {
		t.Fatal(string(body))
	}
	if !json.Valid(body) {
		t.Fatal("not JSON")
	}
}

// sent returns the body that a request makes.
func sent(t *testing.T, r llm.Request) []byte {
	t.Helper()
	var body []byte
	c := client(t, "http://model.test", func(c *Config) {
		c.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(good.body))}, nil
		})
	})
	if _, err := c.Reply(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	return body
}

func TestModelsOfAServer(t *testing.T) {
	for _, tt := range []struct {
		step served
		want string
		is   int // of the error
	}{
		{served{headers: map[string]string{"Content-Type": "application/json"}, body: `{"object":"list","data":[{"id":"b"},{"id":"a"}]}`}, "b a", 0},
		{served{headers: map[string]string{"Content-Type": "application/json"}, body: `{"object":"list","data":[]}`}, "", 0},
		{served{status: 401}, "", 401},
		{served{status: 403}, "", 401},
		{served{status: 404, body: "404 page not found"}, "", 404},
		{served{body: "<html>login"}, "", -1},
		{served{headers: map[string]string{"Content-Type": "application/json"}, body: `["a"]`}, "", -1},
	} {
		s, _ := server(t, tt.step)
		names, err := Models(t.Context(), Config{BaseURL: s.URL, APIKey: key})
		var e *llm.Error
		if strings.Join(names, " ") != tt.want || (err != nil) != (tt.is != 0) || err != nil && (!errors.As(err, &e) || e.Status != max(tt.is, 0)) {
			t.Errorf("%+v: %q %v", tt.step, names, err)
		}
	}
	if _, err := Models(t.Context(), Config{BaseURL: "127.0.0.1:11434"}); err == nil || !strings.Contains(err.Error(), "isn't a URL") {
		t.Error(err)
	}
}

// A key in a file may be replaced while the bot runs.
func TestARefusedKeyIsReadAgain(t *testing.T) {
	const next = "sk-test-another-key-9876"
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Header.Get("Authorization"))
		mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+next {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, good.body)
	}))
	t.Cleanup(s.Close)
	file := "" // is being written
	c := client(t, s.URL, func(c *Config) { c.RenewKey = func() string { return file } })
	if _, err := c.Reply(t.Context(), ask(), nil); err == nil || len(asked) != 1 {
		t.Fatalf("%v, asked %q", err, asked)
	}
	file = next + "\n"
	for range 2 {
		if r, err := c.Reply(t.Context(), ask(), nil); err != nil || r.Text != "fine" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if want := []string{"Bearer " + key, "Bearer " + key, "Bearer " + next, "Bearer " + next}; !slices.Equal(asked, want) {
		t.Errorf("asked with %q", asked)
	}
}
