package slack_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

// house is what replicas share: the store, as far as an adapter asks it.
type house struct {
	bot *agent

	mu      sync.Mutex
	changed chan struct{}
	holder  map[string]string
	lose    map[string]context.CancelFunc
	poster  map[chat.ThreadID]string
	n       map[chat.ThreadID]uint64
	at      map[string]time.Time
	beats   int
	dead    map[string]bool   // replicas that do nothing any more
	during  map[string]func() // what happens right after a replica asked whose turn it is
}

func newHouse() *house {
	return &house{
		bot: &agent{known: map[chat.ThreadID]bool{}}, changed: make(chan struct{}), holder: map[string]string{},
		lose: map[string]context.CancelFunc{}, poster: map[chat.ThreadID]string{}, n: map[chat.ThreadID]uint64{}, at: map[string]time.Time{},
		dead: map[string]bool{}, during: map[string]func(){},
	}
}

// once is the bot behind all replicas: it takes an event once.
type once struct {
	*agent
	mu *sync.Mutex
}

func (o once) Deliver(ctx context.Context, ev chat.Event) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if known, _ := o.seen(ctx, ev.ID); known {
		return nil
	}
	return o.agent.Deliver(ctx, ev)
}

// do is Config.Do of one replica.
func (h *house) do(who string) func(context.Context, string, func(context.Context) error) error {
	return func(ctx context.Context, job string, run func(context.Context) error) error {
		for {
			h.mu.Lock()
			free, changed := h.holder[job] == "", h.changed
			if free {
				h.holder[job] = who
				mine, cancel := context.WithCancel(ctx)
				h.lose[job] = cancel
				h.mu.Unlock()
				err := run(mine)
				lost := mine.Err() != nil && ctx.Err() == nil
				cancel()
				h.release(job, who)
				if !lost {
					return err
				}
				continue
			}
			h.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

func (h *house) release(job, who string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder[job] == who {
		h.holder[job] = ""
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *house) holds(job string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder[job]
}

// turn is Config.Turn of one replica, and tries what the outbox does before it posts.
func (h *house) turn(who string) func(context.Context, chat.ThreadID) (uint64, bool, error) {
	return func(_ context.Context, t chat.ThreadID) (uint64, bool, error) {
		h.mu.Lock()
		n, mine, dead, during := h.n[t], h.poster[t] == who, h.dead[who], h.during[who]
		h.mu.Unlock()
		if dead {
			return 0, false, errors.New("it is dead")
		}
		if during != nil {
			during()
		}
		return n, mine, nil
	}
}

func (h *house) tries(who string, t chat.ThreadID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.poster[t] != who {
		h.poster[t] = who
		h.n[t]++
	}
}

func (h *house) get(key string) func(context.Context) (time.Time, error) {
	return func(context.Context) (time.Time, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.at[key], nil
	}
}

func (h *house) set(key string) func(context.Context, time.Time) error {
	return func(_ context.Context, at time.Time) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.at[key] = at
		h.beats++
		return nil
	}
}

// replica is one of several processes on one Slack and one store.
type replica struct {
	*scene
	name string
	h    *house
}

// replicas are processes that share the first one's Slack.
func replicas(t *testing.T, sc slackfake.Config, names ...string) (*house, []*replica) {
	t.Helper()
	h := newHouse()
	one := &sync.Mutex{}
	server := workspace(t, quick(sc))
	var out []*replica
	for _, name := range names {
		s := &scene{t: t, server: server, bot: h.bot, cfg: config(server)}
		s.cfg.Sockets = 1
		s.cfg.Known, s.cfg.Seen, s.cfg.Open = h.bot.knows, h.bot.seen, h.bot.open
		s.cfg.Do, s.cfg.Turn = h.do(name), h.turn(name)
		s.cfg.Alive, s.cfg.SetAlive, s.cfg.Deaf, s.cfg.SetDeaf = h.get("alive"), h.set("alive"), h.get("deaf"), h.set("deaf")
		s.Adapter = adapter(t, s.cfg)
		s.RunsFor(2 * time.Hour)
		s.Hurry(100 * time.Millisecond)
		out = append(out, &replica{s, name, h})
		s.handler = once{h.bot, one}
	}
	return h, out
}

func (r *replica) begin() *replica {
	r.t.Helper()
	r.start()
	r.ready()
	return r
}

// posts is what the outbox does.
func (r *replica) posts(th chat.ThreadID, p chat.Post) chat.MessageRef {
	r.t.Helper()
	r.h.tries(r.name, th)
	return r.post(th, p)
}

func (r *replica) edits(th chat.ThreadID, ref chat.MessageRef, p chat.Post) {
	r.t.Helper()
	r.h.tries(r.name, th)
	r.edit(th, ref, p)
}

func TestReplicasHear(t *testing.T) {
	t.Run("each message is heard once, whichever replica gets it, and one that ends is not missed", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, slackfake.Config{}, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		a.until("both listen", func() bool { return a.server.Sockets() == 2 })
		root := a.mention("", "0")
		want := []string{"0"}
		for i := range 20 {
			a.say(slackfake.Message{Thread: root, Text: fmt.Sprint(i + 1)})
			want = append(want, fmt.Sprint(i+1))
		}
		a.end()
		for i := range 5 {
			b.say(slackfake.Message{Thread: root, Text: fmt.Sprint(i + 21)})
			want = append(want, fmt.Sprint(i+21))
		}
		b.settled()
		same(t, "heard", h.bot.texts(), want)
	})
	t.Run("what another replica heard is no reason to connect again", func(t *testing.T) {
		t.Parallel()
		_, rs := replicas(t, slackfake.Config{}, "a", "b")
		a, _ := rs[0].begin(), rs[1].begin()
		a.until("both listen", func() bool { return a.server.Sockets() == 2 })
		opens := a.server.Count("apps.connections.open")
		root := a.mention("", "0")
		for i := range 10 {
			a.say(slackfake.Message{Thread: root, Text: fmt.Sprint(i + 1)})
		}
		checks := a.server.Count("conversations.replies")
		a.until("the thread was compared some times", func() bool { return a.server.Count("conversations.replies") >= checks+5 })
		if n := a.server.Count("apps.connections.open"); n != opens {
			t.Errorf("%d more connections were opened", n-opens)
		}
		if n := len(a.bot.got()); n != 11 {
			t.Errorf("%d events", n)
		}
	})
	t.Run("one replica alone compares with the history, and another goes on when it ends", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, slackfake.Config{RetryDelays: []time.Duration{}}, "a", "b")
		a := rs[0].begin()
		a.until("one has the job", func() bool { return h.holds(slack.JobCheck) == "a" })
		b := rs[1].begin()
		root := a.mention("", "x")
		if h.holds(slack.JobCheck) != "a" {
			t.Error("the job went away")
		}
		a.end()
		b.until("the other has the job", func() bool { return h.holds(slack.JobCheck) == "b" })
		b.server.Deafen(true)
		if _, err := b.server.Say(t.Context(), slackfake.Message{User: "UALICE", Channel: "C1", Thread: root, Text: "y"}); err == nil {
			t.Fatal("somebody acknowledged it")
		}
		b.until("it is found in the history", func() bool { return len(h.bot.got()) == 2 })
		b.server.Deafen(false)
	})
	t.Run("a message that no replica heard makes all of them connect again", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, slackfake.Config{RetryDelays: []time.Duration{}}, "a", "b", "c")
		a := rs[0].begin()
		for _, r := range rs[1:] {
			r.begin()
		}
		a.until("all listen", func() bool { return a.server.Sockets() == 3 })
		root := a.mention("", "x")
		h.mu.Lock()
		beats := h.beats
		h.mu.Unlock()
		a.until("each looked after itself", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.beats >= beats+9 })
		opens := a.server.Count("apps.connections.open")
		a.server.Deafen(true)
		if _, err := a.server.Say(t.Context(), slackfake.Message{User: "UALICE", Channel: "C1", Thread: root, Text: "y"}); err == nil {
			t.Fatal("somebody acknowledged it")
		}
		a.until("it is found in the history", func() bool { return len(h.bot.got()) == 2 })
		a.until("all connect again", func() bool { return a.server.Count("apps.connections.open") >= opens+3 })
		a.server.Deafen(false)
		a.say(slackfake.Message{Thread: root, Text: "z"})
		same(t, "heard", h.bot.texts(), []string{"x", "y", "z"})
	})
	t.Run("what was said while no replica ran is found by the first that comes back", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, slackfake.Config{RetryDelays: []time.Duration{}}, "a", "b")
		a := rs[0].begin()
		root := a.mention("", "x")
		a.until("it is known when somebody was connected", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.beats > 0 })
		a.end()
		a.until("nobody listens", func() bool { return a.server.Sockets() == 0 })
		if _, err := a.server.Say(t.Context(), slackfake.Message{User: "UALICE", Channel: "C1", Thread: root, Text: "y"}); err == nil {
			t.Fatal("somebody acknowledged it")
		}
		b := rs[1].begin()
		b.until("it is heard", func() bool { return len(h.bot.got()) == 2 })
	})
	t.Run("a replica for which Slack has no connection left is of use while others are connected", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, slackfake.Config{}, "a", "b")
		a, b := rs[0], rs[1]
		a.cfg.Sockets = 10
		a.Adapter = adapter(t, a.cfg)
		a.Hurry(20 * time.Millisecond)
		a.begin()
		a.until("all ten are open", func() bool { return a.server.Sockets() == 10 })
		b.start()
		b.until("it is ready", func() bool { return b.Ready() == nil })
		contains(t, "its state", b.State(), "other replicas hold the ten connections")
		th := b.begun()
		b.posts(th, chat.Post{Key: "a", Text: "one"})
		same(t, "the thread", b.shows(th), []string{"one"})
		h.set("alive")(t.Context(), time.Time{}) //nolint:errcheck // it has none
		a.end()
		b.until("it connects", func() bool { return b.State() == "connected" })
	})
	t.Run("one that is the first to work in a thread doesn't look it up, whoever heard of it", func(t *testing.T) {
		t.Parallel()
		_, rs := replicas(t, slackfake.Config{}, "a", "b")
		a, b := rs[0].begin(), rs[1]
		th := a.begun()
		b.cfg.First = func(_ context.Context, t chat.ThreadID) bool { return t == th }
		b.Adapter = adapter(t, b.cfg)
		b.Hurry(100 * time.Millisecond)
		b.begin()
		b.posts(th, chat.Post{Key: "a", Text: "one"})
		for _, c := range b.server.Calls() {
			if c.Method == "conversations.replies" && c.Args.Get("include_all_metadata") == "1" {
				t.Errorf("it was looked up: %v", c.Args)
			}
		}
	})
	t.Run("a bot alone for which Slack has no connection left says why", func(t *testing.T) {
		t.Parallel()
		_, rs := replicas(t, slackfake.Config{}, "a")
		a := rs[0]
		a.cfg.Sockets = 10
		a.Adapter = adapter(t, a.cfg)
		a.Hurry(20 * time.Millisecond)
		a.begin()
		a.until("all ten are open", func() bool { return a.server.Sockets() == 10 })
		lone := &scene{t: t, server: a.server, bot: a.bot, cfg: config(a.server)}
		lone.Adapter = adapter(t, lone.cfg)
		lone.Hurry(100 * time.Millisecond)
		lone.start()
		lone.until("it says so", func() bool {
			err := lone.Ready()
			return err != nil && strings.Contains(err.Error(), "each replica has two, so run no more than five")
		})
	})
}

