package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/store"
)

const testFlow = `name: test
description: Looks, asks, changes and waits.
steps:
  - id: look
    title: Look
    call: {tool: sh, arguments: {command: uptime}}
  - id: which
    title: Choose
    ask: {question: "Which one?", choices: [left, right]}
  - id: clean
    title: Clean up
    gate: true
    call: {tool: sh, arguments: {command: "touch ${steps.which.output}"}}
  - id: settle
    title: Let it settle
    wait: 10m
  - id: judge
    title: Judge
    model: {prompt: "Is it better? ${steps.look.output}", tools: none}
  - id: check
    title: Check
    call: {tool: sh, arguments: {command: df}}
  - id: end
    title: End
    done: {text: "It was ${steps.which.output}, and the model says: ${steps.judge.output}"}
`

const retryFlow = `name: test
description: Tries and looks.
steps:
  - {id: try, title: Try, call: {tool: sh, arguments: {command: uptime -p}}, retry: {times: 4, wait: 1s}, on_failure: continue}
  - {id: a, title: Look, call: {tool: sh, arguments: {command: uptime}}}
  - {id: b, title: Look, call: {tool: sh, arguments: {command: uptime}}}
  - {id: c, title: Look, call: {tool: sh, arguments: {command: uptime}}}
  - {id: d, title: Look, call: {tool: sh, arguments: {command: uptime}}}
  - {id: end, title: End, done: {text: "code ${steps.d.exit_code}"}}
`

// runs is a model that begins the test workflow once and then says what came of it; asked
// by the workflow, it answers: it is told where that works.
func runs(_ context.Context, r llm.Request) (llm.Reply, error) {
	if r.Items[0].Text == "systemrunbookweb-1" {
		return says("better"), nil
	}
	for _, it := range r.Items {
		if it.Role == llm.Tool {
			return says("the workflow said " + it.Text + "; the model read: " + r.Items[len(r.Items)-1].Text), nil
		}
	}
	args, _ := json.Marshal(map[string]string{"task": testFlow})
	return llm.Reply{Finish: llm.FinishCalls, Calls: []llm.Call{{Name: "run_workflow", Args: string(args)}}}, nil
}

// again starts the bot anew and lets it settle.
func (w *world) again() {
	w.stop()
	w.start()
	w.settle()
}

// choose presses a button of the newest card by its label.
func (w *world) choose(label string) chat.Answer {
	w.t.Helper()
	for _, b := range w.card().Choose {
		if b.Label == label {
			w.n++
			a, mine, err := w.agent.Press(w.t.Context(), chat.Click{ID: chat.EventID(label + time.Now().String()), Thread: "web:1", From: chat.User{ID: "web:bob", Name: "bob"}, Button: b.ID})
			if !mine || err != nil {
				w.t.Fatalf("%v %v", mine, err)
			}
			w.settle()
			return a
		}
	}
	w.t.Fatalf("no button %q on %+v", label, w.card())
	return chat.Answer{}
}

// post is the newest text of a key.
func (w *world) post(prefix string) string {
	for _, p := range w.posts() {
		if strings.HasPrefix(p.Key, prefix) {
			return p.Text
		}
	}
	return ""
}

