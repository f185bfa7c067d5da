package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/spend"
	"countersign/approvals"
	"countersign/approvals/deed"
	"countersign/internal/failpoint"
	"countersign/store"
	"countersign/store/queue"
	"countersign/tools"
	"countersign/tools/output"
	"countersign/tools/truncate"
)

const unknownText = "the outcome of this call is unknown: it may or may not have happened. It is not run again by itself; propose a read-only check of its effect first"

// unknownOf is what the model reads of a call whose outcome nobody knows: why, the tool's own sentence, and found, what
// its target remembers, come if there are any.
func unknownOf(why, found string) string {
	if why != "" {
		why += " So "
	}
	return tools.ErrorText(tools.Failed("%s", join(why+unknownText, found)))
}

func skipped(c llm.Call, text string) history.Result {
	return history.Result{Call: c.ID, Tool: c.Name, Same: sameRaw(c.Name, c.Args), Text: text, Skipped: true, Failed: true}
}

// close stores the result of a step's call.
func (w *worker) close(ctx context.Context, s step, r history.Result) error {
	return w.writeWithRetry(ctx, func(tx store.Tx) { w.tellOwn(tx, s, r) }, resultOf(s, r))
}

// tellOwn says in the thread why a person's own command was not run, where no card says it.
func (w *worker) tellOwn(tx store.Tx, s step, r history.Result) {
	if s.own() && s.ask == nil {
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "call/" + s.call.ID, Text: w.a.cfg.Redact(sayNotDone(strings.TrimSuffix(noteOf(r), ".")))})
	}
}

// tellNotRun says in the thread why a call was refused before anybody was asked.
func (w *worker) tellNotRun(tx store.Tx, s step, why string) {
	p := chat.Post{Key: "call/" + s.call.ID}
	why = strings.TrimSuffix(why, ".")
	switch {
	case isBudgetRequest(s.turn.reply), s.inAside():
		return
	case s.turn.reply.Direct && !s.scripted(): // a person is waiting for it
		p.Text = sayNotDone(why)
	case s.agent() != "":
		w.putAgentLine(tx, s.turn, "didn't run "+s.call.Name+": "+firstLine(why))
		return
	default:
		p.Text, p.Quiet, p.Log = sayNotRun(s.call, why, w.a.cfg.Redact), true, true
	}
	p.Text = w.a.cfg.Redact(p.Text)
	w.a.cfg.Outbox.Put(tx, w.thread, p)
}

// own reports whether a person's own command made the step's call.
func (s step) own() bool { return s.turn.reply != nil && s.turn.reply.Alone }

func resultOf(s step, r history.Result) history.Entry {
	return history.Entry{Kind: history.KindResult, Scope: s.scope(), Result: &r}
}

// plan plans a step's call that nobody has approved yet.
func (w *worker) plan(ctx context.Context, s step) (tools.Plan, error) {
	return w.planCall(ctx, s, false)
}

// planCall plans a step's call with the command as people last edited it. An edit drops the
// model's claim about the command, because the model wrote a different text.
func (w *worker) planCall(ctx context.Context, s step, approved bool) (tools.Plan, error) {
	by, groups := w.proposer(s)
	c := tools.Call{
		ID: s.call.ID, Thread: string(w.thread), By: string(by.ID), Groups: groups, Agent: s.agent(), Target: w.place(s.turn),
		Name: s.call.Name, Args: json.RawMessage(s.call.Args), Tried: s.tried, Direct: s.turn.reply != nil && s.turn.reply.Direct,
		Approved: approved, Alone: s.own() && !s.turn.reply.Claimed && s.caller().Way != approvals.WayMCP, // an agent looks at its terminal
	}
	if isBudgetRequest(s.turn.reply) {
		c.Agent = "" // the bot makes this call, also in a sub-agent's conversation
	}
	e := s.command()
	if e == nil {
		var err error
		if c.Keep, err = w.kept(ctx, s); err != nil {
			return tools.Plan{}, err
		}
		return w.a.cfg.Tools.Plan(ctx, c)
	}
	if c.Args = approvals.WithArgument(c.Args, e.Argument, e.Text); c.Args == nil {
		return tools.Plan{}, tools.Failed("the call has no argument %q to put the edited command into", e.Argument)
	}
	plan, err := w.a.cfg.Tools.Plan(ctx, c)
	if err != nil {
		return tools.Plan{}, err
	}
	if plan.Action.Kind != approvals.KindShell || string(plan.Action.Bytes) != e.Text {
		return tools.Plan{}, tools.Failed("the tool would not run exactly the edited command")
	}
	plan.Claim = approvals.Claim{}
	return plan, nil
}

// command returns the last edit of the call's command, or nil.
func (s step) command() *history.Edited {
	for _, e := range slices.Backward(s.edits) {
		if e.Keep == nil {
			return e
		}
	}
	return nil
}

// shortened returns the last edit if it dropped steps, or nil.
func (s step) shortened() *history.Edited {
	if n := len(s.edits); n > 0 && s.edits[n-1].Keep != nil {
		return s.edits[n-1]
	}
	return nil
}

