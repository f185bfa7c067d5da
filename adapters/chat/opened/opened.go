// Package opened remembers which threads an adapter opened under which keys, so that a
// key opens one thread although calls fail and are made again.
//
// It lives as long as the process: what an earlier one did is found in the network's own
// history, which is the adapter's to read.
package opened

import (
	"context"
	"sync"
)

// most bounds how many threads are remembered. Older ones are forgotten together: the
// network's history has them.
const most = 1024

// Threads remembers the threads that were opened, by channel and key. It is safe for
// concurrent use.
type Threads struct {
	turn chan struct{} // holds one token; who has it may open a thread

	mu    sync.Mutex
	known map[string]string // the first message, by name
	doubt map[string]bool   // calls that may have come through although they failed
}

// New returns an empty memory.
func New() *Threads {
	return &Threads{turn: make(chan struct{}, 1), known: map[string]string{}, doubt: map[string]bool{}}
}

// Turn waits until nobody else opens a thread; done gives the turn back. Its error is the
// context's.
func (t *Threads) Turn(ctx context.Context) (done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case t.turn <- struct{}{}:
		return func() { <-t.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Get returns the first message of the thread of a name, "" when it is not known. doubt
// means that an attempt failed which may have come through.
func (t *Threads) Get(name string) (message string, doubt bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[name], t.doubt[name]
}

// Has reports whether a message is known to begin a thread.
func (t *Threads) Has(message string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.known {
		if m == message {
			return true
		}
	}
	return false
}

// Done keeps what came of an attempt.
func (t *Threads) Done(name, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= most {
		clear(t.known)
	}
	delete(t.doubt, name)
	t.known[name] = message
}

// Failed notes that an attempt failed and may have come through.
func (t *Threads) Failed(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.doubt) >= most {
		clear(t.doubt)
	}
	t.doubt[name] = true
}
