// Package tools defines what a model can do. A [Tool] validates a call and plans it without side
// effects; the [Plan] runs only with an approvals.Permit. A [Registry] holds the tools of one bot,
// checks arguments against their JSON Schemas before anything else, and resolves aliases.
//
// It does not decide what may run (approvals/gate) and does not start processes (targets/backend).
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
	// Description has the four guidance sections: When to use, When NOT to use, Disambiguation,
	// Examples.
	Description string
	Schema      json.RawMessage
	// ModelSchema and ModelText are the schema, without limits, and the description as shown to
	// models; a Registry sets both.
	ModelSchema json.RawMessage
	ModelText   string
	// Level is the minimum level of any call of this tool; risk.Read for tools that can only read.
	// Registration requires it.
	Level   risk.Level
	Aliases []string
	// Below lists those aliases of the argument "path" (see [Registry.Plan]) that name something
	// below it if both are given.
	Below []string
	// Unlisted tools are for people (a button, a chat command): they are in every selection that
	// does not disable them. Models are not offered them and cannot call them (see [Call.Direct]).
	Unlisted bool
	// NeedsTmux tools are offered only if the target has tmux.
	NeedsTmux bool
	// Foreign tools are of plugins and servers: their schemas are somebody else's.
	Foreign bool
}

// Call is one call, as proposed by the model.
type Call struct {
	ID     string
	Thread string
	By     string   // the user whose turn it is
	Groups []string // the user's groups, according to the chat network, when they wrote
	Agent  string   // the sub-agent that makes the call; "" for the thread's own agent
	Target string   // where it goes if Args name no target; "" is where the thread works
	Name   string
	Args   json.RawMessage
	// Direct means that a person or the bot itself makes the call, not a model.
	Direct bool
	// Alone means that the call is a person's or a program's single command, which nothing follows: no terminal is
	// made for it.
	Alone bool
	// Approved means that the plan runs as soon as it turns out to be what people approved. What was
	// looked at for it need not be looked at once more, unless backend.Recent has passed since.
	Approved bool
	// Tried says what the call attempted and was refused when it ran as a read under a lock ("write
	// to /etc/x"): it is now planned as a possible change. "" means that it was not tried.
	Tried string
	// Before are the actions of the same plan that would run before this call, in order. What they
	// may create or change does not exist yet, or is not final, at planning time.
	Before []approvals.Action
	// Keep are the steps that people left in a plan when they dropped others, in order; nil if
	// nobody dropped any.
	Keep []approvals.Action
}

// MayCreate reports whether a step before the call names a file or directory, so that it may create
// it. It errs on the side of true.
func (c Call) MayCreate(name string) bool {
	for _, s := range c.Before {
		if strings.Contains(string(s.Bytes), path.Base(name)) || strings.HasPrefix(s.Path, name+"/") {
			return true
		}
	}
	return false
}

// Tool is one thing that a model can do. It must be safe for concurrent use.
type Tool interface {
	Spec() Spec
	// Plan validates and resolves a call. It has no side effects. Planning the same call twice
	// gives the same action unless the environment changed in between. Its error is an [*Error].
	Plan(ctx context.Context, c Call) (Plan, error)
}

// Resumer is a Tool whose calls can go on without the process that ran them.
type Resumer interface {
	Tool
	// Resume finds a call that an earlier process began, and waits for its end as [Plan.Run]
	// does. It starts nothing, so it needs no permit. An [*Error] with NotStarted means that no
	// part of the call was ever done, and never will be by that process. Any other error that is
	// no [*Error] means that the target cannot tell now.
	Resume(ctx context.Context, c Call, s Sink) (Result, error)
}

// Plan is a planned call. It needs a permit to run.
type Plan struct {
	Action approvals.Action
	Claim  approvals.Claim
	// Level is the level of this call if it is higher than the tool's; the Registry ensures that it
	// is never lower.
	Level risk.Level
	// Interrupt means that these keys only interrupt the thread's own running command.
	Interrupt bool
	// Notes means that running it begins with a durable note in the bot's store. What was stored
	// before that note is durable with it.
	Notes bool
	// Undoable means that running it notes how it can be undone, and sets the timer of a change that was
	// approved to undo itself. Without it no such approval may be used.
	Undoable bool
	// Undoes is the request whose change the call takes back, "" if it takes none back.
	Undoes approvals.ID
	// Nested, if set, means that the conversation itself does the call, as nested work, whose
	// result is the call's result. Running the plan is an error.
	Nested *Nested
	run    func(context.Context, Sink) (Result, error)
}

