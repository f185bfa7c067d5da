package bot

import (
	"context"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/bot/observe"
	"countersign/config"
	"countersign/store"
	"countersign/store/queue"
)

// flushWithin bounds how long the end of the bot waits for traces to leave.
const flushWithin = 5 * time.Second

// observe begins to measure; traces are sent only where the environment names a collector.
func (b *Bot) observe(ctx context.Context, o Options) (err error) {
	b.observer, err = observe.New(ctx, observe.Config{
		Agent: b.file.Agent.Name, Instance: b.env.Instance, Version: o.Version, Revision: o.Revision,
		Models:    append([]string{b.env.OpenAIModel}, b.file.Model.Fallback...),
		KnownTool: func(name string) bool { return name == agent.AskModel || b.toolbox.Known(name) },
		Price:     func(model string, u llm.Usage) float64 { return float64(b.file.Prices.Charge(model, u).Money) / 1e6 },
		Request: func(ctx context.Context, id approvals.ID) (r approvals.Record, ok bool) {
			err := b.db.View(ctx, func(tx store.Tx) error {
				r, ok = (approvals.Ledger{}).Get(tx, id)
				return nil
			})
			return r, ok && err == nil
		},
		Adapters: func() map[string]error {
			all := b.networks.Ready()
			all["web"] = nil
			return all
		},
		Queue: func(ctx context.Context) (n int, err error) {
			err = b.db.View(ctx, func(tx store.Tx) error {
				n = queue.Waiting(tx)
				return nil
			})
			return n, err
		},
		Lag: b.lag, OnCall: b.onCallAges, Redact: b.redactor.Redact, Log: b.log,
	})
	if err != nil {
		return config.Errorf("%v", err)
	}
	return nil
}

// watcher shows the observer to the agent.
type watcher struct{ o *observe.Observer }

func (w watcher) Resumed(thread chat.ThreadID, entries []history.Entry) {
	w.o.Resumed(thread, entries)
}

func (w watcher) Appended(ctx context.Context, thread chat.ThreadID, entries []history.Entry) {
	w.o.Appended(ctx, thread, entries)
}

func (w watcher) Within(ctx context.Context, thread chat.ThreadID, scope string) context.Context {
	return w.o.Within(ctx, thread, scope)
}

func (w watcher) Tool(ctx context.Context, thread chat.ThreadID, c llm.Call) (context.Context, func(*history.Result)) {
	ctx, end := w.o.Tool(ctx, thread, c)
	return ctx, func(r *history.Result) {
		if r == nil {
			end(observe.Left, "")
			return
		}
		end(observe.OutcomeOf(*r), r.Text)
	}
}
