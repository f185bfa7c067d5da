package discord_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
)

// decided answers a click with the card's new face.
func decided(title string) func(context.Context, chat.Click) (chat.Answer, error) {
	return func(context.Context, chat.Click) (chat.Answer, error) {
		return chat.Answer{OK: true, Notice: "Approved.", Card: &chat.Card{Title: title, Final: true}}, nil
	}
}

func TestAPress(t *testing.T) {
	t.Parallel()
	t.Run("carries the roles of its moment, and its answer is the card's new face", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(decided("Approved by Alice"))
		r, err := s.press(s.alice, th, "approve:1")
		if err != nil || r.Type != discordfake.AnswerUpdate {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		same(t, "the thread", s.shows(channel), []string{"Approved by Alice"})
		if m := ours(s.town, channel)[0]; len(m.Buttons()) != 0 {
			t.Errorf("the card has the buttons %q", m.Buttons())
		}
		c := s.bot.clicked()[0]
		same(t, "the roles", c.Groups, []string{s.oncall})
		if c.Thread != th || c.From.ID != chat.UserID("discord:"+s.alice) || c.From.Outside || c.From.Name != "Alice" {
			t.Errorf("the click is %+v", c)
		}
	})
	t.Run("of somebody without a role has none", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(func(context.Context, chat.Click) (chat.Answer, error) {
			return chat.Answer{Notice: "You can't approve this."}, nil
		})
		r, err := s.press(s.bob, th, "approve:1")
		if err != nil || !r.Ephemeral() || !strings.Contains(r.Message.Text(), "can't approve") {
			t.Errorf("the answer is %+v, %v", r, err)
		}
		same(t, "the roles", s.bot.clicked()[0].Groups, []string{})
	})
	t.Run("counts although Discord takes no acknowledgement", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		ref := s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(decided("Approved"))
		s.FailNext(routeCallback, 5, discordfake.Answer{Status: 404, Code: 10062, Message: "Unknown interaction"})
		pressed := make(chan error, 1)
		go func() { _, err := s.press(s.alice, th, "approve:1"); pressed <- err }()
		s.until("the click came", func() bool { return len(s.bot.clicked()) == 1 })
		if err := <-pressed; !errors.Is(err, discordfake.ErrNotAnswered) {
			t.Errorf("pressing: %v", err)
		}
		s.edit(th, ref, chat.Post{Key: "q:2", Card: &chat.Card{Title: "Approved", Final: true}})
		same(t, "the thread", s.shows(channel), []string{"Approved"})
	})
	t.Run("that Discord has shown as failed does not count, and the thread says so", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		s.StaleAfter(-1) // every press may be late
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(decided("Approved"))
		s.FailNext(routeCallback, 1, discordfake.Answer{Status: 404, Code: 10062, Message: "Unknown interaction"})
		if _, err := s.press(s.alice, th, "approve:1"); !errors.Is(err, discordfake.ErrNotAnswered) {
			t.Errorf("pressing: %v", err)
		}
		s.until("the thread says so", func() bool {
			return slices.ContainsFunc(s.shows(channel), func(m string) bool { return strings.Contains(m, "Alice's press arrived too late") })
		})
		if n := len(s.bot.clicked()); n != 0 {
			t.Errorf("%d clicks counted", n)
		}
		// One that Discord still waits for counts, whatever the clocks say.
		if r, err := s.press(s.alice, th, "approve:1"); err != nil || r.Type != discordfake.AnswerDeferredUpdate {
			t.Errorf("the answer is %+v, %v", r, err)
		}
		s.until("the click came", func() bool { return len(s.bot.clicked()) == 1 })
	})
	t.Run("is acknowledged in time although its decision takes long", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		s.AckBy(50 * time.Millisecond)
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "q", Card: question()})
		release := make(chan struct{})
		s.bot.onClick(func(ctx context.Context, c chat.Click) (chat.Answer, error) {
			<-release
			return decided("Approved")(ctx, c)
		})
		r, err := s.press(s.alice, th, "approve:1")
		if err != nil || r.Type != discordfake.AnswerDeferredUpdate {
			t.Errorf("the answer is %+v, %v", r, err)
		}
		close(release)
		s.showing(th, "Approved")
		_ = channel
	})
	t.Run("does not bring an older face back", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		ref := s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(func(ctx context.Context, _ chat.Click) (chat.Answer, error) {
			// Another vote came meanwhile, and the outbox was faster.
			if err := s.Edit(ctx, th, ref, chat.Post{Key: "q:2", Card: &chat.Card{Title: "2 of 2", Final: true}}); err != nil {
				return chat.Answer{}, err
			}
			return chat.Answer{OK: true, Notice: "Noted.", Card: &chat.Card{Title: "1 of 2"}}, nil
		})
		r, err := s.press(s.alice, th, "approve:1")
		if err != nil || !r.Ephemeral() {
			t.Errorf("the answer is %+v, %v", r, err)
		}
		same(t, "the thread", s.shows(channel), []string{"2 of 2"})
	})
	t.Run("two at once are both answered", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(func(context.Context, chat.Click) (chat.Answer, error) {
			c := question()
			c.Title = "1 of 2"
			return chat.Answer{OK: true, Notice: "Noted.", Card: c}, nil
		})
		var wg sync.WaitGroup
		for _, who := range []string{s.alice, s.bob} {
			wg.Go(func() {
				if _, err := s.press(who, th, "approve:1"); err != nil {
					t.Errorf("pressing: %v", err)
				}
			})
		}
		wg.Wait()
		if n := len(s.bot.clicked()); n != 2 {
			t.Errorf("%d clicks", n)
		}
	})
	t.Run("in the menu can be made again after its form was closed, and after a refusal", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		card := question()
		card.Choose[2].More = true
		card.Choose = append(card.Choose, chat.Button{ID: "stop:1", Label: "Stop", Style: chat.StyleStop, More: true})
		s.post(th, chat.Post{Key: "q", Card: card})
		for range 2 {
			if r, err := s.press(s.alice, th, "edit:1"); err != nil || r.Modal == nil {
				t.Fatalf("the answer is %+v, %v", r, err)
			}
		}
		s.bot.onClick(func(context.Context, chat.Click) (chat.Answer, error) { return chat.Answer{Notice: "You can't."}, nil })
		for range 2 {
			if r, err := s.press(s.alice, th, "stop:1"); err != nil || !r.Ephemeral() {
				t.Fatalf("the answer is %+v, %v", r, err)
			}
		}
		s.bot.onClick(decided("Approved"))
		if r, err := s.press(s.alice, th, "approve:1"); err != nil || r.Type != discordfake.AnswerUpdate {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		s.showing(th, "Approved")
	})
	t.Run("on a card of before a restart", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		card := question()
		card.Choose[1].Confirm = "This stops the shop."
		s.post(th, chat.Post{Key: "q", Card: card})
		s.restart()
		r, err := s.press(s.alice, th, "approve:1")
		if err != nil || r.Modal == nil {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		s.bot.onClick(decided("Approved"))
		if r, err = s.SubmitModal(t.Context(), r.Modal, nil); err != nil || r.Type != discordfake.AnswerUpdate {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		s.showing(th, "Approved")
		if c := s.bot.clicked()[0]; c.Button != "approve:1" || c.Thread != th {
			t.Errorf("the click is %+v", c)
		}
	})
	t.Run("on a command that is too long for the card is asked for once more", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		card := question()
		card.Code, card.Digest = strings.Repeat("echo a line of a long script\n", 400), "abc123"
		card.Choose[2].Edit = card.Code
		s.post(th, chat.Post{Key: "q", Card: card})
		m := ours(s.town, channel)[0]
		if len(m.Attachments) != 1 || string(s.File(m.Attachments[0].ID)) != card.Code {
			t.Fatalf("the files are %+v", m.Attachments)
		}
		for _, restarted := range []bool{false, true} {
			if restarted {
				s.restart()
			}
			r, err := s.press(s.alice, th, "approve:1")
			if err != nil || r.Modal == nil {
				t.Fatalf("restarted %t: the answer is %+v, %v", restarted, r, err)
			}
			if r, err = s.press(s.alice, th, "edit:1"); err != nil || !r.Ephemeral() {
				t.Errorf("restarted %t: editing is answered by %+v, %v", restarted, r, err)
			}
		}
		if len(s.bot.clicked()) != 0 {
			t.Error("something was decided")
		}
		r, err := s.press(s.alice, th, "approve:1")
		if err != nil {
			t.Fatal(err)
		}
		s.bot.onClick(decided("Approved"))
		if r, err = s.SubmitModal(t.Context(), r.Modal, nil); err != nil || r.Type != discordfake.AnswerUpdate {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		same(t, "the thread", s.shows(channel), []string{"Approved"})
	})
	t.Run("an edit that is refused gives the text back", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(func(context.Context, chat.Click) (chat.Answer, error) {
			return chat.Answer{Notice: "That is not allowed."}, nil
		})
		r, err := s.press(s.alice, th, "edit:1")
		if err != nil || r.Modal == nil {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		r, err = s.SubmitModal(t.Context(), r.Modal, map[string]string{"cs.text": "systemctl reload web"})
		if err != nil || !r.Ephemeral() {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		contains(t, "the notice", r.Message.Text(), "not allowed", "systemctl reload web")
		if c := s.bot.clicked()[0]; c.Text != "systemctl reload web" {
			t.Errorf("the click is %+v", c)
		}
	})
	t.Run("that drops steps lists them", func(t *testing.T) {
		t.Parallel()
		for _, restarted := range []bool{false, true} {
			s := play(t, full())
			th := s.begun()
			card := question()
			card.Code = "1. Touch a\n    touch a\n2. Delete b\n    rm b\n3. Touch c\n    touch c\n"
			card.Choose[2].Edit = card.Code
			s.post(th, chat.Post{Key: "q", Card: card})
			if restarted {
				s.restart()
			}
			r, err := s.press(s.alice, th, "edit:1")
			if err != nil || !r.Ephemeral() {
				t.Fatalf("restarted %t: the answer is %+v, %v", restarted, r, err)
			}
			_, channel := split(th)
			s.bot.onClick(func(context.Context, chat.Click) (chat.Answer, error) {
				return chat.Answer{OK: true, Notice: "The plan is planned again.", Card: question()}, nil
			})
			if r, err = s.Select(t.Context(), s.alice, channel, r.Message.ID, "cs.keep:edit:1", "1", "3"); err != nil || r.Type != discordfake.AnswerUpdate {
				t.Fatalf("restarted %t: the answer is %+v, %v", restarted, r, err)
			}
			contains(t, "the notice", r.Message.Text(), "planned again")
			if c := s.bot.clicked(); len(c) != 1 || c[0].Text != "1 3" || c[0].Button != "edit:1" || c[0].Thread != th {
				t.Errorf("restarted %t: the clicks are %+v", restarted, c)
			}
		}
	})
	t.Run("that was not decided says so, and the card stays", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		s.post(th, chat.Post{Key: "q", Card: question()})
		s.bot.onClick(func(context.Context, chat.Click) (chat.Answer, error) {
			return chat.Answer{}, errors.New("the store is away")
		})
		r, err := s.press(s.alice, th, "approve:1")
		if err != nil || !r.Ephemeral() {
			t.Fatalf("the answer is %+v, %v", r, err)
		}
		contains(t, "the notice", r.Message.Text(), "nothing was decided")
		s.showing(th, "Restart?")
	})
	t.Run("in a server that is no longer allowed decides nothing", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		s.post(th, chat.Post{Key: "q", Card: question()})
		s.cfg.Guilds = []string{s.ID()}
		s.end()
		s.made()
		s.start()
		s.until("the bot listens", func() bool { return s.Ready() == nil })
		r, err := s.press(s.alice, th, "approve:1")
		if err != nil || !r.Ephemeral() || len(s.bot.clicked()) != 0 {
			t.Errorf("the answer is %+v, %v; clicks: %v", r, err, s.bot.clicked())
		}
	})
}