// proposer returns the person a call is requested for: the last editor, else the turn's
// requester. An editor has no groups here: the edit itself required an approver.
func (w *worker) proposer(s step) (chat.User, []string) {
	if e := s.command(); e != nil {
		return e.By, nil
	}
	return w.state.requester()
}

// propose plans a call and has the gate judge it. A proven read runs immediately;
// everything else waits for people.
func (w *worker) propose(ctx context.Context, s step) error {
	c := s.call
	if s.inAside() && c.Name == withdrawTool {
		return w.withdraw(ctx, s)
	}
	during, done := w.beginVisibly(ctx, "planning "+c.Name)
	plan, err := w.plan(during, s)
	done()
	if interrupted(during) {
		return w.awaitInbox(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	same := sameRaw(c.Name, c.Args)
	switch {
	case err == nil:
		same = sameCall(plan.Action)
	case errors.Is(err, tools.ErrNoTool):
		same = sameRaw(c.Name, "") // no arguments help
	}
	// Repetition counts only for calls that a program made, not for a runbook's or a person's own.
	var rep repetition
	if !s.scripted() && (!s.own() || s.caller().Way != "") {
		rep = repeated(w.entries, same)
	}
	if len(s.edits) == 0 {
		if r, ok := w.refuseRepeat(c, same, rep); ok {
			return w.close(ctx, s, r)
		}
	}
	if err != nil {
		if len(s.edits) > 0 {
			return w.refuseEdit(ctx, s, same, err)
		}
		text := w.a.cfg.Redact(tools.ErrorText(err))
		r := history.Result{Call: c.ID, Tool: c.Name, Same: same, Outcome: hash(text), Text: text, Failed: true, Unstarted: true}
		return w.writeWithRetry(ctx, func(tx store.Tx) { w.tellNotRun(tx, s, err.Error()) }, resultOf(s, r))
	}
	by, groups := w.proposer(s)
	p := approvals.Request{
		Thread: w.thread, Call: c.ID, By: by, Groups: groups, Agent: s.madeBy(), Caller: s.caller(), ReadOnly: w.readOnly(s), Gated: s.turn.reply.Gated,
		Action: plan.Action, Claim: plan.Claim, Floor: plan.Level, Revision: len(s.edits), Interrupt: plan.Interrupt, Tried: s.tried,
		Undoes: plan.Undoes,
	}
	if s.own() && !s.turn.reply.Claimed { // nobody made a claim about it
		p.Claim = approvals.Claim{}
	}
	ruling := w.a.cfg.Rulings.Judge(ctx, p)
	if s.inAside() && (ruling.Lane != approvals.Allow || plan.Nested != nil) {
		ruling = approvals.Ruling{Lane: approvals.Forbid, Level: ruling.Level, Sentence: onlyLooks}
	}
	if e := s.shortened(); e != nil {
		p.DroppedBy = e.By
	} else if len(s.edits) == 0 {
		p.DroppedBy = s.turn.droppedBy()
	}
	switch ruling.Lane {
	case approvals.Allow:
		if plan.Nested != nil {
			return w.writeWithRetry(ctx, func(tx store.Tx) { w.a.cfg.Rulings.Allowed(tx, p) }, w.beginNested(s, plan))
		}
		if err := w.writeWithRetry(ctx, func(tx store.Tx) { w.a.cfg.Rulings.Allowed(tx, p) }); err != nil {
			return err
		}
		r, did := w.perform(ctx, c, plan.Action, permitted(plan, ruling.Permit), rep, "")
		if r == nil {
			return w.afterAbandon(ctx)
		}
		if did.tried != "" {
			return w.recordTried(ctx, s, p, did.tried)
		}
		return w.recordRun(ctx, s, plan.Action, *r, did, func(tx store.Tx, o approvals.Outcome) { w.a.cfg.Rulings.Ran(tx, p, o) })
	case approvals.Ask:
		var ask history.Ask
		if batch, calls, rows := w.batch(ctx, s, plan.Action); len(calls) > 0 {
			all := p
			all.Action, all.Claim, all.Floor, all.Batch = batch.Action, batch.Claim, batch.Level, true
			if w.a.cfg.Rulings.Judge(ctx, all).Lane == approvals.Ask {
				p, ask.Batch, ask.Rows, plan = all, calls, rows, batch
			}
		}
		var found preview
		if c.Name == spend.Tool && !p.Batch {
			found.Text = w.spendingImpact(ctx)
		} else if !s.turn.covered() {
			found = w.preview(ctx, plan, p)
		}
		p.Preview = found.Preview
		if !s.turn.reply.Direct || s.scripted() { // a person's own words are not tainted
			p.Taint = w.taintLine(p.Action)
		}
		entry, folded := history.Entry{Kind: history.KindAsk, Scope: s.scope(), Ask: &ask}, ""
		err := w.a.cfg.DB.Update(ctx, func(tx store.Tx) error {
			if err := w.fence.Check(tx); err != nil {
				return err
			}
			if folded = w.a.cfg.Requests.Throttle(tx, p); folded != "" {
				return nil
			}
			rec := w.a.cfg.Requests.Ask(tx, p)
			ask.Call, ask.Approval, ask.Digest, ask.Expires, ask.Step = p.Call, rec.ID, rec.Digest, rec.ExpiresAt, rec.Basis.Step > 0
			entry.At = w.a.cfg.Now()
			entry = w.append(tx, entry)
			w.park(tx, ask)
			return nil
		})
		if err != nil {
			found.drop()
			return err
		}
		if folded != "" {
			found.drop()
			w.a.cfg.Outbox.Wake(w.thread) // a card has a new count
			text := tools.ErrorText(tools.Failed("%s", folded))
			return w.close(ctx, s, history.Result{Call: c.ID, Tool: c.Name, Same: same, Outcome: hash(text), Text: text, Failed: true, Refused: true})
		}
		w.applyEntries(ctx, entry)
		failpoint.Hit(failpoint.CardRequested)
		w.a.cfg.Witness.Prepare(w.thread, p.Action)
		w.a.cfg.Outbox.Wake(w.thread)
		w.previewLater(ctx, ask.Approval, found)
		return nil
	case approvals.Forbid:
		if len(s.edits) > 0 {
			return w.refuseEdit(ctx, s, same, tools.Failed("%s", ruling.Sentence))
		}
	}
	text := tools.ErrorText(tools.Failed("%s", ruling.Sentence))
	r := history.Result{Call: c.ID, Tool: c.Name, Same: same, Outcome: hash(text), Text: text, Failed: true, Refused: true}
	return w.writeWithRetry(ctx, func(tx store.Tx) {
		w.a.cfg.Rulings.Forbidden(tx, p)
		w.tellNotRun(tx, s, ruling.Sentence)
	}, resultOf(s, r))
}

// recordTried records that a proven read attempted something its lock refused. The proof was
// wrong, so the call is planned again as a change, which needs approval.
func (w *worker) recordTried(ctx context.Context, s step, p approvals.Request, tried string) error {
	w.log.Warn("a command that was proven to only read tried to change something; its lock refused it, and it asks now",
		"tool", s.call.Name, "target", p.Action.Target, "tried", tried)
	e := history.Entry{Kind: history.KindTried, Scope: s.scope(), Tried: &history.Tried{Call: s.call.ID, Tool: s.call.Name, What: tried}}
	return w.writeWithRetry(ctx, func(tx store.Tx) {
		w.a.cfg.Rulings.Ran(tx, p, approvals.Outcome{Note: "held: it tried to " + tried})
	}, e)
}

// readOnly reports whether a step may run reads only, because of its turn or its profile, or
// because it is beside a request that waits.
func (w *worker) readOnly(s step) bool {
	if isBudgetRequest(s.turn.reply) {
		return false
	}
	return s.inAside() || w.state.readOnly() || w.a.cfg.Desk.Profile(w.thread, "").ReadOnly || w.a.cfg.Desk.Profile(w.thread, s.agent()).ReadOnly
}

// refuseEdit closes a call whose edited command cannot be requested. The model's own
// command does not run either: the edit withdrew its request. The thread is told, and the
// model continues.
func (w *worker) refuseEdit(ctx context.Context, s step, same string, err error) error {
	by, _ := w.proposer(s)
	who := by.Name
	why := w.a.cfg.Redact(strings.TrimSuffix(err.Error(), "."))
	text := tools.ErrorText(tools.Failed("the edited command was refused, so nothing ran: %s", why))
	r := history.Result{Call: s.call.ID, Tool: s.call.Name, Same: same, Outcome: hash(text), Text: text, Failed: true, Unstarted: true}
	return w.writeWithRetry(ctx, func(tx store.Tx) {
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{
			Key:  fmt.Sprintf("edit/%s/%d", s.call.ID, len(s.edits)),
			Text: sayEditRefused(who, why),
		})
	}, resultOf(s, r))
}

func (w *worker) park(tx store.Tx, ask history.Ask) {
	now := w.a.cfg.Now()
	if body, err := json.Marshal(ask); err == nil && ask.Expires.Sub(now) > w.a.cfg.Park {
		queue.PutAt(tx, now.Add(w.a.cfg.Park), queue.Item{ID: "park/" + string(ask.Approval), Thread: string(w.thread), Kind: itemPark, Body: body, At: now})
	}
}

// refuseRepeat returns the result for a call that repeats a denied or failing one. Its
// texts contain neither time nor count, so that they are identical every time.
func (w *worker) refuseRepeat(c llm.Call, same string, rep repetition) (history.Result, bool) {
	r := history.Result{Call: c.ID, Tool: c.Name, Same: same, Skipped: true, Failed: true, Repeated: true}
	switch {
	case rep.denied:
		r.Denied = true
		r.Text = tools.ErrorText(tools.Failed("a person has already denied exactly this call, so it was not asked again; " +
			"do something else, or ask in the thread what they want"))
	case rep.failures >= w.a.cfg.Repeats:
		r.Text = tools.ErrorText(tools.Failed("this exact call has failed %d times in the same way, so it was not run again; "+
			"change its arguments, find out why it fails with another command, or tell the thread what blocks you", w.a.cfg.Repeats))
	default:
		return r, false
	}
	return r, true
}

// runApproved plans the call again and runs it once if it is still what people approved.
func (w *worker) runApproved(ctx context.Context, s step) error {
	step, done := w.beginVisibly(ctx, "checking "+doing(s.call, w.a.cfg.Redact))
	plan, err := w.planCall(step, s, true)
	done()
	if interrupted(step) {
		return w.awaitInbox(ctx)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	id := s.decision.Approval
	if err != nil {
		why := "it can no longer be planned: " + err.Error()
		text := w.a.cfg.Redact(tools.ErrorText(tools.Failed("approved, but not run: %s", why)))
		r := history.Result{Call: s.call.ID, Tool: s.call.Name, Text: text, Failed: true, Unstarted: true}
		return w.writeWithRetry(ctx, func(tx store.Tx) { w.a.cfg.Requests.Cancel(tx, id, self, why) },
			resultOf(s, r))
	}
	var permit approvals.Permit
	var rec approvals.Record
	var why string
	var entry history.Entry
	update := w.a.cfg.DB.Update
	if plan.Notes { // its note makes this durable, before anything runs
		update = func(ctx context.Context, fn func(store.Tx) error) error {
			return store.UpdateRelaxed(ctx, w.a.cfg.DB, fn)
		}
	}
	err = update(ctx, func(tx store.Tx) error {
		if err := w.fence.Check(tx); err != nil {
			return err
		}
		if asked, _ := (approvals.Ledger{}).Get(tx, id); asked.Trial.For > 0 && !plan.Undoable {
			why = "it was approved to undo itself, and nothing would set the timer"
			w.a.cfg.Requests.Cancel(tx, id, self, why)
		} else {
			permit, rec, why = w.a.cfg.Permits.Consume(tx, id, plan.Action)
		}
		switch {
		case why != "":
			text := tools.ErrorText(tools.Failed("approved, but not run: %s. Propose it again if it is still needed", strings.TrimSuffix(why, ".")))
			entry = resultOf(s, history.Result{Call: s.call.ID, Tool: s.call.Name, Text: text, Failed: true, Refused: true})
		case plan.Nested != nil:
			// Nested work has no effect of its own: its actions were approved with it, or
			// are requested one by one.
			entry = w.beginNested(s, plan)
			w.a.cfg.Permits.Finish(tx, id, approvals.Outcome{OK: true, Note: "begun"})
		default:
			entry = history.Entry{Kind: history.KindIntent, Scope: s.scope(), Intent: &history.Intent{Call: s.call.ID, Approval: id, Digest: plan.Action.Digest(), Noted: true}}
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
	if why != "" || plan.Nested != nil {
		return nil
	}
	failpoint.Hit(failpoint.IntentStored)
	if err := w.verifyOwnership(ctx); err != nil {
		return err
	}
	var rep repetition
	if !s.scripted() {
		rep = repeated(w.entries, sameCall(plan.Action))
	}
	r, did := w.perform(ctx, s.call, plan.Action, permitted(plan, permit), rep, rec.CardKey())
	if r == nil {
		// The grace time ended while the command was running. Its intent has no outcome,
		// which tells the next owner that the outcome is unknown.
		return context.Cause(ctx)
	}
	return w.recordChange(ctx, s, id, plan.Action, r, did)
}

// recordChange stores the result of an approved run.
func (w *worker) recordChange(ctx context.Context, s step, id approvals.ID, a approvals.Action, r *history.Result, did runFacts) error {
	r.Changed = true
	receipt, there := w.receipt(did)
	open := false
	err := w.recordRun(ctx, s, a, *r, did, func(tx store.Tx, o approvals.Outcome) {
		if open = o.Open(); r.Unknown {
			w.a.cfg.Permits.Lost(tx, id)
			return
		}
		if w.a.cfg.Permits.Finish(tx, id, o); !open { // else it goes on, and nobody knows yet
			w.a.cfg.Requests.Receipt(tx, id, receipt)
		}
	})
	if err == nil && !there && !open {
		w.receiptLater(ctx, id, did.receipt)
	}
	return err
}

// resume goes on with a call that has an intent and no outcome: the bot went away during the
// run, or before it. What still runs is followed, and what ended meanwhile is reported as if
// nothing had happened. What never began runs now, if its approval still stands. Where people
// said stop meanwhile, what still runs is interrupted, and what never began doesn't run.
func (w *worker) resume(ctx context.Context, s step) error {
	id := s.intent.Approval
	var rec approvals.Record
	var ok bool
	err := w.a.cfg.DB.View(ctx, func(tx store.Tx) error {
		rec, ok = (approvals.Ledger{}).Get(tx, id)
		return nil
	})
	if err != nil {
		return err
	}
	if !ok || !s.intent.Noted {
		return w.unknown(ctx, s, "")
	}
	by, groups := w.proposer(s)
	c := tools.Call{ID: s.call.ID, Thread: string(w.thread), By: string(by.ID), Groups: groups, Agent: s.agent()}
	unstarted, unknown, why := false, false, ""
	r, did := w.perform(ctx, s.call, rec.Action, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		ctx, sink, done := untilFound(ctx, s.stop != nil, sink)
		defer done()
		res, err := w.a.cfg.Witness.Resume(ctx, c, rec.Action, sink)
		var e *tools.Error
		known := errors.As(err, &e)
		unstarted = known && e.NotStarted
		unknown = err == nil && res.Unknown || err != nil && !known // a stop, for example, before the target answered
		if unknown {
			why = firstLine(w.a.cfg.Redact(res.Why))
			return tools.Result{}, cmp.Or(err, errOutcomeUnknown)
		}
		return res, err
	}, repetition{}, rec.CardKey())
	switch {
	case r == nil:
		return w.afterAbandon(ctx)
	case unstarted:
		w.log.Info("an approved call had not begun when the bot went away; it runs now if its approval still stands", "tool", s.call.Name, "approval", id)
		e := history.Entry{Kind: history.KindIntent, Scope: s.scope(), Intent: &history.Intent{
			Call: s.call.ID, Approval: id, Digest: s.intent.Digest, Void: true,
		}}
		return w.writeWithRetry(ctx, func(tx store.Tx) { w.a.cfg.Permits.Unstarted(tx, id) }, e)
	case unknown:
		return w.unknown(ctx, s, why)
	}
	return w.recordChange(ctx, s, id, rec.Action, r, did)
}

// stopWithin is how long a target is asked for a command that people want to be interrupted.
const stopWithin = 10 * time.Second

// untilFound is a context for the search for what an earlier process left running. A stop, also
// one that came before (stopped), ends it once the command is found, which sink is told: what
// is not found can't be interrupted. done frees what it uses.
func untilFound(ctx context.Context, stopped bool, sink tools.Sink) (context.Context, tools.Sink, func()) {
	search, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	found, tell := context.WithCancel(search)
	interrupt := func() {
		if stopped || interrupted(ctx) {
			late := time.NewTimer(stopWithin)
			defer late.Stop()
			select {
			case <-found.Done():
			case <-late.C:
			}
			cancel(errStopped)
			return
		}
		cancel(context.Cause(ctx))
	}
	ends := context.AfterFunc(ctx, interrupt)
	if stopped {
		go interrupt()
	}
	return search, func(e tools.Event) {
		if sink(e); e.Kind == tools.Started {
			tell()
		}
	}, func() { ends(); cancel(nil); tell() }
}

// errOutcomeUnknown ends the search for a call of which nobody knows what became.
var errOutcomeUnknown = errors.New("nobody knows what became of it")

// permitted returns the run of a plan.
func permitted(p tools.Plan, permit approvals.Permit) run {
	return func(ctx context.Context, sink tools.Sink) (tools.Result, error) { return p.Run(ctx, permit, sink) }
}

// run carries a call out, or takes it up again.
type run func(context.Context, tools.Sink) (tools.Result, error)

// afterAbandon handles a run without a result: a stop came before it began, or the grace
// time is over.
func (w *worker) afterAbandon(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return w.awaitInbox(ctx)
}

// runFacts is what perform reports besides the result.
type runFacts struct {
	undo    bool                     // the change can be undone
	receipt <-chan approvals.Receipt // see tools.Result
	soon    bool                     // likewise
	tried   string                   // see tools.Result
	shown   excerpt
}

// perform runs a call and streams its output to the thread. card is the key of the post with
// the card of an approved call, "" for a call that changes nothing. A nil result means that the
// bot is shutting down and left the command running.
func (w *worker) perform(
	ctx context.Context, c llm.Call, a approvals.Action, do run, rep repetition, card string,
) (r *history.Result, did runFacts) {
	what := doing(c, w.a.cfg.Redact)
	step, done := w.begin(ctx, "running "+what)
	defer done()
	key := "call/" + c.ID
	out := &callProgress{
		draft: draft{
			key: key, kind: chat.ProgressOutput, now: w.a.cfg.Now, live: w.a.cfg.Live,
			show: func(p chat.Progress) {
				p.Card = card
				if seen := onScreen(p.Text); seen != p.Text {
					p.Text = w.a.cfg.Redact(seen) // a colour may have stood within a secret
				}
				w.show(ctx, p)
			},
		},
		name: what, began: w.a.cfg.Now(), mark: card != "",
	}
	w.show(ctx, chat.Progress{Key: key, Kind: chat.ProgressOutput, Status: "running " + what})
	kept := w.beginOutput(c)
	step, ended := w.a.cfg.Watcher.Tool(step, w.thread, c)
	defer func() { ended(r) }()
	stopHeartbeat := out.heartbeat()
	hear, heard := w.a.cfg.Hear(w.thread, c.ID)
	res, err := do(step, func(e tools.Event) {
		kept.Event(e)
		out.event(e)
		hear(e)
	})
	heard()
	stopHeartbeat()
	defer w.show(ctx, chat.Progress{Key: key, Kind: chat.ProgressOutput, Card: card, Done: true})
	if ctx.Err() != nil {
		kept.Drop()
		return nil, runFacts{}
	}
	whole := w.saveOutput(ctx, kept, a, res, err, out.odd)
	r = &history.Result{Call: c.ID, Tool: c.Name, Same: sameCall(a)}
	switch {
	case err != nil:
		r.Text = tools.ErrorText(err)
		r.Failed = true
		r.Why = cmp.Or(w.a.cfg.Redact(res.Why), firstLine(w.a.cfg.Redact(err.Error())))
		var e *tools.Error
		r.Unstarted = errors.As(err, &e) && e.NotStarted
		r.Outcome = hash(r.Text)
		if errors.Is(err, context.Canceled) || interrupted(step) {
			r.Why = "stopped by a person while it ran"
			if errors.Is(context.Cause(step), errDecided) {
				r.Why = "stopped: the waiting request was decided"
			}
			r.Text = tools.ErrorText(tools.Failed("%s", r.Why))
		}
	case res.Unknown:
		r.Unknown, r.Failed = true, true
		r.Why = firstLine(w.a.cfg.Redact(res.Why))
		r.Text = unknownOf(r.Why, w.evidence(ctx, c.ID))
		r.Outcome = hash(r.Text)
	default:
		r.Failed, r.Signal, r.Why = res.Failed, res.Signal, res.Why
		r.Outcome = resultHash(res.Value)
		value := res.Value
		if !r.Failed && rep.successes >= 2 {
			value = tools.Noticed{Value: res.Value, Notice: fmt.Sprintf("this exact call has now given its result %d times in a row; "+
				"if the result is the same, repeating it will not help", rep.successes+1)}
		}
		if r.Text = tools.Envelope(w.a.cfg.Now(), value); whole.note != "" {
			r.Text = tools.CutEnvelope(w.a.cfg.Now(), value, whole.note)
		}
	}
	if r.Output = whole.id; whole.note != "" && (err != nil || res.Unknown) {
		r.Text += "\n" + whole.note
	}
	r.Text = redactResult(r.Text, w.a.cfg.Redact)
	out.text = res.Text
	if out.text == "" && err != nil {
		out.text = r.Text
	}
	w.a.mu.Lock()
	w.status = "storing the result of " + c.Name
	w.a.mu.Unlock()
	return r, runFacts{res.Undo, res.Receipt, res.ReceiptSoon, w.a.cfg.Redact(res.Tried), whole.shown}
}

// redactResult takes secrets out of a result. Where a secret seems to go on behind the end of a string, as after a
// question for a password, each string is looked at alone: the result stays one.
func redactResult(text string, redact func(string) string) string {
	out := redact(text)
	if json.Valid([]byte(out)) || !json.Valid([]byte(text)) {
		return out
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // as it was written
	var v any
	if d.Decode(&v) != nil {
		return out
	}
	var walk func(any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case string:
			return redact(v)
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		}
		return v
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(walk(v)) != nil {
		return out
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// resultHash identifies a result, so that repetitions can be recognised. It leaves out
// notices, which appear only once.
func resultHash(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return hash("(the result could not be encoded)")
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) == nil {
		delete(fields, "notice")
		if rest, err := json.Marshal(fields); err == nil {
			raw = rest // keys in order
		}
	}
	return hash(string(raw))
}

// beginOutput starts saving the output of a call. It returns nil if outputs are not saved.
func (w *worker) beginOutput(c llm.Call) *output.Writer {
	if w.a.cfg.Outputs == nil {
		return nil
	}
	return w.a.cfg.Outputs.Begin(string(w.thread), c.ID)
}

// saved is what people are shown of a call's output, and where all of it is if that is less, or if the model's
// result was truncated, which note says.
type saved struct {
	id, note string
	shown    excerpt
}

// saveOutput saves the whole output of a call if the model or people are shown less of it,
// else drops it. odd says that it isn't all text.
func (w *worker) saveOutput(ctx context.Context, kept *output.Writer, a approvals.Action, res tools.Result, err error, odd bool) saved {
	cut := res.Cut
	if kept.Bytes() == 0 && res.Full != "" {
		kept.Event(tools.Event{Kind: tools.Stdout, Text: res.Full})
	}
	// An error and an unknown outcome say less than was printed.
	if cut == "" && (res.Full != "" || res.Unknown && kept.Bytes() > 0 || err != nil && kept.Bytes() > int64(len(err.Error()))) {
		cut = "here"
	}
	ends := kept.Ends()
	var s saved
	switch {
	case ends.Bytes > 0:
		s.shown = newExcerpt(ends, deed.Sorted(a))
	case err == nil && !res.Unknown:
		s.shown = w.answered(kept, a, printed(res.Value), cut)
	case err != nil:
		if first, rest, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n"); rest != "" || firstLine(first) != first { // what runLine can't say
			s.shown = newExcerpt(endsOf(err.Error()), true)
		}
	}
	if kept == nil || cut == "" && s.shown.said == "" && !odd {
		kept.Drop()
		return s
	}
	ref, err := kept.KeepContext(ctx, "")
	if err != nil {
		w.log.Warn("the whole output of a call could not be kept", "error", err)
		s.note = "[Output truncated " + cmp.Or(cut, "here") + ". The rest could not be saved.]"
		return s
	}
	if s.id = ref.ID; cut != "" {
		s.note = ref.Note(cut)
	}
	return s
}

// answered is what people are shown of a value that didn't come as output, which is then kept like one.
func (w *worker) answered(kept *output.Writer, a approvals.Action, text, cut string) excerpt {
	text = w.a.cfg.Redact(text)
	x := newExcerpt(endsOf(text), deed.Sorted(a))
	switch {
	case x.said != "" && kept != nil:
		kept.Event(tools.Event{Kind: tools.Stdout, Text: text})
		_ = kept.Ends()
		if tools.Truncated(text) || strings.Contains(text, "\n[Output truncated ") { // the tool itself gave less
			x.said = sayBeginning
		}
	case x.said != "", cut != "":
		x.said = sayPartOfIt
	}
	return x
}

// endsOf is a text as an output.
func endsOf(text string) output.Ends {
	e := output.Ends{Head: text, Bytes: int64(len(text)), Lines: int64(strings.Count(text, "\n"))}
	if text != "" && !strings.HasSuffix(text, "\n") {
		e.Lines++
	}
	return e
}

// recordRun stores a result, its outcome at the gate and the message for people in one
// transaction.
func (w *worker) recordRun(ctx context.Context, s step, a approvals.Action, r history.Result, did runFacts, record func(store.Tx, approvals.Outcome)) error {
	o := approvals.Outcome{OK: !r.Failed, Note: outcomeNote(r), Signal: r.Signal, Unstarted: r.Unstarted, Undo: did.undo}
	switch sh := shellOf(r); {
	case openNotes[sh.State] == o.Note: // nobody knows yet how it ends
		o.OK = false
	case r.Failed && sh.ExitCode != nil:
		o.Last = chat.LastLine(onScreen(cmp.Or(strings.TrimSpace(sh.Stderr), sh.Stdout)))
	}
	err := w.writeWithRetry(ctx, func(tx store.Tx) {
		record(tx, o)
		if s.agent() != "" && !r.Changed { // a sub-agent's reads appear in its status line
			w.putAgentLine(tx, s.turn, "ran "+s.call.Name+" · "+outcomeNote(r))
			return
		}
		if text, whole := runPost(a, r, s.ask != nil && s.ask.Step, did.shown); text != "" {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "call/" + s.call.ID, Text: w.a.cfg.Redact(text), Output: whole, Quiet: true, Log: true})
		}
	}, resultOf(s, r))
	if err == nil && r.Changed {
		failpoint.Hit(failpoint.OutcomeStored)
	}
	return err
}

// refuse closes a call whose request was denied, expired or withdrawn.
func (w *worker) refuse(ctx context.Context, s step) error {
	d := s.decision
	r := history.Result{Call: s.call.ID, Tool: s.call.Name, Same: w.sameOf(ctx, s), Denied: d.State == approvals.Denied, Refused: true, Failed: true}
	switch d.State {
	case approvals.Denied:
		r.Text = tools.DeniedEnvelope(w.a.cfg.Now(), d.Reason)
	case approvals.Expired:
		r.Text = tools.ErrorText(tools.Failed("nobody approved this call in time, so it was not run; " +
			"say in the thread what you need and propose it again if it is still needed"))
	default:
		why := d.Reason
		if why == "" {
			why = "it was withdrawn"
		}
		r.Text = tools.ErrorText(tools.Failed("not run: %s", why))
	}
	r.Outcome = hash(string(d.State))
	return w.close(ctx, s, r)
}

// sameOf returns the identity by which repetitions of a call are recognised.
func (w *worker) sameOf(ctx context.Context, s step) string {
	if plan, err := w.plan(ctx, s); err == nil {
		return sameCall(plan.Action)
	}
	return sameRaw(s.call.Name, s.call.Args)
}

// unknown closes a call whose outcome nobody knows: the bot, or its connection to the
// machine, was gone when it ended.
// why says so as the tool does; "" if no tool was asked.
func (w *worker) unknown(ctx context.Context, s step, why string) error {
	found := w.evidence(ctx, s.call.ID)
	r := history.Result{
		Call: s.call.ID, Tool: s.call.Name, Text: unknownOf(why, found), Why: why,
		Unknown: true, Failed: true, Changed: true,
	}
	return w.writeWithRetry(ctx, func(tx store.Tx) {
		if s.ask != nil {
			w.a.cfg.Permits.Lost(tx, s.ask.Approval)
		}
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{
			Key:  "unknown/" + s.call.ID,
			Text: sayOutcomeUnknown(why) + paragraph(found),
		})
	}, resultOf(s, r))
}

// evidenceWithin limits how long a target may take to report what happened to a call.
const evidenceWithin = 10 * time.Second

// evidence returns what the target reports about a call whose outcome was lost.
func (w *worker) evidence(ctx context.Context, call string) string {
	w.show(ctx, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: "asking the target what became of it"})
	ctx, cancel := context.WithTimeout(ctx, evidenceWithin)
	defer cancel()
	return w.a.cfg.Redact(w.a.cfg.Witness.Evidence(ctx, w.thread, call))
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + ". " + b
}

func paragraph(s string) string {
	if s == "" {
		return ""
	}
	return "\n\n" + s
}

// draft turns the deltas of a reply into progress, at most five times a second.
type draft struct {
	key  string
	kind chat.ProgressKind
	show func(chat.Progress)
	now  func() time.Time
	live func() Live

	mu   sync.Mutex
	pass Live            // redacts the stream, also across pieces
	buf  strings.Builder // what pass returned
	last time.Time
}

const (
	draftEvery = 200 * time.Millisecond
	draftTail  = 4000 // bytes of running output that are shown
)

func (d *draft) delta(x llm.Delta) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x.Reset {
		d.buf.Reset()
		d.pass = nil
	}
	d.add(x.Text)
	if x.Note != "" {
		d.show(chat.Progress{Key: d.key, Kind: d.kind, Status: x.Note})
		return
	}
	d.flush(chat.StatusWriting, math.MaxInt)
}

