package gateway

import (
	"context"
	"sync"
)

// lanes runs work of one key in order and of different keys side by side, and
// takes no more than it may hold. add never blocks, so that a connection's
// reader is never held up by what handles its events.
type lanes struct {
	perKey, total int
	freed         chan struct{} // something ended; one waiter

	mu     sync.Mutex
	work   map[string][]func() // the first is running
	held   int
	closed bool
	wg     sync.WaitGroup
}

func newLanes(perKey, total int) *lanes {
	return &lanes{perKey: perKey, total: total, freed: make(chan struct{}, 1), work: map[string][]func(){}}
}

// add runs do after all that was added under key before. false means that there
// is no room, or no more work is taken: do is never run.
func (l *lanes) add(key string, do func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.held >= l.total || len(l.work[key]) >= l.perKey {
		return false
	}
	l.held++
	l.work[key] = append(l.work[key], do)
	if len(l.work[key]) == 1 {
		l.wg.Go(func() { l.run(key) })
	}
	return true
}

// waiting is how much is held.
func (l *lanes) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// awaitRoom waits until every lane is at most half full and all of them together too.
func (l *lanes) awaitRoom(ctx context.Context) error {
	for {
		l.mu.Lock()
		free := l.held <= l.total/2
		for _, w := range l.work {
			free = free && len(w) <= l.perKey/2
		}
		l.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-l.freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close takes nothing more and returns when all that was taken has run.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *lanes) run(key string) {
	for {
		l.mu.Lock()
		do := l.work[key][0]
		l.mu.Unlock()
		do()
		l.mu.Lock()
		l.work[key][0] = nil
		l.work[key] = l.work[key][1:]
		l.held--
		last := len(l.work[key]) == 0
		if last {
			delete(l.work, key)
		}
		l.mu.Unlock()
		select {
		case l.freed <- struct{}{}:
		default:
		}
		if last {
			return
		}
	}
}
