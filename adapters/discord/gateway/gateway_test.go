package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/coder/websocket"
)

// TestItRecovers plays every fault that a connection can have and looks at how
// it comes back, and at what that costs.
func TestItRecovers(t *testing.T) {
	// begin is the first connection: a session with events up to number 3.
	begin := func(c *talk) {
		c.hello()
		c.ready(1)
		c.say(2, "10", "two")
		c.say(3, "10", "three")
		time.Sleep(40 * time.Second)
	}
	for _, tc := range []struct {
		name                string
		second              func(c *talk) // what ends the first connection
		third               func(n int, c *talk) bool
		change              func(p *play, cfg *Config, s *Supervisor)
		identifies, resumes int
		gaps                int
		within              time.Duration
	}{
		{name: "a broken connection is resumed", second: func(*talk) {}, identifies: 1, resumes: 1, gaps: 1, within: 5 * time.Second},
		{name: "op 7 is followed by a resume", second: func(c *talk) { c.send(7, 0, "", nil); <-c.gone }, identifies: 1, resumes: 1, gaps: 1, within: 5 * time.Second},
		{name: "op 7 in answer to a resume is followed by another", second: func(*talk) {}, third: func(n int, c *talk) bool {
			if n == 2 {
				c.hello()
				c.send(7, 0, "", nil)
				<-c.gone
			}
			return n == 2
		}, identifies: 1, resumes: 2, gaps: 1, within: 10 * time.Second},
		{name: "op 9 in answer to a resume is followed by an identify", second: func(*talk) {}, third: func(n int, c *talk) bool {
			if n == 2 {
				c.hello()
				c.send(9, 0, "", false)
				<-c.gone
			}
			return n == 2
		}, identifies: 2, resumes: 1, gaps: 2, within: 20 * time.Second},
		{name: "op 9 that may be resumed is followed by a resume", second: func(c *talk) { c.send(9, 0, "", true); <-c.gone }, identifies: 1, resumes: 1, gaps: 1, within: 10 * time.Second},
		{name: "a session that timed out is not resumed", second: func(c *talk) { c.close(4009) }, identifies: 2, gaps: 2, within: 10 * time.Second},
		{name: "an unknown error is resumed", second: func(c *talk) { c.close(4000) }, identifies: 1, resumes: 1, gaps: 1, within: 5 * time.Second},
		{name: "a silent socket is found after two intervals", second: func(c *talk) { c.silent.Store(true); <-c.gone }, identifies: 1, resumes: 1, gaps: 1, within: 3 * 41250 * time.Millisecond},
		{name: "a resume that gets no answer is given up after three", second: func(*talk) {}, third: func(n int, c *talk) bool {
			if n <= 4 {
				c.hello()
				<-c.gone
				return true
			}
			return false
		}, identifies: 2, resumes: 3, gaps: 2, within: 3 * time.Minute},
		{name: "no hello is given up in time", second: func(*talk) {}, third: func(n int, c *talk) bool {
			if n == 2 {
				<-c.gone
			}
			return n == 2
		}, identifies: 1, resumes: 1, gaps: 1, within: 40 * time.Second},
		{name: "a hello with an interval of zero does not end the process", second: func(*talk) {}, third: func(n int, c *talk) bool {
			if n == 2 {
				c.send(10, 0, "", map[string]int{"heartbeat_interval": 0})
				<-c.gone
			}
			return n == 2
		}, identifies: 1, resumes: 1, gaps: 1, within: 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scene(t, func(n int, c *talk) {
				switch {
				case n == 1:
					begin(c)
					tc.second(c)
				case tc.third != nil && tc.third(n, c):
				default:
					c.good(n)
				}
			}, tc.change, func(b *bot) {
				time.Sleep(39 * time.Second)
				if err := b.Ready(); err != nil {
					t.Fatalf("not ready at the beginning: %v", err)
				}
				time.Sleep(2*time.Second + tc.within)
				if err := b.Ready(); err != nil {
					t.Errorf("not back after %s: %v", tc.within, err)
				}
				st := b.Stats()
				if int(st.Identifies) != tc.identifies || int(st.Resumes) != tc.resumes {
					t.Errorf("%d identifies and %d resumes, want %d and %d", st.Identifies, st.Resumes, tc.identifies, tc.resumes)
				}
				if got := b.p.identified(); got != tc.identifies {
					t.Errorf("Discord saw %d identifies", got)
				}
				b.mu.Lock()
				gaps := slices.Clone(b.gaps)
				b.mu.Unlock()
				if len(gaps) != tc.gaps {
					t.Errorf("%d gaps were told, want %d", len(gaps), tc.gaps)
				}
				if len(gaps) > 0 && !gaps[0].IsZero() {
					t.Error("the first session has something before it")
				}
				if len(gaps) > 1 && gaps[1].IsZero() {
					t.Error("the gap does not say since when")
				}
				b.p.mu.Lock()
				for _, r := range b.p.resumes {
					if r.Session != "session-1" || r.Seq != 3 || !strings.HasPrefix(r.path, "/r1") {
						t.Errorf("resumed %+v", r)
					}
				}
				for _, code := range b.p.codes {
					if code == websocket.StatusNormalClosure || code == websocket.StatusGoingAway {
						t.Errorf("a connection was closed with %d, which ends the session", code)
					}
				}
				b.p.mu.Unlock()
				if got := b.texts(); !slices.Equal(got, []string{"two", "three"}) {
					t.Errorf("events: %q", got)
				}
			})
		})
	}
}

