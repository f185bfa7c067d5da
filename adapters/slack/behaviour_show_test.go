package slack_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack/slackfake"
)

func (s *scene) show(th chat.ThreadID, p chat.Progress) { s.ShowProgress(s.t.Context(), th, p) }

// showing waits until the thread shows something.
func (s *scene) showing(th chat.ThreadID, want ...string) {
	s.t.Helper()
	var got []string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the thread shows %q", got)
		}
	}()
	s.until(fmt.Sprintf("the thread shows %q", want), func() bool {
		got = s.shows(th)
		if len(got) != len(want) {
			return false
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				return false
			}
		}
		return true
	})
}

func line(key, text string) chat.Post { return chat.Post{Key: key, Text: text, Log: true, Quiet: true} }

func TestTheLogOfATurn(t *testing.T) {
	t.Parallel()
	t.Run("lines are one message until something else comes", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, line("call/1", "ran uptime"))
		s.post(th, line("call/2", "ran df"))
		s.post(th, chat.Post{Key: "reply/1", Text: "all is well", Quiet: true})
		s.post(th, line("call/3", "ran free"))
		s.post(th, chat.Post{Key: "card/1", Card: question("x")})
		s.post(th, line("call/4", "ran x"))
		got := s.shows(th)
		if len(got) != 5 {
			t.Fatalf("the thread shows %q", got)
		}
		for i, want := range []string{"ran uptime\n\nran df", "all is well", "ran free", "Restart nginx", "ran x"} {
			contains(t, "the thread", got[i], want)
		}
	})
	t.Run("one that gets too long goes on in another", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		for i := range 8 {
			s.post(th, line(fmt.Sprintf("call/%d", i), fmt.Sprintf("ran number %d\n\n```\n%s\n```", i, strings.Repeat("output of it\n", 220))))
		}
		whole, at := strings.Join(s.shows(th), "\n"), -1
		for i := range 8 {
			n := strings.Index(whole, fmt.Sprintf("ran number %d\n", i))
			if n < at || n < 0 {
				t.Errorf("line %d stands at %d", i, n)
			}
			at = n
		}
		if n := len(s.ours(th)); n < 2 || n > 6 {
			t.Errorf("it became %d messages", n)
		}
	})
	t.Run("a line that is too long for any message is a post of its own", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, line("call/1", "short"))
		s.post(th, line("call/2", wordsOf(2000)))
		s.post(th, line("call/3", "short again"))
		s.showing(th, "short", "the start", "reply.md", "short again")
	})
	t.Run("a line can be replaced, while the log is open and after", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		one := s.post(th, line("call/1", "one"))
		s.post(th, line("call/2", "two"))
		s.edit(th, one, line("call/1", "ONE"))
		same(t, "the thread", s.shows(th), []string{"ONE\n\ntwo"})
		s.post(th, chat.Post{Key: "reply/1", Text: "done"})
		s.edit(th, one, line("call/1", "Uno"))
		same(t, "the thread", s.shows(th), []string{"Uno\n\ntwo", "done"})
	})
	t.Run("a line of a log that is not known any more does not wipe out the others", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		one := s.post(th, line("call/1", "one"))
		s.post(th, line("call/2", "two"))
		s.restart()
		s.post(th, chat.Post{Key: "reply/1", Text: "done"})
		s.edit(th, one, line("call/1", "ONE"))
		same(t, "the thread", s.shows(th), []string{"one\n\ntwo", "done", "ONE"})
	})
	t.Run("one that somebody deleted goes on in another", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.post(th, line("call/1", "one"))
		if err := s.server.Delete(t.Context(), "C1", s.ours(th)[0].TS); err != nil {
			t.Fatal(err)
		}
		s.post(th, line("call/2", "two"))
		same(t, "the thread", s.shows(th), []string{"two"})
	})
}

