package console

import (
	"maps"
	"slices"
	"sync"
	"time"

	"countersign/adapters/chat"
)

const (
	maxLive     = 16       // kinds of progress shown at once in a thread
	maxProgress = 64 << 10 // bytes of one of them; the tail is kept
)

// With several replicas.
const (
	repeatEvery = 10 * time.Second // how often others are told again what lives here
	heardFor    = 30 * time.Second // how long what was heard lives when it is not repeated
	// silentFor is how long a replica's own progress lives when the bot says nothing
	// new under it. What runs says something each second; what stands longer waits
	// for people, or belongs to a thread that another replica took over without a
	// hint that came through.
	silentFor = 10 * time.Minute
	// doubtFor is how long progress lives that a message may have ended.
	doubtFor = 10 * time.Second
	// recallFor is how long a room remembers who spoke in it and what is over, so
	// that a hint which comes late revives nothing.
	recallFor = time.Minute
)

// hub tells the open streams that something is new. It holds progress, which
// lives only in memory; messages are read from the store by each stream, so a
// slow stream loses none and holds nobody up.
//
// With several replicas (out is set) each has a hub of its own. A thread is worked
// on by one replica at a time, so whoever said something new last is the one, and
// what others said in the thread before is over. Times of others are ages, counted
// back from the moment when a hint comes: no two clocks are compared.
type hub struct {
	self string                                         // names this replica among the speakers
	out  func(id string, p chat.Progress, at time.Time) // tells other replicas what was said here at at; nil: there are none

	mu    sync.Mutex
	rooms map[string]*room
}

type room struct {
	live  map[string]live
	seats map[*seat]struct{}

	// With several replicas.
	speaker string            // who said something new last,
	spoke   time.Time         // and when
	over    map[string]ending // by key
	used    time.Time         // when something of these was told or heard last
	told    time.Time         // when somebody last told of news in the store
	looked  time.Time         // when the last look at the store began; zero: there was none
	last    uint64            // the thread's counter then
}

// ending is the end of what lived under a key.
type ending struct {
	at   time.Time
	here bool // this replica knows it from nobody else
}

// live is progress that is on show.
type live struct {
	chat.Progress
	from  string    // who says it
	began time.Time // when its key came to life here
	shown time.Time // when its speaker last said something new under it
	told  time.Time // when others were told last, or when it was heard last
	doubt time.Time // when a message was found that may have ended it; zero: none was
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
		r = &room{live: map[string]live{}, seats: map[*seat]struct{}{}, over: map[string]ending{}}
		h.rooms[id] = r
	}
	return r
}

func (h *hub) tidy(id string, r *room) {
	if len(r.seats) == 0 && len(r.live) == 0 && (h.out == nil || time.Since(r.used) >= recallFor) {
		delete(h.rooms, id)
	}
}

func (h *hub) join(id string) *seat {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.room(id)
	s := &seat{poke: make(chan struct{}, 1), news: map[string]chat.Progress{}}
	for k, l := range r.live {
		s.news[k] = l.Progress
	}
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
	if r == nil && (h.out == nil || key == "") {
		return
	}
	r = h.room(id)
	r.told = time.Now()
	if key != "" {
		_, known := r.live[key]
		h.finish(id, r, key, known)
	}
	r.wake()
	h.tidy(id, r)
}

// finish ends the progress under key, because this replica knows that it is over,
// and lets others know. mu is held.
func (h *hub) finish(id string, r *room, key string, say bool) {
	r.end(key)
	if h.out == nil {
		return
	}
	now := time.Now()
	r.over[key], r.used = ending{now, true}, now
	if say {
		h.out(id, chat.Progress{Key: key, Done: true}, now)
	}
}

