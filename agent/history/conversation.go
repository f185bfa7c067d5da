package history

import (
	"strings"

	"countersign/agent/llm"
)

// conversation is a transcript on its way to a view. It is used by one goroutine.
type conversation struct {
	scope   string
	waiting map[string]string // see [Options]
	mark    *marker
	entries []Entry
	task    *Entry // the begin of the scope

	units []unit
	parts []part // of all units, in order

	asks      map[string]*Ask // by approval
	edits     map[string]*Entry
	decisions []*Entry
	decided   map[string]int // decisions of a call
	nested    int            // calls of nested scopes that can leave something open
	aside     bool           // the last reply was said in the aside
	calls     map[string]callRef

	// What settle found out; see there.
	lim       limits
	seen      int // units
	first     int // the first unit that is shown
	total     int // tokens of what is shown, beside the system prompt and the tools
	ahead     int // of them, those before the units
	older     int // the last reply but one, as a unit; -1 for none
	newest    int // the last reply
	next      int // the first part that may become a stub
	ripe      int // the first part that may not yet
	gain      int // what the parts between would free
	summary   *Entry
	summaryAt int // unit
	people    []*Entry
	told      int // covered facts, about
	factsRoom int
	saidRoom  int
}

// callRef is where a call stands.
type callRef struct {
	call  *llm.Call
	reply *Entry
	// result is nil while the call is open.
	result *Entry
}

// unit is what is shown of one entry, and stays or goes as a whole.
type unit struct {
	entry    *Entry
	from, to int // parts
	fixed    int // tokens beside the parts
}

type partState uint8

const (
	whole partState = iota
	squeezed
	cleared
)

// part is a text of a unit that may be cut, or cleared if it is a result.
type part struct {
	entry  *Entry // nil for a call without a result
	call   *llm.Call
	result bool
	state  partState
	bytes  int
	whole  int // tokens at first
	tokens int // tokens now
	floor  int // tokens that cutting does not save
	most   int // bytes, if it is squeezed
}

// clearable is how many tokens a stub in place of a part would free.
func (p *part) clearable() int {
	if !p.result || p.entry == nil || p.state == cleared {
		return 0
	}
	return max(p.tokens-stubSize-Guess(len(p.entry.Result.Tool)+len(p.entry.Result.Output)), 0)
}

func (c *conversation) size(u *unit) int {
	n := u.fixed
	for i := u.from; i < u.to; i++ {
		n += c.parts[i].tokens
	}
	return n
}

func newConversation(entries []Entry, o Options) *conversation {
	c := &conversation{
		scope: o.Scope, waiting: o.Waiting, mark: newMarker(o.Key, string(o.Thread)), entries: entries, older: -1, newest: -1,
		units: make([]unit, 0, len(entries)/2), parts: make([]part, 0, len(entries)/2),
		asks: map[string]*Ask{}, edits: map[string]*Entry{}, decided: map[string]int{}, calls: make(map[string]callRef, len(entries)/3),
	}
	// Replies carry their own results, so nothing that people said while a call
	// was open can come between the two.
	results := make(map[string]*Entry, len(entries)/3)
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Edited != nil && e.Edited.Keep == nil: // results tell of dropped steps
			c.edits[e.Edited.Call] = e // the last one is what was asked for
		case e.Ask != nil:
			c.asks[string(e.Ask.Approval)] = e.Ask
		case e.Result != nil:
			if _, dup := results[e.Result.Call]; !dup {
				results[e.Result.Call] = e
			}
			if !c.shows(e) && c.scope == "" && leavesOpen(e.Result.Tool) && c.nested < maxOpenLines {
				c.nested++
			}
		case e.Begin != nil && e.Begin.Call == c.scope && c.scope != "":
			c.task = e
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.Reply != nil { // of all scopes: what they left open is the thread's
			for j := range e.Reply.Calls {
				call := &e.Reply.Calls[j]
				if _, dup := c.calls[call.ID]; !dup {
					c.calls[call.ID] = callRef{call, e, results[call.ID]}
				}
			}
		}
		if c.shows(e) {
			c.add(e, results)
		}
	}
	c.ahead = c.front(0)
	c.total = c.ahead
	return c
}

// shows reports whether an entry is part of the conversation. The thread's own includes its
// aside.
func (c *conversation) shows(e *Entry) bool {
	return e.Scope == c.scope || c.scope == "" && e.Scope == Aside
}

// openText stands for the result of a call that has none.
func (c *conversation) openText(call string) string {
	if text := c.waiting[call]; text != "" {
		return text
	}
	return interrupted
}

