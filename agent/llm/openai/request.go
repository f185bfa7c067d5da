package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

// request writes the conversation in the form that strict servers accept: no
// message lacks its content, no call its arguments.
func request(model string, r llm.Request) goopenai.ChatCompletionRequest {
	req := goopenai.ChatCompletionRequest{
		Model: model, Stream: true,
		StreamOptions: &goopenai.StreamOptions{IncludeUsage: true},
		Messages:      make([]goopenai.ChatCompletionMessage, 0, len(r.Items)),
	}
	for _, it := range r.Items {
		m := goopenai.ChatCompletionMessage{Role: string(it.Role), Content: it.Text}
		switch it.Role {
		case llm.Assistant:
			for _, c := range it.Calls {
				m.ToolCalls = append(m.ToolCalls, goopenai.ToolCall{
					ID: c.ID, Type: goopenai.ToolTypeFunction,
					Function: goopenai.FunctionCall{Name: sentName(c.Name), Arguments: sentArgs(c.Args)},
				})
			}
			if m.Content == "" && len(m.ToolCalls) == 0 {
				m.Content = "(no text)"
			}
		case llm.Tool:
			m.ToolCallID = it.CallID
			if m.Content == "" {
				m.Content = "(no output)"
			}
		case llm.System, llm.User:
			if m.Content == "" {
				m.Content = "(empty)"
			}
		}
		req.Messages = append(req.Messages, m)
	}
	for _, t := range r.Tools {
		f := &goopenai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: t.Schema}
		if len(t.Schema) == 0 {
			f.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		req.Tools = append(req.Tools, goopenai.Tool{Type: goopenai.ToolTypeFunction, Function: f})
	}
	return req
}

// sentArgs are the arguments as the model sees them again. What was not a JSON
// object is not repaired: the tool's error in the next message says more.
func sentArgs(args string) string {
	if s := strings.TrimSpace(args); !strings.HasPrefix(s, "{") || !json.Valid([]byte(s)) {
		return "{}"
	}
	return args
}

// sentName makes a name that the model invented one that servers accept.
func sentName(name string) string {
	clean := []byte(name)
	for i, c := range clean {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			clean[i] = '_'
		}
	}
	if len(clean) == 0 {
		return "unknown"
	}
	return string(clean[:min(len(clean), 64)])
}

type metaKey struct{}

// metaOf collects the opaque provider data of calls by call id.
func metaOf(items []llm.Item) map[string]json.RawMessage {
	var meta map[string]json.RawMessage
	for _, it := range items {
		for _, c := range it.Calls {
			if len(c.Meta) > 0 && json.Valid(c.Meta) {
				if meta == nil {
					meta = map[string]json.RawMessage{}
				}
				meta[c.ID] = c.Meta
			}
		}
	}
	return meta
}

func withMeta(ctx context.Context, meta map[string]json.RawMessage) context.Context {
	if meta == nil {
		return ctx
	}
	return context.WithValue(ctx, metaKey{}, meta)
}

// injectMeta puts the provider data back beside its calls; the client library
// has no field for it, and Gemini refuses calls that come back without.
func injectMeta(body []byte, meta map[string]json.RawMessage) ([]byte, error) {
	var req map[string]json.RawMessage
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(req["messages"], &messages); err != nil {
		return nil, err
	}
	for _, m := range messages {
		if m["tool_calls"] == nil {
			continue
		}
		var calls []map[string]json.RawMessage
		if err := json.Unmarshal(m["tool_calls"], &calls); err != nil {
			return nil, err
		}
		for _, c := range calls {
			var id string
			if json.Unmarshal(c["id"], &id) == nil && meta[id] != nil {
				c["extra_content"] = meta[id]
			}
		}
		var err error
		if m["tool_calls"], err = encode(calls); err != nil {
			return nil, err
		}
	}
	var err error
	if req["messages"], err = encode(messages); err != nil {
		return nil, err
	}
	return encode(req)
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
