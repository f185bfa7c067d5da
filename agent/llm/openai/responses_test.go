package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"countersign/agent/llm"
	"countersign/agent/llm/openai/openaitest"
)

func respDelta(place int, s string) string {
	return "event: response.output_text.delta\n" + sse(fmt.Sprintf(`{"type":"response.output_text.delta","output_index":%d,"content_index":0,"delta":%q}`, place, s))
}

func respItem(place int, item string) string {
	return sse(fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, place, item))
}

func respCall(id, name, args string) string {
	return fmt.Sprintf(`{"type":"function_call","id":"fc_%s","call_id":%q,"name":%q,"arguments":%q,"status":"completed"}`, id, id, name, args)
}

func respThought(id string) string {
	return `{"type":"reasoning","id":"rs_` + id + `","summary":[],"encrypted_content":"gAAA<` + id + `>","extra":{"kept": 1.50}}`
}

func respSaid(id, text, phase string) string {
	return fmt.Sprintf(`{"type":"message","id":"msg_%s","role":"assistant","status":"completed","phase":%q,"content":[{"type":"output_text","text":%q,"annotations":[]}]}`, id, phase, text)
}

func viaResponses(c *Config) { c.API = "responses" }

func TestResponsesAssembly(t *testing.T) {
	full := llm.Usage{In: 5, Out: 4, Cached: 2, Reasoning: 3}
	created := sse(`{"type":"response.created","response":{"status":"in_progress","output":[],"error":null}}`, `{"type":"response.in_progress","response":{"status":"in_progress","output":[]}}`)
	callDeltas := sse(`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"fc_a","call_id":"a","name":"f","arguments":"","status":"in_progress"}}`,
		`{"type":"response.function_call_arguments.delta","item_id":"fc_a","output_index":1,"delta":"{\"x\""}`, `{"type":"response.function_call_arguments.done","item_id":"fc_a","output_index":1,"arguments":"{\"x\":1}"}`)
	tests := []struct {
		name   string
		body   string
		used   []string
		text   string
		shown  string // when it is not text
		calls  []string
		finish llm.Finish
		usage  llm.Usage
		opaque bool
	}{
		{name: "text streams, and the last event has it once more", body: created + respDelta(0, "fi") + respDelta(0, "ne") + respEvents(respText("fine")), text: "fine", finish: llm.FinishStop, usage: full},
		{name: "calls made at once", body: created + callDeltas + respEvents(respCall("a", "f", `{"x":1}`), respCall("b", "g", `{}`)), calls: []string{`a f {"x":1}`, "b g {}"}, finish: llm.FinishCalls, usage: full},
		{name: "text and calls", body: respDelta(1, "Look.") + respEvents(respThought("1"), respText("Look."), respCall("a", "f", `{}`)), text: "Look.", calls: []string{"a f {}"}, finish: llm.FinishCalls, usage: full, opaque: true},
		{name: "a refusal is text", body: sse(`{"type":"response.refusal.delta","output_index":0,"delta":"No."}`) + respEvents(`{"type":"message","id":"m","role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`), text: "No.", finish: llm.FinishStop, usage: full},
		{name: "two messages are two paragraphs", body: respDelta(0, "one") + respDelta(2, "two") + respEvents(respSaid("1", "one", "commentary"), respThought("1"), respSaid("2", "two", "final_answer")), text: "one\n\ntwo", finish: llm.FinishStop, usage: full, opaque: true},
		{name: "text that did not stream is shown at the end", body: respEvents(respText("fine")), text: "fine", finish: llm.FinishStop, usage: full},
		{name: "a response that is not streamed", body: `{"object":"response","status":"completed","error":null,"output":[` + respText("fine") + `],"usage":{"input_tokens":2}}`, text: "fine", finish: llm.FinishStop, usage: llm.Usage{In: 2}},
		{name: "the last event does not repeat the items", body: respItem(1, respCall("a", "f", "{}")) + respItem(0, respText("fine")) + respDelta(0, "fine") + respEvents(), text: "fine", calls: []string{"a f {}"}, finish: llm.FinishCalls, usage: full},
		{name: "the last event repeats nothing at all", body: respDelta(0, "fine") + respEvents(), text: "fine", finish: llm.FinishStop, usage: full},
		{name: "a bound cuts the reply", body: respDelta(0, "fi") + respEvent("response.incomplete", `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[`+respThought("1")+`,`+respCall("a", "f", `{"x`)+`],"usage":{"input_tokens":1,"output_tokens":16}}`),
			shown: "fi", calls: []string{`a f {"x`}, finish: llm.FinishLength, usage: llm.Usage{In: 1, Out: 16}},
		{name: "a filter leaves text and no calls", body: respDelta(0, "fi") + respEvent("response.incomplete", `{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[`+respText("fi")+`,`+respCall("a", "f", `{}`)+`]}`), text: "fi", finish: llm.FinishFilter},
		{name: "an id that the thread knows is replaced", body: respEvents(respCall("a", "f", "{}"), respCall("a", "f", "{}")), used: []string{"a"}, calls: []string{"9 f {}", "9 f {}"}, finish: llm.FinishCalls, usage: full},
		{name: "events that nobody knows do no harm", body: sse(`{"type":"response.shiny","delta":{"a":[1]}}`, `{"type":"keepalive"}`) + ": ping\n\n" + respEvents(respText("fine")), text: "fine", finish: llm.FinishStop, usage: full},
		{name: "thoughts that the server keeps to itself cannot go back", body: respEvents(`{"type":"reasoning","id":"rs_1","summary":[]}`, respText("fine")), text: "fine", finish: llm.FinishStop, usage: full},
		{name: "an item of another kind is skipped", body: respEvents(`{"type":"web_search_call","id":"ws_1","status":"completed"}`, respThought("1"), respText("fine")), text: "fine", finish: llm.FinishStop, usage: full},
		{name: "DONE after the last event does no harm", body: respEvents(respText("fine")) + "data: [DONE]\n\n", text: "fine", finish: llm.FinishStop, usage: full},
		{name: "arguments may be an object", body: respEvents(`{"type":"function_call","call_id":"a","name":"f","arguments":{"x":1}}`), calls: []string{`a f {"x":1}`}, finish: llm.FinishCalls, usage: full},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := server(t, served{body: tt.body})
			req := ask()
			req.UsedCallIDs = map[string]bool{}
			for _, id := range tt.used {
				req.UsedCallIDs[id] = true
			}
			var sh shown
			r, err := client(t, s.URL, viaResponses, func(c *Config) { c.MaxAttempts = 1 }).Reply(t.Context(), req, sh.show)
			if err != nil {
				t.Fatal(err)
			}
			var calls []string
			for _, c := range r.Calls {
				if nineChar.MatchString(c.ID) {
					c.ID = "9"
				}
				calls = append(calls, c.ID+" "+c.Name+" "+c.Args)
			}
			if tt.shown == "" {
				tt.shown = tt.text
			}
			if r.Text != tt.text || sh.text != tt.shown || fmt.Sprint(calls) != fmt.Sprint(tt.calls) || r.Finish != tt.finish || r.Usage != tt.usage || (r.Opaque != nil) != tt.opaque || r.Model != "m" {
				t.Fatalf("%+v, shown %q", r, sh.text)
			}
		})
	}
}

