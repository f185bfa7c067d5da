package bot

import (
	"time"

	"countersign/approvals/tickets"
	"countersign/bot/comments"
	"countersign/bot/networks"
	"countersign/config"
)

// newTickets makes what knows tickets, and what tells them of changes.
func (b *Bot) newTickets(now func() time.Time) (err error) {
	systems, err := b.file.TicketSystems(b.secret)
	if err != nil {
		return err
	}
	if b.tickets, err = tickets.New(systems, b.db, now, b.log.With("part", "tickets")); err != nil {
		return config.Errorf("tickets: %v", err)
	}
	b.comments = comments.New(comments.Config{
		DB: b.db, Book: b.tickets, Command: b.commandOf, Redact: b.redactor.RedactCommand, Link: networks.Link(b.file.Web.Origin), Log: b.log.With("part", "comments"), Now: now,
	})
	return nil
}

// secret is the value that a variable, or the file beside it, has now. It is taken out of texts from now on.
func (b *Bot) secret(name string) string {
	value, _ := config.LookupSecret(name)
	if b.redactor != nil && value != "" { // else it is made with it
		b.redactor.Learn(value)
	}
	return value
}
