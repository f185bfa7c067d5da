package slack_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

// question is a card with the usual buttons.
func question(code string) *chat.Card {
	return &chat.Card{
		Title: "Restart nginx on web1", Tone: chat.ToneHigh, Code: code, Digest: "abcd-1234",
		Choose: []chat.Button{
			{ID: "deny:1", Label: "Deny", Style: chat.StyleDeny, AskReason: true},
			{ID: "approve:1", Label: "Approve", Style: chat.StyleApprove},
			{ID: "edit:1", Label: "Edit", Style: chat.StyleEdit, Edit: code, More: true},
			{ID: "glass:1", Label: "Break glass", Style: chat.StyleApprove, AskReason: true, Confirm: "You approve this alone.", More: true},
		},
	}
}

// decided is the face of a card after the decision.
func decided() *chat.Card {
	return &chat.Card{Title: "Approved", Tone: chat.ToneGood, Final: true}
}

func wordsOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "Paragraph %d is about what was found on the machine, with some words more to fill its line.\n\n", i)
	}
	return b.String()
}

func TestPostsStandInTheirThread(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{})
	th := s.begun()
	s.post(th, chat.Post{Key: "a", Text: "a reply", Files: []chat.File{{Name: "a.txt", Text: "x"}}})
	s.post(th, chat.Post{Key: "b", Card: question("systemctl restart nginx")})
	s.post(th, chat.Post{Key: "c", Text: "ran", Log: true})
	s.post(th, chat.Post{Key: "d", Text: wordsOf(200)})
	if in := s.server.Messages("C1", ""); len(in) != 1 {
		t.Errorf("%d messages stand in the channel: %+v", len(in), in)
	}
	for _, c := range s.server.Calls() {
		if c.Method == "chat.postMessage" && (c.Args.Get("thread_ts") == "" || c.Args.Get("reply_broadcast") != "" || c.Args.Get("unfurl_links") != "false" || c.Args.Get("unfurl_media") != "false") {
			t.Errorf("it was posted with %v", c.Args)
		}
	}
}

// A thread that the store didn't know when it began has nothing of ours in it, also in the first second after a
// start. One from before is looked at once.
func TestANewThreadIsNotLookedUp(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{})
	th := s.begun()
	for _, th := range []chat.ThreadID{th, s.begun(), s.begun()} {
		s.post(th, chat.Post{Key: "a", Text: "a"})
		s.post(th, chat.Post{Key: "b", Text: "b"})
	}
	// The check of open threads reads, too, and no marks.
	looked := func() (n int) {
		for _, c := range s.server.Calls() {
			if c.Method == "conversations.replies" && c.Args.Get("include_all_metadata") == "1" {
				n++
			}
		}
		return n
	}
	if n := looked(); n != 0 {
		t.Errorf("new threads were looked up %d times", n)
	}
	s.restart()
	s.post(th, chat.Post{Key: "b", Text: "b"})
	s.mention(strings.TrimPrefix(string(th), "slack:T1:C1:"), "go on")
	s.post(th, chat.Post{Key: "c", Text: "c"})
	if n := looked(); n != 1 {
		t.Errorf("a thread from before was looked up %d times", n)
	}
	same(t, "the thread", s.shows(th), []string{"a", "b", "c"})
}

// Only whom a post is for is mentioned, by cards and by words.
func TestAPostCallsWhomItIsFor(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{})
	th := s.begun()
	people := []chat.UserID{"slack:T1:U0123", "discord:123456789012345678", "slack:<!channel>", "web:alice"}
	s.post(th, chat.Post{Key: "a", Card: question("systemctl restart nginx"), For: people})
	s.post(th, chat.Post{Key: "b", Text: "for you, not <@U999> and <!channel>", For: people})
	s.post(th, chat.Post{Key: "c", Text: "for nobody"})
	s.post(th, chat.Post{Key: "d", Text: "quiet", For: people, Quiet: true})
	var posted int
	for _, c := range s.server.Calls() {
		if c.Method != "chat.postMessage" {
			continue
		}
		posted++
		blocks, text := c.Args.Get("blocks"), c.Args.Get("text")
		called := strings.Contains(blocks, `"user_id":"U0123"`) && strings.HasPrefix(text, "<@U0123> ")
		if called != (posted <= 2) || strings.Count(blocks, `"user_id"`) > 1 || strings.Contains(text, "<!channel>") || strings.Contains(text, "<@U999>") {
			t.Errorf("message %d: %s %s", posted, text, blocks)
		}
	}
	if posted != 4 {
		t.Errorf("%d messages", posted)
	}
}