func TestResponsesFaults(t *testing.T) {
	call := respItem(0, respCall("a", "f", "{}"))
	tests := []struct {
		name  string
		body  string
		retry bool
		says  string
		is    int
		long  bool
		hang  bool
	}{
		{name: "no last event is incomplete, whatever came", body: respDelta(0, "x") + call, retry: true, says: "was cut off"},
		{name: "DONE without the last event is incomplete", body: call + "data: [DONE]\n\n", retry: true, says: "was cut off"},
		{name: "a failed response", body: respDelta(0, "x") + respEvent("response.failed", `{"status":"failed","error":{"code":"server_error","message":"no luck"},"output":[]}`), retry: true, says: "no luck"},
		{name: "a failed response without a reason", body: respEvent("response.failed", `{"status":"failed","error":null}`), retry: true},
		{name: "a failed response for the rate", body: respEvent("response.failed", `{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}`), retry: true, is: 429},
		{name: "a failed response for the prompt is final", body: respEvent("response.failed", `{"status":"failed","error":{"code":"invalid_prompt","message":"bad prompt"}}`), says: "bad prompt"},
		{name: "a failed response that is not streamed", body: `{"object":"response","status":"failed","error":{"code":"server_error","message":"no luck"},"output":[]}`, retry: true, says: "no luck"},
		{name: "a cancelled response", body: respEvent("response.cancelled", `{"status":"cancelled"}`), retry: true},
		{name: "an error event", body: "event: error\n" + sse(`{"type":"error","code":"server_error","message":"no luck","param":null,"sequence_number":3}`), retry: true, says: "no luck"},
		{name: "an error event without its event line", body: sse(`{"type":"error","code":null,"message":"no luck","param":null}`), retry: true, says: "no luck"},
		{name: "an error event with its parts a level below", body: "event: error\n" + sse(`{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}`), long: true},
		{name: "garbled frames", body: sse(`{"type":"response.completed","response":[1]}`), retry: true},
		{name: "silence", body: respDelta(0, "x"), hang: true, retry: true, says: "timed out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, count := server(t, served{body: tt.body, hang: tt.hang})
			idle := func(c *Config) {
				if tt.hang {
					c.Idle = 20 * time.Millisecond
				}
			}
			r, err := client(t, s.URL, viaResponses, idle).Reply(t.Context(), ask(), nil)
			var e *llm.Error
			want := 1
			if tt.retry {
				want = 4
			}
			if !errors.As(err, &e) || !strings.Contains(e.Sentence, tt.says) || e.Status != tt.is || e.TooLong != tt.long || count() != want || len(r.Calls) > 0 {
				t.Fatalf("%+v, %v, %d attempts", r, err, count())
			}
			if tt.retry {
				s, _ := server(t, served{body: tt.body, hang: tt.hang}, served{body: respDelta(0, "fine") + respEvents(respText("fine"))})
				var sh shown
				if r, err := client(t, s.URL, viaResponses, idle).Reply(t.Context(), ask(), sh.show); err != nil || r.Text != "fine" || sh.text != "fine" || len(sh.resets) != 1 {
					t.Fatalf("%+v, %v, %+v", r, err, sh)
				}
			}
		})
	}
}

