package agent

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/store"
	"countersign/tools"
	"countersign/tools/plan"
)

// Calls of one reply that ask together are one card: a plan that the bot makes of them.
// Once it is approved, each call has its own request, which rests on that approval, and
// runs in the reply's order. A call that fails ends the plan, and those after it ask.

// batch returns a plan of the step's call, whose action is first, and the calls that follow it
// in the same reply, as far as they ask, and their ids. There is none if fewer than two ask.
// rows are the ids of those that ask: one for each of the plan's steps.
func (w *worker) batch(ctx context.Context, s step, first approvals.Action) (p tools.Plan, calls, rows []string) {
	r := s.turn.reply
	if r.Direct || s.scripted() || s.inAside() || s.turn.batched || s.command() != nil || s.tried != "" || len(first.Steps) > 0 {
		return tools.Plan{}, nil, nil
	}
	var take []llm.Call
	for _, c := range s.turn.openCalls() {
		if len(take) == plan.MaxSteps {
			break
		}
		asks := c.ID == s.call.ID
		if !asks {
			lane, ok := w.laneOf(ctx, s, c)
			if !ok {
				break
			}
			asks = lane == approvals.Ask
		}
		take = append(take, c)
		if asks {
			rows = append(rows, c.ID)
			calls = calls[:0:0]
			for _, t := range take {
				calls = append(calls, t.ID)
			}
		}
	}
	if len(rows) < 2 {
		return tools.Plan{}, nil, nil
	}
	p, err := w.planBatch(ctx, s, calls)
	if err != nil || len(p.Action.Steps) != len(rows) {
		return tools.Plan{}, nil, nil
	}
	return p, calls, rows
}

// kept returns the steps that people left in the plan that the call proposes; nil if nobody
// dropped any.
func (w *worker) kept(ctx context.Context, s step) (left []approvals.Action, err error) {
	e := s.shortened()
	if e == nil || s.call.Name != plan.Name {
		return nil, nil
	}
	err = w.a.cfg.DB.View(ctx, func(tx store.Tx) error {
		rec, ok := approvals.Ledger{}.Get(tx, e.Approval)
		for _, i := range e.Keep {
			if !ok || i >= len(rec.Action.Steps) {
				return tools.Failed("the request that steps were dropped from is gone")
			}
			left = append(left, rec.Action.Steps[i])
		}
		return nil
	})
	return left, err
}

// dropped returns the results of the calls that a person dropped from those that ask
// together.
func (w *worker) dropped(s step, e history.Edited) (all []history.Entry) {
	for i, id := range s.ask.Rows {
		if slices.Contains(e.Keep, i) {
			continue
		}
		for _, c := range s.turn.reply.Calls {
			if c.ID == id {
				text := tools.ErrorText(tools.Failed("a person dropped this call and left the others, so it was not run; don't make it again unless somebody asks for it"))
				all = append(all, resultOf(s, history.Result{
					Call: id, Tool: c.Name, Same: sameRaw(c.Name, c.Args), Text: text, Failed: true, Skipped: true, Refused: true, Dropped: true,
				}))
			}
		}
	}
	return all
}

// droppedBy is who dropped calls of the last reply; zero if nobody did.
func (t *turn) droppedBy() (by chat.User) {
	dropped := false
	for _, c := range t.reply.Calls {
		r := t.results[c.ID]
		dropped = dropped || r != nil && r.Dropped
		for _, e := range t.edits[c.ID] {
			if e.Keep != nil {
				by = e.By
			}
		}
	}
	if !dropped { // from a plan
		return chat.User{}
	}
	return by
}

// covered reports whether the calls of the last reply run by one approval, so far: none of
// them failed.
func (t *turn) covered() bool {
	if !t.batched {
		return false
	}
	for _, c := range t.reply.Calls {
		if r := t.results[c.ID]; r != nil && r.Failed && !r.Dropped {
			return false
		}
	}
	return true
}

