package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/history"
	"countersign/agent/llm"
)

// keyboard is who has the keyboard of the only terminal, "" for the bot.
type keyboard struct{ holder, named string }

// words are the keyboard's, and one that answers.
func (d desk) words() []agent.Word {
	return []agent.Word{
		{Name: "sessions", Args: agent.Alone, Do: func(context.Context, chat.Event, agent.Args) (agent.Answer, error) {
			return agent.Answer{Text: "This thread has no managed terminal sessions."}, nil
		}},
		{Name: "take", Args: agent.OneOrNone, Do: d.take},
		{Name: "give", Args: agent.OneTo, Do: d.give},
	}
}

func (d desk) take(_ context.Context, ev chat.Event, args agent.Args) (agent.Answer, error) {
	by := ev.From
	d.w.keys.holder, d.w.keys.named = by.Name, args.ID
	return agent.Answer{Text: by.Name + " has the keyboard.", Pen: &history.Pen{By: by, Taken: true}}, nil
}

func (d desk) give(_ context.Context, ev chat.Event, args agent.Args) (agent.Answer, error) {
	by, back := ev.From, &history.Pen{By: ev.From}
	if args.To != "" {
		if d.w.keys.holder != by.Name {
			return agent.Answer{Text: "only they can hand it over"}, nil
		}
		d.w.keys.holder = args.To
		to := &history.Pen{By: chat.User{ID: chat.UserID("web:" + args.To), Name: args.To}, Taken: true}
		return agent.Answer{Text: args.To + " has the keyboard now.", Pen: to}, nil
	}
	switch d.w.keys.holder {
	case by.Name:
	case "":
		back.Stale = true
		return agent.Answer{Text: "Nobody has the keyboard.", Pen: back}, nil
	default:
		return agent.Answer{Text: "only they can give it back"}, nil
	}
	d.w.keys.holder = ""
	typed := by.Name + " had the keyboard and typed `df`."
	return agent.Answer{Text: typed + " I'll continue.", Note: typed, Pen: back}, nil
}

func TestTheKeyboardGoesFromHandToHand(t *testing.T) {
	answers := func(context.Context, llm.Request) (llm.Reply, error) { return says("I looked"), nil }
	run(t, "a silent holder loses it, and the agent goes on with what was typed", answers, func(t *testing.T, w *world) {
		w.say("look")
		w.say("take")
		w.say("and now?")
		w.say("status")
		if !w.said("Paused: alice has the keyboard") {
			t.Fatalf("%+v", w.posts())
		}
		if err := w.agent.Release(t.Context(), "web:1", "main", chat.User{ID: "web:bob", Name: "bob"}, 10*time.Minute); err == nil || w.keys.holder != "alice" {
			t.Errorf("who has it not: %v", err)
		}
		before := len(w.posts())
		if err := w.agent.Release(t.Context(), "web:1", "main", chat.User{ID: "web:alice", Name: "alice"}, 10*time.Minute); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if !w.said("Nobody typed for 10 minutes, so I've taken the keyboard back. alice had the keyboard and typed `df`.") || len(w.posts()) <= before {
			t.Errorf("%+v", w.posts())
		}
		if last := w.posts()[len(w.posts())-1]; !strings.Contains(last.Text, "I looked") {
			t.Errorf("the question that waited has no answer: %+v", last)
		}
	})
	run(t, "it is given back once, however often that is delivered", answers, func(t *testing.T, w *world) {
		w.say("take")
		for range 2 {
			w.deliver(chat.Event{ID: "g", Text: "give"})
			w.settle()
		}
		if !w.said("alice had the keyboard and typed `df`.") || w.said("Nobody has the keyboard.") {
			t.Errorf("%+v", w.posts())
		}
		entries := len(w.entries())
		w.say("give")
		if got := w.entries(); len(got) != entries {
			t.Errorf("nobody had it: %+v", got[entries:])
		}
	})
	run(t, "a word that is delivered again does nothing", answers, func(t *testing.T, w *world) {
		again := func(id chat.EventID, text string) {
			w.deliver(chat.Event{ID: id, Text: text})
			w.settle()
		}
		again("t", "take")
		again("g", "give")
		said := len(w.posts())
		again("t", "take")
		if w.keys.holder != "" || len(w.posts()) != said {
			t.Errorf("%q has the keyboard: %+v", w.keys.holder, w.posts())
		}
		again("t2", "take")
		again("g", "give")
		if w.keys.holder != "alice" {
			t.Error("the keyboard was taken from who has it")
		}
	})
	run(t, "nobody else ends somebody's pause", answers, func(t *testing.T, w *world) {
		w.say("take")
		w.say("and now?")
		w.keys.holder = "" // as asked on a machine on which nobody has one
		w.deliver(chat.Event{ID: "c", Text: "give other:", From: chat.User{ID: "web:carol", Name: "carol"}})
		w.settle()
		if w.said("I looked") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "the thread goes on when the bot was killed before it stored that it has it back", answers, func(t *testing.T, w *world) {
		w.say("take")
		w.say("and now?")
		w.keys.holder = ""
		w.deliver(chat.Event{ID: "g", Text: "give"})
		w.settle()
		if !w.said("I looked") {
			t.Errorf("%+v", w.posts())
		}
	})
	run(t, "it is handed to somebody by name, and the thread stays paused", answers, func(t *testing.T, w *world) {
		w.say("take")
		w.say("give to bob")
		w.say("status")
		if !w.said("bob has the keyboard now.") || !w.said("bob has the keyboard.") {
			t.Errorf("%+v", w.posts())
		}
		w.say("give main to carol")
		if !w.said("only they can hand it over") || w.keys.holder != "bob" {
			t.Errorf("%+v", w.posts())
		}
		w.say("give it to me when you are done")
		if !w.said("I'm paused") && !w.said("so I'm paused") {
			t.Errorf("prose is no command: %+v", w.posts())
		}
	})
}

// A terminal's own button hands its keyboard over; nobody has written anything for that.
func TestAButtonHandsTheKeyboardOver(t *testing.T) {
	answers := func(context.Context, llm.Request) (llm.Reply, error) { return says("I looked"), nil }
	run(t, "of one terminal, from hand to hand", answers, func(t *testing.T, w *world) {
		w.say("look")
		for i, tc := range []struct{ button, holder, named string }{
			{"take:req1234567", "alice", ""},
			{"give:", "", ""},
			{"take:web-1:countersign-ops", "alice", "web-1:countersign-ops"},
			{"give:web-1:countersign-ops to bob", "bob", "web-1:countersign-ops"},
		} {
			c := chat.Click{ID: chat.EventID(tc.button), Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Button: chat.ButtonID(tc.button)}
			if ans, mine, err := w.agent.Press(t.Context(), c); err != nil || !mine || !ans.OK || w.keys.holder != tc.holder || w.keys.named != tc.named {
				t.Errorf("%d: %+v %v %v, %+v", i, ans, mine, err, w.keys)
			}
		}
		for _, odd := range []string{"take:web-1:a b", "give:web-1:countersign-ops and more words"} {
			c := chat.Click{ID: "odd", Thread: "web:1", From: chat.User{ID: "web:alice", Name: "alice"}, Button: chat.ButtonID(odd)}
			if _, _, err := w.agent.Press(t.Context(), c); err == nil {
				t.Errorf("%q was pressed", odd)
			}
		}
	})
}
