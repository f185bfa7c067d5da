package gateway

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// resetMargin is waited beyond the moment at which Discord says that a bucket is full
// again: its times have three decimals, and a call that comes in the same moment is
// refused.
const resetMargin = 20 * time.Millisecond

// The pace of all calls together, and how many may come at once. Discord takes 50 a second of a bot
// (docs.discord.com/developers/topics/rate-limits); calls that bunch up on their way must not be more.
const (
	CallEvery = 25 * time.Millisecond
	CallBurst = 8
)

// The limits of docs.discord.com/developers/topics/rate-limits.
const (
	// maxInvalid of the answers 401, 403 and 429 within invalidWindow make Discord
	// shut out the address at 10,000; a thousand are left for other programs
	// behind it.
	maxInvalid    = 9000
	invalidWindow = 10 * time.Minute
	// unauthorizedFor is how long nothing is called after a 401. One call after
	// it tries again, in case the refusal was Discord's mistake.
	unauthorizedFor = 5 * time.Minute
	// maxBuckets is from how many buckets on those that are idle are forgotten.
	maxBuckets = 512
)

// wait waits until at. Where ctx ends before, it says so at once instead: nobody
// gains from waiting for nothing.
func wait(ctx context.Context, at time.Time, limited *RateLimitedError) error {
	d := time.Until(at)
	if d <= 0 {
		return ctx.Err()
	}
	if end, ok := ctx.Deadline(); ok && end.Before(at) {
		limited.After = d
		return limited
	}
	return pause(ctx, d)
}

// pause waits for d and says whether ctx ended before.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pace spreads calls over time: after [CallBurst] one each [CallEvery].
type pace struct {
	mu    sync.Mutex
	next  time.Time // when the next call may go
	until time.Time // nothing goes before
	stops int       // how often everything was held back
}

// enter waits for the turn of one call.
func (p *pace) enter(ctx context.Context, call string) error {
	for {
		p.mu.Lock()
		now := time.Now()
		p.next = later(p.next, now.Add(-CallBurst*CallEvery))
		at, stops := later(p.next, p.until), p.stops
		if end, ok := ctx.Deadline(); ok && end.Before(at) {
			p.mu.Unlock()
			return &RateLimitedError{Call: call, Scope: ScopeGlobal, After: time.Until(at)}
		}
		p.next = at.Add(CallEvery)
		p.mu.Unlock()
		err := wait(ctx, at, &RateLimitedError{Call: call, Scope: ScopeGlobal})
		p.mu.Lock()
		again := p.stops != stops
		p.mu.Unlock()
		if err != nil || !again {
			return err
		}
	}
}

// stop holds everything back, also what waits for its turn. After it calls go one by one.
func (p *pace) stop(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.until) {
		p.until, p.next = until, until
		p.stops++
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// buckets keeps one queue per limit of Discord's: the calls of a bucket go one at
// a time, in the order in which they came, so that the posts of a channel keep
// theirs. Which routes share a bucket is learned from X-RateLimit-Bucket.
type buckets struct {
	mu     sync.Mutex
	hashes map[string]string // route -> X-RateLimit-Bucket
	all    map[string]*bucket
}

type bucket struct {
	key  string
	turn chan struct{} // held during a call
	// buckets.mu guards the rest.
	users int  // who holds or waits
	spent bool // no call is left before reset
	reset time.Time
	scope Scope
}

func newBuckets() *buckets {
	return &buckets{hashes: map[string]string{}, all: map[string]*bucket{}}
}

// enter waits for the turn of a call. major is the channel, guild or webhook
// that Discord counts apart.
func (b *buckets) enter(ctx context.Context, route, major string) (*bucket, error) {
	for {
		k := b.take(route, major)
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			b.drop(k)
			return nil, ctx.Err()
		}
		b.mu.Lock()
		same, until, scope := b.keyLocked(route, major) == k.key, time.Time{}, k.scope
		if k.spent {
			until = k.reset
		}
		b.mu.Unlock()
		if !same {
			// An answer said meanwhile that another route's bucket is this one's too.
			b.free(k)
			continue
		}
		if err := wait(ctx, until, &RateLimitedError{Call: route, Scope: scope}); err != nil {
			b.free(k)
			return nil, err
		}
		return k, nil
	}
}

