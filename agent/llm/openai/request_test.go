package openai

import (
	"bytes"
	"encoding/json"
	"testing"

	"countersign/agent/llm"
	"countersign/agent/llm/openai/openaitest"
)

func TestRequestsAreValidForOpenAI(t *testing.T) {
	checker, err := openaitest.NewChecker()
	if err != nil {
		t.Fatal(err)
	}
	tools := []llm.ToolSpec{{Name: "run_shell", Description: "Run.", Schema: json.RawMessage(`{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`)}, {Name: "now"}}
	tests := []struct {
		name string
		req  llm.Request
		has  []string
		not  []string
	}{
		{"no tools, no key tools", ask(), []string{`"stream":true`, `"include_usage":true`}, []string{`"tools"`}},
		{"schemas go out as they are", llm.Request{Items: []llm.Item{{Role: llm.System, Text: "s"}, {Role: llm.User, Text: "u"}}, Tools: tools}, []string{string(tools[0].Schema)}, []string{"slack"}},
		{"empty arguments are {}", history("", "out"), []string{`"arguments":"{}"`}, nil},
		{"invalid arguments are {}", history(`{"a": tru`, "out"), []string{`"arguments":"{}"`}, []string{"tru`"}},
		{"arguments that are no object are {}", history(`[1]`, "out"), []string{`"arguments":"{}"`}, nil},
		{"valid arguments go back as they were", history(`{"b": 1, "a": 2}`, "out"), []string{`{\"b\": 1, \"a\": 2}`}, nil},
		{"empty output is named", history("{}", ""), []string{`"content":"(no output)"`}, nil},
		{"empty texts are named", llm.Request{Items: []llm.Item{{Role: llm.System}, {Role: llm.User}, {Role: llm.Assistant}}}, []string{"(empty)", "(no text)"}, nil},
		{"an invented name is made legal", llm.Request{Items: []llm.Item{{Role: llm.User, Text: "u"},
			{Role: llm.Assistant, Calls: []llm.Call{{ID: "a", Name: "rm -rf /"}, {ID: "b"}}}, {Role: llm.Tool, CallID: "a"}, {Role: llm.Tool, CallID: "b"}}},
			[]string{`"name":"rm_-rf__"`, `"name":"unknown"`}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := sent(t, tt.req)
			if err := checker.Check(body); err != nil {
				t.Errorf("%v\n%s", err, body)
			}
			for _, s := range tt.has {
				if !bytes.Contains(body, []byte(s)) {
					t.Errorf("%s is missing in %s", s, body)
				}
			}
			for _, s := range tt.not {
				if bytes.Contains(body, []byte(s)) {
					t.Errorf("%s is in %s", s, body)
				}
			}
		})
	}
}

func history(args, out string) llm.Request {
	return llm.Request{Thread: "slack:C1:1", Items: []llm.Item{
		{Role: llm.System, Text: "s"}, {Role: llm.User, Text: "u"},
		{Role: llm.Assistant, Calls: []llm.Call{{ID: "call_1", Name: "f", Args: args}}},
		{Role: llm.Tool, CallID: "call_1", Text: out}, {Role: llm.User, Text: "more"},
	}}
}