func (d *draft) add(text string) {
	if d.pass == nil {
		d.pass = d.live()
	}
	d.buf.WriteString(d.pass.Write(text))
}

func (d *draft) flush(status string, last int) {
	if now := d.now(); now.Sub(d.last) >= draftEvery {
		d.last = now
		text := d.buf.String()
		if d.pass != nil {
			text += d.pass.Preview()
		}
		d.show(chat.Progress{Key: d.key, Kind: d.kind, Status: status, Text: lastBytes(text, last)})
	}
}

// callProgress turns the events and the running time of a call into progress.
type callProgress struct {
	draft
	name  string
	began time.Time
	bytes int64 // of output so far
	odd   bool  // it isn't all text
	mark  bool  // an approved command: its first output is a failpoint
	text  string
}

func (o *callProgress) event(e tools.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch e.Kind {
	case tools.Stdout, tools.Stderr:
		if o.mark {
			o.mark = false
			failpoint.Hit(failpoint.CommandRunning)
		}
		o.bytes += int64(len(e.Text))
		o.odd = o.odd || !utf8.ValidString(e.Text)
		o.add(e.Text)
		if o.buf.Len() > 4*draftTail {
			tail := lastBytes(o.buf.String(), draftTail)
			o.buf.Reset()
			o.buf.WriteString(tail)
		}
	case tools.Info:
		o.add("· " + e.Text + "\n")
	case tools.Started:
		return // the status says so already; flushing would delay the first output
	case tools.Completed:
	}
	o.flush(o.status(), draftTail)
}

