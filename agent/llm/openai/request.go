package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

// What stands for text that is not there: the client leaves out an empty
// content, and servers refuse a message without one.
const (
	noOutput = "(no output)"
	noText   = "(empty message)"
)

const noParameters = `{"type":"object","properties":{}}`

// metas are the opaque data that servers want back with their calls, by call
// id. The client has no field for them; the shim puts them in.
type metas map[string]json.RawMessage

// request renders r for the API. Its error is an [*llm.Error].
func request(model string, r llm.Request) (goopenai.ChatCompletionRequest, metas, error) {
	req := goopenai.ChatCompletionRequest{Model: model, StreamOptions: &goopenai.StreamOptions{IncludeUsage: true}}
	var ms metas
	for _, it := range r.Items {
		m := goopenai.ChatCompletionMessage{Role: string(it.Role), Content: it.Text}
		switch it.Role {
		case llm.System:
			if it.Text == "" {
				continue
			}
		case llm.Assistant:
			if it.Text == "" && len(it.Calls) == 0 {
				continue
			}
			for _, c := range it.Calls {
				m.ToolCalls = append(m.ToolCalls, goopenai.ToolCall{
					ID: c.ID, Type: goopenai.ToolTypeFunction,
					Function: goopenai.FunctionCall{Name: replayName(c.Name), Arguments: replayArgs(c.Args)},
				})
				if len(c.Meta) > 0 && json.Valid(c.Meta) {
					if ms == nil {
						ms = metas{}
					}
					ms[c.ID] = c.Meta
				}
			}
		case llm.Tool:
			m.ToolCallID = it.CallID
			if it.Text == "" {
				m.Content = noOutput
			}
		case llm.User:
			if it.Text == "" {
				m.Content = noText
			}
		default:
			return req, nil, &llm.Error{Sentence: fmt.Sprintf("The conversation has a message of the unknown role %q; this is a bug of the bot, please report it.", it.Role)}
		}
		req.Messages = append(req.Messages, m)
	}
	for _, t := range r.Tools {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(noParameters)
		}
		if !json.Valid(schema) {
			return req, nil, &llm.Error{Sentence: fmt.Sprintf("The tool %q has a schema that is no JSON; disable the tool or mend the plugin that brings it.", t.Name)}
		}
		req.Tools = append(req.Tools, goopenai.Tool{Type: goopenai.ToolTypeFunction, Function: &goopenai.FunctionDefinition{
			Name: t.Name, Description: t.Description, Parameters: schema,
		}})
	}
	return req, ms, nil
}

// replayArgs gives the arguments as the history may hold them: servers refuse
// a whole conversation for one call whose arguments are no JSON object.
func replayArgs(args string) string {
	if t := strings.TrimSpace(args); strings.HasPrefix(t, "{") && json.Valid([]byte(t)) {
		return args
	}
	return "{}"
}

// replayName makes the name of a call one that the API accepts, for models that
// made one up.
func replayName(name string) string {
	ok := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
	if ok == "" {
		return "unnamed"
	}
	return ok[:min(len(ok), 64)]
}

// withMetas puts metas into the body of a request.
func withMetas(body []byte, ms metas) ([]byte, error) {
	var top map[string]json.RawMessage
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(body, &top); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(top["messages"], &messages); err != nil {
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
			if err := json.Unmarshal(c["id"], &id); err != nil {
				return nil, err
			}
			if meta := ms[id]; meta != nil {
				c["extra_content"] = meta
			}
		}
		raw, err := json.Marshal(calls)
		if err != nil {
			return nil, err
		}
		m["tool_calls"] = raw
	}
	raw, err := json.Marshal(messages)
	if err != nil {
		return nil, err
	}
	top["messages"] = raw
	return json.Marshal(top)
}
