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
	stepRefuse  stepKind = "refuse"  // people or time said no
	stepUnknown stepKind = "unknown" // there is an intent without an outcome
	stepStop    stepKind = "stop"    // somebody said stop
	stepLimit   stepKind = "limit"   // the turn used up its limits
	stepEnd     stepKind = "end"     // the model has nothing more to do
	stepPaused  stepKind = "paused"  // a person has the keyboard: nothing is begun
)

// step is the outcome of [next].
type step struct {
	kind     stepKind
	call     llm.Call          // propose, reject, skip, wait, run, refuse, unknown
	decision *history.Decision // run, refuse
	ask      *history.Ask      // wait, unknown
	stop     *history.Stop     // stop
	open     []llm.Call        // stop: every call without a result
	intents  map[string]bool   // stop: the open calls that may have run
	limit    string            // limit: the sentence
	holder   string            // paused: who has the keyboard
	// edits are how people changed the call's command, oldest first.
	edits []*history.Edited
}

// Limits end a turn that goes on for too long.
type Limits struct {
	Steps  int           // model replies in one turn
	Tokens int           // tokens in and out in one turn, as the provider counts them
	Wall   time.Duration // time at work in one turn; waiting for people does not count
}

// turn is what one pass over a transcript finds out.
type turn struct {
	open      bool // somebody spoke, or a call is open, since the last end
	began     time.Time
	steps     int
	tokens    int
	waited    time.Duration
	reply     *history.Reply // the last one of this turn
	fresh     bool           // a message or result came after the last reply
	stop      *history.Stop
	pen       *history.Entry // who has the keyboard; outlives the turn
	asks      map[string]*history.Entry
	decisions map[string]*history.Decision
	edits     map[string][]*history.Edited
	intents   map[string]bool
	results   map[string]*history.Result
}

func fold(entries []history.Entry) turn {
	t := newTurn()
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Message != nil:
			if !t.open {
				t = t.after()
				t.open, t.began = true, e.At
			}
			t.fresh = true
		case e.Reply != nil:
			t.reply, t.fresh = e.Reply, false
			t.steps++
			t.tokens += e.Reply.Usage.In + e.Reply.Usage.Out
		case e.Ask != nil:
			t.asks[e.Ask.Call] = e
		case e.Decision != nil:
			if t.waitsFor(e.Decision.Call, e.Decision.Approval) {
				ask := t.asks[e.Decision.Call]
				t.decisions[e.Decision.Call] = e.Decision
				t.waited += e.At.Sub(ask.At)
			}
		case e.Edited != nil:
			if t.waitsFor(e.Edited.Call, e.Edited.Approval) {
				t.edits[e.Edited.Call] = append(t.edits[e.Edited.Call], e.Edited)
				t.waited += e.At.Sub(t.asks[e.Edited.Call].At)
				delete(t.asks, e.Edited.Call) // it is asked anew, or runs
			}
		case e.Intent != nil:
			t.intents[e.Intent.Call] = true
		case e.Result != nil:
			t.results[e.Result.Call] = e.Result
			t.fresh = true
		case e.Stop != nil:
			if t.open {
				t.stop = e.Stop
			}
		case e.Pen != nil:
			if e.Pen.Taken {
				t.pen = e
			} else if t.pen != nil {
				t.waited += e.At.Sub(t.pen.At)
				t.pen = nil
			}
		case e.Note != nil:
			t.fresh = t.fresh || t.open
		case e.End != nil:
			t = t.after()
		}
	}
	return t
}

// after is what a turn leaves to the next one.
func (t turn) after() turn {
	n := newTurn()
	n.pen = t.pen
	return n
}

func newTurn() turn {
	return turn{
		asks: map[string]*history.Entry{}, decisions: map[string]*history.Decision{}, edits: map[string][]*history.Edited{},
		intents: map[string]bool{}, results: map[string]*history.Result{},
	}
}

// waitsFor reports whether a call waits for people to decide on this request,
// and not on an earlier one that was edited away.
func (t turn) waitsFor(call string, id approvals.ID) bool {
	ask := t.asks[call]
	return ask != nil && ask.Ask.Approval == id && t.decisions[call] == nil && t.results[call] == nil
}

func (t turn) openCalls() []llm.Call {
	var open []llm.Call
	if t.reply == nil {
		return nil
	}
	for _, c := range t.reply.Calls {
		if t.results[c.ID] == nil {
			open = append(open, c)
		}
	}
	return open
}

// next says what a thread needs, given its transcript. It is the whole loop: a
// restart, a takeover and going on are the same call. now is only compared
// with the turn's wall limit.
func next(entries []history.Entry, now time.Time, lim Limits) step {
	t := fold(entries)
	s := t.next(now, lim)
	if t.pen != nil && (s.kind == stepModel || s.kind == stepPropose || s.kind == stepRun) {
		s.kind, s.holder = stepPaused, t.pen.Pen.By.Name
	}
	return s
}

func (t turn) next(now time.Time, lim Limits) step {
	if !t.open {
		return step{kind: stepIdle}
	}
	open := t.openCalls()
	if t.stop != nil {
		return step{kind: stepStop, stop: t.stop, open: open, intents: t.intents}
	}
	if len(open) > 0 {
		return nextCall(t, open[0])
	}
	if !t.fresh {
		return step{kind: stepEnd}
	}
	if s := overLimit(t, now, lim); s != "" {
		return step{kind: stepLimit, limit: s}
	}
	return step{kind: stepModel}
}

func nextCall(t turn, c llm.Call) step {
	var ask *history.Ask
	if e := t.asks[c.ID]; e != nil {
		ask = e.Ask
	}
	d := t.decisions[c.ID]
	s := step{call: c, decision: d, ask: ask, edits: t.edits[c.ID]}
	switch {
	case t.intents[c.ID]:
		s.kind = stepUnknown
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

// deniedBefore reports whether a call that comes before id in the same reply
// was denied: what the model planned after it rests on something that did not
// happen.
func deniedBefore(t turn, id string) bool {
	for _, c := range t.reply.Calls {
		if c.ID == id {
			return false
		}
		if r := t.results[c.ID]; r != nil && r.Denied {
			return true
		}
	}
	return false
}

func overLimit(t turn, now time.Time, lim Limits) string {
	switch {
	case lim.Steps > 0 && t.steps >= lim.Steps:
		return "I stopped here: this turn reached its limit of " + plural(lim.Steps, "step") + ". Say `go on` to let me continue."
	case lim.Tokens > 0 && t.tokens >= lim.Tokens:
		return "I stopped here: this turn reached its limit of " + plural(lim.Tokens, "token") + ". Say `go on` to let me continue."
	case lim.Wall > 0 && now.Sub(t.began)-t.waited >= lim.Wall:
		return "I stopped here: this turn worked for its limit of " + lim.Wall.String() + ". Say `go on` to let me continue."
	}
	return ""
}
