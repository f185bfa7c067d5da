package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

// What stands for an empty text, which strict servers refuse.
const (
	noText   = "(no text)"
	noOutput = "(no output)"
	empty    = "(empty)"
)

var noParameters = json.RawMessage(`{"type":"object","properties":{}}`)

// chatQuestion is a request in the form of the Chat Completions API.
func chatQuestion(at *endpoint, model string, r llm.Request, want wish) question {
	req := request(at.requestModel(model), r)
	has, top := wantNoUsage, map[string]json.RawMessage{}
	if want&wantNoUsage != 0 {
		req.StreamOptions, has = nil, 0
	}
	if r.MaxOut > 0 {
		has |= wantOtherMax
		if newName := at.newMaxName(model); newName != (want&wantOtherMax != 0) {
			req.MaxCompletionTokens = r.MaxOut
		} else { // not a field of the library's, which refuses it for some names of models
			top["max_tokens"] = json.RawMessage(strconv.Itoa(r.MaxOut))
		}
	}
	if at.brand == openRouter { // the cost is told on request: openrouter.ai/docs, "Usage Accounting"
		top["usage"] = json.RawMessage(`{"include":true}`)
	}
	extras, some := extrasOf(at, model, r.Items, want)
	has |= some
	q := question{
		open: func(ctx context.Context, api *goopenai.Client) (stream, error) {
			return api.CreateChatCompletionStream(ctx, req)
		},
		reader: func() reader { return &assembly{host: at.host, model: model} },
		has:    has,
	}
	if len(extras) > 0 || len(top) > 0 {
		q.edit = func(body []byte) ([]byte, error) { return addExtras(body, top, extras) }
	}
	return q
}

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
				m.Content = noText
			}
		case llm.Tool:
			m.ToolCallID = it.CallID
			if m.Content == "" {
				m.Content = noOutput
			}
		case llm.System, llm.User:
			if m.Content == "" {
				m.Content = empty
			}
		}
		req.Messages = append(req.Messages, m)
	}
	for _, t := range r.Tools {
		f := &goopenai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: t.Schema}
		if len(t.Schema) == 0 {
			f.Parameters = noParameters
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

// extra is what the client library has no field for, of one message.
type extra struct {
	members map[string]json.RawMessage
	calls   []json.RawMessage // extra_content of each call, nil for none
}

// unsigned stands for the signature of a call that Gemini 3 did not make (another
// model or a person did): it refuses calls without one.
// ai.google.dev/gemini-api/docs/thought-signatures, "FAQs".
var unsigned = json.RawMessage(`{"google":{"thought_signature":"skip_thought_signature_validator"}}`)

// extrasOf collects, by message, what providers gave with a reply and want
// back with it: Gemini's signatures (with the calls), reasoning_details
// (OpenRouter, MiniMax) and, with calls only, reasoning_content (DeepSeek,
// Moonshot: api-docs.deepseek.com/guides/thinking_mode).
func extrasOf(at *endpoint, model string, items []llm.Item, want wish) (map[int]extra, wish) {
	var has wish
	out := map[int]extra{}
	for i, it := range items {
		if it.Role != llm.Assistant {
			continue
		}
		x := extra{members: map[string]json.RawMessage{}}
		if o := opaqueOf(it, "chat", at, model); o != nil && want&wantNoOpaque == 0 {
			for k, v := range o.Members {
				if k == "reasoning_details" || (k == "reasoning_content" && len(it.Calls) > 0) {
					x.members[k] = v
					has |= wantNoOpaque
				}
			}
		}
		if len(it.Calls) > 0 && x.members["reasoning_content"] == nil {
			if want&wantReasoning != 0 {
				x.members["reasoning_content"] = json.RawMessage(`""`)
			} else {
				has |= wantReasoning
			}
		}
		signed := false
		for n, c := range it.Calls {
			if at.brand == openAI || at.brand == azure { // they refuse members that they do not know
				break
			}
			if len(c.Meta) > 0 && json.Valid(c.Meta) {
				if x.calls == nil {
					x.calls = make([]json.RawMessage, len(it.Calls))
				}
				x.calls[n], signed = c.Meta, true
			}
		}
		if !signed && len(it.Calls) > 0 && at.brand == google && strings.HasPrefix(bare(model), "gemini-3") {
			x.calls = make([]json.RawMessage, len(it.Calls))
			x.calls[0] = unsigned // of calls made at once, the first one alone has a signature
		}
		if len(x.members) > 0 || x.calls != nil {
			out[i] = x
		}
	}
	return out, has
}

// addExtras puts members into the body that the library wrote, at its top and
// into its messages, which are the items one by one.
func addExtras(body []byte, top map[string]json.RawMessage, extras map[int]extra) ([]byte, error) {
	var req map[string]json.RawMessage
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	maps.Copy(req, top)
	if len(extras) == 0 {
		return encode(req)
	}
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(req["messages"], &messages); err != nil {
		return nil, err
	}
	for i, x := range extras {
		if i >= len(messages) {
			continue
		}
		maps.Copy(messages[i], x.members)
		if x.calls == nil {
			continue
		}
		var calls []map[string]json.RawMessage
		if err := json.Unmarshal(messages[i]["tool_calls"], &calls); err != nil {
			return nil, err
		}
		for n, c := range calls {
			if n < len(x.calls) && x.calls[n] != nil {
				c["extra_content"] = x.calls[n]
			}
		}
		var err error
		if messages[i]["tool_calls"], err = encode(calls); err != nil {
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
