package discord_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/discord/discordfake"
)

const routeThread = "POST /channels/{channel_id}/messages/{message_id}/threads"

func (s *scene) ops() string { return "discord:" + s.guild + ":" + s.channel }

func TestAThreadIsOpenedOnce(t *testing.T) {
	t.Parallel()
	root := chat.Post{Key: "root", Text: "**Firing: disk\\_full**\n\nsince 10:03"}
	for _, c := range []struct {
		rule  string
		route string // a call whose answer is lost
		wait  time.Duration
		again bool // another process tries again
	}{
		{"when the answer about the message was lost", routePost, 0, false},
		{"when the answer about the thread was lost", routeThread, 0, false},
		{"when it is asked for again", "", 0, false},
		{"over a restart", "", 0, true},
		{"over a restart after the time for which Discord knows its nonce", "", time.Hour, true},
	} {
		t.Run(c.rule, func(t *testing.T) {
			t.Parallel()
			s := play(t, full())
			if c.route != "" {
				s.FailNext(c.route, 1, discordfake.Answer{Drop: true})
			}
			th, ref, err := s.Open(t.Context(), s.ops(), "one", root)
			if err != nil {
				t.Fatal(err)
			}
			s.Advance(c.wait)
			if c.again {
				s.later()
				s.restart()
			}
			if th2, ref2, err := s.Open(t.Context(), s.ops(), "one", root); err != nil || th2 != th || ref2 != ref {
				t.Fatalf("it opened %q %q and then %q %q, %v", th, ref, th2, ref2, err)
			}
			if err := s.Edit(t.Context(), th, ref, chat.Post{Key: "root", Text: "over"}); err != nil {
				t.Error(err)
			}
			same(t, "the channel", s.shows(s.channel), []string{"over"})
		})
	}
	t.Run("under a name that is read as it is", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		th, _, err := s.Open(t.Context(), s.ops(), "one", chat.Post{Key: "root", Text: "Firing for <@&55>: rm \u202egol"})
		if err != nil {
			t.Fatal(err)
		}
		_, id := split(th)
		if c, _, ok := s.ThreadOf(id); !ok || c.Name != `Firing for @role: rm \u{202E}gol` {
			t.Errorf("the thread is %+v", c)
		}
	})
	t.Run("over a restart between the message and the thread", func(t *testing.T) {
		t.Parallel()
		s := play(t, full())
		s.FailNext(routeThread, 1, discordfake.Answer{RetryAfter: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		failed := make(chan error, 1)
		go func() {
			_, _, err := s.Open(ctx, s.ops(), "one", root)
			failed <- err
		}()
		s.until("the thread is asked for", func() bool { return s.Count(routeThread) == 1 })
		cancel()
		if err := <-failed; err == nil {
			t.Fatal("it opened a thread")
		}
		if got := s.shows(s.channel); len(got) != 1 {
			t.Fatalf("the channel shows %q", got)
		}
		s.Advance(time.Hour)
		s.later()
		s.restart()
		if _, _, err := s.Open(t.Context(), s.ops(), "one", root); err != nil {
			t.Fatal(err)
		}
		if got := s.shows(s.channel); len(got) != 1 {
			t.Fatalf("the channel shows %q", got)
		}
	})
}

func TestTheSameTextUnderAnotherKeyIsAnotherThread(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	one, _, err := s.Open(t.Context(), s.ops(), "one", chat.Post{Key: "root", Text: "full"})
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := s.Open(t.Context(), s.ops(), "two", chat.Post{Key: "root", Text: "full"})
	if err != nil || one == two {
		t.Errorf("it opened %q and %q, %v", one, two, err)
	}
}

func TestWhereNoThreadMayBeStartedNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	s := play(t, full())
	s.FailNext(routeThread, 1, discordfake.Answer{Status: 403, Code: 50013})
	th, _, err := s.Open(t.Context(), s.ops(), "one", chat.Post{Key: "root", Text: "full"})
	if !errors.Is(err, chat.ErrGone) || !strings.Contains(err.Error(), "Create Public Threads") {
		t.Errorf("it opened %q, %v", th, err)
	}
	if got := s.shows(s.channel); len(got) != 0 {
		t.Errorf("the channel shows %q", got)
	}
	if th, _, err := s.Open(t.Context(), "discord:1:"+s.channel, "two", chat.Post{Key: "root", Text: "full"}); !errors.Is(err, chat.ErrGone) {
		t.Errorf("in a server that is not allowed it opened %q, %v", th, err)
	}
	if th, _, err := s.Open(t.Context(), s.ops(), "three", chat.Post{Key: "root", Text: strings.Repeat("full ", 1000)}); !errors.Is(err, chat.ErrRejected) {
		t.Errorf("a text of two messages opened %q, %v", th, err)
	}
}
