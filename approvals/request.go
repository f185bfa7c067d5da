package approvals

import (
	"countersign/adapters/chat"
	"countersign/approvals/risk"
)

// Lane is where a request goes. The zero value forbids.
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
	Groups []string // what the network vouched for when By spoke
	Action Action
	Claim  Claim
	Floor  risk.Level // the tool's own level
	// Impact says what the action would do, as far as looking tells; Taint from
	// which untrusted source its words come. Both are for who decides; see [Record].
	Impact, Taint string
	// Interrupt says that these keys only interrupt the thread's own running
	// command.
	Interrupt bool
	// Revision is how often people edited the command of this call; By is then who
	// did it last, and Claim is empty: the model's labels are not about this text.
	Revision int
	// Agent is who makes the call, where it is not the thread's own agent, for who decides:
	// "the sub-agent x".
	Agent string
	// ReadOnly refuses what is not a proven read, whatever the mode and the rules say.
	ReadOnly bool
	// Gated always asks people, on a card of its own: no proof, rule, plan or grant covers it.
	Gated bool
	// Tried says what the action tried and was refused when it ran as a read, under a lock
	// ("write to /etc/x"): its proof was wrong.
	Tried string
}

// ID is the id of the request, the same each time it is asked for.
func (r Request) ID() ID {
	id := NewID(string(r.Thread), r.Call)
	if r.Revision > 0 {
		return id.Revision(r.Revision)
	}
	return id
}

// Ruling is what becomes of a request.
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
	ItemDecision = "decision" // a request was decided, or its time is over
	ItemEdited   = "edited"   // a person changed the command
	ItemExpire   = "expire"   // a timer of a request is due
)
