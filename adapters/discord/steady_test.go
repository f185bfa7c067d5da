package discord_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
	"countersign/test/needstest"
)

func TestShardsTogether(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s := stage(t, discordfake.Config{Privileged: discordfake.IntentMessageContent, Shards: 3}, func(w *town, c *discord.Config) {
		c.Shards = 0
		c.Guilds = append(c.Guilds, w.AddGuild(discordfake.Guild{ID: "8388608", Name: "second"}))
	})
	second := s.cfg.Guilds[1]
	c := s.AddChannel(discordfake.Channel{Guild: second, Name: "x", Type: discordfake.TypeText})
	s.AddMember(second, s.alice)
	s.start()
	s.ready()
	s.until("all shards are there", func() bool { return s.Online() == 3 })
	th := s.begun()
	id := s.says(s.alice, c, s.at()+" hello there")
	same(t, "the events", s.bot.texts(), []string{"hello", "hello there"})
	s.post(th, chat.Post{Key: "a", Text: "one"})
	s.post(chat.ThreadID("discord:"+second+":"+c+":"+id), chat.Post{Key: "a", Text: "two"})
	same(t, "the second server", s.shows(id), []string{"two"})
}

// TestManyPressesLeaveNothingBehind: interactions come with a token each, and none
// of them may be kept.
func TestManyPressesLeaveNothingBehind(t *testing.T) {
	s := play(t, full())
	th := s.begun()
	s.post(th, chat.Post{Key: "q", Card: question()})
	press := func(n int) {
		for range n {
			if _, err := s.press(s.alice, th, "approve:1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	press(50)
	before := runtime.NumGoroutine()
	press(500)
	s.until("no goroutine is left", func() bool { return runtime.NumGoroutine() <= before+5 })
	if n := len(s.bot.clicked()); n != 550 {
		t.Errorf("%d clicks", n)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	t.Run("a page of Cloudflare's is a limit like any other", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.FailNext(routePost, 1, discordfake.Answer{Status: 429, HTML: true, RetryAfter: 50 * time.Millisecond})
		s.post(th, chat.Post{Key: "a", Text: "one"})
		same(t, "the thread", s.shows(channel), []string{"one"})
	})
	t.Run("a bot without permissions does not storm", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		none := discordfake.PermViewChannel | discordfake.PermReadMessageHistory
		s.SetRole(s.guild, s.BotRole(s.guild), none)
		s.SetRole(s.guild, s.guild, none)
		before := s.InvalidRequests()
		_, err := s.Post(t.Context(), th, chat.Post{Key: "a", Text: "one"})
		if err == nil || !strings.Contains(err.Error(), "Missing Permissions") {
			t.Errorf("posting: %v", err)
		}
		if n := s.InvalidRequests() - before; n > 3 {
			t.Errorf("%d refused calls for one post", n)
		}
	})
	t.Run("within Discord's limits a long turn loses nothing and meets none", func(t *testing.T) {
		// Not beside others: a passing call that is cut off for lack of a processor
		// leaves its limit unknown.
		s := play(t, discordfake.Config{Privileged: discordfake.IntentMessageContent, RateLimits: true})
		th := s.begun()
		_, channel := split(th)
		for i := range 7 {
			s.ShowProgress(t.Context(), th, chat.Progress{Key: "call/x", Kind: chat.ProgressOutput, Status: "running x", Text: strings.Repeat("x", i)})
			s.post(th, line("call/"+string(rune('a'+i)), string(rune('a'+i))))
		}
		s.post(th, chat.Post{Key: "q", Card: question()})
		got := s.shows(channel)
		if len(got) != 2 || !strings.HasPrefix(got[0], "a\n\nb\n\nc\n\nd\n\ne\n\nf\n\ng") || got[1] != "Restart?" {
			t.Errorf("the thread shows %q", got)
		}
		for _, c := range s.Calls() {
			if c.Status == 429 {
				t.Errorf("%s met a limit: %s", c.Route, c.Answer)
			}
		}
	})
}