// TestItStops plays the refusals that only a person can mend.
func TestItStops(t *testing.T) {
	for code, want := range map[int]string{
		4004: "reset the token and put the new one into DISCORD_BOT_TOKEN",
		4010: "leave the number of shards at 0",
		4011: "leave the number of shards at 0",
		4012: "install a newer version of the bot",
		4013: "does not know one of the intents",
		4014: "switch on the Message Content Intent under Privileged Gateway Intents",
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			scene(t, func(_ int, c *talk) {
				c.hello()
				c.close(code)
			}, nil, func(b *bot) {
				time.Sleep(time.Hour)
				select {
				case err := <-b.done:
					fatal, ok := errors.AsType[*FatalError](err)
					if !ok || fatal.Code != code || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
						t.Errorf("ended with %v", err)
					}
					b.done <- nil
				default:
					t.Error("it did not stop")
				}
				if n := b.p.identified(); n != 1 {
					t.Errorf("%d identifies", n)
				}
				if err := b.Ready(); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Ready says %v", err)
				}
			})
		})
	}
	t.Run("4014 after a re-identify", func(t *testing.T) {
		scene(t, func(n int, c *talk) {
			switch m := c.hello(); {
			case m == nil:
			case *m.Op == 6:
				c.send(9, 0, "", false)
				<-c.gone
			case n == 1:
				c.ready(1)
				time.Sleep(time.Second)
			default:
				c.close(4014)
			}
		}, nil, func(b *bot) {
			err := <-b.done
			if fatal, ok := errors.AsType[*FatalError](err); !ok || fatal.Code != 4014 {
				t.Errorf("ended with %v", err)
			}
			b.done <- nil
			if n := b.p.identified(); n != 2 {
				t.Errorf("%d identifies", n)
			}
			if st := b.States(); st[0].Phase != Fatal {
				t.Errorf("state %+v", st)
			}
		})
	})
	t.Run("401 from the API", func(t *testing.T) {
		scene(t, func(int, *talk) {}, func(p *play, _ *Config, _ *Supervisor) { p.status.Store(401) }, func(b *bot) {
			if err := <-b.done; err == nil || !strings.Contains(err.Error(), "DISCORD_BOT_TOKEN") {
				t.Errorf("ended with %v", err)
			}
			b.done <- nil
		})
	})
}

