package console

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"countersign/adapters/chat"
)

const (
	maxHint    = 3500                   // bytes of a hint's thread and progress as JSON; there are fewer
	maxLabel   = 1000                   // bytes of a key or a status in a hint, as JSON
	shareGap   = 500 * time.Millisecond // between two hints about one key
	shareRate  = 20                     // hints a second in all, and
	shareBurst = 20                     // at once
	maxWaiting = 4096                   // keys that wait to be told
)

// sharer tells other replicas what lives here, at a bearable pace: of each key the
// latest only, those that wait longest first. Its one goroutine is in run; offer is
// safe for concurrent use.
type sharer struct {
	self string
	wake chan struct{} // has a value when something waits

	mu      sync.Mutex
	waiting map[slot]said
	order   []slot // of waiting, the longest wait first
	sent    map[slot]time.Time
	budget  *rate.Limiter
}

type slot struct{ thread, key string }

type said struct {
	chat.Progress
	at time.Time
}

func newSharer(self string) *sharer {
	return &sharer{
		self: self, wake: make(chan struct{}, 1), waiting: map[slot]said{}, sent: map[slot]time.Time{},
		budget: rate.NewLimiter(shareRate, shareBurst),
	}
}

// offer has p told when it is its turn. What waits under its key is forgotten.
func (s *sharer) offer(id string, p chat.Progress, at time.Time) {
	if !utf8.ValidString(p.Key) || encodedHead(p.Key, maxLabel) != p.Key {
		return // no key of ours
	}
	k := slot{string(threadID(id)), p.Key}
	p.Status = encodedHead(strings.ToValidUTF8(p.Status, "\uFFFD"), maxLabel)
	p.Text = strings.ToValidUTF8(tail(p.Text, maxHint), "\uFFFD")
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.waiting[k]; !ok {
		if len(s.order) >= maxWaiting {
			return
		}
		s.order = append(s.order, k)
	}
	s.waiting[k] = said{p, at}
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// run tells send until ctx is done, and then what still waits: the last state goes out.
func (s *sharer) run(ctx context.Context, send func(thread string, p chat.Progress)) {
	for ctx.Err() == nil {
		thread, p, wait := s.next(time.Now(), false)
		if wait == 0 {
			send(thread, p)
			continue
		}
		due := time.NewTimer(wait)
		select {
		case <-s.wake:
		case <-due.C:
		case <-ctx.Done():
		}
		due.Stop()
	}
	for {
		thread, p, wait := s.next(time.Now(), true)
		if wait > 0 {
			return
		}
		send(thread, p)
	}
}

// next gives what is to be told now, or how long to wait. In a hurry there is no pace.
func (s *sharer) next(now time.Time, hurry bool) (thread string, p chat.Progress, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = time.Minute
	for i, k := range s.order {
		if since := now.Sub(s.sent[k]); since < shareGap && !hurry {
			wait = min(wait, shareGap-since)
			continue
		}
		if r := s.budget.ReserveN(now, 1); r.DelayFrom(now) > 0 && !hurry {
			wait = r.DelayFrom(now)
			r.CancelAt(now)
			return "", chat.Progress{}, wait
		}
		p = s.hint(k.thread, s.waiting[k], now)
		s.order = slices.Delete(s.order, i, i+1)
		delete(s.waiting, k)
		s.sent[k] = now
		return k.thread, p, 0
	}
	maps.DeleteFunc(s.sent, func(_ slot, at time.Time) bool { return now.Sub(at) >= shareGap })
	return "", chat.Progress{}, wait
}

// hint is what another replica is told. Its key also says who speaks and how long
// ago: see heardKey.
func (s *sharer) hint(thread string, x said, now time.Time) chat.Progress {
	p := x.Progress
	p.Key += "\n" + s.self + " " + strconv.FormatInt(max(now.Sub(x.at), 0).Milliseconds(), 10)
	text := p.Text
	p.Text = ""
	raw, err := json.Marshal(struct {
		Thread string        `json:"thread"`
		P      chat.Progress `json:"p"`
	}{thread, p})
	if err == nil { // only strings
		p.Text = encodedTail(text, maxHint-1-len(raw)-len(`,"text":""`))
	}
	return p
}

// heardKey takes a hint's key apart: the progress's own key, who speaks, and how
// long ago that was new.
func heardKey(s string) (key, from string, age time.Duration) {
	i := strings.LastIndexByte(s, '\n')
	if i < 0 {
		return s, "", 0
	}
	from, ms, ok := strings.Cut(s[i+1:], " ")
	n, err := strconv.ParseUint(ms, 10, 40)
	if !ok || err != nil {
		return s, "", 0
	}
	return s[:i], from, time.Duration(n) * time.Millisecond
}

// tail is the end of s, at most n bytes and not in the middle of a character.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for i := range min(utf8.UTFMax, len(s)) {
		if utf8.RuneStart(s[i]) {
			return s[i:]
		}
	}
	return s
}

// encodedTail is the longest end of s that has at most n bytes as the inside of a
// JSON string. s is valid UTF-8.
func encodedTail(s string, n int) string {
	i := len(s)
	for i > 0 {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if n -= encodedSize(r, size); n < 0 {
			break
		}
		i -= size
	}
	return s[i:]
}

// encodedHead is encodedTail for the beginning of s.
func encodedHead(s string, n int) string {
	for i, r := range s {
		if n -= encodedSize(r, utf8.RuneLen(r)); n < 0 {
			return s[:i]
		}
	}
	return s
}

// encodedSize is how many bytes encoding/json writes for a character of valid UTF-8.
func encodedSize(r rune, size int) int {
	switch {
	case r == '"', r == '\\', r == '\b', r == '\f', r == '\n', r == '\r', r == '\t':
		return 2
	case r < ' ', r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029':
		return len(`\u0000`)
	default:
		return size
	}
}