// TestAThreadThatIsGone: nothing of it leaks into the channel.
func TestAThreadThatIsGone(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule string
		post chat.Post
	}{
		{"a reply", chat.Post{Key: "a", Text: "secret"}},
		{"a line of the log", chat.Post{Key: "a", Text: "secret", Log: true}},
		{"a card", chat.Post{Key: "a", Card: question("secret")}},
		{"a card with a file", chat.Post{Key: "a", Card: question(strings.Repeat("secret words\n", 2000))}},
	} {
		t.Run(tc.rule+" is removed", func(t *testing.T) {
			s := play(t, slackfake.Config{})
			th := s.begun()
			_, root := split(th)
			if err := s.server.Delete(t.Context(), "C1", root); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Post(t.Context(), th, tc.post); !errors.Is(err, chat.ErrGone) {
				t.Errorf("the error is %v", err)
			}
			for _, m := range s.server.Messages("C1", "") {
				if m.BotID != "" && !m.Deleted {
					t.Errorf("the channel shows %q %v", m.Plain(), m.Files)
				}
			}
		})
	}
	for word, want := range map[string]error{
		"thread_not_found": chat.ErrGone, "not_in_channel": chat.ErrClosed, "is_archived": chat.ErrClosed, "restricted_action": chat.ErrClosed,
	} {
		t.Run(word, func(t *testing.T) {
			s := play(t, slackfake.Config{})
			th := s.begun()
			s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: word})
			if _, err := s.Post(t.Context(), th, chat.Post{Key: "a", Text: "a"}); !errors.Is(err, want) {
				t.Errorf("the error is %v", err)
			}
			s.post(th, chat.Post{Key: "a", Text: "a"}) // when it can
			if got := s.ours(th); len(got) != 1 {
				t.Errorf("%d messages", len(got))
			}
		})
	}
	t.Run("a channel that the bot was in and that is not found may be a private one", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, chat.Post{Key: "a", Text: "a"})
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "channel_not_found"})
		if _, err := s.Post(t.Context(), th, chat.Post{Key: "b", Text: "b"}); !errors.Is(err, chat.ErrClosed) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("so may one that is not found after a restart", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("conversations.replies", 9, slackfake.Answer{Error: "channel_not_found"})
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "channel_not_found"})
		again := adapter(t, config(s.server))
		if _, err := again.Post(t.Context(), th, chat.Post{Key: "b", Text: "b"}); !errors.Is(err, chat.ErrClosed) {
			t.Errorf("the error is %v", err)
		}
	})
	for _, word := range []string{"token_revoked", "invalid_auth", "account_inactive", "internal_error"} {
		t.Run(word+" is worth another try", func(t *testing.T) {
			s := play(t, slackfake.Config{})
			th := s.begun()
			s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: word})
			if _, err := s.Post(t.Context(), th, chat.Post{Key: "a", Text: "a"}); err == nil || errors.Is(err, chat.ErrGone) || errors.Is(err, chat.ErrRejected) {
				t.Errorf("the error is %v", err)
			}
			// S13: nobody waits at a door that stays shut, and it opens again.
			if err := s.Ready(); (err == nil) != (word == "internal_error") || err != nil && !strings.Contains(err.Error(), "("+word+")") {
				t.Errorf("ready: %v", err)
			}
			s.post(th, chat.Post{Key: "a", Text: "a"})
			if err := s.Ready(); err != nil {
				t.Errorf("ready after it was let in again: %v", err)
			}
		})
	}
	t.Run("an edit of a message that was removed is gone", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		r := s.post(th, chat.Post{Key: "a", Text: "a"})
		if err := s.server.Delete(t.Context(), "C1", s.ours(th)[0].TS); err != nil {
			t.Fatal(err)
		}
		if err := s.Edit(t.Context(), th, r, chat.Post{Key: "a", Text: "b"}); !errors.Is(err, chat.ErrGone) {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestWhatSlackRefusesIsSaidPlainly(t *testing.T) {
	t.Parallel()
	long := wordsOf(60)
	for _, tc := range []struct {
		rule string
		post chat.Post
		fail func(*slackfake.Server)
		want []string // parts of each message
		file string
	}{
		{"first as text", chat.Post{Key: "a", Text: "**bold** news"}, func(s *slackfake.Server) {
			s.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "invalid_blocks"})
		}, []string{"bold news"}, ""},
		{"then as a file", chat.Post{Key: "a", Text: "**bold** news"}, func(s *slackfake.Server) {
			s.FailNext("chat.postMessage", 2, slackfake.Answer{Error: "invalid_blocks"})
		}, []string{"[message.txt]", "It's in the attached file"}, "bold news"},
		{"what is long at once as a file", chat.Post{Key: "a", Text: long}, func(s *slackfake.Server) {
			s.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "msg_too_long"})
		}, []string{"[message.txt]", "It's in the attached file"}, "Paragraph 59"},
		{"in the end a sentence says so", chat.Post{Key: "a", Text: "**bold** news"}, func(s *slackfake.Server) {
			s.FailNext("chat.postMessage", 2, slackfake.Answer{Error: "invalid_blocks"})
			s.FailNext("files.getUploadURLExternal", 1, slackfake.Answer{Error: "file_uploads_disabled"})
		}, []string{"couldn't post a message here"}, ""},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			s := play(t, slackfake.Config{})
			th := s.begun()
			tc.fail(s.server)
			s.post(th, tc.post)
			got := s.shows(th)
			if len(got) != len(tc.want) {
				t.Fatalf("the thread shows %q", got)
			}
			for i, w := range tc.want {
				contains(t, "a message", got[i], w)
			}
			if tc.file != "" {
				contains(t, "the file", string(s.server.FileContent(s.ours(th)[0].Files[0].ID)), tc.file)
			}
		})
	}
	t.Run("a card is decided by words then, and has no markup of its time", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		c := question("systemctl restart nginx")
		c.Expires = time.Date(2026, 11, 29, 11, 24, 0, 0, time.UTC)
		s.server.FailNext("chat.postMessage", 2, slackfake.Answer{Error: "invalid_blocks"}) // with its field, and without
		r := s.post(th, chat.Post{Key: chat.CardPrefix + "7k2pabcdef", Card: c})
		contains(t, "the card", s.shows(th)[0], "systemctl restart nginx", "expires at 11:24 UTC", "write `approve 7k2pabcdef`")
		if strings.Contains(s.shows(th)[0], "date^") {
			t.Errorf("the card is %q", s.shows(th)[0])
		}
		s.edit(th, r, chat.Post{Key: chat.CardPrefix + "7k2pabcdef", Card: decided()})
		s.showing(th, "Approved")
	})
	t.Run("an edit becomes plain text", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		r := s.post(th, chat.Post{Key: "a", Text: "one"})
		s.server.FailNext("chat.update", 1, slackfake.Answer{Error: "invalid_blocks"})
		s.edit(th, r, chat.Post{Key: "a", Text: "**two**"})
		same(t, "the thread", s.shows(th), []string{"two"})
	})
	t.Run("a long edit comes as a file", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		r := s.post(th, chat.Post{Key: "a", Text: "one"})
		s.server.FailNext("chat.update", 1, slackfake.Answer{Error: "msg_blocks_too_long"})
		s.edit(th, r, chat.Post{Key: "a", Text: long})
		if m := s.ours(th); len(m) != 2 || len(m[1].Files) != 1 || !strings.Contains(string(s.server.FileContent(m[1].Files[0].ID)), "Paragraph 59") {
			t.Errorf("the thread shows %q", s.shows(th))
		}
	})
}

