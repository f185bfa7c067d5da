package agent

import (
	"maps"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/spend"
	"countersign/approvals"
)

// folded is what a transcript says, folded entry by entry: what is open now, and what
// the thread must remember of the rest. The transcript decides everything: two that are
// equal fold to the same.
type folded struct {
	// turns are the open conversations by their scope: the thread's own is "", and each
	// call that is carried out as nested work has one of its own.
	turns map[string]*turn
	// scopes are the conversations that the calls of this turn belong to.
	scopes map[string]string
	// used are the call ids that the thread has ever seen.
	used map[string]bool
	pen  *history.Entry // who has the keyboard; outlives the turn
	// noMore means that people did not allow more in this turn, when a cap was used up.
	noMore bool
	// later are messages that came after somebody said stop and before the turn ended:
	// they begin the next one.
	later []*history.Entry
}

// turn is one conversation since the last end: somebody spoke, or a call began nested
// work, and the model replied, called and was answered.
type turn struct {
	scope   string
	open    bool             // somebody spoke, or a call is open, since the last end
	begin   *history.Begin   // of nested work
	message *history.Message // that began the thread's own
	began   time.Time
	steps   int
	tokens  int
	waited  time.Duration
	reply   *history.Reply // the last one
	fresh   bool           // a message or result came after the last reply
	stop    *history.Stop
	asks    map[string]*history.Entry

	decisions map[string]*history.Decision
	edits     map[string][]*history.Edited
	tried     map[string]string // what calls tried as reads and were refused
	intents   map[string]bool
	results   map[string]*history.Result
	past      []*history.Entry // of a workflow: its replies, results and steps, in order
	pending   *history.Entry   // of a workflow: the step that waits for a person or a time
}

func newTurn(scope string) *turn {
	return &turn{
		scope: scope, asks: map[string]*history.Entry{}, decisions: map[string]*history.Decision{}, edits: map[string][]*history.Edited{},
		tried:   map[string]string{},
		intents: map[string]bool{}, results: map[string]*history.Result{},
	}
}

func newFolded() *folded {
	return &folded{turns: map[string]*turn{"": newTurn("")}, scopes: map[string]string{}, used: map[string]bool{}}
}

func fold(entries []history.Entry) *folded {
	f := newFolded()
	for i := range entries {
		f.add(&entries[i])
	}
	return f
}

// root is the thread's own conversation.
func (f *folded) root() *turn { return f.turns[""] }

// clone is for looking ahead: what is added to it is not added to f, except that the ids
// of calls count as used in both.
func (f *folded) clone() *folded {
	n := *f
	n.scopes = maps.Clone(f.scopes)
	n.turns = map[string]*turn{}
	for k, t := range f.turns {
		c := *t
		c.asks, c.decisions, c.edits = maps.Clone(t.asks), maps.Clone(t.decisions), maps.Clone(t.edits)
		c.tried = maps.Clone(t.tried)
		c.intents, c.results, c.past = maps.Clone(t.intents), maps.Clone(t.results), slices.Clip(t.past)
		n.turns[k] = &c
	}
	n.later = slices.Clip(f.later)
	return &n
}

// turnOf is the conversation that a call belongs to, nil where it is not open.
func (f *folded) turnOf(call string) *turn {
	if scope, ok := f.scopes[call]; ok {
		return f.turns[scope]
	}
	return nil
}

// wait adds time that people took, which counts for no turn's time at work.
func (f *folded) wait(t *turn, d time.Duration) {
	for {
		t.waited += d
		if t.scope == "" {
			return
		}
		if t = f.turnOf(t.scope); t == nil {
			return
		}
	}
}

// add takes the next entry. It keeps a pointer to it.
func (f *folded) add(e *history.Entry) {
	root := f.root()
	switch {
	case e.Message != nil:
		if root.open && root.stop != nil {
			// What is said after the stop is no part of what it ends: it begins the next turn.
			f.later = append(f.later, e)
			return
		}
		if !root.open {
			root = f.reset()
			root.open, root.began, root.message = true, e.At, e.Message
		} else if root.message.ReadOnly && !e.Message.ReadOnly && !e.Message.From.Bot {
			// Whoever speaks first in a turn that an alert began takes it over, with their
			// own authority.
			root.message = e.Message
		}
		root.fresh = true
	case e.Reply != nil:
		f.replied(e)
	case e.Begin != nil:
		t := newTurn(e.Begin.Call)
		t.open, t.fresh, t.began, t.begin = true, true, e.At, e.Begin
		f.turns[t.scope] = t
	case e.Step != nil:
		if t := f.turns[e.Scope]; t != nil {
			t.past = append(t.past, e)
			switch e.Step.What {
			case history.StepWaiting, history.StepAsked:
				t.pending = e
			default:
				if t.pending != nil {
					f.wait(t, e.At.Sub(t.pending.At))
				}
				t.pending = nil
			}
		}
	case e.Stop != nil:
		if root.open {
			root.stop, f.later = e.Stop, nil
		}
	case e.Pen != nil:
		if e.Pen.Taken {
			f.pen = e
		} else if f.pen != nil {
			root.waited += e.At.Sub(f.pen.At)
			f.pen = nil
		}
	case e.Note != nil:
		root.fresh = root.fresh || root.open
	case e.End != nil:
		f.reset()
		later := f.later
		f.later = nil
		for _, m := range later {
			f.add(m)
		}
	default:
		f.called(e)
	}
}

