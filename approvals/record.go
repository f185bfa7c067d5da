package approvals

import (
	"errors"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals/passkey"
	"countersign/approvals/risk"
)

// Record is one stored request for approval. The chain of decisions has hashes of old ones ([Record.Facts]), so a new
// field, also of what it holds, is left out where it is empty, and none may be removed or get another name.
type Record struct {
	ID        ID            `json:"id"`
	Thread    chat.ThreadID `json:"thread"`
	Call      string        `json:"call"`
	Requester chat.User     `json:"requester"`
	Agent     string        `json:"agent,omitempty"`     // who made the call, where it was not the thread's own agent: "the sub-agent x"
	Caller    Caller        `json:"caller,omitzero"`     // the program that asked on the requester's behalf
	Groups    []string      `json:"groups,omitempty"`    // of the requester, as the network vouched for them
	Revision  int           `json:"revision,omitempty"`  // how often people edited the call; Requester was the last to edit its command
	Repeats   int           `json:"repeats,omitempty"`   // how often the same program asked for it again
	DroppedBy chat.User     `json:"dropped_by,omitzero"` // who last dropped steps of it
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
	Unstarted bool          `json:"unstarted,omitempty"` // it was used, and the bot went away before the run began
	Ended     time.Time     `json:"ended,omitzero"`
	// Preview and Taint inform the approvers: what the action would do, and which
	// untrusted source its words come from. Neither is part of the digest.
	Preview Preview `json:"preview,omitzero"`
	// Receipt is what it changed, of one that ran.
	Receipt Receipt `json:"receipt,omitzero"`
	// Ticket is the one that it is made for, as it was at the last vote; while the request waits, the card has
	// the thread's.
	Ticket Ticket `json:"ticket,omitzero"`
	// Trial says that the change undoes itself unless somebody keeps it.
	Trial Trial  `json:"trial,omitzero"`
	Taint string `json:"taint,omitempty"`
	// Undoes is the change that this one takes back. UndoneBy asked for the one that took this one back.
	Undoes   Undoes    `json:"undoes,omitzero"`
	UndoneBy chat.User `json:"undone_by,omitzero"`
	UndoneAt time.Time `json:"undone_at,omitzero"`
	// Place is where it runs, in the operator's words.
	Place Place `json:"place,omitzero"`
	// Steps are, for an approved plan, the requests of its steps, as far as they were made.
	Steps []ID `json:"steps,omitempty"`
	// Leaves are the hashes of members, by name, as they were before a person was forgotten.
	Leaves map[string]string `json:"leaves,omitempty"`
}

// Undoes is a change that a request takes back: what it did, and who approved it when.
type Undoes struct {
	ID   ID        `json:"id,omitempty"`
	Deed string    `json:"deed,omitempty"`
	By   chat.User `json:"by,omitzero"`
	At   time.Time `json:"at,omitzero"`
}

// Place is a target in the operator's words, for people.
type Place struct {
	Target string `json:"target,omitempty"` // its name in the configuration; "" if the action has none
	// Env is the value of its label env or environment. Production says that this is a
	// production environment.
	Env        string `json:"env,omitempty"`
	Production bool   `json:"production,omitempty"`
}

// MadeByWorkflow is the prefix of a Record's Agent if a workflow's step made the call.
const MadeByWorkflow = "the workflow "

