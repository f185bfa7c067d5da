package slack_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack"
	"countersign/adapters/slack/slackfake"
)

func two(c *slack.Config) { c.Sockets = 2 }

// run starts the adapter of a scene that is expected to fail.
func (s *scene) run(ctx context.Context) error {
	s.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, s.bot) }()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		s.t.Fatal("Run goes on")
		return nil
	}
}

func TestTokensThatSlackRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule   string
		change func(*slack.Config)
		fail   func(*slackfake.Server)
		want   string
	}{
		{"a bot token that is wrong", func(c *slack.Config) { c.BotToken = "xoxb-2" }, func(*slackfake.Server) {}, "invalid_auth"},
		{"a bot token that was revoked", func(*slack.Config) {}, func(s *slackfake.Server) {
			s.FailNext("auth.test", 1, slackfake.Answer{Error: "token_revoked"})
		}, "token_revoked"},
		{"an app-level token that is wrong", func(c *slack.Config) { c.AppToken = "xapp-2" }, func(*slackfake.Server) {}, "invalid_auth"},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			s := stage(t, slackfake.Config{}, tc.change)
			tc.fail(s.server)
			err := s.run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "xoxb") && strings.Contains(err.Error(), "-2") {
				t.Errorf("Run returned %v", err)
			}
		})
	}
	t.Run("one that is refused later is tried again, and said", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		s.server.FailNext("apps.connections.open", 2, slackfake.Answer{Error: "token_revoked"})
		s.server.Cut()
		s.until("the reason is said", func() bool {
			err := s.Ready()
			return err != nil && strings.Contains(err.Error(), "token_revoked")
		})
		s.ready()
	})
}

func TestSlackIsDown(t *testing.T) {
	t.Parallel()
	t.Run("at the start it is tried again, and said", func(t *testing.T) {
		t.Parallel()
		s := stage(t, slackfake.Config{})
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "not connected yet") {
			t.Errorf("before Run it says %v", err)
		}
		s.server.FailNext("auth.test", 1, slackfake.Answer{Status: 503})
		s.start()
		s.until("the reason is said", func() bool {
			err := s.Ready()
			return err != nil && strings.Contains(err.Error(), "Slack does not answer")
		})
		s.ready()
	})
	t.Run("later no wait is longer than the limit, and the bot comes back", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		s.server.PauseSockets(true)
		s.server.Cut()
		s.until("the bot says that it hears nothing", func() bool {
			err := s.Ready()
			return err != nil && strings.Contains(err.Error(), "cannot connect to Slack")
		})
		was := s.server.Count("apps.connections.open")
		s.until("the bot tries again and again", func() bool { return s.server.Count("apps.connections.open") >= was+6 })
		var last time.Time
		for _, c := range s.server.Calls() {
			if c.Method != "apps.connections.open" {
				continue
			}
			// Hurry makes the limit a second.
			if wait := c.At.Sub(last); !last.IsZero() && wait > 2*time.Second {
				t.Errorf("it waited %s", wait)
			}
			last = c.At
		}
		s.server.PauseSockets(false)
		s.ready()
		s.mention("", "a")
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
}

