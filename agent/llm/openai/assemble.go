package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"countersign/agent/llm"
)

// chunk is one frame of a stream, or a whole completion.
type chunk struct {
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type choice struct {
	Index   int    `json:"index"`
	Delta   delta  `json:"delta"`
	Message *delta `json:"message"` // of a completion that is not streamed
	Finish  text   `json:"finish_reason"`

	Error json.RawMessage `json:"error"`
}

type delta struct {
	Content text       `json:"content"`
	Refusal text       `json:"refusal"`
	Calls   []callPart `json:"tool_calls"`

	// What a model thought. It is no part of the reply; reasoning_content and
	// reasoning_details go back with it, reasoning never does.
	Reasoning text            `json:"reasoning_content"`
	Details   json.RawMessage `json:"reasoning_details"`
}

type callPart struct {
	Index    *int `json:"index"`
	ID       text `json:"id"`
	Function struct {
		Name text            `json:"name"`
		Args json.RawMessage `json:"arguments"`
	} `json:"function"`
	Extra json.RawMessage `json:"extra_content"`
}

// usage has the names of both APIs.
type usage struct {
	Prompt     float64 `json:"prompt_tokens"`
	Completion float64 `json:"completion_tokens"`
	Details    struct {
		Cached float64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Spent struct {
		Reasoning float64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	CacheHit float64 `json:"prompt_cache_hit_tokens"` // DeepSeek

	Input        float64 `json:"input_tokens"`
	Output       float64 `json:"output_tokens"`
	InputDetails struct {
		Cached float64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputDetails struct {
		Reasoning float64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`

	Cost json.RawMessage `json:"cost"` // OpenRouter: US dollars, a number
}

// usageOf reads an account, or says false when there is none: it never fails a reply.
func usageOf(raw json.RawMessage) (llm.Usage, bool) {
	var u usage
	if json.Unmarshal(raw, &u) != nil {
		return llm.Usage{}, false
	}
	out := llm.Usage{
		In: count(max(u.Prompt, u.Input)), Out: count(max(u.Completion, u.Output)),
		Cached:    count(max(u.Details.Cached, u.CacheHit, u.InputDetails.Cached)),
		Reasoning: count(max(u.Spent.Reasoning, u.OutputDetails.Reasoning)),
	}
	if cost, err := strconv.ParseFloat(strings.Trim(string(u.Cost), `"`), 64); err == nil && cost > 0 && !math.IsInf(cost, 0) {
		out.Cost = cost
	}
	return out, out.In > 0 || out.Out > 0
}

// text is a string that servers also write as null or as a list of parts.
type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		return json.Unmarshal(b, (*string)(t))
	case '[':
		var parts []struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(b, &parts); err != nil {
			return err
		}
		for _, p := range parts {
			*t += text(p.Text)
		}
	case 'n':
	default:
		*t = text(b) // a number as an id
	}
	return nil
}

// open is a call that is still arriving.
type open struct {
	id, name string
	args     strings.Builder
	meta     json.RawMessage
	chunk    int // the frame in which it began
}

// isComplete reports whether the arguments are complete JSON. While they grow to an
// object only their last piece can make them so.
func (o *open) isComplete() bool { return json.Valid([]byte(o.args.String())) }

// assembly puts the frames of one reply of the chat API together. The zero
// value is ready.
type assembly struct {
	host, model string // for the opaque part

	text      strings.Builder
	reasoning strings.Builder
	details   []map[string]json.RawMessage

	calls  []*open
	byIdx  map[int]*open
	byID   map[string]*open
	group  []*open // what the last frame with several calls began
	frames int
	finish string
	usage  llm.Usage
}

// add takes one frame and returns the text that it brought.
func (a *assembly) add(frame []byte) (string, *fault) {
	var c chunk
	a.frames++
	frame, f := unwrap(frame)
	if f != nil || len(frame) == 0 {
		return "", f
	}
	if err := json.Unmarshal(frame, &c); err != nil {
		// A wrong type beside an error still says what the error is.
		if !fails(c.Error) {
			return "", &fault{kind: garbled, retry: true}
		}
	}
	if fails(c.Error) {
		return "", faultInStream(c.Error)
	}
	if u, ok := usageOf(c.Usage); ok {
		a.usage = u
	}
	var news strings.Builder
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue
		}
		if fails(ch.Error) {
			return "", faultInStream(ch.Error)
		}
		d := ch.Delta
		if ch.Message != nil {
			d = *ch.Message
			if ch.Finish == "" {
				ch.Finish = "stop"
			}
		}
		news.WriteString(string(d.Content))
		news.WriteString(string(d.Refusal))
		a.think(d)
		a.parts(d.Calls)
		if ch.Finish != "" {
			a.finish = string(ch.Finish)
		}
	}
	switch strings.ToLower(a.finish) {
	case "error", "network_error", "abort", "aborted", "insufficient_system_resource":
		// The server gave up in the middle: what calls there are may be cut.
		return "", &fault{kind: inStream, retry: true}
	}
	a.text.WriteString(news.String())
	return news.String(), nil
}