func TestLimitsOfSlack(t *testing.T) {
	t.Parallel()
	t.Run("what Slack asks to wait is waited", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{RetryAfter: time.Second})
		began := time.Now()
		s.post(th, chat.Post{Key: "a", Text: "a"})
		if took := time.Since(began); took < time.Second || took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		same(t, "the thread", s.shows(th), []string{"a"})
	})
	t.Run("where there is no time to wait it is returned", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{RetryAfter: time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.Post(ctx, th, chat.Post{Key: "a", Text: "a"})
		var limited *chat.RateLimitedError
		if !errors.As(err, &limited) || limited.After < 59*time.Minute {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("then approvals come first", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		var threads []chat.ThreadID
		for range 4 {
			threads = append(threads, s.begun())
		}
		s.restart() // which has the threads read
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{RetryAfter: 1500 * time.Millisecond})
		ended := make(chan error, len(threads))
		post := func(i int, p chat.Post) {
			go func() { _, err := s.Post(t.Context(), threads[i], p); ended <- err }()
		}
		post(0, chat.Post{Key: "r0", Text: "reply"})
		s.until("the limit is met", func() bool { return s.server.Count("chat.postMessage") == 1 })
		post(1, chat.Post{Key: "l1", Text: "log", Log: true})
		post(2, chat.Post{Key: "r2", Text: "reply"})
		s.until("they have looked", func() bool { return s.server.Count("conversations.replies") >= 3 })
		post(3, chat.Post{Key: "c3", Card: question("x")})
		for range threads {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		}
		first := ""
		for _, c := range s.server.Calls() {
			if c.Method == "chat.postMessage" && c.OK() && first == "" {
				first = c.Args.Get("metadata")
			}
		}
		contains(t, "the first post", first, "c3")
	})
}

func TestAPostIsMadeOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule string
		post chat.Post
		want int // messages
	}{
		{"a reply", chat.Post{Key: "a", Text: "news"}, 1},
		{"a long reply", chat.Post{Key: "a", Text: wordsOf(120)}, -1},
		{"a card", chat.Post{Key: "a", Card: question("x")}, 1},
		{"a line of the log", chat.Post{Key: "a", Text: "ran", Log: true}, 1},
		{"a reply with a file", chat.Post{Key: "a", Text: "news", Files: []chat.File{{Name: "a.txt", Text: "x"}}}, 2},
	} {
		t.Run(tc.rule+" whose answer was lost", func(t *testing.T) {
			s := play(t, slackfake.Config{})
			th := s.begun()
			s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Drop: true})
			if _, err := s.Post(t.Context(), th, tc.post); err == nil {
				t.Fatal("the loss was not noticed")
			}
			r := s.post(th, tc.post)
			got := s.shows(th)
			if len(got) != tc.want && (tc.want > 0 || len(got) != parts(r)) {
				t.Errorf("the thread shows %d messages: %.300q", len(got), got)
			}
		})
		t.Run(tc.rule+" before a crash", func(t *testing.T) {
			s := play(t, slackfake.Config{})
			th := s.begun()
			s.post(th, tc.post)
			before := s.shows(th)
			s.restart()
			s.post(th, tc.post)
			same(t, "the thread", s.shows(th), before)
		})
	}
	t.Run("a second line of a log before a crash", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, chat.Post{Key: "a", Text: "one", Log: true})
		s.post(th, chat.Post{Key: "b", Text: "two", Log: true})
		s.restart()
		s.post(th, chat.Post{Key: "b", Text: "two", Log: true})
		same(t, "the thread", s.shows(th), []string{"one\n\ntwo"})
		s.post(th, chat.Post{Key: "c", Text: "three", Log: true})
		same(t, "the thread", s.shows(th), []string{"one\n\ntwo", "three"})
	})
	t.Run("a file that was not attached before a crash is attached", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		p := chat.Post{Key: "a", Text: "news", Files: []chat.File{{Name: "a.txt", Text: "x"}}}
		s.server.FailNext("files.completeUploadExternal", 1, slackfake.Answer{Lose: true})
		if _, err := s.Post(t.Context(), th, p); err == nil {
			t.Fatal("the loss was not noticed")
		}
		s.restart()
		s.post(th, p)
		same(t, "the thread", s.shows(th), []string{"news", "[a.txt]"})
	})
	t.Run("the other parts of a long reply are posted after a crash", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		p := chat.Post{Key: "a", Text: wordsOf(120)}
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Drop: true})
		if _, err := s.Post(t.Context(), th, p); err == nil {
			t.Fatal("the loss was not noticed")
		}
		s.restart()
		s.post(th, p)
		whole := strings.Join(s.shows(th), "\n")
		for i := range 120 {
			if n := strings.Count(whole, fmt.Sprintf("Paragraph %d ", i)); n != 1 {
				t.Errorf("paragraph %d stands there %d times", i, n)
			}
		}
	})
	t.Run("a key that is known replaces its message", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		one := s.post(th, chat.Post{Key: "a", Text: "one"})
		two := s.post(th, chat.Post{Key: "a", Text: "two"})
		if one != two {
			t.Errorf("the references are %s and %s", one, two)
		}
		same(t, "the thread", s.shows(th), []string{"two"})
	})
	t.Run("when Slack has troubles of its own nothing is posted twice", func(t *testing.T) {
		s := play(t, slackfake.Config{}, func(c *slack.Config) { c.Open = nil })
		th := s.begun()
		s.post(th, chat.Post{Key: "a", Text: "one"})
		s.restart()
		s.server.FailNext("conversations.replies", 1, slackfake.Answer{Error: "internal_error"})
		if _, err := s.Post(t.Context(), th, chat.Post{Key: "a", Text: "one"}); err == nil {
			t.Error("it was posted without a look at the history")
		}
		s.post(th, chat.Post{Key: "a", Text: "one"})
		same(t, "the thread", s.shows(th), []string{"one"})
	})
}