// Details are shown to the person who asked, and change nothing for anybody else.
func TestDetailsAreForWhoAsked(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	th := s.begun()
	c := question()
	c.DetailsID, c.Details = "details:1", []chat.Field{{Name: "Rule", Value: "default: balanced"}}
	s.post(th, chat.Post{Key: "q", Card: c})
	s.bot.onClick(func(context.Context, chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Show: c}, nil })
	r, err := s.press(s.alice, th, "details:1")
	if err != nil || !r.Ephemeral() {
		t.Fatalf("%+v, %v", r, err)
	}
	contains(t, "the details", string(r.Message.Embeds), "default: balanced")
	s.showing(th, "Restart?")
}

func TestADeletedCard(t *testing.T) {
	t.Parallel()
	request := func() *chat.Card {
		c := question()
		c.Details = []chat.Field{{Name: "Request", Value: "abcdefghij, digest 1a2b"}}
		return c
	}
	// moderated is a thread with a card, and somebody who may delete it.
	moderated := func(t *testing.T) (*scene, chat.ThreadID, chat.MessageRef, string) {
		s := play(t, full())
		s.SetRole(s.guild, s.oncall, discordfake.PermEveryone|discordfake.PermManageMessages)
		th := s.begun()
		_, channel := split(th)
		return s, th, s.post(th, chat.Post{Key: "q", Card: request()}), channel
	}
	remove := func(s *scene, channel string) {
		s.t.Helper()
		if err := s.DeleteMessage(s.alice, channel, ours(s.town, channel)[0].ID); err != nil {
			s.t.Fatal(err)
		}
	}
	t.Run("that waits comes back once, and its decision is shown on it", func(t *testing.T) {
		t.Parallel()
		s, th, r, channel := moderated(t)
		remove(s, channel)
		s.showing(th, "Restart?")
		if p, err := s.press(s.alice, th, "approve:1"); err != nil || len(s.bot.clicked()) != 1 {
			t.Errorf("pressing it: %+v, %v", p, err)
		}
		s.edit(th, r, chat.Post{Key: "q:2", Card: &chat.Card{Title: "Approved", Final: true}})
		same(t, "the thread", s.shows(channel), []string{"Approved"})
		remove(s, channel)
		s.says(s.alice, channel, "thanks")
		s.post(th, chat.Post{Key: "x", Text: "welcome"})
		same(t, "the thread after its decision", s.shows(channel), []string{"welcome"})
	})
	t.Run("that is deleted again is told by its number", func(t *testing.T) {
		t.Parallel()
		s, th, _, channel := moderated(t)
		remove(s, channel)
		s.showing(th, "Restart?")
		remove(s, channel)
		s.showing(th, "abcdefghij")
		if m := ours(s.town, channel)[0]; len(m.Buttons()) != 0 {
			t.Errorf("it has the buttons %q", m.Buttons())
		}
	})
}

