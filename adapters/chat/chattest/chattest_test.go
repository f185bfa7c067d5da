package chattest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/chattest"
)

func TestTheNetworkKeepsThePromisesOfAnAdapter(t *testing.T) {
	chattest.Run(t, func(*testing.T) chattest.Subject {
		n := chattest.New("mem")
		const you = chat.UserID("mem:you")
		return chattest.Subject{
			Adapter: n,
			User:    you,
			Unknown: "mem:nowhere",
			Say: func(th chat.ThreadID, id, text string) (chat.ThreadID, error) {
				if th == "" {
					th = chat.ThreadID("mem:" + id)
				}
				ev := chat.Event{ID: chat.EventID(fmt.Sprint(th, id)), Thread: th, From: chat.User{ID: you, Name: "you"}, Text: text, At: time.Now()}
				return th, n.Send(ev)
			},
			Press: func(th chat.ThreadID, b chat.ButtonID, reason string) (chat.Answer, error) {
				return n.Press(you, th, b, reason)
			},
			Edit: func(th chat.ThreadID, b chat.ButtonID, text string) (chat.Answer, error) {
				return n.Click(chat.Click{ID: "edit", Thread: th, From: chat.User{ID: you, Name: "you"}, Button: b, Text: text})
			},
			Shown:   n.Posts,
			Channel: "mem:ops", NoChannel: "other:ops", Again: func() chat.Opener { return n },
		}
	})
}

type deaf struct{}

func (deaf) Deliver(context.Context, chat.Event) error { return nil }
func (deaf) Click(context.Context, chat.Click) (chat.Answer, error) {
	return chat.Answer{Notice: "ok", OK: true}, nil
}

func TestWhatPeopleDoWaitsForRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := chattest.New("mem")
		said := make(chan error, 1)
		go func() { said <- n.Say("mem:ann", "mem:1", "hello") }()
		synctest.Wait()
		select {
		case err := <-said:
			t.Fatalf("said before Run: %v", err)
		default:
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = n.Run(ctx, deaf{}) }()
		if err := <-said; err != nil {
			t.Fatal(err)
		}
		if got := n.Said("mem:1"); len(got) != 1 || got[0].From.Name != "ann" {
			t.Errorf("said %+v", got)
		}
	})
}

func TestWaitPostSeesThePresentAndTheFutureAndExplainsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := chattest.New("mem")
		n.Begin("mem:1")
		go func() {
			time.Sleep(time.Minute)
			if _, err := n.Post(t.Context(), "mem:1", chat.Post{Key: "a", Text: "later"}); err != nil {
				t.Error(err)
			}
		}()
		later := func(p chat.Post) bool { return p.Text == "later" }
		for range 2 {
			if p, err := n.WaitPost(t.Context(), "mem:1", later); err != nil || p.Key != "a" {
				t.Fatal(p, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.WaitPost(ctx, "mem:1", func(chat.Post) bool { return false })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "later") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestProgressEndsWithThePostOfItsKey(t *testing.T) {
	n := chattest.New("mem")
	n.Begin("mem:1")
	n.ShowProgress(t.Context(), "mem:1", chat.Progress{Key: "a", Status: "thinking"})
	n.ShowProgress(t.Context(), "mem:1", chat.Progress{Key: "b", Status: "running"})
	if got := n.Progress("mem:1"); len(got) != 2 {
		t.Fatalf("progress %+v", got)
	}
	if _, err := n.Post(t.Context(), "mem:1", chat.Post{Key: "a", Text: "done"}); err != nil {
		t.Fatal(err)
	}
	n.ShowProgress(t.Context(), "mem:1", chat.Progress{Key: "b", Done: true})
	if got := n.Progress("mem:1"); len(got) != 0 {
		t.Errorf("progress %+v", got)
	}
	if got := n.ProgressLog("mem:1"); len(got) != 3 {
		t.Errorf("log %+v", got)
	}
}

func TestFailMakesPostsFail(t *testing.T) {
	n := chattest.New("mem")
	n.Begin("mem:1")
	n.Fail(func(chat.ThreadID, chat.Post) error { return chat.ErrRejected })
	if _, err := n.Post(t.Context(), "mem:1", chat.Post{Key: "a"}); !errors.Is(err, chat.ErrRejected) {
		t.Errorf("err %v", err)
	}
	n.Fail(nil)
	if _, err := n.Post(t.Context(), "mem:1", chat.Post{Key: "a"}); err != nil {
		t.Errorf("err %v", err)
	}
}
