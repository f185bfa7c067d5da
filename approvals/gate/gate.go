// Package gate joins the risk engine, the policy, the ledger, the cards and
// the audit chain. It judges proposals, files requests, takes edits and counts
// votes: one authorisation function for button, text, command line and web
// ([Gate.Vote]).
//
// It runs nothing, and it is not on the way of a run: a run needs a permit,
// which only the ledger makes.
package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/card"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/store/outbox"
	"countersign/store/queue"
)

// Config is what a [Gate] is made of; every field is required.
type Config struct {
	DB       store.DB
	Policy   *policy.Policy
	Classify func(string) risk.Verdict
	Now      func() time.Time
	// Wake tells the thread's worker and the outbox that there is something new.
	Wake func(thread string)
	Log  *slog.Logger
	// TargetApprovers names the groups that may approve on a target.
	TargetApprovers func(target string) []string
	Mode            func(thread string) policy.Mode
}

// Gate is safe for concurrent use; it holds no state of its own.
type Gate struct {
	cfg    Config
	ledger approvals.Ledger
}

// New returns a gate.
func New(cfg Config) *Gate { return &Gate{cfg: cfg} }

// Request is one planned call that wants to run.
type Request struct {
	Thread chat.ThreadID
	CallID string
	By     chat.User
	Action approvals.Action
	Claim  approvals.Claim
	Floor  risk.Level // the tool's own level
	// Revision is how often people edited the command of this call; By is then who
	// did it last, and Claim is empty.
	Revision int
}

// id is the id of the request, the same each time it is asked for.
func (r Request) id() approvals.ID {
	id := approvals.NewID(string(r.Thread), r.CallID)
	if r.Revision > 0 {
		return id.Revision(r.Revision)
	}
	return id
}

// Ruling is what the gate makes of a request.
type Ruling struct {
	Lane     policy.Lane
	Level    risk.Level // the highest of engine, claim and tool
	Verdict  risk.Verdict
	Rule     string
	Sentence string
	Decision policy.Decision
}

// maxShown bounds what a card can show whole, in bytes of all its text as it is
// shown. What cannot be shown whole cannot be approved.
const maxShown = 60_000

// Judge says where a request goes. The model's claim can only raise: a proven
// read that the model calls a change, or risky, asks.
func (g *Gate) Judge(req Request) Ruling {
	v := g.verdict(req)
	level := risk.Max(v.Risk, req.Floor)
	if req.Claim.Given {
		level = risk.Max(level, claimed(req.Claim))
	}
	d := g.cfg.Policy.Decide(policy.Input{
		Mode:     g.cfg.Mode(string(req.Thread)),
		Harmless: v.ReadOnly && v.Risk == risk.Read && level == risk.Read,
		Groups:   g.cfg.TargetApprovers(req.Action.Target),
	})
	r := Ruling{Lane: d.Lane, Level: level, Verdict: v, Rule: d.Rule, Sentence: d.Sentence, Decision: d}
	if r.Lane != policy.Ask {
		return r
	}
	if size := card.Size(card.Of(g.record(req, r), d.Sentence)); size > maxShown {
		r.Lane = policy.Forbid
		r.Sentence = fmt.Sprintf("a card of this would have %d bytes, and can show at most %d whole; what cannot be shown whole cannot be approved, so do it in smaller steps", size, maxShown)
	}
	return r
}

// claimed is the level that a model's claim stands for. Risk "low" without a
// change raises nothing.
func claimed(c approvals.Claim) risk.Level {
	level := risk.Read
	switch c.Risk {
	case "low", "":
	case "medium":
		level = risk.Medium
	default:
		level = risk.High
	}
	if c.Mutation {
		level = risk.Max(level, risk.Low)
	}
	if c.Privesc {
		level = risk.Max(level, risk.High)
	}
	return level
}

func (g *Gate) verdict(req Request) risk.Verdict {
	switch req.Action.Kind {
	case approvals.KindObserve:
		return g.looking(req.Action.Path)
	case approvals.KindShell:
		return g.cfg.Classify(string(req.Action.Bytes))
	case approvals.KindKeys:
		return risk.Verdict{Risk: risk.Medium, Effects: []risk.Effect{risk.EffectInteractive}, Reasons: []string{"keystrokes reach whatever program is in front"}}
	case approvals.KindChange:
		return risk.Verdict{Risk: risk.Max(req.Floor, risk.Low), Effects: []risk.Effect{risk.EffectWrite}, Reasons: []string{"the tool changes something"}}
	}
	return risk.Verdict{Risk: risk.High, Effects: []risk.Effect{risk.EffectUnknown}, Reasons: []string{"the kind of this action is not known"}}
}