// desk answers as it is told, and remembers what it was asked.
type desk struct {
	mu    sync.Mutex
	asked []chat.Inquiry
	o     chat.Overview
	stop  []chat.ThreadID
}

func (d *desk) Overview(_ context.Context, q chat.Inquiry) (chat.Overview, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, q)
	return d.o, nil
}

func (d *desk) Stop(_ context.Context, q chat.Inquiry) ([]chat.ThreadID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, q)
	return d.stop, nil
}

func (d *desk) Run(_ context.Context, q chat.Inquiry, words string) (chat.ThreadID, string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, q)
	if words != "disk-full directory=/Var" {
		return "", "There is no workflow `" + words + "`.", nil
	}
	return d.stop[0], "", nil
}

func TestCommands(t *testing.T) {
	t.Parallel()
	d := &desk{}
	s := play(t, full(), func(_ *town, c *discord.Config) { c.Desk = d })
	th := s.begun()
	_, channel := split(th)
	d.o = chat.Overview{
		Busy:      []chat.Busy{{Thread: th, Doing: "running uptime"}},
		Approvals: []chat.Waiting{{Thread: th, ID: "1", Title: "systemctl restart `web`", Level: "high", Target: "web-1", Mine: true}},
		Sessions:  []chat.Session{{Thread: th, Name: "main", State: "idle", Attach: "tmux attach"}},
	}
	d.stop = []chat.ThreadID{th}
	whole := "discord:" + s.guild + ":" + s.channel + ":"
	for _, c := range []struct{ word, where, within, says string }{
		{"status", s.channel, whole, "running uptime"},
		{"status", channel, string(th), "https://discord.com/channels/" + s.guild + "/" + channel},
		{"approvals", channel, "discord:" + s.guild + ":", "you may decide"},
		{"sessions", s.channel, whole, "tmux attach"},
		{"stop", s.channel, whole, "Stopped 1"},
		{"run disk-full directory=/Var", s.channel, whole, "Started: <https://discord.com/channels/"},
		{"run nothing", channel, string(th), "There is no workflow `nothing`"},
		{"help", s.channel, "", "/countersign status"},
	} {
		word, rest, more := strings.Cut(c.word, " ")
		var options map[string]any
		if more {
			options = map[string]any{"workflow": rest}
		}
		r, err := s.Slash(t.Context(), s.alice, c.where, "countersign "+word, options)
		if err != nil || !r.Ephemeral() {
			t.Fatalf("%s: %+v, %v", c.word, r, err)
		}
		s.until("the answer came", func() bool {
			for _, m := range s.ShownTo(c.where, s.alice) {
				if m.Interaction == r.Interaction && !m.Has(discordfake.FlagLoading) {
					contains(t, c.word, unescape(m.Text()), c.says)
					return true
				}
			}
			return false
		})
		if c.within == "" {
			continue
		}
		d.mu.Lock()
		q := d.asked[len(d.asked)-1]
		d.mu.Unlock()
		if q.Within != c.within || q.From.ID != chat.UserID("discord:"+s.alice) || len(q.Groups) != 1 {
			t.Errorf("%s was asked as %+v", c.word, q)
		}
	}
}

// TestCommandsAreRegisteredOnce: a start changes nothing that Discord has.
func TestCommandsAreRegisteredOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	kept := map[string]string{}
	s := play(t, full(), func(_ *town, c *discord.Config) {
		c.Registered = func(_ context.Context, g string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return kept[g], nil
		}
		c.SetRegistered = func(_ context.Context, g, hash string) error {
			mu.Lock()
			defer mu.Unlock()
			kept[g] = hash
			return nil
		}
	})
	s.until("that they are registered is kept", func() bool { mu.Lock(); defer mu.Unlock(); return kept[s.guild] != "" })
	same(t, "the commands", s.Commands(s.guild), []string{"countersign"})
	s.restart()
	s.begun()
	s.end() // what is in the background has run
	if n := s.Count("PUT /applications/{application_id}/guilds/{guild_id}/commands"); n != 1 {
		t.Errorf("they were registered %d times", n)
	}
}
