package discord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
	"countersign/adapters/discord/gateway"
)

// house is what replicas share: the store, as far as an adapter asks it.
type house struct {
	bot *agent
	one sync.Mutex // over the bot's Deliver

	mu         sync.Mutex
	changed    chan struct{}
	holder     map[string]string
	waiting    map[string]int // replica -> jobs that it waits for
	lose       map[string]context.CancelFunc
	poster     map[chat.ThreadID]string
	n          map[chat.ThreadID]uint64
	asked      map[string]int
	alive      time.Time
	beats      map[string]int
	registered map[string]string
	closed     map[string]bool // jobs that nobody gets
}

func newHouse() *house {
	return &house{
		bot: &agent{known: map[chat.ThreadID]bool{}}, changed: make(chan struct{}), holder: map[string]string{}, waiting: map[string]int{}, lose: map[string]context.CancelFunc{},
		poster: map[chat.ThreadID]string{}, n: map[chat.ThreadID]uint64{}, asked: map[string]int{}, beats: map[string]int{}, registered: map[string]string{}, closed: map[string]bool{},
	}
}

// once is the bot behind all replicas: it takes an event once.
type once struct {
	*agent
	h *house
}

func (o once) Deliver(ctx context.Context, ev chat.Event) error {
	o.h.one.Lock()
	defer o.h.one.Unlock()
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
			changed := h.changed
			if h.holder[job] == "" && !h.closed[job] {
				mine, cancel := context.WithCancel(ctx)
				h.holder[job], h.lose[job] = who, cancel
				h.mu.Unlock()
				err := run(mine)
				lost := mine.Err() != nil && ctx.Err() == nil
				cancel()
				h.change(func() {
					if h.holder[job] == who {
						h.holder[job] = ""
					}
				})
				if !lost {
					return err
				}
				continue
			}
			h.waiting[who]++
			h.mu.Unlock()
			select {
			case <-changed:
			case <-ctx.Done():
			}
			h.mu.Lock()
			h.waiting[who]--
			h.mu.Unlock()
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
}

func (h *house) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
	close(h.changed)
	h.changed = make(chan struct{})
}

// moves gives a job to another replica while its holder still runs.
func (h *house) moves(job, to string) {
	h.change(func() {
		h.holder[job] = to
		h.lose[job]()
	})
}

// shut says whether nobody gets a job.
func (h *house) shut(job string, yes bool) { h.change(func() { h.closed[job] = yes }) }

func (h *house) holds(job string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holder[job]
}

func (h *house) turn(who string) func(context.Context, chat.ThreadID) (uint64, bool, error) {
	return func(_ context.Context, t chat.ThreadID) (uint64, bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asked[who]++
		return h.n[t], h.poster[t] == who, nil
	}
}

// looks is how often a replica asked whose turn it is.
func (h *house) looks(who string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[who]
}

// tries is what the outbox does before it posts.
func (h *house) tries(who string, t chat.ThreadID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.poster[t] != who {
		h.poster[t] = who
		h.n[t]++
	}
}

// replica is one of several processes on one Discord and one store.
type replica struct {
	*scene
	name string
	h    *house
}

func replicas(t *testing.T, dc discordfake.Config, change func(*town, *discord.Config), names ...string) (*house, []*replica) {
	t.Helper()
	h, w := newHouse(), newTown(t, dc)
	var out []*replica
	for _, name := range names {
		s := &scene{t: t, town: w, bot: h.bot, handled: map[string]int{}, handler: once{h.bot, h}}
		s.cfg = s.config()
		s.cfg.Known, s.cfg.Seen, s.cfg.Open = h.bot.knows, h.bot.seen, h.bot.open
		s.cfg.Do, s.cfg.Turn = h.do(name), h.turn(name)
		s.cfg.Alive = func(context.Context) (time.Time, error) { h.mu.Lock(); defer h.mu.Unlock(); return h.alive, nil }
		s.cfg.SetAlive = func(_ context.Context, at time.Time) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.alive = at
			h.beats[name]++
			return nil
		}
		s.cfg.Registered = func(_ context.Context, g string) (string, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.registered[g], nil
		}
		s.cfg.SetRegistered = func(_ context.Context, g, hash string) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.registered[g] = hash
			return nil
		}
		if change != nil {
			change(w, &s.cfg)
		}
		s.made()
		s.RunsFor(2 * time.Hour)
		out = append(out, &replica{s, name, h})
	}
	return h, out
}

