package session

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"countersign/store"
	"countersign/targets/tmux"
)

// With several processes over one store and one terminal, one at a time types into a
// session: its driver. The row says who that is, and under which epoch; a process that
// becomes driver raises it, in the transaction in which it is asked whether it owns the
// thread, and then raises it in tmux, which from then on does nothing that a driver with
// an older epoch sends (see targets/tmux/driver.go). So a process that is stopped between
// its transaction and its key, and goes on when another one has taken the thread over
// and used the pane, types nothing.
//
// Looking, listening, listing and recording need no driver, and a pane that this process
// does not drive is only listened to.
//
// The owner of the thread is who runs commands, presses keys, interrupts and ends. What
// is about people at the keyboard may be handled by any process: who has the pen is in
// the row and in tmux, counted by turns. To ask the shell what people typed, that process
// becomes the driver for a moment, and only while no command runs; the owner takes over
// again with its next command.

// attempts bounds how often two processes that both may drive a session take it from
// each other within one call.
const attempts = 4

// makingTime is how long a session that another process is about to make is waited
// for, until Reconcile gives its place back.
const makingTime = 10 * time.Minute

// shared tells whether this process must ask before it types.
func (b *Book) shared() bool { return b.cfg.Driver != "" || b.cfg.Owns != nil }

// standing returns the row of a session into which this process may type now, because
// it owns the thread. With anyone it need not.
func (b *Book) standing(tx store.Tx, thread, name string, anyone bool) (row, error) {
	r, ok, err := b.owned(tx, thread, name)
	switch {
	case err != nil:
		return row{}, err
	case !ok || r.Closing:
		return row{}, &refusal{ErrNoSession, fmt.Sprintf("the session %s was ended meanwhile", name)}
	case !anyone && b.cfg.Owns != nil && !b.cfg.Owns(tx, thread):
		return row{}, errNotOwner
	}
	return r, nil
}

// errNotOwner refuses what only the owner of a thread may do.
var errNotOwner = &refusal{tmux.ErrDriven, "Another replica of the bot works on this thread now; nothing was typed here."}

// drives tells whether this process is the driver of a session.
func (b *Book) drives(r row) bool { return b.cfg.Driver == "" || r.Driver == b.cfg.Driver }

// claim returns the epoch under which this process drives a session, after making it
// the driver where it is not.
func (b *Book) claim(ctx context.Context, thread, name string, anyone bool) (int64, error) {
	var r row
	err := b.cfg.DB.View(ctx, func(tx store.Tx) (err error) {
		r, err = b.standing(tx, thread, name, anyone)
		return err
	})
	if err != nil || b.drives(r) {
		return r.Epoch, err
	}
	return b.raise(ctx, thread, name, anyone, 0)
}

// raise makes this process the driver under an epoch that is higher than above.
// Where it is that already, somebody else's in tmux means that the store is older than the
// terminal, for example after a restored backup.
func (b *Book) raise(ctx context.Context, thread, name string, anyone bool, above int64) (int64, error) {
	var r row
	err := b.cfg.DB.Update(ctx, func(tx store.Tx) (err error) {
		if r, err = b.standing(tx, thread, name, anyone); err != nil {
			return err
		}
		if b.drives(r) && r.Epoch > above {
			return nil
		}
		r.Driver, r.Epoch = b.cfg.Driver, max(r.Epoch, above)+1
		store.Save(tx, b.key(name), r)
		return nil
	})
	return r.Epoch, err
}

// driveTo calls drive with the epoch of this process, and with a higher one as long as
// tmux knows of one that is.
func (b *Book) driveTo(ctx context.Context, thread, name string, anyone bool, drive func(epoch int64) error) error {
	epoch, err := b.claim(ctx, thread, name, anyone)
	if err != nil || b.cfg.Driver == "" {
		return err
	}
	for range attempts {
		err = drive(epoch)
		var higher *tmux.DrivenError
		if !errors.As(err, &higher) {
			return err
		}
		if epoch, err = b.raise(ctx, thread, name, anyone, higher.Epoch); err != nil {
			return err
		}
	}
	return tmux.ErrDriven
}

// driven is a pane that this process types into as the driver of its session.
type driven struct {
	Pane
	b      *Book
	thread string
	key    paneKey
	// checked is set by Began for the command that is about to be typed.
	checked atomic.Bool
	// filmed is the epoch in which the recording began.
	filmed atomic.Int64
}

