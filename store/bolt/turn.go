package bolt

import (
	"context"
	"slices"
	"sync"
)

// turn is a lock whose holder may do what only one may: run a write function,
// seal a batch, checkpoint. Those who run functions get it in order of arrival;
// the leader of a batch goes before them. Were it to queue as well, the disk
// would idle until every function that waits had run, and then all of those
// would wait for the disk.
type turn struct {
	mu     sync.Mutex
	taken  bool
	leader chan struct{} // of one who waits in lead, or nil
	queue  []chan struct{}
}

// acquire waits for the turn, or for the end of ctx.
func (t *turn) acquire(ctx context.Context) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	t.queue = append(t.queue, ready)
	t.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(t.queue, ready)
	if i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it was handed over in between
		t.release()
	}
	return ctx.Err()
}

// acquireFirst waits for the turn before all others. One at a time.
func (t *turn) acquireFirst() {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return
	}
	ready := make(chan struct{})
	t.leader = ready
	t.mu.Unlock()
	<-ready
}

// release hands the turn to the next.
func (t *turn) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.leader != nil:
		close(t.leader)
		t.leader = nil
	case len(t.queue) > 0:
		close(t.queue[0])
		t.queue[0] = nil
		t.queue = t.queue[1:]
	default:
		t.taken = false
	}
}
