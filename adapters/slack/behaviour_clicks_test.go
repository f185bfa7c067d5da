package slack_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

// asked is a thread with a card in it.
func (s *scene) asked() (th chat.ThreadID, card slackfake.Msg, ref chat.MessageRef) {
	s.t.Helper()
	th = s.begun()
	ref = s.post(th, chat.Post{Key: "card/1", Card: question("systemctl restart nginx")})
	return th, s.ours(th)[0], ref
}

// press presses a button; values are typed into the card's fields.
func (s *scene) press(user string, m slackfake.Msg, b chat.ButtonID, values map[string]string) {
	s.t.Helper()
	id, ok := action(m, b)
	if !ok {
		s.t.Fatalf("the card has no button %s: %s", b, m.Blocks)
	}
	if _, err := s.server.PressWith(s.t.Context(), user, m.Channel, m.TS, id, values); err != nil {
		s.t.Fatalf("the press was not taken: %v", err)
	}
}

// A link is one that can be pressed, also after a form, which shows none.
func TestALinkAfterAPress(t *testing.T) {
	t.Parallel()
	const link = "https://bot.example/#sign=ABC&t=slack%3AT1"
	s := play(t, slackfake.Config{})
	_, card, _ := s.asked()
	s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{Notice: "Sign it:", Link: link}, nil })
	s.press("UBOB", card, "approve:1", nil)
	s.until("the link is told", func() bool { return len(s.server.Ephemerals("C1", "UBOB")) == 1 })
	if m := s.server.Ephemerals("C1", "UBOB")[0]; !strings.Contains(string(m.Blocks), `{"type":"link","url":"`+strings.ReplaceAll(link, "&", `\u0026`)+`"`) && !strings.Contains(string(m.Blocks), `"type":"link"`) {
		t.Errorf("the notice is %s", m.Blocks)
	} else {
		contains(t, "the notice", m.Plain(), "Sign it: "+link)
	}
}

