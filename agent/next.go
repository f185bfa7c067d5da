package agent

import (
	"time"

	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
)

// stepKind is what a thread needs next.
type stepKind string

const (
	stepIdle    stepKind = "idle"    // nothing to do until somebody speaks
	stepModel   stepKind = "model"   // ask the model
	stepPropose stepKind = "propose" // plan the call and judge it
	stepReject  stepKind = "reject"  // the reply was cut: its calls must not run
	stepSkip    stepKind = "skip"    // an earlier call of the same reply was denied
	stepWait    stepKind = "wait"    // people decide; nothing waits in memory
	stepRun     stepKind = "run"     // people approved: plan again and run
	stepBatch   stepKind = "batch"   // people approved several calls at once
	stepRefuse  stepKind = "refuse"  // people or time said no
	stepResume  stepKind = "resume"  // there is an intent without an outcome: find out what became of it
	stepStop    stepKind = "stop"    // somebody said stop
	stepLimit   stepKind = "limit"   // the turn used up its limits
	stepEnd     stepKind = "end"     // the model has nothing more to do
	stepPaused  stepKind = "paused"  // a person has the keyboard: nothing new starts
	stepReturn  stepKind = "return"  // a sub-agent reported, or reached its limits
	stepFlow    stepKind = "flow"    // a workflow's next step
	stepAnswer  stepKind = "answer"  // a workflow waits for a person's answer
	stepTimer   stepKind = "timer"   // a workflow waits for a time
	stepMoot    stepKind = "moot"    // a call of the aside, whose request was decided meanwhile
)

// step is the outcome of [threadState.next].
type step struct {
	kind     stepKind
	turn     *turn             // the conversation that goes on
	call     llm.Call          // propose, reject, skip, wait, run, refuse, resume, return, flow
	decision *history.Decision // run, refuse
	ask      *history.Ask      // wait, resume
	intent   *history.Intent   // resume
	stop     *history.Stop     // stop; resume: people want it interrupted
	limit    string            // limit; return: why it ended without a report
	holder   string            // paused: who has the keyboard
	// edits are how people changed the call, oldest first.
	edits []*history.Edited
	// tried is what the call tried as a read and was refused.
	tried string
}

// scope is the conversation in which the step's call was made.
func (s step) scope() string {
	if s.turn == nil {
		return ""
	}
	return s.turn.scope
}

// scripted reports whether a runbook wrote the step's call.
func (s step) scripted() bool { return s.turn.reply.Step != "" }

// Limits bound one turn.
type Limits struct {
	Steps  int           // model replies in one turn
	Tokens int           // tokens in and out in one turn, as the provider counts them
	Wall   time.Duration // time at work in one turn; waiting for people does not count
}

// next returns the thread's next step, derived from its transcript alone. It decides the
// same way after a restart or a takeover as in an undisturbed run. now is compared only
// with the turn's wall limit.
func (f *threadState) next(now time.Time, lim Limits) step {
	s := f.nextOf(now, lim)
	if s.kind == stepWait {
		s = f.nextInAside(s, now, lim)
	}
	if f.pen != nil {
		switch s.kind {
		case stepModel, stepPropose, stepRun, stepBatch, stepFlow:
			s.kind, s.holder = stepPaused, f.pen.Pen.By.Name
		default:
		}
	}
	return s
}

// nextOf is next without the keyboard and without the aside.
func (f *threadState) nextOf(now time.Time, lim Limits) step {
	t := f.root()
	switch {
	case !t.open:
		return step{kind: stepIdle, turn: t}
	case t.stop != nil:
		if open := t.openCalls(); len(open) > 0 {
			// What an earlier process left running is found first, and interrupted.
			if s := f.nextCall(t, open[0], now, lim); s.kind == stepResume && s.intent.Noted {
				s.stop = t.stop
				return s
			}
		}
		return step{kind: stepStop, turn: t, stop: t.stop}
	}
	if open := t.openCalls(); len(open) > 0 {
		return f.nextCall(t, open[0], now, lim)
	}
	if a := f.turns[history.Aside]; a != nil {
		if open := a.openCalls(); len(open) > 0 {
			return step{kind: stepMoot, turn: a, call: open[0]}
		}
	}
	if !t.fresh {
		return step{kind: stepEnd, turn: t}
	}
	if s := overLimit(t, now, lim); s != "" {
		return step{kind: stepLimit, turn: t, limit: s}
	}
	return step{kind: stepModel, turn: t}
}

