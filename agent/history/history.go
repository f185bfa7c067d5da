// Package history stores the transcript of each thread, the only state of a
// conversation. It is an append-only list of entries: messages, replies, asks,
// edits, decisions, intents and results. Package agent derives the next step
// from it. [Render] turns it into a prompt within the token budget, and
// [Search] and [Read] find what the prompt leaves out.
//
// Keys:
//
//	("history", thread, seq uint64) -> Entry as JSON
//	("history-next", thread)        -> next seq, uint64 as JSON
//	("history-rewritten", thread)   -> how often older entries were rewritten, uint64 as JSON
//
// It does not run the conversation and knows no chat network.
package history

import (
	"encoding/json"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/store"
)

// Kind says which field of an [Entry] is set. Kinds are stored, so they may be
// added but never renamed.
type Kind string

// The kinds.
const (
	KindMessage  Kind = "message"
	KindReply    Kind = "reply"
	KindAsk      Kind = "ask"
	KindDecision Kind = "decision"
	KindEdited   Kind = "edited"
	KindIntent   Kind = "intent"
	KindResult   Kind = "result"
	KindStop     Kind = "stop"
	KindEnd      Kind = "end"
	KindPen      Kind = "pen"
	KindNote     Kind = "note"
	KindBegin    Kind = "begin"
	KindStep     Kind = "step"
	KindSummary  Kind = "summary"
	KindTried    Kind = "tried"
	KindBatch    Kind = "batch"
)