// Basis says why a request was approved without votes of its own. The zero value stands
// for votes.
type Basis struct {
	Kind BasisKind `json:"kind,omitempty"`
	// Of is the request whose grant or plan this is, the one that people voted on.
	Of ID `json:"of,omitempty"`
	// Step is which step of a plan it is, counted from 1.
	Step int `json:"step,omitempty"`
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

// Review is the review that a break-glass approval requires from somebody else.
type Review struct {
	Due  bool      `json:"due,omitempty"` // required, and not done yet
	By   chat.User `json:"by,omitzero"`
	At   time.Time `json:"at,omitzero"`
	Note string    `json:"note,omitempty"`
}

// Judgement is a verdict of the risk engine as plain data.
type Judgement struct {
	ReadOnly bool     `json:"readonly"`
	Risk     string   `json:"risk"`
	Effects  []string `json:"effects,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
	Steps    []string `json:"steps,omitempty"` // the risk of each step of a plan
}

// Require lists what the policy requires before the action may run.
type Require struct {
	// Needs must all be met. One vote can count for several. With no needs, nobody can
	// approve.
	Needs          []Need        `json:"needs,omitempty"`
	RequesterMay   bool          `json:"requester_may"`
	ReasonRequired bool          `json:"reason_required,omitempty"` // of who approves
	Solo           bool          `json:"solo,omitempty"`            // one person may approve what they asked for
	Write          string        `json:"write,omitempty"`           // what who approves has to write as the reason; "" is nothing
	Proof          string        `json:"proof,omitempty"`           // passkey: an approval counts with a signature only
	Ticket         bool          `json:"ticket,omitempty"`          // of who approves, and again when it runs
	BreakGlass     []string      `json:"break_glass,omitempty"`     // groups of which one person may decide alone
	Grant          time.Duration `json:"grant,omitempty"`           // how long exactly this may be approved for; 0: once
	RunWithin      time.Duration `json:"run_within"`
	KeepWithin     time.Duration `json:"keep_within,omitempty"` // how long a change that undoes itself waits to be kept; 0: it may not
}

// Need is one requirement of a policy: Count distinct people from Groups.
type Need struct {
	Rule   string   `json:"rule"`
	Count  int      `json:"count"` // less than 1 counts as 1
	Groups []string `json:"groups,omitempty"`
	// Escalate adds groups, step by step, if nobody answers.
	Escalate []Step `json:"escalate,omitempty"`
	Taken    int    `json:"taken,omitempty"` // steps so far; their groups are in Groups
	// Duty says for the groups that are schedules who was on call, when the request was filed or people
	// were last told.
	Duty []Duty `json:"duty,omitempty"`
}

// Who names those who may decide: groups, and people who are on call.
func (n Need) Who() []string {
	var out []string
	for _, g := range n.Groups {
		if i := slices.IndexFunc(n.Duty, func(d Duty) bool { return d.Group == g }); i >= 0 {
			g = n.Duty[i].String()
		}
		out = append(out, g)
	}
	return out
}

// One reports whether a need names one person and asks for one.
func (n Need) One() bool {
	return n.Count <= 1 && len(n.Groups) == 1 && len(n.Duty) == 1 && n.Duty[0].Why == "" && len(n.Duty[0].People) == 1
}

// Step is one step of an escalation.
type Step struct {
	After  time.Duration `json:"after"` // since the request was filed
	Groups []string      `json:"groups"`
	Who    []string      `json:"who,omitempty"` // names them, where Groups has schedules
}

// Groups returns the groups of all needs, without duplicates, in order.
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

// Who names those who may decide, as [Need.Who], without duplicates.
func (r Require) Who() []string {
	var out []string
	for _, n := range r.Needs {
		for _, g := range n.Who() {
			if !slices.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
}

// Vote is one person's approval or denial of a record.
type Vote struct {
	User    chat.User    `json:"user"`
	Approve bool         `json:"approve"`
	Reason  string       `json:"reason,omitempty"`
	Via     string       `json:"via"` // button, text, cli
	Event   chat.EventID `json:"event"`
	At      time.Time    `json:"at"`
	Digest  Digest       `json:"digest"` // what the voter was shown
	// Groups are the groups and roles that the chat network reported with the vote.
	Groups []string `json:"groups,omitempty"`
	// Duty are the schedules by which the vote counted: who was on call when it was cast.
	Duty []Duty `json:"duty,omitempty"`
	// Ticket is the thread's, as it was then.
	Ticket Ticket `json:"ticket,omitzero"`
	// Meets are the indexes of the needs that this person's groups meet.
	Meets []int `json:"meets,omitempty"`
	// Void says that it met needs when it was cast, and meets none any more: its person may vote again.
	Void bool `json:"void,omitempty"`
	// Grant approves this exact action for a while. Glass decides alone (break-glass).
	Grant bool `json:"grant,omitempty"`
	Glass bool `json:"glass,omitempty"`
	// Trial approves a change that undoes itself unless somebody keeps it.
	Trial bool `json:"trial,omitempty"`
	// Passkey is what the person's device signed, nil if none was asked.
	Passkey *passkey.Proof `json:"passkey,omitempty"`
}

// Counts reports whether a vote is an approval that still counts.
func (v Vote) Counts() bool { return v.Approve && !v.Void }

// Outcome is how the run ended.
type Outcome struct {
	OK   bool   `json:"ok,omitempty"`
	Note string `json:"note,omitempty"` // one line: "exit code 0", or why it did not work
	// Signal is the signal that ended it ("KILL"). Unstarted says that it never started.
	Signal    string `json:"signal,omitempty"`
	Unstarted bool   `json:"unstarted,omitempty"`
	Last      string `json:"last,omitempty"` // of a failed command: the last line of its error
	Undo      bool   `json:"undo,omitempty"` // it can be taken back
}

// Notes of runs that people have to go on with: the call has ended, and the command in its terminal hasn't.
const (
	NotePassword   = "waiting for a password"
	NoteInput      = "waiting for input"
	NoteFullscreen = "a full-screen program is open"
)

// Open reports whether the command hasn't ended.
func (o Outcome) Open() bool {
	return !o.OK && (o.Note == NotePassword || o.Note == NoteInput || o.Note == NoteFullscreen)
}

// moves is the whole state machine: each state and its possible successors.
var moves = map[State][]State{
	Pending:        {Approved, Denied, Expired, Cancelled, Invalid},
	Approved:       {Running, Expired, Invalid, Cancelled},
	Running:        {Done, OutcomeUnknown, Approved}, // Approved: it never began
	Done:           nil,
	OutcomeUnknown: nil,
	Denied:         nil,
	Expired:        nil,
	Cancelled:      nil,
	Invalid:        nil,
}

// Next returns the states that may follow s. A final state has none.
func Next(s State) []State { return slices.Clone(moves[s]) }

// Final reports whether s has no successors.
func (s State) Final() bool { return len(moves[s]) == 0 }

// errMove reports a bug in this package: a state change that the table forbids.
var errMove = errors.New("approvals: forbidden state change")

// move changes the state, or reports that the table forbids it.
func (r *Record) move(to State) bool {
	if !slices.Contains(moves[r.State], to) {
		return false
	}
	r.State = to
	return true
}

// Approvals returns the number of distinct people who approved.
func (r Record) Approvals() int { return r.distinct(func(Vote) bool { return true }) }

// Met returns the number of distinct people whose approval counts for a need.
func (r Record) Met(need int) int {
	return r.distinct(func(v Vote) bool { return slices.Contains(v.Meets, need) })
}

func (r Record) distinct(counts func(Vote) bool) int {
	seen := map[chat.UserID]bool{}
	for _, v := range r.Votes {
		if v.Counts() && !v.User.Bot && v.User.ID != "" && counts(v) {
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

// OneVote reports whether one vote of an approver decides, whoever asked. Only then may it come
// from another network than the thread's: nobody can tell there whether it is the same person
// who asked, or who voted before.
func (r Record) OneVote() bool {
	return (r.Require.RequesterMay || r.Requester.Bot) && !slices.ContainsFunc(r.Require.Needs, func(n Need) bool { return n.Count > 1 })
}

// CardKey is the key of the post that has the request's card. A step of a plan is shown on the
// plan's.
func (r Record) CardKey() string {
	if r.Basis.Step > 0 {
		return chat.CardPrefix + string(r.Basis.Of)
	}
	return chat.CardPrefix + string(r.ID)
}

// WasUndone reports whether its change was taken back, by people or by itself.
func (r Record) WasUndone() bool { return !r.UndoneAt.IsZero() || r.Trial.Ended == Undone }

// FinalLevel returns Level as a [risk.Level].
func (r Record) FinalLevel() risk.Level { return risk.ParseLevel(r.Level) }
