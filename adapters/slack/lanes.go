package slack

import "sync"

// lanes runs work of one key in order and of different keys side by side. Add
// never blocks, so that the reader of a socket is never held up by the store.
type lanes struct {
	mu   sync.Mutex
	work map[string][]func() // the first is running
	wg   sync.WaitGroup
}

func newLanes() *lanes { return &lanes{work: map[string][]func(){}} }

// Add runs do after all that was added under key before.
func (l *lanes) Add(key string, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work[key] = append(l.work[key], do)
	if len(l.work[key]) == 1 {
		l.wg.Go(func() { l.run(key) })
	}
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
		if len(l.work[key]) == 0 {
			delete(l.work, key)
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// Wait returns when nothing runs any more. Nothing may be added meanwhile.
func (l *lanes) Wait() { l.wg.Wait() }
