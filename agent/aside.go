package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/store"
	"countersign/store/queue"
	"countersign/tools"
)

// While a request waits, people may talk with the model in the thread's aside: it answers
// and looks, and proposes nothing. The request stays valid. Once it is decided, its result
// takes the place that the aside showed as waiting.

// withdrawTool is the tool with which the model withdraws the waiting request. It exists in
// the aside alone.
const withdrawTool = "withdraw_request"

var withdrawSpec = llm.ToolSpec{
	Name: withdrawTool,
	Description: "Withdraws the request that waits for approval, because people want something else instead. " +
		"Nothing of it runs. Propose what they want after this.",
	Schema: json.RawMessage(`{"type":"object","properties":{"reason":{"type":"string","description":"What people want instead, in a few words."}},` +
		`"required":["reason"],"additionalProperties":false}`),
}

const (
	onlyLooks = "a request waits for approval, so nothing else can be proposed until it is decided; meanwhile only commands that are " +
		"proven to read run. Answer in words, or call withdraw_request if people want something else instead"
	mootCall = "not run: the waiting request was decided meanwhile. Call it again if it is still needed"
)

// waitingTexts says, for each open call of the thread's own conversation, what stands for
// its result while the step's request waits.
func (w *worker) waitingTexts(s step) map[string]string {
	texts := map[string]string{}
	if !s.inAside() {
		return texts
	}
	for i, c := range w.state.root().openCalls() {
		switch {
		case i > 0:
			texts[c.ID] = "[countersign] Not begun: it comes after the call that waits."
		case c.ID == s.call.ID:
			texts[c.ID] = "[countersign] Waiting for approval: this call has not run. " + asideRules
		default:
			texts[c.ID] = fmt.Sprintf("[countersign] Not done: within it, the call %s %s waits for approval and has not run. %s",
				s.call.Name, w.a.cfg.Redact(s.call.Args), asideRules)
		}
	}
	return texts
}

const asideRules = "Its card stays open while you answer what people say below. You may look with commands that only read. " +
	"Do not propose another change now. If people want something else instead, call withdraw_request. " +
	"The result will stand here once the request is decided."

// wantsInstead matches messages that ask for something else than what waits.
var wantsInstead = regexp.MustCompile(`(?is)^(no[,.;:!]*\s+)?instead\b.*[^?\s]\s*$|\binstead[.!]*\s*$`)

// cancelWaiting withdraws the request of the step wait, and returns the decision to append.
// ok is false if the request was decided already.
func (w *worker) cancelWaiting(tx store.Tx, wait step, by chat.User, reason string) (d history.Entry, ok bool) {
	if !w.a.cfg.Requests.Cancel(tx, wait.ask.Approval, by, reason) {
		return history.Entry{}, false
	}
	w.a.previews.end(wait.ask.Approval)
	return history.Entry{Kind: history.KindDecision, Scope: wait.scope(), Decision: &history.Decision{
		Approval: wait.ask.Approval, Call: wait.call.ID, State: approvals.Cancelled, By: string(by.ID), ByName: by.Name, Reason: reason,
	}}, true
}

// withdraw carries out a call of withdraw_request.
func (w *worker) withdraw(ctx context.Context, s step) error {
	wait := w.state.nextOf(w.a.cfg.Now(), Limits{})
	if wait.kind != stepWait {
		return w.close(ctx, s, skipped(s.call, tools.ErrorText(tools.Failed("%s", mootCall))))
	}
	var args struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal([]byte(s.call.Args), &args) // a reason that cannot be read is none
	by := self                                     // the model's reading of what was said
	reason := s.turn.message.From.Name + " asked for something else"
	if said := strings.TrimSpace(w.a.cfg.Redact(args.Reason)); said != "" {
		reason += ": " + firstLine(said)
	}
	var added []history.Entry
	err := w.a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if err := w.fence.Check(tx); err != nil {
			return err
		}
		r := history.Result{Call: s.call.ID, Tool: s.call.Name, Same: sameRaw(s.call.Name, s.call.Args), Text: tools.Envelope(w.a.cfg.Now(), "withdrawn; nothing of it ran")}
		d, ok := w.cancelWaiting(tx, wait, by, reason)
		if !ok {
			r.Text, r.Failed = tools.ErrorText(tools.Failed("too late: the request was decided already")), true
		}
		r.Outcome = hash(r.Text)
		entries := []history.Entry{resultOf(s, r)}
		if ok {
			entries = append(entries, d)
		}
		added = nil
		for _, e := range entries {
			e.At = w.a.cfg.Now()
			added = append(added, w.append(tx, e))
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.applyEntries(ctx, added...)
	w.a.cfg.Outbox.Wake(w.thread)
	return nil
}

// self is who the bot is in records of what it decides itself.
var self = chat.User{Name: "countersign", Bot: true}

// errDecided ends a step of the aside: what people wait for now is the decided request.
var errDecided = errors.New("the waiting request was decided")

// interrupted reports whether people ended the step of this context: with a stop, or by
// deciding the request beside which it ran.
func interrupted(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return errors.Is(cause, errStopped) || errors.Is(cause, errDecided)
}

// interruptFor ends the thread's running step if its inbox holds a stop, or, in the aside,
// a decision.
func (a *Agent) interruptFor(tx store.Tx, th chat.ThreadID) {
	if queue.HasKind(tx, string(th), itemStop) {
		a.interrupt(th, errStopped)
	}
	if a.inAside(th) && (queue.HasKind(tx, string(th), approvals.ItemDecision) || queue.HasKind(tx, string(th), approvals.ItemEdited)) {
		a.interrupt(th, errDecided)
	}
}

// inAside reports whether a step of the thread's aside runs now.
func (a *Agent) inAside(th chat.ThreadID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.running[th]
	return w != nil && w.cancel != nil && w.aside
}

// checkInterrupt interrupts the thread's running step if what has just arrived is more
// urgent.
func (a *Agent) checkInterrupt(ctx context.Context, th chat.ThreadID) {
	if !a.inAside(th) {
		return
	}
	err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
		a.interruptFor(tx, th)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("an inbox could not be read for a decision; the next poll reads it", "thread", string(th), "error", err)
	}
}
