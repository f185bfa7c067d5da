package slack

import (
	"sync"

	"countersign/adapters/chat"
)

// maxRecent bounds how many messages are remembered; the store knows the rest.
const maxRecent = 4096

// recent is the set of the messages that were delivered last: app_mention and
// message for the same ts are one, and so is a retry.
type recent struct {
	mu   sync.Mutex
	set  map[chat.EventID]bool
	ring []chat.EventID
	at   int
}

func (r *recent) has(id chat.EventID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set[id]
}

func (r *recent) add(id chat.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set == nil {
		r.set, r.ring = map[chat.EventID]bool{}, make([]chat.EventID, maxRecent)
	}
	if r.set[id] {
		return
	}
	delete(r.set, r.ring[r.at])
	r.ring[r.at] = id
	r.set[id] = true
	r.at = (r.at + 1) % maxRecent
}