// unwrap takes a frame out of the array in which Gemini wraps its errors.
func unwrap(frame []byte) ([]byte, *fault) {
	frame = bytes.TrimSpace(frame)
	if len(frame) == 0 || frame[0] != '[' {
		return frame, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(frame, &list) != nil || len(list) == 0 || list[0][0] != '{' {
		return nil, &fault{kind: garbled, retry: true}
	}
	return list[0], nil
}

// think keeps what a model wants back of its thoughts. Details come in pieces:
// those of the same kind and place in a row are one, whose texts are joined;
// one that is encrypted is whole (openrouter.ai/docs, "Preserving Reasoning").
func (a *assembly) think(d delta) {
	if a.reasoning.Len() < maxOpaque {
		a.reasoning.WriteString(string(d.Reasoning))
	}
	var details []map[string]json.RawMessage
	if !present(d.Details) || json.Unmarshal(d.Details, &details) != nil || len(a.details) > maxOpaque/100 {
		return // of another shape: nothing that could go back
	}
	for _, piece := range details {
		var last map[string]json.RawMessage
		if n := len(a.details); n > 0 {
			last = a.details[n-1]
		}
		if last == nil || present(piece["data"]) || string(last["type"]) != string(piece["type"]) || string(last["index"]) != string(piece["index"]) ||
			(present(piece["id"]) && present(last["id"]) && string(piece["id"]) != string(last["id"])) {
			a.details = append(a.details, piece)
			continue
		}
		for k, v := range piece {
			if k == "text" || k == "summary" {
				v = joined(last[k], v)
			}
			if present(v) || last[k] == nil {
				last[k] = v
			}
		}
	}
}

// joined joins two JSON strings; anything else is the second one, or the first
// one when that says nothing.
func joined(a, b json.RawMessage) json.RawMessage {
	var x, y string
	if !present(a) || json.Unmarshal(a, &x) != nil {
		return b
	}
	if !present(b) || json.Unmarshal(b, &y) != nil {
		return a
	}
	out, err := encode(x + y)
	if err != nil {
		return a
	}
	return out
}

// present says whether a member of an object is there and not null.
func present(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null"
}

// fails says whether the error member of an object says that something failed;
// some servers send an empty one with every frame.
func fails(raw json.RawMessage) bool {
	switch string(raw) {
	case `{}`, `[]`, `""`, `false`, `0`:
		return false
	}
	return present(raw)
}

func count(n float64) int {
	if n < 0 || n > 1<<40 {
		return 0
	}
	return int(n)
}

func (a *assembly) parts(parts []callPart) {
	var begun []*open
	for i, p := range parts {
		before := len(a.calls)
		o := a.find(p, i, len(parts))
		if o == nil {
			continue
		}
		if len(a.calls) > before {
			begun = append(begun, o)
		}
		if p.ID != "" && o.id == "" {
			o.id = string(p.ID)
			a.byID[o.id] = o
		}
		if p.Function.Name != "" {
			o.name = string(p.Function.Name) // set: some servers repeat it
		}
		if present(p.Extra) {
			o.meta = bytes.Clone(p.Extra)
		}
		o.mergeArgs(p.Function.Args)
	}
	if len(begun) > 1 {
		a.group = begun
	}
}

// mergeArgs adds a piece of arguments: a string is a fragment, an object is all.
func (o *open) mergeArgs(raw json.RawMessage) {
	if !present(raw) {
		return
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		o.args.WriteString(s)
		return
	}
	o.args.Reset()
	o.args.Write(raw)
}

// find says which call a part belongs to, beginning one where it is new, or
// nil for a part that says nothing.
func (a *assembly) find(p callPart, pos, of int) *open {
	name, id := string(p.Function.Name), string(p.ID)
	says := present(p.Function.Args) && string(p.Function.Args) != `""`
	if p.Index != nil {
		o := a.byIdx[*p.Index]
		// Some servers number every call 0: another id and a name after
		// complete arguments is another call.
		if o == nil || (id != "" && name != "" && o.id != "" && id != o.id && o.isComplete()) {
			o = a.begin()
			a.byIdx[*p.Index] = o
		}
		return o
	}
	if id != "" {
		o := a.byID[id]
		// The same id again with a name, in one frame or after complete
		// arguments, is another call with a duplicate id.
		if o == nil || (name != "" && says && (o.chunk == a.frames || o.isComplete())) {
			o = a.begin()
			a.byID[id] = o
		}
		return o
	}
	var last *open
	if len(a.calls) > 0 {
		last = a.calls[len(a.calls)-1]
	}
	if name != "" {
		if last != nil && last.name == name && last.chunk != a.frames && (!says || !last.isComplete()) {
			return last
		}
		return a.begin()
	}
	if !says {
		return nil
	}
	if of > 1 && pos < len(a.group) {
		return a.group[pos]
	}
	if last == nil {
		return a.begin()
	}
	return last
}

func (a *assembly) begin() *open {
	if a.byIdx == nil {
		a.byIdx, a.byID = map[int]*open{}, map[string]*open{}
	}
	o := &open{chunk: a.frames}
	a.calls = append(a.calls, o)
	return o
}

// ended implements reader.
func (a *assembly) ended() bool { return a.finish != "" }

// complete says whether the frames so far are a whole reply for a server that
// ends streams with [DONE] alone: there are calls, and none is cut.
func (a *assembly) complete() bool {
	if a.finish != "" {
		return true
	}
	for _, o := range a.calls {
		if o.name == "" || !o.isComplete() {
			return false
		}
	}
	return len(a.calls) > 0
}

// reply returns the reply. It is called only when the reply is complete.
func (a *assembly) reply() llm.Reply {
	r := llm.Reply{Text: a.text.String(), Usage: a.usage}
	for _, o := range a.calls {
		if o.name == "" && o.args.Len() == 0 {
			continue
		}
		r.Calls = append(r.Calls, llm.Call{ID: o.id, Name: o.name, Args: o.args.String(), Meta: o.meta})
	}
	switch strings.ToLower(a.finish) {
	case "length", "max_tokens":
		r.Finish = llm.FinishLength
	case "content_filter", "safety":
		r.Finish, r.Calls = llm.FinishFilter, nil
	default:
		r.Finish = llm.FinishStop
		if len(r.Calls) > 0 {
			r.Finish = llm.FinishCalls
		}
		r.Opaque = a.opaque(len(r.Calls) > 0)
	}
	return r
}

// opaque is what goes back with the reply. DeepSeek wants its thoughts back
// with calls only, so others are not kept.
func (a *assembly) opaque(calls bool) json.RawMessage {
	o := opaque{API: "chat", Host: a.host, Model: a.model, Members: map[string]json.RawMessage{}}
	if calls && a.reasoning.Len() > 0 {
		if raw, err := encode(a.reasoning.String()); err == nil {
			o.Members["reasoning_content"] = raw
		}
	}
	if len(a.details) > 0 {
		if raw, err := encode(a.details); err == nil {
			o.Members["reasoning_details"] = raw
		}
	}
	if len(o.Members) == 0 {
		return nil
	}
	return o.encode()
}
