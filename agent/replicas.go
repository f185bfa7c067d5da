package agent

import (
	"context"

	"countersign/adapters/chat"
	"countersign/store"
	"countersign/store/queue"
)

// Replicas are the processes that share a store. Any of them may receive a message; the
// owner of its thread handles it.
type Replicas interface {
	// Alive reports whether the owner of a claim may still be working. It is called in
	// the transaction that claims the thread from that owner.
	Alive(tx store.Tx, owner string) bool
	// Hint notifies an owner, after the transaction, that its thread has a new item. The
	// owner then calls [Agent.Notify].
	Hint(tx store.Tx, owner string, thread chat.ThreadID)
	// Free notifies all replicas, after the transaction, that an unfinished thread was
	// released. They then call [Agent.Rescan].
	Free(tx store.Tx)
	// Fresh reports whether this replica's lease is current, so that no other replica can
	// consider it dead. Freshen waits for that.
	Fresh() bool
	Freshen(ctx context.Context) error
	// Timers reports whether this replica moves due timers into the inboxes.
	Timers() bool
}

// singleProcess implements [Replicas] for a store with one process: any other owner is dead.
type singleProcess string

func (n singleProcess) Alive(_ store.Tx, owner string) bool { return owner == string(n) }
func (singleProcess) Hint(store.Tx, string, chat.ThreadID)  {}
func (singleProcess) Free(store.Tx)                         {}
func (singleProcess) Fresh() bool                           { return true }
func (singleProcess) Freshen(context.Context) error         { return nil }
func (singleProcess) Timers() bool                          { return true }

// Notify handles a hint: another replica stored an item for the thread.
func (a *Agent) Notify(ctx context.Context, thread chat.ThreadID) {
	a.mu.Lock()
	w := a.running[thread]
	busy := w != nil && w.cancel != nil
	a.mu.Unlock()
	if busy {
		err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
			a.interruptFor(tx, thread)
			return nil
		})
		if err != nil && ctx.Err() == nil {
			a.cfg.Log.Warn("an inbox could not be read for a stop; the next poll reads it", "thread", string(thread), "error", err)
		}
	}
	a.Wake(thread)
}

// Rescan makes the dispatcher check all threads now. It never blocks.
func (a *Agent) Rescan() {
	select {
	case a.rescan <- struct{}{}:
	default:
	}
}

// ownedElsewhere reports whether a live replica other than this one owns the thread.
func (a *Agent) ownedElsewhere(tx store.Tx, th chat.ThreadID) bool {
	owner := queue.Owner(tx, string(th))
	return owner != "" && owner != a.cfg.Owner && a.cfg.Replicas.Alive(tx, owner)
}

// verifyOwnership waits until this replica's lease is current, then checks that it still
// owns the thread. It guards a run that cannot be undone against a process that was
// suspended between the intent and the run.
func (w *worker) verifyOwnership(ctx context.Context) error {
	if w.a.cfg.Replicas.Fresh() {
		return nil
	}
	if err := w.a.cfg.Replicas.Freshen(ctx); err != nil {
		return err
	}
	return w.a.cfg.DB.View(ctx, w.fence.Check)
}

// handOver releases an unfinished thread, so that another replica or the next run can
// continue it.
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
