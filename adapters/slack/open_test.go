package slack_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

const opsChannel = "slack:T1:C1"

// roots are the bot's messages that stand in the channel itself.
func roots(s *scene) []string {
	var out []string
	for _, m := range s.server.Messages("C1", "") {
		if m.BotID == "BBOT" && !m.Deleted {
			out = append(out, m.Text)
		}
	}
	return out
}

func TestAThreadIsOpenedOnce(t *testing.T) {
	t.Parallel()
	root := chat.Post{Key: "root", Text: "the disk is full"}
	t.Run("when the answer was lost", func(t *testing.T) {
		// A day after its start the adapter looks only where it is in doubt.
		var later atomic.Int64
		s := play(t, slackfake.Config{}, func(c *slack.Config) {
			c.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
		})
		later.Store(int64(24 * time.Hour))
		s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Drop: true})
		if th, _, err := s.Open(t.Context(), opsChannel, "one", root); err == nil {
			t.Fatalf("it opened %q", th)
		}
		if n := s.server.Count("conversations.history"); n != 0 {
			t.Errorf("the history was read %d times without need", n)
		}
		if _, _, err := s.Open(t.Context(), opsChannel, "one", root); err != nil {
			t.Fatal(err)
		}
		if got := roots(s); len(got) != 1 {
			t.Errorf("the channel shows %q", got)
		}
	})
	t.Run("over a restart, when other messages came after it", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		th, ref, err := s.Open(t.Context(), opsChannel, "one", root)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Open(t.Context(), opsChannel, "two", root); err != nil {
			t.Fatal(err)
		}
		s.restart()
		if th2, ref2, err := s.Open(t.Context(), opsChannel, "one", root); err != nil || th2 != th || ref2 != ref {
			t.Errorf("it opened %q %q %v, not %q %q", th2, ref2, err, th, ref)
		}
		// The outbox may post the root's key although it does not know the message.
		s.post(th, chat.Post{Key: "root", Text: "the disk was full"})
		if got := strings.Join(roots(s), ", "); got != "the disk was full, the disk is full" && got != "the disk is full, the disk was full" {
			t.Errorf("the channel shows %q", got)
		}
	})
	t.Run("although the history may not be read", func(t *testing.T) {
		s := play(t, slackfake.Config{})
		s.server.FailNext("conversations.history", 1, slackfake.Answer{Error: "missing_scope"})
		if _, _, err := s.Open(t.Context(), opsChannel, "one", root); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnOpenedThreadMentionsNobody(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{})
	if _, _, err := s.Open(t.Context(), opsChannel, "one", chat.Post{Key: "root", Text: "<!channel> @channel <@UALICE>"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.server.Calls() {
		if c.Method != "chat.postMessage" {
			continue
		}
		if text := c.Args.Get("text") + c.Args.Get("blocks"); strings.Contains(text, "<!channel>") || strings.Contains(text, "<@UALICE>") || c.Args.Get("unfurl_links") != "false" {
			t.Errorf("it was posted with %v", c.Args)
		}
	}
}

func TestAThreadWhoseRootSlackRefusesIsOpenedPlainly(t *testing.T) {
	t.Parallel()
	s := play(t, slackfake.Config{})
	s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "invalid_blocks"})
	if _, _, err := s.Open(t.Context(), opsChannel, "one", chat.Post{Key: "root", Text: "**full**"}); err != nil {
		t.Fatal(err)
	}
	if got := roots(s); len(got) != 1 || got[0] != "full" {
		t.Errorf("the channel shows %q", got)
	}
	s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Error: "not_in_channel"})
	if th, _, err := s.Open(t.Context(), opsChannel, "two", chat.Post{Key: "root", Text: "a"}); !errors.Is(err, chat.ErrGone) {
		t.Errorf("it opened %q, %v", th, err)
	}
	if th, _, err := s.Open(t.Context(), opsChannel, "three", chat.Post{Key: "root", Text: wordsOf(200)}); !errors.Is(err, chat.ErrRejected) {
		t.Errorf("it opened %q, %v", th, err)
	}
}