func (f *folded) replied(e *history.Entry) {
	for _, c := range e.Reply.Calls {
		f.used[c.ID] = true
		f.scopes[c.ID] = e.Scope
	}
	t := f.turns[e.Scope]
	if t == nil {
		return
	}
	t.reply, t.fresh = e.Reply, false
	if !asksForMore(e.Reply) { // else the engine's own question
		t.steps++
	}
	tokens := e.Reply.Usage.In + e.Reply.Usage.Out
	t.tokens += tokens
	if t.scope != "" {
		f.root().tokens += tokens // nested work is a part of the turn
		t.past = append(t.past, e)
	}
}

// called takes what belongs to one call.
func (f *folded) called(e *history.Entry) {
	switch {
	case e.Ask != nil:
		if t := f.turnOf(e.Ask.Call); t != nil {
			t.asks[e.Ask.Call] = e
		}
	case e.Decision != nil:
		d := e.Decision
		if t := f.turnOf(d.Call); t != nil && t.waitsFor(d.Call, d.Approval) {
			t.decisions[d.Call] = d
			f.wait(t, e.At.Sub(t.asks[d.Call].At))
		}
	case e.Edited != nil:
		d := e.Edited
		if t := f.turnOf(d.Call); t != nil && t.waitsFor(d.Call, d.Approval) {
			t.edits[d.Call] = append(t.edits[d.Call], d)
			f.wait(t, e.At.Sub(t.asks[d.Call].At))
			delete(t.asks, d.Call) // it is asked anew, or runs
			delete(t.tried, d.Call)
		}
	case e.Tried != nil:
		if t := f.turnOf(e.Tried.Call); t != nil {
			t.tried[e.Tried.Call] = e.Tried.What
		}
	case e.Intent != nil:
		if t := f.turnOf(e.Intent.Call); t != nil {
			t.intents[e.Intent.Call] = true
		}
	case e.Result != nil:
		delete(f.turns, e.Result.Call) // its nested work is over
		f.noMore = f.noMore || e.Result.Tool == spend.Tool && e.Result.Failed
		if t := f.turnOf(e.Result.Call); t != nil {
			t.results[e.Result.Call] = e.Result
			t.fresh = true
			if t.scope != "" {
				t.past = append(t.past, e)
			}
		}
	}
}

// reset begins anew after the end of a turn.
func (f *folded) reset() *turn {
	root := newTurn("")
	f.turns, f.noMore = map[string]*turn{"": root}, false
	clear(f.scopes)
	return root
}

// waitsFor reports whether a call waits for people to decide on this request,
// and not on an earlier one that was edited away.
func (t *turn) waitsFor(call string, id approvals.ID) bool {
	ask := t.asks[call]
	return ask != nil && ask.Ask.Approval == id && t.decisions[call] == nil && t.results[call] == nil
}

func (t *turn) openCalls() []llm.Call {
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

// openCall is a call without a result, wherever it is.
type openCall struct {
	llm.Call
	scope  string
	intent bool // it may have run
	ask    *history.Ask
}

// openCalls lists every call without a result, those of nested work before the call that
// they are the work of.
func (f *folded) openCalls(scope string) []openCall {
	t := f.turns[scope]
	if t == nil {
		return nil
	}
	var all []openCall
	for _, c := range t.openCalls() {
		all = append(all, f.openCalls(c.ID)...)
		o := openCall{Call: c, scope: scope, intent: t.intents[c.ID]}
		if ask := t.asks[c.ID]; ask != nil {
			o.ask = ask.Ask
		}
		all = append(all, o)
	}
	return all
}

// requester is whose turn this is: the author of its first message, with the groups that
// the network vouched for then.
func (f *folded) requester() (chat.User, []string) {
	if m := f.root().message; m != nil {
		return m.From, m.Groups
	}
	return chat.User{}, nil
}

// readOnly says that this turn may only look.
func (f *folded) readOnly() bool {
	m := f.root().message
	return m != nil && m.ReadOnly
}
