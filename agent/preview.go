package agent

import (
	"context"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/store"
	"countersign/tools"
)

const (
	// previewWithin limits how long the preview of an action may take. The card is already posted.
	previewWithin = 12 * time.Second
	// cardWaits is how long a card waits for its preview, so that quick ones need no second message to the
	// network. Nobody notices it. Later ones are added to the card.
	cardWaits = 20 * time.Millisecond
	// previewRetry is when a target that was too busy for a preview is asked once more.
	previewRetry = 15 * time.Second
)

// previews finds out, beside the threads, what requested actions would do.
type previews struct {
	sync.WaitGroup

	mu     sync.Mutex
	cancel map[approvals.ID]context.CancelFunc // of those whose cards are posted
}

// began notes that a request's card was posted before its preview.
func (p *previews) began(id approvals.ID, cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel == nil {
		p.cancel = map[approvals.ID]context.CancelFunc{}
	}
	p.cancel[id] = cancel
}

// end ends the preview of a request: it is there, or nobody needs it any more.
func (p *previews) end(id approvals.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cancel := p.cancel[id]; cancel != nil {
		cancel()
		delete(p.cancel, id)
	}
}

// preview is what an action would do, or finding it out.
type preview struct {
	approvals.Preview
	later  <-chan approvals.Preview // those that come late; nil: none does
	cancel context.CancelFunc
}

// drop ends a preview that nobody will see.
func (p *preview) drop() {
	if p.cancel != nil {
		p.cancel()
	}
	*p = preview{}
}

// preview begins to find out what a plan would do, and returns when that is known or the card has waited
// for it.
func (w *worker) preview(ctx context.Context, plan tools.Plan, r approvals.Request) preview {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan approvals.Preview, 2)
	w.a.previews.Go(func() {
		defer cancel()
		defer close(found)
		p := w.a.look(ctx, plan, r)
		found <- p
		if p.Retry && pause(ctx, nil, previewRetry) && w.a.waits(ctx, r.ID()) {
			if p = w.a.look(ctx, plan, r); !p.Retry {
				found <- p
			}
		}
	})
	t := time.NewTimer(cardWaits)
	defer t.Stop()
	select {
	case p := <-found:
		if !p.Retry {
			return preview{Preview: p}
		}
		return preview{Preview: p, later: found, cancel: cancel}
	case <-t.C:
		return preview{later: found, cancel: cancel}
	}
}

// waits reports whether nobody has decided on a request, also where another replica's worker would know.
func (a *Agent) waits(ctx context.Context, id approvals.ID) (waits bool) {
	err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
		rec, ok := (approvals.Ledger{}).Get(tx, id)
		waits = ok && rec.State == approvals.Pending
		return nil
	})
	return waits && err == nil
}

// look finds out what a plan would do. Only a plan that notes its way back promises one.
func (a *Agent) look(ctx context.Context, plan tools.Plan, r approvals.Request) approvals.Preview {
	ctx, cancel := context.WithTimeout(ctx, previewWithin)
	defer cancel()
	p := a.cfg.Witness.Preview(ctx, r)
	if !plan.Undoable {
		p.Back = approvals.Back{}
	}
	p.Text, p.Back.Text = a.cfg.Redact(p.Text), a.cfg.Redact(p.Back.Text)
	return p
}

// previewLater adds late previews to a filed request. The worker may have ended by then.
func (w *worker) previewLater(ctx context.Context, id approvals.ID, p preview) {
	if p.later == nil {
		return
	}
	a, thread := w.a, w.thread
	a.previews.began(id, p.cancel)
	a.previews.Go(func() {
		defer a.previews.end(id)
		for found := range p.later {
			if !found.IsZero() {
				a.addToCard(ctx, thread, id, "preview", func(tx store.Tx) { a.cfg.Requests.Preview(tx, id, found) })
			}
		}
	})
}

// addToCard stores what was learnt late about a request, which changes its card. what is the part that the card
// lacks if that fails.
func (a *Agent) addToCard(ctx context.Context, thread chat.ThreadID, id approvals.ID, what string, add func(store.Tx)) {
	if err := a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		add(tx)
		return nil
	}); err != nil {
		if ctx.Err() == nil {
			a.cfg.Log.Warn("a card lacks a part, since it cannot be stored", "part", what, "request", id, "error", err)
		}
		return
	}
	a.cfg.Outbox.Wake(thread)
}
