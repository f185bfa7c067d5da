package discord_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
	"countersign/adapters/discord/gateway"
)

func TestConversations(t *testing.T) {
	t.Parallel()
	t.Run("a mention starts a thread under its message that stays for a week", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		id := s.says(s.alice, s.channel, s.at()+" the disk of web-1 is full\nplease look")
		c, th, ok := s.ThreadOf(id)
		if !ok || c.Parent != s.channel || th.AutoArchive != 10080 || c.Name != "the disk of web-1 is full" {
			t.Fatalf("the thread is %+v %+v", c, th)
		}
		all := s.bot.got()
		if len(all) != 1 || all[0].Thread != s.thread(id) || all[0].Text != "the disk of web-1 is full\nplease look" || all[0].From.Name != "Alice" || all[0].From.Outside {
			t.Fatalf("the event is %+v", all)
		}
		same(t, "the roles", all[0].Groups, []string{s.oncall})
	})
	t.Run("a forwarded message is a file of somebody else's words", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		from := s.AddChannel(discordfake.Channel{Guild: s.guild, Name: "alerts", Type: discordfake.TypeText})
		alert, err := s.Say(s.bob, from, "db-1: replication lag 900 s", discordfake.Upload{Name: "lag.txt", ContentType: "text/plain", Data: []byte("lag 912")})
		if err != nil {
			t.Fatal(err)
		}
		th := s.begun()
		_, channel := split(th)
		if _, err := s.Forward(s.alice, channel, from, alert); err != nil {
			t.Fatal(err)
		}
		s.until("it came", func() bool { return len(s.bot.got()) == 2 })
		ev := s.bot.got()[1]
		if len(ev.Files) != 2 || !strings.HasPrefix(ev.Files[0].Name, "forwarded message by bob in #alerts, 20") || ev.Files[0].Text != "db-1: replication lag 900 s" || ev.Files[1].Text != "lag 912" || ev.Text != "(see the forwarded message)" {
			t.Errorf("the event is %+v", ev)
		}
	})
	t.Run("a message without a mention in a channel is nobody's business", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		s.says(s.alice, s.channel, "good morning")
		same(t, "the events", s.bot.texts(), []string{})
	})
	t.Run("a thread whose answer was lost is used and not made twice", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		const route = "POST /channels/{channel_id}/messages/{message_id}/threads"
		s.FailNext(route, 1, discordfake.Answer{Drop: true})
		id := s.says(s.alice, s.channel, s.at()+" hello")
		if n := s.Count(route); n != 2 {
			t.Errorf("%d calls", n)
		}
		if got := s.bot.got(); len(got) != 1 || got[0].Thread != s.thread(id) {
			t.Errorf("the events are %+v", got)
		}
	})
	t.Run("where no thread may be started people are told once", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		s.SetOverwrites(s.channel, discordfake.Overwrite{Role: s.BotRole(s.guild), Deny: discordfake.PermCreatePublicThreads}, discordfake.Overwrite{Role: s.guild, Deny: discordfake.PermCreatePublicThreads})
		s.says(s.alice, s.channel, s.at()+" hello")
		s.says(s.alice, s.channel, s.at()+" hello?")
		s.until("people were told", func() bool { return len(s.shows(s.channel)) == 1 })
		contains(t, "the notice", s.shows(s.channel)[0], "Create Public Threads")
		same(t, "the events", s.bot.texts(), []string{})
	})
	t.Run("threads of people: a mention begins, and follow-ups need none", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th, err := s.StartThread(s.alice, s.channel, "", "my thread")
		if err != nil {
			t.Fatal(err)
		}
		s.says(s.alice, th, "nobody asked you")
		s.says(s.alice, th, s.at()+" what is the load?")
		s.says(s.bob, th, "and the memory?")
		same(t, "the events", s.bot.texts(), []string{"what is the load?", "and the memory?"})
		if got := s.bot.got()[1]; got.Thread != s.thread(th) || len(got.Groups) != 0 {
			t.Errorf("the event is %+v", got)
		}
	})
	t.Run("with the rule mention, follow-ups need one or reply to the bot", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), func(w *town, c *discord.Config) {
			c.Channel = func(id string) discord.ChannelRules { return discord.ChannelRules{MentionOnly: id == w.channel} }
		})
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "a", Text: "yes?"})
		s.says(s.alice, channel, "just thinking")
		s.says(s.alice, channel, s.at()+" the load")
		id, err := s.Reply(s.alice, channel, ours(s.town, channel)[0].ID, true, "and the memory")
		if err != nil {
			t.Fatal(err)
		}
		s.until("the reply was handled", func() bool { return s.times(id) > 0 })
		same(t, "the events", s.bot.texts(), []string{"hello", "the load", "and the memory"})
	})
	t.Run("without the Message Content Intent the bot says once why it does not hear", func(t *testing.T) {
		t.Parallel()
		s := play(t, discordfake.Config{})
		th := s.begun()
		_, channel := split(th)
		s.says(s.alice, channel, "and the memory?")
		s.says(s.alice, channel, "hello?")
		s.says(s.alice, channel, s.at()+" and the memory?")
		same(t, "the events", s.bot.texts(), []string{"hello", "and the memory?"})
		s.until("people were told", func() bool { return len(s.shows(channel)) == 1 })
		contains(t, "the notice", s.shows(channel)[0], "can only read messages here that mention me", "Message Content Intent")
	})
	t.Run("a server that is not allowed is not listened to", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), func(w *town, c *discord.Config) { c.Guilds = append(c.Guilds, w.ID()) })
		other := s.AddGuild(discordfake.Guild{Name: "elsewhere"})
		s.AddMember(other, s.alice)
		c := s.AddChannel(discordfake.Channel{Guild: other, Name: "x", Type: discordfake.TypeText})
		s.says(s.alice, c, s.at()+" hello")
		same(t, "the events", s.bot.texts(), []string{})
		_, err := s.Post(t.Context(), chat.ThreadID("discord:"+other+":"+c+":"+c), chat.Post{Key: "a", Text: "x"})
		if !errors.Is(err, chat.ErrGone) {
			t.Errorf("posting there: %v", err)
		}
	})
	t.Run("bots are ignored unless they are listed", func(t *testing.T) {
		t.Parallel()
		listed := ""
		s := play(t, full(), func(w *town, c *discord.Config) {
			listed = w.AddUser(discordfake.User{Name: "alerts", Bot: true})
			w.AddMember(w.guild, listed)
			c.Channel = func(string) discord.ChannelRules { return discord.ChannelRules{Bots: []string{listed}} }
		})
		s.says(s.pager, s.channel, s.at()+" disk full")
		id := s.says(listed, s.channel, "disk full on web-1")
		all := s.bot.got()
		if len(all) != 1 || !all[0].Invited || !all[0].From.Bot || all[0].Thread != s.thread(id) || len(all[0].Groups) != 0 {
			t.Errorf("the events are %+v", all)
		}
	})
	t.Run("an edit and a deletion are told of", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		id := s.says(s.alice, channel, "rm the logs")
		if err := s.EditMessage(s.alice, channel, id, "keep the logs"); err != nil {
			t.Fatal(err)
		}
		s.until("the edit came", func() bool { return len(s.bot.got()) == 3 })
		if err := s.DeleteMessage(s.alice, channel, id); err != nil {
			t.Fatal(err)
		}
		s.until("the deletion came", func() bool { return len(s.bot.got()) == 4 })
		all := s.bot.got()
		same(t, "the events", s.bot.texts(), []string{"hello", "rm the logs", "keep the logs", "(this message was deleted)"})
		if all[2].Replaces != all[1].Ref || all[3].Replaces != all[1].Ref || all[2].ID == all[1].ID || all[3].ID == all[2].ID || all[3].From.ID != all[1].From.ID {
			t.Errorf("the events are %+v", all)
		}
	})
	t.Run("broken events do no harm", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		for _, err := range []error{
			s.InjectUnknownComponent(s.alice, channel), s.InjectAuthorless(s.alice, channel),
			s.Inject(s.guild, "INTERACTION_CREATE", []byte(`{"id":"1","type":3}`)), s.Inject(s.guild, "MESSAGE_CREATE", []byte(`{}`)),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		s.says(s.alice, channel, "still there?")
		// What somebody said counts without the component that nobody knows.
		same(t, "the events", s.bot.texts(), []string{"hello", "broken", "still there?"})
	})
	t.Run("fifty messages keep their order", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		want := []string{"hello"}
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
			if _, err := s.Say(s.alice, channel, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		s.until("all came", func() bool { return len(s.bot.got()) == len(want) })
		same(t, "the events", s.bot.texts(), want)
	})
}

