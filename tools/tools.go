// Package tools is what a model can do: a [Tool] validates a call and plans it
// without any effect; the [Plan] runs only with an approvals.Permit. A
// [Registry] holds the tools of one bot, checks arguments against their JSON
// Schemas before anything else, and knows their aliases.
//
// It does not decide what may run (approvals/gate) and does not start
// processes (targets/backend).
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
)

// Spec describes a tool.
type Spec struct {
	Name string
	// Description holds the four guidance sections: When to use, When NOT to
	// use, Disambiguation, Examples.
	Description string
	Schema      json.RawMessage
	// Told and ToldText are the schema, without limits, and the description as models are
	// told them; a Registry sets both.
	Told     json.RawMessage
	ToldText string
	// Level is the least level of any call of this tool; risk.Read for tools
	// that can only look. A tool without one does not register.
	Level   risk.Level
	Aliases []string
	// Below are those of the other words for the argument "path" (see [Registry.Plan]) that
	// name something below it where both are given.
	Below []string
	// Unlisted tools are for people (a button, a chat word): every selection has them
	// unless it names them as disabled. Models are not told of them and cannot call them
	// (see [Call.Wanted]).
	Unlisted bool
	// NeedsTmux tools are offered only where the target has tmux.
	NeedsTmux bool
}

// Call is one call, as it comes from the model.
type Call struct {
	ID     string
	Thread string
	By     string   // the user whose turn it is
	Groups []string // what the chat network vouched for when they spoke
	Agent  string   // the sub-agent that makes the call; "" is the thread's own agent
	Name   string
	Args   json.RawMessage
	// Wanted says that a person or the bot itself makes the call, not a model.
	Wanted bool
	// Tried says what the call tried and was refused when it ran as a read under a lock
	// ("write to /etc/x"): now it is planned as what may change something. "" means that
	// it was not tried.
	Tried string
	// Before are the actions of the same plan that would run before this call, in order.
	// What they may bring about or change is not there, or not final, when it is planned.
	Before []approvals.Action
}

// MayBring reports whether a step before the call names a file or directory, so that it
// may bring it about. It says so too often rather than too rarely.
func (c Call) MayBring(name string) bool {
	for _, s := range c.Before {
		if strings.Contains(string(s.Bytes), path.Base(name)) || strings.HasPrefix(s.Path, name+"/") {
			return true
		}
	}
	return false
}

// Tool is one thing that a model can do. It is safe for concurrent use.
type Tool interface {
	Spec() Spec
	// Plan validates and resolves a call. It has no effect, and planning the
	// same call twice gives the same action unless the world changed between.
	// Its error is an [*Error].
	Plan(ctx context.Context, c Call) (Plan, error)
}

// Plan is a call that is ready to run, but may not yet.
type Plan struct {
	Action approvals.Action
	Claim  approvals.Claim
	// Level is the level of this call, where the tool knows it to be higher than its
	// own; the Registry sees to it that it is never lower.
	Level risk.Level
	// Interrupt says that these keys only interrupt the thread's own running
	// command.
	Interrupt bool
	// Nested, when set, says that the conversation itself carries the call out, as nested
	// work: its result is what that work comes to. Running the plan is an error.
	Nested *Nested
	do     func(context.Context, Sink) (Result, error)
}

// Nested is the work of a call that the conversation carries out.
type Nested struct {
	Kind string // "agent" or "workflow"
	Name string // the sub-agent's id, or the workflow's name
	Task string // of a sub-agent
	// Steps and Tokens bound a sub-agent; 0 means that only the turn's limits do.
	Steps, Tokens int
	// Inputs are a workflow's, after validation, and Source is its text.
	Inputs map[string]string
	Source string
}

// Planned makes a plan. do runs at most once for each permit.
func Planned(a approvals.Action, c approvals.Claim, do func(context.Context, Sink) (Result, error)) Plan {
	return Plan{Action: a, Claim: c, do: do}
}