func TestConnectionsThatEnd(t *testing.T) {
	t.Parallel()
	t.Run("a connection that breaks is made again", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		s.server.PauseSockets(true)
		s.server.Cut()
		s.until("the bot says that it hears nothing", func() bool { return s.Ready() != nil })
		s.server.PauseSockets(false)
		s.ready()
		s.mention("", "a")
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
	t.Run("a refresh of one of two is not noticed", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{}, two)
		s.until("both listen", func() bool { return s.server.Sockets() == 2 })
		root := s.mention("", "first")
		for range 3 {
			was := s.server.Count("apps.connections.open")
			s.server.DisconnectOne("refresh_requested")
			s.until("the connection is replaced", func() bool {
				if err := s.Ready(); err != nil {
					t.Errorf("meanwhile the bot says %v", err)
				}
				s.say(slackfake.Message{Thread: root, Text: "more"})
				return s.server.Count("apps.connections.open") > was
			})
		}
		s.settled()
		if n, lost := len(s.bot.got()), s.server.Lost(); lost != 0 || n != len(s.server.Messages("C1", root)) {
			t.Errorf("%d of %d messages were heard, %d were lost", n, len(s.server.Messages("C1", root)), lost)
		}
	})
	t.Run("a refresh of all loses nothing", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{}, two)
		s.until("both listen", func() bool { return s.server.Sockets() == 2 })
		s.server.DisconnectAll("warning")
		s.mention("", "a")
		s.ready()
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
	t.Run("what was said while nobody listened comes with Slack's repeat", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{RetryDelays: []time.Duration{0, 20 * time.Millisecond, 2 * time.Second}})
		s.server.PauseSockets(true)
		s.server.Cut()
		s.until("nobody listens", func() bool { return s.server.Sockets() == 0 })
		said := make(chan error, 1)
		go func() {
			_, err := s.server.Say(t.Context(), slackfake.Message{User: "UALICE", Channel: "C1", Text: "<@UBOT> a", Mention: true})
			said <- err
		}()
		s.until("Slack tried twice", func() bool { return len(s.server.Deliveries()) >= 4 })
		s.server.PauseSockets(false)
		if err := <-said; err != nil {
			t.Fatal(err)
		}
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
	t.Run("a connection without pings is given up", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{PingInterval: 20 * time.Millisecond}, func(c *slack.Config) { c.PingTimeout = 300 * time.Millisecond })
		was := s.server.Count("apps.connections.open")
		s.server.Deafen(true)
		s.server.StopPings(true)
		s.server.PauseSockets(true)
		s.until("the bot says that it hears nothing", func() bool { return s.Ready() != nil })
		s.server.Deafen(false)
		s.server.StopPings(false)
		s.server.PauseSockets(false)
		s.ready()
		if s.server.Count("apps.connections.open") == was {
			t.Error("no new connection was opened")
		}
		s.mention("", "a")
		same(t, "heard", s.bot.texts(), []string{"a"})
	})
	t.Run("a connection that answers pings and brings nothing is found out by the history", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{PingInterval: 20 * time.Millisecond, RetryDelays: []time.Duration{}}, two)
		s.until("both listen", func() bool { return s.server.Sockets() == 2 })
		root := s.mention("", "a")
		was := s.server.Count("apps.connections.open")
		s.server.Deafen(true)
		if _, err := s.server.Say(t.Context(), slackfake.Message{User: "UALICE", Channel: "C1", Thread: root, Text: "b"}); err == nil {
			t.Fatal("Slack got an acknowledgement")
		}
		s.until("the message is found in the history", func() bool { return len(s.bot.got()) == 2 })
		s.until("both connections are made again", func() bool { return s.server.Count("apps.connections.open") >= was+2 })
		s.server.Deafen(false)
		s.ready()
		s.say(slackfake.Message{Thread: root, Text: "c"})
		same(t, "heard", s.bot.texts(), []string{"a", "b", "c"})
	})
	t.Run("after a restart what open threads missed is read from the history", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{RetryDelays: []time.Duration{}})
		root := s.mention("", "a")
		s.end()
		s.until("nobody listens", func() bool { return s.server.Sockets() == 0 })
		if _, err := s.server.Say(t.Context(), slackfake.Message{User: "UBOB", Channel: "C1", Thread: root, Text: "b"}); err == nil {
			t.Fatal("somebody listened")
		}
		s.stop = func() {}
		s.restart()
		s.until("the message is heard", func() bool { return len(s.bot.got()) == 2 })
		if ev := s.bot.got()[1]; ev.Text != "b" || ev.From.ID != "slack:T1:UBOB" || ev.Thread != s.thread(root) {
			t.Errorf("the event is %+v", ev)
		}
	})
	t.Run("without the right to read the history it goes on without", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		root := s.mention("", "a")
		s.server.FailNext("conversations.replies", 3, slackfake.Answer{Error: "missing_scope"})
		s.say(slackfake.Message{Thread: root, Text: "b"})
		same(t, "heard", s.bot.texts(), []string{"a", "b"})
	})
}

// TestNothingGoesOnAfterRun: the adapter owns its goroutines.
func TestNothingGoesOnAfterRun(t *testing.T) {
	s := play(t, slackfake.Config{Streaming: true, AssistantStatus: true}, two)
	th := s.begun()
	s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "thinking", Text: "a"})
	s.post(th, chat.Post{Key: "a", Text: "x"})
	s.until("both listen", func() bool { return s.server.Sockets() == 2 })
	s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/2", Status: "thinking", Text: "b"})
	s.end()
	s.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/2", Status: "thinking", Text: "c"})
	if err := s.Ready(); err == nil {
		t.Error("it says that it listens")
	}
	s.server.Close()
	ours := func() string {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		for g := range strings.SplitSeq(string(buf), "\n\n") {
			if strings.Contains(g, "behaviour_connection_test.go") || strings.Contains(g, "testing.(*T).Parallel(") {
				continue // this test, and those that wait for their turn
			}
			for _, of := range []string{"countersign/adapters/slack.", "slack-go/slack", "persistConn"} {
				if strings.Contains(g, of) {
					return g
				}
			}
		}
		return ""
	}
	// What a closed connection still has to return from ends by itself.
	late := time.Now().Add(2 * time.Second)
	for ours() != "" && time.Now().Before(late) {
		runtime.Gosched()
	}
	if g := ours(); g != "" {
		t.Errorf("this goes on:\n%s", g)
	}
}
