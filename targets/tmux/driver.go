package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Several processes (replicas of one bot) may be connected to the tmux server of an
// instance at once. All of them may look, listen and record; one at a time types. It
// is the session's driver, and its number is the epoch: whoever becomes driver gets
// a higher one than anybody before (from the store, see package session) and writes it
// into tmux, as an option of the session that only ever grows.
//
// A process cannot know for sure that it still is the driver: it may have been stopped
// between its look and its key. So tmux decides. Each key, and each start or end of a
// shell, is one branch of an if-shell that compares the epoch in tmux with the one
// that the process knows; tmux runs nothing between the comparison and the key. What
// comes from a driver that was replaced does nothing and is answered with the epoch
// that is there: [ErrDriven].
//
// Only the driver shows standard error in the visible pane and mends the companion.
// A driver that was replaced learns of it within a second, by its subscription, and
// mostly at once: the next driver asks the shell for its state, and everybody hears
// the answer.
//
// A process that is alone need not care: it is the driver of whatever it opens, with
// the epoch that it finds, until [Server.Share].
const (
	// optEpoch is the epoch of a session's driver; unset is 0.
	optEpoch = "@countersign_epoch"
	// optPeople is 1 while people have the keyboard of a session, and optTurn counts
	// how often it changed hands.
	optPeople = "@countersign_people"
	optTurn   = "@countersign_turn"
	// optDir is where a pane's shell starts.
	optDir = "@countersign_dir"
)

// ErrDriven means that another process types in the pane now: nothing was typed, and
// nothing ended. It is a [StateError]. [Pane.Drive] with a higher epoch takes it over.
var ErrDriven = stateError(StateDriven, "Another replica of the bot has taken this terminal over; nothing was typed here.")

// errHanded refuses to type while people have the keyboard.
var errHanded = stateError(StateHuman, "A person has the keyboard of this session; wait until they say `give`.")

// DrivenError is an [ErrDriven] that knows by which epoch.
type DrivenError struct {
	Epoch int64 // of the session in tmux
}

// Error returns the sentence of ErrDriven.
func (e *DrivenError) Error() string { return ErrDriven.Error() }

// Unwrap returns ErrDriven.
func (e *DrivenError) Unwrap() error { return ErrDriven }

// TurnError is what [Server.Hand] returns when the keyboard changed hands in a later
// turn already: nothing was changed.
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

// formatEpoch is how tmux expands the option: an unset one is empty.
func formatEpoch(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Share says that other processes drive panes of this instance as well: from now on
// nothing is typed into a pane before [Pane.Drive], or before it was made with an
// epoch of its own. Call it before the Server is used.
func (s *Server) Share() { s.shared.Store(true) }

// Drive makes this process the driver of a session under an epoch: the one in tmux is
// raised to it. One that is there already is fine, so epochs must be given to one
// process each. A higher one there is a [DrivenError].
func (s *Server) Drive(ctx context.Context, session string, epoch int64) error {
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
		fmt.Sprintf("set-option -t %s %s %d ; %s", target, optEpoch, epoch, tell), tell, says)
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
// [Server.Drive]), and finds out what the pane does now: what was known of it is from
// before. It does nothing where that epoch is this process's already. What runs in the
// pane goes on. A pane whose maker went away before it had a shell gets one.
func (p *Pane) Drive(ctx context.Context, epoch int64) error {
	p.mu.Lock()
	mine := p.lease.heldUnder(epoch) && !p.gone
	p.mu.Unlock()
	if mine {
		return nil
	}
	if err := p.ensure(ctx); err != nil {
		return err
	}
	if err := p.s.Drive(ctx, p.session, epoch); err != nil {
		return err
	}
	p.mu.Lock()
	p.lease.acquire(epoch)
	p.history.complete = false
	p.lineQuery.reset()
	p.history.reset()
	p.stderr.mirror.reset()
	p.mu.Unlock()
	st, shell, err := p.survey(ctx)
	if err != nil {
		return err
	}
	if shell {
		return p.inquire(ctx, st)
	}
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{%s}'", p.id, optDir))
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.advance(shellSpawned)
	p.mu.Unlock()
	return p.spawn(ctx, reply{lines: lines}.first())
}

// Driving tells whether this process is the pane's driver, as far as it knows. It
// takes no lock, so a tap may ask it.
func (p *Pane) Driving() bool { return p.lease.held() }

// demote ends being the driver. The caller holds mu.
func (p *Pane) demote() {
	if !p.lease.release() {
		return
	}
	p.origins.unclaimNext()
	p.history.complete = false
	p.stderr.mirror.reset()
	p.notify()
}

// whyBarred is the command in the branch that does nothing: it says why. Unlike
// display-message it fails where the pane is gone.
func (p *Pane) whyBarred() string {
	return fmt.Sprintf("list-panes -t %%%d -f '#{==:#{pane_id},%%%d}' -F 'barred|#{%s}|#{%s}|#{pane_in_mode}|#{pane_dead}'", p.id, p.id, optEpoch, optPeople)
}

// verdict reads the reply to a command that was sent with a condition. A connection
// that was lost is errConn: the command may have been done.
func (p *Pane) verdict(r reply) error {
	switch {
	case missing(r.err):
		p.lost(true)
		return p.goneError()
	case r.err != nil:
		return r.err
	}
	why, is := strings.CutPrefix(r.first(), "barred|")
	if !is {
		return nil
	}
	f := strings.Split(why, "|")
	if len(f) != 4 {
		return errSilent
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch epoch := parseEpoch(f[0]); {
	case epoch != p.lease.epoch:
		p.demote()
		return &DrivenError{Epoch: epoch}
	case f[3] == "1":
		return p.goneError()
	case f[2] != "0":
		return errCopyMode
	default:
		return errHanded
	}
}

// press types keys unless the format blocked is true in tmux. f gets the result, from
// another goroutine. The caller holds mu.
func (p *Pane) press(keys []byte, blocked func() string, f func(error)) {
	if !p.lease.held() {
		go f(ErrDriven) // the caller holds a lock that f takes
		return
	}
	p.c.postIf(p.ID(), blocked(), p.whyBarred(), hexKeys(p.id, keys), nil, func(r reply) { f(p.verdict(r)) })
}

// perform runs a command on the pane if this process drives it, and waits for that.
// last is as for postIf.
func (p *Pane) perform(ctx context.Context, format func() string, line string, last func(reply) bool) error {
	ch := make(chan error, 1)
	p.mu.Lock()
	switch {
	case p.gone:
		p.mu.Unlock()
		return p.goneError()
	case !p.lease.held():
		p.mu.Unlock()
		return ErrDriven
	}
	p.c.postIf(p.ID(), format(), p.whyBarred(), line, last, func(r reply) { ch <- p.verdict(r) })
	p.mu.Unlock()
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
