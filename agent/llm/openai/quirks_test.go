package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/agent/llm"
	"countersign/agent/llm/openai/openaitest"
)

// sentRequest is one request as a server saw it.
type sentRequest struct {
	url    string // host, path and query
	header http.Header
	body   string
}

// recorder sends every request to a scripted server, whatever host it is for.
type recorder struct {
	to string

	mu   sync.Mutex
	sent []sentRequest
}

func (d *recorder) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.sent = append(d.sent, sentRequest{r.URL.Host + r.URL.RequestURI(), r.Header.Clone(), string(body)})
	d.mu.Unlock()
	to, err := url.Parse(d.to)
	if err != nil {
		return nil, err
	}
	r.URL.Scheme, r.URL.Host = to.Scheme, to.Host
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return http.DefaultTransport.RoundTrip(r)
}

func (d *recorder) all() []sentRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]sentRequest(nil), d.sent...)
}

// respEvents is a stream of the Responses API with the given output.
func respEvents(output ...string) string {
	return respEvent("response.completed", `{"status":"completed","error":null,"output":[`+strings.Join(output, ",")+`],"usage":{"input_tokens":5,"output_tokens":4,"input_tokens_details":{"cached_tokens":2},"output_tokens_details":{"reasoning_tokens":3}}}`)
}

func respEvent(kind, response string) string {
	return "event: " + kind + "\n" + sse(`{"type":"`+kind+`","sequence_number":9,"response":`+response+`}`)
}

func respText(s string) string {
	return `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"` + s + `","annotations":[]}]}`
}

