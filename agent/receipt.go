package agent

import (
	"context"
	"time"

	"countersign/approvals"
	"countersign/store"
)

// resultWaits is how long a result waits for a receipt that comes soon, so that it needs no second edit of the
// card. Others are added to the card.
const resultWaits = 50 * time.Millisecond

// receipt returns what a change really changed, unless that takes too long. there is false if it still comes.
func (w *worker) receipt(did runFacts) (r approvals.Receipt, there bool) {
	if did.receipt == nil || !did.soon {
		return r, did.receipt == nil
	}
	t := time.NewTimer(resultWaits)
	defer t.Stop()
	select {
	case r = <-did.receipt:
		return w.a.withoutSecrets(r), true
	case <-t.C:
		return r, false
	}
}

// receiptLater adds a late receipt to a request that ran. The worker may have ended by then.
func (w *worker) receiptLater(ctx context.Context, id approvals.ID, found <-chan approvals.Receipt) {
	a, thread := w.a, w.thread
	a.previews.Go(func() {
		if r := a.withoutSecrets(<-found); !r.IsZero() {
			a.addToCard(ctx, thread, id, "receipt", func(tx store.Tx) { a.cfg.Requests.Receipt(tx, id, r) })
		}
	})
}

// withoutSecrets is a receipt without secrets, which names of files may hold.
func (a *Agent) withoutSecrets(r approvals.Receipt) approvals.Receipt {
	r.Text = a.cfg.Redact(r.Text)
	for i, line := range r.Also {
		r.Also[i] = a.cfg.Redact(line)
	}
	return r
}
