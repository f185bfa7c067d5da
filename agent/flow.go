package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/workflow"
	"countersign/approvals/card"
	"countersign/store"
	"countersign/store/queue"
	"countersign/tools"
)

// The two sub-agents that answer the model steps of workflows. The writer has only its
// prompt; the reader also has read-only tools.
const (
	RunbookWriter = "runbook"
	RunbookReader = "runbook_reader"
)

// AskModel is the name under which a workflow's model step appears in the transcript. It is
// not a tool, so no model can call it.
const AskModel = "ask_model"

// readerSteps limits the replies of a model step with tools. One without tools has one.
const readerSteps = 12

// timer is the body of the item that ends a workflow's wait.
type timer struct {
	Scope string `json:"scope"`
	Step  string `json:"step"`
}

// flow carries out a workflow's next step, which the transcript alone determines.
func (w *worker) flow(ctx context.Context, s step) error {
	n := s.turn
	wf, err := workflow.Stored(n.begin.Name, []byte(n.begin.Source))
	if err != nil {
		return w.flowEnded(ctx, s, nil, workflow.Step{Kind: workflow.KindFailed, Reason: "the workflow as it was stored cannot be read: " + err.Error()})
	}
	past := w.pastSteps(n)
	next := workflow.Next(wf, n.begin.Inputs, past)
	scope := n.scope
	add := func(also func(tx store.Tx), entries ...history.Entry) error {
		return w.write(ctx, func(tx store.Tx) {
			if also != nil {
				also(tx)
			}
			w.putTicks(tx, n, wf)
		}, entries...)
	}
	happened := func(x history.Step) history.Entry {
		x.ID = next.ID
		return history.Entry{Kind: history.KindStep, Scope: scope, Step: &x}
	}
	switch next.Kind {
	case workflow.KindCall:
		calls := rename([]llm.Call{{Name: next.Tool, Args: string(next.Args)}}, w.state.used)
		return add(nil, history.Entry{Kind: history.KindReply, Scope: scope, Reply: &history.Reply{
			Calls: calls, Finish: llm.FinishCalls, Direct: true, Step: next.ID, Gated: next.Gate,
		}})
	case workflow.KindModel:
		args, err := json.Marshal(map[string]string{"prompt": next.Prompt})
		if err != nil {
			return fmt.Errorf("agent: a workflow's question: %w", err)
		}
		calls := rename([]llm.Call{{Name: AskModel, Args: string(args)}}, w.state.used)
		b := history.Begin{Call: calls[0].ID, Kind: history.NestedAgent, Name: RunbookWriter, Task: w.a.cfg.Redact(next.Prompt), Steps: 1, Tokens: next.Limit}
		if next.Tools == workflow.ReadTools {
			b.Name, b.Steps = RunbookReader, readerSteps
		}
		return add(nil,
			history.Entry{Kind: history.KindReply, Scope: scope, Reply: &history.Reply{Calls: calls, Finish: llm.FinishCalls, Direct: true, Step: next.ID}},
			history.Entry{Kind: history.KindBegin, Scope: calls[0].ID, Begin: &b})
	case workflow.KindWait:
		until := w.a.cfg.Now().Add(next.For)
		body, err := json.Marshal(timer{scope, next.ID})
		if err != nil {
			return fmt.Errorf("agent: a workflow's wait: %w", err)
		}
		return add(func(tx store.Tx) {
			id := fmt.Sprintf("timer/%s/%s/%d", scope, next.ID, len(n.past))
			queue.PutAt(tx, until, queue.Item{ID: id, Thread: string(w.thread), Kind: itemTimer, Body: body, At: w.a.cfg.Now()})
		}, happened(history.Step{What: history.StepWaiting, Until: until}))
	case workflow.KindAsk:
		return add(func(tx store.Tx) { w.putQuestion(tx, n, next) }, happened(history.Step{What: history.StepAsked, Text: next.Question, Choices: next.Choices}))
	case workflow.KindDone, workflow.KindFailed:
		return w.flowEnded(ctx, s, wf, next)
	default:
		return fmt.Errorf("agent: a workflow wants the step %q, which has no code", next.Kind)
	}
}