// progress shows what the bot does here.
func (h *hub) progress(id string, p chat.Progress) {
	p = clipped(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.room(id)
	defer func() { h.tidy(id, r) }()
	if p.Done {
		_, known := r.live[p.Key]
		h.finish(id, r, p.Key, true) // others may show what this replica never saw
		if known {
			r.wake()
		}
		return
	}
	now := time.Now()
	if h.out != nil {
		r.speaks(h.self, now)
	}
	l, known := r.live[p.Key]
	if !known {
		if len(r.live) >= maxLive {
			return
		}
		l.began = now
	}
	l.Progress, l.from, l.shown, l.told, l.doubt = p, h.self, now, now, time.Time{}
	r.set(l)
	r.wake()
	if h.out != nil {
		r.used = now
		h.out(id, p, now)
	}
}

// heard shows what another replica said at at. Hints are lost, repeated and
// overtaken by others; where this replica knows better, it says so.
func (h *hub) heard(id, from string, p chat.Progress, at time.Time) {
	if h.out == nil {
		return
	}
	p = clipped(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.room(id)
	defer func() { h.tidy(id, r) }()
	now := time.Now()
	r.used = now
	l, known := r.live[p.Key]
	end := r.over[p.Key]
	switch {
	case p.Done:
		if at.After(end.at) {
			r.over[p.Key] = ending{at: at}
		}
		if known && !at.Before(l.shown) {
			r.end(p.Key)
			r.wake()
		}
		return
	case at.Before(end.at), r.speaker != from && !at.After(r.spoke): // it is over, and who says it does not know
		switch {
		case known && l.from == h.self:
			h.out(id, l.Progress, l.shown)
		case end.here && at.Before(end.at):
			h.out(id, chat.Progress{Key: p.Key, Done: true}, end.at)
		case r.speaker == h.self && !at.After(r.spoke):
			h.out(id, chat.Progress{Key: p.Key, Done: true}, r.spoke)
		}
		return
	}
	r.speaks(from, at)
	if l, known = r.live[p.Key]; !known {
		if len(r.live) >= maxLive {
			return
		}
		l.began = now
	}
	l.Progress, l.from, l.shown, l.told = p, from, at, now
	r.set(l)
	r.wake()
}

// poke wakes the streams of a thread, or all of them when id is empty.
func (h *hub) poke(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.rooms[id]; r != nil {
		r.told = time.Now()
		r.wake()
	}
	if id == "" {
		for _, r := range h.rooms {
			r.wake()
		}
	}
}

func (h *hub) busy(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[id]
	return r != nil && len(r.live) > 0
}

// asked is what a look at the store has to find out about a thread.
type asked struct {
	id   string
	last uint64   // the thread's counter at the look before; 0: there was none
	keys []string // of progress of our own, which a message may have ended
}

// asked lists the threads that somebody watches here or in which something of
// our own lives.
func (h *hub) asked() []asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []asked
	for id, r := range h.rooms {
		q := asked{id: id, last: r.last}
		for k, l := range r.live {
			if l.from == h.self {
				q.keys = append(q.keys, k)
			}
		}
		if len(r.seats) > 0 || len(q.keys) > 0 {
			out = append(out, q)
		}
	}
	return out
}

// found takes what a look at the store found that began at began: the thread's
// counter, and the version of the message under each key that was asked for. It says
// what another replica posted and nobody told of.
func (h *hub) found(id string, last uint64, revs map[string]uint64, began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[id]
	if r == nil {
		return
	}
	before, seen := r.looked, r.last
	r.looked, r.last = began, last
	if last == seen {
		return
	}
	r.wake()
	for key, rev := range revs {
		l, ok := r.live[key]
		switch {
		case !ok || l.from != h.self || rev <= seen:
		case r.told.After(before) && !l.began.Before(r.told): // this began after the news, as far as anybody told
		case !before.IsZero() && l.began.Before(before): // the message is younger
			h.finish(id, r, key, true)
		case l.doubt.IsZero():
			l.doubt = began
			r.live[key] = l
		}
	}
	h.tidy(id, r)
}

// keep is called every few seconds: it repeats what lives here to other replicas
// and ends what nobody has confirmed for too long.
func (h *hub) keep(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, r := range h.rooms {
		for key, l := range r.live {
			switch {
			case l.from != h.self:
				if now.Sub(l.told) >= heardFor {
					r.end(key)
					r.wake()
				}
			case now.Sub(l.shown) >= silentFor, !l.doubt.IsZero() && now.Sub(l.doubt) >= doubtFor:
				h.finish(id, r, key, true)
				r.wake()
			case now.Sub(l.told) >= repeatEvery:
				l.told = now
				r.live[key] = l
				h.out(id, l.Progress, l.shown)
			}
			if len(r.live) > 0 {
				r.used = now
			}
		}
		maps.DeleteFunc(r.over, func(_ string, e ending) bool { return now.Sub(e.at) >= recallFor })
		h.tidy(id, r)
	}
}

// speaks notes that from said something new at at. What others said before is over.
func (r *room) speaks(from string, at time.Time) {
	if r.speaker != from {
		for key, l := range r.live {
			if l.from != from {
				r.end(key)
			}
		}
		r.speaker, r.spoke = from, at
	}
	if at.After(r.spoke) {
		r.spoke = at
	}
}

func (r *room) set(l live) {
	r.live[l.Key] = l
	for s := range r.seats {
		s.news[l.Key] = l.Progress
	}
}

// end tells the seats that nothing lives under key any more, if anything did.
func (r *room) end(key string) {
	if _, ok := r.live[key]; !ok {
		return
	}
	delete(r.live, key)
	for s := range r.seats {
		s.news[key] = chat.Progress{Key: key, Done: true}
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

// clipped keeps the tail of a text that is too long.
func clipped(p chat.Progress) chat.Progress {
	if n := len(p.Text); n > maxProgress {
		p.Text = p.Text[n-maxProgress:]
	}
	return p
}
