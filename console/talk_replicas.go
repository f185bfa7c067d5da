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

// replicas passes on to others what is new here, and takes what is new there.
type replicas struct {
	ground
	name    string                      // of this replica, new with each start
	shared  bool                        // others may work on the store
	tell    func(store.Tx, string)      // never nil
	share   func(string, chat.Progress) // may be nil
	sharer  *sharer
	hub     *hub
	streams *streams
}

// Notify says that streams of thread may have something to look at, because another
// replica's [ReplicaConfig.Tell] said so. An empty thread means any of them: use it also
// when hints may have been missed. It does not block.
func (rs *replicas) Notify(thread string) {
	if thread == "" {
		rs.hub.poke("")
		rs.streams.wakeups.ring()
		return
	}
	if id := strings.TrimPrefix(thread, scheme+":"); id != "" {
		rs.hub.poke(id)
	}
}

// ReceiveProgress shows what another replica's [ReplicaConfig.Share] was given. What this
// replica shared itself may come back, and hints may come late, twice or in another
// order. What is not repeated for 30 seconds is taken away. It does not block, and
// does nothing for a console that is alone.
func (rs *replicas) ReceiveProgress(thread string, p chat.Progress) {
	id, ok := threadPart(chat.ThreadID(thread))
	key, from, age := heardKey(p.Key)
	if !ok || !rs.shared || from == rs.name {
		return
	}
	p.Key = key
	rs.hub.heard(id, from, p, time.Now().Add(-age))
}

// tellOthers tells other replicas of something new in a thread, after tx.
func (rs *replicas) tellOthers(tx store.Tx, id string) { rs.tell(tx, string(threadID(id))) }

func (rs *replicas) send(thread string, p chat.Progress) {
	if rs.share != nil {
		rs.share(thread, p)
	}
}

// look asks the store for news of the threads that somebody watches here: one row
// of each, whatever the number of streams.
func (rs *replicas) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookMost)
	defer cancel()
	for some := range slices.Chunk(rs.hub.asked(), looksEach) {
		began := time.Now()
		last := make([]uint64, len(some))
		revs := make([]map[string]uint64, len(some))
		err := rs.db.View(ctx, func(tx store.Tx) error {
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
			rs.hub.found(q.id, last[i], revs[i], began)
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

// wakeups are heard by all streams, which then ask whether they may still be open. It is
// safe for concurrent use.
type wakeups struct {
	mu sync.Mutex
	c  chan struct{}
}

func newWakeups() *wakeups { return &wakeups{c: make(chan struct{})} }

// next is closed at the next ring.
func (b *wakeups) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.c
}

func (b *wakeups) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.c)
	b.c = make(chan struct{})
}
