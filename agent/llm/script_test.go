package llm_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"countersign/agent/llm"
)

func TestScriptAnswersInOrderAndRecords(t *testing.T) {
	s := llm.NewScript(llm.Ask(llm.Call{ID: "a", Name: "f", Args: "{}"}), llm.Say("done"))
	items := []llm.Item{{Role: llm.User, Text: "hi"}}
	first, err := s.Reply(t.Context(), llm.Request{Items: items}, nil)
	if err != nil || first.Finish != llm.FinishCalls || len(first.Calls) != 1 {
		t.Fatalf("first = %+v, %v", first, err)
	}
	items[0].Text = "changed"
	var shown string
	second, err := s.Reply(t.Context(), llm.Request{Items: items}, func(d llm.Delta) { shown += d.Text })
	if err != nil || second.Text != "done" || shown != "done" {
		t.Fatalf("second = %+v, %v, shown %q", second, err, shown)
	}
	if got := s.Requests(); len(got) != 2 || got[0].Items[0].Text != "hi" {
		t.Fatalf("requests = %+v", got)
	}
	var e *llm.Error
	if _, err := s.Reply(t.Context(), llm.Request{}, nil); !errors.As(err, &e) {
		t.Fatalf("a request after the last step gave %v", err)
	}
}

func TestScriptTakesNoStepForAnEndedContext(t *testing.T) {
	s := llm.NewScript(llm.Say("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Reply(ctx, llm.Request{}, nil); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got, err := s.Reply(t.Context(), llm.Request{}, nil); err != nil || got.Text != "x" {
		t.Fatal(got, err)
	}
}

func TestScriptIsSafeForConcurrentUse(t *testing.T) {
	s := llm.NewScript()
	for range 8 {
		s.Add(llm.Say("x"))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := s.Reply(t.Context(), llm.Request{}, func(llm.Delta) {}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(s.Requests()) != 8 {
		t.Fatal("lost requests")
	}
}

func TestARuleOfAScriptAnswersWhatItMatches(t *testing.T) {
	about := func(word string) func(llm.Request) bool {
		return func(r llm.Request) bool { return strings.Contains(r.Items[len(r.Items)-1].Text, word) }
	}
	s := llm.NewScript(llm.Say("one"), llm.Say("two"))
	s.When(about("disk"), llm.Say("full"))
	s.When(about("d"), llm.Say("the second rule"))
	for _, c := range []struct{ ask, want string }{{"x", "one"}, {"disk?", "full"}, {"disk!", "full"}, {"load", "the second rule"}, {"x", "two"}} {
		got, err := s.Reply(t.Context(), llm.Request{Items: []llm.Item{{Role: llm.User, Text: c.ask}}}, nil)
		if err != nil || got.Text != c.want {
			t.Errorf("%q gave %+v, %v, want %q", c.ask, got, err, c.want)
		}
	}
	if len(s.Requests()) != 5 {
		t.Errorf("%d requests", len(s.Requests()))
	}
}