// inputOfBody returns the items of a request, each on its own.
func inputOfBody(t interface{ Fatal(...any) }, body string) []map[string]any {
	var req struct {
		Input []map[string]any `json:"input"`
	}
	if err := json.Unmarshal([]byte(body), &req); err != nil {
		t.Fatal(err)
	}
	return req.Input
}

// brief says which items a request has, in its order.
func brief(items []map[string]any) string {
	var out []string
	for _, it := range items {
		switch it["type"] {
		case "message":
			text := fmt.Sprint(it["content"])
			if list, ok := it["content"].([]any); ok {
				text = fmt.Sprint(list[0].(map[string]any)["text"])
			}
			s := fmt.Sprint(it["role"], ":", text)
			for _, k := range []string{"id", "phase"} {
				if it[k] != nil {
					s += fmt.Sprint("/", it[k])
				}
			}
			out = append(out, s)
		case "function_call":
			s := fmt.Sprint("call:", it["call_id"])
			if it["id"] != nil {
				s += fmt.Sprint("/", it["id"])
			}
			out = append(out, s)
		case "function_call_output":
			out = append(out, fmt.Sprint("result:", it["call_id"]))
		default:
			out = append(out, fmt.Sprint("thought:", it["id"]))
		}
	}
	return strings.Join(out, " ")
}

