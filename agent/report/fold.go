package report

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/audit"
)

// call is one call of a tool, with everything that the record has about it.
type call struct {
	llm.Call
	scope    string
	proposed time.Time // of the reply
	by       chat.User // whose turn it was, or who edited the command last
	wanted   bool      // by a person, not by the model

	asks      []*history.Ask
	decisions map[approvals.ID]*history.Decision
	edits     []*history.Edited
	rec       *approvals.Record // of the last ask

	allowed, forbidden *audit.Line
	begin              *history.Entry
	intent, ended      time.Time
	result             *history.Result
	since              time.Time // when it could begin at the earliest
}

// ending says how a call ended, in the words of commands.csv.
type ending string

const (
	endOK        ending = "ok"
	endFailed    ending = "failed"
	endUnknown   ending = "unknown"
	endDenied    ending = "denied"
	endExpired   ending = "expired"
	endCancelled ending = "cancelled"
	endForbidden ending = "forbidden"
	endNotRun    ending = "not run"
	endWaiting   ending = "waiting"
	endLost      ending = "no outcome" // it began, and nothing says how it ended
	endOpen      ending = "open"       // it was proposed, and nothing more is known
)

// lastAsk returns the current request, or nil if there was none.
func (c *call) lastAsk() *history.Ask {
	if len(c.asks) == 0 {
		return nil
	}
	return c.asks[len(c.asks)-1]
}

// decision returns the decision on the last request, or nil.
func (c *call) decision() *history.Decision {
	if a := c.lastAsk(); a != nil {
		return c.decisions[a.Approval]
	}
	return nil
}

// state returns the state of the last request, "" if there was none. The transcript takes
// precedence, because the record may have been deleted.
func (c *call) state() approvals.State {
	a := c.lastAsk()
	if a == nil {
		return ""
	}
	if slices.ContainsFunc(c.edits, func(e *history.Edited) bool { return e.Approval == a.Approval }) {
		return approvals.Cancelled
	}
	if c.rec != nil {
		return c.rec.State
	}
	if d := c.decision(); d != nil {
		return d.State
	}
	if c.result != nil {
		return approvals.Cancelled // it was closed before anybody decided
	}
	return approvals.Pending
}

// isRead reports whether the call ran, or is running, as a proven read. If the chain is
// missing, a call with a result and without a request counts as one. A call that only
// failed does not, because it may never have run.
func (c *call) isRead(chain bool) bool {
	switch {
	case !c.intent.IsZero() || c.begin != nil || c.forbidden != nil:
		return false
	case c.allowed != nil:
		return true
	}
	return !chain && len(c.asks) == 0 && c.result != nil && !c.result.Skipped && !c.result.Denied && strings.HasPrefix(c.result.Text, "{")
}

// end returns how the call ended.
func (c *call) end(chain bool) ending {
	r := c.result
	ran := !c.intent.IsZero() || c.begin != nil || c.isRead(chain)
	switch {
	case r == nil && ran:
		return endLost
	case r != nil && r.Unknown:
		return endUnknown
	case r != nil && ran && r.Failed:
		return endFailed
	case r != nil && ran:
		return endOK
	case c.forbidden != nil:
		return endForbidden
	}
	switch c.state() {
	case approvals.Denied:
		return endDenied
	case approvals.Expired:
		return endExpired
	case approvals.Cancelled:
		return endCancelled
	case approvals.Pending, approvals.Approved:
		if r == nil {
			return endWaiting
		}
	default:
	}
	if r == nil {
		return endOpen
	}
	return endNotRun
}

// start returns when the call started to run, or was proposed if it did not run.
func (c *call) start() time.Time {
	switch {
	case !c.intent.IsZero():
		return c.intent
	case c.begin != nil:
		return c.begin.At
	case c.allowed != nil:
		return c.allowed.At
	case c.since.After(c.proposed):
		return c.since
	}
	return c.proposed
}

// took returns how long the call ran. ok is false if that is unknown.
func (c *call) took(chain bool) (d time.Duration, ok bool) {
	if end := c.end(chain); end != endOK && end != endFailed {
		return 0, false
	}
	return max(0, c.ended.Sub(c.start())), true
}

// tool returns the tool's name as the bot knows it.
func (c *call) tool() string {
	switch {
	case c.rec != nil && c.rec.Action.Tool != "":
		return c.rec.Action.Tool
	case c.allowed != nil && c.allowed.Event.Tool != "":
		return c.allowed.Event.Tool
	}
	return c.Name
}

// target returns the machine's name, without the proof of its identity.
func (c *call) target() string {
	var t string
	switch {
	case c.rec != nil:
		t = c.rec.Action.Target
	case c.allowed != nil:
		t = c.allowed.Event.Target
	case c.forbidden != nil:
		t = c.forbidden.Event.Target
	default:
		t = c.argument("target")
	}
	t, _, _ = strings.Cut(t, "#")
	return t
}

