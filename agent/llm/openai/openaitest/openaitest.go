// Package openaitest is a model server with a script, for tests and the demo:
// it speaks enough of OpenAI's Chat Completions API for any client of it, and
// a function decides what the model says: written in Go, or made of rules
// ([FirstOf]) that may come from a file ([Load]). Like the real one it refuses
// conversations in which tool calls and their results do not match.
//
// It does not check keys or count real tokens, and keeps nothing but a journal
// of the bodies of the latest requests.
package openaitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxRequest bounds the body of a request.
const maxRequest = 32 << 20

// maxJournal bounds the bytes of the journal; the newest request always fits.
const maxJournal = 32 << 20

// Conversation is what a script sees of a request.
type Conversation struct {
	Model    string
	System   string // the system prompt
	User     string // the last user message
	Results  int    // tool results since that message
	Last     string // the last tool result of the conversation, "" when there is none
	Messages int    // messages in all, with the system prompt
	All      []Message
	Tools    []string // the names of the tools, in their order
}

// Message is one message of a [Conversation].
type Message struct {
	Role   string // system, user, assistant or tool
	Text   string
	Calls  []Call // of an assistant
	CallID string // of a tool: the call that it answers
}

// Call is one tool call of a [Turn].
type Call struct {
	ID   string // in a turn, empty means that the server makes one
	Name string
	Args string // sent as it is, valid JSON or not
}

// Turn is what the model answers.
type Turn struct {
	Text  string
	Calls []Call
	// Delay is the time between the chunks of a stream.
	Delay time.Duration
	// Status, when it is neither 0 nor 200, makes this an HTTP error; Text is its message.
	Status int
	// RetryAfter is the header of that name, for errors.
	RetryAfter string
	// Finish, when it is not "", is the reason instead of stop or tool_calls.
	Finish string
	// Cut, when it is not 0, breaks the connection after so many chunks.
	Cut int
}

// Server is an http.Handler. It is safe for concurrent use if its script is.
type Server struct {
	next func(Conversation) Turn
	mux  *http.ServeMux

	mu      sync.Mutex
	journal []json.RawMessage
	bytes   int
}

// New returns a server that answers with what next says. next may be called
// from many goroutines at once.
func New(next func(Conversation) Turn) *Server {
	s := &Server{next: next, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /v1/chat/completions", s.chat)
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"object": "list", "data": []any{
			map[string]any{"id": "scripted", "object": "model", "created": 0, "owned_by": "openaitest"},
		}})
	})
	s.mux.HandleFunc("GET /journal", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"requests": s.Journal()})
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, http.StatusNotFound, fmt.Sprintf("Invalid URL (%s %s)", r.Method, r.URL.Path))
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Journal returns the bodies of the requests so far, oldest first, also of
// those that were refused. When they are many, the oldest are gone.
func (s *Server) Journal() []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]json.RawMessage{}, s.journal...)
}

