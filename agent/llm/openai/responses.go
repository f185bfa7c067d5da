package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	goopenai "github.com/sashabaranov/go-openai"

	"countersign/agent/llm"
)

// leastOut is the smallest bound that the Responses API takes, in tokens.
const leastOut = 16

// object is a JSON object of a request. The library's structs for the Responses
// API leave out members that OpenAI's description wants ("strict": false), so
// input and tools are written here.
type object = map[string]any

// responsesQuestion is a request in the form of the Responses API. Nothing is
// stored at the server: what the model thought comes back encrypted, is kept
// with the transcript and goes back in its place.
func responsesQuestion(at *endpoint, model string, r llm.Request, want wish) question {
	var has wish
	store := false
	req := goopenai.CreateResponseRequest{Model: at.requestModel(model), Store: &store}
	if want&wantNoInclude == 0 {
		req.Include, has = []goopenai.ResponseInclude{goopenai.ResponseIncludeReasoningEncryptedContent}, wantNoInclude
	}
	if r.MaxOut > 0 {
		req.MaxOutputTokens = max(r.MaxOut, leastOut)
	}
	input := []any{}
	for _, it := range r.Items {
		items, ok := []any(nil), false
		if o := opaqueOf(it, "responses", at, model); o != nil && want&wantNoOpaque == 0 {
			if items, ok = replay(it, o.Output); ok {
				has |= wantNoOpaque
			}
		}
		if !ok {
			items = inputOf(it)
		}
		input = append(input, items...)
	}
	req.ExtraBody = map[string]any{"input": input}
	if tools := responseTools(r.Tools); tools != nil {
		req.ExtraBody["tools"] = tools
	}
	return question{
		open: func(ctx context.Context, api *goopenai.Client) (stream, error) {
			return api.CreateResponseStream(ctx, req)
		},
		reader: func() reader { return &events{host: at.host, model: model} },
		has:    has,
		once:   wantNoOpaque, // one thread's thoughts cannot go back: a matter of that thread
	}
}

func responseTools(specs []llm.ToolSpec) []any {
	var tools []any
	for _, t := range specs {
		o := object{"type": "function", "name": t.Name, "parameters": t.Schema, "strict": false}
		if len(t.Schema) == 0 {
			o["parameters"] = noParameters
		}
		if t.Description != "" {
			o["description"] = t.Description
		}
		tools = append(tools, o)
	}
	return tools
}

// inputOf writes an item without what its provider gave with it.
func inputOf(it llm.Item) []any {
	message := func(role llm.Role, text, instead string) object {
		if text == "" {
			text = instead
		}
		return object{"type": "message", "role": string(role), "content": text}
	}
	switch it.Role {
	case llm.Tool:
		text := it.Text
		if text == "" {
			text = noOutput
		}
		return []any{object{"type": "function_call_output", "call_id": it.CallID, "output": text}}
	case llm.Assistant:
		var out []any
		if it.Text != "" || len(it.Calls) == 0 {
			out = append(out, message(it.Role, it.Text, noText))
		}
		for _, c := range it.Calls {
			out = append(out, callInput(c))
		}
		return out
	default:
		return []any{message(it.Role, it.Text, empty)}
	}
}

func callInput(c llm.Call) object {
	return object{"type": "function_call", "call_id": c.ID, "name": sentName(c.Name), "arguments": sentArgs(c.Args)}
}

// outputItem is one item of a response: a thought as it came, or the place of
// a message or call, whose texts and ids the transcript has.
type outputItem struct {
	Raw     json.RawMessage `json:"raw,omitempty"`
	Message *messagePlace   `json:"message,omitempty"`
	Call    *callPlace      `json:"call,omitempty"`
}

type messagePlace struct {
	ID    string `json:"id,omitempty"`
	Phase string `json:"phase,omitempty"`
	Bytes int    `json:"bytes"` // of its text
}

type callPlace struct {
	ID string `json:"id,omitempty"` // the item's, which is not the call's
	N  int    `json:"n"`            // in the reply's calls
}

// between parts the messages of one reply.
const between = "\n\n"