// digest returns the digest of the requested, proven or refused action, "" if unknown.
func (c *call) digest() string {
	switch a := c.lastAsk(); {
	case c.isRead(true): // an edit may have turned a requested change into a read
		return c.allowed.Event.Digest
	case c.forbidden != nil:
		return c.forbidden.Event.Digest
	case a != nil:
		return a.Digest.String()
	}
	return ""
}

// command returns the exact text to run, or the call's arguments if it has no text.
func (c *call) command() string {
	switch {
	case c.isRead(true) && c.allowed.Event.Command != "":
		return c.allowed.Event.Command
	case c.state() == approvals.Cancelled && len(c.edits) > 0: // edited, and not requested again
		return c.edits[len(c.edits)-1].Text
	case c.rec != nil:
		return commandOf(c.rec.Action)
	case c.forbidden != nil && c.forbidden.Event.Command != "":
		return c.forbidden.Event.Command
	case len(c.edits) > 0:
		return c.edits[len(c.edits)-1].Text
	}
	for _, name := range []string{"command", "input", "keys", "code"} {
		if s := c.argument(name); s != "" {
			return s
		}
	}
	return c.Args
}

// argument returns one of the call's string arguments.
func (c *call) argument(name string) string {
	var args map[string]json.RawMessage
	var s string
	if json.Unmarshal([]byte(c.Args), &args) != nil || json.Unmarshal(args[name], &s) != nil {
		return ""
	}
	return s
}

// commandOf returns the exact text of an action. For one that writes files it returns their
// names and the preview, not the content.
func commandOf(a approvals.Action) string {
	switch {
	case len(a.Steps) > 0:
		lines := []string{"plan of " + plural(len(a.Steps), "step")}
		for i, s := range a.Steps {
			lines = append(lines, strconv.Itoa(i+1)+". "+s.Tool+": "+commandOf(s))
		}
		return strings.Join(lines, "\n")
	case a.Kind == approvals.KindShell || a.Kind == approvals.KindKeys:
		return string(a.Bytes)
	case a.Path != "":
		return strings.TrimSuffix(a.Path+"\n"+a.Preview, "\n")
	case len(a.Paths) > 0:
		return strings.TrimSuffix(strings.Join(a.Paths, ", ")+"\n"+a.Preview, "\n")
	case a.Preview != "":
		return a.Preview
	}
	return string(a.Args)
}

var (
	codeLine = regexp.MustCompile(`(?m)^\[exit code: (-?\d{1,10})\]$`)
	codeNote = regexp.MustCompile(`^exit code (-?\d{1,10})$`)
)

// exitCode returns the program's exit code. ok is false if the record does not have it.
func (c *call) exitCode() (code int, ok bool) {
	if c.result == nil || c.result.Unknown || c.result.Skipped {
		return 0, false
	}
	var env struct {
		Result json.RawMessage `json:"result"`
	}
	var sh struct {
		ExitCode *int `json:"exit_code"`
	}
	if json.Unmarshal([]byte(c.result.Text), &env) == nil {
		if json.Unmarshal(env.Result, &sh) == nil && sh.ExitCode != nil {
			return *sh.ExitCode, true
		}
		var text string
		if json.Unmarshal(env.Result, &text) == nil {
			// The tool appends it, and only after a failure; earlier matches are output.
			if all := codeLine.FindAllStringSubmatch(text, -1); len(all) > 0 && c.result.Failed {
				return number(all[len(all)-1][1])
			}
		}
	}
	if c.rec != nil {
		if m := codeNote.FindStringSubmatch(c.rec.Outcome.Note); m != nil {
			return number(m[1])
		}
	}
	return 0, false
}