// After aliveAfter, the status of a running call is refreshed every aliveEvery, so that a
// call without output can be seen to be alive.
const (
	aliveAfter = 2 * time.Second
	aliveEvery = time.Second
)

// status returns the status line of a running call. From aliveAfter on it includes the
// running time and the amount of output.
func (o *callProgress) status() string {
	s := "running " + o.name
	took := o.now().Sub(o.began)
	if took < aliveAfter {
		return s
	}
	s += " · " + took.Truncate(time.Second).String()
	if o.bytes > 0 {
		s += " · " + truncate.FormatSize(o.bytes)
	}
	return s
}

// heartbeat refreshes the status until stop is called. stop waits for a refresh in progress.
func (o *callProgress) heartbeat() (stop func()) {
	return heartbeat(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.now().Sub(o.began) >= aliveAfter {
			o.flush(o.status(), draftTail)
		}
	})
}

// heartbeat calls show every aliveEvery until stop is called. stop waits for a call in
// progress.
func heartbeat(show func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(aliveEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				show()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// beginVisibly is begin for a step that is usually quick. If it takes longer than
// aliveAfter, the thread shows what it is waiting for.
func (w *worker) beginVisibly(ctx context.Context, status string) (context.Context, func()) {
	step, done := w.begin(ctx, status)
	began, shown := w.a.cfg.Now(), false
	stop := heartbeat(func() {
		if took := w.a.cfg.Now().Sub(began); took >= aliveAfter {
			shown = true
			w.show(ctx, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: status + " · " + took.Truncate(time.Second).String()})
		}
	})
	return step, func() {
		if stop(); shown {
			w.show(ctx, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		}
		done()
	}
}

func lastBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-n:], "")
}