func TestWhoClicked(t *testing.T) {
	t.Parallel()
	clock := func(now *atomic.Int64) func(*slack.Config) {
		return func(c *slack.Config) {
			c.Usergroups = func() []string { return []string{"SOPS", "SDBA", "SNONE"} }
			start := time.Now()
			c.Now = func() time.Time { return start.Add(time.Duration(now.Load())) }
		}
	}
	var still atomic.Int64
	t.Run("the person comes from the interaction, the groups from Slack", func(t *testing.T) {
		s := play(t, slackfake.Config{}, clock(&still))
		s.server.SetUsergroup("SOPS", "UBOB", "UALICE")
		s.server.SetUsergroup("SDBA", "UALICE")
		s.server.SetUsergroup("SOTHER", "UBOB")
		th, card, _ := s.asked()
		s.press("UBOB", card, "approve:1", nil)
		c := s.bot.clicked()[0]
		if c.Thread != th || c.Button != "approve:1" || c.From.ID != "slack:T1:UBOB" || c.From.Name != "bob" || c.From.Outside || c.From.Bot || !slices.Equal(c.Groups, []string{"SOPS"}) || c.Reason != "" || c.Text != "" {
			t.Errorf("the click is %+v", c)
		}
	})
	t.Run("two presses are two clicks", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		s.press("UBOB", card, "approve:1", nil)
		s.press("UBOB", card, "approve:1", nil)
		s.press("UALICE", card, "approve:1", nil)
		c := s.bot.clicked()
		if c[0].ID == c[1].ID || c[1].ID == c[2].ID {
			t.Errorf("the clicks are %+v", c)
		}
	})
	t.Run("a reason goes with the click", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		s.press("UBOB", card, "deny:1", map[string]string{"cs.text": " not on a Friday "})
		if c := s.bot.clicked()[0]; c.Reason != "not on a Friday" || c.Button != "deny:1" {
			t.Errorf("the click is %+v", c)
		}
	})
	t.Run("groups that the configuration names since a reload count at once", func(t *testing.T) {
		var more atomic.Bool
		s := play(t, slackfake.Config{}, func(c *slack.Config) {
			c.Usergroups = func() []string {
				if more.Load() {
					return []string{"SOPS", "SDBA"}
				}
				return []string{"SOPS"}
			}
		})
		s.server.SetUsergroup("SDBA", "UBOB")
		_, card, _ := s.asked()
		s.press("UBOB", card, "approve:1", nil)
		more.Store(true)
		s.press("UBOB", card, "approve:1", nil)
		c := s.bot.clicked()
		same(t, "groups before", c[0].Groups, nil)
		same(t, "groups after", c[1].Groups, []string{"SDBA"})
	})
	t.Run("groups are at most a minute old", func(t *testing.T) {
		var now atomic.Int64
		s := play(t, slackfake.Config{}, clock(&now))
		s.server.SetUsergroup("SOPS", "UBOB")
		_, card, _ := s.asked()
		groups := func() []string {
			s.press("UBOB", card, "approve:1", nil)
			c := s.bot.clicked()
			return c[len(c)-1].Groups
		}
		same(t, "groups at first", groups(), []string{"SOPS"})
		s.server.SetUsergroup("SOPS")
		asked := s.server.Count("usergroups.users.list")
		now.Store(int64(59 * time.Second))
		same(t, "groups after 59 s", groups(), []string{"SOPS"})
		// The group that does not exist is asked for every time.
		if n := s.server.Count("usergroups.users.list") - asked; n > 2 {
			t.Errorf("Slack was asked %d times more", n)
		}
		now.Store(int64(61 * time.Second))
		if got := groups(); len(got) != 0 {
			t.Errorf("groups after 61 s: %q", got)
		}
	})
	t.Run("groups that Slack does not tell do not count", func(t *testing.T) {
		var now atomic.Int64
		s := play(t, slackfake.Config{}, clock(&now))
		s.server.SetUsergroup("SOPS", "UBOB")
		_, card, _ := s.asked()
		now.Store(int64(61 * time.Second)) // what was known with the message is too old
		s.server.FailNext("usergroups.users.list", 3, slackfake.Answer{Error: "internal_error"})
		s.press("UBOB", card, "approve:1", nil)
		if c := s.bot.clicked()[0]; len(c.Groups) != 0 {
			t.Errorf("the click is %+v", c)
		}
	})
	t.Run("somebody whom Slack does not know stands outside", func(t *testing.T) {
		s := play(t, slackfake.Config{}, clock(&still))
		s.server.SetUsergroup("SOPS", "UBOB")
		_, card, _ := s.asked()
		s.server.FailNext("users.info", 1, slackfake.Answer{Error: "internal_error"})
		s.press("UBOB", card, "approve:1", nil)
		if c := s.bot.clicked()[0]; !c.From.Outside || len(c.Groups) != 0 {
			t.Errorf("the click is %+v", c)
		}
	})
	for _, button := range []chat.ButtonID{"approve:1", "deny:1"} {
		t.Run("people of another organisation decide nothing: "+string(button), func(t *testing.T) {
			s := play(t, slackfake.Config{}, clock(&still))
			s.server.SetUsergroup("SOPS", "UEXT")
			_, card, _ := s.asked()
			s.press("UEXT", card, button, nil)
			s.until("they are told", func() bool { return len(s.whispers("C1", "UEXT")) == 1 })
			if c := s.bot.clicked(); len(c) != 0 {
				t.Errorf("the bot was told %+v", c)
			}
		})
	}
	for _, user := range []string{"UGUEST"} {
		t.Run(user+" stands outside and is in no group", func(t *testing.T) {
			s := play(t, slackfake.Config{}, clock(&still))
			s.server.SetUsergroup("SOPS", user)
			_, card, _ := s.asked()
			s.press(user, card, "approve:1", nil)
			if c := s.bot.clicked()[0]; !c.From.Outside || len(c.Groups) != 0 || c.From.Ungrouped == "" || c.From.ID != chat.UserID("slack:T1:"+user) {
				t.Errorf("the click is %+v", c)
			}
		})
	}
	t.Run("a vote in words carries the groups too", func(t *testing.T) {
		s := play(t, slackfake.Config{}, clock(&still))
		s.server.SetUsergroup("SOPS", "UBOB", "UGUEST")
		th, _, _ := s.asked()
		_, root := split(th)
		s.say(slackfake.Message{User: "UBOB", Thread: root, Text: "approve abc"})
		s.say(slackfake.Message{User: "UGUEST", Thread: root, Text: "approve abc"})
		ev := s.bot.got()
		if bob, guest := ev[1], ev[2]; !slices.Equal(bob.Groups, []string{"SOPS"}) || bob.From.Outside || len(guest.Groups) != 0 || !guest.From.Outside {
			t.Errorf("the votes are %+v and %+v", bob, guest)
		}
	})
}