func TestARunningCommand(t *testing.T) {
	t.Parallel()
	for _, status := range []bool{true, false} {
		t.Run(fmt.Sprintf("with Slack's status line: %t", status), func(t *testing.T) {
			t.Parallel()
			s := play(t, slackfake.Config{AssistantStatus: status})
			th := s.begun()
			s.post(th, line("call/1", "ran uptime"))
			s.show(th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Status: "running apt", Text: "line 1\n"})
			s.showing(th, "line 1")
			s.show(th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Status: "running apt", Text: strings.Repeat("old\n", 30) + "line 2\n"})
			s.showing(th, "line 2")
			if text := s.shows(th)[0]; !strings.Contains(text, "ran uptime") || strings.Count(text, "old") > 12 {
				t.Errorf("the log is %q", text)
			}
			s.show(th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Done: true})
			s.post(th, line("call/2", "ran apt"))
			s.show(th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
			s.post(th, chat.Post{Key: "reply/1", Text: "done"})
			s.showing(th, "ran uptime\n\nran apt", "done")
			if text := strings.Join(s.shows(th), ""); strings.Contains(text, "line 2") || strings.Contains(text, "running") {
				t.Errorf("left behind: %q", text)
			}
		})
	}
	t.Run("of which no result comes leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.show(th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Status: "running apt", Text: "line 1\n"})
		s.showing(th, "line 1")
		s.show(th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Done: true})
		s.post(th, chat.Post{Key: "stopped", Text: "Stopped."})
		s.showing(th, "Stopped.")
	})
	t.Run("whose output would mention somebody does not", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.show(th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Status: "running <!here>", Text: "```\n<!channel> <@UBOB> @here\n"})
		s.showing(th, "channel")
		for _, m := range s.ours(th) {
			if got := slackfake.Mentions(m); len(got) != 0 {
				t.Errorf("it mentions %q", got)
			}
		}
	})
}

