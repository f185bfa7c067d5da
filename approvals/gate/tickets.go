package gate

import (
	"context"
	"fmt"
	"strings"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/store"
)

// Tickets knows the tickets of threads. It is safe for concurrent use.
type Tickets interface {
	// Find returns the last key that a text names; IsKey reports whether a word is one.
	Find(text string) (key string, ok bool)
	IsKey(word string) bool
	// SetTicket makes a ticket the thread's own; fresh is false if it was already. An unconfirmed
	// key counts only after the tracker has found it.
	SetTicket(tx store.Tx, thread, key string, confirmed bool) (fresh bool)
	// TicketOf is the thread's ticket as far as it is known, the zero Ticket for none.
	TicketOf(tx store.Tx, thread string) approvals.Ticket
	// State is what is known of a ticket, the zero Ticket for "".
	State(tx store.Tx, key string) approvals.Ticket
	// Refresh asks the ticket's system, within a few seconds.
	Refresh(ctx context.Context, thread string) error
	// RefreshSoon has the system asked without waiting for it.
	RefreshSoon(thread string)
}

// noTickets is what a gate knows without [Config.Tickets].
type noTickets struct{}

func (noTickets) Find(string) (string, bool)                     { return "", false }
func (noTickets) IsKey(string) bool                              { return false }
func (noTickets) SetTicket(store.Tx, string, string, bool) bool  { return false }
func (noTickets) TicketOf(store.Tx, string) (t approvals.Ticket) { return t }
func (noTickets) State(store.Tx, string) (t approvals.Ticket)    { return t }
func (noTickets) Refresh(context.Context, string) (err error)    { return nil }
func (noTickets) RefreshSoon(string)                             {}

// Heard takes over the ticket that a person names in a message. Its system is asked soon, and the
// thread's open cards show it then.
func (g *Gate) Heard(ctx context.Context, thread chat.ThreadID, by chat.User, text string) error {
	key, ok := g.cfg.Tickets.Find(text)
	if !ok || by.Bot {
		return nil
	}
	if err := g.nameTicket(ctx, thread, by, key, false); err != nil {
		return err
	}
	g.cfg.Tickets.RefreshSoon(string(thread))
	return nil
}

// Ticket answers the chat word "ticket": it makes key the thread's ticket, or, without a key, says
// which one that is.
func (g *Gate) Ticket(ctx context.Context, thread chat.ThreadID, by chat.User, key string) (string, error) {
	if key != "" && !g.cfg.Tickets.IsKey(key) {
		return sayNoKey(key), nil
	}
	if err := g.nameTicket(ctx, thread, by, key, true); err != nil {
		return "", err
	}
	if err := g.cfg.Tickets.Refresh(ctx, string(thread)); err != nil {
		return "", err
	}
	t, err := g.ShowTicket(ctx, thread)
	switch {
	case err != nil:
		return "", err
	case t.Key == "":
		return sayNoTicketYet, nil
	}
	if why := t.Needed(g.cfg.Now()); why != "" {
		return sayTicket(t.String(), asSentence(why)), nil
	}
	return sayTicket(t.String(), ""), nil
}

// asSentence adds the capital and the full stop.
func asSentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// nameTicket makes key the thread's ticket; "" leaves it. Without sure it is what a message mentions.
func (g *Gate) nameTicket(ctx context.Context, thread chat.ThreadID, by chat.User, key string, sure bool) error {
	if key == "" {
		return nil
	}
	err := g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if g.cfg.Tickets.SetTicket(tx, string(thread), key, sure) && sure {
			g.audit(tx, approvals.Record{Thread: thread}, audit.Ticket, by.ID, "", key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the thread's ticket can't be stored: %w", err)
	}
	return nil
}

// ShowTicket draws the thread's open cards that need a ticket again, and returns the thread's ticket.
func (g *Gate) ShowTicket(ctx context.Context, thread chat.ThreadID) (t approvals.Ticket, err error) {
	err = g.cfg.DB.Update(ctx, func(tx store.Tx) error {
		t = g.cfg.Tickets.TicketOf(tx, string(thread))
		for _, rec := range g.ledger.AllOpen(tx) {
			if rec.Thread == thread && rec.State == approvals.Pending && rec.Require.Ticket {
				g.updateCard(tx, rec, "")
			}
		}
		return nil
	})
	if err == nil {
		g.cfg.Wake(string(thread))
	}
	return t, err
}

// askTicket has the ticket's system asked before a vote that needs a ticket is counted.
func (g *Gate) askTicket(ctx context.Context, b Ballot) error {
	needs := false
	err := g.cfg.DB.View(ctx, func(tx store.Tx) error {
		rec, ok := g.ledger.Get(tx, b.ID)
		needs = ok && b.Approve && !b.Glass && rec.Thread == b.Thread && rec.State == approvals.Pending && rec.Require.Ticket
		return nil
	})
	if err != nil || !needs {
		return err
	}
	return g.cfg.Tickets.Refresh(ctx, string(b.Thread))
}

// ticketOf is the ticket of a request that needs one.
func (g *Gate) ticketOf(tx store.Tx, rec approvals.Record) (t approvals.Ticket) {
	if rec.Require.Ticket {
		t = g.cfg.Tickets.TicketOf(tx, string(rec.Thread))
	}
	return t
}
