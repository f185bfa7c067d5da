package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/spend"
	"countersign/agent/workflow"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/console/api"
	"countersign/store"
)

const (
	// maxRows is how many rows a list shows, and maxSaved how many are saved as a file; words
	// narrow it.
	maxRows, maxSaved = 100, 5000
	// searched is how many requests that ended are looked through.
	searched = 2000
	// auditDays is how far back the list of the audit goes; the command line has all of it.
	auditDays = 7
	// costDays is how many days the list of costs has.
	costDays = 30
)

// Answer is what a page of the lists says to a question.
type Answer struct {
	Rows []api.Row
	Bars []api.BarValue
	Note string
	// Columns are others than the page's; nil: the page's.
	Columns []string
}

// Page is one list: what it is called and what it says.
type Page struct {
	ID, Title, About string // About is a sentence
	Columns          []string
	// Fields are what can be asked of it beside words; nil is nothing.
	Fields func() []api.FormField
	Ask    string // the button that asks; "" asks at each change of a field
	// Searches: Rows has looked for the words.
	Searches bool
	// There reports whether there is anything to show; nil is yes.
	There func() bool
	Rows  func(context.Context, api.ListQuestion) (Answer, error)
	// Act does what a button of a row is for; nil: there are none. ok is false where the row or
	// the button isn't there any more.
	Act func(ctx context.Context, by chat.User, row, act string) (ok bool, err error)
}

// Lists tells people of what the bot knows, in the console. It is safe for concurrent use.
type Lists struct {
	home   *Home
	redact func(string) string
	now    func() time.Time
	pages  []Page
}

// NewLists returns lists of what a home is about, and some more. redact takes secrets out of
// their texts.
func NewLists(h *Home, redact func(string) string, more ...Page) Lists {
	l := Lists{home: h, redact: redact, now: time.Now}
	l.pages = append([]Page{
		{ID: "approvals", Title: "Approvals", About: sayApprovals, Columns: []string{"When", "What", "Risk", "Asked by", "Decision", "Outcome"}, Rows: l.approvals},
		{ID: "terminals", Title: "Terminals", About: sayTerminals, Columns: []string{"Conversation", "Session", "Target", "Since", "Keyboard", "State"}, Rows: l.terminals},
		{ID: "targets", Title: "Targets", About: sayListTargets, Columns: []string{"Target", "Kind", "State", "Answers in", "Reads", "Approvers"}, Rows: l.targets},
		{ID: "runbooks", Title: "Runbooks", About: sayRunbooks, Columns: []string{"Name", "What it does", "Inputs"}, Fields: func() []api.FormField { return []api.FormField{runbooksOf} }, Rows: l.runbooks},
		{ID: "cost", Title: "Cost", About: sayCost, Columns: []string{"Day", "Cost", "Tokens"}, Fields: func() []api.FormField { return []api.FormField{costBy} }, Rows: l.cost},
		{ID: "audit", Title: "Audit", About: sayAudit, Columns: []string{"When", "What", "Who", "Where", "Command or note"}, Rows: l.audit},
	}, more...)
	return l
}

// Names are the lists that there are.
func (l Lists) Names() []api.List {
	var out []api.List
	for _, p := range l.pages {
		if p.There == nil || p.There() {
			out = append(out, api.List{ID: p.ID, Title: p.Title})
		}
	}
	return out
}

// page is the list of an id.
func (l Lists) page(id string) (Page, bool) {
	i := slices.IndexFunc(l.pages, func(p Page) bool { return p.ID == id && (p.There == nil || p.There()) })
	if i < 0 {
		return Page{}, false
	}
	return l.pages[i], true
}

// List returns the rows of a list that have all of some words; ok is false where there is no such
// list.
func (l Lists) List(ctx context.Context, q api.ListQuestion) (out api.List, ok bool, err error) {
	p, ok := l.page(q.ID)
	if !ok {
		return out, false, nil
	}
	out = api.List{ID: p.ID, Title: p.Title, About: p.About, Columns: p.Columns, Rows: []api.Row{}, Ask: p.Ask, Slow: p.Searches}
	if p.Fields != nil {
		out.Fields = p.Fields()
	}
	a, err := p.Rows(ctx, q)
	if err != nil {
		return out, true, err
	}
	if a.Columns != nil {
		out.Columns = a.Columns
	}
	out.Bars, out.Note = a.Bars, l.redact(a.Note)
	want, most := strings.Fields(strings.ToLower(q.Words)), maxRows
	if q.All {
		most = maxSaved
	}
	for _, r := range a.Rows {
		for i := range r.Cells { // words find nothing that is not shown
			r.Cells[i].Text = l.redact(r.Cells[i].Text)
		}
		if !p.Searches && !has(r, want) {
			continue
		}
		if out.More = len(out.Rows) == most; out.More {
			break
		}
		out.Rows = append(out.Rows, r)
	}
	return out, true, nil
}

