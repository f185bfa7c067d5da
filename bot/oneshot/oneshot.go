// Package oneshot takes a single call through plan, gate, vote and permit, for a person at the
// keyboard: the same way that a turn of a conversation takes it.
package oneshot

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/card"
	"countersign/approvals/gate"
	"countersign/store"
	"countersign/tools"
)

// Caller makes calls.
type Caller struct {
	DB    store.DB
	Gate  *gate.Gate
	Tools *tools.Registry
}

// ErrRefused is the error of a call that was not run or failed.
var ErrRefused = errors.New("the call did not succeed")

// ask asks the person at the keyboard and votes as they say.
func (c Caller) ask(ctx context.Context, me chat.User, rec approvals.Record, approve func(what string) bool) (string, error) {
	// What a card would show: all of it, with nothing invisible.
	what := card.New(rec, "").Code
	if a := rec.Action; a.Kind != approvals.KindShell {
		what = a.Tool + " " + a.Path + "\n" + what + "\n"
	}
	yes := approve(what)
	ans, err := c.Gate.Vote(ctx, gate.Ballot{Thread: rec.Thread, ID: rec.ID, From: me, Approve: yes, Reason: "at the keyboard", Via: "cli", EventID: "once"})
	switch {
	case err != nil:
		return "", err
	case !yes:
		return tools.DeniedEnvelope(time.Now(), ""), ErrRefused
	case !ans.OK || ans.Card == nil || !ans.Card.Final:
		return tools.ErrorText(tools.Failed("%s", ans.Notice)), ErrRefused
	}
	return "", nil
}

// Call takes one call through plan, gate, vote and permit, as a turn would.
func (c Caller) Call(ctx context.Context, me chat.User, name, args string, approve func(what string) bool) (string, error) {
	const thread = chat.ThreadID("tool:once")
	call := tools.Call{ID: "once", Thread: string(thread), By: string(me.ID), Name: name, Args: json.RawMessage(args), Direct: true}
	text, tried, err := c.once(ctx, me, call, approve)
	if tried != "" { // it is no read: now it asks
		call.Tried = tried
		text, _, err = c.once(ctx, me, call, approve)
	}
	return text, err
}

// once is Call for a call that was tried as a read, or not yet; tried is what it tried
// in vain.
func (c Caller) once(ctx context.Context, me chat.User, call tools.Call, approve func(what string) bool) (out, tried string, err error) {
	const thread = chat.ThreadID("tool:once")
	plan, err := c.Tools.Plan(ctx, call)
	if err != nil {
		return tools.ErrorText(err), "", ErrRefused
	}
	req := approvals.Request{Thread: thread, Call: call.ID, By: me, Action: plan.Action, Claim: plan.Claim, Floor: plan.Level, Tried: call.Tried}
	ruling := c.Gate.Judge(ctx, req)
	var permit approvals.Permit
	var id approvals.ID
	switch ruling.Lane {
	case approvals.Allow:
		permit = ruling.Permit
	case approvals.Ask:
		var rec approvals.Record
		err := c.DB.Update(ctx, func(tx store.Tx) error { rec = c.Gate.Ask(tx, req); return nil })
		if err != nil {
			return "", "", err
		}
		id = rec.ID
		if rec.State != approvals.Approved { // else on the policy's word
			if text, err := c.ask(ctx, me, rec, approve); err != nil {
				return text, "", err
			}
		}
		if plan, err = c.Tools.Plan(ctx, call); err != nil {
			return tools.ErrorText(err), "", ErrRefused
		}
		var why string
		err = c.DB.Update(ctx, func(tx store.Tx) error { permit, _, why = c.Gate.Consume(tx, id, plan.Action); return nil })
		if err != nil {
			return "", "", err
		}
		if why != "" {
			return tools.ErrorText(tools.Failed("%s", why)), "", ErrRefused
		}
	default:
		return tools.ErrorText(tools.Failed("%s", ruling.Sentence)), "", ErrRefused
	}
	res, err := plan.Run(ctx, permit, nil)
	if id != "" {
		_ = c.DB.Update(context.WithoutCancel(ctx), func(tx store.Tx) error {
			c.Gate.Finish(tx, id, approvals.Outcome{OK: err == nil && !res.Failed})
			return nil
		})
	}
	if err != nil {
		return tools.ErrorText(err), "", ErrRefused
	}
	text := tools.Envelope(time.Now(), res.Value)
	if res.Unknown {
		return text, "", ErrRefused
	}
	return text, res.Tried, nil
}
