package approvals

import (
	"countersign/adapters/chat"
	"countersign/approvals/risk"
)

// Lane is the gate's decision about a request. The zero value forbids.
type Lane int

// The lanes, from the strictest to the freest.
const (
	Forbid Lane = iota
	Ask
	Allow
)

// Request is one planned call that wants to run.
type Request struct {
	Thread chat.ThreadID
	Call   string
	By     chat.User
	Groups []string // of By, as the chat network reported them
	Action Action
	Claim  Claim
	Floor  risk.Level // the tool's own level
	// Preview and Taint inform the approvers; see [Record].
	Preview Preview
	Taint   string
	// Interrupt says that the keys only interrupt the thread's own running command.
	Interrupt bool
	// Undoes is the request whose change this one takes back, "" if none.
	Undoes ID
	// Revision counts how often people edited the call. If its command was edited, By is the
	// last editor and Claim is empty, because the model wrote a different text.
	Revision int
	// DroppedBy is who last dropped steps of what was asked for; zero if nobody did.
	DroppedBy chat.User
	// Agent tells approvers who makes the call ("the sub-agent x"). "" is the thread's own
	// agent.
	Agent string
	// Caller is the program that asks on behalf of By, where one does.
	Caller Caller
	// ReadOnly refuses everything but proven reads, regardless of mode and rules.
	ReadOnly bool
	// Gated always asks people, on its own card. No proof, rule, plan or grant covers it.
	Gated bool
	// Batch says that the request is for the call and those after it in the same reply.
	// Once it is approved, each of them has its own request.
	Batch bool
	// Tried is what the lock refused when the action ran as a proven read ("write to
	// /etc/x"). Its proof was wrong.
	Tried string
}

// ID returns the request's id, which is the same each time the request is filed.
func (r Request) ID() ID {
	id := NewID(string(r.Thread), r.Call)
	if r.Batch {
		id = NewID(string(r.Thread), r.Call+"\x00batch")
	}
	if r.Revision > 0 {
		return id.Revision(r.Revision)
	}
	return id
}

// Ruling is the gate's judgement of a request.
type Ruling struct {
	Lane     Lane
	Permit   Permit     // Allow only
	Level    risk.Level // the highest of engine, claim and tool
	Verdict  risk.Verdict
	Rule     string
	Sentence string // Forbid: what the model is told
}

// Kinds of the items that the gate puts into a thread's inbox.
const (
	ItemDecision = "decision" // a request was decided or expired
	ItemEdited   = "edited"   // a person changed the command
	ItemExpire   = "expire"   // a timer of a request is due
	ItemTrial    = "trial"    // it is time to look how a trial ended
)