// Act does what a button of a row is for; ok is false where one of them isn't there.
func (l Lists) Act(ctx context.Context, by chat.User, list, row, act string) (ok bool, err error) {
	p, ok := l.page(list)
	if !ok || p.Act == nil {
		return false, nil
	}
	return p.Act(ctx, by, row, act)
}

// has reports whether a row has all of some words, in lower case.
func has(r api.Row, words []string) bool {
	var all strings.Builder
	for _, c := range r.Cells {
		all.WriteString(strings.ToLower(c.Text) + "\n")
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all.String(), w) })
}

func text(s string) api.Cell { return api.Cell{Text: s} }

func code(s string) api.Cell { return api.Cell{Text: s, Code: true} }

func moment(t time.Time) api.Cell { return api.Cell{At: t} }

// own reports whether a thread is one of the asker's network, which they can open.
func own(t chat.ThreadID, q api.ListQuestion) bool {
	network, _, _ := strings.Cut(string(q.From.ID), ":")
	return strings.HasPrefix(string(t), network+":")
}

// approvals are the open requests and those that ended last. Of other networks' threads it is
// told what is done where, as on the first page.
func (l Lists) approvals(ctx context.Context, q api.ListQuestion) (Answer, error) {
	var rows []api.Row
	err := l.home.commands.DB.View(ctx, func(tx store.Tx) error {
		rows = nil
		var ledger approvals.Ledger
		for _, r := range append(ledger.AllOpen(tx), ledger.Recent(tx, searched)...) {
			if r.Basis.Step > 0 {
				continue // its plan is listed
			}
			card := l.home.gate.Card(tx, r)
			if !own(r.Thread, q) {
				card = elsewhere(card)
			}
			became := outcome(r, own(r.Thread, q))
			if len(r.Action.Steps) > 0 && r.State == approvals.Done {
				became = steps(tx, r)
			}
			row := api.Row{Cells: []api.Cell{
				moment(cmp.Or(r.Ended, r.Decided, r.Created)), text(card.Title), {Text: r.Level, Tone: card.Tone},
				text(cmp.Or(r.Requester.Name, string(r.Requester.ID))), text(decision(r)), text(became),
			}}
			if own(r.Thread, q) {
				row.Thread = r.Thread
			}
			rows = append(rows, row)
		}
		return nil
	})
	return Answer{Rows: rows}, err
}

// decision says who decided a request, and how.
func decision(r approvals.Record) string {
	what, by := string(r.State), cmp.Or(r.By.Name, string(r.By.ID))
	switch r.State {
	case approvals.Pending:
		return ""
	case approvals.Approved, approvals.Running, approvals.Done, approvals.OutcomeUnknown:
		what = "approved"
		var names []string
		for _, v := range r.Votes {
			if v.Counts() {
				names = append(names, cmp.Or(v.User.Name, string(v.User.ID)))
			}
		}
		by = cmp.Or(strings.Join(names, " and "), by)
	case approvals.Cancelled:
		what = "withdrawn"
	case approvals.Denied, approvals.Expired, approvals.Invalid:
	}
	if by == "" {
		return what
	}
	return what + " by " + by
}

// steps says how far a plan is.
func steps(tx store.Tx, r approvals.Record) string {
	ok := 0
	for _, id := range r.Steps {
		if s, there := (approvals.Ledger{}).Get(tx, id); there && s.State == approvals.Done && s.Outcome.OK {
			ok++
		}
	}
	return fmt.Sprintf("%d of %d steps done", ok, len(r.Action.Steps))
}

// outcome says what became of a request: the words of its own network's threads are for those
// who can open them.
func outcome(r approvals.Record, words bool) string {
	state := string(r.State)
	if r.State == approvals.Pending {
		state = "waiting"
	}
	switch {
	case !words:
		return state
	case r.WasUndone():
		return "undone"
	}
	return oneLineOf(cmp.Or(r.Outcome.Note, r.Reason, state))
}

// terminals are all sessions on all targets that have been reached.
func (l Lists) terminals(ctx context.Context, q api.ListQuestion) (a Answer, err error) {
	for _, m := range l.home.commands.Targets.Machines.Books() {
		all, err := m.State().Book.List(ctx, "")
		if err != nil {
			return a, err
		}
		for _, s := range all {
			state := "open"
			if s.Lost {
				state = "gone"
			}
			row := api.Row{Cells: []api.Cell{text(""), code(s.Name), text(m.Name), moment(s.Created), text(cmp.Or(s.Taken, "the bot")), text(state)}}
			if id := chat.ThreadID(s.Thread); own(id, q) {
				row.Thread = id
				row.Cells[0] = text(s.Thread)
				if !s.Lost {
					row.Say, row.Do = fmt.Sprintf(sayEndSession, s.Name, m.Name), "End"
				}
			}
			a.Rows = append(a.Rows, row)
		}
	}
	return a, nil
}

