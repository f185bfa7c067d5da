package openai

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"countersign/agent/llm"
)

// requestSchema is the schema of a request in OpenAI's own description.
func requestSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no module root")
		}
		dir = up
	}
	raw, err := os.ReadFile(filepath.Join(dir, "..", "shared", "data", "openai-openapi.json"))
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("openai-openapi.json is missing in ../shared/data of the module")
		}
		t.Skip("put OpenAI's openapi.json into ../shared/data/openai-openapi.json beside the module to check requests against it")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource("https://schema.test/openai.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("https://schema.test/openai.json#/components/schemas/CreateChatCompletionRequest")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRequestsAreValidForOpenAI(t *testing.T) {
	schema := requestSchema(t)
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
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(v); err != nil {
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
