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

// threadState is a transcript folded entry by entry: what is open now, and what the thread
// must remember of earlier entries. Equal transcripts fold to equal states.
type threadState struct {
	// turns are the open conversations by scope. The thread's own has scope "", its aside
	// [history.Aside]; each call with nested work has its own.
	turns map[string]*turn
	// scopes maps each call of this turn to the scope it was made in.
	scopes map[string]string
	// used contains every call id the thread has ever seen.
	used map[string]bool
	pen  *history.Entry // who has the keyboard; outlives the turn
	// budgetDenied is set once people refused to raise a cap in this turn.
	budgetDenied bool
	// later are messages that arrived between a stop and the end of the turn. They start
	// the next turn.
	later []*history.Entry
	// rounds are the turns in a row that bots began, ended is when the last turn did, and unanswered
	// are the messages of bots since then that began none.
	rounds, unanswered int
	ended              time.Time
}

// Two bots that answer each other stop after maxRounds, until a person writes or neither does for
// roundsOver.
const (
	maxRounds  = 3
	roundsOver = time.Hour
)

// enough reports whether bots have been answered so often in a row that another one isn't.
func (f *threadState) enough(at time.Time) bool {
	return !f.root().open && f.rounds >= maxRounds && at.Sub(f.ended) < roundsOver
}

// turn is the part of a conversation since the last end. A message, or a call with nested
// work, starts it.
type turn struct {
	scope   string
	open    bool             // a message came, or a call is open, since the last end
	begin   *history.Begin   // only for nested work
	message *history.Message // that started the turn; in the aside, the last one
	began   time.Time
	steps   int
	tokens  int
	waited  time.Duration
	reply   *history.Reply // the last one
	fresh   bool           // a message or result came after the last reply
	futile  int            // replies in a row, without the last one, that only repeated calls that can't succeed
	stop    *history.Stop
	asks    map[string]*history.Entry

	decisions map[string]*history.Decision
	edits     map[string][]*history.Edited
	tried     map[string]string // by call: what it tried as a read and the lock refused
	intents   map[string]*history.Intent
	batched   bool // the last reply's calls were approved together
	results   map[string]*history.Result
	past      []*history.Entry // only for a workflow: its replies, results and steps, in order
	pending   *history.Entry   // only for a workflow: the step that waits for a person or a time
}

func newTurn(scope string) *turn {
	return &turn{
		scope: scope, asks: map[string]*history.Entry{}, decisions: map[string]*history.Decision{}, edits: map[string][]*history.Edited{},
		tried:   map[string]string{},
		intents: map[string]*history.Intent{}, results: map[string]*history.Result{},
	}
}

func newThreadState() *threadState {
	return &threadState{
		turns: map[string]*turn{"": newTurn("")}, scopes: map[string]string{},
		used: map[string]bool{history.Aside: true}, // no call's id names the aside
	}
}

func fold(entries []history.Entry) *threadState {
	f := newThreadState()
	for i := range entries {
		f.add(&entries[i])
	}
	return f
}

// root returns the thread's own conversation.
func (f *threadState) root() *turn { return f.turns[""] }

