package agent

import (
	"context"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/queue"
)

// Replicas are the processes that share a store. A message may come to any of them;
// the one that owns its thread works on it.
type Replicas interface {
	// Alive reports whether the owner of a claim may still be working. It is asked in
	// the transaction that takes the thread from it.
	Alive(tx store.Tx, owner string) bool
	// Hint tells an owner, after the transaction, that something came in for its thread;
	// that one calls [Agent.Heard].
	Hint(tx store.Tx, owner string, thread chat.ThreadID)
	// Free tells all, after the transaction, that a thread was given back in the middle
	// of its work; they call [Agent.Look].
	Free(tx store.Tx)
	// Fresh reports whether no other replica can have taken this one for dead, and
	// Freshen waits until that is so.
	Fresh() bool
	Freshen(ctx context.Context) error
	// Timers reports whether this replica puts what is due into the inboxes.
	Timers() bool
}

// alone is the name of the one process that uses a store: all others are dead.
type alone string

func (n alone) Alive(_ store.Tx, owner string) bool { return owner == string(n) }
func (alone) Hint(store.Tx, string, chat.ThreadID)  {}
func (alone) Free(store.Tx)                         {}
func (alone) Fresh() bool                           { return true }
func (alone) Freshen(context.Context) error         { return nil }
func (alone) Timers() bool                          { return true }

// Heard is told that something came in for a thread at another replica.
func (a *Agent) Heard(ctx context.Context, thread chat.ThreadID) {
	a.mu.Lock()
	w := a.running[thread]
	busy := w != nil && w.cancel != nil
	a.mu.Unlock()
	if busy {
		err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
			if queue.HasKind(tx, string(thread), itemStop) {
				a.interrupt(thread)
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("an inbox could not be looked at for a stop; the next poll does", "thread", string(thread), "error", err)
		}
	}
	a.Wake(thread)
}

// Look makes the dispatcher look at all threads now. It never blocks.
func (a *Agent) Look() {
	select {
	case a.look <- struct{}{}:
	default:
	}
}

// elsewhere reports whether another replica works on a thread.
func (a *Agent) elsewhere(tx store.Tx, th chat.ThreadID) bool {
	owner := queue.Owner(tx, string(th))
	return owner != "" && owner != a.cfg.Owner && a.cfg.Replicas.Alive(tx, owner)
}

// sure waits until the worker may begin something that cannot be taken back: this
// replica is not taken for dead, and the thread is still its own. It matters after a
// pause between the intent and the run.
func (w *worker) sure(ctx context.Context) error {
	if w.a.cfg.Replicas.Fresh() {
		return nil
	}
	if err := w.a.cfg.Replicas.Freshen(ctx); err != nil {
		return err
	}
	return w.a.cfg.DB.View(ctx, w.fence.Check)
}

// handOver gives the thread back in the middle of its work, for another replica or the
// next run to go on with.
func (w *worker) handOver(ctx context.Context) {
	if w.fence.Owner == "" || w.state == nil {
		return
	}
	err := w.a.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if mine := w.fence.Check(tx) == nil; !mine {
			return nil
		}
		queue.Yield(tx, w.fence)
		w.a.cfg.Replicas.Free(tx)
		return nil
	})
	if err != nil {
		w.log.Warn("a thread could not be given back; it goes on when this run is taken for dead", "error", err)
	}
}
