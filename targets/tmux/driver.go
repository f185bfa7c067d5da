package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Several processes (replicas of one bot) may be connected to the tmux server of an
// instance. All of them may listen and record; one at a time types. That one is the
// session's driver. Its number is the epoch: each new driver gets a higher one than any
// before (from the store, see package session) and writes it into tmux, as an option of the
// session that only grows.
//
// A process cannot know that it is still the driver: it may have been stopped between its
// check and its key. So tmux decides. Each key, and each start or end of a shell, is a
// branch of an if-shell that compares the epoch in tmux with the one that the process
// knows; tmux runs nothing between the comparison and the key. A driver that was replaced
// changes nothing, and is answered with the present epoch: [ErrDriven].
//
// Only the driver shows standard error in the visible pane and replaces a lost companion. A
// driver that was replaced learns of it within a second by its subscription, and usually at
// once: the next driver asks the shell for its state, and every process receives the
// answer.
//
// A process that is alone drives whatever it opens, until [Server.Share]. Each of its
// connections to a session that is older raises the epoch, so that keys of an earlier
// connection that are still on their way are never typed.
const (
	// optEpoch is the epoch of a session's driver; unset is 0.
	optEpoch = "@countersign_epoch"
	// optPeople is 1 while people have the keyboard of a session, and optTurn counts how
	// often it changed hands.
	optPeople = "@countersign_people"
	optTurn   = "@countersign_turn"
	// optDir is where a pane's shell starts.
	optDir = "@countersign_dir"
)

// ErrDriven means that another process types in the pane now: nothing was typed, and
// nothing ended. It is a [StateError]. [Pane.Drive] with a higher epoch takes it over.
var ErrDriven = stateError(StateDriven, "Another replica of the bot has taken this terminal over; nothing was typed here.")

// DrivenError is an [ErrDriven] with the epoch of the present driver.
type DrivenError struct {
	Epoch int64 // of the session in tmux
}

// Error returns the sentence of ErrDriven.
func (e *DrivenError) Error() string { return ErrDriven.Error() }

// Unwrap returns ErrDriven.
func (e *DrivenError) Unwrap() error { return ErrDriven }

// TurnError is what [Server.Hand] returns when the keyboard has already changed hands in a
// later turn. Nothing was changed.
type TurnError struct {
	Turn int64 // of the session in tmux
}

// Error says what happened.
func (e *TurnError) Error() string {
	return "tmux: the keyboard of the session has changed hands meanwhile; ask again who has it"
}

func parseEpoch(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// formatEpoch formats an epoch as tmux expands the option: an unset one is empty.
func formatEpoch(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Share says that other processes drive panes of this instance as well. From then on this
// process types into a pane only after [Pane.Drive], or if it made the pane with an epoch.
// Call Share before the Server is used.
func (s *Server) Share() { s.shared.Store(true) }

// Drive makes this process the driver of a session: it raises the epoch in tmux to the
// given one. The same epoch may be there already, so each epoch must belong to one process.
// If a higher one is there, Drive returns a [DrivenError].
func (s *Server) Drive(ctx context.Context, session string, epoch int64) error {
	defer s.use(session)()
	unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := s.connect(ctx, session)
	if err != nil {
		return err
	}
	target := quote("=" + session + ":")
	tell := fmt.Sprintf("display-message -p -t %s 'epoch #{%s}'", target, optEpoch)
	lines, err := c.doIf(ctx, target, fmt.Sprintf("#{e|<|:#{%s},%d}", optEpoch, epoch),
		fmt.Sprintf("set-option -t %s %s %d ; %s", target, optEpoch, epoch, tell), tell, hasText)
	var ce *commandError
	if errors.As(err, &ce) && strings.Contains(ce.text, "no such session") {
		return fmt.Errorf("%w: there is no session %q", ErrGone, session)
	}
	if err != nil {
		return err
	}
	there, ok := strings.CutPrefix(reply{lines: lines}.first(), "epoch ")
	if !ok {
		return errSilent
	}
	if n := parseEpoch(there); n != epoch {
		return &DrivenError{Epoch: n}
	}
	return nil
}

// Drive makes this process the driver of the pane's session under an epoch (see
// [Server.Drive]), and finds out what the pane does now. It does nothing if this process
// drives under that epoch already. What runs in the pane goes on. If the pane's creator
// went away before it started a shell, Drive starts one.
func (p *Pane) Drive(ctx context.Context, epoch int64) error {
	p.mu.Lock()
	driving := p.lease.heldUnder(epoch) && !p.gone
	p.mu.Unlock()
	if driving {
		return nil
	}
	end, err := p.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := p.s.Drive(ctx, p.session, epoch); err != nil {
		return err
	}
	p.mu.Lock()
	p.lease.acquire(epoch)
	p.history.complete = false
	p.statusQuery.reset()
	p.history.reset()
	p.stderr.mirror.reset()
	p.mu.Unlock()
	return p.takeUp(ctx)
}

// Driving reports whether this process is the pane's driver, as far as it knows. It takes
// no lock, so a tap may call it.
func (p *Pane) Driving() bool { return p.lease.held() }
