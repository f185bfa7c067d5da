package openaitest_test

import (
	"strings"
	"testing"

	"countersign/agent/llm/openai/openaitest"
)

func TestTheCheckerFindsWhatOpenAIWouldRefuse(t *testing.T) {
	const (
		call   = `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}`
		a, b   = `{"role":"tool","tool_call_id":"a","content":"1"}`, `{"role":"tool","tool_call_id":"b","content":"2"}`
		user   = `{"role":"user","content":"u"}`
		fa, fb = `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`, `{"type":"function_call","call_id":"b","name":"f","arguments":"{}"}`
		oa, ob = `{"type":"function_call_output","call_id":"a","output":"1"}`, `{"type":"function_call_output","call_id":"b","output":"2"}`
		think  = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}`
		ask    = `{"type":"message","role":"user","content":"u"}`
		said   = `{"type":"message","role":"assistant","content":"t"}`
	)
	chat := func(items ...string) string { return `{"model":"m","messages":[` + strings.Join(items, ",") + `]}` }
	input := func(items ...string) string { return `{"model":"m","input":[` + strings.Join(items, ",") + `]}` }
	tests := []struct{ name, body, wrong string }{
		{"chat: calls and results in order", chat(user, call, a, b, user), ""},
		{"chat: results out of order", chat(user, call, b, a), "not in order"},
		{"chat: a result twice", chat(user, call, a, b, b), "answers no call"},
		{"chat: an orphan", chat(user, a), "answers no call"},
		{"chat: no result", chat(user, call, a, user), "before the results of b"},
		{"chat: no result at the end", chat(user, call, a), "the end comes before"},
		{"chat: an id twice", chat(user, call, a, b, call, a, b), "there twice"},
		{"chat: a name with a space", `{"model":"m","messages":[` + user + `],"tools":[{"type":"function","function":{"name":"a b","parameters":{"type":"object"}}}]}`, `name "a b"`},
		{"chat: a result without content", chat(user, call, `{"role":"tool","tool_call_id":"a"}`, b), "content"},
		{"chat: no model", `{"messages":[` + user + `]}`, "model"},
		{"chat: an unknown member", `{"model":"m","max_output_tokens":5,"messages":[` + user + `]}`, "max_output_tokens"},
		{"responses: thoughts, text, calls and results in order", input(ask, think, said, fa, think, fb, oa, ob, think, said, ask), ""},
		{"responses: a text instead of items", `{"model":"m","input":"u"}`, ""},
		{"responses: a thought alone", input(ask, think, ask), "what it belongs to"},
		{"responses: a thought at the end", input(ask, said, think), "last item is a thought"},
		{"responses: results out of order", input(ask, fa, fb, ob, oa), "not in order"},
		{"responses: a call between results", input(ask, fa, fb, oa, think, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, ob), "before the results"},
		{"responses: no result", input(ask, fa, ask), "before the results of a"},
		{"responses: a tool without strict", `{"model":"m","input":[` + ask + `],"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}]}`, "tools/0"},
		{"responses: a bound that is too small", `{"model":"m","max_output_tokens":3,"input":[` + ask + `]}`, "max_output_tokens"},
		{"responses: an unknown member", `{"model":"m","max_tokens":3,"input":[` + ask + `]}`, `"max_tokens"`},
		{"no JSON", `{`, "not JSON"},
		{"no object", `[]`, "not a JSON object"},
	}
	c, err := openaitest.NewChecker()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := c.Check([]byte(tt.body))
			if (err == nil) != (tt.wrong == "") || (err != nil && !strings.Contains(err.Error(), tt.wrong)) {
				t.Fatalf("%v\n%s", err, tt.body)
			}
		})
	}
}