// begin starts a replica and waits until it is ready.
func (r *replica) begin() *replica {
	r.t.Helper()
	r.start()
	r.until(r.name+" is ready", func() bool { return r.Ready() == nil })
	return r
}

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

// say writes as somebody; any replica may hear it.
func (r *replica) hears(user, channel, text string) string {
	r.t.Helper()
	id, err := r.Say(user, channel, text)
	if err != nil {
		r.t.Fatal(err)
	}
	r.until(text+" is heard", func() bool { known, _ := r.bot.seen(r.t.Context(), chat.EventID("discord:"+id)); return known })
	return id
}

const shard = "discord/shard/0/1"

const otherHolds = "another replica holds the connection"

func TestOneReplicaHoldsTheShard(t *testing.T) {
	t.Parallel()
	t.Run("the others do everything else", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, full(), nil, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		if h.holds(shard) != "a" || a.State() != "connected" || b.State() != otherHolds || a.Online() != 1 || a.Identifies() != 1 {
			t.Errorf("%s holds the shard, %s, %s, %d sessions", h.holds(shard), a.State(), b.State(), a.Online())
		}
		th := a.thread(a.hears(a.alice, a.channel, a.at()+" hello"))
		_, channel := split(th)
		ref := b.posts(th, chat.Post{Key: "a", Text: "one"})
		b.edits(th, ref, chat.Post{Key: "a", Text: "one, edited"})
		b.ShowProgress(t.Context(), th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running x", Text: "output"})
		b.until("what runs is shown", func() bool { return len(b.shows(channel)) == 2 })
		b.ShowProgress(t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		b.posts(th, line("call/1", "it ran"))
		b.posts(th, chat.Post{Key: "q", Card: question()})
		same(t, "the thread", b.shows(channel), []string{"one, edited", "it ran", "Restart?"})
		id, first, err := b.Open(t.Context(), b.ops(), "k", chat.Post{Key: "k", Text: "an alert"})
		if err != nil {
			t.Fatal(err)
		}
		b.edits(id, first, chat.Post{Key: "k", Text: "an alert, edited"})
		b.posts(id, chat.Post{Key: "b", Text: "two"})
		// A press comes to the holder, and the card's new face from the outbox of any.
		h.bot.onClick(decided("Approved"))
		if _, err := a.press(a.alice, th, "approve:1"); err != nil {
			t.Fatal(err)
		}
		if len(h.bot.clicked()) != 1 {
			t.Error("the press was not heard")
		}
		same(t, "the thread before the outbox", b.shows(channel), []string{"one, edited", "it ran", "Restart?"})
		if a.Identifies() != 1 {
			t.Errorf("%d identifies", a.Identifies())
		}
	})
	t.Run("direct messages can be answered by all", func(t *testing.T) {
		t.Parallel()
		_, rs := replicas(t, full(), func(_ *town, c *discord.Config) { c.DMs = true }, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		dm := a.DM(a.alice)
		a.hears(a.alice, dm, "hello")
		b.posts(chat.ThreadID("discord:@me:"+dm+":"+dm), chat.Post{Key: "a", Text: "one"})
		same(t, "the conversation", b.shows(dm), []string{"one"})
	})
	t.Run("when the holder ends another one goes on, and what was said meanwhile is heard", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, full(), nil, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		th := a.thread(a.hears(a.alice, a.channel, a.at()+" hello"))
		_, channel := split(th)
		a.until("it is known when somebody was connected", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.beats["a"] > 1 })
		h.shut(shard, true)
		a.end()
		a.until("nobody listens", func() bool { return a.Online() == 0 })
		for _, text := range []string{"one", "two"} {
			if _, err := b.Say(b.bob, channel, text); err != nil {
				t.Fatal(err)
			}
		}
		h.shut(shard, false)
		b.until("they came", func() bool { return len(h.bot.got()) == 3 })
		b.hears(b.alice, channel, "three")
		same(t, "the events", h.bot.texts(), []string{"hello", "one", "two", "three"})
		if h.beats["b"] != 0 && b.State() != "connected" {
			t.Error("a replica without a connection said that it had one")
		}
	})
	t.Run("a replica without the connection does not say that it was connected", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, full(), nil, "a", "b")
		rs[0].begin()
		b := rs[1].begin()
		b.until("time passes", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.beats["a"] > 5 })
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.beats["b"] != 0 {
			t.Errorf("it did %d times", h.beats["b"])
		}
	})
	t.Run("a holder that loses the shard lets go of it at once, and stays of use", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, full(), nil, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		th := a.thread(a.hears(a.alice, a.channel, a.at()+" hello"))
		_, channel := split(th)
		h.moves(shard, "nobody")
		a.until("it let go", func() bool { return a.Online() == 0 && a.Connections() == 0 && a.State() == otherHolds })
		if err := a.Ready(); err != nil {
			t.Errorf("it says %v", err)
		}
		if _, err := a.Say(a.bob, channel, "one"); err != nil {
			t.Fatal(err)
		}
		h.change(func() { h.holder[shard] = "" })
		b.until("it was heard", func() bool { return len(h.bot.got()) == 2 })
		a.posts(th, chat.Post{Key: "a", Text: "two"})
		same(t, "the thread", a.shows(channel), []string{"two"})
	})
	t.Run("shards spread over the replicas", func(t *testing.T) {
		t.Parallel()
		dc := full()
		dc.Shards, dc.MaxConcurrency = 4, 4
		h, rs := replicas(t, dc, func(_ *town, c *discord.Config) { c.Shards = 4 }, "a", "b")
		for i := range 4 {
			h.shut(gateway.JobShard(i, 4), true)
		}
		for _, r := range rs {
			r.start()
		}
		a := rs[0]
		a.until("both ask for all", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.waiting["a"] == 4 && h.waiting["b"] == 4 })
		h.change(func() { clear(h.closed) })
		a.until("all shards are there", func() bool { return a.Online() == 4 })
		count := map[string]int{}
		for i := range 4 {
			count[h.holds(gateway.JobShard(i, 4))]++
		}
		if count["a"] == 0 || count["b"] == 0 || count["a"]+count["b"] != 4 {
			t.Errorf("they are held by %v", count)
		}
		for _, r := range rs {
			r.until("it says so", func() bool {
				return strings.Contains(r.State(), fmt.Sprintf("%d of 4 connections are here", count[r.name]))
			})
		}
		a.hears(a.alice, a.channel, a.at()+" hello")
	})
	t.Run("slash commands are registered once", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, full(), nil, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		const put = "PUT /applications/{application_id}/guilds/{guild_id}/commands"
		a.until("they are", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.registered) == 1 })
		a.end()
		b.until("the other is connected", func() bool { return b.State() == "connected" })
		b.hears(b.alice, b.channel, b.at()+" hello")
		if n := a.Count(put); n != 1 {
			t.Errorf("%d times", n)
		}
	})
}

