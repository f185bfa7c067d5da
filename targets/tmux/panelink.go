package tmux

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// errSilent means that an answer did not come in time.
var errSilent = errors.New("tmux: the shell does not answer; close the pane and make a new one")

// errKeyboardHeld refuses to type while people have the keyboard.
var errKeyboardHeld = stateError(StateHuman, "A person has the keyboard of this session; wait until they say `give`.")

// paneLink is a pane as tmux knows it: its identity, the connection to it, and the lease under
// which this process types into it. Its mutex guards the whole Pane.
type paneLink struct {
	session string
	id      int
	key     string // of the pane for good, unlike its number

	mu      sync.Mutex
	c       *conn
	gone    bool
	changed chan struct{} // closed and replaced at each change
	lease   lease

	onGone    func() // called once tmux says that there is no such pane
	onDemoted func() // called with mu held once this process drives no more
}

// name is tmux's name of the pane, "%3".
func (l *paneLink) name() string { return paneName(l.id) }

func (l *paneLink) goneError() error {
	return fmt.Errorf("%w: %s in session %s", ErrGone, l.name(), l.session)
}

// isPaneMissing reports whether err is tmux saying that there is no such pane.
func isPaneMissing(err error) bool {
	var ce *commandError
	return errors.As(err, &ce) && strings.Contains(ce.text, "can't find pane")
}

func (l *paneLink) isGone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}

// notify wakes everybody who waits for a change. The caller holds mu.
func (l *paneLink) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// wait waits until ok, called with mu held, returns true.
func (l *paneLink) wait(ctx context.Context, limit time.Duration, ok func() bool) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		l.mu.Lock()
		done, gone, changed, c := ok(), l.gone, l.changed, l.c
		l.mu.Unlock()
		switch {
		case done:
			return nil
		case gone:
			return l.goneError()
		case !c.serves(l.session):
			return errConn
		}
		select {
		case <-changed:
		case <-c.dead:
			// lost comes right after, and wakes by changed as well.
		case <-timer.C:
			return errSilent
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// demote ends being the driver. The caller holds mu.
func (l *paneLink) demote() {
	if l.lease.release() {
		l.onDemoted()
		l.notify()
	}
}

// do sends a command line that reads only, and returns the reply. It returns ErrGone when
// there is no such pane.
func (l *paneLink) do(ctx context.Context, line string) ([]string, error) {
	l.mu.Lock()
	c, gone := l.c, l.gone
	l.mu.Unlock()
	if gone {
		return nil, l.goneError()
	}
	lines, err := c.do(ctx, line)
	if isPaneMissing(err) {
		l.onGone()
		return nil, l.goneError()
	}
	return lines, err
}

// press types keys unless the format blocked is true in tmux. done gets the result, from
// another goroutine. The caller holds mu.
func (l *paneLink) press(keys []byte, blocked func() string, done func(error)) {
	if !l.lease.held() {
		go done(ErrDriven) // the caller holds a lock that done takes
		return
	}
	l.c.postIf(l.name(), blocked(), l.whyBlocked(), hexKeys(l.id, keys), nil, func(r reply) { done(l.result(r)) })
}

// doUnless runs a command on the pane unless the format blocked is true in tmux, and waits
// for the reply; last is as for postIf. blocked is called with mu held.
func (l *paneLink) doUnless(ctx context.Context, blocked func() string, line string, last func(reply) bool) error {
	ch := make(chan error, 1)
	l.mu.Lock()
	switch {
	case l.gone:
		l.mu.Unlock()
		return l.goneError()
	case !l.lease.held():
		l.mu.Unlock()
		return ErrDriven
	}
	l.c.postIf(l.name(), blocked(), l.whyBlocked(), line, last, func(r reply) { ch <- l.result(r) })
	l.mu.Unlock()
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// whyBlocked is the command that runs instead of a blocked one, and reports why. Unlike
// display-message it fails where the pane is gone.
func (l *paneLink) whyBlocked() string {
	return fmt.Sprintf("list-panes -t %%%d -f '#{==:#{pane_id},%%%d}' -F 'blocked|#{%s}|#{%s}|#{pane_in_mode}|#{pane_dead}'",
		l.id, l.id, optEpoch, optPeople)
}

// result reads the reply to a command that was sent with a condition. After errConn the
// command may have been done.
func (l *paneLink) result(r reply) error {
	switch {
	case isPaneMissing(r.err):
		l.onGone()
		return l.goneError()
	case r.err != nil:
		return r.err
	}
	why, blocked := strings.CutPrefix(r.first(), "blocked|")
	if !blocked {
		return nil
	}
	f := strings.Split(why, "|")
	if len(f) != 4 {
		return errSilent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch epoch := parseEpoch(f[0]); {
	case epoch != l.lease.epoch:
		l.demote()
		return &DrivenError{Epoch: epoch}
	case f[3] == "1":
		return l.goneError()
	case f[2] != "0":
		return errCopyMode
	default:
		return errKeyboardHeld
	}
}