func TestWhatAClickIsTold(t *testing.T) {
	t.Parallel()
	told := func(s *scene, user, want string) {
		s.t.Helper()
		s.until("it is said: "+want, func() bool {
			return slices.ContainsFunc(s.whispers("C1", user), func(w string) bool { return strings.Contains(w, want) })
		})
	}
	t.Run("its notice, in the thread and to that person alone", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, _ := s.asked()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{Notice: "You may not <!here>."}, nil })
		s.press("UBOB", card, "approve:1", nil)
		told(s, "UBOB", "You may not <!here>.")
		_, root := split(th)
		for _, m := range s.server.Ephemerals("C1", "UBOB") {
			if m.ThreadTS != root || len(slackfake.Mentions(m)) != 0 {
				t.Errorf("the notice is %+v", m)
			}
		}
		if len(s.whispers("C1", "UALICE")) != 0 {
			t.Error("others were told")
		}
	})
	t.Run("a failure", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{}, errors.New("the disk is full") })
		s.press("UBOB", card, "approve:1", nil)
		told(s, "UBOB", "nothing was decided")
	})
	t.Run("in a direct message where the thread refuses", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		s.server.FailNext("chat.postEphemeral", 1, slackfake.Answer{Error: "user_not_in_channel"})
		s.press("UBOB", card, "approve:1", nil)
		dm := s.server.DM("UBOB")
		s.until("it is said", func() bool { return len(s.server.Messages(dm, "")) == 1 })
		contains(t, "the direct message", s.server.Messages(dm, "")[0].Plain(), "Noted.")
	})
	t.Run("nothing when there is nothing to say", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Card: question("x")}, nil })
		s.press("UBOB", card, "approve:1", nil)
		s.until("the face has changed", func() bool { m, _ := s.server.Message("C1", card.TS); return m.Edited })
		s.end()
		if got := s.whispers("C1", "UBOB"); len(got) != 0 {
			t.Errorf("it was told %q", got)
		}
	})
}

// A channel that gets another id keeps its threads, cards and settings, also over a restart.
func TestAChannelThatGetsAnotherID(t *testing.T) {
	t.Parallel()
	var kept map[string]string
	var mu sync.Mutex
	s := play(t, slackfake.Config{}, func(c *slack.Config) {
		c.SetMoved = func(_ context.Context, now map[string]string) error {
			mu.Lock()
			defer mu.Unlock()
			kept = maps.Clone(now)
			return nil
		}
		c.Moved = func(context.Context) (map[string]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return kept, nil
		}
		c.Channel = func(id string) slack.ChannelRules { return slack.ChannelRules{MentionOnly: id == "C1"} }
	})
	th, _, _ := s.asked()
	_, root := split(th)
	for i, id := range []string{"CNEW", "CNEWER"} {
		if err := s.server.Move(t.Context(), []string{"C1", "CNEW"}[i], id); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			s.restart()
		}
		s.say(slackfake.Message{Channel: id, Thread: root, Text: "without a mention"})
		s.say(slackfake.Message{Channel: id, Thread: root, Text: "<@UBOT> with one " + id, Mention: true})
	}
	s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Card: decided()}, nil })
	for _, m := range s.server.Messages("CNEWER", root) {
		if _, ok := action(m, "approve:1"); ok {
			s.press("UBOB", m, "approve:1", nil)
		}
	}
	s.post(th, chat.Post{Key: "reply", Text: "It works."})
	same(t, "heard", s.bot.texts(), []string{"hello", "with one CNEW", "with one CNEWER"})
	for _, ev := range s.bot.got() {
		if ev.Thread != th {
			t.Errorf("%q came in %s, not %s", ev.Text, ev.Thread, th)
		}
	}
	if c := s.bot.clicked(); len(c) != 1 || c[0].Thread != th {
		t.Errorf("the clicks are %+v", c)
	}
	s.until("the new channel shows all", func() bool {
		var all string
		for _, m := range s.server.Messages("CNEWER", root) {
			all += m.Plain() + "\n"
		}
		return strings.Contains(all, "Approved") && strings.Contains(all, "It works.")
	})
}