// drive makes this process the driver, or makes sure that it is.
func (d *driven) drive(ctx context.Context, anyone bool) error {
	return d.b.driveTo(ctx, d.thread, d.key.session, anyone, func(epoch int64) error {
		if err := d.Drive(ctx, epoch); err != nil {
			return err
		}
		if d.filmed.Swap(epoch) != epoch {
			d.b.record(ctx, d.thread, d.key, d.Pane)
		}
		return nil
	})
}

// do runs what needs the driver.
func (d *driven) do(ctx context.Context, anyone bool, act func() error) error {
	var err error
	for range attempts {
		if err = d.drive(ctx, anyone); err != nil {
			return err
		}
		if err = act(); !errors.Is(err, tmux.ErrDriven) {
			return err
		}
	}
	return err
}

// command types a command. With a Before, which stores something, the ownership is
// asked in that transaction (see Began), and not in one of its own.
func (d *driven) command(ctx context.Context, c tmux.Command, run func(tmux.Command) error) error {
	before := c.Before
	if before != nil {
		c.Before = func(w tmux.Where) error {
			d.checked.Store(false)
			if err := before(w); err != nil || d.checked.Load() {
				return err
			}
			return d.b.cfg.DB.View(ctx, func(tx store.Tx) error { return d.b.mayType(tx, d.thread, d.key.session) })
		}
	}
	if before != nil && d.Driving() {
		if err := run(c); !errors.Is(err, tmux.ErrDriven) {
			return err
		}
	}
	return d.do(ctx, false, func() error { return run(c) })
}

// mayType refuses to type where this process is not the driver, or must not be.
func (b *Book) mayType(tx store.Tx, thread, name string) error {
	r, err := b.standing(tx, thread, name, false)
	if err == nil && !b.drives(r) {
		return tmux.ErrDriven
	}
	return err
}

// Shell implements Pane.
func (d *driven) Shell(ctx context.Context, known bool) (s tmux.Shell, err error) {
	err = d.do(ctx, false, func() (err error) {
		s, err = d.Pane.Shell(ctx, known)
		return err
	})
	return s, err
}

// Run implements Pane.
func (d *driven) Run(ctx context.Context, c tmux.Command) (o tmux.Outcome, err error) {
	err = d.command(ctx, c, func(c tmux.Command) (err error) {
		o, err = d.Pane.Run(ctx, c)
		return err
	})
	return o, err
}

// Dispatch implements Pane.
func (d *driven) Dispatch(ctx context.Context, c tmux.Command) error {
	return d.command(ctx, c, func(c tmux.Command) error { return d.Pane.Dispatch(ctx, c) })
}

// Interrupt implements Pane.
func (d *driven) Interrupt(ctx context.Context) error {
	return d.do(ctx, false, func() error { return d.Pane.Interrupt(ctx) })
}

// SendKeys implements Pane.
func (d *driven) SendKeys(ctx context.Context, k tmux.Keys) error {
	return d.do(ctx, false, func() error { return d.Pane.SendKeys(ctx, k) })
}

// Kill implements Pane.
func (d *driven) Kill(ctx context.Context) error {
	return d.do(ctx, false, func() error { return d.Pane.Kill(ctx) })
}

// Past implements Pane. Any process may ask while no command runs; see the top of this
// file.
func (d *driven) Past(ctx context.Context) (list []tmux.Done, complete bool, err error) {
	info, err := d.Info(ctx)
	if err != nil || info.State != tmux.StateIdle {
		return nil, false, err
	}
	err = d.do(ctx, true, func() (err error) {
		list, complete, err = d.Pane.Past(ctx)
		return err
	})
	return list, complete, err
}

// Testify implements Pane. The owner of the thread becomes the driver first: that a
// command was not run can only be said when nobody can type it any more.
func (d *driven) Testify(ctx context.Context, w tmux.Where) (tmux.Testimony, error) {
	if err := d.drive(ctx, false); err != nil && !errors.Is(err, tmux.ErrDriven) {
		return tmux.Testimony{}, err
	}
	return d.Pane.Testify(ctx, w)
}

// Resume implements Pane, as the driver: see Testify.
func (d *driven) Resume(ctx context.Context, w tmux.Where, began time.Time, c tmux.Command) (o tmux.Outcome, err error) {
	err = d.do(ctx, false, func() (err error) {
		o, err = d.Pane.Resume(ctx, w, began, c)
		return err
	})
	return o, err
}

// wrap makes a pane of tmux one that asks before it types, where that is needed.
func (b *Book) wrap(thread string, key paneKey, p Pane) Pane {
	if !b.shared() {
		return p
	}
	return &driven{Pane: p, b: b, thread: thread, key: key}
}

// bare is the pane inside, to compare it.
func bare(p Pane) Pane {
	if d, ok := p.(*driven); ok {
		return d.Pane
	}
	return p
}