// replay puts an item back into the order of its response, with the texts and
// ids of now. It says false when that is not possible, because the text or the
// calls are no longer as many: then the thoughts do not go back either.
func replay(it llm.Item, output []outputItem) ([]any, bool) {
	if it.Role != llm.Assistant || len(output) == 0 || output[len(output)-1].Raw != nil {
		return nil, false // a thought at the end belongs to nothing
	}
	texts, ok := splitOutput(it.Text, output)
	if !ok {
		return nil, false
	}
	var out []any
	var calls int
	for _, o := range output {
		switch {
		case o.Raw != nil:
			var thought struct {
				Type string `json:"type"`
			}
			if json.Unmarshal(o.Raw, &thought) != nil || thought.Type != "reasoning" {
				return nil, false
			}
			out = append(out, o.Raw)
		case o.Message != nil:
			m := object{"type": "message", "role": string(llm.Assistant), "content": texts[0]}
			if o.Message.ID != "" {
				m["id"], m["status"] = o.Message.ID, "completed"
				m["content"] = []any{object{"type": "output_text", "text": texts[0], "annotations": []any{}, "logprobs": []any{}}}
			}
			if o.Message.Phase != "" {
				m["phase"] = o.Message.Phase
			}
			texts = texts[1:]
			out = append(out, m)
		case o.Call != nil:
			if o.Call.N != calls || calls >= len(it.Calls) {
				return nil, false
			}
			c := callInput(it.Calls[calls])
			if o.Call.ID != "" {
				c["id"] = o.Call.ID
			}
			calls++
			out = append(out, c)
		}
	}
	return out, calls == len(it.Calls)
}

// splitOutput takes the text of a reply apart into its messages. One message may have
// changed (what is secret is removed from transcripts), several must not.
func splitOutput(text string, output []outputItem) ([]string, bool) {
	var sizes []int
	for _, o := range output {
		if o.Message != nil {
			sizes = append(sizes, o.Message.Bytes)
		}
	}
	switch len(sizes) {
	case 0:
		return nil, text == ""
	case 1:
		return []string{text}, text != ""
	}
	var texts []string
	for i, n := range sizes {
		if n < 0 || n > len(text) {
			return nil, false
		}
		texts = append(texts, text[:n])
		text = text[n:]
		if i < len(sizes)-1 {
			var ok bool
			if text, ok = strings.CutPrefix(text, between); !ok {
				return nil, false
			}
		}
	}
	return texts, text == ""
}

// event is one frame of a stream of the Responses API, or a whole response.
type event struct {
	Type     string          `json:"type"`
	Response json.RawMessage `json:"response"`
	Item     json.RawMessage `json:"item"`
	Index    int             `json:"output_index"`
	Delta    json.RawMessage `json:"delta"`
	Error    json.RawMessage `json:"error"`
	Object   string          `json:"object"`
}