// parts counts the messages that a reference names.
func parts(r chat.MessageRef) int { return strings.Count(string(r), ",") + 1 }

func TestLongReplies(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{})
	th := s.begun()
	r := s.post(th, chat.Post{Key: "a", Text: wordsOf(120)})
	if parts(r) < 2 || parts(r) != len(s.ours(th)) {
		t.Fatalf("the reference is %s, the thread shows %d messages", r, len(s.ours(th)))
	}
	whole, at := strings.Join(s.shows(th), "\n"), -1
	for i := range 120 {
		n := strings.Index(whole, fmt.Sprintf("Paragraph %d ", i))
		if n < at || n < 0 {
			t.Errorf("paragraph %d stands at %d", i, n)
		}
		at = n
	}
	t.Run("one that gets shorter loses its rest", func(t *testing.T) {
		s.edit(th, r, chat.Post{Key: "a", Text: "short"})
		same(t, "the thread", s.shows(th), []string{"short"})
	})
	t.Run("one that gets longer again grows", func(t *testing.T) {
		s.edit(th, r, chat.Post{Key: "a", Text: wordsOf(120)})
		contains(t, "the end", s.shows(th)[len(s.ours(th))-1], "Paragraph 119")
	})
	t.Run("also one of which only the reference is left", func(t *testing.T) {
		th := s.begun()
		r := s.post(th, chat.Post{Key: "a", Text: wordsOf(120)})
		s.restart()
		s.edit(th, r, chat.Post{Key: "a", Text: "short"})
		same(t, "the thread", s.shows(th), []string{"short"})
	})
	t.Run("a very long one is a beginning and a file", func(t *testing.T) {
		th := s.begun()
		text := wordsOf(2000)
		s.post(th, chat.Post{Key: "a", Text: text})
		m := s.ours(th)
		if len(m) != 2 || len(m[1].Files) != 1 || string(s.server.FileContent(m[1].Files[0].ID)) != text {
			t.Errorf("the thread shows %.200q", s.shows(th))
		}
	})
}

