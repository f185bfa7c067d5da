package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

// nestedTool is a tool whose calls the conversation carries out.
type nestedTool struct{ name string }

func (n nestedTool) Spec() tools.Spec {
	return tools.Spec{Name: n.name, Level: risk.Read, Description: "### When to use\nx\n### When NOT to use\nx\n### Disambiguation\nx\n### Examples\nx\n", Schema: json.RawMessage(`{"type":"object","properties":{"task":{"type":"string"}}}`)}
}

func (n nestedTool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Task string `json:"task"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{Tool: n.name, Kind: approvals.KindObserve, Target: "local", Args: c.Args}
	p := tools.Planned(a, approvals.Claim{}, func(context.Context, tools.Sink) (tools.Result, error) {
		return tools.Result{}, tools.Failed("this works only in a conversation")
	})
	p.Nested = &tools.Nested{Kind: "agent", Name: "scout", Task: args.Task, Steps: 4}
	if n.name == "run_workflow" {
		p.Nested = &tools.Nested{Kind: "workflow", Name: "test", Source: args.Task, Target: "web-1"}
	}
	return p, nil
}

func delegates(task string) llm.Reply {
	args, _ := json.Marshal(map[string]string{"task": task})
	return llm.Reply{Finish: llm.FinishCalls, Calls: []llm.Call{{Name: "sub_agent_scout", Args: string(args)}}}
}

// crew is a model that delegates once and then says what it was told; its sub-agent runs
// the commands one by one and reports.
func crew(report string, cmds ...string) modelFunc {
	return func(_ context.Context, r llm.Request) (llm.Reply, error) {
		n, last := 0, ""
		for _, it := range r.Items {
			if it.Role == llm.Tool {
				n++
				last = it.Text
			}
		}
		if r.Items[0].Text == "system" {
			if n == 0 {
				return delegates("look around"), nil
			}
			return says("the scout said " + last), nil
		}
		if n < len(cmds) {
			return calls(cmds[n]), nil
		}
		return says(report), nil
	}
}

// a sub-agent works in a conversation of its own, in the same thread.
func TestSubAgents(t *testing.T) {
	run(t, "it looks by itself, people see one line of it, and its report goes to the agent", crew("all is well", "uptime", "df"), func(t *testing.T, w *world) {
		w.say("look")
		if w.sh.count("uptime") != 1 || w.sh.count("df") != 1 || !w.said("the scout said {\"harness_timestamp\"") || !w.said("all is well") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
		if !w.said("**scout** · 3 steps, 0 tokens · done") || w.said("**sh**") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "what it changes waits for a card that names it, and a restart changes nothing", crew("done", "uptime", "touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		if w.sh.count("touch x") != 0 {
			t.Fatal("it ran before the vote")
		}
		if c := w.card(); !strings.Contains(fieldsOf(c), "Made by: the sub-agent scout") || !strings.Contains(fieldsOf(c), "Asked by: alice") {
			t.Fatalf("%+v", c)
		}
		w.stop()
		w.start()
		w.settle()
		w.press("approve")
		if w.sh.count("touch x") != 1 || w.sh.count("uptime") != 1 || !w.said("the scout said") || !strings.HasSuffix(w.card().Body, "exit 0") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
	run(t, "its denied call is its own matter", crew("it was denied", "touch x", "uptime"), func(t *testing.T, w *world) {
		w.say("do it")
		w.press("deny")
		if w.sh.count("touch x") != 0 || w.sh.count("uptime") != 1 || !w.said("it was denied") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
	run(t, "its limit of steps ends it, not the turn", crew("never", "a", "b", "uptime", "uptime -p", "df"), func(t *testing.T, w *world) {
		w.say("look")
		for range 2 {
			w.press("deny")
		}
		if w.sh.count("df") != 0 || !w.said("the sub-agent has not finished: it used up its limit of 4 steps") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
	run(t, "stop ends it with everything", crew("never", "touch x"), func(t *testing.T, w *world) {
		w.say("do it")
		w.say("stop")
		if len(w.sh.ran) > 0 || !w.said("Stopped by alice") || len(w.results()) != 2 {
			t.Fatalf("%v %+v %+v", w.sh.ran, w.posts(), w.results())
		}
		w.say("again")
		if w.card().Title == "" || len(w.sh.ran) > 0 {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "an agent that only looks lets its sub-agent only look", crew("I could not", "touch x", "uptime"), func(t *testing.T, w *world) {
		w.readOnly = true
		w.say("do it")
		if w.card().Title != "" || w.sh.count("uptime") != 1 || len(w.sh.ran) != 1 || !strings.Contains(w.results()[0].Text, "read-only") {
			t.Fatalf("%v %+v", w.sh.ran, w.results())
		}
	})
}

func fieldsOf(c chat.Card) string {
	var b strings.Builder
	for _, f := range c.Details {
		b.WriteString(f.Name + ": " + f.Value + "\n")
	}
	return b.String()
}

// An alert begins a turn that may only look; the next person's turn may ask.
func TestATurnThatMayOnlyLook(t *testing.T) {
	run(t, "it refuses what changes, without a card", script("touch x", "uptime"), func(t *testing.T, w *world) {
		ev := chat.Event{ID: "a1", Thread: "web:1", From: chat.User{ID: "alerts:test", Name: "Alertmanager", Bot: true}, Invited: true, ReadOnly: true, Text: "disk full"}
		if err := w.agent.Deliver(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if w.card().Title != "" || w.sh.count("touch x") != 0 || w.sh.count("uptime") != 1 {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
		w.say("then do it")
		if w.card().Title == "" {
			t.Fatalf("%+v", w.posts())
		}
	})
	var release chan struct{} // of the test's own time
	run(t, "a person who speaks while it goes on takes it over", func(ctx context.Context, r llm.Request) (llm.Reply, error) {
		select {
		case <-release:
		case <-ctx.Done():
			return llm.Reply{}, ctx.Err()
		}
		return script("touch x")(ctx, r)
	}, func(t *testing.T, w *world) {
		release = make(chan struct{})
		ev := chat.Event{ID: "a1", Thread: "web:1", From: chat.User{ID: "alerts:test", Name: "Alertmanager", Bot: true}, Invited: true, ReadOnly: true, Text: "disk full"}
		if err := w.agent.Deliver(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.say("mend it")
		release <- struct{}{}
		w.settle()
		close(release)
		w.settle()
		if f := fieldsOf(w.card()); !strings.Contains(f, "Asked by: alice") || len(w.results()) != 0 {
			t.Fatalf("%+v", w.posts())
		}
	})
}