// nextInAside returns the next step of the aside while the request of the step wait is
// open: wait itself if there is nothing to answer.
func (f *threadState) nextInAside(wait step, now time.Time, lim Limits) step {
	a := f.turns[history.Aside]
	if a == nil {
		return wait
	}
	if open := a.openCalls(); len(open) > 0 {
		return f.nextCall(a, open[0], now, lim)
	}
	if !a.fresh {
		return wait
	}
	s := step{kind: stepModel, turn: a, call: wait.call, ask: wait.ask}
	// The turn's other limits count what leads to a request, and time at work.
	if s.limit = overLimit(f.root(), now, Limits{Tokens: lim.Tokens}); s.limit == "" {
		s.limit = overLimit(a, now, Limits{Steps: lim.Steps})
	}
	if s.limit != "" {
		s.kind = stepLimit
	}
	return s
}

// viewScope is the conversation that the model is shown: in the aside, the thread's own.
func (s step) viewScope() string {
	if s.inAside() {
		return ""
	}
	return s.scope()
}

// inAside reports whether the step belongs to the thread's aside.
func (s step) inAside() bool { return s.turn != nil && s.turn.scope == history.Aside }

func (f *threadState) nextCall(t *turn, c llm.Call, now time.Time, lim Limits) step {
	if n := f.turns[c.ID]; n != nil {
		return f.nextNested(t, n, c, now, lim)
	}
	var ask *history.Ask
	if e := t.asks[c.ID]; e != nil {
		ask = e.Ask
	}
	d := t.decisions[c.ID]
	s := step{turn: t, call: c, decision: d, ask: ask, edits: t.edits[c.ID], tried: t.tried[c.ID]}
	switch {
	case t.intents[c.ID] != nil:
		s.kind, s.intent = stepResume, t.intents[c.ID]
	case d != nil && d.State == approvals.Approved && len(ask.Batch) > 0:
		s.kind = stepBatch
	case d != nil && d.State == approvals.Approved:
		s.kind = stepRun
	case d != nil:
		s.kind = stepRefuse
	case ask != nil:
		s.kind = stepWait
	case t.reply.Finish == llm.FinishLength:
		s.kind = stepReject
	case deniedBefore(t, c.ID):
		s.kind = stepSkip
	default:
		s.kind = stepPropose
	}
	return s
}

// nextNested returns the next step of the nested work n, which call c of turn t started.
func (f *threadState) nextNested(t, n *turn, c llm.Call, now time.Time, lim Limits) step {
	if open := n.openCalls(); len(open) > 0 {
		return f.nextCall(n, open[0], now, lim)
	}
	done := step{kind: stepReturn, turn: t, call: c}
	if n.begin.Kind == history.NestedWorkflow {
		s := step{kind: stepFlow, turn: n, call: c}
		switch {
		case n.pending == nil:
		case n.pending.Step.What == history.StepAsked:
			s.kind = stepAnswer
		default:
			s.kind = stepTimer
		}
		return s
	}
	switch b := n.begin; {
	case n.reply != nil && !n.fresh:
		return done
	case b.Steps > 0 && n.steps >= b.Steps:
		done.limit = "it used up its limit of " + plural(b.Steps, "step")
		return done
	case b.Tokens > 0 && n.tokens >= b.Tokens:
		done.limit = "it used up its limit of " + plural(b.Tokens, "token")
		return done
	case n.stuck() != "":
		done.limit = "it kept repeating a call that fails every time"
		return done
	case overLimit(f.root(), now, lim) != "":
		done.limit = "the turn used up its limits"
		return done
	}
	return step{kind: stepModel, turn: n, call: c}
}

// deniedBefore reports whether an earlier call of the same reply was denied or withdrawn, or
// was requested together with the later ones and not approved.
// The model planned the later calls on the assumption that the earlier one would run.
func deniedBefore(t *turn, id string) bool {
	for _, c := range t.reply.Calls {
		if c.ID == id {
			return false
		}
		if r := t.results[c.ID]; r != nil && r.Denied {
			return true
		}
		d := t.decisions[c.ID]
		if d != nil && (d.State == approvals.Cancelled || d.State != approvals.Approved && len(t.asks[c.ID].Ask.Batch) > 0) {
			return true
		}
	}
	return false
}

func overLimit(t *turn, now time.Time, lim Limits) string {
	switch {
	case t.stuck() != "":
		return t.stuck()
	case lim.Steps > 0 && t.steps >= lim.Steps:
		return sayLimit(plural(lim.Steps, "step"))
	case lim.Tokens > 0 && t.tokens >= lim.Tokens:
		return sayLimit(plural(lim.Tokens, "token"))
	case lim.Wall > 0 && now.Sub(t.began)-t.waited >= lim.Wall:
		return sayLimit(words(lim.Wall) + " of work")
	}
	return ""
}
