package agent

import (
	"context"
	"fmt"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/store"
	"countersign/tools"
)

// agent returns the id of the sub-agent that made the step's call, "" for the thread's own
// agent and for workflows.
func (s step) agent() string {
	if s.turn == nil || s.turn.begin == nil || s.turn.begin.Kind != history.NestedAgent {
		return ""
	}
	return s.turn.begin.Name
}

// place is the target of a turn's calls that name none: that of the workflow around it; "" is where the thread works.
func (w *worker) place(t *turn) string {
	for ; t != nil && t.begin != nil; t = w.state.turnOf(t.scope) {
		if t.begin.Target != "" {
			return t.begin.Target
		}
	}
	return ""
}

// caller is the program that asked for the step's call on a person's behalf.
func (s step) caller() approvals.Caller {
	if s.turn == nil || s.turn.begin != nil || s.turn.reply == nil {
		return approvals.Caller{}
	}
	return s.turn.reply.Caller
}

// madeBy tells approvers who made the step's call: a sub-agent, a workflow's step or a person's
// program. "" is the thread's own agent.
func (s step) madeBy() string {
	switch {
	case s.turn == nil:
		return ""
	case s.turn.begin == nil:
		return s.caller().String()
	case s.turn.begin.Kind == history.NestedWorkflow:
		who := approvals.MadeByWorkflow + s.turn.begin.Name
		if s.turn.reply.Step != "" {
			who += ", step " + s.turn.reply.Step
		}
		return who
	}
	return "the sub-agent " + s.turn.begin.Name
}

// beginNested returns the entry that opens the nested work of a call. Until the call has a
// result, the thread's next step is a step of that work.
func (w *worker) beginNested(s step, plan tools.Plan) history.Entry {
	n := plan.Nested
	return history.Entry{Kind: history.KindBegin, Scope: s.call.ID, Begin: &history.Begin{
		Call: s.call.ID, Kind: history.NestedKind(n.Kind), Name: n.Name, Task: w.a.cfg.Redact(n.Task),
		Inputs: n.Inputs, Source: n.Source, Target: n.Target, Steps: n.Steps, Tokens: n.Tokens,
	}}
}

// report returns a sub-agent's last reply as the result of the call that started it.
func (w *worker) report(ctx context.Context, s step) error {
	n := w.state.turns[s.call.ID]
	r := history.Result{Call: s.call.ID, Tool: s.call.Name, Same: sameRaw(s.call.Name, s.call.Args)}
	said := ""
	if n.reply != nil {
		said = strings.TrimSpace(n.reply.Text)
	}
	switch {
	case s.limit != "":
		r.Failed = true
		r.Text = tools.ErrorText(tools.Failed("the sub-agent has not finished: %s. Its last words: %q", s.limit, said))
	case said == "":
		r.Failed = true
		r.Text = tools.ErrorText(tools.Failed("the sub-agent ended without a word; give it a smaller task, or do it yourself"))
	default:
		r.Text = tools.Envelope(w.a.cfg.Now(), said)
		if n.reply.Finish == llm.FinishLength {
			r.Text = tools.CutEnvelope(w.a.cfg.Now(), said, "[The report was cut off at the model's length limit.]")
		}
	}
	r.Outcome = hash(r.Text)
	return w.endNested(ctx, s, n, r)
}

// endNested closes a call with nested work.
func (w *worker) endNested(ctx context.Context, s step, n *turn, r history.Result) error {
	return w.writeWithRetry(ctx, func(tx store.Tx) {
		if n.begin.Kind == history.NestedAgent {
			w.putAgentLine(tx, n, "")
		}
	}, resultOf(s, r))
}

// putAgentLine updates a sub-agent's status post: its name, its progress and what it is
// doing. An empty doing means that it has finished.
func (w *worker) putAgentLine(tx store.Tx, n *turn, doing string) {
	b := n.begin
	if b == nil || b.Kind != history.NestedAgent {
		return
	}
	text := fmt.Sprintf("**%s** · %s, %s", b.Name, plural(n.steps, "step"), plural(n.tokens, "token"))
	if doing == "" {
		text += " · done"
	} else {
		text += " · " + doing
	}
	w.a.cfg.Outbox.Put(tx, w.thread, chat.Post{Key: "sub/" + b.Call, Text: w.a.cfg.Redact(text), Quiet: true})
}

// nestedStopped shows that nested work was stopped.
func (w *worker) nestedStopped(tx store.Tx, n *turn, by chat.User) {
	switch {
	case n.begin == nil:
	case n.begin.Kind == history.NestedAgent:
		w.putAgentLine(tx, n, "stopped")
	default:
		w.flowStopped(tx, n, by)
	}
}

// nestedFailed ends a sub-agent whose model does not answer.
func (w *worker) nestedFailed(ctx context.Context, s step, sentence string) error {
	n := s.turn
	up := step{turn: w.state.turnOf(n.scope), call: s.call}
	text := tools.ErrorText(tools.Failed("the sub-agent's model cannot be asked: %s", sentence))
	r := history.Result{Call: s.call.ID, Tool: s.call.Name, Failed: true, Text: text}
	r.Outcome = hash(r.Text)
	return w.endNested(ctx, up, n, r)
}