func TestTheFaceAfterAClick(t *testing.T) {
	t.Parallel()
	t.Run("is there at once", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, _ := s.asked()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Card: decided()}, nil })
		s.press("UBOB", card, "approve:1", nil)
		s.showing(th, "Approved")
		if _, ok := action(s.ours(th)[0], "approve:1"); ok {
			t.Error("it still has its button")
		}
	})
	t.Run("is not written again, nor is any other that says the same", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, ref := s.asked()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Card: decided()}, nil })
		s.press("UBOB", card, "approve:1", nil)
		s.showing(th, "Approved")
		for range 3 {
			s.edit(th, ref, chat.Post{Key: "card/1", Card: decided(), Quiet: true})
		}
		for range 3 {
			s.edit(th, ref, chat.Post{Key: "card/1", Card: &chat.Card{Title: "Done, exit 0", Final: true}, Quiet: true})
		}
		if n := s.accepted("chat.update"); n != 2 {
			t.Errorf("%d edits", n)
		}
	})
	t.Run("comes although the workspace has used its edits up, and so does the answer", func(t *testing.T) {
		s := play(t, slackfake.Config{RateLimits: true, NoEcho: true})
		th, card, _ := s.asked()
		other := s.begun()
		ref := s.post(other, line("call/0", "ran 0"))
		var last error
		for i := 1; i < 60; i++ { // the log of another thread
			last = s.Edit(t.Context(), other, ref, line("call/0", fmt.Sprint("ran ", i)))
		}
		if !errors.As(last, new(*chat.RateLimitedError)) {
			t.Fatalf("the log is not held back: %v", last)
		}
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Card: decided()}, nil })
		s.press("UBOB", card, "approve:1", nil)
		s.showing(th, "Approved")
		s.post(th, chat.Post{Key: "reply", Text: "It works."})
		s.showing(th, "Approved", "It works.")
	})
	t.Run("does not overwrite what was written meanwhile", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, ref := s.asked()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) {
			s.edit(th, ref, chat.Post{Key: "card/1", Card: &chat.Card{Title: "Done, exit 0", Final: true}})
			return chat.Answer{OK: true, Notice: "Noted.", Card: question("x")}, nil
		})
		s.press("UBOB", card, "approve:1", nil)
		s.until("it is said", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
		s.end() // what was still to be painted has been
		s.showing(th, "Done, exit 0")
	})
	t.Run("comes after a restart too", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, _ := s.asked()
		s.restart()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Card: decided()}, nil })
		s.press("UBOB", card, "approve:1", nil)
		s.showing(th, "Approved")
		if c := s.bot.clicked(); len(c) != 1 || c[0].Thread != th {
			t.Errorf("the clicks are %+v", c)
		}
	})
}

func TestButtonsThatAreNotOurs(t *testing.T) {
	t.Parallel()
	for i, tc := range []struct {
		rule, action, value string
		told                bool
	}{
		{"another maker's button is ignored", "vote", "1", false},
		{"a link is ignored", "cs.open:1", "1", false},
		{"one whose two names differ is refused", "cs.decide:approve:1", "deny:1", true},
		{"one without a name is refused", "cs.decide:", "", true},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			s := play(t, slackfake.Config{})
			root := s.mention("", fmt.Sprint(i))
			m := forged(s, root, tc.action, tc.value)
			if _, err := s.server.Press(t.Context(), "UBOB", "C1", m, tc.action); err != nil {
				t.Fatal(err)
			}
			if tc.told {
				s.until("it is said", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
			}
			if c := s.bot.clicked(); len(c) != 0 {
				t.Errorf("it was a click: %+v", c)
			}
		})
	}
}

