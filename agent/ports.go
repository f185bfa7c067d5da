package agent

import (
	"context"
	"encoding/json"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/store"
	"countersign/tools"
)

// Profile says how a conversation is led.
type Profile struct {
	Model string // "" is the bot's
	// Limits are those of a turn, where they are not zero.
	Limits   Limits
	ReadOnly bool // only proven reads may run
}

// Command is what a person runs by "exec", or what their program asks for.
type Command struct {
	Target, Text string
	// Tool and Args are a call of another tool, in place of a command.
	Tool   string
	Args   json.RawMessage
	Caller approvals.Caller
}

// Desk knows who leads the conversations of a thread.
type Desk interface {
	// Prompt is the system prompt of a conversation: a thread's own, or, with its id, that
	// of a sub-agent. target is where a runbook works that asks; "" is the thread's own. It
	// must not change between calls without need (prompt caches).
	Prompt(thread chat.ThreadID, agent, target string) string
	// Profile says how a conversation is led: a thread's own, or, with its id, that of a
	// sub-agent.
	Profile(thread chat.ThreadID, agent string) Profile
	// Exec finds the call that runs a person's command on a target, which becomes the thread's own;
	// why says why there is none.
	Exec(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, what Command) (c llm.Call, why string)
}

// Witness knows the targets: what became of a call there, and what an action would do.
type Witness interface {
	// Evidence asks the target what became of a call whose outcome nobody saw: a sentence,
	// or "" when it does not know, or cannot be asked now.
	Evidence(ctx context.Context, thread chat.ThreadID, call string) string
	// Resume takes up a call that an earlier process of the bot began, and waits for its end: its
	// action a is approved, and began then. It starts nothing. The error is a [tools.Error] with
	// NotStarted if the call never began; a result with Unknown means that nobody knows.
	Resume(ctx context.Context, c tools.Call, a approvals.Action, sink tools.Sink) (tools.Result, error)
	// Settle forgets what was noted of a call's run, in the transaction that stores its result.
	// unknown means that the result does not tell what became of it.
	Settle(tx store.Tx, thread chat.ThreadID, call string, a approvals.Action, unknown bool)
	// Prepare makes what an action needs and what changes nothing, such as a connection,
	// while people decide about it. It does not wait.
	Prepare(thread chat.ThreadID, a approvals.Action)
	// Trial looks on the target how a change on trial ended, "" while it has not. Settle it first by keep:
	// true keeps the change, false has the target undo it now; nil only looks.
	Trial(ctx context.Context, thread chat.ThreadID, id approvals.ID, keep *bool) (end approvals.TrialEnd, note string, err error)
	// Preview finds out what a request would do, without doing it. It takes at most 12 seconds.
	Preview(ctx context.Context, r approvals.Request) approvals.Preview
}

// Toolbox is what the model can do in a thread.
type Toolbox interface {
	// Specs lists the tools in a stable order: those of the thread's own agent, or of a
	// sub-agent. target is as for [Desk].
	Specs(thread chat.ThreadID, agent, target string) []llm.ToolSpec
	// Plan plans a call without any effect.
	Plan(ctx context.Context, c tools.Call) (tools.Plan, error)
}

// The gate decides what may run. The agent knows it in four roles. Methods that take a Tx write in the
// caller's transaction.

// Rulings say what becomes of a request, and record what ran without anybody's approval.
type Rulings interface {
	Judge(ctx context.Context, r approvals.Request) approvals.Ruling
	// Allowed records that a request is about to run without anybody's approval. Ran
	// records how it ended, Forbidden that it was refused.
	Allowed(tx store.Tx, r approvals.Request)
	Ran(tx store.Tx, r approvals.Request, o approvals.Outcome)
	Forbidden(tx store.Tx, r approvals.Request)
}