// a workflow's steps are the thread's own, one after the other, whatever happens in
// between.
func TestWorkflows(t *testing.T) {
	run(t, "it looks, asks, waits for the card of its gate, waits, asks the model and reports, over restarts", runs, func(t *testing.T, w *world) {
		w.say("run it")
		if w.sh.count("uptime") != 1 || w.card().Title != "test: Choose" || len(w.sh.ran) != 1 {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
		w.again()
		if a := w.choose("right"); !a.OK {
			t.Fatalf("%+v", a)
		}
		if w.sh.count("touch 'right'") != 0 || !strings.Contains(w.card().Code, "touch 'right'") {
			t.Fatalf("%v %+v", w.sh.ran, w.card())
		}
		if f := fieldsOf(w.card()); !strings.Contains(f, "Made by: the workflow test, step clean") {
			t.Fatalf("%s", f)
		}
		w.again()
		w.press("approve")
		if w.sh.count("touch 'right'") != 1 || w.sh.count("df") != 0 || !strings.Contains(w.post("flow/"), "▶") {
			t.Fatalf("%v %q", w.sh.ran, w.post("flow/"))
		}
		w.ran("test: ☑☑☑▶☐☐ ")
		w.again()
		time.Sleep(11 * time.Minute)
		w.settle()
		if w.sh.count("df") != 1 || w.sh.count("uptime") != 1 || w.sh.count("touch 'right'") != 1 {
			t.Fatalf("%v", w.sh.ran)
		}
		if !w.said("It was right, and the model says: better") || !w.said("the workflow said {") || strings.Contains(w.post("flow/"), "▶") {
			t.Fatalf("%+v", w.posts())
		}
		w.ran("test: ☑☑☑☑☑☑ done")
	})
	run(t, "a question is answered by a message, and an answer that is none of the choices is asked for again", runs, func(t *testing.T, w *world) {
		w.say("run it")
		w.say("the blue one")
		if c := w.card(); len(c.Warn) != 1 || len(c.Choose) != 2 {
			t.Fatalf("%+v", c)
		}
		w.say("left")
		if !strings.Contains(w.card().Code, "touch 'left'") {
			t.Fatalf("%+v", w.card())
		}
		w.press("deny")
		if !w.said("the model read: alice: (to the question of the workflow test) left") {
			t.Fatalf("%+v", w.posts())
		}
	})
	run(t, "a denial of its gate ends it, and nothing more runs", runs, func(t *testing.T, w *world) {
		w.say("run it")
		w.choose("left")
		w.press("deny")
		if len(w.sh.ran) != 1 || !w.said("ended early") || !w.said("denied by alice") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
		w.ran("test: ☑☑✗––– ended early")
	})
	run(t, "a step is tried again as often as the runbook says, and the same look may come often", func(ctx context.Context, r llm.Request) (llm.Reply, error) {
		reply, err := runs(ctx, r)
		if len(reply.Calls) == 1 {
			args, _ := json.Marshal(map[string]string{"task": retryFlow})
			reply.Calls[0].Args = string(args)
		}
		return reply, err
	}, func(t *testing.T, w *world) {
		w.sh.fail["uptime -p"] = true
		w.say("go")
		time.Sleep(time.Minute)
		w.settle()
		if w.sh.count("uptime -p") != 5 || w.sh.count("uptime") != 4 || !w.said("code 0") {
			t.Fatalf("%v %+v", w.sh.ran, w.posts())
		}
	})
	run(t, "stop ends it where it is", runs, func(t *testing.T, w *world) {
		w.say("run it")
		button := w.card().Choose[0].ID
		w.say("stop")
		if ticks := w.post("flow/"); !w.said("Stopped by alice") || strings.Contains(ticks, "▶") || !strings.Contains(ticks, "✗ Choose · stopped here") || !w.card().Final || len(w.card().Choose) != 0 {
			t.Fatalf("%+v", w.posts())
		}
		w.late(t, button)
		w.ran("test: ☑✗☐☐☐☐ stopped by alice")
	})
}

// ran checks the only run that is known: name, signs of the steps, and how it ended.
func (w *world) ran(want string) {
	w.t.Helper()
	var all []string
	err := w.db.View(w.t.Context(), func(tx store.Tx) error {
		all = nil
		for _, r := range agent.Runs(tx) {
			text := r.Name + ": "
			for _, s := range r.Steps {
				text += s.State.Mark()
			}
			all = append(all, text+" "+r.End)
		}
		return nil
	})
	if err != nil || len(all) != 1 || all[0] != want {
		w.t.Errorf("%q, want %q: %v", all, want, err)
	}
}

// late presses a button of a question that nobody asks any more.
func (w *world) late(t *testing.T, id chat.ButtonID) {
	t.Helper()
	ans, mine, err := w.agent.Press(t.Context(), chat.Click{ID: "late", Thread: "web:1", From: chat.User{ID: "web:bob", Name: "bob"}, Button: id})
	if err != nil || !mine || ans.OK || ans.Notice != "That question is closed." {
		t.Fatalf("%+v %v %v", ans, mine, err)
	}
	w.settle()
	if len(w.sh.ran) != 1 {
		t.Fatalf("%v", w.sh.ran)
	}
}
