package agent

import (
	"context"
	"encoding/json"
	"errors"

	"countersign/adapters/chat"
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

// Desk knows what a thread works with: who leads its conversations, and what its chat
// words ask for beyond the transcript. Texts are for people, in Markdown; an error means
// that the message has to be delivered again.
type Desk interface {
	// Prompt is the system prompt of a conversation: a thread's own, or, with its id, that
	// of a sub-agent. target is where a runbook works that asks; "" is the thread's own. It
	// must not change between calls without need (prompt caches).
	Prompt(thread chat.ThreadID, agent, target string) string
	// Profile says how a conversation is led: a thread's own, or, with its id, that of a
	// sub-agent.
	Profile(thread chat.ThreadID, agent string) Profile

	// Use answers the chat word "use": it lists the targets, or makes one the thread's own.
	Use(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, target string) (string, error)
	// Exec finds the call that runs a person's command on a target, which becomes the thread's own;
	// why says why there is none.
	Exec(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, what Command) (c llm.Call, why string)
	// Role answers the chat word "role": it lists the roles, or gives the thread one.
	Role(ctx context.Context, thread chat.ThreadID, by chat.User, role string) (string, error)

	// Sessions answers the chat word "sessions".
	Sessions(ctx context.Context, thread chat.ThreadID) string
	// Take gives the keyboard of a thread's terminal to a person; ok means that they have
	// it now.
	Take(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, session string) (text string, ok bool, err error)
	// Give returns it to the bot; ok means that nobody has it now. note says for the model
	// what was typed meanwhile.
	Give(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, session string) (text, note string, ok bool, err error)
	// Pass hands it from one person to another, whom to names as the network does; ok means that
	// the other, taker, has it now.
	Pass(ctx context.Context, thread chat.ThreadID, by chat.User, groups []string, session, to string) (text string, taker chat.User, ok bool, err error)
	// Recording answers the chat word "recording" with files of what the thread's
	// terminals showed, and a sentence.
	Recording(ctx context.Context, thread chat.ThreadID) (files []chat.File, text string)

	// Undo finds the call that takes a change of the thread back; why says why there is
	// none.
	Undo(ctx context.Context, thread chat.ThreadID, change string) (c llm.Call, why string)
	// Workflows are the names that the chat word "run" knows; "run" and anything else is a
	// message. Workflow finds the call that runs one, and says what there is to say: where it
	// runs, why there is none, or, without a name, which there are.
	Workflows() []string
	Workflow(ctx context.Context, thread chat.ThreadID, name string, inputs map[string]string) (c llm.Call, said string)
	// Record answers the chat words "timeline" and, with all, "export".
	Record(ctx context.Context, thread chat.ThreadID, all bool) (files []chat.File, text string)

	// Handover answers the chat word "handover": what whoever goes on call takes over.
	Handover(ctx context.Context, thread chat.ThreadID) (string, error)

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

// NoDesk is the desk of an agent that has none: it answers each word with a sentence that
// says so, and knows nothing. Embedded in another desk it answers what that one leaves out.
type NoDesk struct{}

// Prompt implements [Desk].
func (NoDesk) Prompt(_ chat.ThreadID, _, _ string) string { return "" }

// Profile implements [Desk].
func (NoDesk) Profile(chat.ThreadID, string) Profile { return Profile{} }

// Use implements [Desk].
func (NoDesk) Use(context.Context, chat.ThreadID, chat.User, []string, string) (string, error) {
	return sayOneTarget, nil
}

// Exec implements [Desk].
func (NoDesk) Exec(context.Context, chat.ThreadID, chat.User, []string, Command) (c llm.Call, why string) {
	return llm.Call{}, sayOneTarget
}

// Role implements [Desk].
func (NoDesk) Role(context.Context, chat.ThreadID, chat.User, string) (string, error) {
	return sayOneRole, nil
}

// Sessions implements [Desk].
func (NoDesk) Sessions(context.Context, chat.ThreadID) string {
	return sayNoSessions
}

// Take implements [Desk].
func (NoDesk) Take(context.Context, chat.ThreadID, chat.User, []string, string) (text string, ok bool, err error) {
	return sayNoKeyboard, false, nil
}

// Give implements [Desk].
func (NoDesk) Give(context.Context, chat.ThreadID, chat.User, []string, string) (text, note string, ok bool, err error) {
	return sayNoKeyboard, "", false, nil
}

// Pass implements [Desk].
func (NoDesk) Pass(context.Context, chat.ThreadID, chat.User, []string, string, string) (text string, taker chat.User, ok bool, err error) {
	return sayNoKeyboard, taker, false, nil
}

// Recording implements [Desk].
func (NoDesk) Recording(context.Context, chat.ThreadID) (files []chat.File, text string) {
	return nil, sayNotRecorded
}

// Undo implements [Desk].
func (NoDesk) Undo(context.Context, chat.ThreadID, string) (c llm.Call, why string) {
	return llm.Call{}, sayNothingToUndo
}

// Workflows implements [Desk].
func (NoDesk) Workflows() []string { return nil }

// Workflow implements [Desk].
func (NoDesk) Workflow(context.Context, chat.ThreadID, string, map[string]string) (c llm.Call, why string) {
	return llm.Call{}, sayNoWorkflows
}

// Record implements [Desk].
func (NoDesk) Record(context.Context, chat.ThreadID, bool) (files []chat.File, text string) {
	return nil, sayNotRecorded
}

// Handover implements [Desk].
func (NoDesk) Handover(context.Context, chat.ThreadID) (string, error) { return sayNotRecorded, nil }

// Evidence implements [Desk].
func (NoDesk) Evidence(context.Context, chat.ThreadID, string) string { return "" }

// Resume implements [Desk].
func (NoDesk) Resume(context.Context, tools.Call, approvals.Action, tools.Sink) (tools.Result, error) {
	return tools.Result{Unknown: true, Failed: true}, nil
}

// Settle implements [Desk].
func (NoDesk) Settle(store.Tx, chat.ThreadID, string, approvals.Action, bool) {}

// Prepare implements [Desk].
func (NoDesk) Prepare(chat.ThreadID, approvals.Action) {}

// Trial implements [Desk].
func (NoDesk) Trial(context.Context, chat.ThreadID, approvals.ID, *bool) (approvals.TrialEnd, string, error) {
	return "", "", errors.New("agent: there is no target")
}

// Preview implements [Desk].
func (NoDesk) Preview(context.Context, approvals.Request) approvals.Preview {
	return approvals.Preview{}
}