// ErrNotPermitted means that a plan was run without a permit for its action.
var ErrNotPermitted = errors.New("tools: no permit for this action")

// ErrShutdown is the cause of a context that ends while a plan runs because
// the bot is going away, while nobody said stop: what runs in a terminal is then
// left running there instead of being interrupted.
var ErrShutdown = errors.New("tools: the bot is going away")

// Run runs the plan. It refuses unless p allows exactly this plan's action.
// A nil sink discards events.
func (pl Plan) Run(ctx context.Context, p approvals.Permit, s Sink) (Result, error) {
	if pl.do == nil || !p.Allows(pl.Action) {
		return Result{}, ErrNotPermitted
	}
	if s == nil {
		s = func(Event) {}
	}
	return pl.do(ctx, s)
}

// Result is what a tool found or did.
type Result struct {
	// Value goes to the model as JSON, inside the envelope.
	Value any
	// Failed marks a result that reports a failure of the thing itself (exit
	// code 3), which counts for the suppression of repeated failures.
	Failed bool
	// Signal is what ended the program, "KILL"; empty when it ended by itself.
	Signal string
	// Unknown marks an effect that may or may not have happened (the terminal
	// or the connection went away). It is never repeated by itself.
	Unknown bool
	// Cut says where Value leaves output out ("at 50KB"), and is empty when it is whole.
	// The whole is what went through the Sink, or else Full.
	Cut, Full string
	// Tried is not empty where a read under a lock tried what the lock refuses: then it
	// is no read, and Value is not its result. It completes "it tried to ...".
	Tried string
	// Undo says that the change can be taken back with the tool undo.
	Undo bool
	// Text is the form for people; empty means that Value is shown.
	Text string
}

// EventKind is the kind of an [Event].
type EventKind string

// The five kinds, in the order in which a call sends them.
const (
	Started   EventKind = "started"
	Stdout    EventKind = "stdout"
	Stderr    EventKind = "stderr"
	Info      EventKind = "info"
	Completed EventKind = "completed"
)

// Event is a sign of life of a running call.
type Event struct {
	Kind EventKind
	Text string
}

// Sink receives the events of one call, from one goroutine at a time. It must
// not block for long.
type Sink func(Event)

// ErrorKind is the kind of an [Error].
type ErrorKind string

// The two kinds. Neither ends the conversation.
const (
	InvalidArguments ErrorKind = "InvalidArguments"
	ExecutionFailed  ErrorKind = "ExecutionFailed"
)

// Error is a failure that the model is told as "Tool error: ...".
type Error struct {
	Kind ErrorKind
	// Sentence says what is wrong and what to do.
	Sentence string
	Cause    error
	// Unstarted says that nothing of the call was carried out.
	Unstarted bool
}

// Error implements error. The sentence stands alone: it is written for the model.
func (e *Error) Error() string {
	if e.Kind == InvalidArguments && !strings.HasPrefix(e.Sentence, validationPrefix) {
		return "invalid arguments: " + e.Sentence
	}
	return e.Sentence
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Invalid returns an InvalidArguments error.
func Invalid(format string, a ...any) error {
	return &Error{Kind: InvalidArguments, Sentence: fmt.Sprintf(format, a...)}
}

// NotRun is Failed for a call of which nothing was carried out. The format goes on after
// "was not run: ".
func NotRun(what, format string, a ...any) error {
	err := fmt.Errorf(what+" was not run: "+format, a...)
	return &Error{Kind: ExecutionFailed, Sentence: err.Error(), Cause: errors.Unwrap(err), Unstarted: true}
}

// Failed returns an ExecutionFailed error; a %w verb keeps the cause.
func Failed(format string, a ...any) error {
	err := fmt.Errorf(format, a...)
	return &Error{Kind: ExecutionFailed, Sentence: err.Error(), Cause: errors.Unwrap(err)}
}
