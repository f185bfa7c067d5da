package discord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord/discordfake"
)

const (
	routePost     = "POST /channels/{channel_id}/messages"
	routeEdit     = "PATCH /channels/{channel_id}/messages/{message_id}"
	routeCallback = "POST /interactions/{interaction_id}/{interaction_token}/callback"
)

// Only whom a post is for is notified, by cards and by words, and whoever its words name isn't.
func TestAPostCallsWhomItIsFor(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	th := s.begun()
	_, channel := split(th)
	s.called = s.alice
	people := []chat.UserID{"slack:U0123", chat.UserID("discord:" + s.alice), "web:alice"}
	s.post(th, chat.Post{Key: "a", Card: question(), For: people})
	s.post(th, chat.Post{Key: "b", Text: "for you, not <@" + s.BotID() + "> and @everyone", For: people})
	s.post(th, chat.Post{Key: "c", Text: "for nobody, not <@" + s.alice + ">"})
	s.post(th, chat.Post{Key: "d", Text: "quiet", For: people, Quiet: true})
	for i, m := range ours(s.town, channel) {
		want := []string{s.alice}
		if i > 1 {
			want = nil
		}
		if !slices.Equal(m.Mentions, want) || m.Everyone || len(m.MentionRoles) > 0 {
			t.Errorf("message %d (%q) mentions %v", i, m.Content, m.Mentions)
		}
	}
}

func TestAPostIsMadeOnce(t *testing.T) {
	t.Parallel()
	t.Run("when its answer was lost", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.FailNext(routePost, 1, discordfake.Answer{Drop: true})
		s.post(th, chat.Post{Key: "q", Card: question()})
		same(t, "the thread", s.shows(channel), []string{"Restart?"})
	})
	for _, c := range []struct {
		rule  string
		later time.Duration
	}{{"within the time for which Discord knows its nonce", 0}, {"after that time", time.Hour}} {
		t.Run("over a restart, "+c.rule, func(t *testing.T) {
			t.Parallel()
			s := play(t, full())
			th := s.begun()
			_, channel := split(th)
			s.post(th, chat.Post{Key: "a", Text: "**one** <b>"})
			card := s.post(th, chat.Post{Key: "q", Card: question()})
			s.post(th, chat.Post{Key: "b", Text: "two"})
			s.restart()
			s.Advance(c.later)
			if r := s.post(th, chat.Post{Key: "b", Text: "two"}); r == "" {
				t.Error("no reference")
			}
			done := question()
			done.Final, done.Title = true, "Approved"
			if r := s.post(th, chat.Post{Key: "q", Card: question()}); r != card {
				t.Errorf("the card is %s and was %s", r, card)
			}
			s.post(th, chat.Post{Key: "q", Card: done})
			s.post(th, chat.Post{Key: "c", Text: "three"})
			same(t, "the thread", s.shows(channel), []string{"**one** <b>", "Approved", "two", "three"})
		})
	}
	t.Run("over a restart in another form", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "a", Text: "one"})
		s.later()
		s.restart()
		s.post(th, chat.Post{Key: "a", Text: "one, again"})
		same(t, "the thread", s.shows(channel), []string{"one, again"})
	})
	t.Run("the same words twice are two posts", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "a", Text: "Done."})
		s.post(th, chat.Post{Key: "b", Text: "Done."})
		same(t, "the thread", s.shows(channel), []string{"Done.", "Done."})
		s.restart()
		s.Advance(time.Hour)
		if _, err := s.Say(s.alice, channel, "and now?"); err != nil {
			t.Fatal(err)
		}
		s.post(th, chat.Post{Key: "c", Text: "Done."})
		same(t, "the thread", s.shows(channel), []string{"Done.", "Done.", "Done."})
	})
	t.Run("and again when somebody removed it", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "a", Text: "one"})
		if err := s.DeleteMessage(s.BotID(), channel, ours(s.town, channel)[0].ID); err != nil {
			t.Fatal(err)
		}
		s.post(th, chat.Post{Key: "a", Text: "one, again"})
		same(t, "the thread", s.shows(channel), []string{"one, again"})
	})
}

func TestLinesOfTheLogComeTogether(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	th := s.begun()
	_, channel := split(th)
	p := line("a", "one")
	p.Also = []chat.Post{line("b", "two"), line("c", "three")}
	first := s.post(th, p)
	same(t, "the thread", s.shows(channel), []string{"one\n\ntwo\n\nthree"})
	s.restart()
	s.Advance(time.Hour)
	p.Also = append(p.Also, line("d", "four"))
	if again := s.post(th, p); again != first {
		t.Errorf("the line is in %s and was in %s", again, first)
	}
	same(t, "the thread after a crash", s.shows(channel), []string{"one\n\ntwo\n\nthree", "four"})
}