// targets are the configured ones. Those that were reached are asked now how they are.
func (l Lists) targets(ctx context.Context, _ api.ListQuestion) (a Answer, err error) {
	t := Targets{Targets: l.home.commands.Targets}
	all := t.Machines.Sorted()
	a.Rows = make([]api.Row, len(all))
	var asked sync.WaitGroup
	for i, m := range all {
		asked.Go(func() {
			state, took, reads := text("not reached yet"), text(""), ""
			if o := m.State(); o != nil {
				state, took = answers(m.Ping(ctx))
				if o.Notice != "" {
					state.Text += ", no terminals"
				}
				reads = t.held(m.Name, o.Caps.Lock)
			}
			a.Rows[i].Cells = []api.Cell{
				code(m.Name), text(strings.TrimSpace(m.Config.Kind + t.Labels(m.Name))), state, took, text(reads), text(strings.Join(m.Config.Approvers, ", ")),
			}
		})
	}
	asked.Wait()
	return a, nil
}

// answers are a target's state and how long it took to answer.
func answers(took time.Duration, err error) (state, in api.Cell) {
	switch {
	case err != nil:
		return api.Cell{Text: "does not answer", Tone: chat.ToneBad}, text("")
	case took < time.Millisecond:
		return api.Cell{Text: "reached", Tone: chat.ToneGood}, text("under 1 ms")
	}
	return api.Cell{Text: "reached", Tone: chat.ToneGood}, text(fmt.Sprint(took.Milliseconds(), " ms"))
}

// runbooksOf is what of runbooks is shown.
var runbooksOf = api.FormField{Name: "show", Label: "Show", Choices: []string{"runbooks", "runs"}, Value: "runbooks"}

// runbooks are the workflows, each with what begins it, or how far those are that were begun.
func (l Lists) runbooks(ctx context.Context, q api.ListQuestion) (a Answer, err error) {
	if q.Value(runbooksOf) == "runs" {
		err = l.home.commands.DB.View(ctx, func(tx store.Tx) error {
			a = Answer{Columns: []string{"Runbook", "Steps", "Now", "State", "Began"}}
			for _, r := range agent.Runs(tx) {
				a.Rows = append(a.Rows, runRow(r, own(r.Thread, q)))
			}
			return nil
		})
		return a, err
	}
	lib := l.home.commands.Runbooks.Library
	target, _, _, many := l.home.commands.Runbooks.where(ctx, "web:") // Start begins a conversation
	for _, name := range lib.Names() {
		wf, err := lib.Get(name)
		if err != nil {
			continue // it was listed a moment ago
		}
		var inputs []string
		say := []string{"run", name}
		for _, in := range wf.Params {
			if in.Required {
				inputs = append(inputs, in.Name)
				say = append(say, in.Name+"=")
			} else {
				inputs = append(inputs, in.Name+" (optional)")
			}
		}
		if own := slices.ContainsFunc(wf.Params, func(p workflow.Input) bool { return p.Name == onInput }); many && !own {
			say = append(say, onInput+"="+target)
		}
		a.Rows = append(a.Rows, api.Row{Cells: []api.Cell{code(name), text(wf.Description), text(strings.Join(inputs, ", "))}, Say: strings.Join(say, " "), Do: "Start"})
	}
	return a, nil
}

// runRow is how far a runbook is. Of other networks' threads it names no step.
func runRow(r agent.Run, whole bool) api.Row {
	var marks strings.Builder
	past, now := 0, ""
	for _, s := range r.Steps {
		marks.WriteString(s.State.Mark())
		switch s.State {
		case workflow.Active, workflow.Failed:
			now = s.Title
		case workflow.Passed, workflow.Skipped:
			past++
		case workflow.Pending:
		}
	}
	state := api.Cell{Text: "running"}
	switch r.End {
	case "":
	case "done":
		state, now = api.Cell{Text: r.End, Tone: chat.ToneGood}, ""
	default:
		state = api.Cell{Text: r.End, Tone: chat.ToneBad}
	}
	row := api.Row{Thread: r.Thread}
	if !whole {
		row.Thread, now = "", "in "+networkOf(r.Thread)
	}
	row.Cells = []api.Cell{code(r.Name), text(fmt.Sprintf("%s %d of %d", marks.String(), past, len(r.Steps))), text(now), state, {At: r.Began}}
	return row
}