// TestThreadsOfPeople: what people said before they asked the bot into their thread was
// not missed.
func TestThreadsOfPeople(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule string
		say  func(s *scene, root string)
		want []string
	}{
		{"a mention after what people said", func(s *scene, root string) {
			s.say(slackfake.Message{Thread: root, User: "UBOB", Text: "one"})
			s.say(slackfake.Message{Thread: root, User: "UALICE", Text: "two"})
			s.mention(root, "three")
			s.say(slackfake.Message{Thread: root, User: "UBOB", Text: "four"})
		}, []string{"three", "four"}},
		{"a thread that the bot began", func(s *scene, _ string) {
			id, _, err := s.Open(s.t.Context(), "slack:T1:C1", "k", chat.Post{Key: "k", Text: "an alert"})
			if err != nil {
				s.t.Fatal(err)
			}
			s.bot.mu.Lock()
			s.bot.known[id] = true
			s.bot.mu.Unlock()
			_, ts := split(id)
			s.say(slackfake.Message{Thread: ts, User: "UBOB", Text: "one"})
		}, []string{"one"}},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			t.Parallel()
			s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Sockets = 1 })
			root := s.say(slackfake.Message{User: "UBOB", Text: "look at this"})
			opens := s.server.Count("apps.connections.open")
			tc.say(s, root)
			checks := s.server.Count("conversations.replies")
			s.until("the thread was compared some times", func() bool { return s.server.Count("conversations.replies") >= checks+5 })
			same(t, "heard", s.bot.texts(), tc.want)
			if n := s.server.Count("apps.connections.open"); n != opens {
				t.Errorf("%d more connections were opened", n-opens)
			}
		})
	}
	t.Run("what was missed after the mention is found", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{RetryDelays: []time.Duration{}})
		root := s.say(slackfake.Message{User: "UBOB", Text: "look at this"})
		s.say(slackfake.Message{Thread: root, User: "UBOB", Text: "one"})
		s.mention(root, "two")
		s.server.Deafen(true)
		if _, err := s.server.Say(t.Context(), slackfake.Message{User: "UBOB", Channel: "C1", Thread: root, Text: "three"}); err == nil {
			t.Fatal("Slack got an acknowledgement")
		}
		s.until("it is found", func() bool { return len(s.bot.got()) == 2 })
		s.server.Deafen(false)
		same(t, "heard", s.bot.texts(), []string{"two", "three"})
	})
}