// Entry is one item of a transcript. Only the field that Kind names is set.
// Fields may be added or removed, but JSON names must not change.
type Entry struct {
	Seq  uint64    `json:"seq"`
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	// Scope is the call whose nested work this entry belongs to (a sub-agent, a
	// workflow); "" is the thread's own conversation, [Aside] its aside.
	Scope string `json:"scope,omitempty"`
	// Tokens is the estimated size of the entry in a prompt, before any correction for the
	// model. 0 means not shown, or not counted.
	Tokens   int       `json:"tokens,omitempty"`
	Message  *Message  `json:"message,omitempty"`
	Reply    *Reply    `json:"reply,omitempty"`
	Ask      *Ask      `json:"ask,omitempty"`
	Decision *Decision `json:"decision,omitempty"`
	Edited   *Edited   `json:"edited,omitempty"`
	Intent   *Intent   `json:"intent,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Stop     *Stop     `json:"stop,omitempty"`
	End      *End      `json:"end,omitempty"`
	Pen      *Pen      `json:"pen,omitempty"`
	Note     *Note     `json:"note,omitempty"`
	Begin    *Begin    `json:"begin,omitempty"`
	Step     *Step     `json:"step,omitempty"`
	Summary  *Summary  `json:"summary,omitempty"`
	Tried    *Tried    `json:"tried,omitempty"`
	Batch    *Batch    `json:"batch,omitempty"`
}

// Aside is the scope of a thread's aside: what the model says, and looks at, while a
// request waits for people. It never contains a request of its own.
const Aside = "aside"

// Message is a message from a person or a bot. The first one after the end of a
// turn starts the next turn, and its author is that turn's requester.
type Message struct {
	ID   chat.EventID `json:"id"`
	From chat.User    `json:"from"`
	// Groups are From's groups and roles, as the chat network reported them with the message.
	Groups []string    `json:"groups,omitempty"`
	Text   string      `json:"text"`
	Files  []chat.File `json:"files,omitempty"`
	// Ref is the network's name for the message, by which it can be deleted.
	Ref chat.MessageRef `json:"ref,omitempty"`
	// Kept is the text of a deleted message, if the record keeps it. Models never see it.
	Kept string `json:"kept,omitempty"`
	// ReadOnly means that a turn started by this message may run reads only (an alert).
	ReadOnly bool `json:"read_only,omitempty"`
	// Unanswered means that it starts nothing: a bot had been answered too often. The next turn has it.
	Unanswered bool `json:"unanswered,omitempty"`
}

// Reply is one complete reply of the model.
type Reply struct {
	Text   string     `json:"text,omitempty"`
	Calls  []llm.Call `json:"calls,omitempty"`
	Finish llm.Finish `json:"finish"`
	Usage  llm.Usage  `json:"usage"`
	// Direct says that a person or a runbook asked for these calls (the button Undo, a
	// workflow's step), not the model.
	Direct bool `json:"wanted,omitempty"`
	// Alone says that the turn ends with the results of these calls, without the model.
	Alone bool `json:"alone,omitempty"`
	// Claimed says that the calls have the program's own claims about their risk, which can raise it.
	Claimed bool `json:"claimed,omitempty"`
	// Caller is the program that asked for these calls on a person's behalf.
	Caller approvals.Caller `json:"caller,omitzero"`
	// Step is the workflow step that made these calls. Gated calls always need approval.
	Step  string `json:"step,omitempty"`
	Gated bool   `json:"gated,omitempty"`
	// Model is the model that replied. Opaque is data that must be sent back to it
	// unchanged.
	Model  string          `json:"model,omitempty"`
	Opaque json.RawMessage `json:"opaque,omitempty"`
}

// Ask records that a call waits for people.
type Ask struct {
	Call     string           `json:"call"`
	Approval approvals.ID     `json:"approval"`
	Digest   approvals.Digest `json:"digest"`
	Expires  time.Time        `json:"expires"`
	// Step says that the call is a step of an approved plan, whose card shows it.
	Step bool `json:"step,omitempty"`
	// Batch are the calls that the request is for, Call among them, if it is for several.
	Batch []string `json:"batch,omitempty"`
	// Rows are those of them that ask, in the order of the card's steps.
	Rows []string `json:"rows,omitempty"`
}

// Decision records how a request was decided. Its JSON is also the body of the
// queue item with which approvals/gate wakes the thread.
type Decision struct {
	Approval approvals.ID    `json:"approval"`
	Call     string          `json:"call"`
	State    approvals.State `json:"state"` // approved, denied, expired, cancelled, invalid
	By       string          `json:"by,omitempty"`
	ByName   string          `json:"by_name,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// Edited records that a person changed the command of a waiting call, or dropped steps. The
// request Approval is withdrawn, and the call continues with Text as its Argument, as if By
// had proposed it, or with the steps that are left. Its JSON, without Shown, is also the body
// of the queue item with which approvals/gate wakes the thread.
type Edited struct {
	Call     string       `json:"call"`
	Approval approvals.ID `json:"approval"`
	Argument string       `json:"argument"`
	Text     string       `json:"text"` // exact: what is asked for, or run
	// Keep are the steps, counted from 0, that are left of a plan or of several calls that ask
	// together. Then Argument is empty.
	Keep []int `json:"keep,omitempty"`
	// Shown is the redacted Text, as models see it.
	Shown string    `json:"shown,omitempty"`
	By    chat.User `json:"by"`
}

// Tried records that a proven read attempted something its lock refused. Nothing was
// changed. From here on the call is planned and requested as a change.
type Tried struct {
	Call string `json:"call"`
	Tool string `json:"tool"`
	What string `json:"what"` // "write to /etc/x", redacted
}

// Batch records that people approved several calls of a reply at once. From here on each of
// them is requested, and approved on that basis, when its turn comes.
type Batch struct {
	Call     string       `json:"call"` // the first of them
	Approval approvals.ID `json:"approval"`
}

// Intent is written before an approved run. From here on the call may have run.
type Intent struct {
	Call     string           `json:"call"`
	Approval approvals.ID     `json:"approval"`
	Digest   approvals.Digest `json:"digest"`
	// Noted means that whatever can be resumed is noted before it begins, and that the note stays
	// until the result is stored: where there is no note, nothing began.
	Noted bool `json:"noted,omitempty"`
	// Void takes the intent back: the call never began.
	Void bool `json:"void,omitempty"`
}

// Result closes a call. Every call gets exactly one.
type Result struct {
	Call string `json:"call"`
	Tool string `json:"tool"`
	Text string `json:"text"` // what the model is given, already cut and redacted
	// Output is the id of the whole output, if Text is truncated.
	Output string `json:"output,omitempty"`
	// Same is a hash of the call (tool and canonical arguments), Outcome one of how it ended.
	// Together they identify repetitions.
	Same    string `json:"same,omitempty"`
	Outcome string `json:"way,omitempty"`
	// Failed, Changed, Denied, Unknown and Skipped classify the end.
	Failed  bool `json:"failed,omitempty"`
	Changed bool `json:"changed,omitempty"` // it ran with a person's permit
	Denied  bool `json:"denied,omitempty"`
	Unknown bool `json:"unknown,omitempty"`
	Skipped bool `json:"skipped,omitempty"` // answered without running
	// Signal is the signal that ended the program. Unstarted says that it never started;
	// Why is the reason.
	Signal    string `json:"signal,omitempty"`
	Unstarted bool   `json:"unstarted,omitempty"`
	Why       string `json:"why,omitempty"`
	Refused   bool   `json:"refused,omitempty"` // people, time or the policy kept it from running
	Dropped   bool   `json:"dropped,omitempty"` // a person dropped it from what asked together
	// Repeated says that it was refused because it failed, or was denied, in the same form before.
	Repeated bool `json:"repeated,omitempty"`
}

// Stop records that a person said stop.
type Stop struct {
	ID   chat.EventID `json:"id"`
	From chat.User    `json:"from"`
}

// Pen records that a person took the keyboard of the thread's terminal, or gave it
// back. In between the agent is paused.
type Pen struct {
	By    chat.User `json:"by"`
	Taken bool      `json:"taken"`
	// Stale says that nobody had it when it was given back: that ends the pause of By alone.
	Stale bool `json:"stale,omitempty"`
}

// Note is unsolicited information for the model, such as what a person typed at the
// terminal or how a background command ended. It starts no turn.
type Note struct {
	Text string `json:"text"`
}

// Begin opens the nested work of a call. The entries that follow in its scope are that
// work, and the call's result ends it.
type Begin struct {
	Call string     `json:"call"`
	Kind NestedKind `json:"kind"`
	// Name is the sub-agent's id, or the workflow's name.
	Name string `json:"name"`
	// Task is what a sub-agent is asked to do.
	Task string `json:"task,omitempty"`
	// Steps and Tokens limit a sub-agent; 0 leaves only the turn's limits.
	Steps  int `json:"steps,omitempty"`
	Tokens int `json:"tokens,omitempty"`
	// Inputs are a workflow's validated inputs. Source is the workflow's file at the
	// start, so that later changes do not affect it.
	Inputs map[string]string `json:"inputs,omitempty"`
	Source string            `json:"source,omitempty"`
	// Target is where the workflow's steps go that name none: people were told. "" is where the thread works.
	Target string `json:"target,omitempty"`
}

// NestedKind is the kind of nested work.
type NestedKind string

// The kinds of nested work.
const (
	NestedAgent    NestedKind = "agent"
	NestedWorkflow NestedKind = "workflow"
)

// Step is an event of a workflow's step that is not a call. A workflow's progress follows
// from these and its calls alone.
type Step struct {
	ID    string    `json:"id"` // the workflow's name for the step
	What  StepKind  `json:"what"`
	Until time.Time `json:"until,omitzero"` // waiting
	By    chat.User `json:"by,omitzero"`    // answered
	Text  string    `json:"text,omitempty"` // asked, answered
	// Choices are the answers that a question has, where it has some.
	Choices []string `json:"choices,omitempty"`
}

// StepKind says what happened to a step.
type StepKind string

// What can happen to a step.
const (
	StepWaiting  StepKind = "waiting"
	StepWaited   StepKind = "waited"
	StepAsked    StepKind = "asked"
	StepAnswered StepKind = "answered"
)

// Summary replaces earlier entries in prompts. The entries themselves stay.
type Summary struct {
	// Upto is the number of the last entry that it replaces.
	Upto uint64 `json:"upto"`
	Text string `json:"text"`
}

// EndReason says why a turn ended.
type EndReason string

// The reasons.
const (
	EndDone    EndReason = "done"
	EndStopped EndReason = "stopped"
	EndLimit   EndReason = "limit"
	EndFailed  EndReason = "failed"
)

// End closes a turn.
type End struct {
	Reason EndReason `json:"reason"`
	Text   string    `json:"text,omitempty"`
}

// Append writes e as the thread's next entry and returns it with its number.
func Append(tx store.Tx, thread chat.ThreadID, e Entry) Entry {
	nextKey := store.Key("history-next", string(thread))
	next, _ := store.Load[uint64](tx, nextKey)
	e.Seq = next
	store.Save(tx, store.Key("history", string(thread), next), e)
	store.Save(tx, nextKey, next+1)
	return e
}

// Version says which transcript somebody has read.
type Version struct {
	Next      uint64 // the number of the next entry
	Rewritten uint64 // how often older entries were rewritten
}

// VersionOf returns the version of a thread's transcript.
func VersionOf(tx store.Tx, thread chat.ThreadID) (v Version) {
	v.Next, _ = store.Load[uint64](tx, store.Key("history-next", string(thread)))
	v.Rewritten, _ = store.Load[uint64](tx, store.Key("history-rewritten", string(thread)))
	return v
}

// Forgotten replaces the text of a deleted message.
const Forgotten = "(this message was deleted)"

// Forget removes the text and files of a deleted message from the transcript, and summaries
// that may contain it. With keep the record keeps the text. It reports whether the
// transcript had the message.
func Forget(tx store.Tx, thread chat.ThreadID, ref chat.MessageRef, keep bool) (found bool) {
	if ref == "" {
		return false
	}
	entries := Load(tx, thread)
	var first uint64
	for _, e := range entries {
		m := e.Message
		if m == nil || m.Ref != ref || m.Text == Forgotten {
			continue
		}
		if !found {
			found, first = true, e.Seq
		}
		gone := *m
		if gone.Text, gone.Files = Forgotten, nil; keep {
			gone.Kept = m.Text
		}
		e.Message, e.Tokens = &gone, 0
		store.Save(tx, store.Key("history", string(thread), e.Seq), e)
	}
	for _, e := range entries {
		if found && e.Summary != nil && e.Summary.Upto >= first {
			e.Summary, e.Tokens = &Summary{Upto: e.Summary.Upto, Text: "(left out: it may have told of a message that was deleted since; search_history has the rest)"}, 0
			store.Save(tx, store.Key("history", string(thread), e.Seq), e)
		}
	}
	if found {
		rewritten(tx, thread)
	}
	return found
}

// Load returns the whole transcript in order.
func Load(tx store.Tx, thread chat.ThreadID) []Entry { return LoadFrom(tx, thread, 0) }

// LoadFrom returns the entries of the transcript from a number on, in order.
func LoadFrom(tx store.Tx, thread chat.ThreadID, from uint64) []Entry {
	var out []Entry
	_, end := store.Prefix("history", string(thread))
	start := store.Key("history", string(thread), from)
	for k, v := range tx.Scan(start, end) {
		var e Entry
		store.Decode(k, v, &e)
		out = append(out, e)
	}
	return out
}
