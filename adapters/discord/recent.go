package discord

import "sync"

// maxRecent bounds how many messages are remembered; the store knows the rest.
const maxRecent = 4096

// recent knows the messages that were delivered last, and who wrote them:
// Discord may send a message twice, and does not say whose was deleted.
type recent struct {
	mu   sync.Mutex
	set  map[string]heard
	ring []string
	at   int
}

// heard is a message that was delivered.
type heard struct {
	thread thread
	m      message
}

func (r *recent) get(id string) (heard, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.set[id]
	return h, ok
}

func (r *recent) add(id string, h heard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.set == nil {
		r.set, r.ring = map[string]heard{}, make([]string, maxRecent)
	}
	if _, ok := r.set[id]; ok {
		return
	}
	delete(r.set, r.ring[r.at])
	r.ring[r.at] = id
	r.set[id] = h
	r.at = (r.at + 1) % maxRecent
}

// told remembers what was said once and need not be said again.
type told struct {
	mu  sync.Mutex
	set map[string]bool
}

// maxTold bounds it; what was forgotten is said once more.
const maxTold = 1024

// once reports whether something is said for the first time.
func (t *told) once(what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.set[what] {
		return false
	}
	if t.set == nil || len(t.set) >= maxTold {
		t.set = map[string]bool{}
	}
	t.set[what] = true
	return true
}