// TestADraft: the message that people watch being written becomes the reply.
func TestADraft(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{true, false} {
		name := func(rule string) string { return fmt.Sprintf("%s, streaming: %t", rule, streaming) }
		cfg := slackfake.Config{Streaming: streaming, AssistantStatus: true}
		t.Run(name("the reply takes its draft's place"), func(t *testing.T) {
			t.Parallel()
			s := play(t, cfg)
			th := s.begun()
			s.show(th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk"})
			s.showing(th, "The disk")
			draft := s.ours(th)[0]
			if draft.Streaming != streaming {
				t.Errorf("streaming: %t", draft.Streaming)
			}
			s.show(th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk is full of <logs>"})
			s.showing(th, "is full of <logs>")
			r := s.post(th, chat.Post{Key: "reply/1", Text: "The disk is full of **logs**."})
			same(t, "the thread", s.shows(th), []string{"The disk is full of logs."})
			if m := s.ours(th)[0]; m.TS != draft.TS || m.Streaming || r != chat.MessageRef("C1:"+m.TS) {
				t.Errorf("the reply is %+v at %s", m, r)
			}
			if n := s.accepted("chat.startStream"); (n == 1) != streaming {
				t.Errorf("%d streams were begun", n)
			}
			s.show(th, chat.Progress{Key: "reply/1", Status: "writing", Text: "late"})
			s.show(th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
			s.until("the status is gone", func() bool { return s.server.Status("C1", string(th)[len("slack:T1:C1:"):]) == "" })
			same(t, "the thread", s.shows(th), []string{"The disk is full of logs."})
		})
		t.Run(name("no draft begins while nobody knows whether the reply stands there"), func(t *testing.T) {
			t.Parallel()
			s := play(t, cfg)
			th := s.begun()
			s.server.FailNext("chat.postMessage", 1, slackfake.Answer{Drop: true})
			if _, err := s.Post(t.Context(), th, chat.Post{Key: "reply/1", Text: "All is well."}); err == nil {
				t.Fatal("the answer arrived")
			}
			s.show(th, chat.Progress{Key: "reply/1", Status: "writing", Text: "All is"})
			s.until("the status is there", func() bool { return s.server.Status("C1", string(th)[len("slack:T1:C1:"):]) != "" })
			s.post(th, chat.Post{Key: "reply/1", Text: "All is well."})
			same(t, "the thread", s.shows(th), []string{"All is well."})
		})
		t.Run(name("a long reply begins where its draft stands"), func(t *testing.T) {
			t.Parallel()
			s := play(t, cfg)
			th := s.begun()
			s.show(th, chat.Progress{Key: "reply/1", Text: "Paragraph 0"})
			s.showing(th, "Paragraph 0")
			s.post(th, chat.Post{Key: "reply/1", Text: wordsOf(120)})
			whole := strings.Join(s.shows(th), "\n")
			for i := range 120 {
				if n := strings.Count(whole, fmt.Sprintf("Paragraph %d ", i)); n != 1 {
					t.Errorf("paragraph %d stands there %d times", i, n)
				}
			}
		})
		t.Run(name("what changed in it is not shown any more"), func(t *testing.T) {
			t.Parallel()
			s := play(t, cfg)
			th := s.begun()
			s.show(th, chat.Progress{Key: "reply/1", Text: "the password is hunter2"})
			s.showing(th, "hunter2")
			s.show(th, chat.Progress{Key: "reply/1", Text: "the password is [redacted] and"})
			s.showing(th, "[redacted] and")
			s.show(th, chat.Progress{Key: "reply/1", Text: "the password is [redacted] and more"})
			s.showing(th, "and more")
			if m := s.ours(th)[0]; m.Streaming || strings.Contains(m.Plain()+m.Text, "hunter2") {
				t.Errorf("the draft is %+v", m)
			}
		})
		t.Run(name("one of which no reply comes goes away"), func(t *testing.T) {
			t.Parallel()
			s := play(t, cfg)
			th := s.begun()
			s.show(th, chat.Progress{Key: "reply/1", Text: "I will now"})
			s.showing(th, "I will now")
			s.show(th, chat.Progress{Key: "reply/1", Done: true})
			s.until("the stream has ended", func() bool { m := s.ours(th); return len(m) == 1 && !m[0].Streaming })
			// Without streams nothing shows that the end has arrived.
			s.show(th, chat.Progress{Key: "reply/0", Status: "x"})
			s.until("the end has arrived", func() bool { return s.server.Status("C1", string(th)[len("slack:T1:C1:"):]) != "" })
			s.post(th, chat.Post{Key: "stopped", Text: "Stopped."})
			same(t, "the thread", s.shows(th), []string{"Stopped."})
		})
		t.Run(name("its edits are few"), func(t *testing.T) {
			t.Parallel()
			s := play(t, cfg)
			th := s.begun()
			text, began := "", time.Now()
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for time.Since(began) < 600*time.Millisecond {
				text += "word "
				s.show(th, chat.Progress{Key: "reply/1", Text: text})
				<-tick.C
			}
			// Hurry makes the second a tenth of one.
			if n := s.server.Count("chat.update") + s.server.Count("chat.appendStream"); n > int(time.Since(began)/(100*time.Millisecond))+1 {
				t.Errorf("%d edits in %s", n, time.Since(began))
			}
		})
		t.Run(name("a draft in a thread that is gone does not leak"), func(t *testing.T) {
			t.Parallel()
			s := play(t, cfg)
			th := s.begun()
			_, root := split(th)
			if err := s.server.Delete(t.Context(), "C1", root); err != nil {
				t.Fatal(err)
			}
			was := len(s.server.Calls())
			s.show(th, chat.Progress{Key: "reply/1", Text: "secret"})
			s.until("it was tried", func() bool { return len(s.server.Calls()) > was })
			if _, err := s.Post(t.Context(), th, chat.Post{Key: "reply/1", Text: "secret"}); err == nil {
				t.Error("the reply was posted")
			}
			for _, m := range s.server.Messages("C1", "") {
				if m.BotID != "" && !m.Deleted {
					t.Errorf("the channel shows %q", m.Plain())
				}
			}
		})
	}
	t.Run("a stream that cannot be ended at once is ended with the reply", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{Streaming: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Text: "The"})
		s.showing(th, "The")
		s.server.FailNext("chat.stopStream", 1, slackfake.Answer{Status: 503})
		if _, err := s.Post(t.Context(), th, chat.Post{Key: "reply/1", Text: "The end"}); err == nil {
			t.Error("the failure was not noticed")
		}
		s.post(th, chat.Post{Key: "reply/1", Text: "The end"})
		same(t, "the thread", s.shows(th), []string{"The end"})
	})
	t.Run("a stream that Slack refuses once is refused for that reply alone", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{Streaming: true})
		th := s.begun()
		s.server.FailNext("chat.startStream", 1, slackfake.Answer{Error: "user_not_found"})
		s.show(th, chat.Progress{Key: "reply/1", Text: "one"})
		s.showing(th, "one")
		s.post(th, chat.Post{Key: "reply/1", Text: "one"})
		s.show(th, chat.Progress{Key: "reply/2", Text: "two"})
		s.showing(th, "one", "two")
		if !s.ours(th)[1].Streaming {
			t.Error("the second does not stream")
		}
	})
	t.Run("a draft that Slack holds for a stream is replaced", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{Streaming: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Text: "The"})
		s.showing(th, "The")
		s.server.FailNext("chat.stopStream", 1, slackfake.Answer{Error: "message_not_owned_by_app"})
		s.post(th, chat.Post{Key: "reply/1", Text: "The end"})
		same(t, "the thread", s.shows(th), []string{"The end"})
	})
}

