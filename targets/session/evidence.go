package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"countersign/store"
	"countersign/targets/tmux"
)

// run is a command that was about to be typed: what is left of it after a crash.
type run struct {
	Thread  string     `json:"thread"`
	Call    string     `json:"call"`
	Session string     `json:"session"`
	Pane    string     `json:"pane"`
	Where   tmux.Where `json:"where"`
	At      time.Time  `json:"at"`
	Driver  string     `json:"driver,omitempty"` // the process that typed it
	// Open means that the call's outcome is not stored.
	Open bool `json:"open,omitempty"`
}

func (b *Book) runKey(thread, call string) []byte {
	return runKey(b.cfg.Instance, b.cfg.Target, thread, call)
}

func runKey(instance, target, thread, call string) []byte {
	return store.Key("session-run", instance, target, thread, call)
}

// Began notes, before it is typed, where the command of a call will be found again. In
// the same transaction it makes sure that this process owns the thread and drives the
// session; if not, the error is a [tmux.ErrDriven] and nothing is noted.
func (b *Book) Began(ctx context.Context, thread, call string, ref Ref, w tmux.Where) error {
	err := b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		if b.shared() {
			if err := b.mayType(tx, thread, ref.Session); err != nil {
				return err
			}
		}
		if r, ok := store.Load[row](tx, b.key(ref.Session)); ok && r.Panes[ref.Pane].Fresh {
			used := r.Panes[ref.Pane]
			used.Fresh = false
			r.Panes[ref.Pane] = used
			store.Save(tx, b.key(ref.Session), r)
		}
		store.Save(tx, b.runKey(thread, call), run{
			Thread: thread, Call: call, Session: ref.Session, Pane: ref.Pane, Where: w, At: b.cfg.Now().UTC(), Driver: b.cfg.Driver, Open: true,
		})
		return nil
	})
	if d, ok := b.opened(ref).(*driven); ok && err == nil {
		d.checked.Store(true)
	}
	return err
}

// Settle forgets the command of a call in the transaction that stores the call's outcome.
// So a call without a stored outcome and without a note was never typed, whenever the
// process died. With an unknown outcome the note stays, for [Book.Unknown]. The target need
// not be open.
func Settle(tx store.Tx, instance, target, thread, call string, unknown bool) {
	key := runKey(instance, target, thread, call)
	if r, ok := store.Load[run](tx, key); ok && unknown {
		r.Open = false
		store.Save(tx, key, r)
		return
	}
	tx.Delete(key)
}

// forgetRun forgets a command about which nothing more will be known.
func (b *Book) forgetRun(ctx context.Context, r run) error {
	if r.Open {
		return nil // its outcome is stored first, and that settles it
	}
	return b.cfg.DB.Update(ctx, func(tx store.Tx) error {
		tx.Delete(b.runKey(r.Thread, r.Call))
		return nil
	})
}

// Typed is a command that was typed, or was about to be, and whose outcome is not stored.
type Typed struct {
	Pane  Pane
	Where tmux.Where
	At    time.Time
}

// Typed finds the command of a call. ok is false if no command of the call was ever about to
// be typed. The error is [ErrNoSession], [ErrNoPane] or [tmux.ErrGone] if the pane is gone,
// and with it the command's outcome.
func (b *Book) Typed(ctx context.Context, thread, call string) (t Typed, ok bool, err error) {
	var r run
	err = b.cfg.DB.View(ctx, func(tx store.Tx) error {
		r, ok = store.Load[run](tx, b.runKey(thread, call))
		return nil
	})
	if err != nil || !ok {
		return t, false, err
	}
	t.Where, t.At = r.Where, r.At
	t.Pane, err = b.Open(ctx, thread, r.Session, r.Pane)
	return t, true, err
}

// Evidence is what a target says of a command whose outcome is not known.
type Evidence struct {
	Thread, Call string
	// Text is a sentence for people and the model, or "" when nothing is known yet.
	Text string
	// Final means that nothing more will be known.
	Final bool
	// Driver is the process that typed it; one that lives may be waiting for it yet.
	// Only Unknown tells.
	Driver string
}

// evidenceAge is how long a target is asked.
const evidenceAge = 24 * time.Hour

// Testify asks the pane what became of the command of a call. A call of which the
// book knows nothing has no text and is final.
func (b *Book) Testify(ctx context.Context, thread, call string) (Evidence, error) {
	var r run
	var ok bool
	err := b.cfg.DB.View(ctx, func(tx store.Tx) error {
		r, ok = store.Load[run](tx, b.runKey(thread, call))
		return nil
	})
	e := Evidence{Thread: thread, Call: call, Final: true}
	if err != nil || !ok {
		return e, err
	}
	p, err := b.Open(ctx, thread, r.Session, r.Pane)
	switch {
	case errors.Is(err, ErrNoSession), errors.Is(err, ErrNoPane), errors.Is(err, tmux.ErrGone):
		e.Text = fmt.Sprintf("The pane %s of the session %s, in which it was typed, is gone, so nothing tells how it ended.", r.Pane, r.Session)
		return e, b.forgetRun(ctx, r)
	case err != nil:
		e.Final = false
		return e, err
	}
	t, err := p.Testify(ctx, r.Where)
	switch {
	case errors.Is(err, tmux.ErrGone):
		e.Text = fmt.Sprintf("The pane %s, in which it was typed, is gone, so nothing tells how it ended.", r.Pane)
	case err != nil:
		e.Final = false
		return e, err
	case t.Ended:
		e.Text = fmt.Sprintf("The pane's shell says that it ended with exit code %d.", t.Code)
	case t.Running:
		e.Final = false
		e.Text = fmt.Sprintf("It still runs in pane %s of the session %s.", p.ID(), r.Session)
		return e, nil
	case t.Refused:
		e.Text = "The terminal's environment had changed, so the pane's shell did not run it."
	case t.Unstarted:
		e.Text = "The pane's shell is still at the prompt before it: it was not run."
	case b.cfg.Now().Sub(r.At) < evidenceAge && r.Where.Shell != "":
		e.Final = false
		return e, nil
	default:
		e.Text = "The pane's shell does not know how it ended."
	}
	return e, b.forgetRun(ctx, r)
}

// Unknown lists the calls whose outcomes are stored as unknown.
func (b *Book) Unknown(ctx context.Context) (list []Evidence, err error) {
	err = b.cfg.DB.View(ctx, func(tx store.Tx) error {
		list = nil
		start, end := store.Prefix("session-run", b.cfg.Instance, b.cfg.Target)
		for k, v := range tx.Scan(start, end) {
			var r run
			if store.Decode(k, v, &r); !r.Open {
				list = append(list, Evidence{Thread: r.Thread, Call: r.Call, Driver: r.Driver})
			}
		}
		return nil
	})
	return list, err
}