// Requests are what people decide.
type Requests interface {
	// Ask files the request and its card. It is idempotent: a second Ask for the same
	// call returns the same request.
	Ask(tx store.Tx, r approvals.Request) approvals.Record
	// Throttle says why a program's request must not be filed: it repeats one, or there are too many.
	Throttle(tx store.Tx, r approvals.Request) (why string)
	// Receipt adds what a request really changed to it.
	Receipt(tx store.Tx, id approvals.ID, r approvals.Receipt)
	// Preview adds the preview to a filed request.
	Preview(tx store.Tx, id approvals.ID, p approvals.Preview)
	// Cancel withdraws a request. ok is false if it was decided already.
	Cancel(tx store.Tx, id approvals.ID, by chat.User, why string) (ok bool)
	// Due handles a timer of the request: it expires the request, or escalates it to
	// more approvers.
	Due(tx store.Tx, id approvals.ID)
	// Revoke ends the thread's standing approvals, and returns how many there were.
	Revoke(tx store.Tx, thread chat.ThreadID, by chat.User) int
	// Word decides what somebody wrote ("approve <id>"): the same authorisation
	// that a button press goes through. Button is the verb, a colon and the id.
	Word(ctx context.Context, c chat.Click) (chat.Answer, error)
}

// Permits are approvals in use.
type Permits interface {
	// Consume turns an approval into a permit, once, and writes the intent. If it
	// refuses, the returned sentence says why.
	Consume(tx store.Tx, id approvals.ID, a approvals.Action) (approvals.Permit, approvals.Record, string)
	Finish(tx store.Tx, id approvals.ID, o approvals.Outcome)
	Lost(tx store.Tx, id approvals.ID)
	// Unstarted takes the use of an approval back: the run never began.
	Unstarted(tx store.Tx, id approvals.ID)
}

// Terms are what an approval is bound to: a time on trial, and a ticket.
type Terms interface {
	// TrialDue reports whether a change on trial has to be looked at, MayKeep why a person may not keep or
	// undo it, and EndTrial notes how the trial ended.
	TrialDue(tx store.Tx, id approvals.ID) bool
	MayKeep(tx store.Tx, c chat.Click, id approvals.ID, keep bool) (why string)
	EndTrial(tx store.Tx, id approvals.ID, end approvals.TrialEnd, by chat.User, note string) (c chat.Card, changed bool)
	// Heard takes over the ticket that a message names. It asks nobody and is quick.
	Heard(ctx context.Context, thread chat.ThreadID, by chat.User, text string) error
	// Ticket answers the chat word "ticket".
	Ticket(ctx context.Context, thread chat.ThreadID, by chat.User, key string) (string, error)
}

// Outbox writes posts in the caller's transaction and sends them afterwards.
type Outbox interface {
	Put(tx store.Tx, thread chat.ThreadID, p chat.Post)
	Wake(thread chat.ThreadID)
	// Show shows a passing sign of life, or drops it.
	Show(ctx context.Context, thread chat.ThreadID, p chat.Progress)
}

// Watcher measures what happens. Its methods must be quick.
type Watcher interface {
	// Resumed receives the whole transcript when a worker loads a thread, Appended every
	// entry stored after that.
	Resumed(thread chat.ThreadID, entries []history.Entry)
	Appended(ctx context.Context, thread chat.ThreadID, entries []history.Entry)
	// Within returns a context for a conversation of the thread, Tool one for the run of a
	// call. The caller passes the call's result to end, or nil if the bot shuts down
	// during the run.
	Within(ctx context.Context, thread chat.ThreadID, scope string) context.Context
	Tool(ctx context.Context, thread chat.ThreadID, c llm.Call) (_ context.Context, end func(*history.Result))
}

type nopWatcher struct{}

func (nopWatcher) Resumed(chat.ThreadID, []history.Entry)                   {}
func (nopWatcher) Appended(context.Context, chat.ThreadID, []history.Entry) {}

func (nopWatcher) Within(ctx context.Context, _ chat.ThreadID, _ string) context.Context { return ctx }

func (nopWatcher) Tool(ctx context.Context, _ chat.ThreadID, _ llm.Call) (context.Context, func(*history.Result)) {
	return ctx, func(*history.Result) {}
}