func TestArchivedThreads(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	th := s.begun()
	_, channel := split(th)
	r := s.post(th, chat.Post{Key: "a", Text: "one"})
	s.Archive(channel, true)
	s.edit(th, r, chat.Post{Key: "a", Text: "ONE"})
	s.Archive(channel, true)
	s.post(th, chat.Post{Key: "b", Text: "two"})
	same(t, "the thread", s.shows(channel), []string{"ONE", "two"})
	s.Lock(channel, true)
	if _, err := s.Post(t.Context(), th, chat.Post{Key: "c", Text: "three"}); !errors.Is(err, chat.ErrClosed) {
		t.Errorf("posting in a locked thread: %v", err)
	}
}

func TestLongPosts(t *testing.T) {
	t.Parallel()
	t.Run("text of some pages is some messages, and shrinks again", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		long := strings.Repeat("a line of words\n", 200) + "```sh\n" + strings.Repeat("echo 𝕏\n", 150) + "```"
		r := s.post(th, chat.Post{Key: "a", Text: long})
		s.post(th, chat.Post{Key: "b", Text: "after"})
		all := ours(s.town, channel)
		if len(all) < 4 {
			t.Fatalf("%d messages", len(all))
		}
		for _, m := range all {
			if strings.Count(m.Content, "```")%2 != 0 {
				t.Errorf("a fence is open in %.40q", m.Content)
			}
		}
		s.edit(th, r, chat.Post{Key: "a", Text: "short"})
		same(t, "the thread", s.shows(channel), []string{"short", "after"})
	})
	t.Run("much more is a file", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		long := strings.Repeat("a line of words\n", 5000)
		s.post(th, chat.Post{Key: "a", Text: long, Files: []chat.File{{Name: "out.bin", Data: []byte{0, 1}}}})
		all := ours(s.town, channel)
		if len(all) != 1 || len(all[0].Attachments) != 2 {
			t.Fatalf("the messages are %q", s.shows(channel))
		}
		if got := string(s.File(all[0].Attachments[0].ID)); got != long {
			t.Errorf("the file has %d bytes, want %d", len(got), len(long))
		}
	})
	t.Run("quiet posts notify nobody, cards do", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.post(th, chat.Post{Key: "a", Text: "progress", Quiet: true})
		s.post(th, chat.Post{Key: "q", Card: question()})
		all := ours(s.town, channel)
		if !all[0].Has(discordfake.FlagSuppressNotifications) || all[1].Has(discordfake.FlagSuppressNotifications) {
			t.Errorf("the flags are %b and %b", all[0].Flags, all[1].Flags)
		}
	})
	t.Run("nobody is mentioned, whatever a text says", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		text := "@everyone @here <@" + s.bob + "> <@&" + s.oncall + ">"
		card := question()
		card.Body, card.Title = text, text
		s.post(th, chat.Post{Key: "a", Text: text})
		s.post(th, chat.Post{Key: "q", Card: card})
		for _, m := range ours(s.town, channel) {
			if m.Everyone || len(m.Mentions)+len(m.MentionRoles) > 0 {
				t.Errorf("it mentions %v %v", m.Mentions, m.MentionRoles)
			}
		}
	})
}

