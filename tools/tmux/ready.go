package tmux

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
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
	p.byBot, p.pristine = true, false // nobody was listening
	p.mirror = mirror{}
	p.out.part, p.err.part = nil, nil
	p.mu.Unlock()
	c.register(p.id, p)
	// Pane numbers start again with a new server, so the key decides.
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{%s}'", p.id, optKey))
	if err != nil {
		return err
	}
	if (reply{lines: lines}).first() != p.key {
		p.lost(true)
		return p.goneError()
	}
	if p.s.caps.Bash != "" {
		comp, fresh, err := p.s.findCompanion(ctx, p.key)
		if err != nil {
			p.s.log.WarnContext(ctx, "standard error will not be captured apart", slog.Any("error", err))
		}
		p.attachCompanion(comp)
		if fresh {
			p.startRelay(ctx)
		}
	}
	return p.probe(ctx)
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
	p.startRelay(ctx)
	if _, err := p.do(ctx, fmt.Sprintf("respawn-pane -k -c %s -t %%%d /bin/sh %s",
		quote(noFormat(dir)), p.id, quote(p.s.file("sh-"+p.key)))); err != nil {
		return err
	}
	if err := p.wait(ctx, startTime, func() bool { return p.phase == phaseIdle }); err != nil {
		return fmt.Errorf("the shell of the new pane does not come up: %w", err)
	}
	if err := p.locate(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	p.pristine = p.s.caps.Bash != "" && p.seq <= 1 // else somebody was faster
	p.mu.Unlock()
	p.aimMirror()
	return nil
}

// probe learns the state of a pane that was not listened to.
func (p *Pane) probe(ctx context.Context) error {
	if err := p.locate(ctx); err != nil {
		return err
	}
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d '%s'", p.id, statusFormat))
	if err != nil {
		return err
	}
	st, ok := parseStatus(reply{lines: lines}.first())
	if !ok {
		return errSilent
	}
	p.mu.Lock()
	p.phase = phaseRunning
	p.byBot = true
	p.setStatus(st)
	p.mu.Unlock()
	if st.dead || st.copyMode {
		return nil
	}
	p.aimMirror()
	tt, err := p.terminal(ctx)
	if err != nil {
		return err
	}
	if !tt.shell {
		return nil
	}
	err = p.askLine(ctx)
	if errors.Is(err, errSilent) {
		return nil // it runs something itself, so it is simply busy
	}
	return err
}

// askLine makes a shell at its prompt say what is on its line.
func (p *Pane) askLine(ctx context.Context) error {
	p.mu.Lock()
	before := p.probes
	c := p.c
	p.mu.Unlock()
	if p.s.caps.Bash == "" {
		// There is no line editor to ask: an empty line brings a new prompt.
		c.post(hexKeys(p.id, []byte("\x15\r")), nil)
		return p.wait(ctx, probeTime, func() bool { return p.phase == phaseIdle && !p.dirty })
	}
	c.post(hexKeys(p.id, []byte(keyStatus)), nil)
	return p.wait(ctx, probeTime, func() bool { return p.probes > before })
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
