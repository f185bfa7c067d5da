package desk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/spend"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/store"
)

const (
	// maxRows is how many rows a list shows; words narrow it.
	maxRows = 100
	// searched is how many requests that ended are looked through.
	searched = 2000
	// auditDays is how far back the list of the audit goes; the command line has all of it.
	auditDays = 7
	// costDays is how many days the list of costs has.
	costDays = 30
)

// Lists tells people of what the bot knows, in the console. It is safe for concurrent use.
type Lists struct {
	home   *Home
	redact func(string) string
	now    func() time.Time
}

// NewLists returns lists of what a home is about, too. redact takes secrets out of their texts.
func NewLists(h *Home, redact func(string) string) Lists {
	return Lists{home: h, redact: redact, now: time.Now}
}

// lists are all there are, in order.
var lists = []struct {
	id, title, about string
	columns          []string
	rows             func(Lists, context.Context, chat.Inquiry) ([]chat.Row, []chat.Bar, error)
}{
	{"approvals", "Approvals", sayApprovals, []string{"When", "What", "Risk", "Asked by", "Decision", "Outcome"}, Lists.approvals},
	{"terminals", "Terminals", sayTerminals, []string{"Session", "Target", "Since", "Keyboard", "State"}, Lists.terminals},
	{"targets", "Targets", sayListTargets, []string{"Target", "Kind", "State", "Reads", "Approvers"}, Lists.targets},
	{"runbooks", "Runbooks", sayRunbooks, []string{"Name", "What it does", "Inputs"}, Lists.runbooks},
	{"cost", "Cost", sayCost, []string{"Day", "Cost", "Tokens"}, Lists.cost},
	{"audit", "Audit", sayAudit, []string{"When", "What", "Who", "Where", "Command or note"}, Lists.audit},
}

// Names are the lists that there are.
func (Lists) Names() []chat.List {
	var out []chat.List
	for _, l := range lists {
		out = append(out, chat.List{ID: l.id, Title: l.title})
	}
	return out
}

// List returns the rows of a list that have all of some words; ok is false where there is no such
// list.
func (l Lists) List(ctx context.Context, q chat.Inquiry, id, words string) (out chat.List, ok bool, err error) {
	for _, of := range lists {
		if of.id != id {
			continue
		}
		out = chat.List{ID: id, Title: of.title, About: of.about, Columns: of.columns, Rows: []chat.Row{}}
		rows, bars, err := of.rows(l, ctx, q)
		if err != nil {
			return out, true, err
		}
		out.Bars = bars
		want := strings.Fields(strings.ToLower(words))
		for _, r := range rows {
			for i := range r.Cells { // words find nothing that is not shown
				r.Cells[i].Text = l.redact(r.Cells[i].Text)
			}
			if !has(r, want) {
				continue
			}
			if out.More = len(out.Rows) == maxRows; out.More {
				break
			}
			out.Rows = append(out.Rows, r)
		}
		return out, true, nil
	}
	return out, false, nil
}

// has reports whether a row has all of some words, in lower case.
func has(r chat.Row, words []string) bool {
	var all strings.Builder
	for _, c := range r.Cells {
		all.WriteString(strings.ToLower(c.Text) + "\n")
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all.String(), w) })
}

func text(s string) chat.Cell { return chat.Cell{Text: s} }

func code(s string) chat.Cell { return chat.Cell{Text: s, Code: true} }

func moment(t time.Time) chat.Cell { return chat.Cell{At: t} }

// own reports whether a thread is one of the asker's network, which they can open.
func own(t chat.ThreadID, q chat.Inquiry) bool {
	network, _, _ := strings.Cut(string(q.From.ID), ":")
	return strings.HasPrefix(string(t), network+":")
}

// approvals are the open requests and those that ended last. Of other networks' threads it is
// told what is done where, as on the first page.
func (l Lists) approvals(ctx context.Context, q chat.Inquiry) (rows []chat.Row, _ []chat.Bar, err error) {
	err = l.home.commands.DB.View(ctx, func(tx store.Tx) error {
		rows = nil
		var ledger approvals.Ledger
		for _, r := range append(ledger.AllOpen(tx), ledger.Recent(tx, searched)...) {
			if r.Basis.Step > 0 {
				continue // its plan is listed
			}
			card := l.home.card(tx, r)
			if !own(r.Thread, q) {
				card = outside(card)
			}
			row := chat.Row{Cells: []chat.Cell{
				moment(cmp.Or(r.Ended, r.Decided, r.Created)), text(card.Title), {Text: r.Level, Tone: card.Tone},
				text(cmp.Or(r.Requester.Name, string(r.Requester.ID))), text(decision(r)), text(outcome(r, own(r.Thread, q))),
			}}
			if own(r.Thread, q) {
				row.Thread = r.Thread
			}
			rows = append(rows, row)
		}
		return nil
	})
	return rows, nil, err
}