func TestAMenuAsksBeforeItDecides(t *testing.T) {
	t.Parallel()
	// asks answers as the gate does.
	asks := func(s *scene, code string, sent chat.Answer) {
		s.bot.onClick(func(c chat.Click) (chat.Answer, error) {
			if c.Button == chat.AskPrefix+"glass:1" {
				card := question(code)
				return chat.Answer{OK: true, Show: card, Ask: &card.Choose[3]}, nil
			}
			return sent, nil
		})
	}
	open := func(s *scene, card slackfake.Msg) slackfake.View {
		s.t.Helper()
		s.press("UBOB", card, "glass:1", map[string]string{"cs.text": "the site is down"})
		s.until("the form is open", func() bool { return len(s.server.Views("UBOB")) > 0 })
		return s.server.Views("UBOB")[0]
	}
	t.Run("the form has the question, the command, and the reason that was written on the card", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, _ := s.asked()
		asks(s, "systemctl restart nginx", chat.Answer{OK: true, Card: decided()})
		v := open(s, card)
		contains(t, "the form", string(v.Blocks), "You approve this alone.", "systemctl restart nginx", "Restart nginx on web1", `"initial_value":"the site is down"`)
		if c := s.bot.clicked(); len(c) != 1 || c[0].Button != "ask:glass:1" {
			t.Errorf("to open the form is the clicks %+v", c)
		}
		if err := s.server.SubmitView(t.Context(), "UBOB", v.ID, map[string]string{"cs.text": " it is down "}); err != nil {
			t.Fatal(err)
		}
		c := s.bot.clicked()[1]
		if c.Button != "glass:1" || c.Reason != "it is down" || c.Text != "" || c.Thread != th || c.From.ID != "slack:T1:UBOB" {
			t.Errorf("the click is %+v", c)
		}
		s.showing(th, "Approved")
	})
	t.Run("a long command is shown with its ends and the name of its file", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		asks(s, "#!/bin/sh\n"+strings.Repeat("echo one more line of a long script\n", 9000)+"rm -rf /srv/data", chat.Answer{})
		contains(t, "the form", string(open(s, card).Blocks), "#!/bin/sh", "rm -rf /srv/data", "Read command.txt first")
	})
	t.Run("a refusal stands under the reason", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		asks(s, "reboot", chat.Answer{Notice: "Only oncall may break glass."})
		err := s.server.SubmitView(t.Context(), "UBOB", open(s, card).ID, map[string]string{"cs.text": "down"})
		var under *slackfake.ViewError
		if !errors.As(err, &under) || len(under.Errors) != 1 {
			t.Fatalf("the form says %v", err)
		}
		for _, said := range under.Errors {
			contains(t, "the form", said, "Only oncall may break glass.")
		}
	})
	t.Run("no form opens for what was decided meanwhile", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, _ := s.asked()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) {
			return chat.Answer{Card: decided(), Notice: "Bob approved it."}, nil
		})
		s.press("UBOB", card, "glass:1", nil)
		s.showing(th, "Approved")
		s.until("it is said", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
		if v := s.server.Views("UBOB"); len(v) > 0 {
			t.Errorf("%d forms", len(v))
		}
	})
}