// looking judges a tool that can only look. Looking at a file is as harmless as
// cat of the same file: a private key asks, whichever tool would read it.
func (g *Gate) looking(path string) risk.Verdict {
	if path == "" {
		return risk.Verdict{ReadOnly: true, Risk: risk.Read, Reasons: []string{"the tool can only look"}}
	}
	text, err := approvals.Reading(path)
	if err != nil {
		return risk.Verdict{Risk: risk.High, Effects: []risk.Effect{risk.EffectUnknown}, Reasons: []string{"the file's name cannot be written as text"}}
	}
	v := g.cfg.Classify(text) // it carries the proof, so it is passed on
	if v.ReadOnly {
		v.Reasons = []string{"the tool can only look"}
	}
	return v
}

// Allow makes the permit of a request that may run without people.
func (g *Gate) Allow(req Request, r Ruling) (approvals.Permit, error) {
	if r.Lane != policy.Allow {
		return approvals.Permit{}, approvals.ErrNotProven
	}
	return g.ledger.Observe(req.Action, r.Verdict)
}

// Kinds of the items that the gate puts into a thread's queue.
const (
	itemDecision = "decision"
	itemExpire   = "expire"
	itemEdited   = "edited"
)

// decision is the body of a decision item; agent/history reads it.
type decision struct {
	Approval approvals.ID    `json:"approval"`
	Call     string          `json:"call"`
	State    approvals.State `json:"state"`
	By       string          `json:"by,omitempty"`
	ByName   string          `json:"by_name,omitempty"`
	Reason   string          `json:"reason,omitempty"`
}

// record is a request as it would be filed now.
func (g *Gate) record(req Request, r Ruling) approvals.Record {
	now := g.cfg.Now()
	effects := make([]string, len(r.Verdict.Effects))
	for i, e := range r.Verdict.Effects {
		effects[i] = string(e)
	}
	return approvals.Record{
		ID: req.id(), Thread: req.Thread, Call: req.CallID, Requester: req.By, Revision: req.Revision,
		Created: now, Action: req.Action, Claim: req.Claim, State: approvals.Pending,
		Engine: approvals.Judgement{ReadOnly: r.Verdict.ReadOnly, Risk: r.Verdict.Risk.String(), Effects: effects, Reasons: r.Verdict.Reasons},
		Level:  r.Level.String(), Rule: r.Rule, Policy: g.cfg.Policy.Hash(),
		Require: approvals.Require{
			Count: r.Decision.Count, Groups: r.Decision.Groups, RequesterMay: r.Decision.RequesterMay, RunWithin: r.Decision.RunWithin,
		},
		ExpiresAt: now.Add(r.Decision.Expires),
	}
}

// Ask files the request with its card, its audit line and its expiry timer.
// Asking again for the same call finds the same request and changes nothing.
func (g *Gate) Ask(tx store.Tx, req Request, r Ruling) approvals.Record {
	rec, existed := g.ledger.Open(tx, g.record(req, r))
	if existed {
		return rec
	}
	g.note(tx, rec, "asked", rec.Requester.ID, "", "")
	g.face(tx, rec, r.Decision.Sentence)
	g.timer(tx, rec, rec.ExpiresAt)
	return rec
}

func (g *Gate) timer(tx store.Tx, rec approvals.Record, at time.Time) {
	body, err := json.Marshal(decision{Approval: rec.ID, Call: rec.Call})
	if err != nil {
		store.Abort(err)
	}
	queue.PutAt(tx, at, queue.Item{
		ID: fmt.Sprintf("expire/%s/%d", rec.ID, at.UnixNano()), Thread: string(rec.Thread), Kind: itemExpire, Body: body, At: g.cfg.Now(),
	})
}

// face puts the card's present face into the outbox.
func (g *Gate) face(tx store.Tx, rec approvals.Record, notice string) chat.Card {
	c := card.Of(rec, notice)
	key := "approval/" + string(rec.ID)
	outbox.Put(tx, string(rec.Thread), key, chat.Post{Key: key, Card: &c, Quiet: rec.State != approvals.Pending}, g.cfg.Now())
	return c
}

func (g *Gate) note(tx store.Tx, rec approvals.Record, what string, who chat.UserID, via, note string) {
	audit.Append(tx, string(rec.Thread), audit.Event{
		What: what, Approval: string(rec.ID), Digest: rec.Digest.String(), Tool: rec.Action.Tool, Target: rec.Action.Target,
		Level: rec.Level, User: string(who), Via: via, Note: note,
	}, g.cfg.Now())
}