func TestDirectMessages(t *testing.T) {
	t.Parallel()
	allow := func(_ *town, c *discord.Config) { c.DMs = true }
	t.Run("are not heard unless they are allowed", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		if _, err := s.Say(s.alice, s.DM(s.alice), "hello"); err != nil {
			t.Fatal(err)
		}
		s.begun() // comes later
		same(t, "the events", s.bot.texts(), []string{"hello"})
	})
	t.Run("of a member are a conversation in which no role counts", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), allow)
		dm := s.DM(s.alice)
		s.says(s.alice, dm, "hello")
		all := s.bot.got()
		if len(all) != 1 || all[0].Thread != chat.ThreadID("discord:@me:"+dm+":"+dm) || len(all[0].Groups) != 0 || all[0].From.Outside {
			t.Fatalf("the events are %+v", all)
		}
		s.post(all[0].Thread, chat.Post{Key: "q", Card: question()})
		if _, err := s.press(s.alice, all[0].Thread, "approve:1"); err != nil {
			t.Fatal(err)
		}
		if c := s.bot.clicked()[0]; len(c.Groups) != 0 || c.From.Outside || c.From.ID != chat.UserID("discord:"+s.alice) {
			t.Errorf("the click is %+v", c)
		}
	})
	t.Run("of a stranger are not read, which is said once", func(t *testing.T) {
		t.Parallel()
		s := play(t, full(), allow)
		eve := s.AddUser(discordfake.User{Name: "eve"})
		s.says(eve, s.DM(eve), "hello")
		s.says(eve, s.DM(eve), "hello?")
		s.until("eve was told", func() bool { return len(s.shows(s.DM(eve))) == 1 })
		same(t, "the events", s.bot.texts(), []string{})
	})
}

