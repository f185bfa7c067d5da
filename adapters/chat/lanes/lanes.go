// Package lanes runs what an adapter is told: work of one key in order, and of
// different keys side by side.
package lanes

import "sync"

// Lanes runs work of one key in order and of different keys side by side. Add
// never blocks, so that who reads events is never held up by the store. It is safe
// for concurrent use.
type Lanes struct {
	mu     sync.Mutex
	work   map[string][]func() // the first is running
	closed bool
	wg     sync.WaitGroup
}

// New returns lanes without work.
func New() *Lanes { return &Lanes{work: map[string][]func(){}} }

// Add runs do after all that was added under key before. false means that the
// lanes are closed and do is never run.
func (l *Lanes) Add(key string, do func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work[key] = append(l.work[key], do)
	if len(l.work[key]) == 1 {
		l.wg.Go(func() { l.run(key) })
	}
	return true
}

// Open lets work in again after Close.
func (l *Lanes) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
}

// Close takes nothing more and returns when all that was taken has run.
func (l *Lanes) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *Lanes) run(key string) {
	for {
		l.mu.Lock()
		do := l.work[key][0]
		l.mu.Unlock()
		do()
		l.mu.Lock()
		l.work[key][0] = nil
		l.work[key] = l.work[key][1:]
		if len(l.work[key]) == 0 {
			delete(l.work, key)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}
