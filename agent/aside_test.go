package agent_test

import (
	"context"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
)

// talker is a model that does what the newest message of a person says, while it is the
// newest item: "do it" proposes a change, "why?" is answered, "look" reads, "change" proposes
// another change, "withdraw" withdraws, "instead" proposes something else, and the first
// "slow" is never answered. Everything else is answered with "done".
func talker(seen *[]llm.Request) modelFunc {
	slow := false
	return func(ctx context.Context, r llm.Request) (llm.Reply, error) {
		*seen = append(*seen, r)
		said := ""
		if it := last(r); it.Role == llm.User {
			said = it.Text
		}
		switch {
		case strings.HasPrefix(said, "[countersign]"):
		case strings.Contains(said, "do it"):
			return calls("touch x"), nil
		case strings.Contains(said, "why"):
			return says("because"), nil
		case strings.Contains(said, "slow") && !slow:
			slow = true
			<-ctx.Done()
			return llm.Reply{}, ctx.Err()
		case strings.Contains(said, "look"):
			return calls("ls", "ls -a"), nil
		case strings.Contains(said, "change"):
			return calls("touch z"), nil
		case strings.Contains(said, "withdraw"):
			return llm.Reply{Finish: llm.FinishCalls, Calls: []llm.Call{{Name: "withdraw_request", Args: `{"reason":"y"}`}}}, nil
		case strings.Contains(strings.ToLower(said), "instead"):
			return calls("touch y"), nil
		}
		return says("done"), nil
	}
}

func last(r llm.Request) llm.Item { return r.Items[len(r.Items)-1] }

func hasTool(r llm.Request, name string) bool {
	for _, s := range r.Tools {
		if s.Name == name {
			return true
		}
	}
	return false
}

// answers says what stands for the result of the thread's first call in a request.
func answers(r llm.Request) string {
	for _, it := range r.Items {
		if it.Role == llm.Tool {
			return it.Text
		}
	}
	return ""
}

func TestPeopleTalkWhileARequestWaits(t *testing.T) {
	for rule, do := range map[string]func(*testing.T, *world, *[]llm.Request){
		"a question is answered, the card stays, and its result takes its place": func(t *testing.T, w *world, seen *[]llm.Request) {
			w.say("why?")
			if !w.said("because") || !strings.Contains(answers((*seen)[1]), "Waiting for approval") || w.card().Final {
				t.Fatalf("%+v %q", w.posts(), answers((*seen)[1]))
			}
			w.press("approve")
			if w.sh.count("touch x") != 1 || !w.said("done") {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
			end := (*seen)[2]
			if !strings.Contains(answers(end), "exit_code") || last(end).Role != llm.User || !strings.Contains(last(end).Text, "was decided") {
				t.Fatalf("%+v", end.Items)
			}
		},
		"the model may look": func(t *testing.T, w *world, _ *[]llm.Request) {
			w.say("look first")
			if w.sh.count("ls") != 1 || w.sh.count("ls -a") != 1 || !w.said("done") || w.card().Final {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
			w.press("deny")
			if w.sh.count("touch x") != 0 {
				t.Fatal("it ran")
			}
		},
		"it may propose nothing else": func(t *testing.T, w *world, seen *[]llm.Request) {
			w.say("change it")
			if len(w.cards()) != 1 || w.sh.count("touch z") != 0 || !strings.Contains(last((*seen)[2]).Text, "nothing else can be proposed") {
				t.Fatalf("%+v %q", w.posts(), last((*seen)[2]).Text)
			}
			w.press("approve")
			if w.sh.count("touch x") != 1 {
				t.Fatal("it did not run")
			}
		},
		"who says instead withdraws the card": func(t *testing.T, w *world, _ *[]llm.Request) {
			w.say("Instead, touch y")
			if first := w.cards()[0]; !first.Final || !strings.Contains(first.Body, "Withdrawn by") || len(w.cards()) != 2 {
				t.Fatalf("%+v", w.posts())
			}
			w.press("approve")
			if w.sh.count("touch x") != 0 || w.sh.count("touch y") != 1 {
				t.Fatalf("%v", w.sh.ran)
			}
		},
		"the model withdraws it when people want something else": func(t *testing.T, w *world, seen *[]llm.Request) {
			w.say("withdraw that, please")
			if first := w.cards()[0]; !first.Final || !strings.Contains(first.Body, "Withdrawn by") || w.sh.count("touch x") != 0 {
				t.Fatalf("%+v", w.posts())
			}
			if !w.said("done") || hasTool((*seen)[2], "withdraw_request") {
				t.Fatalf("%+v", w.posts())
			}
		},
		"a decision does not wait for the answer": func(t *testing.T, w *world, _ *[]llm.Request) {
			w.say("slow")
			w.press("approve")
			if w.sh.count("touch x") != 1 || !w.said("done") {
				t.Fatalf("%v %+v", w.sh.ran, w.posts())
			}
		},
		"stop ends all of it": func(t *testing.T, w *world, _ *[]llm.Request) {
			w.say("slow")
			w.say("stop")
			if w.sh.count("touch x") != 0 || !w.card().Final {
				t.Fatalf("%+v", w.posts())
			}
			w.say("hello")
			if !w.said("done") {
				t.Fatalf("%+v", w.posts())
			}
		},
		"after a crash the answer is given, and the card is as valid as before": func(t *testing.T, w *world, _ *[]llm.Request) {
			w.say("slow")
			w.again()
			if !w.said("done") || w.card().Final {
				t.Fatalf("%+v", w.posts())
			}
			w.press("approve")
			if w.sh.count("touch x") != 1 {
				t.Fatalf("%v", w.sh.ran)
			}
		},
	} {
		var seen []llm.Request
		run(t, rule, talker(&seen), func(t *testing.T, w *world) {
			w.say("do it")
			if len(seen) != 1 || w.sh.count("touch x") != 0 {
				t.Fatalf("%+v", seen)
			}
			do(t, w, &seen)
			for _, e := range w.entries() {
				if e.Scope == history.Aside && e.Ask != nil {
					t.Errorf("the aside requested %+v", e.Ask)
				}
			}
		})
	}
}

// cards are all cards, as they are now, oldest first.
func (w *world) cards() (all []chat.Card) {
	newest := map[string]int{}
	for _, p := range w.posts() {
		if p.Card == nil {
			continue
		}
		if i, ok := newest[p.Key]; ok {
			all[i] = *p.Card
			continue
		}
		newest[p.Key] = len(all)
		all = append(all, *p.Card)
	}
	return all
}
