package agent

import (
	"context"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/spend"
	"countersign/store"
)

// Spending says what models cost, and how much of it is enough.
type Spending struct {
	Prices spend.Prices
	Caps   spend.Caps
	// Channel names the channel of a thread as rules of the policy do.
	Channel func(thread chat.ThreadID) string
}

func (a *Agent) place(thread chat.ThreadID) spend.Place {
	return spend.Place{Thread: string(thread), Channel: a.cfg.Spending.Channel(thread), Day: spend.DayOf(a.cfg.Now())}
}

// charge counts what a reply cost, in the transaction that stores it.
func (w *worker) charge(tx store.Tx, r llm.Reply) {
	s := w.a.cfg.Spending
	if s == nil {
		return
	}
	spend.Add(tx, w.a.place(w.thread), s.Prices.Charge(r.Model, r.Usage))
}

// warn tells the thread of caps that are near. It comes after the transaction that
// charged: whoever reads the sums of all threads in that one conflicts with all of them.
func (w *worker) warn(ctx context.Context) error {
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

// overspent is the cap that keeps the model from being asked, nil when none does.
func (w *worker) overspent(ctx context.Context) (over *spend.Over, err error) {
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

// asksForMore reports whether a reply is the engine's own, that asks people for more.
func asksForMore(r *history.Reply) bool {
	return r != nil && r.Wanted && len(r.Calls) == 1 && r.Calls[0].Name == spend.Tool
}

// extend asks people for more, by a call of the tool that gives it; where they said no
// already, it ends the conversation.
func (w *worker) extend(ctx context.Context, s step, over *spend.Over) error {
	if w.state.noMore {
		if s.agent() != "" {
			return w.nestedFailed(ctx, s, over.Refused())
		}
		return w.finish(ctx, history.EndLimit, over.Refused())
	}
	calls := rename([]llm.Call{{Name: spend.Tool, Args: over.Args()}}, w.state.used)
	return w.write(ctx, nil, history.Entry{Kind: history.KindReply, Scope: s.turn.scope, Reply: &history.Reply{Calls: calls, Finish: llm.FinishCalls, Wanted: true, Gated: true}})
}

// used is the impact of the call that asks for more: what was spent. It changes while people
// decide, so it is no part of what they approve.
func (w *worker) used(ctx context.Context) string {
	if over, err := w.overspent(ctx); err == nil && over != nil {
		return over.Sentence()
	}
	return ""
}

// spent is what the word "status" says of it.
func (a *Agent) spent(ctx context.Context, thread chat.ThreadID) (text string) {
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