// decide wakes the thread with how the waiting ended.
func (g *Gate) decide(tx store.Tx, rec approvals.Record) {
	body, err := json.Marshal(decision{rec.ID, rec.Call, rec.State, string(rec.By.ID), rec.By.Name, rec.Reason})
	if err != nil {
		store.Abort(err)
	}
	queue.Put(tx, queue.Item{
		ID: "decision/" + string(rec.ID), Thread: string(rec.Thread), Kind: itemDecision, Body: body, At: g.cfg.Now(),
	})
}

// Consume turns an approval into a permit, once; the sentence says why not. What
// was approved under another configuration must hold under the present one: who
// was taken off the list does not count any more.
func (g *Gate) Consume(tx store.Tx, id approvals.ID, a approvals.Action) (approvals.Permit, approvals.Record, string) {
	if rec, ok := g.ledger.Get(tx, id); ok && rec.State == approvals.Approved {
		if why := g.outdated(rec); why != "" {
			rec, _ = g.ledger.Invalidate(tx, id, why, g.cfg.Now())
			g.note(tx, rec, string(rec.State), "", "", why)
			g.face(tx, rec, "")
			return approvals.Permit{}, rec, why
		}
	}
	permit, rec, why := g.ledger.Consume(tx, id, a, g.cfg.Now())
	if rec.ID != "" {
		g.note(tx, rec, string(rec.State), "", "", why)
		g.face(tx, rec, "")
	}
	return permit, rec, why
}

// outdated says why an approval would not be one under the present policy and
// approvers, "" if it would. Network groups are those that the votes were given
// with: nobody is looked up here.
func (g *Gate) outdated(rec approvals.Record) string {
	v := g.verdict(Request{Thread: rec.Thread, Action: rec.Action, Floor: rec.FinalLevel()})
	now := g.cfg.Policy.Decide(policy.Input{
		Mode:     g.cfg.Mode(string(rec.Thread)),
		Harmless: v.ReadOnly && v.Risk == risk.Read && rec.FinalLevel() == risk.Read,
		Groups:   g.cfg.TargetApprovers(rec.Action.Target),
	})
	switch {
	case now.Lane == policy.Forbid:
		return "the policy changed after the approval: " + now.Sentence
	case now.Lane == policy.Ask && rec.Approvals() < now.Count:
		return fmt.Sprintf("the policy changed after the approval: it takes %d people now, and %d approved", now.Count, rec.Approvals())
	case now.Lane == policy.Ask && g.cfg.Now().After(rec.Decided.Add(now.RunWithin)):
		return "the policy changed after the approval: it must be used within " + now.RunWithin.String() + " now"
	}
	for _, vote := range rec.Votes {
		if !vote.Approve {
			continue
		}
		who := vote.User.Name
		if who == "" {
			who = string(vote.User.ID)
		}
		if !g.eligible(rec, vote.User, vote.Groups) {
			return who + " approved this and may not approve on " + rec.Action.Target + " any more"
		}
		if vote.User.ID == rec.Requester.ID && (!rec.Require.RequesterMay || !now.RequesterMay) {
			return who + " asked for this, and may not approve it any more"
		}
	}
	return ""
}

// eligible reports whether a person may approve a record: the groups of the time
// of asking and today's approvers must both name them.
func (g *Gate) eligible(rec approvals.Record, u chat.User, network []string) bool {
	return g.cfg.Policy.Eligible(rec.Require.Groups, u, network) &&
		g.cfg.Policy.Eligible(g.cfg.TargetApprovers(rec.Action.Target), u, network)
}

// Finish records the outcome of a permitted run.
func (g *Gate) Finish(tx store.Tx, id approvals.ID, o approvals.Outcome) {
	if rec, ok := g.ledger.Finish(tx, id, o, g.cfg.Now()); ok {
		g.note(tx, rec, "done", "", "", o.Note)
		g.face(tx, rec, "")
	}
}

// Lost records that the outcome is not known.
func (g *Gate) Lost(tx store.Tx, id approvals.ID) {
	if rec, ok := g.ledger.Lost(tx, id, g.cfg.Now()); ok {
		g.note(tx, rec, "unknown", "", "", "")
		g.face(tx, rec, "")
	}
}