func TestTheStatus(t *testing.T) {
	t.Parallel()
	root := func(th chat.ThreadID) string { _, r := split(th); return r }
	t.Run("stands on Slack's own line", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.until("it is shown", func() bool { return s.server.Status("C1", root(th)) == "is thinking" })
		s.show(th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running uptime"})
		s.until("it is shown", func() bool { return s.server.Status("C1", root(th)) == "is running uptime" })
		s.post(th, line("call/1", "ran uptime"))
		s.show(th, chat.Progress{Key: "call/2", Kind: chat.ProgressOutput, Status: "running uptime"})
		s.until("it is shown again after Slack took it away", func() bool { return s.server.Status("C1", root(th)) == "is running uptime" })
		s.show(th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		s.until("it is gone", func() bool { return s.server.Status("C1", root(th)) == "" })
		same(t, "the thread", s.shows(th), []string{"ran uptime"})
	})
	t.Run("the end of a turn is the last word", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.until("it is shown", func() bool { return s.server.Status("C1", root(th)) != "" })
		s.show(th, chat.Progress{Key: "reply/1", Status: "writing"})
		s.show(th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		s.until("it is gone", func() bool { return s.server.Status("C1", root(th)) == "" })
	})
	t.Run("what begins after it is shown", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "x", Status: "x"})
		s.show(th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		s.show(th, chat.Progress{Key: "reply/2", Status: "thinking"})
		s.until("it is shown", func() bool { return s.server.Status("C1", root(th)) == "is thinking" })
	})
	t.Run("a failure of Slack's does not end it for good", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		th := s.begun()
		s.server.FailNext("assistant.threads.setStatus", 1, slackfake.Answer{Error: "internal_error"})
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.until("it was tried", func() bool { return s.server.Count("assistant.threads.setStatus") == 1 })
		s.show(th, chat.Progress{Key: "reply/1", Status: "writing"})
		s.until("it is shown", func() bool { return s.server.Status("C1", root(th)) == "is writing" })
		if got := s.shows(th); len(got) != 0 {
			t.Errorf("the thread shows %q", got)
		}
	})
	t.Run("elsewhere it stands at the end of the log, and then nowhere", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.showing(th, "thinking…")
		s.post(th, line("call/1", "ran uptime"))
		s.showing(th, "ran uptime")
		s.show(th, chat.Progress{Key: "reply/2", Status: "writing"})
		s.showing(th, "writing…")
		s.show(th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		s.post(th, chat.Post{Key: "reply/2", Text: "done"})
		s.showing(th, "ran uptime", "done")
		s.until("the status is gone", func() bool { return !strings.Contains(strings.Join(s.shows(th), ""), "…") })
	})
	t.Run("a reply takes the place of a status alone", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.showing(th, "thinking…")
		s.post(th, chat.Post{Key: "reply/1", Text: "done"})
		same(t, "the thread", s.shows(th), []string{"done"})
	})
	t.Run("a draft takes it too, with its first words", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.showing(th, "thinking…")
		s.show(th, chat.Progress{Key: "reply/1", Status: "writing", Text: "The disk"})
		s.showing(th, "The disk")
		s.post(th, chat.Post{Key: "reply/1", Text: "The disk is full"})
		same(t, "the thread", s.shows(th), []string{"The disk is full"})
	})
	t.Run("a card does not", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.showing(th, "thinking…")
		status := s.ours(th)[0].TS
		s.post(th, chat.Post{Key: "card/1", Card: question("x")})
		if m := s.ours(th); len(m) != 1 || m[0].TS == status {
			t.Errorf("the thread shows %q", s.shows(th))
		}
	})
	t.Run("one that a crash left behind is cleared away", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: "thinking"})
		s.showing(th, "thinking…")
		s.restart()
		s.post(th, chat.Post{Key: "reply/1", Text: "done"})
		same(t, "the thread", s.shows(th), []string{"done"})
	})
	t.Run("a draft that a crash left behind becomes its reply", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Text: "The disk"})
		s.showing(th, "The disk")
		s.restart()
		s.post(th, chat.Post{Key: "reply/1", Text: "The disk is full"})
		same(t, "the thread", s.shows(th), []string{"The disk is full"})
	})
	t.Run("a thread that nobody knows shows none", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{})
		s.show("web:1", chat.Progress{Key: "x", Status: "x"})
		s.show("slack:T1:C404:1700000000.000001", chat.Progress{Key: "x", Status: "x", Text: "x"})
		s.begun()
	})
}