func TestFiles(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	th := s.begun()
	_, channel := split(th)
	s.says(s.alice, channel, "look",
		discordfake.Upload{Name: "web.log", ContentType: "text/plain", Data: []byte("line 1\n")},
		discordfake.Upload{Name: "shot.png", ContentType: "image/png", Data: []byte{1, 2}},
		discordfake.Upload{Name: "big.log", ContentType: "text/plain; charset=utf-8", Data: []byte(strings.Repeat("x", 2<<20))},
		discordfake.Upload{Name: "more.log", ContentType: "text/plain", Data: []byte("more")},
	)
	f := s.bot.got()[1].Files
	if len(f) != 4 || f[0].Text != "line 1\n" || f[0].Cut || !strings.Contains(f[1].Text, "no text file") || !f[2].Cut || len(f[2].Text) > 1<<20+100 || !strings.Contains(f[3].Text, "not read") {
		t.Errorf("the files are %.80q", fmt.Sprint(f))
	}
}

func TestStoring(t *testing.T) {
	t.Parallel()
	t.Run("what cannot be stored is offered again, and what follows waits", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		var tries atomic.Int32
		s.bot.onDeliver(func(ev chat.Event) error {
			if ev.Text == "one" && tries.Add(1) < 4 {
				return errors.New("the store is away")
			}
			return nil
		})
		for _, text := range []string{"one", "two"} {
			if _, err := s.Say(s.alice, channel, text); err != nil {
				t.Fatal(err)
			}
		}
		s.until("both came", func() bool { return len(s.bot.got()) == 3 })
		same(t, "the events", s.bot.texts(), []string{"hello", "one", "two"})
	})
	t.Run("what was given up is read from the history later, and said so", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		s.GiveUp(150 * time.Millisecond)
		th := s.begun()
		_, channel := split(th)
		s.bot.onDeliver(func(chat.Event) error { return errors.New("the store is away") })
		s.says(s.alice, channel, "one")
		s.until("people were told", func() bool { return len(s.shows(channel)) > 0 })
		contains(t, "the notice", s.shows(channel)[0], "couldn't take")
		s.bot.onDeliver(nil)
		s.until("it came", func() bool { return len(s.bot.got()) == 2 })
		same(t, "the events", s.bot.texts(), []string{"hello", "one"})
	})
}

