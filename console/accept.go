package console

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
	groups []string
	thread string
	client string // the page's own id for it: what comes again has the same
	text   string
	start  bool   // it may start the thread
	by     string // the replica that accepts it
	token  bool   // a program sent it with the person's token
}

func (in incoming) event(at time.Time, seq uint64) chat.Event {
	return chat.Event{
		ID:     eventID(in.thread, in.user, in.client),
		Thread: threadID(in.thread),
		From:   chat.User{ID: userID(in.user), Name: in.user},
		Text:   in.text,
		At:     at,
		Groups: in.groups,
		Ref:    chat.MessageRef(fmt.Sprint(seq)),
		Token:  in.token,
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

	in.by = a.name
	for {
		var seq uint64
		var done bool
		now := a.now()
		// It is durable when the bot has accepted it.
		err := store.UpdateRelaxed(ctx, a.db, func(tx store.Tx) error {
			var found bool
			if seq, done, found = hold(tx, in, now); !found {
				return errNoThread
			}
			return nil
		})
		if err != nil || done {
			return err
		}
		if gone, err := a.deliver(ctx, h, in, now, seq); !gone {
			return err
		}
		// Another replica has settled the same message: what it became is in the store.
	}
}

// deliver hands over a message that is held, when it is its turn, and shows it.
func (a *Adapter) deliver(ctx context.Context, h chat.Handler, in incoming, at time.Time, seq uint64) (gone bool, err error) {
	stop := a.keepUp(ctx, in.thread, seq)
	defer stop()
	if a.shared {
		gone, err = a.inTurn(ctx, h, in.thread, seq)
	}
	if err == nil && !gone {
		err = h.Deliver(ctx, in.event(at, seq))
	}
	switch {
	case gone:
		return true, nil
	case err == nil:
		return false, a.reveal(ctx, in.thread, seq)
	}
	a.log.WarnContext(ctx, "a message was not accepted", "thread", threadID(in.thread), "error", err)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := a.db.Update(undo, func(tx store.Tx) error { drop(tx, in, seq); return nil }); err != nil {
		a.log.ErrorContext(ctx, "a refused message stays pending", "thread", threadID(in.thread), "error", err)
	}
	return false, errRefused
}

func (a *Adapter) reveal(ctx context.Context, thread string, seq uint64) error {
	// The next start shows what is pending still.
	err := store.UpdateRelaxed(ctx, a.db, func(tx store.Tx) error {
		show(tx, thread, seq, a.now())
		a.tellOthers(tx, thread)
		return nil
	})
	if err != nil {
		return err
	}
	a.hub.posted(thread, "")
	return nil
}

// decide hands a press to the bot.
func (a *Adapter) decide(ctx context.Context, h chat.Handler, c chat.Click) (chat.Answer, error) {
	ans, err := h.Click(ctx, c)
	if err != nil {
		a.log.WarnContext(ctx, "a click was not decided", "thread", c.Thread, "error", err)
		return chat.Answer{}, errRefused
	}
	return ans, nil
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
	id, own := threadPart(c.Thread)
	if !own { // its network shows the card's new face
		return a.decide(ctx, h, c)
	}
	var seq, rev uint64
	err := a.db.View(ctx, func(tx store.Tx) error {
		if _, ok := listed(tx, id); !ok {
			return errNoThread
		}
		seq, rev = cardOf(tx, id, c.Button)
		return nil
	})
	if err != nil {
		return chat.Answer{}, err
	}
	ans, err := a.decide(ctx, h, c)
	if err != nil || ans.Card == nil || seq == 0 {
		return ans, err
	}
	err = store.UpdateRelaxed(ctx, a.db, func(tx store.Tx) error {
		if t, ok := listed(tx, id); ok && ans.OK {
			t.join(c.From.Name)
			store.Save(tx, threadKey(id), t)
		}
		if repaint(tx, id, seq, rev, ans.Card, a.now()) {
			a.tellOthers(tx, id)
		}
		return nil
	})
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