// Cancel withdraws a request that has not begun to run.
func (g *Gate) Cancel(tx store.Tx, id approvals.ID, by chat.User, why string) {
	if rec, ok := g.ledger.Cancel(tx, id, by, why, g.cfg.Now()); ok {
		g.note(tx, rec, "cancelled", by.ID, "", why)
		g.face(tx, rec, "")
	}
}

// Expire ends a request whose time is over and wakes its thread; too early it
// does nothing.
func (g *Gate) Expire(tx store.Tx, id approvals.ID) {
	if rec, ok := g.ledger.Expire(tx, id, g.cfg.Now()); ok {
		g.note(tx, rec, "expired", "", "", "")
		g.face(tx, rec, "")
		g.decide(tx, rec)
	}
}

// The ways a vote can come.
const (
	ViaButton = "button"
	ViaText   = "text"
)

// Ballot is one vote, whatever way it came.
type Ballot struct {
	Thread  chat.ThreadID
	ID      approvals.ID
	From    chat.User
	Groups  []string // what the network vouched for at this moment
	Approve bool
	Reason  string
	Via     string // ViaButton, ViaText, or another word for the audit
	// Nonce is the one of the card that was pressed; a ballot by button counts for
	// nothing without it.
	Nonce string
	// EventID, when not empty, makes a repeated ballot of the same person get the
	// same answer.
	EventID chat.EventID
}

// Click decides one press of a card's button.
func (g *Gate) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	prefix, id, nonce, ok := card.Parse(c.Button)
	if !ok {
		return chat.Answer{Notice: "I do not know this button; it may be from an older version. Ask again in the thread."}, nil
	}
	b := Ballot{
		Thread: c.Thread, ID: id, From: c.From, Groups: c.Groups, Approve: prefix == card.ApprovePrefix, Reason: c.Reason,
		Via: ViaButton, Nonce: nonce, EventID: c.ID,
	}
	switch prefix {
	case card.ApprovePrefix, card.DenyPrefix:
		return g.Vote(ctx, b)
	case card.EditPrefix:
		row := answerRow{string(c.Thread), string(c.From.ID), string(c.Button), string(c.ID)}
		return g.once(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.edit(tx, b, c.Text) })
	}
	return chat.Answer{Notice: "This button does not work here; write `stop` in the thread."}, nil
}

// Word decides what somebody wrote instead of pressing: c.Button is "approve:" or
// "deny:" and the id that they typed. It is the same vote as a press; words carry
// no nonce, because nobody could type one.
func (g *Gate) Word(ctx context.Context, c chat.Click) (chat.Answer, error) {
	prefix, id, nonce, ok := card.Parse(c.Button)
	if !ok || nonce != "" || (prefix != card.ApprovePrefix && prefix != card.DenyPrefix) {
		return chat.Answer{Notice: "I do not know this request; `status` names the one that is open."}, nil
	}
	return g.Vote(ctx, Ballot{
		Thread: c.Thread, ID: id, From: c.From, Groups: c.Groups, Approve: prefix == card.ApprovePrefix, Reason: c.Reason,
		Via: ViaText, EventID: c.ID,
	})
}

// Vote is the one authorisation function: may this person decide this request,
// and does the vote count? Everybody gets an answer.
func (g *Gate) Vote(ctx context.Context, b Ballot) (chat.Answer, error) {
	prefix := card.DenyPrefix
	if b.Approve {
		prefix = card.ApprovePrefix
	}
	row := answerRow{string(b.Thread), string(b.From.ID), prefix + string(b.ID) + "." + b.Nonce, string(b.EventID)}
	return g.once(ctx, row, func(tx store.Tx) (chat.Answer, bool) { return g.vote(tx, b) })
}

// meet finds the request that a ballot is about and checks that this person may
// decide it, now, from this card. With ok false, ans is the answer.
func (g *Gate) meet(tx store.Tx, b Ballot) (rec approvals.Record, shown approvals.Digest, ans chat.Answer, decided, ok bool) {
	rec, found := g.ledger.Get(tx, b.ID)
	if !found || rec.Thread != b.Thread {
		return rec, shown, chat.Answer{Notice: "There is no such request in this thread; `status` names the one that is open."}, false, false
	}
	if rec.State != approvals.Pending {
		c := card.Of(rec, "")
		return rec, shown, chat.Answer{Card: &c, Notice: already(rec)}, false, false
	}
	shown, current := g.shown(tx, rec, b)
	if !current {
		g.note(tx, rec, "refused", b.From.ID, b.Via, "the card is out of date")
		return rec, shown, chat.Answer{Notice: "This card is out of date, so nothing was decided: use the newest card of this request, or write `approve " + string(rec.ID) + "`."}, false, false
	}
	if why := g.refuse(rec, b); why != "" {
		g.note(tx, rec, "refused", b.From.ID, b.Via, why)
		return rec, shown, chat.Answer{Notice: why}, false, false
	}
	if late, expired := g.ledger.Expire(tx, rec.ID, g.cfg.Now()); expired {
		return late, shown, g.tooLate(tx, late), true, false
	}
	return rec, shown, chat.Answer{}, false, true
}

