// Package llm is the port to a language model: a conversation goes in, one
// reply with its tool calls comes out. Implementations are agent/llm/openai
// (any OpenAI-compatible server) and [Script] (for tests and the demo).
//
// It does not loop, run tools or keep history: package agent does.
package llm

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Role says who an [Item] comes from.
type Role string

// The roles, with the names of the Chat Completions API.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
)

// Item is one message of the conversation that a model is given.
type Item struct {
	Role   Role
	Text   string
	Calls  []Call // Assistant only
	CallID string // Tool only: the call that Text answers
	// Opaque is what [Reply.Opaque] was, Assistant only.
	Opaque json.RawMessage
}

// Call is one tool call that the model asks for.
type Call struct {
	ID   string `json:"id"`   // unique in the thread
	Name string `json:"name"` // as the model wrote it
	// Args is what the model wrote, byte for byte; it may be invalid JSON.
	Args string `json:"args"`
	// Meta is opaque data of the provider that must be sent back with the call.
	Meta json.RawMessage `json:"meta,omitempty"`
}

// ToolSpec describes one tool to the model.
type ToolSpec struct {
	Name        string
	Description string
	Schema      json.RawMessage
	// Foreign says that the schema is somebody else's, which a server may refuse.
	Foreign bool
}

// Request is one question to the model.
type Request struct {
	Thread string // for headers, logs and deterministic call ids; never sent as content
	// Model is the model to ask; "" is the one that the client was made for.
	Model string
	Items []Item
	Tools []ToolSpec
	// MaxOut bounds the reply, in tokens; 0 leaves it to the server.
	MaxOut int
	// UsedCallIDs are the call ids that the thread has already seen; a reply
	// never repeats one.
	UsedCallIDs map[string]bool
}

// Delta is a piece of a reply while it streams.
type Delta struct {
	Text string
	// Reset means that the reply starts over (a retry): forget the text so far.
	Reset bool
	// Note is a sentence for people ("the model is overloaded, trying again in 2s").
	Note string
}

// Finish says why a reply ended.
type Finish string

// The reasons.
const (
	FinishStop   Finish = "stop"
	FinishCalls  Finish = "tool_calls"
	FinishLength Finish = "length" // cut: its tool calls must not run
	FinishFilter Finish = "content_filter"
)

// Usage counts tokens as the provider reports them; zero means unknown.
type Usage struct {
	In     int `json:"in,omitempty"`
	Out    int `json:"out,omitempty"`
	Cached int `json:"cached,omitempty"` // of In
	// Reasoning tokens are a part of Out.
	Reasoning int `json:"reasoning,omitempty"`
	// Cost is what the provider says that it charged, in US dollars; 0 means that it
	// did not say.
	Cost float64 `json:"cost,omitempty"`
}

// Reply is one complete answer of the model.
type Reply struct {
	Text   string
	Calls  []Call
	Finish Finish
	Usage  Usage
	// Model is the model that answered, as it was asked for.
	Model string
	// Opaque is what the provider wants back with this reply as it was (encrypted
	// reasoning). Only the same model of the same client understands it.
	Opaque json.RawMessage
	// Notice is a sentence that people should keep, said once; "" is none.
	Notice string
}

// Model answers requests. It is safe for concurrent use. It retries what is
// worth retrying by itself; an error that comes back is final for this turn
// and is an [*Error].
type Model interface {
	Reply(ctx context.Context, r Request, show func(Delta)) (Reply, error)
}

// Error is a model failure that a person in the thread is told about.
type Error struct {
	// Sentence says what is wrong and what to do, without secrets.
	Sentence string
	Status   int           // HTTP status, 0 when there was none
	Retry    time.Duration // the provider asked to wait this long, 0 when it did not
	// TooLong means that the conversation does not fit the model's window.
	TooLong bool
	Cause   error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("llm: %s (%v)", e.Sentence, e.Cause)
	}
	return "llm: " + e.Sentence
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }
