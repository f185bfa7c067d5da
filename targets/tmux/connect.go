package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ensure makes sure that there is a connection to the pane, and attaches again if it was
// lost.
func (p *Pane) ensure(ctx context.Context) error {
	p.mu.Lock()
	c, gone := p.c, p.gone
	p.mu.Unlock()
	if gone {
		return p.goneError()
	}
	if c.serves(p.session) {
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
	p.advance(contactRegained)
	p.origins.contactRegained()
	p.history.complete = p.history.complete && !p.s.shared.Load()
	p.statusQuery.reset()
	p.history.reset()
	p.stderr.mirror.reset()
	p.out.part, p.stderr.scanner.part = nil, nil
	p.mu.Unlock()
	c.register(p.id, p)
	// A new tmux server gives the same pane numbers again, so the key decides.
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
		p.lease.epoch = parseEpoch(epoch)
	} else if parseEpoch(epoch) != p.lease.epoch {
		p.demote()
	}
	p.mu.Unlock()
	p.reattachCompanion(ctx)
	return p.probe(ctx)
}

// fetchDevice asks tmux for the pane's terminal and its supervisor.
func (p *Pane) fetchDevice(ctx context.Context) error {
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
	p.device.tty, p.device.supervisor = f[0], f[1]
	if p.shell.dir == "" {
		p.shell.dir = f[2]
	}
	return nil
}

// spawn starts the supervisor in place of a new pane's placeholder, and waits for the
// shell's first prompt.
func (p *Pane) spawn(ctx context.Context, dir string) error {
	if p.s.shared.Load() { // only the driver may restart the companion's relay
		if err := p.doUnless(ctx, p.lease.lost, "display-message -p driving", nil); err != nil {
			return err
		}
	}
	p.startRelay(ctx)
	if err := p.doUnless(ctx, p.lease.lost, fmt.Sprintf("respawn-pane -k -c %s -t %%%d /bin/sh %s",
		quote(escapeFormat(dir)), p.id, quote(p.s.file("sh-"+p.key))), nil); err != nil {
		return err
	}
	if err := p.wait(ctx, startTime, func() bool { return p.shell.phase == phaseIdle }); err != nil {
		return fmt.Errorf("the shell of the new pane does not come up: %w", err)
	}
	if err := p.fetchDevice(ctx); err != nil {
		return err
	}
	p.setMirrorTarget()
	return nil
}

// fetchState asks tmux for the pane's terminal and status. shell is false while the pane
// has only the placeholder of a process that never started its shell.
func (p *Pane) fetchState(ctx context.Context) (st paneStatus, shell bool, err error) {
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d "+
		"'#{pane_tty} #{pane_pid} %s #{m:*sh-%s*,#{pane_start_command}} #{pane_current_path}'", p.id, statusFormat, p.key))
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
	p.device.tty, p.device.supervisor = f[0], f[1]
	if p.shell.dir == "" {
		p.shell.dir = f[4]
	}
	p.advance(contactRegained)
	p.origins.contactRegained()
	p.setStatus(st)
	return st, f[3] == "1", nil
}

// probe finds out the state of a pane whose marks were missed.
func (p *Pane) probe(ctx context.Context) error {
	st, _, err := p.fetchState(ctx)
	if err != nil {
		return err
	}
	return p.detectPrompt(ctx, st)
}

// takeUp finds out the state of a pane that another process made. That process may have gone away
// while it made the pane, so its driver starts the shell where there is none, and everybody waits
// for the first prompt of one that starts: until then neither its directory nor what is in front
// of it is what a command will find.
func (p *Pane) takeUp(ctx context.Context) error {
	st, shell, err := p.fetchState(ctx)
	if err != nil {
		return err
	}
	if !shell && !st.dead && p.lease.held() {
		lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{%s}'", p.id, optDir))
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.shell.dir = ""
		p.advance(shellSpawned)
		p.mu.Unlock()
		return p.spawn(ctx, reply{lines: lines}.first())
	}
	if err := p.detectPrompt(ctx, st); err != nil || !shell || st.dead || p.s.caps.Bash == "" {
		return err
	}
	idle := func() bool { return p.shell.phase == phaseIdle }
	p.mu.Lock()
	up := idle()
	p.mu.Unlock()
	if up {
		return nil
	}
	// Bash writes a record at each prompt, the first one included.
	records, err := p.s.t.FS().Stat(ctx, p.s.file("r-"+p.key))
	if err == nil && records.Size == 0 {
		if err := p.wait(ctx, startTime, idle); !errors.Is(err, errSilent) {
			return err
		}
	}
	return nil // without the file nobody knows, so it counts as one that runs something
}

// detectPrompt finds out whether the shell is at its prompt. The driver asks the shell
// itself.
func (p *Pane) detectPrompt(ctx context.Context, st paneStatus) error {
	if st.dead || st.copyMode {
		return nil
	}
	p.setMirrorTarget()
	tt, err := p.currentDevice().state(ctx)
	if err != nil {
		return err
	}
	// A shell that is about to show its prompt looks like one that computes. Its marks may have
	// come before this process was attached, so the terminal is polled.
	for wait := 10 * time.Millisecond; tt.computes() && wait < time.Second/2; wait *= 2 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		if tt, err = p.currentDevice().state(ctx); err != nil {
			return err
		}
	}
	if !tt.shell {
		return nil
	}
	if p.lease.held() {
		p.mu.Lock()
		c := p.c
		p.mu.Unlock()
		// Everything that the last command wrote is on the screen by now.
		lines, _, err := capturedLines(ctx, c, p.id, "", nil)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.unasked = lines
		p.mu.Unlock()
		err = p.queryStatus(ctx)
		if errors.Is(err, errSilent) || errors.Is(err, errCopyMode) {
			return nil // the shell itself runs something
		}
		if !errors.Is(err, ErrDriven) {
			return err
		}
	}
	// Only the driver may ask the shell. To others it is at its prompt, with something unknown
	// on the input line.
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.advance(promptSeen) {
		return nil // the shell has exited meanwhile
	}
	p.line.apply(lineUnread)
	p.shell.pid = strconv.Itoa(tt.shellPID)
	p.notify()
	return nil
}