// Nested is the work of a call that the conversation does.
type Nested struct {
	Kind string // "agent" or "workflow"
	Name string // the sub-agent's id, or the workflow's name
	Task string // of a sub-agent
	// Steps and Tokens bound a sub-agent; 0 means only the turn's limits apply.
	Steps, Tokens int
	// Inputs are a workflow's validated inputs, and Source is its text. Target is where its steps go that name none.
	Inputs         map[string]string
	Source, Target string
}

// Planned returns a plan. do runs at most once for each permit.
func Planned(a approvals.Action, c approvals.Claim, do func(context.Context, Sink) (Result, error)) Plan {
	return Plan{Action: a, Claim: c, run: do}
}

// ErrNotPermitted means that a plan was run without a permit for its action.
var ErrNotPermitted = errors.New("tools: no permit for this action")

// ErrShutdown is the cause of a context that ends because the bot is shutting down, not because
// somebody said stop. What runs in a terminal is then left running instead of being interrupted.
var ErrShutdown = errors.New("tools: the bot is going away")

// Run runs the plan. It fails unless p permits exactly this plan's action. A nil sink discards
// events.
func (pl Plan) Run(ctx context.Context, p approvals.Permit, s Sink) (Result, error) {
	if pl.run == nil || !p.Allows(pl.Action) {
		return Result{}, ErrNotPermitted
	}
	if s == nil {
		s = func(Event) {}
	}
	return pl.run(approvals.Under(ctx, p), s)
}

// Result is what a tool found or did.
type Result struct {
	// Value goes to the model as JSON, inside the envelope.
	Value any
	// Failed marks a failure of the command itself (exit code 3), which counts towards the
	// suppression of repeated failures.
	Failed bool
	// Why says in a few words how it failed, for the card ("exit code 3"); "" if Value tells, or the first line of an
	// error. With Unknown it is a sentence that says how contact was lost.
	Why string
	// Signal is the signal that ended the program, such as "KILL"; "" if it exited.
	Signal string
	// Unknown marks an effect that may or may not have happened (the terminal or the connection was
	// lost). The bot never repeats it on its own.
	Unknown bool
	// Cut says where Value was cut ("at 50KB"); "" if it is complete. The complete output went
	// through the Sink, or is in Full.
	Cut, Full string
	// Tried is not empty if a read under a lock attempted what the lock refuses: then it is not a
	// read, and Value is not its result. It completes "it tried to ...".
	Tried string
	// Undo means that the tool undo can undo the change.
	Undo bool
	// Receipt yields what a change really changed, as far as the target can tell, once; nil if nobody looked.
	// ReceiptSoon says that it takes milliseconds, so that waiting for it is cheaper than a second message.
	Receipt     <-chan approvals.Receipt
	ReceiptSoon bool
	// Text is the form for people; "" means that Value is shown.
	Text string
}

// EventKind is the kind of an [Event].
type EventKind string

// The event kinds, in the order in which a call sends them.
const (
	Started   EventKind = "started"
	Stdout    EventKind = "stdout"
	Stderr    EventKind = "stderr"
	Info      EventKind = "info"
	Completed EventKind = "completed"
)

// Event reports the progress of a running call.
type Event struct {
	Kind EventKind
	Text string
}

// Sink receives the events of one call, sequentially. It must not block for long.
type Sink func(Event)

// ErrorKind is the kind of an [Error].
type ErrorKind string

// The two kinds. Neither ends the conversation.
const (
	InvalidArguments ErrorKind = "InvalidArguments"
	ExecutionFailed  ErrorKind = "ExecutionFailed"
)

// Error is a failure that the model sees as "Tool error: ...".
type Error struct {
	Kind ErrorKind
	// Sentence says what is wrong and how to fix it.
	Sentence string
	Cause    error
	// NotStarted means that no part of the call was done.
	NotStarted bool
}

// Error implements error. The sentence is complete: it is written for the model.
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

// NotRun is Failed for a call of which no part was done. The format continues "was not run: ".
func NotRun(what, format string, a ...any) error {
	err := fmt.Errorf(what+" was not run: "+format, a...)
	return &Error{Kind: ExecutionFailed, Sentence: err.Error(), Cause: errors.Unwrap(err), NotStarted: true}
}

// Failed returns an ExecutionFailed error; a %w verb keeps the cause.
func Failed(format string, a ...any) error {
	err := fmt.Errorf(format, a...)
	return &Error{Kind: ExecutionFailed, Sentence: err.Error(), Cause: errors.Unwrap(err)}
}
