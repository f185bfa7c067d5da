package console

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

const (
	adoptEvery = time.Second      // between two looks at what is pending; below sightGap
	lookEvery  = 2 * time.Second  // between two looks at the threads that somebody watches
	lookMost   = 10 * time.Second // for one of them
	looksEach  = 64               // threads in one transaction
)

// Notify says that streams of thread may have something to look at, because another
// replica's [Config.Tell] said so. An empty thread means any of them: use it also
// when hints may have been missed. It does not block.
func (a *Adapter) Notify(thread string) {
	if thread == "" {
		a.hub.poke("")
		a.bell.ring()
		return
	}
	if id := strings.TrimPrefix(thread, scheme+":"); id != "" {
		a.hub.poke(id)
	}
}

// ReceiveProgress shows what another replica's [Config.Share] was given. What this
// replica shared itself may come back, and hints may come late, twice or in another
// order. What is not repeated for 30 seconds is taken away. It does not block, and
// does nothing for a console that is alone.
func (a *Adapter) ReceiveProgress(thread string, p chat.Progress) {
	id, ok := threadPart(chat.ThreadID(thread))
	key, from, age := heardKey(p.Key)
	if !ok || !a.shared || from == a.name {
		return
	}
	p.Key = key
	a.hub.heard(id, from, p, time.Now().Add(-age))
}

// tellOthers tells other replicas of something new in a thread, after tx.
func (a *Adapter) tellOthers(tx store.Tx, id string) { a.tell(tx, string(threadID(id))) }

func (a *Adapter) send(thread string, p chat.Progress) {
	if a.share != nil {
		a.share(thread, p)
	}
}

// look asks the store for news of the threads that somebody watches here: one row
// of each, whatever the number of streams.
func (a *Adapter) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	for some := range slices.Chunk(a.hub.asked(), looksEach) {
		began := time.Now()
		last := make([]uint64, len(some))
		revs := make([]map[string]uint64, len(some))
		err := a.db.View(ctx, func(tx store.Tx) error {
			for i, q := range some {
				t, _ := store.Load[threadRow](tx, threadKey(q.id))
				if last[i], revs[i] = t.Last, nil; t.Last != q.last {
					revs[i] = versions(tx, q.id, q.keys)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, q := range some {
			a.hub.found(q.id, last[i], revs[i], began)
		}
	}
	return nil
}

// versions gives the rev of the message under each post's key that there is.
func versions(tx store.Tx, id string, keys []string) map[string]uint64 {
	out := map[string]uint64{}
	for _, k := range keys {
		if seq, ok := store.Load[uint64](tx, postKey(id, k)); ok {
			m, _ := store.Load[messageRow](tx, messageKey(id, seq))
			out[k] = m.Rev
		}
	}
	return out
}

// every does do at an interval until ctx is done. What fails is done again.
func (a *Adapter) every(ctx context.Context, d time.Duration, what string, do func(context.Context) error) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "the console could not look into the store; trying again", "for", what, "error", err)
		}
	}
}

// bell is heard by all streams, which then ask whether they may still be open. It is
// safe for concurrent use.
type bell struct {
	mu sync.Mutex
	c  chan struct{}
}

func newBell() *bell { return &bell{c: make(chan struct{})} }

// next is closed when the bell rings.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}