func TestThreadsOfPeopleHaveABeginning(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	mine := s.begun()
	_, begun := split(mine)
	theirs, err := s.StartThread(s.alice, s.channel, "", "my thread")
	if err != nil {
		t.Fatal(err)
	}
	s.says(s.alice, theirs, "before")
	s.says(s.alice, theirs, s.at()+" asked")
	s.end()
	for _, c := range []string{begun, theirs} {
		if _, err := s.Say(s.bob, c, "missed in "+c); err != nil {
			t.Fatal(err)
		}
	}
	s.restart()
	s.until("what was missed came", func() bool { return len(s.bot.got()) >= 4 })
	id := s.says(s.alice, begun, "last")
	s.until("all is done", func() bool { return s.times(id) > 0 })
	for _, text := range s.bot.texts() {
		if text == "before" {
			t.Error("what people said before they asked the bot was taken for missed")
		}
	}
	if n := len(s.bot.got()); n != 5 {
		t.Errorf("the events are %q", s.bot.texts())
	}
}

func TestReplicasPost(t *testing.T) {
	t.Parallel()
	two := func(t *testing.T) (h *house, a, b *replica, th chat.ThreadID, channel string) {
		h, rs := replicas(t, full(), nil, "a", "b")
		a, b = rs[0].begin(), rs[1].begin()
		th = a.thread(a.hears(a.alice, a.channel, a.at()+" hello"))
		_, channel = split(th)
		return h, a, b, th, channel
	}
	t.Run("a post that a replica made and did not record is found by the next", func(t *testing.T) {
		t.Parallel()
		_, a, b, th, channel := two(t)
		b.posts(th, chat.Post{Key: "a", Text: "one"}) // it has seen the thread
		a.posts(th, chat.Post{Key: "b", Text: "two"})
		a.posts(th, line("call/1", "three"))
		a.posts(th, chat.Post{Key: "q", Card: question()})
		b.posts(th, chat.Post{Key: "q", Card: question()})
		same(t, "the thread", b.shows(channel), []string{"one", "two", "three", "Restart?"})
	})
	t.Run("what a stopped replica wanted to write is not written when it wakes", func(t *testing.T) {
		t.Parallel()
		_, a, b, th, channel := two(t)
		ref := a.posts(th, chat.Post{Key: "a", Text: "one"})
		b.edits(th, ref, chat.Post{Key: "a", Text: "newer"})
		if err := a.Edit(t.Context(), th, ref, chat.Post{Key: "a", Text: "older"}); err == nil {
			t.Error("it was written")
		}
		if _, err := a.Post(t.Context(), th, chat.Post{Key: "b", Text: "two"}); err == nil || errors.Is(err, chat.ErrGone) || errors.Is(err, chat.ErrRejected) {
			t.Errorf("posting says %v", err)
		}
		same(t, "the thread", b.shows(channel), []string{"newer"})
	})
	t.Run("what one wrote after another had written it is taken back", func(t *testing.T) {
		t.Parallel()
		_, a, b, th, channel := two(t)
		twice := a.posts(th, chat.Post{Key: "a", Card: question()})
		c := question()
		c.Title = "Restart now?" // one that b does not take for the first
		kept := b.posts(th, chat.Post{Key: "b", Card: c})
		if err := a.Retract(t.Context(), th, "a", kept, kept); err != nil {
			t.Error(err)
		}
		same(t, "the thread", b.shows(channel), []string{"Restart?", "Restart now?"})
		for range 2 { // the second time it is not there any more
			if err := a.Retract(t.Context(), th, "a", twice, kept); err != nil {
				t.Error(err)
			}
		}
		b.posts(th, chat.Post{Key: "c", Text: "after it"})
		a.posts(th, chat.Post{Key: "d", Text: "it does not come back"})
		same(t, "the thread", b.shows(channel), []string{"Restart now?", "after it", "it does not come back"})
	})
	t.Run("a line of the log stands below what another replica posted", func(t *testing.T) {
		t.Parallel()
		_, a, b, th, channel := two(t)
		a.posts(th, line("call/1", "one"))
		b.posts(th, chat.Post{Key: "q", Text: "two"})
		a.posts(th, line("call/2", "three"))
		a.posts(th, line("call/3", "four"))
		same(t, "the thread", a.shows(channel), []string{"one", "two", "three\n\nfour"})
	})
	t.Run("a draft becomes the post that another replica makes, and stays", func(t *testing.T) {
		t.Parallel()
		h, a, b, th, channel := two(t)
		a.posts(th, chat.Post{Key: "x", Text: "first"})
		a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "so far"})
		a.until("the draft is there", func() bool { return len(a.shows(channel)) == 2 })
		b.posts(th, chat.Post{Key: "reply/1", Text: "the reply"})
		same(t, "the thread", b.shows(channel), []string{"first", "the reply"})
		for _, text := range []string{"so far, and", "so far, and more"} {
			before := h.looks("a")
			a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Text: text, Status: "writing"})
			a.until("it looked at whose turn it is", func() bool { return h.looks("a") > before })
		}
		a.posts(th, chat.Post{Key: "y", Text: "last"})
		same(t, "the thread afterwards", b.shows(channel), []string{"first", "the reply", "last"})
	})
	t.Run("a draft is not written any more once another replica is about to post", func(t *testing.T) {
		t.Parallel()
		h, a, b, th, channel := two(t)
		a.posts(th, chat.Post{Key: "x", Text: "first"})
		a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "so far"})
		a.until("the draft is there", func() bool { return len(a.shows(channel)) == 2 })
		h.tries("b", th)
		for _, text := range []string{"so far, and", "so far, and more"} {
			before := h.looks("a")
			a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Text: text, Status: "writing"})
			a.until("it looked at whose turn it is", func() bool { return h.looks("a") > before })
			if text == "so far, and" {
				b.posts(th, chat.Post{Key: "reply/1", Text: "the reply"})
			}
		}
		a.posts(th, chat.Post{Key: "y", Text: "last"})
		same(t, "the thread", b.shows(channel), []string{"first", "the reply", "last"})
	})
}