func TestThoughtsGoBackInTheirPlaces(t *testing.T) {
	output := []string{respThought("1"), respSaid("1", "Look.", "commentary"), respCall("a", "f", "{}"), respThought("2"), respCall("b", "f", "{}")}
	refused := served{status: 400, body: `{"error":{"message":"The encrypted content for item rs_1 could not be verified.","type":"invalid_request_error","code":"invalid_encrypted_content"}}`}
	tests := []struct {
		name   string
		output []string
		used   string
		change func(*llm.Item)
		other  func(*Config)
		steps  []served // of the second server, before its answer
		want   string   // of the reply's items
	}{
		{name: "in the order of the response, with all ids", output: output, want: "thought:rs_1 assistant:Look./msg_1/commentary call:a/fc_a thought:rs_2 call:b/fc_b"},
		{name: "with the ids that the thread gave", output: output, used: "b", want: "thought:rs_1 assistant:Look./msg_1/commentary call:a/fc_a thought:rs_2 call:9/fc_b"},
		{name: "with the text of now", output: output, change: func(it *llm.Item) { it.Text = "[removed]" }, want: "thought:rs_1 assistant:[removed]/msg_1/commentary call:a/fc_a thought:rs_2 call:b/fc_b"},
		{name: "not when the text is gone", output: output, change: func(it *llm.Item) { it.Text = "" }, want: "call:a call:b"},
		{name: "not when a call is gone", output: output, change: func(it *llm.Item) { it.Calls = it.Calls[:1] }, want: "assistant:Look. call:a"},
		{name: "not when there is a call more", output: output, change: func(it *llm.Item) {
			it.Calls = append(it.Calls[:2:2], llm.Call{ID: "c", Name: "f", Args: "{}"})
		}, want: "assistant:Look. call:a call:b call:c"},
		{name: "not to another model", output: output, other: func(c *Config) { c.Model = "m2" }, want: "assistant:Look. call:a call:b"},
		{name: "not when they cannot be read", output: output, change: func(it *llm.Item) { it.Opaque = json.RawMessage(`{"api":`) }, want: "assistant:Look. call:a call:b"},
		{name: "not when the server cannot read them any more", output: output, steps: []served{refused}, want: "assistant:Look. call:a call:b"},
		{name: "not when the server looks for them in its store", output: output, steps: []served{{status: 404, body: "{\"error\":{\"message\":\"Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.\"}}"}}, want: "assistant:Look. call:a call:b"},
		{name: "not when they belong to nothing", output: []string{respThought("1")}, want: "assistant:(no text)"},
		{name: "two messages stay two", output: []string{respSaid("1", "one", "commentary"), respThought("1"), respSaid("2", "two", "final_answer")}, want: "assistant:one/msg_1/commentary thought:rs_1 assistant:two/msg_2/final_answer"},
		{name: "two messages that changed are one without thoughts", output: []string{respSaid("1", "one", "commentary"), respThought("1"), respSaid("2", "two", "final_answer")}, change: func(it *llm.Item) { it.Text = "[removed]\n\ntwo" }, want: "assistant:[removed]\n\ntwo"},
		{name: "a phase alone goes back too", output: []string{respSaid("1", "Look.", "commentary"), respCall("a", "f", "{}")}, want: "assistant:Look./msg_1/commentary call:a/fc_a"},
		{name: "a reply without thoughts needs nothing", output: []string{respText("Look."), respCall("a", "f", "{}")}, want: "assistant:Look. call:a"},
	}
	checker, err := openaitest.NewChecker()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := server(t, append(append([]served{{body: respEvents(tt.output...)}}, tt.steps...), served{body: respEvents(respText("fine"))})...)
			rec := &recorder{to: s.URL}
			via := func(c *Config) { c.API, c.HTTPClient = "responses", rec }
			req := llm.Request{Items: []llm.Item{{Role: llm.System, Text: "s"}, {Role: llm.User, Text: "u"}}, UsedCallIDs: map[string]bool{tt.used: true}}
			r, err := client(t, "http://model.test", via).Reply(t.Context(), req, nil)
			if err != nil {
				t.Fatal(err)
			}
			it := llm.Item{Role: llm.Assistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque}
			if tt.change != nil {
				tt.change(&it)
			}
			req.Items = append(req.Items, it)
			tail := ""
			for _, c := range it.Calls {
				req.Items = append(req.Items, llm.Item{Role: llm.Tool, CallID: c.ID})
				tail += " result:" + c.ID
			}
			req.Items = append(req.Items, llm.Item{Role: llm.User, Text: "more"})
			if tt.other == nil {
				tt.other = func(*Config) {}
			}
			if _, err := client(t, "http://model.test", via, tt.other).Reply(t.Context(), req, nil); err != nil {
				t.Fatal(err)
			}
			body := rec.all()[len(rec.all())-1].body
			got := brief(inputOfBody(t, body))
			for _, c := range r.Calls {
				if nineChar.MatchString(c.ID) {
					got, tail = strings.ReplaceAll(got, c.ID, "9"), strings.ReplaceAll(tail, c.ID, "9")
				}
			}
			if want := "system:s user:u " + tt.want + tail + " user:more"; got != want {
				t.Errorf("sent %s\nwant %s", got, want)
			}
			if strings.Contains(tt.want, "thought:rs_1") && !strings.Contains(strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(body), `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA<1>","extra":{"kept":1.50}}`) {
				t.Errorf("the thought changed: %s", body)
			}
			if err := checker.Check([]byte(body)); err != nil {
				t.Errorf("%v\n%s", err, body)
			}
		})
	}
}

