package approvals

import (
	"errors"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals/risk"
)

// Record is one request for approval, as it is stored. Fields can be added or
// removed, but their names must not change.
type Record struct {
	ID        ID            `json:"id"`
	Thread    chat.ThreadID `json:"thread"`
	Call      string        `json:"call"`
	Requester chat.User     `json:"requester"`
	Revision  int           `json:"revision,omitempty"` // how often people edited the call's command; Requester was the last
	Created   time.Time     `json:"created"`
	Action    Action        `json:"action"`
	Digest    Digest        `json:"digest"`
	Nonce     string        `json:"nonce,omitempty"` // in the buttons of its card: a press without it is of another card
	Claim     Claim         `json:"claim"`
	Engine    Judgement     `json:"engine"`
	Level     string        `json:"level"` // the final one: the highest of engine, model and tool
	Rule      string        `json:"rule"`
	Policy    string        `json:"policy"` // hash of the policy it was asked under
	Require   Require       `json:"require"`
	Votes     []Vote        `json:"votes,omitempty"`
	State     State         `json:"state"`
	ExpiresAt time.Time     `json:"expires_at"`
	RunBy     time.Time     `json:"run_by,omitzero"` // set with the last vote
	Decided   time.Time     `json:"decided,omitzero"`
	By        chat.User     `json:"by,omitzero"` // who decided
	Reason    string        `json:"reason,omitempty"`
	Outcome   Outcome       `json:"outcome,omitzero"`
	Ended     time.Time     `json:"ended,omitzero"`
}

// Judgement is what the risk engine said, as plain data.
type Judgement struct {
	ReadOnly bool     `json:"readonly"`
	Risk     string   `json:"risk"`
	Effects  []string `json:"effects,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
}

// Require is what the policy asks for before the action may run.
type Require struct {
	Count        int           `json:"count"`
	Groups       []string      `json:"groups,omitempty"`
	RequesterMay bool          `json:"requester_may"`
	RunWithin    time.Duration `json:"run_within"`
}

// Vote is one person's word on a record.
type Vote struct {
	User    chat.User    `json:"user"`
	Approve bool         `json:"approve"`
	Reason  string       `json:"reason,omitempty"`
	Via     string       `json:"via"` // button, text, cli
	Event   chat.EventID `json:"event"`
	At      time.Time    `json:"at"`
	Digest  Digest       `json:"digest"` // what the voter was shown
	// Groups are the groups and roles that the network vouched for with the vote.
	Groups []string `json:"groups,omitempty"`
}

// Outcome is how the run ended.
type Outcome struct {
	OK   bool   `json:"ok,omitempty"`
	Note string `json:"note,omitempty"` // one line: "exit code 0"
}

// moves is the whole state machine: every state and where it may go.
var moves = map[State][]State{
	Pending:   {Approved, Denied, Expired, Cancelled, Invalid},
	Approved:  {Running, Expired, Invalid, Cancelled},
	Running:   {Done, OutUnk},
	Done:      nil,
	OutUnk:    nil,
	Denied:    nil,
	Expired:   nil,
	Cancelled: nil,
	Invalid:   nil,
}

// Next lists the states that a record in state s may move to; an end state has
// none.
func Next(s State) []State { return slices.Clone(moves[s]) }

// Final reports whether nothing more can happen to a record in state s.
func (s State) Final() bool { return len(moves[s]) == 0 }

// errMove is a bug in this package: a move that the table does not have.
var errMove = errors.New("approvals: forbidden state change")

// move changes the state, or reports that the table forbids it.
func (r *Record) move(to State) bool {
	if !slices.Contains(moves[r.State], to) {
		return false
	}
	r.State = to
	return true
}

// Approvals counts the distinct people whose vote approves.
func (r Record) Approvals() int {
	seen := map[chat.UserID]bool{}
	for _, v := range r.Votes {
		if v.Approve && !v.User.Bot {
			seen[v.User.ID] = true
		}
	}
	return len(seen)
}

// FinalLevel is the level as the risk scale knows it.
func (r Record) FinalLevel() risk.Level { return risk.ParseLevel(r.Level) }