func TestFilesOfPosts(t *testing.T) {
	t.Parallel()
	p := chat.Post{Key: "a", Text: "news", Files: []chat.File{{Name: "a.txt", Text: "one"}, {Name: "b.txt"}}}
	t.Run("follow their message", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, p)
		same(t, "the thread", s.shows(th), []string{"news", "[a.txt]", "[b.txt]"})
		if got := string(s.server.FileContent(s.ours(th)[1].Files[0].ID)); got != "one" {
			t.Errorf("the file has %q", got)
		}
	})
	t.Run("that Slack does not take are missed aloud", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("files.getUploadURLExternal", 1, slackfake.Answer{Error: "file_uploads_disabled"})
		s.post(th, p)
		got := s.shows(th)
		if len(got) != 3 {
			t.Fatalf("the thread shows %q", got)
		}
		contains(t, "the thread", got[1], "couldn't attach the file a.txt", "file_uploads_disabled")
	})
	t.Run("that did not come through are tried again, and their message is not", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("upload", 1, slackfake.Answer{Status: 503})
		if _, err := s.Post(t.Context(), th, p); err == nil {
			t.Error("the loss was not noticed")
		}
		s.post(th, p)
		same(t, "the thread", s.shows(th), []string{"news", "[a.txt]", "[b.txt]"})
	})
}

func TestCardsWithALongCommand(t *testing.T) {
	t.Parallel()
	code := strings.Repeat("echo the quick brown fox\n", 2000)
	t.Run("the file is there before the card", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, chat.Post{Key: "a", Card: question(code)})
		m := s.ours(th)
		if len(m) != 2 || len(m[0].Files) != 1 || string(s.server.FileContent(m[0].Files[0].ID)) != code {
			t.Fatalf("the thread shows %.200q", s.shows(th))
		}
		if _, ok := action(m[1], "approve:1"); !ok {
			t.Error("the card cannot be approved")
		}
	})
	t.Run("without the file it cannot be approved", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("files.completeUploadExternal", 1, slackfake.Answer{Error: "storage_limit_reached"})
		s.post(th, chat.Post{Key: "a", Card: question(code)})
		m := s.ours(th)
		if len(m) != 1 {
			t.Fatalf("the thread shows %.200q", s.shows(th))
		}
		for b, want := range map[chat.ButtonID]bool{"approve:1": false, "edit:1": false, "deny:1": true} {
			if _, ok := action(m[0], b); ok != want {
				t.Errorf("the button %s: %t", b, ok)
			}
		}
		contains(t, "the card", m[0].Plain(), "couldn't attach the full command", "storage_limit_reached")
	})
	t.Run("when the upload breaks off no card appears", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("upload", 1, slackfake.Answer{Lose: true})
		if _, err := s.Post(t.Context(), th, chat.Post{Key: "a", Card: question(code)}); err == nil || errors.Is(err, chat.ErrRejected) {
			t.Errorf("the error is %v", err)
		}
		if got := s.shows(th); len(got) != 0 {
			t.Errorf("the thread shows %.200q", got)
		}
	})
	t.Run("one whose input Slack refuses loses that alone", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		card := question("systemctl restart nginx")
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "invalid_blocks"})
		r := s.post(th, chat.Post{Key: "a", Card: card})
		s.server.FailNext("chat.update", 1, slackfake.Answer{Error: "invalid_blocks"})
		s.edit(th, r, chat.Post{Key: "a", Card: card})
		m := s.ours(th)
		if len(m) != 1 {
			t.Fatalf("the thread shows %.200q", s.shows(th))
		}
		if _, ok := action(m[0], "approve:1"); !ok {
			t.Errorf("it has no button: %s", m[0].Plain())
		}
	})
	t.Run("one that Slack refuses can be approved in no plain form", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.server.FailNext("chat.postMessage", 2, slackfake.Answer{Error: "invalid_blocks"})
		s.post(th, chat.Post{Key: "a", Card: question("systemctl restart nginx")})
		m := s.ours(th)
		if len(m) != 1 {
			t.Fatalf("the thread shows %.200q", s.shows(th))
		}
		if _, ok := action(m[0], "approve:1"); ok {
			t.Error("it has a button")
		}
		contains(t, "the message", m[0].Plain(), "systemctl restart nginx")
	})
}