// TestAServerThatIsDown: nothing is used up while nothing answers, and the bot is
// back soon after it does.
func TestAServerThatIsDown(t *testing.T) {
	for _, away := range []time.Duration{time.Minute, time.Hour} {
		t.Run(away.String(), func(t *testing.T) {
			scene(t, func(n int, c *talk) {
				if n == 1 {
					c.hello()
					c.ready(1)
					time.Sleep(10 * time.Second)
					c.p.net.down.Store(true)
					return
				}
				c.good(n)
			}, nil, func(b *bot) {
				time.Sleep(11 * time.Second)
				began := time.Now()
				time.Sleep(away)
				err := b.Ready()
				if err == nil || !strings.Contains(err.Error(), "shard 0 of 1 is down since ") {
					t.Errorf("Ready says %v", err)
				}
				st := b.States()[0]
				if began.Sub(st.Since).Abs() > 2*time.Second {
					t.Errorf("down since %s, want %s", st.Since, began)
				}
				dials := b.p.net.dials.Load()
				if away == time.Hour && (dials < 60 || dials > 300) {
					t.Errorf("%d dials in an hour", dials)
				}
				b.p.net.down.Store(false)
				time.Sleep(32 * time.Second)
				if err := b.Ready(); err != nil {
					t.Errorf("not back: %v", err)
				}
				if st := b.Stats(); st.Identifies != 1 || st.Resumes != 1 {
					t.Errorf("%+v", st)
				}
				b.p.mu.Lock()
				defer b.p.mu.Unlock()
				if got := b.p.resumes[0].path; got != "/" {
					t.Errorf("resumed at %q although the session's own address does not answer", got)
				}
			})
		})
	}
	t.Run("from the beginning", func(t *testing.T) {
		scene(t, func(n int, c *talk) { c.good(n) }, func(p *play, _ *Config, _ *Supervisor) { p.net.down.Store(true) }, func(b *bot) {
			time.Sleep(5 * time.Minute)
			if err := b.Ready(); err == nil {
				t.Error("ready without a server")
			}
			b.p.net.down.Store(false)
			time.Sleep(time.Minute)
			if err := b.Ready(); err != nil {
				t.Error(err)
			}
			if n := b.p.identified(); n != 1 {
				t.Errorf("%d identifies", n)
			}
		})
	})
}