// TestServersDiffer has a row for each habit of a server that this package makes
// up for. What the rows say of services is from their documentation and issues;
// none of them was asked.
func TestServersDiffer(t *testing.T) {
	const (
		azureBase = "https://team.openai.azure.com/openai/deployments/prod?api-version=2025-01-01-preview"
		router    = "https://openrouter.ai/api/v1"
		deepseek  = "https://api.deepseek.com/v1"
		gemini    = "https://generativelanguage.googleapis.com/v1beta/openai"
		openaiURL = "https://api.openai.com/v1"
		f         = `"function":{"name":"f","arguments":"{}"}`
	)
	ok := served{body: sse(textFrame("fine"), finishFrame("stop"), done)}
	called := served{body: sse(callFrame(`{"index":0,"id":"a","type":"function",`+f+`}`), finishFrame("tool_calls"), done)}
	refused := func(status int, message string) served {
		return served{status: status, body: `{"error":{"message":` + fmt.Sprintf("%q", message) + `,"type":"invalid_request_error","param":null,"code":null}}`}
	}
	bounded := ask()
	bounded.MaxOut = 2000
	tools := ask()
	tools.Tools = []llm.ToolSpec{{Name: "f"}}
	strange := llm.Request{Items: []llm.Item{{Role: llm.User, Text: "u"}, {Role: llm.Assistant, Calls: []llm.Call{{ID: "x", Name: "f", Args: "{}"}, {ID: "y", Name: "f", Args: "{}"}}},
		{Role: llm.Tool, CallID: "x", Text: "1"}, {Role: llm.Tool, CallID: "y", Text: "2"}}}
	type reply struct {
		text  string
		calls []string // name and arguments
		usage llm.Usage
	}
	fine := reply{text: "fine"}
	tests := []struct {
		name       string
		base       string // default is a server that is nobody's
		model, api string
		headers    map[string]string
		req        llm.Request
		steps      []served
		urls       []string          // of the requests so far
		header     map[string]string // of the last one; "" means that it is not there
		has, not   []string          // in the body of the last one
		reply      reply
		fails      string   // what the error says instead
		back       []string // in the body of the next request, which has the reply and its results
		notBack    []string
	}{
		// Azure
		{name: "Azure, classic: the deployment is in the path, the version in the query, the key in api-key", base: azureBase, steps: []served{ok}, req: bounded,
			urls:   []string{"team.openai.azure.com/openai/deployments/prod/chat/completions?api-version=2025-01-01-preview"},
			header: map[string]string{"Api-Key": key, "Authorization": ""}, has: []string{`"max_completion_tokens":2000`, `"model":"prod"`}, reply: fine},
		{name: "Azure, classic: the name of the model is not the deployment's", base: azureBase, model: "gpt-4o", steps: []served{ok},
			urls: []string{"team.openai.azure.com/openai/deployments/prod/chat/completions?api-version=2025-01-01-preview"}, reply: fine},
		{name: "Azure, classic: another model is another deployment", base: azureBase, model: "gpt-4o", req: llm.Request{Model: "small", Items: ask().Items}, steps: []served{ok},
			urls: []string{"team.openai.azure.com/openai/deployments/small/chat/completions?api-version=2025-01-01-preview"}, reply: fine},
		{name: "Azure, classic: the Responses API has the deployment in the body alone", base: azureBase, api: "responses", steps: []served{{body: respEvents(respText("fine"))}},
			urls: []string{"team.openai.azure.com/openai/responses?api-version=2025-01-01-preview"}, has: []string{`"model":"prod"`}, reply: reply{text: "fine", usage: llm.Usage{In: 5, Out: 4, Cached: 2, Reasoning: 3}}},
		{name: "Azure, v1: no version is needed", base: "https://team.openai.azure.com/openai/v1/", model: "prod", steps: []served{ok}, urls: []string{"team.openai.azure.com/openai/v1/chat/completions"},
			header: map[string]string{"Api-Key": key, "Authorization": ""}, reply: fine},
		{name: "Azure: the bare address of a resource is its v1", base: "https://team.openai.azure.com", model: "prod", steps: []served{ok}, urls: []string{"team.openai.azure.com/openai/v1/chat/completions"}, reply: fine},
		{name: "Azure: a token of the directory goes instead of the key", base: azureBase, headers: map[string]string{"Authorization": "Bearer entra"}, steps: []served{ok}, header: map[string]string{"Authorization": "Bearer entra"}, reply: fine},
		{name: "Azure: a gateway is known by its path", base: "https://gateway.example/openai/deployments/d?api-version=1", steps: []served{ok}, urls: []string{"gateway.example/openai/deployments/d/chat/completions?api-version=1"},
			header: map[string]string{"Api-Key": key}, reply: fine},
		{name: "Azure: the filter's frame has no choices", base: azureBase, steps: []served{{body: sse(`{"choices":[],"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{}}]}`, textFrame("fine"), finishFrame("stop"), done)}}, reply: fine},
		{name: "Azure: a filtered question is told", base: azureBase, steps: []served{{status: 400, body: `{"error":{"message":"The response was filtered","code":"content_filter","status":400}}`}}, fails: "The response was filtered"},

		// OpenRouter
		{name: "OpenRouter: keep-alive comments, and the cost", base: router, model: "vendor/m", steps: []served{{body: ": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n" + sse(textFrame("fine"), finishFrame("stop"),
			`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"cost":0.00042,"prompt_tokens_details":{"cached_tokens":5},"completion_tokens_details":{"reasoning_tokens":2}}}`, done)}},
			has: []string{`"usage":{"include":true}`}, reply: reply{text: "fine", usage: llm.Usage{In: 7, Out: 3, Cached: 5, Reasoning: 2, Cost: 0.00042}}},
		{name: "OpenRouter: an inline error is tried again", base: router, steps: []served{{body: sse(textFrame("half"), `{"id":"1","error":{"code":"server_error","message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`)}, ok}, reply: fine},
		{name: "OpenRouter: thoughts are no text, and their details go back in one piece", base: router, model: "vendor/m", steps: []served{{body: sse(
			`{"choices":[{"index":0,"delta":{"content":"","reasoning":"I ","reasoning_details":[{"type":"reasoning.text","text":"I ","format":"x","index":0}]}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"","reasoning":"think","reasoning_details":[{"type":"reasoning.text","text":"think","format":"x","index":0}]}}]}`,
			`{"choices":[{"index":0,"delta":{"content":"","reasoning_details":[{"type":"reasoning.text","signature":"sig","format":"x","index":0}]}}]}`,
			`{"choices":[{"index":0,"delta":{"reasoning_details":[{"type":"reasoning.encrypted","data":"zzz","id":"r1","index":1},{"type":"reasoning.encrypted","data":"yyy","index":1}]}}]}`,
			callFrame(`{"index":0,"id":"a",`+f+`}`), finishFrame("tool_calls"), done)}, ok},
			reply: reply{calls: []string{"f {}"}}, back: []string{`"text":"I think"`, `"signature":"sig"`, `"data":"zzz"`, `"data":"yyy"`}, notBack: []string{`"reasoning":`, `"text":"I "`}},

		// Ollama, vLLM, llama.cpp, LM Studio
		{name: "Ollama: no index, no ids, arguments as objects, no usage", model: "qwen", req: bounded, steps: []served{{body: sse(callFrame(`{"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"f","arguments":{"a":2}}}`), finishFrame("stop"), done)}},
			has: []string{`"max_tokens":2000`}, not: []string{"max_completion_tokens"}, reply: reply{calls: []string{`f {"a":1}`, `f {"a":2}`}}},
		{name: "Ollama: an error is a string", model: "qwen", steps: []served{{status: 400, body: `{"error":"qwen does not support tools"}`}}, fails: "does not support tools"},
		{name: "vLLM: empty lists of calls, thoughts, no usage", steps: []served{{body: sse(`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":null,"tool_calls":[]},"logprobs":null,"finish_reason":null}]}`,
			`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`, `{"choices":[{"index":0,"delta":{"content":"fine","tool_calls":[]},"finish_reason":"stop","stop_reason":null}]}`, done)}}, reply: fine, notBack: []string{"hm"}},
		{name: "vLLM: an error has no member error", steps: []served{{status: 400, body: `{"object":"error","message":"No user query found","type":"BadRequestError","param":null,"code":400}`}}, fails: "No user query found"},
		{name: "llama.cpp: an error is a field of its own in the stream", steps: []served{{body: sse(textFrame("x")) + "error: {\"code\":500,\"message\":\"slot lost\",\"type\":\"server_error\"}\n\n"}, ok}, reply: fine},
		{name: "llama.cpp: timings are no harm", steps: []served{{body: sse(textFrame("fine"), `{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"usage":{"completion_tokens":3,"prompt_tokens":7,"total_tokens":10},"timings":{"prompt_n":7}}`, done)}},
			reply: reply{text: "fine", usage: llm.Usage{In: 7, Out: 3}}},
		{name: "LM Studio: an error is an event with a string", steps: []served{{body: "event: error\n" + sse(`{"error":"Model unloaded."}`)}, ok}, reply: fine},
		{name: "an old server refuses the options of streams", steps: []served{refused(400, "Unrecognized request argument supplied: stream_options"), ok}, not: []string{"stream_options"}, reply: fine},
		{name: "a server knows only the new name of the bound", model: "m", req: bounded, steps: []served{refused(400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."), ok},
			has: []string{`"max_completion_tokens":2000`}, not: []string{`"max_tokens"`}, reply: fine},
		{name: "a server knows only the old name of the bound", model: "gpt-5-clone", req: bounded, steps: []served{refused(422, "max_completion_tokens: Extra inputs are not permitted"), ok},
			has: []string{`"max_tokens":2000`}, not: []string{"max_completion_tokens"}, reply: fine}, // also though the client library refuses it for such a name
		{name: "a bound that is too large is no matter of its name", model: "m", req: bounded, steps: []served{refused(400, "max_tokens is too large: 2000")}, urls: []string{"model.test/v1/chat/completions"}, fails: "too large"},

		// DeepSeek, Moonshot, Mistral
		{name: "DeepSeek: thoughts go back with calls", base: deepseek, model: "deepseek-chat", steps: []served{{body: sse(`{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"I th"}}]}`, `{"choices":[{"index":0,"delta":{"reasoning_content":"ink"}}]}`, callFrame(`{"index":0,"id":"a",`+f+`}`),
			`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_cache_hit_tokens":4}}`, done)}, ok}, req: bounded, has: []string{`"max_tokens":2000`},
			reply: reply{calls: []string{"f {}"}, usage: llm.Usage{In: 9, Out: 3, Cached: 4}}, back: []string{`"reasoning_content":"I think"`}},
		{name: "DeepSeek: calls that it did not think of get empty thoughts when it insists", base: deepseek, req: strange, steps: []served{refused(400, "The reasoning_content in the thinking mode must be passed back to the API."), ok},
			has: []string{`"reasoning_content":""`}, reply: fine},
		{name: "a server refuses the thoughts that it gave", steps: []served{{body: sse(`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`, callFrame(`{"index":0,"id":"a",`+f+`}`), finishFrame("tool_calls"), done)},
			refused(400, "messages.1: property 'reasoning_content' is unsupported"), ok}, reply: reply{calls: []string{"f {}"}}, notBack: []string{"reasoning_content"}},
		{name: "Mistral: content is a list with thoughts in it", steps: []served{{body: sse(`{"choices":[{"index":0,"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}}]}`,
			`{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"fine"}]},"finish_reason":"stop"}]}`, done)}}, reply: fine},

		// Gemini
		{name: "Gemini: signatures go back with their calls", base: gemini, model: "gemini-3-pro", steps: []served{{body: sse(callFrame(`{"index":0,"id":"a",`+f+`,"extra_content":{"google":{"thought_signature":"abc"}}},{"index":1,"id":"b",`+f+`}`), finishFrame("stop"), done)}, ok},
			reply: reply{calls: []string{"f {}", "f {}"}}, back: []string{`"extra_content":{"google":{"thought_signature":"abc"}}`}, notBack: []string{"skip_thought"}},
		{name: "Gemini 3: calls that it did not make are marked", base: gemini, model: "gemini-3-pro", req: strange, steps: []served{ok}, has: []string{`"thought_signature":"skip_thought_signature_validator"`}, reply: fine},
		{name: "Gemini 2: calls need no mark", base: gemini, model: "gemini-2.5-pro", req: strange, steps: []served{ok}, not: []string{"thought_signature"}, reply: fine},
		{name: "Gemini: an error is in a list", base: gemini, model: "gemini-3-pro", steps: []served{{status: 400, body: `[{"error":{"code":400,"message":"thought missing","status":"INVALID_ARGUMENT"}}]`}}, fails: "thought missing"},

		// Anthropic
		{name: "Anthropic's layer: the key is a bearer's, the bound has its old name", base: "https://api.anthropic.com/v1/", model: "claude-sonnet", req: bounded, steps: []served{called}, urls: []string{"api.anthropic.com/v1/chat/completions"},
			header: map[string]string{"Authorization": "Bearer " + key}, has: []string{`"max_tokens":2000`}, reply: reply{calls: []string{"f {}"}}},

		// OpenAI
		{name: "OpenAI: the bound has its new name", base: openaiURL, model: "gpt-5.1", req: bounded, steps: []served{ok}, has: []string{`"max_completion_tokens":2000`}, reply: fine},
		{name: "OpenAI: gpt-6 is asked through the Responses API", base: openaiURL, model: "gpt-6-sol", req: llm.Request{Items: ask().Items, Tools: tools.Tools, MaxOut: 5}, steps: []served{{body: respEvents(respText("fine"))}}, urls: []string{"api.openai.com/v1/responses"},
			has: []string{`"store":false`, `"include":["reasoning.encrypted_content"]`, `"stream":true`, `"max_output_tokens":16`, `"strict":false`}, reply: reply{text: "fine", usage: llm.Usage{In: 5, Out: 4, Cached: 2, Reasoning: 3}}},
		{name: "OpenAI: chat is spoken with gpt-6 when that is configured", base: openaiURL, model: "gpt-6-sol", api: "chat", steps: []served{ok}, urls: []string{"api.openai.com/v1/chat/completions"}, reply: fine},
		{name: "OpenAI: a model says that it wants the Responses API", base: openaiURL, model: "o9-pro", steps: []served{refused(404, "This model is only supported in v1/responses and not in v1/chat/completions."), {body: respEvents(respText("fine"))}},
			urls: []string{"api.openai.com/v1/chat/completions", "api.openai.com/v1/responses"}, reply: reply{text: "fine", usage: llm.Usage{In: 5, Out: 4, Cached: 2, Reasoning: 3}}},
		{name: "a proxy says that a model wants the Responses API", model: "big", steps: []served{refused(400, "Tools with this model: use the Responses API instead."), {body: respEvents(respText("fine"))}},
			urls: []string{"model.test/v1/chat/completions", "model.test/v1/responses"}, reply: reply{text: "fine", usage: llm.Usage{In: 5, Out: 4, Cached: 2, Reasoning: 3}}},
		{name: "a proxy's gpt-6 with tools is asked through the Responses API", model: "gpt-6-astra", req: tools, steps: []served{{body: respEvents(respText("fine"))}}, urls: []string{"model.test/v1/responses"}, reply: reply{text: "fine", usage: llm.Usage{In: 5, Out: 4, Cached: 2, Reasoning: 3}}},
		{name: "what a model wants is final when chat is configured", model: "big", api: "chat", steps: []served{refused(400, "use the Responses API")}, urls: []string{"model.test/v1/chat/completions"}, fails: "use the Responses API"},
		{name: "OpenAI: a model that does not think has nothing encrypted", base: openaiURL, model: "gpt-4o", api: "responses", steps: []served{refused(400, "Encrypted content is not supported with this model."), {body: respEvents(respText("fine"))}},
			not: []string{"include"}, reply: reply{text: "fine", usage: llm.Usage{In: 5, Out: 4, Cached: 2, Reasoning: 3}}},
		{name: "OpenAI: another provider's data stays away", base: openaiURL, model: "gpt-5.1", req: llm.Request{Items: []llm.Item{{Role: llm.User, Text: "u"},
			{Role: llm.Assistant, Calls: []llm.Call{{ID: "x", Name: "f", Args: "{}", Meta: json.RawMessage(`{"google":{}}`)}}, Opaque: json.RawMessage(`{"api":"chat","host":"api.deepseek.com","model":"gpt-5.1","members":{"reasoning_content":"\"hm\""}}`)},
			{Role: llm.Tool, CallID: "x", Text: "1"}}}, steps: []served{ok}, not: []string{"extra_content", "reasoning_content"}, reply: fine},
	}
	checker, err := openaitest.NewChecker()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := server(t, tt.steps...)
			rec := &recorder{to: s.URL}
			if tt.base == "" {
				tt.base = "http://model.test/v1"
			}
			c, err := New(Config{
				APIKey: key, BaseURL: tt.base, Model: tt.model, API: tt.api, Headers: tt.headers, HTTPClient: rec,
				Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
			})
			if err != nil {
				t.Fatal(err)
			}
			if tt.req.Items == nil {
				tt.req = ask()
			}
			r, err := c.Reply(t.Context(), tt.req, nil)
			last := rec.all()[len(rec.all())-1]
			for i, want := range tt.urls {
				if all := rec.all(); len(all) != len(tt.urls) || all[i].url != want {
					t.Errorf("the requests went to %+v", all)
				}
			}
			for k, want := range tt.header {
				if got := last.header.Get(k); got != want {
					t.Errorf("header %s is %q", k, got)
				}
			}
			inBody(t, last.body, tt.has, tt.not)
			if tt.base != router {
				if err := checker.Check([]byte(last.body)); err != nil {
					t.Errorf("%v\n%s", err, last.body)
				}
			}
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) {
					t.Fatalf("%+v, %v", r, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var calls []string
			for _, c := range r.Calls {
				calls = append(calls, c.Name+" "+c.Args)
			}
			if r.Text != tt.reply.text || fmt.Sprint(calls) != fmt.Sprint(tt.reply.calls) || r.Usage != tt.reply.usage {
				t.Errorf("%+v", r)
			}
			if tt.back == nil && tt.notBack == nil {
				return
			}
			next := tt.req
			next.Items = append(append([]llm.Item{}, tt.req.Items...), llm.Item{Role: llm.Assistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque})
			for _, c := range r.Calls {
				next.Items = append(next.Items, llm.Item{Role: llm.Tool, CallID: c.ID, Text: "done"})
			}
			if _, err := c.Reply(t.Context(), next, nil); err != nil {
				t.Fatal(err)
			}
			inBody(t, rec.all()[len(rec.all())-1].body, tt.back, tt.notBack)
		})
	}
}

func inBody(t *testing.T, body string, has, not []string) {
	t.Helper()
	for _, s := range has {
		if !strings.Contains(body, s) {
			t.Errorf("%s is missing in %s", s, body)
		}
	}
	for _, s := range not {
		if strings.Contains(body, s) {
			t.Errorf("%s is in %s", s, body)
		}
	}
}

func TestAHabitIsLearntOnce(t *testing.T) {
	s, count := server(t, served{status: 400, body: `{"error":{"message":"use the Responses API"}}`}, served{body: respEvents(respText("fine"))})
	c := client(t, s.URL)
	for n := range 3 {
		var sh shown
		if r, err := c.Reply(t.Context(), ask(), sh.show); err != nil || r.Text != "fine" || count() != n+2 || len(sh.resets) != 0 {
			t.Fatal(r, err, count(), sh)
		}
	}
}
