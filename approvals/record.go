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
	Agent     string        `json:"agent,omitempty"`    // who made the call, where it was not the thread's own agent: "the sub-agent x"
	Groups    []string      `json:"groups,omitempty"`   // of the requester, as the network vouched for them
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
	Basis     Basis         `json:"basis,omitzero"` // what approved it, where no vote of its own did
	Review    Review        `json:"review,omitzero"`
	Outcome   Outcome       `json:"outcome,omitzero"`
	Ended     time.Time     `json:"ended,omitzero"`
	// Impact and Taint are what was found out for the people who decide: what the
	// action would do, and from which untrusted source its words come. Neither is
	// part of the digest.
	Impact string `json:"impact,omitempty"`
	Taint  string `json:"taint,omitempty"`
}

// MadeByWorkflow begins a Record's Agent where a step of a workflow made the call.
const MadeByWorkflow = "the workflow "

// Basis says by what right a request was approved without a vote of its own. The
// zero value stands for votes.
type Basis struct {
	Kind BasisKind `json:"kind,omitempty"`
	// Of is the request that people voted on: the one whose grant or plan this is.
	Of ID `json:"of,omitempty"`
	// Why is one clause for people: "mode trusting until 14:05 UTC".
	Why string `json:"why,omitempty"`
}

// BasisKind names a basis.
type BasisKind string

// The kinds of a basis.
const (
	ByVotes  BasisKind = ""
	ByPolicy BasisKind = "policy" // a rule, the mode, or learning lets it run
	ByGrant  BasisKind = "grant"  // exactly this was approved for a while
	ByPlan   BasisKind = "plan"   // it is the next step of an approved plan
)

// Review is the look that somebody else has to take at what one person decided
// alone, by breaking the glass.
type Review struct {
	Due  bool      `json:"due,omitempty"` // nobody has taken it yet
	By   chat.User `json:"by,omitzero"`
	At   time.Time `json:"at,omitzero"`
	Note string    `json:"note,omitempty"`
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
	// Needs must all be met; one vote can count for several. Without any nobody can
	// approve.
	Needs          []Need        `json:"needs,omitempty"`
	RequesterMay   bool          `json:"requester_may"`
	ReasonRequired bool          `json:"reason_required,omitempty"` // of who approves
	BreakGlass     []string      `json:"break_glass,omitempty"`     // groups of which one person may decide alone
	Grant          time.Duration `json:"grant,omitempty"`           // how long exactly this may be approved for; 0: once
	RunWithin      time.Duration `json:"run_within"`
}

// Need is one demand of a policy: so many people of these groups.
type Need struct {
	Rule   string   `json:"rule"`
	Count  int      `json:"count"` // less than 1 counts as 1
	Groups []string `json:"groups,omitempty"`
	// Escalate widens the groups, one step after the other, when nobody answers.
	Escalate []Step `json:"escalate,omitempty"`
	Taken    int    `json:"taken,omitempty"` // steps so far; their groups are in Groups
}

// Step is one step of an escalation.
type Step struct {
	After  time.Duration `json:"after"` // since the request was filed
	Groups []string      `json:"groups"`
}

// Groups are the groups of all needs, each once, in order.
func (r Require) Groups() []string {
	var out []string
	for _, n := range r.Needs {
		for _, g := range n.Groups {
			if !slices.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
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
	// Meets are the indexes of the needs that this person's groups meet.
	Meets []int `json:"meets,omitempty"`
	// Grant approves exactly this for a while, Glass decides alone.
	Grant bool `json:"grant,omitempty"`
	Glass bool `json:"glass,omitempty"`
}

// Outcome is how the run ended.
type Outcome struct {
	OK   bool   `json:"ok,omitempty"`
	Note string `json:"note,omitempty"` // one line: "exit code 0", or why it did not work
	// Signal is what ended it ("KILL"), and Unstarted says that nothing was carried out.
	Signal    string `json:"signal,omitempty"`
	Unstarted bool   `json:"unstarted,omitempty"`
	Undo      bool   `json:"undo,omitempty"` // it can be taken back
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
func (r Record) Approvals() int { return r.distinct(func(Vote) bool { return true }) }

// Met counts the distinct people whose vote approves and counts for a need.
func (r Record) Met(need int) int {
	return r.distinct(func(v Vote) bool { return slices.Contains(v.Meets, need) })
}

func (r Record) distinct(counts func(Vote) bool) int {
	seen := map[chat.UserID]bool{}
	for _, v := range r.Votes {
		if v.Approve && !v.User.Bot && v.User.ID != "" && counts(v) {
			seen[v.User.ID] = true
		}
	}
	return len(seen)
}

// Satisfied reports whether the votes meet every need, or the glass was broken.
func (r Record) Satisfied() bool {
	if slices.ContainsFunc(r.Votes, func(v Vote) bool { return v.Approve && v.Glass && !v.User.Bot }) {
		return true
	}
	for i, n := range r.Require.Needs {
		if r.Met(i) < max(n.Count, 1) {
			return false
		}
	}
	return len(r.Require.Needs) > 0
}

// FinalLevel is the level as the risk scale knows it.
func (r Record) FinalLevel() risk.Level { return risk.ParseLevel(r.Level) }