// docs.slack.dev/ai/agent-sessions: Slack shows what state a thread's session is in, and its own
// stop button while the agent works.
func TestTheAgentSession(t *testing.T) {
	t.Parallel()
	root := func(th chat.ThreadID) string { _, r := split(th); return r }
	t.Run("follows the turn", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AgentSessions: true})
		th := s.begun()
		session := func(want string) {
			t.Helper()
			s.until("the session is "+want, func() bool { return s.server.Session("C1", root(th)) == want })
		}
		s.show(th, chat.Progress{Key: "reply/1", Status: chat.StatusThinking})
		session("processing")
		s.show(th, chat.Progress{Key: "wait", Kind: chat.ProgressStatus, Status: chat.StatusDecision})
		session("suspended")
		s.show(th, chat.Progress{Key: "call/1", Kind: chat.ProgressOutput, Status: "running uptime"})
		session("processing")
		s.show(th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Done: true})
		session("active")
		if n := s.server.Count("agents.sessions.setStatus"); n != 4 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("of an app that is no agent is asked for once", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		for range 2 {
			th := s.begun()
			s.show(th, chat.Progress{Key: "reply/1", Status: chat.StatusThinking})
			s.until("the status is shown", func() bool { return s.server.Status("C1", root(th)) == "is thinking" })
		}
		if n := s.server.Count("agents.sessions.setStatus"); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("ends with what people often ask next, in a direct channel", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AgentSessions: true, AssistantStatus: true})
		dm := s.server.DM("UALICE")
		ts := s.say(slackfake.Message{User: "UALICE", Channel: dm, Text: "hello"})
		th := chat.ThreadID("slack:T1:" + dm + ":" + ts)
		for _, p := range []chat.Progress{{Key: "reply/1", Status: chat.StatusThinking}, {Key: "status", Kind: chat.ProgressStatus, Done: true}} {
			s.show(th, p)
			s.until("the session follows", func() bool { return (s.server.Session(dm, ts) == "active") == p.Done && s.server.Session(dm, ts) != "" })
		}
		s.until("there are prompts", func() bool { return strings.Contains(string(s.server.SuggestedPrompts(dm, "")), "Dig deeper") })
	})
	t.Run("a failure of Slack's is tried again", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AgentSessions: true})
		th := s.begun()
		s.server.FailNext("agents.sessions.setStatus", 1, slackfake.Answer{Error: "internal_error"})
		s.show(th, chat.Progress{Key: "reply/1", Status: chat.StatusThinking})
		s.until("it is processing", func() bool { return s.server.Session("C1", root(th)) == "processing" })
	})
	t.Run("its stop button is the word stop", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AgentSessions: true})
		th := s.begun()
		if err := s.server.StopSession(t.Context(), "UBOB", "C1", root(th)); err == nil {
			t.Error("there is a button while nothing goes on")
		}
		s.show(th, chat.Progress{Key: "reply/1", Status: chat.StatusThinking})
		s.until("it is processing", func() bool { return s.server.Session("C1", root(th)) == "processing" })
		if err := s.server.StopSession(t.Context(), "UBOB", "C1", root(th)); err != nil {
			t.Fatal(err)
		}
		got := s.bot.got()
		if last := got[len(got)-1]; last.Text != "stop" || last.Thread != th || last.From.ID != "slack:T1:UBOB" || last.Ref != "" {
			t.Errorf("the bot was told %+v", last)
		}
		s.until("it works no more", func() bool { return s.server.Session("C1", root(th)) == "active" })
	})
	t.Run("its stop button is not for people of another organisation", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AgentSessions: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Status: chat.StatusThinking})
		s.until("it is processing", func() bool { return s.server.Session("C1", root(th)) == "processing" })
		if err := s.server.StopSession(t.Context(), "UEXT", "C1", root(th)); err != nil {
			t.Fatal(err)
		}
		s.until("they are told", func() bool { return len(s.whispers("C1", "UEXT")) == 1 })
		if got := s.bot.got(); got[len(got)-1].Text == "stop" || s.server.Session("C1", root(th)) != "processing" {
			t.Errorf("the bot was told %+v", got[len(got)-1])
		}
	})
	t.Run("in a thread without the bot its stop button is nobody's word", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AgentSessions: true})
		err := s.server.Emit(t.Context(), "agent_session_stopped", map[string]any{"channel": "C1", "thread_ts": "1700000000.000100", "user": "UBOB"})
		if err != nil || len(s.bot.got()) != 0 {
			t.Errorf("%v, the bot was told %+v", err, s.bot.got())
		}
	})
}