func TestEditingACommand(t *testing.T) {
	t.Parallel()
	open := func(s *scene, card slackfake.Msg) slackfake.View {
		s.t.Helper()
		s.press("UBOB", card, "edit:1", nil)
		s.until("the form is open", func() bool { return len(s.server.Views("UBOB")) > 0 })
		v := s.server.Views("UBOB")
		return v[len(v)-1]
	}
	t.Run("the form has the command, and what it became goes with the click", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, _ := s.asked()
		v := open(s, card)
		contains(t, "the form", string(v.Blocks), `"initial_value":"systemctl restart nginx"`)
		if len(s.bot.clicked()) != 0 {
			t.Error("to open the form decided something")
		}
		if err := s.server.SubmitView(t.Context(), "UBOB", v.ID, map[string]string{"cs.text": "systemctl reload nginx"}); err != nil {
			t.Fatal(err)
		}
		c := s.bot.clicked()[0]
		if c.Text != "systemctl reload nginx" || c.Button != "edit:1" || c.Thread != th || c.From.ID != "slack:T1:UBOB" {
			t.Errorf("the click is %+v", c)
		}
		if s.server.Views("UBOB")[0].Open {
			t.Error("the form stays open")
		}
	})
	t.Run("a refusal stands under the input, and what was typed stays", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		v := open(s, card)
		for _, tc := range []struct {
			answer func(chat.Click) (chat.Answer, error)
			want   string
		}{
			{func(chat.Click) (chat.Answer, error) {
				return chat.Answer{Notice: "Only approvers may edit."}, nil
			}, "Only approvers may edit."},
			{func(chat.Click) (chat.Answer, error) { return chat.Answer{}, errors.New("the disk is full") }, "nothing was changed"},
		} {
			s.bot.onClick(tc.answer)
			err := s.server.SubmitView(t.Context(), "UBOB", v.ID, map[string]string{"cs.text": "reboot"})
			var under *slackfake.ViewError
			if !errors.As(err, &under) || len(under.Errors) != 1 {
				t.Fatalf("the form says %v", err)
			}
			for _, said := range under.Errors {
				contains(t, "the form", said, tc.want)
			}
		}
		if !s.server.Views("UBOB")[0].Open {
			t.Error("the form is closed")
		}
		ids := map[chat.EventID]bool{}
		for _, c := range s.bot.clicked() {
			ids[c.ID] = true
		}
		if len(ids) != 2 {
			t.Errorf("two submissions are the clicks %+v", s.bot.clicked())
		}
	})
	t.Run("also after a restart", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, card, _ := s.asked()
		v := open(s, card)
		s.restart()
		s.bot.onClick(func(chat.Click) (chat.Answer, error) { return chat.Answer{OK: true, Card: decided()}, nil })
		if err := s.server.SubmitView(t.Context(), "UBOB", v.ID, map[string]string{"cs.text": "reboot"}); err != nil {
			t.Fatal(err)
		}
		s.showing(th, "Approved")
	})
	t.Run("a command that is not on the card as a whole cannot be edited, and that is said", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, chat.Post{Key: "card/1", Card: question(strings.Repeat("echo the quick brown fox\n", 2000))})
		m := s.ours(th)
		s.press("UBOB", m[len(m)-1], "edit:1", nil)
		s.until("it is said", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
		contains(t, "the notice", s.whispers("C1", "UBOB")[0], "too long to edit here")
	})
	t.Run("a form that Slack does not open is said", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		_, card, _ := s.asked()
		s.server.FailNext("views.open", 1, slackfake.Answer{Error: "expired_trigger_id"})
		s.press("UBOB", card, "edit:1", nil)
		s.until("it is said", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
		contains(t, "the notice", s.whispers("C1", "UBOB")[0], "Try again")
	})
}

// Details are shown to the person who asked, and change nothing for anybody else.
func TestDetailsOpenForWhoAsked(t *testing.T) {
	details := question("reboot")
	details.DetailsID, details.Details = "details:1", []chat.Field{{Name: "Rule", Value: "default: balanced"}}
	begin := func(t *testing.T) (*scene, slackfake.Msg) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, chat.Post{Key: "card/1", Card: details})
		s.bot.onClick(func(c chat.Click) (chat.Answer, error) {
			if c.Button != "details:1" {
				t.Errorf("pressed %s", c.Button)
			}
			return chat.Answer{OK: true, Show: details}, nil
		})
		m := s.ours(th)
		return s, m[len(m)-1]
	}
	t.Run("in a modal", func(t *testing.T) {
		s, card := begin(t)
		s.press("UBOB", card, "details:1", nil)
		s.until("a modal opens", func() bool { return len(s.server.Views("UBOB")) == 1 })
		contains(t, "the modal", string(s.server.Views("UBOB")[0].Blocks), "default: balanced")
		contains(t, "the modal", string(s.server.Views("UBOB")[0].Blocks), "reboot")
		if len(s.whispers("C1", "UBOB")) != 0 || len(s.server.Views("UANN")) != 0 {
			t.Error("somebody was told more")
		}
	})
	t.Run("and it is said when Slack does not open it", func(t *testing.T) {
		s, card := begin(t)
		s.server.FailNext("views.open", 1, slackfake.Answer{Error: "expired_trigger_id"})
		s.press("UBOB", card, "details:1", nil)
		s.until("it is said", func() bool { return len(s.whispers("C1", "UBOB")) == 1 })
		contains(t, "the notice", s.whispers("C1", "UBOB")[0], "Press Details again")
	})
}
