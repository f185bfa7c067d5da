package bot

import (
	"os"
	"time"

	"countersign/approvals/tickets"
	"countersign/bot/comments"
	"countersign/internal/config"
)

// newTickets makes what knows tickets, and what tells them of changes.
func (b *Bot) newTickets(now func() time.Time) (err error) {
	systems, err := b.file.TicketSystems(os.Getenv)
	if err != nil {
		return err
	}
	if b.tickets, err = tickets.New(systems, b.db, now, b.log.With("part", "tickets")); err != nil {
		return config.Errorf("tickets: %v", err)
	}
	b.comments = comments.New(comments.Config{
		DB: b.db, Book: b.tickets, Command: b.commandOf, Redact: b.redactor.RedactCommand, Origin: b.file.Web.Origin, Log: b.log.With("part", "comments"), Now: now,
	})
	return nil
}