func TestWhatDiscordRefuses(t *testing.T) {
	t.Parallel()
	t.Run("a card that cannot be drawn cannot be approved", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		lose(s, discordfake.PermAttachFiles)
		card := question()
		card.Code = strings.Repeat("echo a line\n", 200)
		s.post(th, chat.Post{Key: "q", Card: card})
		m := ours(s.town, channel)[0]
		contains(t, "the message", unescape(m.Content), "Restart?", "cannot be approved here", "Attach Files")
		same(t, "the buttons", m.Buttons(), []string{"cs.decide:deny:1"})
	})
	t.Run("a card without its embed shows the command, and why it lacks the rest is said once", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		lose(s, discordfake.PermEmbedLinks)
		s.post(th, chat.Post{Key: "q", Card: question()})
		card := question()
		card.Title, card.Choose = "Again?", []chat.Button{{ID: "approve:2", Label: "Approve", Style: chat.StyleApprove}}
		s.post(th, chat.Post{Key: "q2", Card: card})
		s.until("something is said", func() bool {
			return slices.ContainsFunc(ours(s.town, channel), func(m discordfake.Message) bool { return len(m.Buttons()) == 0 })
		})
		s.end() // what is in the background has run
		var cards, said []discordfake.Message
		for _, m := range ours(s.town, channel) {
			if len(m.Buttons()) == 0 {
				said = append(said, m)
				continue
			}
			cards = append(cards, m)
			if m.Embeds != nil {
				t.Errorf("an embed is shown: %s", m.Embeds)
			}
		}
		if len(cards) != 2 || len(said) != 1 {
			t.Fatalf("%d cards, %d notices", len(cards), len(said))
		}
		contains(t, "the card", cards[0].Content, "Restart?", "```\nsystemctl restart web\n```")
		same(t, "its buttons", cards[0].Buttons(), []string{"cs.decide:deny:1", "cs.decide:approve:1", "cs.edit:edit:1"})
		contains(t, "the notice", said[0].Content, "Embed Links")
	})
	t.Run("a long command without its embed is read in the form, or in its file", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		lose(s, discordfake.PermEmbedLinks)
		card := question()
		card.Code = strings.Repeat("echo a line\n", 200)
		s.post(th, chat.Post{Key: "q", Card: card})
		for _, want := range []string{card.Code, "Read its file first"} {
			r, err := s.press(s.alice, th, "approve:1")
			if err != nil || r.Modal == nil || len(r.Modal.Texts) != 1 {
				t.Fatalf("the answer is %+v, %v", r, err)
			}
			contains(t, "the form", r.Modal.Texts[0], want)
			s.restart()
		}
		if f := ours(s.town, channel)[0].Attachments; len(f) != 1 || string(s.File(f[0].ID)) != card.Code {
			t.Errorf("the files are %+v", f)
		}
		if n := len(s.bot.clicked()); n != 0 {
			t.Errorf("%d presses counted", n)
		}
	})
	t.Run("a text whose files are refused comes without them", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.SetRole(s.guild, s.BotRole(s.guild), discordfake.PermBot&^discordfake.PermAttachFiles)
		s.SetRole(s.guild, s.guild, discordfake.PermEveryone&^discordfake.PermAttachFiles)
		s.post(th, chat.Post{Key: "a", Text: "look", Files: []chat.File{{Name: "x.txt", Text: "x"}}})
		contains(t, "the message", unescape(s.shows(channel)[0]), "look", "couldn't attach the files", "Attach Files")
	})
	t.Run("anything else becomes a sentence", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.FailNext(routePost, 1, discordfake.Answer{Status: 400, Code: 50035, Message: "Invalid Form Body"})
		s.post(th, chat.Post{Key: "a", Text: "one"})
		contains(t, "the message", unescape(s.shows(channel)[0]), "I couldn't post a message here", "Invalid Form Body")
	})
	t.Run("a limit that outlasts the caller is told to it", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		s.FailNext(routePost, 1, discordfake.Answer{RetryAfter: time.Minute, Scope: "shared"})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := s.Post(ctx, th, chat.Post{Key: "a", Text: "one"})
		limited, ok := errors.AsType[*chat.RateLimitedError](err)
		if !ok || limited.After < 50*time.Second {
			t.Errorf("posting: %v", err)
		}
	})
	t.Run("a short limit is waited out", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.FailNext(routePost, 1, discordfake.Answer{RetryAfter: 50 * time.Millisecond})
		s.post(th, chat.Post{Key: "a", Text: "one"})
		same(t, "the thread", s.shows(channel), []string{"one"})
	})
	t.Run("too many edits of old messages are tried later", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		r := s.post(th, chat.Post{Key: "a", Text: "one"})
		s.FailNext(routeEdit, 1, discordfake.Answer{Status: 400, Code: 30046, Message: "Maximum number of edits to messages older than 1 hour reached. Try again later"})
		err := s.Edit(t.Context(), th, r, chat.Post{Key: "a", Text: "two"})
		if _, ok := errors.AsType[*chat.RateLimitedError](err); !ok {
			t.Errorf("editing: %v", err)
		}
	})
}

func line(key, text string) chat.Post { return chat.Post{Key: key, Text: text, Log: true, Quiet: true} }

