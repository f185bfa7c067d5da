package slack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	slackapi "github.com/slack-go/slack"
	"pgregory.net/rapid"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
)

func TestPlain(t *testing.T) {
	for _, tc := range []struct{ rule, in, out string }{
		{"a mention of the bot at the beginning is an address", "<@UBOT> hello", "hello"},
		{"also with a label and a comma", "<@UBOT|ops>, hello", "hello"},
		{"elsewhere it is its name", "ask <@UBOT> again", "ask @ops again"},
		{"other people keep their ids", "<@U1> is on call", "@U1 is on call"},
		{"channels and groups show their names", "<#C1|ops> <!subteam^S1|@oncall> <!here>", "#ops @oncall @here"},
		{"a link whose text is its address", "<https://x.example|x.example>", "https://x.example"},
		{"a link with another text shows both", "<https://x.example/a|the log>", "the log (https://x.example/a)"},
		{"mail addresses", "<mailto:a@b.example|a@b.example>", "a@b.example"},
		{"what people typed is unescaped once", "a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"},
		{"spaces and lines stay", "a\n  b", "a\n  b"},
		{"an empty entity stays", "<> a", "<> a"},
		{"a typed entity is no entity", "&lt;@U1&gt;", "<@U1>"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			if got := plain(tc.in, "UBOT", "ops"); got != tc.out {
				t.Errorf("got %q, want %q", got, tc.out)
			}
		})
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("<@UBOT> a <https://x|y> &lt;", "UBOT")
	f.Fuzz(func(_ *testing.T, text, bot string) { plain(text, bot, "ops") })
}

func FuzzEvent(f *testing.F) {
	for _, inner := range []string{
		`{"type":"app_mention","channel":"C1","user":"U1","text":"<@U2> hi","ts":"1700000000.000001"}`,
		`{"type":"message","subtype":"message_changed","channel":"C1","message":{"user":"U1","text":"b","ts":"1700000000.000001","edited":{"ts":"1"}},"previous_message":{"text":"a"}}`,
		`{"type":"message","subtype":"message_deleted","channel":"C1","previous_message":{"user":"U1","text":"a","ts":"1700000000.000001"}}`,
		`{"type":"message","subtype":"bot_message","channel":"C1","bot_id":"B1","ts":"1700000000.000001","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_list"}]}],"attachments":[{"fallback":"x"}],"files":[{}]}`,
		`{"type":"message","subtype":"message_changed"}`, `{"type":"app_home_opened","tab":"home","user":"U1"}`, `[]`, `null`,
	} {
		f.Add([]byte(`{"type":"event_callback","team_id":"T1","event":` + inner + `}`))
	}
	a := &Adapter{me: identity{team: "T1", user: "U2"}}
	f.Fuzz(func(t *testing.T, payload []byte) {
		ev, ok, err := parseEvent(payload)
		if !ok || err != nil {
			return
		}
		ev.lane()
		if m, ok := a.fromEvent(ev); ok && m.ts == "" {
			t.Errorf("a message without an id: %s", payload)
		}
	})
}

func FuzzIDs(f *testing.F) {
	f.Add("slack:T1:C1:1700000000.000001")
	f.Add("C1:1700000000.000001,1700000000.000002:log")
	f.Fuzz(func(t *testing.T, s string) {
		if th, err := parseThread(chat.ThreadID(s)); err == nil && string(th.id()) != s {
			t.Errorf("%q reads as %q", s, th.id())
		}
		if r, err := parseRef(chat.MessageRef(s)); err == nil && string(r.String()) != s {
			t.Errorf("%q reads as %q", s, r.String())
		}
	})
}

func TestAThreadIsNeverGuessed(t *testing.T) {
	for _, id := range []chat.ThreadID{"", "slack:T1:C1:", "slack:T1:C1", "slack:T1::1.1", "slack:T1:C1:x", "web:1", "slack:T1:C1:1.1:2", "slack:T1:c1:1.1", "slack::C1:1.1"} {
		if th, err := parseThread(id); !errors.Is(err, chat.ErrGone) {
			t.Errorf("%q is the thread %+v", id, th)
		}
	}
}

func TestStreamedTextOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.String().Draw(t, "text")
		cut := rapid.IntRange(0, len([]rune(whole))).Draw(t, "cut")
		if part := streamed(string([]rune(whole)[:cut])); !strings.HasPrefix(streamed(whole), part) {
			t.Fatalf("%q is no beginning of %q", part, streamed(whole))
		}
		if s := streamed(whole); strings.ContainsAny(s, "<>@") {
			t.Fatalf("%q can mention or link", s)
		}
	})
}

