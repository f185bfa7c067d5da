package web

import (
	"maps"
	"slices"
	"sync"

	"countersign/adapters/chat"
)

const (
	maxLive     = 16       // kinds of progress shown at once in a thread
	maxProgress = 64 << 10 // bytes of one of them; the tail is kept
)

// hub tells the open streams that something is new. It holds progress, which
// lives only in memory; messages are read from the store by each stream, so a
// slow stream loses none and holds nobody up.
type hub struct {
	mu    sync.Mutex
	rooms map[string]*room
}

type room struct {
	live  map[string]chat.Progress
	seats map[*seat]struct{}
}

// seat is one stream's place.
type seat struct {
	poke chan struct{}            // has a value when there is something to fetch
	news map[string]chat.Progress // guarded by hub.mu; the latest by key, not fetched yet
}

func newHub() *hub { return &hub{rooms: map[string]*room{}} }

func (h *hub) room(id string) *room {
	r := h.rooms[id]
	if r == nil {
		r = &room{live: map[string]chat.Progress{}, seats: map[*seat]struct{}{}}
		h.rooms[id] = r
	}
	return r
}

func (h *hub) tidy(id string, r *room) {
	if len(r.seats) == 0 && len(r.live) == 0 {
		delete(h.rooms, id)
	}
}

func (h *hub) join(id string) *seat {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.room(id)
	s := &seat{poke: make(chan struct{}, 1), news: maps.Clone(r.live)}
	r.seats[s] = struct{}{}
	return s
}

func (h *hub) leave(id string, s *seat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.rooms[id]; r != nil {
		delete(r.seats, s)
		h.tidy(id, r)
	}
}

// fetch takes the progress that a seat has not seen, in a stable order.
func (h *hub) fetch(s *seat) []chat.Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []chat.Progress
	for _, k := range slices.Sorted(maps.Keys(s.news)) {
		out = append(out, s.news[k])
	}
	clear(s.news)
	return out
}

// posted says that a message was written, which ends the progress under key.
func (h *hub) posted(id, key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[id]
	if r == nil {
		return
	}
	if _, ok := r.live[key]; ok && key != "" {
		r.set(chat.Progress{Key: key, Done: true})
	}
	r.wake()
	h.tidy(id, r)
}

func (h *hub) progress(id string, p chat.Progress) {
	if n := len(p.Text); n > maxProgress {
		p.Text = p.Text[n-maxProgress:]
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.room(id)
	if _, known := r.live[p.Key]; p.Done && !known || !known && len(r.live) >= maxLive {
		h.tidy(id, r)
		return
	}
	r.set(p)
	r.wake()
	h.tidy(id, r)
}

func (h *hub) busy(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[id]
	return r != nil && len(r.live) > 0
}

func (r *room) set(p chat.Progress) {
	if p.Done {
		delete(r.live, p.Key)
	} else {
		r.live[p.Key] = p
	}
	for s := range r.seats {
		s.news[p.Key] = p
	}
}

func (r *room) wake() {
	for s := range r.seats {
		select {
		case s.poke <- struct{}{}:
		default: // it is awake
		}
	}
}
