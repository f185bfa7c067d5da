package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/llm"
)

// slow takes a second for each reply and repeats what people said so far.
func slow(_ context.Context, r llm.Request) (llm.Reply, error) {
	time.Sleep(time.Second)
	var said []string
	for _, m := range r.Items {
		if m.Role == llm.User {
			said = append(said, m.Text)
		}
	}
	return says("heard: " + strings.Join(said, " / ")), nil
}

func (w *world) deliver(ev chat.Event) {
	w.t.Helper()
	ev.Thread, ev.At = "web:1", time.Now()
	if ev.From.ID == "" {
		ev.From = chat.User{ID: "web:alice", Name: "alice"}
	}
	if err := w.agent.Deliver(w.t.Context(), ev); err != nil {
		w.t.Fatal(err)
	}
}

func TestEdits(t *testing.T) {
	run(t, "an edit of a message that nobody has read yet replaces its text", slow, func(t *testing.T, w *world) {
		w.deliver(chat.Event{ID: "1", Ref: "r1", Text: "first"})
		time.Sleep(100 * time.Millisecond) // the model is at the first message
		w.deliver(chat.Event{ID: "2", Ref: "r2", Text: "restart web-1"})
		w.deliver(chat.Event{ID: "2e", Ref: "r2", Replaces: "r2", Text: "restart web-2"})
		w.deliver(chat.Event{ID: "2e", Ref: "r2", Replaces: "r2", Text: "restart web-2"})
		w.settle()
		if w.said("web-1") || w.said("correction") || !w.said("restart web-2") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "a later edit is appended as a correction", slow, func(t *testing.T, w *world) {
		w.deliver(chat.Event{ID: "1", Ref: "r1", Text: "look at web-1"})
		w.settle()
		w.deliver(chat.Event{ID: "1e", Ref: "r1", Replaces: "r1", Text: "look at web-2"})
		w.settle()
		if !w.said("look at web-1") || !w.said("(correction of an earlier message) look at web-2") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "somebody else's edit replaces nothing", slow, func(t *testing.T, w *world) {
		w.deliver(chat.Event{ID: "1", Ref: "r1", Text: "first"})
		time.Sleep(100 * time.Millisecond)
		w.deliver(chat.Event{ID: "2", Ref: "r2", Text: "mine"})
		w.deliver(chat.Event{ID: "2e", Ref: "r2", Replaces: "r2", Text: "yours", From: chat.User{ID: "web:mallory"}})
		w.settle()
		if !w.said("mine") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "two bots that answer each other stop after a few rounds, until a person writes", slow, func(t *testing.T, w *world) {
		bot := chat.User{ID: "slack:T:B1", Name: "AlertBot", Bot: true}
		asks := func(id string) {
			w.deliver(chat.Event{ID: chat.EventID(id), Text: "round " + id + ".", From: bot, Invited: true})
			w.settle()
		}
		for _, id := range []string{"1", "2", "3", "4", "5"} {
			asks(id)
		}
		if !w.said("round 3.") || w.said("round 4.") || w.said("round 5.") {
			t.Errorf("%+v", w.posts())
		}
		told := 0
		for _, p := range w.posts() {
			if strings.Contains(p.Text, "3 times in a row") {
				told++
			}
		}
		if told != 1 {
			t.Errorf("it was said %d times: %+v", told, w.posts())
		}
		w.deliver(chat.Event{ID: "6", Text: "and now?"})
		w.settle()
		if !w.said("round 4.") || !w.said("and now?") { // the model has what was said
			t.Errorf("%+v", w.posts())
		}
		asks("7")
		if !w.said("round 7.") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "a bot that writes every few hours is answered", slow, func(t *testing.T, w *world) {
		for i := range 6 {
			w.deliver(chat.Event{ID: chat.EventID(fmt.Sprint(i)), Text: fmt.Sprintf("alert %d.", i), From: chat.User{ID: "slack:T:B1", Bot: true}, Invited: true})
			w.settle()
			time.Sleep(2 * time.Hour)
		}
		if !w.said("alert 5.") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "a bot that is invited can ask and cannot use words", slow, func(t *testing.T, w *world) {
		bot := chat.User{ID: "slack:T:B1", Bot: true}
		w.deliver(chat.Event{ID: "1", Text: "ignored", From: bot})
		w.deliver(chat.Event{ID: "2", Text: "stop", From: bot, Invited: true})
		w.settle()
		if w.said("ignored") || !w.said("heard: ") || !w.said("stop") {
			t.Errorf("%+v", w.posts())
		}
	})
}
