package observe

import (
	"maps"
	"slices"
	"time"

	"countersign/agent/history"
	"countersign/approvals"
)

// maxCalls bounds the calls, requests and nested works that one open turn keeps in
// memory. A turn has one reply's calls open as a rule; what is beyond the bound is not
// measured.
const maxCalls = 256

// conversation is what is kept of one thread.
type conversation struct {
	next uint64 // number of the entry that comes next; those before were seen
	// whole means that nothing before next can matter that was not seen: the thread was
	// seen from its beginning, or its whole transcript was, or the end of a turn was.
	whole bool
	turn  *turn // nil when none is open, or its beginning was not seen
}

// turn is an open turn: what its entries so far say.
type turn struct {
	first   uint64 // number of the message that began it
	began   time.Time
	work    tally
	asked   int
	waited  time.Duration
	calls   map[string]*call   // without a result yet
	asks    map[string]ask     // by call, without a decision yet
	nesteds map[string]*nested // by call, which is also the scope of what is in them
}

// tally adds up the work of a turn or of a nested work.
type tally struct {
	replies, tools, in, out int
	cost                    float64
}

type call struct {
	name   string // as the model wrote it
	scope  string
	intent time.Time // when its intent was written; zero without one
	live   bool      // this process ran it, so its span is made there
}

type ask struct {
	approval approvals.ID
	tool     string
	scope    string
	at       time.Time
}

type nested struct {
	kind  history.NestedKind
	name  string
	scope string // that it is in
	began time.Time
	work  tally
}

// A fact is something that an entry completes.
type fact interface{ fact() }

// readHeld: a proven read tried what its lock refused.
type readHeld struct{ tool string }

// turnEnded: the thread's turn is over. turn is nil when its beginning was not seen.
type turnEnded struct {
	turn   *turn
	at     time.Time
	reason history.EndReason
}

// waitEnded: nobody waits for this request any more. turn tells the trace.
type waitEnded struct {
	turn     *turn
	ask      ask
	call     string
	at       time.Time
	decision string
}

// callEnded: a call has its result.
type callEnded struct {
	tool    string
	outcome Outcome
}

// callLost: a call that another process had begun has no known outcome.
type callLost struct {
	turn     *turn
	id, tool string
	scope    string
	from, to time.Time
}

// nestedEnded: a sub-agent or a workflow is over.
type nestedEnded struct {
	turn    *turn
	call    string
	nested  *nested
	at      time.Time
	outcome Outcome
}

func (turnEnded) fact()   {}
func (waitEnded) fact()   {}
func (callEnded) fact()   {}
func (callLost) fact()    {}
func (nestedEnded) fact() {}
func (readHeld) fact()    {}

// Decisions that are no state of a request.
const (
	decisionEdited  = "edited"
	decisionSettled = "settled" // approved by a grant, a plan or the policy, without a vote of its own
)

// add takes the next entry and says what it completes. It is pure but for c: the same
// entries give the same facts, in one process or in several.
func (c *conversation) add(e *history.Entry) []fact {
	if e.Seq < c.next {
		return nil
	}
	if e.Seq == 0 {
		c.whole = true
	}
	c.next = e.Seq + 1
	t := c.turn
	switch {
	case e.Tried != nil:
		return []fact{readHeld{tool: e.Tried.Tool}}
	case e.Message != nil:
		if t == nil && e.Scope == "" {
			c.turn = &turn{first: e.Seq, began: e.At, calls: map[string]*call{}, asks: map[string]ask{}, nesteds: map[string]*nested{}}
		}
	case e.Result != nil:
		return t.result(e)
	case e.End != nil && e.Scope == "":
		c.turn, c.whole = nil, true
		facts := t.abandonAsks(e.At)
		return append(facts, turnEnded{turn: t, at: e.At, reason: e.End.Reason})
	case t == nil:
	case e.Reply != nil:
		t.reply(e)
	case e.Ask != nil:
		t.asked++
		if len(t.asks) < maxCalls {
			a := ask{approval: e.Ask.Approval, scope: t.scopeOf(e.Ask.Call, e.Scope), at: e.At}
			if k := t.calls[e.Ask.Call]; k != nil {
				a.tool = k.name
			}
			t.asks[e.Ask.Call] = a
		}
	case e.Decision != nil:
		return t.decided(e.Decision.Call, e.Decision.Approval, e.At, string(e.Decision.State))
	case e.Edited != nil:
		return t.decided(e.Edited.Call, e.Edited.Approval, e.At, decisionEdited)
	case e.Intent != nil:
		if k := t.calls[e.Intent.Call]; k != nil {
			if k.intent = e.At; e.Intent.Void {
				k.intent = time.Time{}
			}
		}
	case e.Begin != nil:
		if len(t.nesteds) < maxCalls {
			t.nesteds[e.Begin.Call] = &nested{kind: e.Begin.Kind, name: e.Begin.Name, scope: t.scopeOf(e.Begin.Call, e.Scope), began: e.At}
		}
	}
	return nil
}