func (g *Gate) tooLate(tx store.Tx, rec approvals.Record) chat.Answer {
	g.note(tx, rec, "expired", "", "", "")
	c := g.face(tx, rec, "")
	g.decide(tx, rec)
	return chat.Answer{Card: &c, Notice: "This request expired at " + clock(rec.ExpiresAt) + ", so nothing was run."}
}

func (g *Gate) vote(tx store.Tx, b Ballot) (ans chat.Answer, decided bool) {
	_, shown, ans, decided, ok := g.meet(tx, b)
	if !ok {
		return ans, decided
	}
	rec, refusal, err := g.ledger.Vote(tx, b.ID, approvals.Vote{
		User: b.From, Approve: b.Approve, Reason: b.Reason, Via: b.Via, Event: b.EventID, At: g.cfg.Now(), Digest: shown, Groups: b.Groups,
	})
	if err != nil {
		store.Abort(err)
	}
	switch refusal {
	case approvals.Counted:
	case approvals.TooLate:
		return g.tooLate(tx, rec), true
	case approvals.VotedBefore:
		return chat.Answer{Notice: "Your approval already counts; it takes more people."}, false
	default:
		c := card.Of(rec, "")
		return chat.Answer{Card: &c, Notice: already(rec)}, false
	}
	word := "denied"
	if b.Approve {
		word = "approved"
	}
	g.note(tx, rec, word, b.From.ID, b.Via, b.Reason)
	c := g.face(tx, rec, "")
	if rec.State == approvals.Pending {
		return chat.Answer{Card: &c, OK: true, Notice: fmt.Sprintf("Your approval counts: %d of %d.", rec.Approvals(), rec.Require.Count)}, false
	}
	if rec.State == approvals.Approved {
		g.timer(tx, rec, rec.RunBy.Add(time.Second))
	}
	g.decide(tx, rec)
	return chat.Answer{Card: &c, OK: true, Notice: "You " + word + " request " + string(rec.ID) + "."}, true
}

// shown is the digest of what the voter has seen: for a press, of the card that
// the button belongs to. Who writes the id has read it from a card of this
// request, and all its cards show the same action.
func (g *Gate) shown(tx store.Tx, rec approvals.Record, b Ballot) (d approvals.Digest, ok bool) {
	if b.Via != ViaButton && b.Nonce == "" {
		return rec.Digest, true
	}
	return g.ledger.Shown(tx, rec.ID, b.Nonce)
}

// refuse says why a person may not cast this vote, "" if they may. Anybody who
// was let into the thread may deny: the safe side needs no right.
func (g *Gate) refuse(rec approvals.Record, b Ballot) string {
	switch {
	case b.From.Bot:
		return "Bots cannot decide."
	case !b.Approve:
		return ""
	case len(rec.Require.Groups) == 0:
		return "Nobody can approve on " + rec.Action.Target + ": it has no approvers. Add a group under its approvers in the configuration."
	}
	if !g.eligible(rec, b.From, b.Groups) {
		return "You may not approve this: it takes somebody of " + strings.Join(rec.Require.Groups, ", ") + "."
	}
	if !rec.Require.RequesterMay && b.From.ID == rec.Requester.ID {
		return "You asked for this yourself, so somebody else of " + strings.Join(rec.Require.Groups, ", ") + " must approve it."
	}
	return ""
}

func already(r approvals.Record) string {
	switch r.State {
	case approvals.Approved, approvals.Running, approvals.Done, approvals.OutUnk:
		return "Already approved by " + r.By.Name + " at " + clock(r.Decided) + "."
	case approvals.Denied:
		return "Already denied by " + r.By.Name + " at " + clock(r.Decided) + "."
	case approvals.Expired:
		return "This request has expired, so nothing was run."
	case approvals.Cancelled:
		return "This request was withdrawn by " + r.By.Name + "."
	case approvals.Invalid:
		return "This request is no longer valid: " + r.Reason + "."
	case approvals.Pending:
	}
	return "This vote does not count."
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }
