package console

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Each replica counts for itself.
const (
	// Attempts to sign in with a wrong code, and sign-ins begun at the identity provider,
	// are counted apart.
	attemptsEach = 10 // a minute from one address (an IPv6 network of 64 bits), and for one name
	attemptsAll  = 60 // a minute from everywhere

	actionsBurst = 20 // messages, clicks and links of one session at once, and
	actionsRate  = 1  // a second

	lookupsBurst = 40 // requests of one address about watch links at once, and
	lookupsRate  = 2  // a second

	streamsEach = 20   // open streams of one session or of one watch link
	streamsAll  = 1000 // open streams in all

	bucketsKept = 4096 // buckets, before those that are full are forgotten
)

// limiter counts attempts in windows of a minute.
type limiter struct {
	now       func() time.Time
	each, all int // a minute; all 0 is no limit

	mu    sync.Mutex
	start time.Time
	sum   int
	by    map[string]int
}

func newLimiter(now func() time.Time, each, all int) *limiter {
	return &limiter{now: now, each: each, all: all, by: map[string]int{}}
}

// allow counts one attempt from an address, or for a name.
func (l *limiter) allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if d := now.Sub(l.start); d >= time.Minute || d < 0 {
		l.start, l.sum = now, 0
		clear(l.by)
	}
	if l.all > 0 && l.sum >= l.all || l.by[key] >= l.each {
		return false
	}
	l.sum++
	l.by[key]++
	return true
}

// buckets limit how fast each of many may act.
type buckets struct {
	now   func() time.Time
	each  rate.Limit
	burst int

	mu sync.Mutex
	by map[string]*rate.Limiter
}

func newBuckets(now func() time.Time, each rate.Limit, burst int) *buckets {
	return &buckets{now: now, each: each, burst: burst, by: map[string]*rate.Limiter{}}
}

func (b *buckets) allow(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	l := b.by[key]
	if l == nil {
		if len(b.by) >= bucketsKept {
			for k, old := range b.by {
				if old.TokensAt(now) >= float64(b.burst) { // as good as a new one
					delete(b.by, k)
				}
			}
		}
		if len(b.by) >= bucketsKept {
			return false // that many at once are not people
		}
		l = rate.NewLimiter(b.each, b.burst)
		b.by[key] = l
	}
	return l.AllowN(now, 1)
}

// streams are the open streams by whose they are, so that they can be counted
// and cut.
type streams struct {
	each, all int
	beat      time.Duration // how often one shows that it lives
	wakeups   *wakeups

	mu  sync.Mutex
	sum int
	by  map[string]*owner
}

// owner has the streams of one session or one watch link.
type owner struct {
	n   int
	cut chan struct{} // closed when they have to end
}

func newStreams(each, all int) *streams {
	return &streams{each: each, all: all, beat: 15 * time.Second, wakeups: newWakeups(), by: map[string]*owner{}}
}

// open counts one more stream until leave is called; cut is closed when it has to
// end. ok is false when there are too many.
func (s *streams) open(key string) (cut <-chan struct{}, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.by[key]
	if o == nil {
		o = &owner{cut: make(chan struct{})}
	}
	if o.n >= s.each || s.sum >= s.all {
		return nil, nil, false
	}
	s.by[key] = o
	o.n++
	s.sum++
	return o.cut, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		o.n--
		s.sum--
		if o.n == 0 && s.by[key] == o {
			delete(s.by, key)
		}
	}), true
}

// end cuts all streams of some owners.
func (s *streams) end(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if o := s.by[key]; o != nil {
			close(o.cut)
			delete(s.by, key)
		}
	}
}
