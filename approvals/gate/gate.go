// Package gate joins the risk engine, the policy, the ledger, the cards and
// the audit chain. It judges proposals, files requests, and counts votes: one
// authorisation function for button, text, command line and web ([Gate.Vote]).
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

	"mvdan.cc/sh/v3/syntax"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/card"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/internal/failpoint"
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
	harmless := risk.Verdict{ReadOnly: true, Risk: risk.Read, Reasons: []string{"the tool can only look"}}
	if path == "" {
		return harmless
	}
	quoted, err := syntax.Quote(path, syntax.LangBash)
	if err != nil {
		return risk.Verdict{Risk: risk.High, Effects: []risk.Effect{risk.EffectUnknown}, Reasons: []string{"the file's name cannot be written as text"}}
	}
	if v := g.cfg.Classify("cat -- " + quoted); !v.ReadOnly {
		return risk.Verdict{Risk: v.Risk, Effects: v.Effects, Reasons: v.Reasons}
	}
	return harmless
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
		ID: approvals.NewID(string(req.Thread), req.CallID), Thread: req.Thread, Call: req.CallID, Requester: req.By,
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

// Consume turns an approval into a permit, once; the sentence says why not.
func (g *Gate) Consume(tx store.Tx, id approvals.ID, a approvals.Action) (approvals.Permit, approvals.Record, string) {
	permit, rec, why := g.ledger.Consume(tx, id, a, g.cfg.Now())
	if rec.ID != "" {
		g.note(tx, rec, string(rec.State), "", "", why)
		g.face(tx, rec, "")
	}
	return permit, rec, why
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

// Ballot is one vote, whatever way it came.
type Ballot struct {
	Thread  chat.ThreadID
	ID      approvals.ID
	From    chat.User
	Groups  []string // what the network vouched for at this moment
	Approve bool
	Reason  string
	Via     string
	EventID chat.EventID
}

// Click decides one press of a card's button.
func (g *Gate) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	b := Ballot{Thread: c.Thread, From: c.From, Groups: c.Groups, Reason: c.Reason, Via: "button", EventID: c.ID}
	switch id := string(c.Button); {
	case strings.HasPrefix(id, card.ApprovePrefix):
		b.ID, b.Approve = approvals.ID(strings.TrimPrefix(id, card.ApprovePrefix)), true
	case strings.HasPrefix(id, card.DenyPrefix):
		b.ID = approvals.ID(strings.TrimPrefix(id, card.DenyPrefix))
	default:
		return chat.Answer{Notice: "I do not know this button; it may be from an older version. Ask again in the thread."}, nil
	}
	return g.Vote(ctx, b)
}

// answerKey keeps the answer to an interaction, so that a repeated delivery
// gets the same one.
func answerKey(e chat.EventID) []byte { return store.Key("approval-answer", string(e)) }

// Vote is the one authorisation function: may this person decide this request,
// and does the vote count? Everybody gets an answer.
func (g *Gate) Vote(ctx context.Context, b Ballot) (chat.Answer, error) {
	var ans chat.Answer
	decided := false
	err := g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		decided = false
		if b.EventID != "" {
			if old, ok := store.Load[chat.Answer](tx, answerKey(b.EventID)); ok {
				ans = old
				return nil
			}
		}
		ans, decided = g.vote(tx, b)
		if b.EventID != "" {
			store.Save(tx, answerKey(b.EventID), ans)
		}
		return nil
	})
	if err != nil {
		return chat.Answer{}, fmt.Errorf("the vote could not be stored, so nothing was decided; press again: %w", err)
	}
	if decided {
		failpoint.Hit(failpoint.VoteStored)
	}
	g.cfg.Wake(string(b.Thread))
	return ans, nil
}

func (g *Gate) vote(tx store.Tx, b Ballot) (ans chat.Answer, decided bool) {
	now := g.cfg.Now()
	rec, ok := g.ledger.Get(tx, b.ID)
	if !ok || rec.Thread != b.Thread {
		return chat.Answer{Notice: "There is no such request in this thread; `status` names the one that is open."}, false
	}
	if why := g.refuse(rec, b); why != "" && rec.State == approvals.Pending {
		g.note(tx, rec, "refused", b.From.ID, b.Via, why)
		return chat.Answer{Notice: why}, false
	}
	rec, refusal, err := g.ledger.Vote(tx, b.ID, approvals.Vote{
		User: b.From, Approve: b.Approve, Reason: b.Reason, Via: b.Via, Event: b.EventID, At: now, Digest: rec.Digest,
	})
	if err != nil {
		store.Abort(err)
	}
	switch refusal {
	case approvals.Counted:
	case approvals.TooLate:
		g.note(tx, rec, "expired", "", "", "")
		c := g.face(tx, rec, "")
		g.decide(tx, rec)
		return chat.Answer{Card: &c, Notice: "This request expired at " + clock(rec.ExpiresAt) + ", so nothing was run."}, true
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
	// Today's approvers count, not those of the time of asking; both must name
	// the person.
	now := g.cfg.TargetApprovers(rec.Action.Target)
	if !g.cfg.Policy.Eligible(rec.Require.Groups, b.From, b.Groups) || !g.cfg.Policy.Eligible(now, b.From, b.Groups) {
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
