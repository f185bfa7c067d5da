package tmux

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// missing tells whether tmux says that there is no such pane.
func missing(err error) bool {
	var ce *commandError
	return errors.As(err, &ce) && strings.Contains(ce.text, "can't find pane")
}

// ensure makes sure that there is a connection to the pane, and attaches again
// where it was lost.
func (p *Pane) ensure(ctx context.Context) error {
	p.mu.Lock()
	c, gone := p.c, p.gone
	p.mu.Unlock()
	if gone {
		return p.goneError()
	}
	if c.alive() {
		return nil
	}
	unlock, err := p.s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c, err = p.s.connect(ctx, p.session)
	if errors.Is(err, ErrGone) {
		p.lost(true)
		return p.goneError()
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.c = c
	p.phase = phaseRunning
	p.byBot = true // nobody was listening
	p.heard = p.heard && !p.s.shared.Load()
	p.asks, p.pastAsks = 0, 0
	p.mirror.reset()
	p.out.part, p.err.part = nil, nil
	p.mu.Unlock()
	c.register(p.id, p)
	// Pane numbers start again with a new server, so the key decides.
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{%s} #{%s}'", p.id, optKey, optEpoch))
	if err != nil {
		return err
	}
	key, epoch, _ := strings.Cut(reply{lines: lines}.first(), " ")
	if key != p.key {
		p.lost(true)
		return p.goneError()
	}
	p.mu.Lock()
	if !p.s.shared.Load() {
		p.epoch = parseEpoch(epoch)
	} else if parseEpoch(epoch) != p.epoch {
		p.demote()
	}
	p.mu.Unlock()
	p.hearErrors(ctx)
	return p.probe(ctx)
}

// hearErrors attaches to the pane's companion. Only the driver makes one where there is
// none. The caller holds setup.
func (p *Pane) hearErrors(ctx context.Context) {
	if p.s.caps.Bash == "" {
		return
	}
	comp, fresh, err := p.s.findCompanion(ctx, p.key, p.driving.Load())
	if err != nil {
		p.s.log.WarnContext(ctx, "standard error will not be captured apart", slog.Any("error", err))
	}
	p.attachCompanion(comp)
	if fresh {
		p.startRelay(ctx)
	}
}

// locate asks tmux for the pane's terminal and its shell's process number.
func (p *Pane) locate(ctx context.Context) error {
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{pane_tty} #{pane_pid} #{pane_current_path}'", p.id))
	if err != nil {
		return err
	}
	f := strings.SplitN(reply{lines: lines}.first(), " ", 3)
	if len(f) < 3 {
		return errSilent
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tty, p.pid = f[0], f[1]
	if p.dir == "" {
		p.dir = f[2]
	}
	return nil
}

// spawn puts the shell in place of a new pane's placeholder and waits for its
// first prompt.
func (p *Pane) spawn(ctx context.Context, dir string) error {
	if p.s.shared.Load() { // a driver that was replaced leaves the companion alone
		if err := p.perform(ctx, p.stale, "display-message -p mine", nil); err != nil {
			return err
		}
	}
	p.startRelay(ctx)
	if err := p.perform(ctx, p.stale, fmt.Sprintf("respawn-pane -k -c %s -t %%%d /bin/sh %s",
		quote(noFormat(dir)), p.id, quote(p.s.file("sh-"+p.key))), nil); err != nil {
		return err
	}
	if err := p.wait(ctx, startTime, func() bool { return p.phase == phaseIdle }); err != nil {
		return fmt.Errorf("the shell of the new pane does not come up: %w", err)
	}
	if err := p.locate(ctx); err != nil {
		return err
	}
	p.aimMirror()
	return nil
}

// survey asks tmux what it knows of the pane: its terminal, its status, and whether
// it has a shell, or still the placeholder of a maker that went away.
func (p *Pane) survey(ctx context.Context) (st paneStatus, shell bool, err error) {
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{pane_tty} #{pane_pid} %s #{m:*sh-%s*,#{pane_start_command}} #{pane_current_path}'", p.id, statusFormat, p.key))
	if err != nil {
		return st, false, err
	}
	f := strings.SplitN(reply{lines: lines}.first(), " ", 5)
	if len(f) < 5 {
		return st, false, errSilent
	}
	st, ok := parseStatus(f[2])
	if !ok {
		return st, false, errSilent
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tty, p.pid = f[0], f[1]
	if p.dir == "" {
		p.dir = f[4]
	}
	p.phase = phaseRunning
	p.byBot = true
	p.setStatus(st)
	return st, f[3] == "1", nil
}

// probe learns the state of a pane that was not listened to.
func (p *Pane) probe(ctx context.Context) error {
	st, _, err := p.survey(ctx)
	if err != nil {
		return err
	}
	return p.inquire(ctx, st)
}

// inquire finds out whether the shell is at its prompt, and asks it where it may.
func (p *Pane) inquire(ctx context.Context, st paneStatus) error {
	if st.dead || st.copyMode {
		return nil
	}
	p.aimMirror()
	tt, err := p.terminal(ctx)
	if err != nil {
		return err
	}
	// A shell that has ended a command and shows its prompt in a moment looks like one that
	// computes; what it says meanwhile may have been said to nobody.
	for wait := 10 * time.Millisecond; tt.computes() && wait < time.Second/2; wait *= 2 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		if tt, err = p.terminal(ctx); err != nil {
			return err
		}
	}
	if !tt.shell {
		return nil
	}
	if p.driving.Load() {
		err = p.askLine(ctx)
		if errors.Is(err, errSilent) || errors.Is(err, errCopyMode) {
			return nil // it runs something itself, so it is simply busy
		}
		if !errors.Is(err, ErrDriven) {
			return err
		}
	}
	// Who only looks asks nobody: the shell is at its prompt, and what is on the line
	// is not known.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.dirty = phaseIdle, true
	p.shell = strconv.Itoa(tt.shellPID)
	p.notify()
	return nil
}

// askLine makes a shell at its prompt say what is on its line.
func (p *Pane) askLine(ctx context.Context) error {
	p.mu.Lock()
	before := p.probes
	p.mu.Unlock()
	if p.s.caps.Bash == "" {
		// There is no line editor to ask: an empty line brings a new prompt.
		return p.ask(ctx, "\x15\r", nil, func() bool { return p.phase == phaseIdle && !p.dirty })
	}
	return p.ask(ctx, keyStatus, &p.asks, func() bool { return p.probes > before })
}

// ask presses a key to which the shell answers, and waits for that. open counts the
// questions without an answer.
func (p *Pane) ask(ctx context.Context, key string, open *int, answered func() bool) error {
	var denied error
	p.mu.Lock()
	if open != nil {
		*open++
	}
	p.press([]byte(key), false, func(err error) {
		if err == nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if denied = err; open != nil && *open > 0 {
			*open--
		}
		p.notify()
	})
	p.mu.Unlock()
	err := p.wait(ctx, probeTime, func() bool { return denied != nil || answered() })
	p.mu.Lock()
	defer p.mu.Unlock()
	if denied != nil {
		return denied
	}
	return err
}

// unpercent undoes the hook's encoding of a directory.
func unpercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