// scopeOf is the scope that a call was made in. The entries about nested work may stand
// in its own scope, so the reply that made the call is asked first.
func (t *turn) scopeOf(id, fallback string) string {
	if k := t.calls[id]; k != nil {
		return k.scope
	}
	if fallback == id {
		return ""
	}
	return fallback
}

func (t *turn) reply(e *history.Entry) {
	for _, c := range e.Reply.Calls {
		if len(t.calls) < maxCalls {
			t.calls[c.ID] = &call{name: c.Name, scope: e.Scope}
		}
	}
	if e.Reply.Direct {
		return // a person's, not the model's
	}
	t.count(e.Scope, func(w *tally) {
		w.replies++
		w.in += e.Reply.Usage.In
		w.out += e.Reply.Usage.Out
		w.cost += e.Reply.Usage.Cost
	})
}

// count adds to the turn and to each nested work that a scope is in.
func (t *turn) count(scope string, add func(*tally)) {
	add(&t.work)
	for range maxCalls { // a scope never contains itself; this holds if the entries say so all the same
		n := t.nesteds[scope]
		if n == nil {
			return
		}
		add(&n.work)
		scope = n.scope
	}
}

// decided ends the waiting of a call on one request. A decision on an earlier request
// that was edited away ends nothing.
func (t *turn) decided(id string, approval approvals.ID, at time.Time, decision string) []fact {
	a, ok := t.asks[id]
	if !ok || a.approval != approval {
		return nil
	}
	delete(t.asks, id)
	t.waited += max(0, at.Sub(a.at))
	return []fact{waitEnded{turn: t, ask: a, call: id, at: at, decision: decision}}
}

// abandonAsks ends the waiting for what nobody will decide any more.
func (t *turn) abandonAsks(at time.Time) []fact {
	if t == nil {
		return nil
	}
	var facts []fact
	for _, id := range slices.Sorted(maps.Keys(t.asks)) {
		facts = append(facts, t.decided(id, t.asks[id].approval, at, string(approvals.Cancelled))...)
	}
	return facts
}

func (t *turn) result(e *history.Entry) []fact {
	r := e.Result
	outcome := OutcomeOf(*r)
	facts := []fact{callEnded{tool: r.Tool, outcome: outcome}}
	if t == nil {
		return facts
	}
	if a, ok := t.asks[r.Call]; ok {
		facts = append(facts, t.decided(r.Call, a.approval, e.At, string(approvals.Cancelled))...)
	}
	scope := t.scopeOf(r.Call, e.Scope)
	if n := t.nesteds[r.Call]; n != nil {
		delete(t.nesteds, r.Call)
		facts = append(facts, nestedEnded{turn: t, call: r.Call, nested: n, at: e.At, outcome: outcome})
	}
	t.count(scope, func(w *tally) { w.tools++ })
	if k := t.calls[r.Call]; k != nil {
		delete(t.calls, r.Call)
		if r.Unknown && !k.live && !k.intent.IsZero() {
			facts = append(facts, callLost{turn: t, id: r.Call, tool: r.Tool, scope: scope, from: k.intent, to: e.At})
		}
	}
	return facts
}

// resume makes of a whole transcript what add would have made of it, entry by entry.
// Only the last turn matters, so only that is looked at.
func resume(entries []history.Entry) *conversation {
	from := 0
	for i, e := range slices.Backward(entries) {
		if e.End != nil && e.Scope == "" {
			from = i + 1
			break
		}
	}
	c := &conversation{}
	for i := range entries[from:] {
		c.add(&entries[from:][i])
	}
	if n := len(entries); n > 0 {
		c.next = entries[n-1].Seq + 1
	}
	c.whole = true
	return c
}