func TestReplicasPost(t *testing.T) {
	line := func(key, text string) chat.Post { return chat.Post{Key: key, Text: text, Log: true, Quiet: true} }
	two := func(t *testing.T, sc slackfake.Config) (h *house, a, b *replica, th chat.ThreadID) {
		h, rs := replicas(t, sc, "a", "b")
		a, b = rs[0].begin(), rs[1].begin()
		return h, a, b, a.begun()
	}
	t.Run("a post that a replica made and did not record is found by the next", func(t *testing.T) {
		t.Parallel()
		_, a, b, th := two(t, slackfake.Config{})
		b.posts(th, chat.Post{Key: "a", Text: "one"}) // it has seen the thread
		a.posts(th, chat.Post{Key: "b", Text: "two"})
		a.posts(th, line("call/1", "three"))
		a.end()
		b.posts(th, chat.Post{Key: "b", Text: "two"})
		b.posts(th, line("call/1", "three"))
		same(t, "the thread", b.shows(th), []string{"one", "two", "three"})
	})
	t.Run("what a stopped replica wanted to write is not written when it wakes", func(t *testing.T) {
		t.Parallel()
		h, a, b, th := two(t, slackfake.Config{})
		ref := a.posts(th, chat.Post{Key: "a", Text: "one"})
		h.tries("a", th) // and is stopped here
		b.edits(th, ref, chat.Post{Key: "a", Text: "newer"})
		if err := a.Edit(t.Context(), th, ref, chat.Post{Key: "a", Text: "older"}); err == nil {
			t.Error("it was written")
		}
		if _, err := a.Post(t.Context(), th, chat.Post{Key: "b", Text: "two"}); err == nil || errors.Is(err, chat.ErrGone) || errors.Is(err, chat.ErrRejected) {
			t.Errorf("posting says %v", err)
		}
		same(t, "the thread", b.shows(th), []string{"newer"})
	})
	t.Run("what one wrote after another had written it is taken back", func(t *testing.T) {
		t.Parallel()
		_, a, b, th := two(t, slackfake.Config{})
		twice := a.posts(th, chat.Post{Key: "a", Text: "one"})
		kept := b.posts(th, chat.Post{Key: "b", Text: "one"}) // under another key: b did not find the first
		if err := a.Retract(t.Context(), th, "a", kept, kept); err != nil {
			t.Error(err)
		}
		same(t, "the thread", b.shows(th), []string{"one", "one"})
		for range 2 { // the second time it is not there any more
			if err := a.Retract(t.Context(), th, "a", twice, kept); err != nil {
				t.Error(err)
			}
		}
		same(t, "the thread", b.shows(th), []string{"one"})
		b.edits(th, kept, chat.Post{Key: "b", Text: "newer"})
		same(t, "the thread", b.shows(th), []string{"newer"})
	})
	t.Run("one that is stopped in the middle of its waiting neither", func(t *testing.T) {
		t.Parallel()
		h, a, b, th := two(t, slackfake.Config{})
		a.posts(th, chat.Post{Key: "a", Text: "one"})
		// The limit holds the call back until the other replica has gone on.
		a.server.FailNext("chat.postMessage", 1, slackfake.Answer{Status: 429, RetryAfter: time.Second})
		h.tries("a", th)
		posts := a.server.Count("chat.postMessage")
		failed := make(chan error, 1)
		go func() {
			_, err := a.Post(t.Context(), th, chat.Post{Key: "b", Text: "two"})
			failed <- err
		}()
		a.until("it waits", func() bool { return a.server.Count("chat.postMessage") > posts })
		b.posts(th, chat.Post{Key: "b", Text: "two"})
		if err := <-failed; err == nil {
			t.Error("it was posted")
		}
		same(t, "the thread", b.shows(th), []string{"one", "two"})
	})
	t.Run("a line of the log stands below what another replica posted", func(t *testing.T) {
		t.Parallel()
		_, a, b, th := two(t, slackfake.Config{})
		a.posts(th, line("call/1", "one"))
		b.posts(th, chat.Post{Key: "q", Text: "two"})
		a.posts(th, line("call/2", "three"))
		a.posts(th, line("call/3", "four"))
		got := a.shows(th)
		if len(got) != 3 || got[0] != "one" || got[1] != "two" || !strings.Contains(got[2], "three") || !strings.Contains(got[2], "four") {
			t.Errorf("the thread shows %q", got)
		}
	})
	for _, streaming := range []bool{false, true} {
		t.Run(fmt.Sprintf("a draft gives way to the post that another replica makes, which stays (streaming %t)", streaming), func(t *testing.T) {
			t.Parallel()
			_, a, b, th := two(t, slackfake.Config{Streaming: streaming, AssistantStatus: true})
			a.posts(th, chat.Post{Key: "x", Text: "first"})
			a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "so far"})
			a.until("the draft is there", func() bool { return len(a.shows(th)) == 2 })
			a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Done: true})
			a.ShowProgress(t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: "thinking"}) // is shown after that
			a.until("its end was taken notice of", func() bool { return strings.Contains(a.server.Status(split(th)), "thinking") })
			b.posts(th, chat.Post{Key: "reply/1", Text: "the reply"})
			same(t, "the thread", b.shows(th), []string{"first", "the reply"})
			a.posts(th, chat.Post{Key: "y", Text: "last"})
			same(t, "the thread afterwards", b.shows(th), []string{"first", "the reply", "last"})
		})
	}
	t.Run("a reply is streamed to who began the thread when another replica heard them", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, slackfake.Config{Streaming: true}, "a", "b")
		a := rs[0].begin()
		th := a.begun()
		b := rs[1].begin()
		h.tries("b", th)
		b.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "so far"})
		b.until("it is streamed", func() bool { return b.accepted("chat.startStream") == 1 })
	})
	t.Run("a thread is opened once, whichever replica tries", func(t *testing.T) {
		t.Parallel()
		_, rs := replicas(t, slackfake.Config{}, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		var ids []string
		for _, r := range []*replica{a, b, a} {
			id, _, err := r.Open(t.Context(), "slack:T1:C1", "k", chat.Post{Key: "k", Text: "an alert"})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, string(id))
		}
		if len(slices.Compact(ids)) != 1 {
			t.Errorf("the threads are %q", ids)
		}
	})
	t.Run("a press is decided where it arrives, and the outbox alone paints the card", func(t *testing.T) {
		t.Parallel()
		h, a, b, th := two(t, slackfake.Config{})
		card := &chat.Card{Title: "Restart?", Code: "systemctl restart web", Choose: []chat.Button{{ID: "approve:1", Label: "Approve", Style: chat.StyleApprove}}}
		done := &chat.Card{Title: "Approved", Code: card.Code, Final: true}
		ref := a.posts(th, chat.Post{Key: "q", Card: card})
		h.bot.onClick(func(chat.Click) (chat.Answer, error) {
			b.edits(th, ref, chat.Post{Key: "q", Card: done}) // the outbox of any replica
			return chat.Answer{Card: card, OK: true, Notice: "One more is needed."}, nil
		})
		channel, root := split(th)
		for _, m := range a.server.Messages(channel, root) {
			if id, ok := action(m, "approve:1"); ok {
				if _, err := a.server.Press(t.Context(), "UALICE", channel, m.TS, id); err != nil {
					t.Fatal(err)
				}
			}
		}
		a.until("the person was told", func() bool { return len(a.whispers(channel, "UALICE")) == 1 })
		if got := a.shows(th); len(got) != 1 || !strings.Contains(got[0], "Approved") {
			t.Errorf("the thread shows %q", got)
		}
	})
}