// flowEnded stores the result of a workflow's call.
func (w *worker) flowEnded(ctx context.Context, s step, wf *workflow.Workflow, end workflow.Step) error {
	n := s.turn
	up := step{turn: w.state.turnOf(n.scope), call: s.call}
	type outcome struct {
		Step   string `json:"step"`
		State  string `json:"state"`
		Output string `json:"output,omitempty"`
		Why    string `json:"why,omitempty"`
	}
	value := struct {
		Workflow string    `json:"workflow"`
		Done     bool      `json:"done"`
		Text     string    `json:"text"`
		Steps    []outcome `json:"steps,omitempty"`
	}{Workflow: n.begin.Name, Done: end.Kind == workflow.KindDone, Text: strings.TrimSpace(end.Text + end.Reason)}
	if wf != nil {
		for _, o := range workflow.Outcomes(wf, n.begin.Inputs, w.pastSteps(n)) {
			value.Steps = append(value.Steps, outcome{o.Title, string(o.State), o.Output, o.Why})
		}
	}
	r := history.Result{
		Call: s.call.ID, Tool: s.call.Name, Same: sameRaw(s.call.Name, s.call.Args), Outcome: resultHash(value), Failed: !value.Done,
		Text: w.a.cfg.Redact(tools.Envelope(w.a.cfg.Now(), value)),
	}
	return w.writeWithRetry(ctx, func(tx store.Tx) {
		if wf != nil {
			w.putTicks(tx, n, wf)
		}
		text := "**" + n.begin.Name + "** is done."
		if !value.Done {
			text = "**" + n.begin.Name + "** ended early."
		}
		if value.Text != "" {
			text += " " + value.Text
		}
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "flowend/" + n.scope, Text: w.a.cfg.Redact(text)})
	}, resultOf(up, r))
}

// putTicks updates the post that shows a workflow's progress, and the list of runs.
func (w *worker) putTicks(tx store.Tx, n *turn, wf *workflow.Workflow) {
	w.putRun(tx, n, wf, "")
	text := workflow.Ticks(wf, n.begin.Inputs, w.pastSteps(n))
	w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "flow/" + n.scope, Text: w.a.cfg.Redact(text), Quiet: true})
}

// flowStopped shows that a person stopped the workflow, and removes the buttons of its open
// question.
func (w *worker) flowStopped(tx store.Tx, n *turn, by chat.User) {
	if wf, err := workflow.Stored(n.begin.Name, []byte(n.begin.Source)); err == nil {
		w.putRun(tx, n, wf, "stopped by "+by.Name)
		text := workflow.TicksStopped(wf, n.begin.Inputs, w.pastSteps(n), by.Name)
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "flow/" + n.scope, Text: w.a.cfg.Redact(text), Quiet: true})
	}
	if n.pending != nil && n.pending.Step.What == history.StepAsked {
		c := card.NotAnswered(n.begin.Name, w.a.cfg.Redact(n.pending.Step.Text))
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: questionKey(n.scope, n.pending.Step.ID), Card: &c, Quiet: true})
	}
}

// pastSteps converts a workflow's transcript entries to the form that [workflow.Next] reads.
func (w *worker) pastSteps(n *turn) []workflow.Past {
	steps, tries := map[string]string{}, map[string]int{}
	var past []workflow.Past
	for _, e := range n.past {
		switch {
		case e.Reply != nil:
			id := e.Reply.Step
			if id == "" {
				continue // the engine's own budget request
			}
			for _, c := range e.Reply.Calls {
				steps[c.ID] = id
			}
			tries[id]++
			past = append(past, workflow.Past{Kind: workflow.Started, Step: id, At: e.At, Try: tries[id]})
		case e.Result != nil:
			r := e.Result
			id := steps[r.Call]
			if id == "" {
				continue
			}
			p := workflow.Past{Kind: workflow.Ended, Step: id, At: e.At, OK: !r.Failed, Denied: r.Denied || r.Refused, Unknown: r.Unknown}
			p.Output, p.ExitCode = workflow.Observed(r.Text)
			if d := n.decisions[r.Call]; d != nil {
				p.By = d.ByName
			}
			past = append(past, p)
		case e.Step != nil:
			p := workflow.Past{Step: e.Step.ID, At: e.At}
			switch e.Step.What {
			case history.StepAsked:
				p.Kind, p.Try = workflow.Started, 1
			case history.StepAnswered:
				p.Kind, p.By, p.Text = workflow.Answered, e.Step.By.Name, e.Step.Text
			case history.StepWaiting:
				p.Kind = workflow.Waiting
			case history.StepWaited:
				p.Kind = workflow.Waited
			}
			past = append(past, p)
		}
	}
	return past
}