// clone returns a copy for entries whose transaction may still fail. Adding to the copy
// does not change f, except that used call ids are shared.
func (f *threadState) clone() *threadState {
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

// turnOf returns the conversation in which a call was made, or nil if that is closed.
func (f *threadState) turnOf(call string) *turn {
	if scope, ok := f.scopes[call]; ok {
		return f.turns[scope]
	}
	return nil
}

// addWaited excludes d, the time people took to answer, from the wall limit of t and of the
// turns around it.
func (f *threadState) addWaited(t *turn, d time.Duration) {
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

// add applies the next entry and keeps a pointer to it.
func (f *threadState) add(e *history.Entry) {
	root := f.root()
	switch {
	case e.Message != nil:
		if e.Message.Unanswered {
			f.unanswered++
			f.ended = e.At
			return
		}
		if root.open && root.stop != nil {
			// The stop does not end what is said after it: that starts the next turn.
			f.later = append(f.later, e)
			return
		}
		if !root.open {
			root = f.reset()
			root.open, root.began, root.message = true, e.At, e.Message
			if f.rounds++; e.At.Sub(f.ended) >= roundsOver {
				f.rounds = 1
			}
		} else if root.message.ReadOnly && !e.Message.ReadOnly && !e.Message.From.Bot {
			// The first person to write in a turn that an alert started becomes its
			// requester, with their own permissions.
			root.message = e.Message
		}
		if f.unanswered = 0; !e.Message.From.Bot {
			f.rounds = 0
		}
		root.fresh, root.futile = true, 0
		if f.waiting() && !e.Message.From.Bot {
			f.openAside(e)
		}
	case e.Reply != nil:
		f.addReply(e)
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
					f.addWaited(t, e.At.Sub(t.pending.At))
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
	case e.End != nil && e.Scope == history.Aside:
		delete(f.turns, history.Aside)
	case e.End != nil:
		f.reset()
		f.ended = e.At
		later := f.later
		f.later = nil
		for _, m := range later {
			f.add(m)
		}
	default:
		f.addCallEntry(e)
	}
}

func (f *threadState) addReply(e *history.Entry) {
	for _, c := range e.Reply.Calls {
		f.used[c.ID] = true
		f.scopes[c.ID] = e.Scope
	}
	t := f.turns[e.Scope]
	if t == nil {
		return
	}
	if t.onlyRepeated() {
		t.futile++
	} else {
		t.futile = 0
	}
	t.reply, t.fresh, t.batched = e.Reply, false, false
	if t == f.root() {
		delete(f.turns, history.Aside) // the model has read what was said there
	}
	if !isBudgetRequest(e.Reply) { // that one was written by the engine, not the model
		t.steps++
	}
	tokens := e.Reply.Usage.In + e.Reply.Usage.Out
	t.tokens += tokens
	if t.scope != "" {
		f.root().tokens += tokens // nested work is a part of the turn
		t.past = append(t.past, e)
	}
}

// openAside lets the model answer the message e while a request waits.
func (f *threadState) openAside(e *history.Entry) {
	t := f.turns[history.Aside]
	if t == nil {
		t = newTurn(history.Aside)
		t.open, t.began = true, e.At
		f.turns[t.scope] = t
	}
	t.message, t.fresh, t.steps = e.Message, true, 0
}

// waiting reports whether a request of the turn waits for people.
func (f *threadState) waiting() bool {
	return f.nextOf(time.Time{}, Limits{}).kind == stepWait
}

// addCallEntry applies an entry about a single call.
func (f *threadState) addCallEntry(e *history.Entry) {
	switch {
	case e.Ask != nil:
		if t := f.turnOf(e.Ask.Call); t != nil {
			t.asks[e.Ask.Call] = e
		}
	case e.Decision != nil:
		d := e.Decision
		if t := f.turnOf(d.Call); t != nil && t.waitsFor(d.Call, d.Approval) {
			t.decisions[d.Call] = d
			f.addWaited(t, e.At.Sub(t.asks[d.Call].At))
		}
	case e.Edited != nil:
		d := e.Edited
		if t := f.turnOf(d.Call); t != nil && t.waitsFor(d.Call, d.Approval) {
			t.edits[d.Call] = append(t.edits[d.Call], d)
			f.addWaited(t, e.At.Sub(t.asks[d.Call].At))
			delete(t.asks, d.Call) // the edit needs its own request, or none
			delete(t.tried, d.Call)
		}
	case e.Batch != nil:
		if t := f.turnOf(e.Batch.Call); t != nil {
			t.batched = true
			delete(t.asks, e.Batch.Call)
			delete(t.decisions, e.Batch.Call)
		}
	case e.Tried != nil:
		if t := f.turnOf(e.Tried.Call); t != nil {
			t.tried[e.Tried.Call] = e.Tried.What
		}
	case e.Intent != nil:
		if t := f.turnOf(e.Intent.Call); t != nil {
			if t.intents[e.Intent.Call] = e.Intent; e.Intent.Void {
				delete(t.intents, e.Intent.Call)
			}
		}
	case e.Result != nil:
		delete(f.turns, e.Result.Call) // its nested work is over
		f.budgetDenied = f.budgetDenied || e.Result.Tool == spend.Tool && e.Result.Failed
		if t := f.turnOf(e.Result.Call); t != nil {
			t.results[e.Result.Call] = e.Result
			t.fresh = t.fresh || t.reply == nil || !t.reply.Alone
			if t.scope != "" {
				t.past = append(t.past, e)
			}
		}
	}
}

// reset discards the state of the turn that ended.
func (f *threadState) reset() *turn {
	root := newTurn("")
	f.turns, f.budgetDenied = map[string]*turn{"": root}, false
	clear(f.scopes)
	return root
}

// waitsFor reports whether a call is waiting for this request, and not for an earlier one
// that an edit replaced.
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

// openCall is a call without a result, in any scope.
type openCall struct {
	llm.Call
	scope  string
	intent bool // it may have run
	ask    *history.Ask
}

// openCalls returns every call without a result. Nested calls come before the call that
// contains them.
func (f *threadState) openCalls(scope string) []openCall {
	t := f.turns[scope]
	if t == nil {
		return nil
	}
	var all []openCall
	if scope == "" {
		all = f.openCalls(history.Aside)
	}
	for _, c := range t.openCalls() {
		all = append(all, f.openCalls(c.ID)...)
		o := openCall{Call: c, scope: scope, intent: t.intents[c.ID] != nil}
		if ask := t.asks[c.ID]; ask != nil {
			o.ask = ask.Ask
		}
		all = append(all, o)
	}
	return all
}

// requester returns the author of the turn's first message, with the groups that the chat
// network reported then.
func (f *threadState) requester() (chat.User, []string) {
	if m := f.root().message; m != nil {
		return m.From, m.Groups
	}
	return chat.User{}, nil
}

// readOnly reports whether this turn may run reads only.
func (f *threadState) readOnly() bool {
	m := f.root().message
	return m != nil && m.ReadOnly
}