// laneOf returns the gate's decision about a later call of the step's reply. ok is false if
// the call cannot be part of a plan.
func (w *worker) laneOf(ctx context.Context, s step, c llm.Call) (lane approvals.Lane, ok bool) {
	s.call, s.edits, s.tried = c, nil, ""
	p, err := w.plan(ctx, s)
	if err != nil || p.Nested != nil || len(p.Action.Steps) > 0 {
		return 0, false
	}
	same := sameCall(p.Action)
	if _, refused := w.refuseRepeat(c, same, repeated(w.entries, same)); refused {
		return 0, false
	}
	by, groups := w.proposer(s)
	lane = w.a.cfg.Rulings.Judge(ctx, approvals.Request{
		Thread: w.thread, Call: c.ID, By: by, Groups: groups, Agent: s.madeBy(), ReadOnly: w.readOnly(s),
		Action: p.Action, Claim: p.Claim, Floor: p.Level, Interrupt: p.Interrupt,
	}).Lane
	return lane, lane != approvals.Forbid
}

// planBatch plans calls of the step's reply together.
func (w *worker) planBatch(ctx context.Context, s step, calls []string) (tools.Plan, error) {
	type call struct {
		Tool string          `json:"tool"`
		Args json.RawMessage `json:"arguments"`
	}
	args := struct {
		Summary string `json:"summary"`
		Steps   []call `json:"steps"`
		tools.ClaimArgs
	}{Summary: "none given"}
	for _, c := range s.turn.reply.Calls {
		for _, id := range calls {
			if c.ID == id {
				args.Steps = append(args.Steps, call{c.Name, json.RawMessage(c.Args)})
				args.ClaimArgs = higher(args.ClaimArgs, c.Args)
			}
		}
	}
	if args.Why != "" {
		args.Summary = args.Why
	}
	if said := firstLine(strings.TrimSpace(s.turn.reply.Text)); said != "" {
		args.Summary = said
	}
	claimed := args.Risk != ""
	if !claimed {
		args.Risk, args.Why = "low", "none" // the schema wants some
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	by, groups := w.proposer(s)
	p, err := w.a.cfg.Tools.Plan(ctx, tools.Call{
		ID: s.call.ID, Thread: string(w.thread), By: string(by.ID), Groups: groups, Agent: s.agent(), Target: w.place(s.turn), Name: plan.Name, Args: raw,
	})
	if !claimed {
		p.Claim = approvals.Claim{}
	}
	return p, err
}

// higher returns the claim that says what a and the arguments of a call say.
func higher(a tools.ClaimArgs, args string) tools.ClaimArgs {
	var b tools.ClaimArgs
	if json.Unmarshal([]byte(args), &b) != nil {
		return a
	}
	rank := map[string]int{"low": 1, "medium": 2, "high": 3}
	if rank[b.Risk] > rank[a.Risk] {
		a.Risk = b.Risk
	}
	a.Mutation, a.Privesc = a.Mutation || b.Mutation, a.Privesc || b.Privesc
	if a.Why == "" {
		a.Why = b.Why
	}
	return a
}

// beginBatch uses the approval of several calls, so that each is approved on that basis when
// its turn comes. If they are no longer what people approved, none of them runs.
func (w *worker) beginBatch(ctx context.Context, s step) error {
	step, done := w.beginVisibly(ctx, "checking what was approved")
	p, err := w.planBatch(step, s, s.ask.Batch)
	done()
	if interrupted(step) {
		return w.awaitInbox(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	id := s.decision.Approval
	var entry history.Entry
	planErr := err
	err = w.a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if err := w.fence.Check(tx); err != nil {
			return err
		}
		var why string
		if planErr != nil {
			why = "it can no longer be planned: " + planErr.Error()
			w.a.cfg.Requests.Cancel(tx, id, self, why)
		} else {
			_, _, why = w.a.cfg.Permits.Consume(tx, id, p.Action)
		}
		entry = history.Entry{Kind: history.KindBatch, Scope: s.scope(), Batch: &history.Batch{Call: s.call.ID, Approval: id}}
		if why != "" {
			text := tools.ErrorText(tools.Failed("approved, but not run: %s. Propose it again if it is still needed", strings.TrimSuffix(why, ".")))
			entry = resultOf(s, history.Result{Call: s.call.ID, Tool: s.call.Name, Text: w.a.cfg.Redact(text), Failed: true, Refused: true})
		} else {
			w.a.cfg.Permits.Finish(tx, id, approvals.Outcome{OK: true, Note: "begun"})
		}
		entry.At = w.a.cfg.Now()
		entry = w.append(tx, entry)
		return nil
	})
	if err != nil {
		return err
	}
	w.applyEntries(ctx, entry)
	w.a.cfg.Outbox.Wake(w.thread)
	return nil
}
