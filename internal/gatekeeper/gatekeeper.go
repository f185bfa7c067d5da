// Package gatekeeper shows the gate to the agent: the agent declares what it needs of a
// gate in its own words, and knows no gate; the gate knows no conversation.
package gatekeeper

import (
	"context"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/history"
	"countersign/approvals"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/store"
)

// Config is what a [Keeper] is made of. Gate is required.
type Config struct {
	Gate *gate.Gate
	// Used is told of every approval that is used; nil: nobody is. Like Labels, it must
	// be quick, and may be called in a transaction that runs again.
	Used func(approvals.ID, approvals.Action)
	// Labels is told how the model's labels compare with what the engine found; nil:
	// nobody is.
	Labels func(approvals.Claim, approvals.Judgement)
}

// Keeper is the gate in the agent's words. It is safe for concurrent use.
type Keeper struct {
	g      *gate.Gate
	used   func(approvals.ID, approvals.Action)
	labels func(approvals.Claim, approvals.Judgement)
}

var _ agent.Gate = Keeper{}

// New returns a keeper.
func New(c Config) Keeper {
	if c.Used == nil {
		c.Used = func(approvals.ID, approvals.Action) {}
	}
	if c.Labels == nil {
		c.Labels = func(approvals.Claim, approvals.Judgement) {}
	}
	return Keeper{c.Gate, c.Used, c.Labels}
}

func request(p agent.Proposal) gate.Request {
	return gate.Request{
		Thread: p.Thread, CallID: p.Call, By: p.By, Action: p.Action, Claim: p.Claim, Floor: p.Floor, Revision: p.Revision,
		Groups: p.Groups, Impact: p.Impact, Taint: p.Taint, Interrupt: p.Interrupt, Agent: p.Agent, ReadOnly: p.ReadOnly, Gated: p.Gated,
	}
}

// Judge implements agent.Gate.
func (k Keeper) Judge(ctx context.Context, p agent.Proposal) agent.Ruling {
	req := request(p)
	r := k.g.Judge(ctx, req)
	effects := make([]string, len(r.Verdict.Effects))
	for i, e := range r.Verdict.Effects {
		effects[i] = string(e)
	}
	k.labels(req.Claim, approvals.Judgement{ReadOnly: r.Verdict.ReadOnly, Risk: r.Verdict.Risk.String(), Effects: effects})
	switch r.Lane {
	case policy.Allow:
		permit, err := k.g.Allow(req, r)
		if err != nil {
			return agent.Ruling{Lane: agent.Ask}
		}
		return agent.Ruling{Lane: agent.Allow, Permit: permit}
	case policy.Ask:
		return agent.Ruling{Lane: agent.Ask}
	default:
		return agent.Ruling{Lane: agent.Forbid, Sentence: r.Sentence}
	}
}

// Ask implements agent.Gate.
func (k Keeper) Ask(tx store.Tx, p agent.Proposal) history.Ask {
	rec := k.g.Ask(tx, request(p))
	return history.Ask{Call: p.Call, Approval: rec.ID, Digest: rec.Digest, Expires: rec.ExpiresAt}
}

// Consume implements agent.Gate.
func (k Keeper) Consume(tx store.Tx, id approvals.ID, a approvals.Action) (approvals.Permit, string) {
	permit, _, why := k.g.Consume(tx, id, a)
	if why == "" {
		k.used(id, a)
	}
	return permit, why
}

// Finish implements agent.Gate.
func (k Keeper) Finish(tx store.Tx, id approvals.ID, o agent.Outcome) {
	k.g.Finish(tx, id, approvals.Outcome{OK: o.OK, Note: o.Note, Undo: o.Undo})
}

// Lost implements agent.Gate.
func (k Keeper) Lost(tx store.Tx, id approvals.ID) { k.g.Lost(tx, id) }

// Cancel implements agent.Gate.
func (k Keeper) Cancel(tx store.Tx, id approvals.ID, by chat.User, why string) {
	k.g.Cancel(tx, id, by, why)
}

// Due implements agent.Gate.
func (k Keeper) Due(tx store.Tx, id approvals.ID) { k.g.Due(tx, id) }

// Allowed implements agent.Gate.
func (k Keeper) Allowed(tx store.Tx, p agent.Proposal) { k.g.Allowed(tx, request(p)) }

// Forbidden implements agent.Gate.
func (k Keeper) Forbidden(tx store.Tx, p agent.Proposal) { k.g.Forbidden(tx, request(p)) }

// Ran implements agent.Gate.
func (k Keeper) Ran(tx store.Tx, p agent.Proposal, o agent.Outcome) {
	k.g.Ran(tx, request(p), approvals.Outcome{OK: o.OK, Note: o.Note})
}

// Revoke implements agent.Gate.
func (k Keeper) Revoke(tx store.Tx, thread chat.ThreadID, by chat.User) {
	k.g.Revoke(tx, thread, by)
}

// Vote implements agent.Gate.
func (k Keeper) Vote(ctx context.Context, c chat.Click) (chat.Answer, error) {
	return k.g.Word(ctx, c)
}
