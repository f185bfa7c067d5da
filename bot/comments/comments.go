// Package comments adds to the ticket of a change, in one comment, who asked for it, who approved it, and how
// it ended. A courier takes it there (package courier); a comment that is there already
// isn't written again.
package comments

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/tickets"
	"countersign/store"
	"countersign/store/courier"
)

// Config is what a [Commenter] needs.
type Config struct {
	DB      store.DB
	Book    *tickets.Book
	Command func(tx store.Tx, request string) string // a request's command, without secrets
	Redact  func(string) string
	Link    func(chat.ThreadID) string // the address of a thread, "" if there is none
	Log     *slog.Logger
	Now     func() time.Time
}

// Commenter stores comments and sends them. It is safe for concurrent use; only one Run at a time may
// work on a store.
type Commenter struct {
	*courier.Courier
	cfg Config
}

// comment is what is stored.
type comment struct {
	System string `json:"system"`
	Key    string `json:"key"`
	Text   string `json:"text"`
	Mark   string `json:"mark"` // in the text, and nowhere else
}

// New returns a commenter. It sends nothing before its Run.
func New(c Config) *Commenter {
	m := &Commenter{cfg: c}
	var receivers []courier.Receiver
	for _, name := range c.Book.Systems() {
		receivers = append(receivers, courier.Receiver{Key: name, Name: "tickets of " + name, Send: func(ctx context.Context, all []courier.Message) (int, error) {
			for i, one := range all {
				if err := m.send(ctx, name, one); err != nil {
					return i, err
				}
			}
			return len(all), nil
		}})
	}
	m.Courier = courier.New(courier.Config{DB: c.DB, Root: "ticket-comment", Receivers: receivers, Log: c.Log, Now: c.Now})
	return m
}

func (m *Commenter) send(ctx context.Context, system string, one courier.Message) error {
	var c comment
	if err := json.Unmarshal(one.Body, &c); err != nil || c.System != system {
		return nil //nolint:nilerr // for another system, or of a version that nobody reads
	}
	err := m.cfg.Book.Comment(ctx, c.Key, c.Text, c.Mark)
	if errors.Is(err, tickets.ErrNone) {
		m.cfg.Log.WarnContext(ctx, "a ticket is gone, so the result of its change can't be added to it", "ticket", c.Key, "request", c.Mark)
		return nil
	}
	return err
}

// ended are the events that settle a change; tried, those that settle a change on trial.
var (
	ended = []string{audit.Done, audit.Unknown}
	tried = []string{audit.Kept, audit.Undone, audit.UndoFailed, audit.NotRun}
)

// Tell stores the comment about a change that ended, in the transaction that records the end.
func (m *Commenter) Tell(tx store.Tx, thread string, e audit.Event, at time.Time) {
	if m.Idle() || e.Approval == "" || !slices.Contains(ended, e.What) && !slices.Contains(tried, e.What) {
		return
	}
	rec, ok := (approvals.Ledger{}).Get(tx, approvals.ID(e.Approval))
	if !ok || len(rec.Action.Steps) > 0 { // of a plan, the last of its steps has the result
		return
	}
	steps := []approvals.Record{rec}
	if rec.Basis.Kind == approvals.ByPlan {
		plan, ok := (approvals.Ledger{}).Get(tx, rec.Basis.Of)
		if !ok || rec.Basis.Step < len(plan.Action.Steps) && rec.Outcome.OK {
			return // more steps follow
		}
		rec, steps = plan, (approvals.Ledger{}).StepsOf(tx, plan)
	}
	if rec.Ticket.Key == "" || rec.Ticket.Source == "" || (rec.Trial.For > 0) != slices.Contains(tried, e.What) {
		return
	}
	text := m.cfg.Redact(m.text(tx, thread, rec, steps, e))
	m.Put(tx, at, func(string) any {
		return comment{System: rec.Ticket.Source, Key: rec.Ticket.Key, Text: text, Mark: string(rec.ID)}
	})
}

// maxCommand bounds what of a command is in a comment, in bytes.
const maxCommand = 2000

func (m *Commenter) text(tx store.Tx, thread string, rec approvals.Record, steps []approvals.Record, e audit.Event) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	where := cmp.Or(rec.Place.Target, rec.Action.Target)
	if rec.Place.Env != "" {
		where += " (" + rec.Place.Env + ")"
	}
	line("Countersign made a change for this ticket on %s.", where)
	for i, s := range steps {
		command := m.cfg.Command(tx, string(s.ID))
		if len(command) > maxCommand {
			command = strings.ToValidUTF8(command[:maxCommand], "") + " (cut here)"
		}
		number := ""
		if len(steps) > 1 {
			number = fmt.Sprintf(" %d", i+1)
		}
		line("Command%s: %s", number, command)
		switch {
		case s.State == approvals.OutcomeUnknown:
			line("Result%s: unknown; it may or may not have run", number)
		case s.Outcome.Note != "":
			line("Result%s: %s", number, s.Outcome.Note)
		}
	}
	if slices.Contains(tried, e.What) {
		line("On trial: %s", e.What)
	}
	if said := rec.Receipt.Sentence(); said != "" {
		line("Receipt: %s", said)
	}
	line("Asked by: %s", cmp.Or(rec.Requester.Name, string(rec.Requester.ID)))
	for _, v := range rec.Votes {
		if !v.Counts() {
			continue
		}
		how := ""
		if v.Glass {
			how = ", alone (break glass)"
		}
		for _, d := range v.Duty {
			how += " (" + d.String() + ")"
		}
		line("Approved by: %s at %s%s", cmp.Or(v.User.Name, string(v.User.ID)), v.At.UTC().Format("2006-01-02 15:04 UTC"), how)
	}
	line("Request: %s", rec.ID)
	if to := m.cfg.Link(chat.ThreadID(thread)); to != "" {
		line("%s", to)
	}
	return strings.TrimSpace(b.String())
}
