package discord

import (
	"context"
	"slices"
	"strings"
	"sync"

	"countersign/adapters/chat"
)

// maxOpenCards bounds how many cards that wait for a decision, and how many deleted
// messages, are remembered.
const maxOpenCards = 1024

// openCards knows the cards of this process that wait for a decision, so that one that
// somebody deletes comes back. Discord says of a deleted message its id alone.
type openCards struct {
	mu   sync.Mutex
	all  map[string]openCard // by message
	gone map[string]bool     // deleted messages that were no such card
}

type openCard struct {
	thread chat.ThreadID
	card   chat.Card
}

// set notes which card a message is now, nil for none. It reports whether somebody
// deleted the card before Discord's answer about it came.
func (o *openCards) set(t chat.ThreadID, message string, c *chat.Card) (deleted bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c == nil || c.Final || len(c.Choose) == 0 {
		delete(o.all, message)
		return false
	}
	if o.all == nil || len(o.all) >= maxOpenCards {
		o.all = map[string]openCard{}
	}
	o.all[message] = openCard{t, *c}
	deleted = o.gone[message]
	delete(o.gone, message)
	return deleted
}

// take returns the card that a deleted message was, and forgets it.
func (o *openCards) take(message string) (openCard, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, ok := o.all[message]
	delete(o.all, message)
	if !ok {
		if o.gone == nil || len(o.gone) >= maxOpenCards {
			o.gone = map[string]bool{}
		}
		o.gone[message] = true
	}
	return c, ok
}

// onCardDeleted brings a card back that somebody deleted although it waits for a
// decision: once, and after that people are told how to decide without it.
func (a *Adapter) onCardDeleted(message string) {
	w, ok := a.cards.take(message)
	if !ok {
		return
	}
	th, err := a.home(w.thread)
	if err != nil {
		return
	}
	a.background.Add("card/"+string(w.thread), func() {
		ctx, cancel := context.WithTimeout(a.context(), callTimeout)
		defer cancel()
		if a.told.once("card/" + string(w.thread) + "/" + firstButton(w.card)) {
			err := a.scribe.Restore(ctx, w.thread, message, w.card)
			if err == nil {
				return
			}
			a.log.WarnContext(ctx, "a card that was deleted could not be posted again", "thread", w.thread, "error", err)
		}
		a.say(th.channel, sayDeleted(named(w.card)))
	})
}

// firstButton tells one request from another: a card's buttons are of one alone.
func firstButton(c chat.Card) string { return string(c.Choose[0].ID) }

// named is a card's title, with the number of its request where it has one.
func named(c chat.Card) string {
	for _, f := range slices.Concat(c.Fields, c.Details) {
		if strings.EqualFold(f.Name, "Request") {
			return c.Title + " (request " + f.Value + ")"
		}
	}
	return c.Title
}