func TestPacer(t *testing.T) {
	limited := func(d time.Duration) error { return &slackapi.RateLimitedError{RetryAfter: d} }
	t.Run("calls of a lane go one at a time, approvals first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			var order []string
			var wg sync.WaitGroup
			call := func(name string, prio scribe.Urgency) {
				wg.Go(func() {
					_ = p.do(t.Context(), "post/C1", prio, func(context.Context) error {
						time.Sleep(10 * time.Millisecond)
						order = append(order, name)
						return nil
					})
				})
				synctest.Wait()
			}
			call("running", scribe.Normal)
			call("log", scribe.Quiet)
			call("reply", scribe.Normal)
			call("card", scribe.First)
			wg.Wait()
			if !slices.Equal(order, []string{"running", "card", "reply", "log"}) {
				t.Errorf("the order was %v", order)
			}
		})
	})
	t.Run("a limit is waited out for as long as Slack says, then once a second", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			began := time.Now()
			tries := 0
			if err := p.do(t.Context(), "post/C1", scribe.Normal, func(context.Context) error {
				if tries++; tries == 1 {
					return limited(7 * time.Second)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(began); d != 7*time.Second {
				t.Errorf("it waited %v", d)
			}
			for range 3 {
				_ = p.do(t.Context(), "post/C1", scribe.Normal, func(context.Context) error { return nil })
			}
			if d := time.Since(began); d != 10*time.Second {
				t.Errorf("three more calls came after %v", d)
			}
		})
	})
	t.Run("a limit that outlives the caller is returned at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			began := time.Now()
			err := p.do(ctx, "post/C1", scribe.Normal, func(context.Context) error { return limited(30 * time.Second) })
			var l *slackapi.RateLimitedError
			if !errors.As(err, &l) || time.Since(began) != 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("what only passes by never waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			_ = p.do(t.Context(), "post/C1", scribe.Passing, func(context.Context) error { return limited(time.Minute) })
			if err := p.do(t.Context(), "post/C1", scribe.Passing, func(context.Context) error { return nil }); !errors.Is(err, scribe.ErrBusy) {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("another channel does not wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			_ = p.do(t.Context(), "post/C1", scribe.Passing, func(context.Context) error { return limited(time.Minute) })
			began := time.Now()
			if err := p.do(t.Context(), "post/C2", scribe.Normal, func(context.Context) error { return nil }); err != nil || time.Since(began) != 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("a refused call holds its method back in every channel, most urgent first", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			_ = p.do(t.Context(), "delete/C1", scribe.Passing, func(context.Context) error { return limited(10 * time.Second) })
			began := time.Now()
			var order []string
			var wg sync.WaitGroup
			for _, c := range []struct {
				key  string
				prio scribe.Urgency
			}{{"delete/C2", scribe.Quiet}, {"delete/C3", scribe.First}, {"delete/C4", scribe.Normal}} {
				wg.Go(func() {
					_ = p.do(t.Context(), c.key, c.prio, func(context.Context) error {
						order = append(order, c.key)
						return nil
					})
				})
				synctest.Wait()
			}
			if err := p.do(t.Context(), "post/C2", scribe.Normal, func(context.Context) error { return nil }); err != nil || time.Since(began) != 0 {
				t.Errorf("another method waits: %v after %v", err, time.Since(began))
			}
			wg.Wait()
			if !slices.Equal(order, []string{"delete/C3", "delete/C4", "delete/C2"}) || time.Since(began) < 10*time.Second {
				t.Errorf("%v after %v", order, time.Since(began))
			}
		})
	})
	t.Run("of a method with a limit no more calls go in any minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			var at []time.Duration
			var mu sync.Mutex
			began := time.Now()
			var wg sync.WaitGroup
			for i := range 120 {
				wg.Go(func() {
					_ = p.do(t.Context(), fmt.Sprint("update/C", i), scribe.First, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						at = append(at, time.Since(began))
						return nil
					})
				})
			}
			wg.Wait()
			for i, d := range at {
				if i >= 50 && d-at[i-50] < time.Minute {
					t.Fatalf("51 calls within %v", d-at[i-50])
				}
			}
			if at[49] != 0 || at[119] > 2*time.Minute {
				t.Errorf("the 50th came after %v, the last after %v", at[49], at[119])
			}
		})
	})
	t.Run("of edits a part is kept for what somebody pressed, and no other waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			began := time.Now()
			edit := func(prio scribe.Urgency) error {
				return p.do(t.Context(), "update/C1", prio, func(context.Context) error { return nil })
			}
			count := func(prio scribe.Urgency) (n int, last error) {
				for range 60 {
					if err := edit(prio); err != nil {
						last = err
					} else {
						n++
					}
				}
				return n, last
			}
			if n, err := count(scribe.Quiet); n > 10 || !errors.As(err, new(*slackapi.RateLimitedError)) {
				t.Errorf("%d lines of the log at once: %v", n, err)
			}
			time.Sleep(30 * time.Second)
			_, _ = count(scribe.Quiet)
			if n, err := count(scribe.Normal); n < 10 || n > 30 || !errors.As(err, new(*slackapi.RateLimitedError)) {
				t.Errorf("%d faces that are over at once: %v", n, err)
			}
			for i := range 15 {
				if err := edit(scribe.First); err != nil || time.Since(began) != 30*time.Second {
					t.Errorf("press %d: %v after %s", i, err, time.Since(began))
				}
			}
		})
	})
	t.Run("sixty presses in two minutes find room among as many turns of looks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			ctx, stop := context.WithCancel(t.Context())
			var looks sync.WaitGroup
			for i := range 60 {
				looks.Go(func() { // as the outbox does it
					for ctx.Err() == nil {
						wait := 300 * time.Millisecond
						err := p.do(ctx, fmt.Sprint("update/C", i), scribe.Quiet, func(context.Context) error { return nil })
						if limited, ok := errors.AsType[*slackapi.RateLimitedError](err); ok {
							wait = limited.RetryAfter
						}
						sleep(ctx, wait)
					}
				})
			}
			late := 0
			for range 60 {
				began := time.Now()
				if err := p.do(ctx, "update/P", scribe.First, func(context.Context) error { return nil }); err != nil || time.Since(began) > time.Second {
					late++
				}
				time.Sleep(2*time.Second - time.Since(began))
			}
			stop()
			looks.Wait()
			if late > 1 {
				t.Errorf("%d of 60 presses are late", late)
			}
		})
	})
	t.Run("what only passes by leaves half of a limit to the rest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			var at []time.Duration
			began := time.Now()
			for i := range 100 {
				if i == 4 && !p.calm("update") || i == 10 && p.calm("update") {
					t.Errorf("after %d calls it is calm: %v", i, p.calm("update"))
				}
				_ = p.do(t.Context(), "update/C1", scribe.Passing, func(context.Context) error { at = append(at, time.Since(began)); return nil })
				time.Sleep(time.Second)
			}
			for i, d := range at {
				if i >= 25 && d-at[i-25] < time.Minute || i > 0 && d-at[i-1] > 25*time.Second {
					t.Errorf("after %v comes %v: %v", at[i-1], d, at)
				}
			}
			if len(at) < 35 {
				t.Errorf("%d calls in 100 s", len(at))
			}
			if err := p.do(t.Context(), "update/C1", scribe.First, func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("who gives up leaves the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPacer()
			_ = p.do(t.Context(), "post/C1", scribe.Passing, func(context.Context) error { return limited(time.Minute) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := p.do(ctx, "post/C1", scribe.Normal, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			if p.methods["post"].queue.Len() != 0 {
				t.Error("it still waits")
			}
		})
	})
}

func TestTimes(t *testing.T) {
	if got := when("1700000000.123456"); !got.Equal(time.Unix(1700000000, 123456000)) {
		t.Errorf("%v", got)
	}
}

// Ids of one workspace mean nothing in another.
func TestAThreadOfAnotherWorkspaceIsGone(t *testing.T) {
	for scheme, own := range map[string]chat.ThreadID{"": "slack:T1:C1:1.2", "slack.labs": "slack.labs:T1:C1:1.2"} {
		a, err := New(Config{Scheme: scheme, BotToken: "xoxb-1", AppToken: "xapp-1", APIURL: "http://127.0.0.1:1/", Known: func(context.Context, chat.ThreadID) (bool, error) { return true, nil }})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []chat.ThreadID{"slack:T1:C1:1.2", "slack.labs:T1:C1:1.2", "slack.other:T1:C1:1.2"} {
			if id == own {
				if th, err := parseThread(id); err != nil || th.id() != id || a.Scheme() != th.scheme {
					t.Errorf("%s: %+v %v", id, th, err)
				}
				continue
			}
			if _, err := a.Post(t.Context(), id, chat.Post{Key: "a", Text: "x"}); !errors.Is(err, chat.ErrGone) {
				t.Errorf("%q posts in %s: %v", scheme, id, err)
			}
			channel := string(id[:strings.LastIndex(string(id), ":")])
			if _, _, err := a.Open(t.Context(), channel, "k", chat.Post{Text: "x"}); !errors.Is(err, chat.ErrGone) {
				t.Errorf("%q opens a thread in %s: %v", scheme, channel, err)
			}
		}
	}
}