func TestTheWorkLog(t *testing.T) {
	t.Parallel()
	t.Run("lines fold into one message until something else is said", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		one := s.post(th, line("call/1", "one"))
		s.post(th, line("call/2", "two"))
		s.post(th, chat.Post{Key: "reply/1", Text: "done"})
		s.post(th, line("call/3", "three"))
		s.edit(th, one, line("call/1", "ONE"))
		same(t, "the thread", s.shows(channel), []string{"ONE\n\ntwo", "done", "three"})
	})
	for _, later := range []time.Duration{0, time.Hour} {
		t.Run("a line that stands there is not written again, restarted after "+later.String(), func(t *testing.T) {
			t.Parallel()
			s := play(t, full())
			th := s.begun()
			_, channel := split(th)
			s.post(th, line("call/1", "one"))
			s.post(th, line("call/2", "two"))
			s.restart()
			s.Advance(later)
			s.post(th, line("call/2", "two"))
			s.post(th, line("call/3", "three"))
			same(t, "the thread", s.shows(channel), []string{"one\n\ntwo", "three"})
		})
	}
	t.Run("one that somebody deleted goes on in another", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.post(th, line("call/1", "one"))
		if err := s.DeleteMessage(s.BotID(), channel, ours(s.town, channel)[0].ID); err != nil {
			t.Fatal(err)
		}
		s.post(th, line("call/2", "two"))
		same(t, "the thread", s.shows(channel), []string{"two"})
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	t.Run("the reply takes its draft's place", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk"})
		s.showing(th, "The disk")
		draft := ours(s.town, channel)[0].ID
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk is full"})
		s.showing(th, "The disk is full")
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Done: true})
		s.post(th, chat.Post{Key: "reply/1", Text: "The disk is full of logs."})
		same(t, "the thread", s.shows(channel), []string{"The disk is full of logs."})
		if got := ours(s.town, channel)[0].ID; got != draft {
			t.Error("the reply is another message")
		}
	})
	t.Run("a draft that a crash left behind becomes its reply", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk"})
		s.showing(th, "The disk")
		s.later()
		s.restart()
		s.post(th, chat.Post{Key: "reply/1", Text: "The disk is full of logs."})
		same(t, "the thread", s.shows(channel), []string{"The disk is full of logs."})
	})
	t.Run("a draft that nothing comes of goes away", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk"})
		s.showing(th, "The disk")
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Done: true})
		n := 0
		s.until("the draft is gone", func() bool {
			n++
			s.post(th, chat.Post{Key: fmt.Sprint("other/", n), Text: "Stopped."})
			return !slices.Contains(s.shows(channel), "The disk")
		})
	})
	t.Run("thinking is typing, and costs no message", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: "thinking"})
		const route = "POST /channels/{channel_id}/typing"
		s.until("typing is shown again", func() bool { return s.Count(route) >= 2 })
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		s.post(th, chat.Post{Key: "reply/1", Text: "done"})
		same(t, "the thread", s.shows(channel), []string{"done"})
	})
	t.Run("a draft does not wait for the next sign of typing", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		s.TypingEvery(time.Hour)
		th := s.begun()
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.until("the bot types", func() bool { return s.Count("POST /channels/{channel_id}/typing") == 1 })
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk"})
		s.showing(th, "The disk")
	})
	t.Run("a running command stands at the end of the log and leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.post(th, line("call/1", "ran uptime"))
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Status: "running apt", Text: "line 1 @everyone\n"})
		s.showing(th, "line 1")
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Status: "running apt", Text: strings.Repeat("old\n", 30) + "line 2\n"})
		s.showing(th, "line 2")
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Done: true})
		s.post(th, line("call/2", "ran apt"))
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		s.post(th, chat.Post{Key: "reply/1", Text: "done"})
		same(t, "the thread", s.shows(channel), []string{"ran uptime\n\nran apt", "done"})
	})
	t.Run("waiting for a limit never holds a post up", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th := s.begun()
		_, channel := split(th)
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Text: "The disk"})
		s.showing(th, "The disk")
		s.FailNext(routeEdit, 1, discordfake.Answer{RetryAfter: 30 * time.Second, Scope: "shared"})
		before := s.Count(routeEdit)
		s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Text: "The disk is"})
		s.until("the edit met the limit", func() bool { return s.Count(routeEdit) > before })
		s.post(th, chat.Post{Key: "q", Card: question()})
		if got := s.shows(channel); got[len(got)-1] != "Restart?" {
			t.Errorf("the thread shows %q", got)
		}
	})
}

// lose takes a permission from the bot.
func lose(s *scene, what uint64) {
	s.SetRole(s.guild, s.BotRole(s.guild), discordfake.PermBot&^what)
	s.SetRole(s.guild, s.guild, discordfake.PermEveryone&^what)
}
