package agent

import (
	"cmp"
	"context"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/spend"
	"countersign/store"
)

// Spending configures prices and spending caps.
type Spending struct {
	Prices spend.Prices
	Caps   spend.Caps
	// Channel returns the channel of a thread, named as in the policy's rules.
	Channel func(thread chat.ThreadID) string
}

func (a *Agent) place(thread chat.ThreadID) spend.Place {
	return spend.Place{Thread: string(thread), Channel: a.cfg.Spending.Channel(thread), Day: spend.DayOf(a.cfg.Now())}
}

// charge adds the cost of a reply, in the transaction that stores the reply.
func (w *worker) charge(tx store.Tx, r llm.Reply) {
	s := w.a.cfg.Spending
	if s == nil {
		return
	}
	at := w.a.place(w.thread)
	by, _ := w.state.requester()
	at.Person = cmp.Or(by.Name, string(by.ID))
	c := s.Prices.Charge(r.Model, r.Usage)
	c.Model = r.Model
	spend.Add(tx, at, c)
}

// warnNearCaps warns the thread about caps that are nearly reached. It runs after the
// transaction that charged: reading the totals of all threads in that one would make it
// conflict with all of them.
func (w *worker) warnNearCaps(ctx context.Context) error {
	s := w.a.cfg.Spending
	if s == nil || s.Caps.None() {
		return nil
	}
	at := w.a.place(w.thread)
	var near []spend.Warning
	err := w.a.cfg.DB.View(ctx, func(tx store.Tx) error {
		near = spend.Untold(tx, at, spend.Check(s.Caps, spend.Load(tx, at), spend.LoadGranted(tx, at)).Warnings)
		return nil
	})
	if err != nil || len(near) == 0 {
		return err
	}
	return w.write(ctx, func(tx store.Tx) {
		for _, sentence := range spend.Tell(tx, at, near) {
			w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "spent/" + string(at.Day) + "/" + hash(sentence)[:8], Text: sentence, Quiet: true})
		}
	})
}

// exceededCap returns the cap that has been reached, or nil.
func (w *worker) exceededCap(ctx context.Context) (over *spend.Over, err error) {
	s := w.a.cfg.Spending
	if s == nil || s.Caps.None() {
		return nil, nil
	}
	err = w.a.cfg.DB.View(ctx, func(tx store.Tx) error {
		at := w.a.place(w.thread)
		over = spend.Check(s.Caps, spend.Load(tx, at), spend.LoadGranted(tx, at)).Over
		return nil
	})
	return over, err
}

// isBudgetRequest reports whether the engine wrote the reply to ask people for a larger
// budget.
func isBudgetRequest(r *history.Reply) bool {
	return r != nil && r.Direct && len(r.Calls) == 1 && r.Calls[0].Name == spend.Tool
}

// requestBudget asks people to raise the cap, through a call of extend_budget. If they
// already refused in this turn, it ends the conversation.
func (w *worker) requestBudget(ctx context.Context, s step, over *spend.Over) error {
	if s.inAside() {
		return w.finish(ctx, s, history.EndLimit, over.Sentence()+sayCapInAside)
	}
	if w.state.budgetDenied {
		if s.agent() != "" {
			return w.nestedFailed(ctx, s, over.Refused())
		}
		return w.finish(ctx, s, history.EndLimit, over.Refused())
	}
	calls := rename([]llm.Call{{Name: spend.Tool, Args: over.Args()}}, w.state.used)
	reply := &history.Reply{Calls: calls, Finish: llm.FinishCalls, Direct: true, Gated: true}
	return w.write(ctx, nil, history.Entry{Kind: history.KindReply, Scope: s.turn.scope, Reply: reply})
}

// spendingImpact returns the amount spent, for the card of a budget request. The amount
// changes while people decide, so it is not part of what they approve.
func (w *worker) spendingImpact(ctx context.Context) string {
	if over, err := w.exceededCap(ctx); err == nil && over != nil {
		return over.Sentence()
	}
	return ""
}

// spendingStatus returns the spending paragraph of the chat word "status".
func (a *Agent) spendingStatus(ctx context.Context, thread chat.ThreadID) (text string) {
	s := a.cfg.Spending
	if s == nil {
		return ""
	}
	if err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
		at := a.place(thread)
		text = spend.Status(spend.Load(tx, at), s.Caps, spend.LoadGranted(tx, at))
		return nil
	}); err != nil {
		return ""
	}
	return "\n\n" + text
}
