// Package api is the vocabulary between the web console and the bot behind it, beyond what all chat networks
// share: what programs ask for ([CallRequest], [Calls]), the lists ([List]) and the first page ([Home]). Its JSON is what
// docs/openapi.yaml describes.
//
// It decides nothing and answers no request: package console reads and writes the JSON, and packages below bot
// say what is in it.
package api

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"countersign/adapters/chat"
)

// CallRequest is what a program, or a person at a keyboard, asks for over an API: a command on a target,
// or a call of a tool.
type CallRequest struct {
	// Key is the asker's own name of it: the same key again is the same call, which runs once.
	Key string `json:"key"`
	// Task names what the asker is at: what it asks for one task is one conversation. "" begins one.
	Task string `json:"task,omitempty"`
	// Thread is a conversation that is there already, in place of a task's.
	Thread  chat.ThreadID   `json:"thread,omitempty"`
	Target  string          `json:"target,omitempty"`
	Command string          `json:"command,omitempty"`
	Tool    string          `json:"tool,omitempty"` // in place of Command
	Args    json.RawMessage `json:"args,omitempty"`

	// What the program says of itself. Way "" is no program, but the person, as is cli: their own command line.
	Way        string `json:"way,omitempty"` // api, mcp, hook or cli
	Program    string `json:"program,omitempty"`
	Host       string `json:"host,omitempty"`
	Repository string `json:"repository,omitempty"`
	Ref        string `json:"ref,omitempty"`
	// Proven are the repository and the ref of an identity token that was checked. It is not read
	// from requests.
	Proven bool `json:"-"`
	// With is the name of the token that asks, where that is not Program's alone, and Source what limits
	// count by. They are not read from requests either.
	With, Source string `json:"-"`
}

// Asker is who asks. Token identifies a token that sees only what it asked for; with "" it is the person,
// who sees all of it.
type Asker struct {
	chat.User
	Token string
}

// Call is a call and what became of it.
type Call struct {
	ID     string        `json:"id"`
	Thread chat.ThreadID `json:"thread,omitempty"` // its conversation
	chat.CallStatus
}

// Output is a piece of what a command prints.
type Output struct {
	Stdout, Stderr string // any bytes
	// End says that the pieces before it are all that the command has printed.
	End bool
}

// MarshalJSON implements json.Marshaler. A piece that isn't valid UTF-8 is in base64, since JSON has no such text.
func (o Output) MarshalJSON() ([]byte, error) {
	var p struct {
		Stdout      string `json:"stdout,omitempty"`
		Stderr      string `json:"stderr,omitempty"`
		StdoutBytes []byte `json:"stdout_bytes,omitempty"`
		StderrBytes []byte `json:"stderr_bytes,omitempty"`
		End         bool   `json:"end,omitempty"`
	}
	p.End = o.End
	if p.Stdout = o.Stdout; !utf8.ValidString(o.Stdout) {
		p.Stdout, p.StdoutBytes = "", []byte(o.Stdout)
	}
	if p.Stderr = o.Stderr; !utf8.ValidString(o.Stderr) {
		p.Stderr, p.StderrBytes = "", []byte(o.Stderr)
	}
	return json.Marshal(p)
}

// ToolInfo is a tool that programs may call.
type ToolInfo struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// CallError is an error whose sentence is for whoever asks.
type CallError struct {
	Sentence string
	// Conflict says that the key is another call's, Missing that there is no such call.
	Conflict, Missing bool
}

// Error implements error.
func (r *CallError) Error() string { return r.Sentence }

// Calls lets programs and people ask over an API. A call is its asker's alone. It is safe for
// concurrent use; errors for the asker are [*CallError].
type Calls interface {
	// Ask begins a call, which is durable then, or finds it by its key.
	Ask(ctx context.Context, by Asker, groups []string, a CallRequest) (Call, error)
	// Wait says what became of a call as soon as its state is not seen, and after a time in any case.
	Wait(ctx context.Context, by Asker, id string, seen chat.ExecState, within time.Duration) (Call, error)
	// Open lists the asker's calls that have not ended; with ended also those that have, and began within the
	// last hour.
	Open(ctx context.Context, by Asker, ended bool) ([]Call, error)
	// Withdraw takes back what waits, and stops what runs.
	Withdraw(ctx context.Context, by Asker, id string) error
	// Output passes on what the command prints, or has printed, from its beginning, until it has ended or the
	// context has. Without a last piece with End something is missing.
	Output(ctx context.Context, by Asker, id string, pass func(Output) error) error
	// Last is about the last command of a thread, whoever asked for it.
	Last(ctx context.Context, thread chat.ThreadID) (chat.CallStatus, error)
	// Callable lists the tools that may be called.
	Callable() []ToolInfo
}