// docs.slack.dev/reference/block-kit/blocks/plan-block: how the steps of a plan went is one of
// Slack's plans where messages may have one, and lines of text elsewhere.
func TestThePlanOfACard(t *testing.T) {
	t.Parallel()
	card := &chat.Card{
		Title: "Run 2 steps on web-1", Final: true, Details: []chat.Field{{Name: "Tool", Value: "propose_plan"}}, DetailsID: "details:1",
		Body: "Approved by bob · 1 of 2 done\n✓ systemctl stop <app> · exit 0\n▸ systemctl start app · running", Steps: []chat.StepState{chat.StepDone, chat.StepRunning},
	}
	for plans, want := range map[bool]string{
		true:  "2 steps\nsystemctl stop <app> · exit 0 [complete]\nsystemctl start app · running [in_progress]",
		false: "✓ systemctl stop <app> · exit 0\n▸ systemctl start app · running",
	} {
		t.Run(fmt.Sprintf("with Slack's plans: %t", plans), func(t *testing.T) {
			t.Parallel()
			s := play(t, slackfake.Config{Plans: plans})
			th := s.begun()
			r := s.post(th, chat.Post{Key: "approval/1", Card: card})
			for range 2 {
				s.edit(th, r, chat.Post{Key: "approval/1", Card: card})
			}
			if text := s.shows(th)[0]; !strings.Contains(text, "Approved by bob · 1 of 2 done\n"+want) || !strings.Contains(text, "[Details]") {
				t.Errorf("the card shows %q", text)
			}
			refused := 0
			for _, c := range s.server.Calls() {
				if (c.Method == "chat.postMessage" || c.Method == "chat.update") && strings.Contains(string(c.Answer), "invalid_blocks") {
					refused++
				}
			}
			if want := map[bool]int{true: 0, false: 1}[plans]; refused != want {
				t.Errorf("%d messages were refused, want %d", refused, want)
			}
		})
	}
}