func number(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// why returns why a call failed or did not run: the record's reason, or the first line of
// the result.
func (c *call) why() string {
	if c.rec != nil && c.rec.Reason != "" && c.rec.State != approvals.Approved {
		return c.rec.Reason
	}
	if c.result == nil {
		return ""
	}
	first, _, _ := strings.Cut(c.result.Text, "\n")
	return strings.TrimPrefix(first, "Tool error: ")
}

// person is somebody with a part in the incident.
type person struct {
	chat.User
	roles []string
}

// incidentState is an incident folded from its entries, records and chain.
type incidentState struct {
	chain  bool // the chain is present, so what it does not contain did not happen
	calls  []*call
	byID   map[string]*call
	people []*person
	known  map[chat.UserID]*person
	open   bool           // a turn is not over
	holder *history.Entry // who has the keyboard
}

// addRole records what a person did.
func (f *incidentState) addRole(u chat.User, role string) {
	if u.ID == "" {
		return
	}
	p := f.known[u.ID]
	if p == nil {
		p = &person{User: u}
		f.known[u.ID] = p
		f.people = append(f.people, p)
	}
	if p.Name == "" {
		p.Name = u.Name
	}
	if role != "" && !slices.Contains(p.roles, role) {
		p.roles = append(p.roles, role)
	}
}

// personNamed returns the person with an id as far as the record knows them.
func (f *incidentState) personNamed(id, name string) chat.User {
	if p := f.known[chat.UserID(id)]; p != nil {
		return p.User
	}
	return chat.User{ID: chat.UserID(id), Name: name}
}

// fold folds an incident.
func fold(inc Incident) *incidentState {
	f := &incidentState{chain: len(inc.Lines) > 0, byID: map[string]*call{}, known: map[chat.UserID]*person{}}
	records := map[approvals.ID]*approvals.Record{}
	for i := range inc.Records {
		records[inc.Records[i].ID] = &inc.Records[i]
	}
	var first *history.Message // of the turn
	var before time.Time       // when the last call ended
	for i := range inc.Entries {
		e := &inc.Entries[i]
		switch {
		case e.Message != nil:
			role := "wrote"
			if !f.open {
				f.open, first = true, e.Message
				role = "asked"
			}
			f.addRole(e.Message.From, role)
		case e.Reply != nil:
			for _, c := range e.Reply.Calls {
				k := &call{Call: c, scope: e.Scope, proposed: e.At, wanted: e.Reply.Direct, decisions: map[approvals.ID]*history.Decision{}, since: e.At}
				if first != nil {
					k.by = first.From
				}
				f.calls = append(f.calls, k)
				f.byID[c.ID] = k
			}
		case e.End != nil && e.Scope == "":
			f.open = false
		case e.Stop != nil:
			f.addRole(e.Stop.From, "said stop")
		case e.Pen != nil:
			if f.holder = nil; e.Pen.Taken {
				f.holder = e
				f.addRole(e.Pen.By, "took the keyboard")
			}
		case e.Step != nil:
			f.addRole(e.Step.By, "answered")
		default:
			f.addCallEntry(e, records, before)
		}
		if e.Result != nil {
			before = e.At
		}
	}
	f.addLines(inc.Lines)
	f.addVotes(inc.Records)
	return f
}

// addCallEntry applies an entry about a single call.
func (f *incidentState) addCallEntry(e *history.Entry, records map[approvals.ID]*approvals.Record, before time.Time) {
	of := func(id string) *call {
		if k := f.byID[id]; k != nil {
			return k
		}
		// The transcript starts after the call was proposed, so only its id is known.
		k := &call{Call: llm.Call{ID: id}, scope: e.Scope, proposed: e.At, decisions: map[approvals.ID]*history.Decision{}, since: e.At}
		f.calls, f.byID[id] = append(f.calls, k), k
		return k
	}
	switch {
	case e.Ask != nil:
		k := of(e.Ask.Call)
		k.asks, k.rec = append(k.asks, e.Ask), records[e.Ask.Approval]
	case e.Decision != nil:
		d := e.Decision
		of(d.Call).decisions[d.Approval] = d
		if records[d.Approval] == nil {
			f.addRole(chat.User{ID: chat.UserID(d.By), Name: d.ByName}, roleOf(d.State))
		}
	case e.Edited != nil:
		k := of(e.Edited.Call)
		k.edits = append(k.edits, e.Edited)
		if e.Edited.Keep == nil {
			k.by = e.Edited.By
		}
		f.addRole(e.Edited.By, "edited")
	case e.Intent != nil:
		if of(e.Intent.Call).intent = e.At; e.Intent.Void {
			of(e.Intent.Call).intent = time.Time{}
		}
	case e.Begin != nil:
		of(e.Begin.Call).begin = e
	case e.Result != nil:
		k := of(e.Result.Call)
		if k.result != nil {
			return
		}
		k.result, k.ended = e.Result, e.At
		if before.After(k.since) {
			k.since = before
		}
		if k.Name == "" {
			k.Name = e.Result.Tool
		}
	}
}

// roleOf returns the role of a person who made a decision.
func roleOf(s approvals.State) string {
	switch s {
	case approvals.Approved:
		return "approved"
	case approvals.Denied:
		return "denied"
	default:
		return ""
	}
}

// addLines records which calls the chain says were allowed or forbidden without people.
func (f *incidentState) addLines(lines []audit.Line) {
	for i := range lines {
		k := f.byID[lines[i].Event.Call]
		if k == nil {
			continue
		}
		switch lines[i].Event.What {
		case audit.Allowed:
			k.allowed = &lines[i]
		case audit.Forbidden:
			k.forbidden = &lines[i]
		}
	}
}

// addVotes records how people voted on requests.
func (f *incidentState) addVotes(records []approvals.Record) {
	for i := range records {
		r := &records[i]
		f.addRole(r.Requester, "")
		for _, v := range r.Votes {
			switch {
			case v.Glass:
				f.addRole(v.User, "broke the glass")
			case v.Approve:
				f.addRole(v.User, "approved")
			default:
				f.addRole(v.User, "denied")
			}
		}
		f.addRole(r.Review.By, "reviewed")
	}
}
