package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat/scribe"
)

// beats is what replicas hear of each other, as the store carries it: once a second.
type beats struct {
	mu   sync.Mutex
	own  map[int]func() json.RawMessage
	said map[int]json.RawMessage
	read time.Time
}

// replica is one of them.
type replica struct {
	*beats
	n int
}

func (r replica) Publish(_ string, own func() json.RawMessage) { r.own[r.n] = own }

func (r replica) Published(_ string, each func(json.RawMessage, time.Time)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, words := range r.said {
		if n != r.n {
			each(words, r.read)
		}
	}
}

// pacers are those of n replicas.
func pacers(t *testing.T, n int) (out []*pacer) {
	t.Helper()
	b := &beats{own: map[int]func() json.RawMessage{}, said: map[int]json.RawMessage{}}
	for i := range n {
		p := newPacer()
		p.share(replica{b, i}, "slack")
		out = append(out, p)
	}
	go func() {
		for {
			for i, own := range b.own {
				words := own()
				b.mu.Lock()
				b.said[i], b.read = words, time.Now()
				b.mu.Unlock()
			}
			select {
			case <-time.After(time.Second):
			case <-t.Context().Done():
				return
			}
		}
	}()
	time.Sleep(2 * time.Second)
	return out
}

func TestReplicasShareWhatSlackAccepts(t *testing.T) {
	t.Run("together they make no more calls a minute than one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var at []time.Duration
			began := time.Now()
			var wg sync.WaitGroup
			for r, p := range pacers(t, 2) {
				for i := range 60 {
					wg.Go(func() {
						_ = p.do(t.Context(), fmt.Sprintf("replies/%d-%d", r, i), scribe.Normal, func(context.Context) error {
							mu.Lock()
							defer mu.Unlock()
							at = append(at, time.Since(began))
							return nil
						})
					})
				}
			}
			wg.Wait()
			for i := range at {
				if n := len(slices.DeleteFunc(slices.Clone(at), func(d time.Duration) bool { return d < at[i] || d >= at[i]+time.Minute })); n > perMinute["replies"] {
					t.Fatalf("%d calls in the minute from %v", n, at[i])
				}
			}
			if last := slices.Max(at); last > 4*time.Minute {
				t.Errorf("120 calls took %v", last)
			}
		})
	})
	t.Run("who begins late waits for no minute of silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := pacers(t, 3)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 200 { // more than there is room for
				wg.Go(func() {
					_ = all[0].do(ctx, fmt.Sprint("replies/a", i), scribe.Normal, func(context.Context) error { return nil })
				})
			}
			time.Sleep(90 * time.Second)
			began := time.Now()
			if err := all[1].do(t.Context(), "replies/b", scribe.Normal, func(context.Context) error { return nil }); err != nil || time.Since(began) > time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			stop()
			wg.Wait()
		})
	})
	t.Run("one alone uses all of it but a tenth", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := pacers(t, 2)[0]
			began := time.Now()
			for i := range perMinute["replies"] * 9 / 10 {
				_ = p.do(t.Context(), fmt.Sprint("replies/", i), scribe.Normal, func(context.Context) error { return nil })
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	})
	t.Run("what one was refused, the others wait out, and not longer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			all := pacers(t, 3)
			refused := func(context.Context) error { return &slackapi.RateLimitedError{RetryAfter: 30 * time.Second} }
			for _, key := range []string{"update/C1", "post/C1"} {
				if err := all[0].do(t.Context(), key, scribe.Passing, refused); err == nil {
					t.Fatal("it was not refused")
				}
			}
			began := time.Now()
			time.Sleep(2 * time.Second)
			for _, key := range []string{"update/C2", "post/C1"} {
				if err := all[1].do(t.Context(), key, scribe.Passing, refused); !errors.Is(err, scribe.ErrBusy) {
					t.Errorf("%s: %v", key, err)
				}
			}
			for _, p := range all {
				if err := p.do(t.Context(), "update/C2", scribe.First, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
				if d := time.Since(began); d < 30*time.Second || d > 33*time.Second {
					t.Errorf("after %v", d)
				}
			}
		})
	})
}