// TestAnyOrderOfItemsComesBack: whatever a response is made of, the next request
// has the same items in the same order, and OpenAI's description accepts it.
func TestAnyOrderOfItemsComesBack(t *testing.T) {
	checker, err := openaitest.NewChecker()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		var output, want []string
		thought := false
		n := rapid.IntRange(1, 8).Draw(t, "n")
		for i := range n {
			id := fmt.Sprint(i)
			kind := rapid.IntRange(0, 2).Draw(t, "kind")
			if i == n-1 && kind == 0 {
				kind = 2 // a thought belongs to something after it
			}
			switch kind {
			case 0:
				output, want, thought = append(output, respThought(id)), append(want, "thought:rs_"+id), true
			case 1:
				output, want = append(output, respSaid(id, "text "+id, "commentary")), append(want, "assistant:text "+id+"/msg_"+id+"/commentary")
			case 2:
				output, want = append(output, respCall("c"+id, "f", "{}")), append(want, "call:c"+id+"/fc_c"+id)
			}
		}
		var e events
		if _, f := e.add([]byte(`{"type":"response.completed","response":{"status":"completed","output":[` + strings.Join(output, ",") + `]}}`)); f != nil {
			t.Fatal(f)
		}
		r := e.reply()
		if thought != (r.Opaque != nil) && !strings.Contains(strings.Join(want, ""), "assistant") {
			t.Fatalf("opaque %s of %v", r.Opaque, want)
		}
		items := []llm.Item{{Role: llm.User, Text: "u"}, {Role: llm.Assistant, Text: r.Text, Calls: r.Calls, Opaque: r.Opaque}}
		for _, c := range r.Calls {
			items = append(items, llm.Item{Role: llm.Tool, CallID: c.ID, Text: "ok"})
			want = append(want, "result:"+c.ID)
		}
		got := bodyOf(t, llm.Request{Items: items})
		if r.Opaque != nil && brief(inputOfBody(t, string(got))) != "user:u "+strings.Join(want, " ") {
			t.Fatalf("got  %s\nwant %s", brief(inputOfBody(t, string(got))), strings.Join(want, " "))
		}
		if err := checker.Check(got); err != nil {
			t.Fatalf("%v\n%s", err, got)
		}
	})
}

// bodyOf is the input of a request to the model "" of nobody's server.
func bodyOf(t interface{ Fatal(...any) }, r llm.Request) []byte {
	input := []any{}
	for _, it := range r.Items {
		items, ok := []any(nil), false
		if o := opaqueOf(it, "responses", &endpoint{}, ""); o != nil {
			items, ok = replay(it, o.Output)
		}
		if !ok {
			items = inputOf(it)
		}
		input = append(input, items...)
	}
	body, err := json.Marshal(object{"model": "m", "input": input})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// FuzzOpaque: whatever a transcript holds as the opaque part of a reply, the
// request has each call of it once and in order.
func FuzzOpaque(f *testing.F) {
	f.Add([]byte(`{"api":"responses","host":"","model":"","output":[{"raw":{"type":"reasoning"}},{"message":{"id":"m","bytes":1}},{"call":{"id":"c","n":0}},{"call":{"n":1}}]}`), "x", 2)
	f.Add([]byte(`{"api":"responses","output":[{"message":{"bytes":-1}},{"message":{"bytes":9}},{"call":{"n":1}},{}]}`), "a\n\nb", 1)
	f.Add([]byte(`{"api":"responses","output":[{"raw":null},{"raw":7},{"call":null}]}`), "", 0)
	f.Fuzz(func(t *testing.T, raw []byte, text string, n int) {
		it := llm.Item{Role: llm.Assistant, Text: text, Opaque: raw}
		for i := range min(max(n, 0), 5) {
			it.Calls = append(it.Calls, llm.Call{ID: fmt.Sprint("id", i), Name: "f", Args: "{}"})
		}
		var got []string
		for _, it := range inputOfBody(t, string(bodyOf(t, llm.Request{Items: []llm.Item{it}}))) {
			if it["call_id"] != nil && it["type"] == "function_call" {
				got = append(got, fmt.Sprint(it["call_id"]))
			}
		}
		want := []string{}
		for _, c := range it.Calls {
			want = append(want, c.ID)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("calls %v, want %v", got, want)
		}
	})
}