func (s *Server) record(body json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.journal = append(s.journal, body)
	s.bytes += len(body)
	for s.bytes > maxJournal && len(s.journal) > 1 {
		s.bytes -= len(s.journal[0])
		s.journal = s.journal[1:]
	}
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls []struct {
		ID       string `json:"id"`
		Function struct {
			Name string `json:"name"`
			Args string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
	ToolCallID string `json:"tool_call_id"`
}

func (m message) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(m.Content, &parts) // anything else has no text
	for _, p := range parts {
		s += p.Text
	}
	return s
}

type request struct {
	Model    string    `json:"model"`
	Messages []message `json:"messages"`
	Stream   bool      `json:"stream"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	Options struct {
		Usage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, "The request is too large.")
		return
	}
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		fail(w, http.StatusBadRequest, "We could not parse the JSON body of your request.")
		return
	}
	s.record(body)
	if why := mismatch(req.Messages); why != "" {
		fail(w, http.StatusBadRequest, why)
		return
	}
	t := s.next(conversation(req))
	if t.RetryAfter != "" {
		w.Header().Set("Retry-After", t.RetryAfter)
	}
	if t.Status != 0 && t.Status != http.StatusOK {
		fail(w, t.Status, t.Text)
		return
	}
	a := reply{req: req, turn: t, in: len(body) / 4}
	if req.Stream {
		a.stream(w, r)
		return
	}
	if t.Cut > 0 {
		panic(http.ErrAbortHandler) // net/http breaks the connection
	}
	answer(w, http.StatusOK, a.whole())
}

func conversation(req request) Conversation {
	c := Conversation{Model: req.Model, Messages: len(req.Messages)}
	for _, t := range req.Tools {
		c.Tools = append(c.Tools, t.Function.Name)
	}
	for _, m := range req.Messages {
		out := Message{Role: m.Role, Text: m.text(), CallID: m.ToolCallID}
		for _, k := range m.ToolCalls {
			out.Calls = append(out.Calls, Call{ID: k.ID, Name: k.Function.Name, Args: k.Function.Args})
		}
		c.All = append(c.All, out)
		switch m.Role {
		case "system", "developer":
			c.System += out.Text
		case "user":
			c.User, c.Results = m.text(), 0
		case "tool":
			c.Last = m.text()
			c.Results++
		}
	}
	return c
}

// mismatch says what is wrong with the order of calls and results, or "".
func mismatch(all []message) string {
	if len(all) == 0 {
		return "Invalid 'messages': empty array."
	}
	var waiting []string
	for i, m := range all {
		if m.Role == "tool" {
			n := slices.Index(waiting, m.ToolCallID)
			if n < 0 {
				return fmt.Sprintf("messages.[%d]: a message with role 'tool' must answer a call of the message before it.", i)
			}
			if len(m.Content) == 0 || string(m.Content) == "null" {
				return fmt.Sprintf("messages.[%d].content: missing.", i)
			}
			waiting = slices.Delete(waiting, n, n+1)
			continue
		}
		if len(waiting) > 0 {
			return fmt.Sprintf("messages.[%d]: no result for the tool calls %s.", i, strings.Join(waiting, ", "))
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || slices.Contains(waiting, c.ID) {
				return fmt.Sprintf("messages.[%d].tool_calls: missing or duplicate id.", i)
			}
			waiting = append(waiting, c.ID)
		}
	}
	if len(waiting) > 0 {
		return "No result for the tool calls " + strings.Join(waiting, ", ") + "."
	}
	return ""
}

type object = map[string]any

type reply struct {
	req  request
	turn Turn
	in   int // rough tokens of the request
}

func (a reply) id() string { return fmt.Sprintf("chatcmpl-%d", len(a.req.Messages)) }

func (a reply) callID(n int) string {
	if id := a.turn.Calls[n].ID; id != "" {
		return id
	}
	return fmt.Sprintf("call_%d_%d", len(a.req.Messages), n)
}

func (a reply) finish() string {
	if a.turn.Finish != "" {
		return a.turn.Finish
	}
	if len(a.turn.Calls) > 0 {
		return "tool_calls"
	}
	return "stop"
}

func (a reply) usage() object {
	out := len(a.turn.Text)
	for _, c := range a.turn.Calls {
		out += len(c.Name) + len(c.Args)
	}
	out = out/4 + 1
	return object{"prompt_tokens": a.in, "completion_tokens": out, "total_tokens": a.in + out}
}

func (a reply) whole() object {
	m := object{"role": "assistant", "content": nil, "refusal": nil}
	if a.turn.Text != "" {
		m["content"] = a.turn.Text
	}
	var calls []object
	for i, c := range a.turn.Calls {
		calls = append(calls, object{"id": a.callID(i), "type": "function", "function": object{"name": c.Name, "arguments": c.Args}})
	}
	if calls != nil {
		m["tool_calls"] = calls
	}
	return object{
		"id": a.id(), "object": "chat.completion", "created": 0, "model": a.req.Model,
		"choices": []any{object{"index": 0, "message": m, "logprobs": nil, "finish_reason": a.finish()}},
		"usage":   a.usage(),
	}
}

// chunks are the frames of the stream, in the shapes that OpenAI sends: the
// role first, text in pieces, each call by its name and then its arguments in
// pieces, the reason, the usage.
func (a reply) chunks() []object {
	var out []object
	add := func(delta object, finish any) {
		out = append(out, object{
			"id": a.id(), "object": "chat.completion.chunk", "created": 0, "model": a.req.Model,
			"choices": []any{object{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}},
		})
	}
	first := object{"role": "assistant", "content": ""}
	if a.turn.Text == "" && len(a.turn.Calls) > 0 {
		first["content"] = nil
	}
	add(first, nil)
	for _, s := range pieces(a.turn.Text, 12) {
		add(object{"content": s}, nil)
	}
	for i, c := range a.turn.Calls {
		add(object{"tool_calls": []any{object{
			"index": i, "id": a.callID(i), "type": "function", "function": object{"name": c.Name, "arguments": ""},
		}}}, nil)
		for _, s := range pieces(c.Args, 9) {
			add(object{"tool_calls": []any{object{"index": i, "function": object{"arguments": s}}}}, nil)
		}
	}
	add(object{}, a.finish())
	if a.req.Options.Usage {
		for _, c := range out {
			c["usage"] = nil
		}
		out = append(out, object{
			"id": a.id(), "object": "chat.completion.chunk", "created": 0, "model": a.req.Model,
			"choices": []any{}, "usage": a.usage(),
		})
	}
	return out
}

// pieces cuts s into parts of n runes.
func pieces(s string, n int) []string {
	var out []string
	for part := range slices.Chunk([]rune(s), n) {
		out = append(out, string(part))
	}
	return out
}

func (a reply) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	for i, c := range a.chunks() {
		if a.turn.Cut > 0 && i >= a.turn.Cut {
			panic(http.ErrAbortHandler) // net/http breaks the connection
		}
		if i > 0 && !pause(r, a.turn.Delay) {
			return
		}
		b, err := json.Marshal(c)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", b); err != nil || rc.Flush() != nil {
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n") // a client that left needs no end
}

// pause waits, and says whether the client is still there.
func pause(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return r.Context().Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

func fail(w http.ResponseWriter, status int, text string) {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "requests"
	case status >= 500:
		kind = "server_error"
	}
	if text == "" {
		text = http.StatusText(status)
	}
	answer(w, status, object{"error": object{"message": text, "type": kind, "param": nil, "code": nil}})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that left needs no answer
}
