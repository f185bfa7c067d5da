package session

import (
	"context"
	"time"

	"countersign/store"
)

// Hands says who has the keyboard of a pane's session.
type Hands struct {
	Session string
	Holder  string // a user's id; "" is the bot
	Name    string // for people
	Since   time.Time
}

// Hands returns who has the keyboard of a pane's session.
func (b *Book) Hands(ctx context.Context, thread, pane string) (Hands, error) {
	ref, r, err := b.lookup(ctx, thread, "", pane)
	if err != nil || r.Pen == nil || r.Pen.Giving {
		return Hands{Session: ref.Session}, err
	}
	return Hands{Session: ref.Session, Holder: r.Pen.Holder, Name: r.Pen.Name, Since: r.Pen.Since}, nil
}

// held returns a pane whose session's keyboard somebody has, and since which turn. presses notes
// that they type.
func (b *Book) held(ctx context.Context, thread, pane, holder string, presses bool) (k Keyboard, turn int64, err error) {
	ref, r, err := b.lookup(ctx, thread, "", pane)
	switch {
	case err != nil:
		return nil, 0, err
	case r.Pen == nil || r.Pen.Giving:
		return nil, 0, &refusal{ErrUnmanaged, "nobody has taken the keyboard of the session " + ref.Session}
	case r.Pen.Holder != holder:
		return nil, 0, r.taken("ask them to hand it over")
	}
	if presses && b.cfg.Now().Sub(r.Pen.Pressed) >= pressedStep {
		turn := r.Turn
		err = b.change(ctx, &r, func(n *row) {
			if n.Turn == turn && n.Pen != nil {
				n.Pen.Pressed = b.cfg.Now().UTC()
			}
		})
		if err != nil {
			return nil, 0, err
		}
	}
	p := b.current(ref, r)
	if p == nil {
		p, err = b.Open(ctx, thread, ref.Session, ref.Pane)
	}
	return p, r.Turn, err
}

// Press types what the holder of the keyboard presses who has no client of tmux. It does not
// wait for the target; done gets the result, from another goroutine.
func (b *Book) Press(ctx context.Context, thread, pane, holder string, keys []byte, done func(error)) {
	p, turn, err := b.held(ctx, thread, pane, holder, true)
	if err != nil {
		done(err)
		return
	}
	p.Press(ctx, keys, turn, done)
}

// Resize gives a pane's window the size in which the holder of the keyboard reads it.
func (b *Book) Resize(ctx context.Context, thread, pane, holder string, width, height int) error {
	p, turn, err := b.held(ctx, thread, pane, holder, false)
	if err != nil {
		return err
	}
	return p.Resize(ctx, width, height, turn)
}

// Silent is a session whose keyboard somebody has who typed through the bot and stopped.
type Silent struct {
	Thread, Session string
	Holder, Name    string
}

// Silent lists the sessions of this target in which nothing was typed through the bot since a
// time. Who attached with a client of tmux of their own and never typed through the bot is not
// among them: what they type is not known.
func (b *Book) Silent(ctx context.Context, since time.Time) (list []Silent, err error) {
	err = b.cfg.DB.View(ctx, func(tx store.Tx) error {
		list = nil
		for _, r := range b.rows(tx, "") {
			if r.Pen != nil && !r.Closing && !r.Pen.Pressed.IsZero() && r.Pen.Pressed.Before(since) {
				list = append(list, Silent{Thread: r.Thread, Session: r.Name, Holder: r.Pen.Holder, Name: r.Pen.Name})
			}
		}
		return nil
	})
	return list, err
}
