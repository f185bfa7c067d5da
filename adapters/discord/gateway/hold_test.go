package gateway

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// office gives out jobs, one holder each, as a store that is shared does. It is made
// within the bubble whose clock waits for its channel.
type office struct {
	mu      sync.Mutex
	away    bool // another replica has them
	cancels map[string]context.CancelFunc
	changed chan struct{}
}

func newOffice() *office {
	return &office{cancels: map[string]context.CancelFunc{}, changed: make(chan struct{})}
}

// do is Config.Do.
func (o *office) do(ctx context.Context, job string, run func(context.Context) error) error {
	for {
		o.mu.Lock()
		if away, changed := o.away, o.changed; away {
			o.mu.Unlock()
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		mine, cancel := context.WithCancel(ctx)
		o.cancels[job] = cancel
		o.mu.Unlock()
		err := run(mine)
		lost := mine.Err() != nil && ctx.Err() == nil
		cancel()
		if !lost {
			return err
		}
	}
}

// elsewhere gives all jobs to another replica, or takes them back from it.
func (o *office) elsewhere(yes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = yes
	if yes {
		for _, cancel := range o.cancels {
			cancel()
		}
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

func TestTheShardIsAJob(t *testing.T) {
	for _, tc := range []struct {
		rule                string
		away                time.Duration
		identifies, resumes int
	}{
		{"one that comes back soon goes on with its session", 10 * time.Second, 1, 1},
		{"one that comes back late begins a session", time.Minute, 2, 0},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			var o *office
			scene(t, func(n int, c *talk) { c.good(n) }, func(_ *play, c *Config, _ *Supervisor) { o = newOffice(); c.Do = o.do }, func(b *bot) {
				time.Sleep(10 * time.Second)
				if err := b.Ready(); err != nil || !b.Listening() {
					t.Fatalf("it is not connected: %v", err)
				}
				o.elsewhere(true)
				settle()
				if b.Listening() || b.Ready() != nil || b.States()[0].Phase != Elsewhere || b.States()[0].Why != elsewhere {
					t.Errorf("without the shard: %v, %+v", b.Ready(), b.States())
				}
				if open := b.p.open(); open != 0 {
					t.Errorf("%d connections are open", open)
				}
				time.Sleep(tc.away)
				o.elsewhere(false)
				time.Sleep(10 * time.Second)
				if err := b.Ready(); err != nil || !b.Listening() {
					t.Errorf("it is not connected again: %v", err)
				}
				if st := b.Stats(); int(st.Identifies) != tc.identifies || int(st.Resumes) != tc.resumes {
					t.Errorf("%+v", st)
				}
			})
		})
	}
	t.Run("where another has the shard from the beginning nothing is connected, and that is fine", func(t *testing.T) {
		var o *office
		scene(t, func(n int, c *talk) { c.good(n) }, func(_ *play, c *Config, _ *Supervisor) {
			o = newOffice()
			o.elsewhere(true)
			c.Do = o.do
		}, func(b *bot) {
			time.Sleep(time.Second)
			if b.Ready() == nil {
				t.Error("it is ready before anybody can have the shard")
			}
			time.Sleep(10 * time.Second)
			if err := b.Ready(); err != nil || b.Listening() || b.Stats().Identifies != 0 {
				t.Errorf("%v, %+v", err, b.Stats())
			}
			o.elsewhere(false)
			time.Sleep(5 * time.Second)
			if !b.Listening() {
				t.Errorf("it did not take the shard: %v", b.Ready())
			}
		})
	})
	t.Run("a shard that goes to and fro does not use up the day's sessions", func(t *testing.T) {
		var o *office
		scene(t, func(n int, c *talk) { c.good(n) }, func(_ *play, c *Config, _ *Supervisor) { o = newOffice(); c.Do = o.do }, func(b *bot) {
			for range 100 {
				time.Sleep(40 * time.Second)
				o.elsewhere(true)
				time.Sleep(40 * time.Second)
				o.elsewhere(false)
			}
			if n := b.Stats().Identifies; n > 101 {
				t.Errorf("%d identifies", n)
			}
		})
	})
	t.Run("shards are taken one after the other", func(t *testing.T) {
		var o *office
		scene(t, func(n int, c *talk) { c.good(n) }, func(_ *play, c *Config, _ *Supervisor) { o = newOffice(); c.Do, c.Shards = o.do, 3 }, func(b *bot) {
			var held []int
			for range 40 {
				time.Sleep(500 * time.Millisecond)
				up := 0
				for _, st := range b.States() {
					if st.Up() {
						up++
					}
				}
				held = append(held, up)
			}
			for _, n := range []int{1, 2, 3} {
				if !slices.Contains(held, n) {
					t.Errorf("%d shards were never held alone: %v", n, held)
				}
			}
			if !b.Listening() {
				t.Errorf("not all are connected: %v", b.Ready())
			}
		})
	})
	t.Run("a refusal ends all", func(t *testing.T) {
		var o *office
		scene(t, func(_ int, c *talk) {
			c.hello()
			c.close(4014)
		}, func(_ *play, c *Config, _ *Supervisor) { o = newOffice(); c.Do = o.do }, func(b *bot) {
			err := <-b.done
			if err == nil || !strings.Contains(err.Error(), "Message Content Intent") {
				t.Errorf("ended with %v", err)
			}
			b.done <- nil
		})
	})
}

// TestOneShardAtATime: while one shard is taken, another that is got at the same moment is
// given back, and no other is asked for.
func TestOneShardAtATime(t *testing.T) {
	var k takeover
	a, b := &shard{}, &shard{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	k.request(a, func() { t.Error("the shard that was got is not asked for any more") })
	k.request(b, stop)
	if !k.claim(a) || k.claim(b) || ctx.Err() == nil {
		t.Error("two shards were taken at once")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if k.wait(ended) == nil {
		t.Error("the next one is asked for too early")
	}
	k.finish(b) // is none of its business
	if k.wait(ended) == nil || k.claim(b) {
		t.Error("another shard ended the takeover")
	}
	k.finish(a)
	if err := k.wait(t.Context()); err != nil || !k.claim(b) {
		t.Errorf("the next one cannot be taken: %v", err)
	}
}

// TestWhatIsBehindIsLookedAtFirst: nobody may note that all is heard before the gap was.
func TestWhatIsBehindIsLookedAtFirst(t *testing.T) {
	var look chan struct{} // of the bubble
	scene(t, func(n int, c *talk) { c.good(n) }, func(_ *play, c *Config, _ *Supervisor) {
		look = make(chan struct{})
		c.OnGap = func(context.Context, int, time.Time) { <-look }
	}, func(b *bot) {
		time.Sleep(10 * time.Second)
		if b.Ready() != nil || b.Listening() {
			t.Errorf("%v, listening %t", b.Ready(), b.Listening())
		}
		close(look)
		settle()
		if !b.Listening() {
			t.Error("it does not listen after the gap was looked at")
		}
	})
}