// decision says who decided a request, and how.
func decision(r approvals.Record) string {
	var names []string
	for _, v := range r.Votes {
		names = append(names, cmp.Or(v.User.Name, string(v.User.ID)))
	}
	by := cmp.Or(r.By.Name, string(r.By.ID))
	switch {
	case r.State == approvals.Pending:
		return ""
	case len(names) > 0 && !r.Decided.IsZero():
		return "approved by " + strings.Join(names, " and ")
	case by != "":
		return string(r.State) + " by " + by
	}
	return string(r.State)
}

// outcome says what became of a request: the words of its own network's threads are for those
// who can open them.
func outcome(r approvals.Record, words bool) string {
	state := string(r.State)
	if r.State == approvals.Pending {
		state = "waiting"
	}
	if !words {
		return state
	}
	return oneLineOf(cmp.Or(r.Outcome.Note, r.Reason, state))
}

// terminals are all sessions on all targets that have been reached.
func (l Lists) terminals(ctx context.Context, q chat.Inquiry) (rows []chat.Row, _ []chat.Bar, err error) {
	for _, m := range l.home.commands.Targets.Machines.Books() {
		all, err := m.State().Book.List(ctx, "")
		if err != nil {
			return nil, nil, err
		}
		for _, s := range all {
			state := "open"
			if s.Lost {
				state = "gone"
			}
			row := chat.Row{Cells: []chat.Cell{code(s.Name), text(m.Name), moment(s.Created), text(cmp.Or(s.Taken, "the bot")), text(state)}}
			if id := chat.ThreadID(s.Thread); own(id, q) {
				row.Thread = id
			}
			rows = append(rows, row)
		}
	}
	return rows, nil, nil
}

// targets are the configured ones, as they were reached last.
func (l Lists) targets(_ context.Context, _ chat.Inquiry) (rows []chat.Row, _ []chat.Bar, err error) {
	t := Targets{l.home.commands.Targets}
	for _, m := range t.Machines.Sorted() {
		state, reads := text("not reached yet"), ""
		if o := m.State(); o != nil {
			state = chat.Cell{Text: "reached", Tone: chat.ToneGood}
			if o.Notice != "" {
				state.Text += ", no terminals"
			}
			reads = t.held(m.Name, o.Caps.Lock)
		}
		rows = append(rows, chat.Row{Cells: []chat.Cell{
			code(m.Name), text(strings.TrimSpace(m.Config.Kind + t.Labels(m.Name))), state, text(reads), text(strings.Join(m.Config.Approvers, ", ")),
		}})
	}
	return rows, nil, nil
}

// runbooks are the workflows, each with what begins it.
func (l Lists) runbooks(context.Context, chat.Inquiry) (rows []chat.Row, _ []chat.Bar, err error) {
	lib := l.home.commands.Runbooks.Library
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
		rows = append(rows, chat.Row{Cells: []chat.Cell{code(name), text(wf.Description), text(strings.Join(inputs, ", "))}, Say: strings.Join(say, " "), Do: "Start"})
	}
	return rows, nil, nil
}

// cost is what models took on each of the last days.
func (l Lists) cost(ctx context.Context, _ chat.Inquiry) (rows []chat.Row, bars []chat.Bar, err error) {
	err = l.home.commands.DB.View(ctx, func(tx store.Tx) error {
		rows, bars = nil, nil
		for i := range costDays {
			day := spend.DayOf(l.now().AddDate(0, 0, -i))
			sum := spend.Load(tx, spend.Place{Day: day}).Sums[spend.Daily]
			if sum.Tokens == 0 {
				continue
			}
			cost := sum.Money.String()
			if len(sum.Unpriced) > 0 {
				cost += ", without " + strings.Join(sum.Unpriced, ", ")
			}
			rows = append(rows, chat.Row{Cells: []chat.Cell{text(string(day)), text(cost), text(fmt.Sprint(sum.Tokens))}})
			bar := chat.Bar{Name: string(day), Value: float64(sum.Money), Text: sum.Money.String()}
			if sum.Money == 0 {
				bar.Value, bar.Text = float64(sum.Tokens), fmt.Sprint(sum.Tokens, " tokens")
			}
			bars = append(bars, bar)
		}
		slices.Reverse(bars)
		return nil
	})
	return rows, bars, err
}

// audit are the last lines of the record, the newest first. Of other networks' threads the text
// stays there.
func (l Lists) audit(ctx context.Context, q chat.Inquiry) (rows []chat.Row, _ []chat.Bar, err error) {
	var lines []audit.Line
	newest := func() {
		slices.SortStableFunc(lines, func(a, b audit.Line) int { return b.At.Compare(a.At) })
		lines = lines[:min(len(lines), searched)]
	}
	err = l.home.commands.DB.View(ctx, func(tx store.Tx) error {
		lines = nil
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
		row := chat.Row{Thread: chat.ThreadID(line.Thread)}
		if !own(row.Thread, q) {
			what, row.Thread = text(""), ""
		}
		row.Cells = []chat.Cell{moment(line.At), text(e.What), text(who), text(e.Target), what}
		rows = append(rows, row)
	}
	return rows, nil, err
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