// costBy is what costs are told apart by.
var costBy = api.FormField{Name: "by", Label: "By", Choices: []string{"day", "person", "conversation", "model"}, Value: "day"}

// cost is what models took in the last days: on each, or of each person, conversation or model.
func (l Lists) cost(ctx context.Context, q api.ListQuestion) (a Answer, err error) {
	by := map[string]spend.By{"person": spend.ByPerson, "conversation": spend.ByThread, "model": spend.ByModel}[q.Value(costBy)]
	err = l.home.commands.DB.View(ctx, func(tx store.Tx) error {
		a = Answer{}
		if by != "" {
			a.Columns = []string{map[spend.By]string{spend.ByPerson: "Person", spend.ByThread: "Conversation", spend.ByModel: "Model"}[by], "Cost", "Tokens"}
			for _, s := range spend.Shares(tx, spend.DayOf(l.now().AddDate(0, 0, 1-costDays)), by) {
				row := costRow(s.Name, s.Sum)
				if id := chat.ThreadID(s.Name); by == spend.ByThread && own(id, q) {
					row.Thread = id
				} else if by == spend.ByThread {
					row.Cells[0].Text = "in " + networkOf(id)
				}
				a.Rows = append(a.Rows, row)
			}
			return nil
		}
		for i := range costDays {
			day := spend.DayOf(l.now().AddDate(0, 0, -i))
			sum := spend.Load(tx, spend.Place{Day: day}).Sums[spend.Daily]
			if sum.Tokens == 0 {
				continue
			}
			a.Rows = append(a.Rows, costRow(string(day), sum))
			bar := api.BarValue{Name: string(day), Value: float64(sum.Money), Text: sum.Money.String()}
			if sum.Money == 0 {
				bar.Value, bar.Text = float64(sum.Tokens), fmt.Sprint(sum.Tokens, " tokens")
			}
			a.Bars = append(a.Bars, bar)
		}
		slices.Reverse(a.Bars)
		return nil
	})
	return a, err
}

func costRow(name string, sum spend.Sum) api.Row {
	cost := sum.Money.String()
	if len(sum.Unpriced) > 0 {
		cost += ", no price set for " + strings.Join(sum.Unpriced, ", ")
	}
	return api.Row{Cells: []api.Cell{text(name), text(cost), text(fmt.Sprint(sum.Tokens))}}
}

// networkOf is where another network's thread is.
func networkOf(t chat.ThreadID) string {
	network, _, _ := strings.Cut(string(t), ":")
	return network
}

// audit are the last lines of the record, the newest first. Of other networks' threads the text
// stays there.
func (l Lists) audit(ctx context.Context, q api.ListQuestion) (Answer, error) {
	var rows []api.Row
	var lines []audit.Line
	newest := func() {
		slices.SortStableFunc(lines, func(a, b audit.Line) int { return b.At.Compare(a.At) })
		lines = lines[:min(len(lines), searched)]
	}
	note := ""
	err := l.home.commands.DB.View(ctx, func(tx store.Tx) error {
		lines, note = nil, ""
		tree, _ := audit.Tree(tx)
		for name, w := range audit.Witnesses(tx) {
			note = strings.TrimSpace(note + " " + sayWitnessed(name, w.Size, tree.N))
		}
		for e := range audit.Each(tx, l.now().AddDate(0, 0, -auditDays)) {
			if lines = append(lines, e); len(lines) == 2*searched {
				newest()
			}
		}
		return nil
	})
	newest()
	for _, line := range lines {
		e := line.Event
		_, who, _ := strings.Cut(e.User, ":")
		what := code(oneLineOf(cmp.Or(e.Command, e.Outcome, e.Note)))
		row := api.Row{Thread: chat.ThreadID(line.Thread)}
		if !own(row.Thread, q) {
			what, row.Thread = text(""), ""
		}
		row.Cells = []api.Cell{moment(line.At), text(e.What), text(who), text(targetName(e.Target)), what}
		rows = append(rows, row)
	}
	return Answer{Rows: rows, Note: note}, err
}

// targetName is what people call the target of an audit line, such as ssh:web-1#SHA256:...
func targetName(id string) string {
	name, _, _ := strings.Cut(id, "#")
	if _, called, ok := strings.Cut(name, ":"); ok {
		return called
	}
	return name
}

// oneLineOf is the first line of a text, short enough for a list.
func oneLineOf(s string) string {
	line, _, more := strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(line); len(r) > 160 {
		line, more = string(r[:160]), true
	}
	if more {
		line += " …"
	}
	return line
}