// TestANetworkThatFlaps: a resume costs nothing, so that the bot hears almost all the
// time where the connection breaks every 20 s.
func TestANetworkThatFlaps(t *testing.T) {
	scene(t, func(n int, c *talk) {
		if m := c.hello(); m == nil {
			return
		} else if *m.Op == 6 {
			c.send(0, int64(100+n), "RESUMED", map[string]any{})
		} else {
			c.ready(n)
		}
		time.Sleep(20 * time.Second)
	}, nil, func(b *bot) {
		deaf := 0
		const seconds = 600
		for range seconds {
			time.Sleep(time.Second)
			if b.Ready() != nil {
				deaf++
			}
		}
		if deaf > seconds/5 {
			t.Errorf("it was deaf in %d of %d seconds", deaf, seconds)
		}
		if st := b.Stats(); st.Identifies != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestRefusedOpens: a gateway that answers with 503 costs nothing and is named.
func TestRefusedOpens(t *testing.T) {
	scene(t, func(n int, c *talk) { c.good(n) }, func(p *play, _ *Config, _ *Supervisor) { p.refuse.Store(8) }, func(b *bot) {
		time.Sleep(30 * time.Second)
		if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "the gateway answered 503 Service Unavailable") {
			t.Errorf("Ready says %v", err)
		}
		time.Sleep(5 * time.Minute)
		if err := b.Ready(); err != nil {
			t.Error(err)
		}
		if st := b.Stats(); st.Identifies != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestIdentifiesAreNotUsedUp: a Discord that ends every session right after
// READY must not cost the day's thousand, whatever it answers.
func TestIdentifiesAreNotUsedUp(t *testing.T) {
	for name, end := range map[string]func(c *talk){
		"invalid session": func(c *talk) { c.send(9, 0, "", false); <-c.gone },
		"code 4009":       func(c *talk) { c.close(4009) },
		"broken off":      func(*talk) {},
		"code 4009 after 40 s": func(c *talk) {
			time.Sleep(40 * time.Second)
			c.close(4009)
		},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, func(n int, c *talk) {
				if m := c.hello(); m == nil {
					return
				} else if *m.Op == 6 {
					c.send(9, 0, "", false)
					<-c.gone
					return
				}
				c.ready(n)
				settle()
				end(c)
			}, nil, func(b *bot) {
				time.Sleep(24 * time.Hour)
				if n := b.p.identified(); n > 900 || n < 100 {
					t.Errorf("%d identifies in a day", n)
				} else {
					t.Logf("%d identifies in a day", n)
				}
			})
		})
	}
}

// settle lets what goes on come to rest.
func settle() { time.Sleep(10 * time.Millisecond) }

func TestTheBudget(t *testing.T) {
	t.Run("a budget that is used up is waited for", func(t *testing.T) {
		began := time.Time{}
		scene(t, func(n int, c *talk) { c.good(n) }, func(p *play, _ *Config, _ *Supervisor) {
			began = time.Now()
			p.limits = func() (int, int, int, int) {
				if left := 2*time.Hour - time.Since(began); left > 0 {
					return 1000, 0, int(left.Milliseconds()), 1
				}
				return 1000, 1000, 86400_000, 1
			}
		}, func(b *bot) {
			time.Sleep(time.Hour)
			if err := b.Ready(); err == nil || !strings.Contains(err.Error(), "no more sessions before 02:00") {
				t.Errorf("Ready says %v", err)
			}
			time.Sleep(time.Hour + time.Minute)
			if err := b.Ready(); err != nil {
				t.Error(err)
			}
			if n := b.p.identified(); n != 1 {
				t.Errorf("%d identifies", n)
			}
		})
	})
	t.Run("the last twenty are left for a restart", func(t *testing.T) {
		scene(t, func(n int, c *talk) {
			c.hello()
			c.ready(n)
			time.Sleep(time.Minute)
			c.close(4009)
		}, func(p *play, _ *Config, _ *Supervisor) {
			p.limits = func() (int, int, int, int) { return 1000, 25 - p.identified(), 86400_000, 1 }
		}, func(b *bot) {
			time.Sleep(5 * time.Hour)
			if n := b.p.identified(); n != 5 {
				t.Errorf("%d identifies", n)
			}
		})
	})
	t.Run("context ends the wait", func(t *testing.T) {
		scene(t, func(int, *talk) {}, func(p *play, _ *Config, _ *Supervisor) {
			p.limits = func() (int, int, int, int) { return 1000, 0, 86400_000, 1 }
		}, func(*bot) { time.Sleep(time.Minute) }) // scene looks that it ends
	})
}

func TestTwoShards(t *testing.T) {
	for _, conc := range []int{1, 2} {
		t.Run(fmt.Sprintf("max_concurrency %d", conc), func(t *testing.T) {
			scene(t, func(n int, c *talk) {
				m := c.hello()
				if m == nil {
					return
				}
				time.Sleep(300 * time.Millisecond)
				if *m.Op == 6 {
					c.send(0, 100, "RESUMED", nil)
				} else {
					c.ready(n)
				}
				if n == 1 {
					time.Sleep(time.Minute)
					c.close(4009)
				}
				<-c.gone
			}, func(p *play, _ *Config, _ *Supervisor) {
				p.shards = 2
				p.limits = func() (int, int, int, int) { return 1000, 900, 86400_000, conc }
			}, func(b *bot) {
				time.Sleep(10 * time.Second)
				if err := b.Ready(); err != nil {
					t.Error(err)
				}
				b.p.mu.Lock()
				apart := b.p.identifies[1].Sub(b.p.identifies[0])
				first, second := b.p.seen[0], b.p.seen[1]
				b.p.mu.Unlock()
				if first != 1 || second != 1 {
					t.Errorf("identified %d and %d times", first, second)
				}
				if conc == 1 && apart < 5*time.Second || conc == 2 && apart > time.Second {
					t.Errorf("%s between two identifies", apart)
				}
				time.Sleep(51*time.Second + 400*time.Millisecond)
				if err := b.Ready(); err == nil || strings.Count(err.Error(), "shard ") != 1 || !strings.Contains(err.Error(), "of 2 is down since") || !strings.Contains(err.Error(), "4009") {
					t.Errorf("Ready says %v", err)
				}
				time.Sleep(20 * time.Second)
				if err := b.Ready(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestEvents: what is broken is dropped and counted, a panic is survived, order is
// kept and nothing is handed over twice.
func TestEvents(t *testing.T) {
	panics := func(_ *play, cfg *Config, _ *Supervisor) {
		next := cfg.Events
		cfg.Events = func(ctx context.Context, shard int, e any) {
			if m, ok := e.(*discordgo.MessageCreate); ok && m.Content == "panic" {
				panic("no")
			}
			next(ctx, shard, e)
		}
	}
	scene(t, func(n int, c *talk) {
		m := c.hello()
		if n > 1 {
			if m != nil && *m.Op == 6 {
				c.say(50, "10", "m50") // seen before the connection ended
				c.say(51, "10", "m51")
				c.send(0, 52, "RESUMED", map[string]any{})
			}
			<-c.gone
			return
		}
		c.ready(1)
		for i := range 40 {
			c.say(int64(i+2), []string{"10", "11"}[i%2], fmt.Sprintf("m%d", i+2))
		}
		author := `"author":{"id":"7"}`
		for i, d := range []string{
			`{"id":"1","channel_id":"10","content":["x"],` + author + `}`,
			`{"id":"1","channel_id":"10","content":"x"}`,
			`{"id":"1","channel_id":"10","content":"x","mentions":[null],` + author + `}`,
			`null`, `[]`, `"x"`,
		} {
			c.raw(fmt.Sprintf(`{"op":0,"s":%d,"t":"MESSAGE_CREATE","d":%s}`, 42+i, d))
		}
		c.raw(`{"op":0,"s":48,"t":"GUILD_CREATE","d":{"id":"5","channels":[null]}}`) // discordgo panics at this one
		c.raw(`{"op":0,"s":48,"t":"GUILD_CREATE","d":null}`)
		c.raw(`{"op":0,"s":48,"t":"INTERACTION_CREATE","d":{"id":"1","type":3,"token":"t","application_id":"98","member":{"user":{"id":"7"}}}}`)
		c.raw(`{"op":0,"s":48,"t":"NEW_THING","d":{"x":1}}`)
		c.raw(`{"op":0,"t":"MESSAGE_CREATE","d":{}}`)
		c.raw(`not json`)
		c.raw(`{"op":77}`)
		c.say(49, "10", "panic")
		c.say(50, "10", "m50")
		c.raw(`{"op":1,"d":null}`)
		time.Sleep(time.Second)
		if got := c.beat.Load(); got != "50" {
			c.p.t.Errorf("the heartbeat that Discord asked for has the number %v", got)
		}
	}, panics, func(b *bot) {
		time.Sleep(30 * time.Second)
		if err := b.Ready(); err != nil {
			t.Error(err)
		}
		for i, ch := range []string{"10", "11"} {
			var want, got []string
			for j := i; j < 40; j += 2 {
				want = append(want, fmt.Sprintf("m%d", j+2))
			}
			if i == 0 {
				want = append(want, "m50", "m51")
			}
			b.mu.Lock()
			for _, e := range b.events {
				if m, ok := e.(*discordgo.MessageCreate); ok && m.ChannelID == ch {
					got = append(got, m.Content)
				}
			}
			b.mu.Unlock()
			if !slices.Equal(got, want) {
				t.Errorf("channel %s: %q, want %q", ch, got, want)
			}
		}
		st := b.Stats()
		if st.Panics != 1 || st.Identifies != 1 || st.Malformed < 9 {
			t.Errorf("%+v", st)
		}
		if !strings.Contains(b.logs.String(), "a handler panicked") {
			t.Error("the panic is not in the log")
		}
		if strings.Contains(b.logs.String(), "tok-en") {
			t.Error("the token is in the log")
		}
		b.mu.Lock()
		r, ok := b.events[slices.IndexFunc(b.events, func(e any) bool { _, ok := e.(*discordgo.Ready); return ok })].(*discordgo.Ready)
		b.mu.Unlock()
		if !ok || r.User.ID != "99" || r.Application.ID != "98" || len(r.Guilds) != 1 {
			t.Errorf("ready: %+v", r)
		}
	})
}

// TestAFullQueueDropsNothing: the connection is closed, and the resume brings the
// event again that found no room.
func TestAFullQueueDropsNothing(t *testing.T) {
	const sent = 40
	slow := func(_ *play, cfg *Config, s *Supervisor) {
		s.capacity.perKey, s.capacity.total = 8, 12
		next := cfg.Events
		cfg.Events = func(ctx context.Context, shard int, e any) {
			if _, ok := e.(*discordgo.MessageCreate); ok {
				time.Sleep(time.Second)
			}
			next(ctx, shard, e)
		}
	}
	scene(t, func(n int, c *talk) {
		m := c.hello()
		if m == nil {
			return
		}
		from := int64(2)
		if *m.Op == 6 {
			c.p.mu.Lock()
			from = c.p.resumes[len(c.p.resumes)-1].Seq + 1
			c.p.mu.Unlock()
		} else {
			c.ready(n)
		}
		for i := from; i < 2+sent; i++ {
			c.say(i, "10", fmt.Sprint(i))
			settle()
		}
		if *m.Op == 6 {
			c.send(0, 2+sent, "RESUMED", nil)
		}
		<-c.gone
	}, slow, func(b *bot) {
		time.Sleep(5 * time.Minute)
		if err := b.Ready(); err != nil {
			t.Error(err)
		}
		var want []string
		for i := range sent {
			want = append(want, fmt.Sprint(i+2))
		}
		if got := b.texts(); !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		st := b.Stats()
		if st.Full == 0 || st.Identifies != 1 {
			t.Errorf("%+v", st)
		}
		t.Logf("%+v", st)
		b.mu.Lock()
		defer b.mu.Unlock()
		if !slices.ContainsFunc(b.states, func(s State) bool { return strings.Contains(s.Why, "the queue is full") }) {
			t.Error("nobody was told why")
		}
	})
}

// TestADialThatHangsIsGivenUp: a network that heeds no context does not hold up the
// shard, which resumes its session.
func TestADialThatHangsIsGivenUp(t *testing.T) {
	var release chan struct{}
	scene(t, func(n int, c *talk) {
		if n == 1 {
			c.hello()
			c.ready(1)
			time.Sleep(time.Minute)
			return
		}
		c.good(n)
	}, func(p *play, cfg *Config, _ *Supervisor) {
		release = make(chan struct{}) // of the bubble
		var calls atomic.Int64
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if calls.Add(1) == 2 {
				<-release
				return nil, errors.New("late")
			}
			return p.net.Dial(ctx, network, addr)
		}
	}, func(b *bot) {
		time.Sleep(3 * time.Minute)
		if err := b.Ready(); err != nil {
			t.Error(err)
		}
		if st := b.Stats(); st.Identifies != 1 || st.Resumes != 1 {
			t.Errorf("%+v", st)
		}
		close(release)
	})
}

// TestAHundredReconnectsLeaveNothing counts goroutines.
func TestAHundredReconnectsLeaveNothing(t *testing.T) {
	scene(t, func(n int, c *talk) {
		m := c.hello()
		if m == nil {
			return
		}
		if *m.Op == 6 {
			c.send(0, 100, "RESUMED", nil)
		} else {
			c.ready(n)
		}
		t := time.NewTimer(31 * time.Second)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.gone:
			return
		}
		switch n % 4 {
		case 0:
			c.send(7, 0, "", nil)
			<-c.gone
		case 1:
			c.close(4000)
		case 2:
			c.send(9, 0, "", true)
			<-c.gone
		}
	}, nil, func(b *bot) {
		time.Sleep(20 * time.Second)
		before := runtime.NumGoroutine()
		for b.Stats().Lost < 100 {
			time.Sleep(10 * time.Second)
		}
		for b.Ready() != nil || b.States()[0].Since.Add(10*time.Second).After(time.Now()) {
			time.Sleep(time.Second)
		}
		after := runtime.NumGoroutine()
		if after > before+3 {
			buf := make([]byte, 1<<16)
			t.Errorf("%d goroutines, %d before\n%s", after, before, buf[:runtime.Stack(buf, true)])
		}
		t.Logf("%d goroutines, %d before; %+v", after, before, b.Stats())
		if st := b.Stats(); st.Identifies != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// TestTheWaitBetweenConnections holds the bounds of docs.discord.com and of ours.
func TestTheWaitBetweenConnections(t *testing.T) {
	s, err := New(Config{Token: "tok-en", Events: func(context.Context, int, any) {}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		up       time.Duration
		err      error
		fails    int
		sessions int
		fresh    bool // the session is forgotten
		from, to time.Duration
	}{
		{"invalid session waits for one to five seconds", time.Hour, &invalidError{}, 0, 1, true, time.Second, 5 * time.Second},
		{"so does one that may be resumed", time.Hour, &invalidError{true}, 0, 1, false, time.Second, 5 * time.Second},
		{"op 7 is followed at once", time.Hour, errReconnect, 0, 1, false, 0, 0},
		{"but not when it comes again and again", 0, errReconnect, 3, 1, false, 2500 * time.Millisecond, 5 * time.Second},
		{"the first failure waits for less than a second", time.Hour, errUnacknowledged, 9, 1, false, 500 * time.Millisecond, time.Second},
		{"the wait grows", 0, errUnacknowledged, 2, 1, false, 2 * time.Second, 4 * time.Second},
		{"but not for long while a session may be resumed", 0, errUnacknowledged, 20, 1, false, 2500 * time.Millisecond, 5 * time.Second},
		{"nor at all after a connection that held for a moment", 20 * time.Second, errUnacknowledged, 20, 1, false, 500 * time.Millisecond, time.Second},
		{"it grows further when the session is over", 0, &closedError{code: 4009}, 3, 0, true, 4 * time.Second, 8 * time.Second},
		{"also after a moment", 20 * time.Second, &closedError{code: 4009}, 3, 0, true, 4 * time.Second, 8 * time.Second},
		{"and has an end", 0, errUnacknowledged, 1000, 1, false, 15 * time.Second, 30 * time.Second},
		{"that of new sessions is longer, and has an end too", 0, &closedError{code: 4009}, 1000, 1000, true, 2 * time.Minute, 4 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 200 {
				sh := newShard(t.Context(), t.Context(), s, 0, 1)
				sh.session, sh.fails, sh.sessions = &session{}, tc.fails, tc.sessions
				if d := sh.nextDelay(tc.up, tc.err); d < tc.from || d > tc.to {
					t.Fatalf("waits for %s", d)
				}
				if (sh.session == nil) != tc.fresh {
					t.Fatal("the session is not what it should be")
				}
			}
		})
	}
}

// TestAClickDoesNotWaitForMessages: Discord waits 3 s for its answer.
func TestAClickDoesNotWaitForMessages(t *testing.T) {
	scene(t, func(_ int, c *talk) {
		c.hello()
		c.ready(1)
		for i := range 5 {
			c.say(int64(i+2), "10", "slow")
		}
		for i, who := range []string{"7", "8"} {
			c.raw(fmt.Sprintf(`{"op":0,"s":%d,"t":"INTERACTION_CREATE","d":{"id":"%d","type":3,"token":"t","application_id":"98","channel_id":"10","member":{"user":{"id":"%s"}},"data":{"custom_id":"c","component_type":2},"message":{"id":"1","channel_id":"10"}}}`, i+7, i+1, who))
		}
		<-c.gone
	}, func(_ *play, cfg *Config, _ *Supervisor) {
		next := cfg.Events
		cfg.Events = func(ctx context.Context, shard int, e any) {
			switch e.(type) {
			case *discordgo.MessageCreate:
				time.Sleep(10 * time.Second)
			case *discordgo.InteractionCreate:
				time.Sleep(time.Second)
			}
			next(ctx, shard, e)
		}
		told := cfg.OnState
		cfg.OnState = func(st State) {
			told(st)
			panic("OnState")
		}
		cfg.OnGap = func(context.Context, int, time.Time) { panic("OnGap") }
	}, func(b *bot) {
		time.Sleep(1500 * time.Millisecond)
		b.mu.Lock()
		clicks := 0
		for _, e := range b.events {
			if _, ok := e.(*discordgo.InteractionCreate); ok {
				clicks++
			}
		}
		b.mu.Unlock()
		if clicks != 2 {
			t.Errorf("%d clicks of two people arrived", clicks)
		}
		if st := b.Stats(); st.Panics != 3 { // OnState twice, OnGap
			t.Errorf("%+v", st)
		}
		if err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second Run: %v", err)
		}
		time.Sleep(time.Minute)
		if n := len(b.texts()); n != 5 {
			t.Errorf("%d messages", n)
		}
	})
}