func (b *buckets) keyLocked(route, major string) string {
	if h, ok := b.hashes[route]; ok {
		return h + "|" + major
	}
	return route + "|" + major
}

func (b *buckets) take(route, major string) *bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.keyLocked(route, major)
	k := b.all[key]
	if k == nil {
		if len(b.all) >= maxBuckets {
			b.sweep()
		}
		k = &bucket{key: key, turn: make(chan struct{}, 1)}
		b.all[key] = k
	}
	k.users++
	return k
}

// sweep forgets the buckets that hold nothing back; mu is held.
func (b *buckets) sweep() {
	now := time.Now()
	for key, k := range b.all {
		if k.users == 0 && (!k.spent || now.After(k.reset)) {
			delete(b.all, key)
		}
	}
}

// free ends the turn of a call.
func (b *buckets) free(k *bucket) {
	<-k.turn
	b.drop(k)
}

func (b *buckets) drop(k *bucket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.users--
}

// learn takes what an answer says about the bucket whose turn it is, and what
// Discord calls it.
func (b *buckets) learn(k *bucket, route string, h http.Header, held time.Time, scope Scope) {
	spent, reset := false, time.Time{}
	if h.Get("X-RateLimit-Remaining") == "0" {
		spent, reset = true, time.Now().Add(seconds(h.Get("X-RateLimit-Reset-After"))+resetMargin)
	}
	if !held.IsZero() {
		spent, reset = true, held
	}
	if scope == "" {
		scope = ScopeUser
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k.spent, k.reset, k.scope = spent, reset, scope
	hash := h.Get("X-RateLimit-Bucket")
	if hash == "" || b.hashes[route] == hash {
		return
	}
	known := b.hashes[route] != ""
	b.hashes[route] = hash
	if known {
		return // it got another name; those that wait go over
	}
	// What was counted under the route gets its real name, with those that wait
	// for it, so that they keep their order.
	for old, k := range b.all {
		major, ok := strings.CutPrefix(old, route+"|")
		if !ok {
			continue
		}
		name := hash + "|" + major
		if other := b.all[name]; other == nil {
			delete(b.all, old)
			k.key = name
			b.all[name] = k
		} else if k.spent {
			other.spent, other.reset, other.scope = true, later(other.reset, k.reset), k.scope
		}
	}
}

// seconds reads a number of seconds as Discord writes it, "0.65" or "2".
func seconds(s string) time.Duration {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0) {
		return 0
	}
	const most = 24 * 60 * 60
	return time.Duration(min(f, most) * float64(time.Second))
}

// guard counts refused calls, and stops before Discord shuts out the address.
type guard struct {
	mu     sync.Mutex
	most   int
	counts [60]int
	slots  [60]int64 // the slot of time that a count belongs to
	lost   time.Time // of the last 401; zero when there was none
}

const guardSlot = invalidWindow / 60

// check says whether a call may be made.
func (g *guard) check(call string, ours bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if ours && !g.lost.IsZero() {
		if now.Sub(g.lost) < unauthorizedFor {
			return ErrUnauthorized
		}
		g.lost = now // this one call tries again
	}
	slot, sum, oldest := now.UnixNano()/int64(guardSlot), 0, int64(0)
	for i, n := range g.counts {
		if n > 0 && slot-g.slots[i] < int64(len(g.counts)) {
			sum += n
			if oldest == 0 || g.slots[i] < oldest {
				oldest = g.slots[i]
			}
		}
	}
	if sum < g.most {
		return nil
	}
	free := time.Unix(0, (oldest+int64(len(g.counts)))*int64(guardSlot))
	return &RateLimitedError{Call: call, Scope: ScopeGuard, After: free.Sub(now)}
}

// countRefusal counts one.
func (g *guard) countRefusal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	slot := time.Now().UnixNano() / int64(guardSlot)
	i := slot % int64(len(g.counts))
	if g.slots[i] != slot {
		g.slots[i], g.counts[i] = slot, 0
	}
	g.counts[i]++
}

// noteToken notes whether Discord knew it.
func (g *guard) noteToken(known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known {
		g.lost = time.Time{}
	} else {
		g.lost = time.Now()
	}
}