type response struct {
	Status  string            `json:"status"`
	Error   json.RawMessage   `json:"error"`
	Output  []json.RawMessage `json:"output"`
	Usage   json.RawMessage   `json:"usage"`
	Details struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

// events puts the events of one response together.
type events struct {
	host, model string // for the opaque part

	done     map[int]json.RawMessage // items that are complete, by their place
	streamed strings.Builder
	message  int  // the place of the message that streams
	end      bool // the last event came
	cut      string
	usage    llm.Usage
	answer   answer
}

// answer is what the items of a response say.
type answer struct {
	text   strings.Builder
	calls  []llm.Call
	places []outputItem
	worth  bool // there is something in the places that the texts do not say
	odd    bool // there is something that cannot go back
}

// add implements reader.
func (e *events) add(frame []byte) (string, *fault) {
	frame, f := unwrap(frame)
	if f != nil || len(frame) == 0 {
		return "", f
	}
	var ev event
	if json.Unmarshal(frame, &ev) != nil && !fails(ev.Error) {
		return "", &fault{kind: garbled, retry: true}
	}
	if ev.Type == "" && ev.Object == "response" && !fails(ev.Error) {
		return e.finish(frame, "response.completed")
	}
	if fails(ev.Error) {
		return "", faultInStream(ev.Error)
	}
	switch ev.Type {
	case "error":
		return "", faultInStream(frame)
	case "response.output_text.delta", "response.refusal.delta":
		return e.stream(ev), nil
	case "response.output_item.done":
		if e.done == nil {
			e.done = map[int]json.RawMessage{}
		}
		e.done[ev.Index] = bytes.Clone(ev.Item)
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		return e.finish(ev.Response, ev.Type)
	}
	return "", nil
}

// stream takes a piece of a message's text.
func (e *events) stream(ev event) string {
	var s string
	if json.Unmarshal(ev.Delta, &s) != nil || s == "" {
		return ""
	}
	if e.streamed.Len() > 0 && ev.Index != e.message {
		s = between + s
	}
	e.message = ev.Index
	e.streamed.WriteString(s)
	return s
}

// finish takes the last event, which has all items once more, and returns the
// text that did not stream.
func (e *events) finish(raw json.RawMessage, kind string) (string, *fault) {
	var r response
	if json.Unmarshal(raw, &r) != nil {
		return "", &fault{kind: garbled, retry: true}
	}
	status := r.Status
	if status == "" {
		status = strings.TrimPrefix(kind, "response.")
	}
	switch {
	case status == "failed" || kind == "response.failed" || fails(r.Error):
		if fails(r.Error) {
			return "", faultInStream(r.Error)
		}
		return "", &fault{kind: inStream, retry: true}
	case status == "incomplete" || kind == "response.incomplete":
		if e.cut = r.Details.Reason; e.cut == "" {
			e.cut = "max_output_tokens"
		}
	case status != "completed":
		return "", &fault{kind: inStream, retry: true}
	}
	if u, ok := usageOf(r.Usage); ok {
		e.usage = u
	}
	items := r.Output
	if len(items) == 0 { // some servers do not repeat them
		for _, i := range slices.Sorted(maps.Keys(e.done)) {
			items = append(items, e.done[i])
		}
	}
	e.answer = answer{}
	for _, item := range items {
		if !e.answer.addItem(item) {
			return "", &fault{kind: garbled, retry: true}
		}
	}
	if e.answer.text.Len() == 0 && len(items) == 0 {
		e.answer.text.WriteString(e.streamed.String())
	}
	e.end = true
	if e.streamed.Len() == 0 {
		return e.answer.text.String(), nil
	}
	return "", nil
}

// addItem reads one item, or says false when it is no item.
func (a *answer) addItem(raw json.RawMessage) bool {
	var it struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Phase   text   `json:"phase"`
		Content []struct {
			Text    text `json:"text"`
			Refusal text `json:"refusal"`
		} `json:"content"`
		CallID    text            `json:"call_id"`
		Name      string          `json:"name"`
		Args      json.RawMessage `json:"arguments"`
		Encrypted string          `json:"encrypted_content"`
	}
	if json.Unmarshal(raw, &it) != nil {
		return false
	}
	switch it.Type {
	case "message":
		var b strings.Builder
		for _, p := range it.Content {
			b.WriteString(string(p.Text))
			b.WriteString(string(p.Refusal))
		}
		if b.Len() == 0 {
			break
		}
		if a.text.Len() > 0 {
			a.text.WriteString(between)
		}
		a.text.WriteString(b.String())
		a.places = append(a.places, outputItem{Message: &messagePlace{ID: it.ID, Phase: string(it.Phase), Bytes: b.Len()}})
		a.worth = a.worth || it.Phase != ""
	case "function_call":
		var o open
		o.mergeArgs(it.Args)
		id := string(it.CallID)
		if id == "" {
			id = it.ID
		}
		a.places = append(a.places, outputItem{Call: &callPlace{ID: it.ID, N: len(a.calls)}})
		a.calls = append(a.calls, llm.Call{ID: id, Name: it.Name, Args: o.args.String()})
	case "reasoning":
		// A thought that the server keeps to itself cannot go back, and neither
		// can the ids of what it belongs to.
		if it.Encrypted == "" && len(it.Content) == 0 {
			a.odd = true
			break
		}
		a.places, a.worth = append(a.places, outputItem{Raw: bytes.Clone(raw)}), true
	default:
		a.odd = true
	}
	return true
}

// ended implements reader.
func (e *events) ended() bool { return e.end }

// complete implements reader: nothing but the last event completes a response.
func (e *events) complete() bool { return e.end }

// reply implements reader.
func (e *events) reply() llm.Reply {
	r := llm.Reply{Text: e.answer.text.String(), Calls: e.answer.calls, Usage: e.usage, Finish: llm.FinishStop}
	switch {
	case e.cut == "content_filter":
		r.Finish, r.Calls = llm.FinishFilter, nil
	case e.cut != "":
		r.Finish = llm.FinishLength
	default:
		if len(r.Calls) > 0 {
			r.Finish = llm.FinishCalls
		}
		if e.answer.worth && !e.answer.odd {
			o := opaque{API: "responses", Host: e.host, Model: e.model, Output: e.answer.places}
			r.Opaque = o.encode()
		}
	}
	return r
}
