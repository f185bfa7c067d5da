package slack_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/slack/slackfake"
)

// killed ends a replica as SIGKILL does: nothing of it is seen any more.
func (r *replica) killed() {
	r.t.Helper()
	r.h.mu.Lock()
	r.h.dead[r.name] = true
	r.h.mu.Unlock()
	r.end()
}

// writes shows a draft, and waits until people see it below so many messages.
func (r *replica) writes(th chat.ThreadID, key, text string, below int) {
	r.t.Helper()
	r.ShowProgress(r.t.Context(), th, chat.Progress{Key: key, Status: "writing", Text: text})
	r.until("the draft is there", func() bool { return len(r.shows(th)) == below+1 })
}

// caughtUp waits until a replica did what it was told to show.
func (r *replica) caughtUp(th chat.ThreadID) {
	r.t.Helper()
	r.ShowProgress(r.t.Context(), th, chat.Progress{Key: "status", Kind: chat.ProgressStatus, Status: "looking around"})
	r.until("it shows what it was told", func() bool { return r.server.Status(split(th)) == "is looking around" })
}

func TestHalvesOfReplies(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{false, true} {
		two := func(t *testing.T) (*house, *replica, *replica, chat.ThreadID) {
			h, rs := replicas(t, slackfake.Config{Streaming: streaming, AssistantStatus: true}, "a", "b")
			a, b := rs[0].begin(), rs[1].begin()
			return h, a, b, a.begun()
		}
		name := func(rule string) string { return fmt.Sprintf("%s (streaming %t)", rule, streaming) }
		for _, key := range []string{"reply/1", "reply/2"} {
			for _, posted := range []bool{true, false} {
				for _, kill := range []bool{true, false} {
					t.Run(name(fmt.Sprintf("goes when another replica posts %s; posted before: %t, killed: %t", key, posted, kill)), func(t *testing.T) {
						t.Parallel()
						_, a, b, th := two(t)
						want := []string{}
						if posted {
							a.posts(th, chat.Post{Key: "x", Text: "first"})
							want = append(want, "first")
						}
						a.writes(th, "reply/1", "so far", len(want))
						if kill {
							a.killed()
						}
						b.writesNothing(th, "reply/1", posted)
						b.posts(th, chat.Post{Key: key, Text: "the reply"})
						want = append(want, "the reply")
						same(t, "the thread", b.shows(th), want)
						if kill {
							return
						}
						a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "so far and more"})
						a.caughtUp(th)
						same(t, "the thread when the first wakes", b.shows(th), want)
						a.posts(th, chat.Post{Key: "y", Text: "last"})
						b.posts(th, chat.Post{Key: "z", Text: "very last"})
						same(t, "the thread in the end", b.shows(th), append(want, "last", "very last"))
					})
				}
			}
		}
		t.Run(name("beside one's own goes, and the order stays"), func(t *testing.T) {
			t.Parallel()
			_, a, b, th := two(t)
			a.writes(th, "reply/1", "so far", 0)
			a.killed()
			b.writes(th, "reply/1", "so far of mine", 1)
			b.posts(th, chat.Post{Key: "reply/1", Text: "the reply"})
			same(t, "the thread", b.shows(th), []string{"the reply"})
		})
		t.Run(name("that comes after all, of a replica that was stopped in the middle, goes"), func(t *testing.T) {
			t.Parallel()
			h, a, b, th := two(t)
			a.posts(th, chat.Post{Key: "x", Text: "first"})
			asked := 0
			h.mu.Lock()
			h.during["a"] = func() {
				if asked++; asked == 2 { // right before the call itself
					b.posts(th, chat.Post{Key: "reply/1", Text: "the reply"})
				}
			}
			h.mu.Unlock()
			a.ShowProgress(t.Context(), th, chat.Progress{Key: "reply/1", Status: "writing", Text: "so far"})
			a.caughtUp(th)
			same(t, "the thread", b.shows(th), []string{"first", "the reply"})
		})
		t.Run(name("goes later when it cannot be removed at first"), func(t *testing.T) {
			t.Parallel()
			_, a, b, th := two(t)
			a.writes(th, "reply/1", "so far", 0)
			a.killed()
			b.server.FailNext("chat.delete", 1, slackfake.Answer{Error: "internal_error"})
			b.posts(th, chat.Post{Key: "reply/2", Text: "the reply"})
			b.until("it is gone", func() bool { return slices.Equal(b.shows(th), []string{"the reply"}) })
		})
		t.Run(name("goes when the history cannot be read at first"), func(t *testing.T) {
			t.Parallel()
			h, a, b, th := two(t)
			a.writes(th, "reply/1", "so far", 0)
			a.killed()
			h.tries("b", th)
			b.server.FailNext("conversations.replies", 1, slackfake.Answer{Error: "internal_error"})
			post := chat.Post{Key: "reply/2", Text: "the reply"}
			if _, err := b.Post(t.Context(), th, post); err == nil {
				b.post(th, chat.Post{Key: "reply/4", Text: "another"}) // somebody else's reading failed
				same(t, "the thread", b.shows(th), []string{"the reply", "another"})
				return
			}
			b.post(th, post)
			same(t, "the thread", b.shows(th), []string{"the reply"})
		})
		t.Run(name("goes when its replica ends in good order"), func(t *testing.T) {
			t.Parallel()
			_, a, b, th := two(t)
			a.posts(th, chat.Post{Key: "x", Text: "first"})
			a.writes(th, "reply/1", "so far", 1)
			a.end()
			same(t, "the thread", b.shows(th), []string{"first"})
		})
		t.Run(name("goes when its own replica posts what another one wrote instead"), func(t *testing.T) {
			t.Parallel()
			_, a, b, th := two(t)
			a.posts(th, chat.Post{Key: "x", Text: "first"})
			a.writes(th, "reply/1", "so far", 1)
			shown := time.Now()
			a.until("nothing comes to it for a while", func() bool { return time.Since(shown) > 150*time.Millisecond })
			a.posts(th, chat.Post{Key: "reply/2", Text: "the reply"})
			same(t, "the thread", b.shows(th), []string{"first", "the reply"})
		})
		t.Run(name("goes when a process alone comes back and posts something else"), func(t *testing.T) {
			t.Parallel()
			s := play(t, slackfake.Config{Streaming: streaming, AssistantStatus: true})
			th := s.begun()
			s.show(th, chat.Progress{Key: "reply/1", Text: "so far"})
			s.showing(th, "so far")
			s.restart()
			s.post(th, chat.Post{Key: "reply/2", Text: "the reply"})
			same(t, "the thread", s.shows(th), []string{"the reply"})
		})
	}
	t.Run("goes beside the one of a process alone that began the reply again", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Text: "so far"})
		s.showing(th, "so far")
		s.restart()
		s.show(th, chat.Progress{Key: "reply/1", Text: "once more"})
		s.showing(th, "so far", "once more")
		s.post(th, chat.Post{Key: "reply/1", Text: "the reply"})
		same(t, "the thread", s.shows(th), []string{"the reply"})
	})
	t.Run("becomes the reply of a process alone only where nothing stands below it", func(t *testing.T) {
		t.Parallel()
		s := play(t, slackfake.Config{AssistantStatus: true})
		th := s.begun()
		s.show(th, chat.Progress{Key: "reply/1", Text: "so far"})
		s.showing(th, "so far")
		s.post(th, chat.Post{Key: "q", Card: &chat.Card{Title: "Restart?", Code: "x"}})
		s.restart()
		s.post(th, chat.Post{Key: "reply/1", Text: "the reply"})
		if got := s.shows(th); len(got) != 2 || got[1] != "the reply" {
			t.Errorf("the thread shows %q", got)
		}
	})
	t.Run("is not what has buttons, or what another app wrote", func(t *testing.T) {
		t.Parallel()
		_, rs := replicas(t, slackfake.Config{Streaming: true}, "a", "b")
		a, b := rs[0].begin(), rs[1].begin()
		th := a.begun()
		_, root := split(th)
		forged(a.scene, root, "approve:1", "1")
		a.posts(th, chat.Post{Key: "x", Text: "first"})
		b.posts(th, chat.Post{Key: "y", Text: "second"})
		if got := b.shows(th); len(got) != 3 {
			t.Errorf("the thread shows %q", got)
		}
	})
}

// writesNothing shows a draft where another replica was the last that posted.
func (r *replica) writesNothing(th chat.ThreadID, key string, posted bool) {
	r.t.Helper()
	if !posted {
		return // then it writes
	}
	before := len(r.shows(th))
	r.ShowProgress(r.t.Context(), th, chat.Progress{Key: key, Status: "writing", Text: "mine"})
	r.caughtUp(th)
	if n := len(r.shows(th)); n != before {
		r.t.Errorf("%d messages, want %d", n, before)
	}
}