func TestGaps(t *testing.T) {
	t.Parallel()
	t.Run("what was written while no session was alive is read from the history", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.RefuseOpens(-1)
		s.ForgetSessions()
		s.RefuseOpens(1)
		s.DropConnections(0)
		s.until("the bot is away", func() bool { return s.Online() == 0 })
		if s.Ready() == nil {
			s.until("the bot knows it", func() bool { return s.Ready() != nil })
		}
		for _, text := range []string{"one", "two"} {
			if _, err := s.Say(s.bob, channel, text); err != nil {
				t.Fatal(err)
			}
		}
		s.until("they came", func() bool { return len(s.bot.got()) == 3 })
		same(t, "the events", s.bot.texts(), []string{"hello", "one", "two"})
	})
	t.Run("what was written while the bot was not running is read at its start, with the roles of now", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.end()
		if _, err := s.Say(s.alice, channel, "one"); err != nil {
			t.Fatal(err)
		}
		s.restart()
		s.until("it came", func() bool { return len(s.bot.got()) == 2 })
		same(t, "the roles", s.bot.got()[1].Groups, []string{s.oncall})
	})
	t.Run("a resumed session has no gap", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		const route = "GET /channels/{channel_id}/messages"
		// The session that came first has a gap before it, which may still be read.
		s.until("the bot has caught up", s.CaughtUp)
		before := s.Count(route)
		s.DropConnections(0)
		s.until("the session is resumed", func() bool { return s.Resumes() == 1 && s.Online() == 1 })
		s.says(s.alice, channel, "one")
		same(t, "the events", s.bot.texts(), []string{"hello", "one"})
		if n := s.Count(route); n != before {
			t.Errorf("the history was read %d times", n-before)
		}
	})
	t.Run("a message that comes twice is one", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		id := s.says(s.alice, channel, "one")
		if err := s.Redeliver(channel, id); err != nil {
			t.Fatal(err)
		}
		s.until("it came again", func() bool { return s.times(id) == 2 })
		same(t, "the events", s.bot.texts(), []string{"hello", "one"})
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	t.Run("an intent that is switched off meanwhile is done without", func(t *testing.T) {
		t.Parallel()
		s := stage(t, full())
		s.FailIdentifies(1, discordfake.GatewayFault{Close: discordfake.CloseDisallowedIntent})
		s.start()
		s.ready()
		for _, k := range s.Sessions() {
			if k.Intents&discordfake.IntentMessageContent != 0 {
				t.Errorf("the session asked for %b", k.Intents)
			}
		}
	})
	t.Run("a token that Discord refuses ends Run with a sentence", func(t *testing.T) {
		t.Parallel()
		s := stage(t, full(), func(_ *town, c *discord.Config) { c.Token = "wrong" })
		err := s.Run(t.Context(), s.bot)
		if !errors.Is(err, gateway.ErrUnauthorized) || s.Ready() == nil {
			t.Errorf("Run: %v, Ready: %v", err, s.Ready())
		}
	})
	t.Run("a close code that is final ends Run with a sentence", func(t *testing.T) {
		t.Parallel()
		s := stage(t, full())
		s.FailIdentifies(1, discordfake.GatewayFault{Close: discordfake.CloseInvalidShard})
		err := s.Run(t.Context(), s.bot)
		if err == nil || s.Identifies() != 1 {
			t.Errorf("Run: %v after %d identifies", err, s.Identifies())
		}
	})
}