// add makes the unit of an entry.
func (c *conversation) add(e *Entry, results map[string]*Entry) {
	u := unit{entry: e, from: len(c.parts)}
	switch {
	case e.Message != nil:
		p := part{entry: e, floor: frame + dataFrame + cutSize + guess(e.Message.From.Name), bytes: len(e.Message.Text)}
		for _, f := range e.Message.Files {
			p.bytes += len(f.Text)
			p.floor += fileFrame + cutSize + guess(f.Name)
		}
		c.part(p)
	case e.Note != nil:
		c.part(part{entry: e, floor: frame + noteFrame + cutSize, bytes: len(e.Note.Text)})
	case e.Reply != nil:
		c.aside = e.Scope == Aside
		u.fixed = size(e)
		for i := range e.Reply.Calls {
			call := &e.Reply.Calls[i]
			if ed := c.edits[call.ID]; ed != nil {
				u.fixed += size(ed)
			}
			r := results[call.ID]
			if r == nil {
				c.part(part{call: call, result: true, whole: frame + guess(c.openText(call.ID))})
				continue
			}
			c.part(part{entry: r, call: call, result: true, bytes: len(r.Result.Text), floor: frame + markFrame + cutSize + guess(r.Result.Tool)})
		}
	case shownEnd(e):
		u.fixed = size(e)
	case c.endsWaiting(e):
		c.aside = false
		u.fixed = frame + guess(decidedText(e))
	case e.Decision != nil:
		c.decisions = append(c.decisions, e)
		c.decided[e.Decision.Call]++
		return
	case e.Summary != nil:
	default:
		return
	}
	u.to = len(c.parts)
	c.units = append(c.units, u)
}

func (c *conversation) part(p part) {
	if p.entry != nil {
		p.whole = max(size(p.entry), 1)
	}
	p.tokens = p.whole
	c.parts = append(c.parts, p)
}

// view makes the items. end is the unit before which a summary has to cover all.
func (c *conversation) view(system string, b Budget, end int) View {
	v := View{scope: c.scope, Limit: max(b.limit(), 0), window: b.Window}
	v.Items = append(make([]llm.Item, 0, len(c.units)-c.first+8), llm.Item{Role: llm.System, Text: system})
	front, facts := c.frontItems()
	v.Items = append(v.Items, front...)
	for i := c.first; i < len(c.units); i++ {
		if i == end {
			v.cover = len(v.Items)
		}
		v.Items = c.items(v.Items, &c.units[i])
	}
	v.Estimate = b.System + c.total - c.ahead + c.front(guess(facts))
	v.Tokens = int(float64(v.Estimate) * b.Factor)
	return v
}

// endsWaiting reports whether a result came after talk in the aside: it stands further up,
// where the call was made.
func (c *conversation) endsWaiting(e *Entry) bool {
	return e.Result != nil && e.Scope == "" && c.scope == "" && c.aside
}

// decidedText tells the model, at the end of an aside, where the result of the call is.
func decidedText(e *Entry) string {
	return "[countersign] The request was decided: the result of " + cleanName(e.Result.Tool, "the call") + " now stands above, at its call."
}

// items appends what is shown of a unit.
func (c *conversation) items(items []llm.Item, u *unit) []llm.Item {
	e := u.entry
	user := func(text string) []llm.Item { return append(items, llm.Item{Role: llm.User, Text: text}) }
	switch {
	case e.Message != nil:
		return user(c.mark.messageText(e, c.parts[u.from].most))
	case e.Note != nil:
		return user(c.mark.noteText(e, c.parts[u.from].most))
	case e.End != nil:
		return user("[countersign] " + clean(e.End.Text))
	case e.Result != nil:
		return user(decidedText(e))
	case e.Reply != nil:
		items = append(items, llm.Item{Role: llm.Assistant, Text: e.Reply.Text, Calls: e.Reply.Calls, Opaque: e.Reply.Opaque})
		for i := u.from; i < u.to; i++ {
			p := &c.parts[i]
			var text string
			switch {
			case p.entry == nil:
				text = c.openText(p.call.ID)
			case p.state == cleared:
				text = clearedLine(p.entry)
			default:
				text = c.mark.resultText(p.entry, p.most)
			}
			if ed := c.edits[p.call.ID]; ed != nil {
				text = editedText(ed.Edited, text)
			}
			items = append(items, llm.Item{Role: llm.Tool, CallID: p.call.ID, Text: text})
		}
	}
	return items
}

// taskText is what a sub-agent is asked to do.
func (c *conversation) taskText() string {
	b := c.task.Begin
	text := clean(b.Task)
	if strings.TrimSpace(text) == "" {
		return "[countersign] Carry out " + cleanName(b.Name, "the work of this call") + "."
	}
	return text
}
