package web

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

var (
	errNoThread = errors.New("web: there is no such thread")
	errNotOpen  = errors.New("web: nobody handles messages yet")
	errRefused  = errors.New("web: the bot did not accept the message")
)

// patience is how long the bot may take to accept a message or a click.
const patience = 30 * time.Second

// incoming is one message from a person.
type incoming struct {
	user   string
	thread string
	client string // the page's own id for it: what comes again has the same
	text   string
	start  bool // it may start the thread
}

func (in incoming) event(at time.Time, seq uint64) chat.Event {
	return chat.Event{
		ID:     eventID(in.thread, in.user, in.client),
		Thread: threadID(in.thread),
		From:   chat.User{ID: userID(in.user), Name: in.user},
		Text:   in.text,
		At:     at,
		Ref:    chat.MessageRef(fmt.Sprint(seq)),
	}
}

// accept returns nil when the bot has the message and people see it. One
// message of a thread is accepted at a time, so that the bot gets them in the
// order in which they are shown.
func (a *Adapter) accept(ctx context.Context, in incoming) error {
	h, leave := a.enter()
	defer leave()
	if h == nil {
		return errNotOpen
	}
	turn := a.turns[stripe(in.thread, len(a.turns))]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// From here on a lost connection must not leave the message half accepted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()

	var seq uint64
	var done bool
	now := a.now()
	err := a.db.Update(ctx, func(tx store.Tx) error {
		var found bool
		if seq, done, found = hold(tx, in, now); !found {
			return errNoThread
		}
		return nil
	})
	if err != nil || done {
		return err
	}
	if err := h.Deliver(ctx, in.event(now, seq)); err != nil {
		a.log.WarnContext(ctx, "a message was not accepted", "thread", threadID(in.thread), "error", err)
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if err := a.db.Update(undo, func(tx store.Tx) error { drop(tx, in, seq); return nil }); err != nil {
			a.log.ErrorContext(ctx, "a refused message stays pending", "thread", threadID(in.thread), "error", err)
		}
		return errRefused
	}
	return a.reveal(ctx, in.thread, seq)
}

func (a *Adapter) reveal(ctx context.Context, thread string, seq uint64) error {
	if err := a.db.Update(ctx, func(tx store.Tx) error { show(tx, thread, seq, a.now()); return nil }); err != nil {
		return err
	}
	a.hub.posted(thread, "")
	return nil
}

// handOver gives h the messages that were pending when the program ended. The
// bot knows those that it has already by their event ids.
func (a *Adapter) handOver(ctx context.Context, h chat.Handler) error {
	type held struct {
		thread string
		seq    uint64
		row    messageRow
	}
	var all []held
	err := a.db.View(ctx, func(tx store.Tx) error {
		all = nil
		from, to := store.Prefix(scheme, "pending")
		for k := range tx.Scan(from, to) {
			id, seq, err := pendingParts(k)
			if err != nil {
				return err
			}
			if m, ok := store.Load[messageRow](tx, messageKey(id, seq)); ok {
				all = append(all, held{id, seq, m})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range all {
		in := incoming{user: p.row.From.Name, thread: p.thread, client: p.row.Key, text: p.row.Text}
		if err := h.Deliver(ctx, in.event(p.row.At, p.seq)); err != nil {
			// It stays pending for the next start, or for the person's own retry.
			a.log.WarnContext(ctx, "a pending message was not accepted", "thread", threadID(p.thread), "error", err)
			continue
		}
		if err := a.reveal(ctx, p.thread, p.seq); err != nil {
			return err
		}
	}
	return nil
}

func pendingParts(key []byte) (id string, seq uint64, err error) {
	parts, err := store.Parts(key)
	if err != nil {
		return "", 0, err
	}
	if len(parts) == 4 {
		id, _ = parts[2].(string)
		seq, _ = parts[3].(uint64)
	}
	return id, seq, nil
}

// click hands one press over and shows the card's new face.
func (a *Adapter) click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	h, leave := a.enter()
	defer leave()
	if h == nil {
		return chat.Answer{}, errNotOpen
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	id, _ := threadPart(c.Thread)
	var seq, rev uint64
	err := a.db.View(ctx, func(tx store.Tx) error {
		if _, ok := visible(tx, id); !ok {
			return errNoThread
		}
		seq, rev = cardOf(tx, id, c.Button)
		return nil
	})
	if err != nil {
		return chat.Answer{}, err
	}
	ans, err := h.Click(ctx, c)
	if err != nil {
		a.log.WarnContext(ctx, "a click was not decided", "thread", c.Thread, "error", err)
		return chat.Answer{}, errRefused
	}
	if ans.Card == nil || seq == 0 {
		return ans, nil
	}
	err = a.db.Update(ctx, func(tx store.Tx) error { repaint(tx, id, seq, rev, ans.Card, a.now()); return nil })
	if err != nil {
		// The decision stands; the bot posts the card's new face as well.
		a.log.ErrorContext(ctx, "a card keeps its old face", "thread", c.Thread, "error", err)
		return ans, nil
	}
	a.hub.posted(id, "")
	return ans, nil
}

func stripe(s string, n int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))         // never fails
	return int(h.Sum32() % uint32(n)) //nolint:gosec // n is a small array's length
}
