package discord_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
)

const (
	routeHistory  = "GET /channels/{channel_id}/messages"
	routeChannels = "GET /guilds/{guild_id}/channels"
)

// idle says that no thread has open work.
func idle(_ *town, c *discord.Config) {
	c.Open = func(context.Context) ([]chat.ThreadID, error) { return nil, nil }
}

// unheard writes as somebody while the bot is away.
func (s *scene) unheard(user, channel, text string) string {
	s.t.Helper()
	id, err := s.Say(user, channel, text)
	if err != nil {
		s.t.Fatal(err)
	}
	return id
}

// away ends the bot's session without ending the bot; it comes back by itself.
func (s *scene) away() {
	s.t.Helper()
	s.RefuseOpens(-1)
	s.ForgetSessions()
	s.RefuseOpens(1)
	s.DropConnections(0)
	s.until("the bot is away", func() bool { return s.Online() == 0 })
}

// sorted are the texts of the events: conversations have no order among each other.
func (s *scene) sorted() []string { return slices.Sorted(slices.Values(s.bot.texts())) }

// looked restarts the bot and returns when it has looked at what was written meanwhile: what
// keeps when it was last connected is told only then.
func (s *scene) looked() {
	s.t.Helper()
	var mu sync.Mutex
	done := false
	s.cfg.SetAlive = func(context.Context, time.Time) error { mu.Lock(); defer mu.Unlock(); done = true; return nil }
	s.restart()
	s.until("the bot looked at what was written", func() bool { mu.Lock(); defer mu.Unlock(); return done })
}

// read are the channels whose history was asked for, since a number of calls.
func (s *scene) read(from int) (ids []string) {
	for _, c := range s.Calls()[from:] {
		if c.Route == routeHistory {
			ids = append(ids, strings.Split(c.Path, "/")[2])
		}
	}
	return ids
}

// noted keeps what is logged.
type noted struct {
	mu sync.Mutex
	b  strings.Builder
}

func (n *noted) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *noted) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