// answerPrefix starts the id of a button that answers a workflow's question. The workflow's
// call, the step and the index of the choice follow.
const answerPrefix = "answer:"

func questionKey(scope, step string) string { return "ask/" + scope + "/" + step }

// putQuestion posts a workflow's question with a button for each choice.
func (w *worker) putQuestion(tx store.Tx, n *turn, next workflow.Step) {
	var choices []chat.Button
	for i, choice := range next.Choices {
		id := chat.ButtonID(fmt.Sprintf("%s%s:%s:%d", answerPrefix, n.scope, next.ID, i))
		choices = append(choices, chat.Button{ID: id, Label: choice, Style: chat.StyleEdit})
	}
	c := card.Question(n.begin.Name, next.Title, w.a.cfg.Redact(next.Question), next.Problem, choices)
	w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: questionKey(n.scope, next.ID), Card: &c})
}

// recordAnswer returns the entry for a person's answer and removes the question's buttons.
func (w *worker) recordAnswer(tx store.Tx, s step, by chat.User, text string) history.Entry {
	asked := s.turn.pending.Step
	c := card.Answered(s.turn.begin.Name, w.a.cfg.Redact(asked.Text), text, by)
	w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: questionKey(s.turn.scope, asked.ID), Card: &c, Quiet: true})
	return history.Entry{Kind: history.KindStep, Scope: s.turn.scope, Step: &history.Step{ID: asked.ID, What: history.StepAnswered, By: by, Text: text}}
}

// mayAnswer reports whether a person may answer a workflow's question. An answer approves
// nothing: actions that follow from it need their own approval.
func mayAnswer(u chat.User) bool { return !u.Bot && !u.Outside }

// choice is the body of an itemAnswer: the press of one of a question's buttons.
type choice struct {
	ID    chat.EventID `json:"id"`
	From  chat.User    `json:"from"`
	Scope string       `json:"scope"`
	Step  string       `json:"step"`
	Index int          `json:"index"`
}

// storeChoice stores the press of a button that answers a question.
func (a *Agent) storeChoice(ctx context.Context, c chat.Click) (chat.Answer, error) {
	parts := strings.Split(strings.TrimPrefix(string(c.Button), answerPrefix), ":")
	if len(parts) != 3 {
		return chat.Answer{}, errors.New("agent: a button of a question needs a call, a step and a number")
	}
	i, err := strconv.Atoi(parts[2])
	if err != nil {
		return chat.Answer{}, errors.New("agent: a button of a question needs a number")
	}
	if !mayAnswer(c.From) {
		return chat.Answer{Notice: sayGuestsAnswer}, nil
	}
	if s, err := a.nextStep(ctx, c.Thread); err != nil {
		return chat.Answer{}, fmt.Errorf("the question could not be looked up: %w", err)
	} else if s.kind != stepAnswer || s.turn.scope != parts[0] || s.turn.pending.Step.ID != parts[1] {
		return chat.Answer{Notice: sayQuestionOver}, nil
	}
	x := choice{ID: pressID("answer", c), From: c.From, Scope: parts[0], Step: parts[1], Index: i}
	if err := a.enqueue(ctx, chat.Event{ID: x.ID, Thread: c.Thread}, itemAnswer, x, "", ""); err != nil {
		return chat.Answer{}, fmt.Errorf("the answer could not be stored: %w", err)
	}
	return chat.Answer{Notice: sayThanks, OK: true}, nil
}

// nextStep returns the thread's next step according to its stored transcript.
func (a *Agent) nextStep(ctx context.Context, thread chat.ThreadID) (s step, err error) {
	err = a.cfg.DB.View(ctx, func(tx store.Tx) error {
		s = fold(history.Load(tx, thread)).next(a.cfg.Now(), Limits{})
		return nil
	})
	return s, err
}

// acceptChoice records an answer given by a button. If the question was answered before,
// acceptChoice posts that instead.
func (w *worker) acceptChoice(tx store.Tx, known *threadState, x choice, at time.Time) (e history.Entry, ok bool) {
	s := known.next(at, Limits{})
	if s.kind != stepAnswer || s.turn.scope != x.Scope || s.turn.pending.Step.ID != x.Step || x.Index < 0 || x.Index >= len(s.turn.pending.Step.Choices) {
		w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "answer/" + string(x.ID), Text: sayAnswered, Quiet: true})
		return history.Entry{}, false
	}
	return w.recordAnswer(tx, s, x.From, s.turn.pending.Step.Choices[x.Index]), true
}