func TestWhatNobodyListenedTo(t *testing.T) {
	t.Parallel()
	t.Run("a follow-up in an idle thread and a new mention are heard once after a restart", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), idle)
		_, channel := split(s.begun())
		s.end()
		s.unheard(s.bob, channel, "one")
		s.unheard(s.bob, channel, "two")
		id := s.unheard(s.bob, s.channel, s.at()+" another thing")
		s.unheard(s.bob, s.channel, "lunch?")
		s.looked()
		all := s.bot.got()
		same(t, "the events", s.sorted(), []string{"another thing", "hello", "one", "two"})
		if _, _, ok := s.ThreadOf(id); !ok {
			t.Error("the mention has no thread")
		}
		for _, ev := range all {
			if ev.Text == "another thing" && ev.Thread != s.thread(id) {
				t.Errorf("it came as of %s", ev.Thread)
			}
		}
		if i, j := slices.Index(s.bot.texts(), "one"), slices.Index(s.bot.texts(), "two"); i > j {
			t.Error("the thread lost its order")
		}
		s.looked()
		if n := len(s.bot.got()); n != len(all) {
			t.Errorf("another restart brought %q", s.bot.texts())
		}
	})
	t.Run("and after a session that could not be resumed", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), idle, func(_ *town, c *discord.Config) { c.DMs = true })
		_, channel := split(s.begun())
		dm := s.DM(s.alice)
		s.says(s.alice, dm, "in private")
		s.away()
		s.unheard(s.bob, channel, "one")
		s.unheard(s.alice, dm, "two")
		s.unheard(s.bob, s.channel, s.at()+" three")
		s.until("they came", func() bool { return len(s.bot.got()) == 5 })
		same(t, "the events", s.sorted(), []string{"hello", "in private", "one", "three", "two"})
	})
	t.Run("a thread that somebody made of an unheard mention goes on after it", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), idle)
		s.end()
		id := s.unheard(s.alice, s.channel, s.at()+" one")
		if _, err := s.StartThread(s.bob, s.channel, id, "made by hand"); err != nil {
			t.Fatal(err)
		}
		s.unheard(s.bob, id, "two")
		s.looked()
		same(t, "the events", s.bot.texts(), []string{"one", "two"})
	})
	t.Run("what was never for the bot is not", func(t *testing.T) {
		t.Parallel()
		listed, mentioned := "", ""
		s := play(t, full(), idle, func(w *town, c *discord.Config) {
			listed = w.AddUser(discordfake.User{Name: "alerts", Bot: true})
			w.AddMember(w.guild, listed)
			mentioned = w.AddChannel(discordfake.Channel{Guild: w.guild, Name: "careful", Type: discordfake.TypeText})
			c.Channel = func(id string) discord.ChannelRules {
				return discord.ChannelRules{MentionOnly: id == mentioned, Bots: []string{listed}}
			}
		})
		careful := s.says(s.alice, mentioned, s.at()+" hello")
		theirs, err := s.StartThread(s.alice, s.channel, "", "my thread")
		if err != nil {
			t.Fatal(err)
		}
		s.end()
		s.unheard(s.pager, s.channel, s.at()+" a bot that is not listed")
		s.unheard(listed, s.channel, "an alert")
		s.unheard(s.alice, careful, "without the mention that is needed")
		s.unheard(s.alice, careful, s.at()+" with it")
		s.unheard(s.alice, theirs, "before the bot was asked in")
		s.unheard(s.alice, theirs, s.at()+" asked in")
		s.unheard(s.bob, theirs, "after that")
		alone, err := s.StartThread(s.alice, s.channel, "", "without the bot")
		if err != nil {
			t.Fatal(err)
		}
		s.unheard(s.alice, alone, "nobody asked you")
		s.looked()
		same(t, "the events", s.sorted(), []string{"after that", "an alert", "asked in", "hello", "with it"})
	})
	t.Run("a channel that the bot may not read is not asked for", func(t *testing.T) {
		t.Parallel()
		var out noted
		s := play(t, full(), idle, func(_ *town, c *discord.Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
		_, channel := split(s.begun())
		var closed []string
		for _, deny := range []uint64{discordfake.PermViewChannel, discordfake.PermReadMessageHistory} {
			c := s.AddChannel(discordfake.Channel{Guild: s.guild, Name: "closed", Type: discordfake.TypeText})
			s.SetOverwrites(c, discordfake.Overwrite{User: s.BotID(), Deny: deny})
			id, err := s.StartThread(s.alice, c, "", "theirs")
			if err != nil {
				t.Fatal(err)
			}
			closed = append(closed, c, id)
		}
		s.end()
		for _, c := range closed {
			s.unheard(s.alice, c, s.at()+" psst")
		}
		s.unheard(s.alice, channel, "one")
		refused, from := s.InvalidRequests(), len(s.Calls())
		s.looked()
		same(t, "the events", s.bot.texts(), []string{"hello", "one"})
		for _, c := range s.read(from) {
			if slices.Contains(closed, c) {
				t.Errorf("%s was asked for", c)
			}
		}
		if n := s.InvalidRequests() - refused; n != 0 {
			t.Errorf("%d calls were refused", n)
		}
		if n := strings.Count(out.String(), "Read Message History"); n != 1 {
			t.Errorf("the log names the permission %d times", n)
		}
	})
	t.Run("a channel in which nothing was written is not read", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), idle)
		s.begun()
		s.end()
		// Two hours later, all that was said is older than the gap can be.
		s.cfg.Now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		from := len(s.Calls())
		s.looked()
		if ids := s.read(from); len(ids) != 0 {
			t.Errorf("%d histories were read", len(ids))
		}
	})
	t.Run("what could not be listed is looked for again", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), idle)
		s.end()
		s.unheard(s.alice, s.channel, s.at()+" one")
		before := s.Count(routeChannels)
		s.FailNext(routeChannels, 1, discordfake.Answer{Status: 400})
		s.looked()
		same(t, "the events", s.bot.texts(), []string{"one"})
		if n := s.Count(routeChannels) - before; n != 2 {
			t.Errorf("the channels were listed %d times", n) // in vain, and once more
		}
	})
	t.Run("but not for ever", func(t *testing.T) {
		t.Parallel()
		var out noted
		s := play(t, full(), idle, func(_ *town, c *discord.Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
		s.end()
		s.unheard(s.alice, s.channel, s.at()+" one")
		s.FailNext(routeChannels, 1000, discordfake.Answer{Status: 400})
		s.looked()
		contains(t, "the log", out.String(), "is not tried again")
		same(t, "the events", s.bot.texts(), []string{})
		s.says(s.alice, s.channel, s.at()+" two")
		same(t, "the events", s.bot.texts(), []string{"two"})
	})
	t.Run("within Discord's limits", func(t *testing.T) {
		t.Parallel()
		dc := full()
		dc.RateLimits = true
		s := stage(t, dc, idle)
		for i := range 12 {
			c := s.AddChannel(discordfake.Channel{Guild: s.guild, Name: fmt.Sprint(i), Type: discordfake.TypeText})
			s.unheard(s.alice, c, s.at()+" hello")
		}
		s.start()
		s.until("they came", func() bool { return len(s.bot.got()) == 12 })
		for _, c := range s.Calls() {
			if c.Status == 429 {
				t.Errorf("%s met a limit: %s", c.Route, c.Answer)
			}
		}
	})
	t.Run("the replica that takes a shard over hears it", func(t *testing.T) {
		t.Parallel()
		h, rs := replicas(t, full(), idle, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		root := a.hears(a.alice, a.channel, a.at()+" hello")
		h.shut(shard, true)
		a.end()
		a.until("nobody listens", func() bool { return a.Online() == 0 })
		b.unheard(b.bob, root, "one")
		b.unheard(b.bob, b.channel, b.at()+" two")
		h.shut(shard, false)
		b.until("they came", func() bool { return len(h.bot.got()) == 3 })
		b.hears(b.alice, root, "three")
		same(t, "the events", b.sorted(), []string{"hello", "one", "three", "two"})
	})
	t.Run("no more is read than the bounds allow, the newest channels first, and the log says so", func(t *testing.T) {
		t.Parallel()
		var out noted
		s := stage(t, full(), idle, func(_ *town, c *discord.Config) { c.Log = slog.New(slog.NewTextHandler(&out, nil)) })
		s.Bound(2, 1)
		var ids []string
		for i := range 3 {
			c := s.AddChannel(discordfake.Channel{Guild: s.guild, Name: fmt.Sprint(i), Type: discordfake.TypeText})
			ids = append(ids, c)
		}
		for i := range 101 {
			text := "and so on"
			switch i {
			case 0:
				text = s.at() + " first in 2"
			case 100:
				text = s.at() + " last in 2"
			}
			s.unheard(s.alice, ids[2], text)
		}
		s.unheard(s.alice, ids[0], s.at()+" in 0")
		s.unheard(s.alice, ids[1], s.at()+" in 1")
		s.unheard(s.alice, ids[2], "the newest")
		s.start()
		s.ready()
		s.until("they came", func() bool { return len(s.bot.got()) >= 2 })
		s.says(s.alice, s.channel, s.at()+" now")
		same(t, "the events", s.sorted(), []string{"first in 2", "in 1", "now"})
		contains(t, "the log", out.String(), "only some are read", "only the first messages were read")
	})
}
