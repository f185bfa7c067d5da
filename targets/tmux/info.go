package tmux

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"countersign/targets/backend"
)

// Info returns what the pane is doing now.
func (p *Pane) Info(ctx context.Context) (Info, error) {
	end, err := p.use(ctx)
	if err != nil {
		return Info{}, err
	}
	defer end()
	if i, ok := p.recentInfo(ctx); ok {
		return i, nil
	}
	lines, err := p.do(ctx, fmt.Sprintf("display-message -p -t %%%d "+
		"'%s|#{pane_width}|#{pane_height}|#{pane_current_command}|#{pane_current_path}'", p.id, statusFormat))
	if err != nil {
		return Info{}, err
	}
	f := strings.SplitN(reply{lines: lines}.first(), "|", 5)
	st, ok := parseStatus(f[0])
	if !ok || len(f) != 5 {
		return Info{}, errSilent
	}
	i := Info{Program: f[3], Dir: f[4], Alternate: st.alternate, CopyMode: st.copyMode}
	i.Width, _ = strconv.Atoi(f[1])
	i.Height, _ = strconv.Atoi(f[2])
	p.mu.Lock()
	if st != p.display.paneStatus && !st.dead {
		p.setStatus(st)
	}
	phase, origin, quiet := p.shell.phase, p.origins.current, time.Since(p.lastOut)
	if phase == phaseIdle {
		i.Dir = p.shell.dir
		i.Fresh = p.s.caps.Bash != "" && p.shell.seq == firstPrompt && !p.line.hasText() && !p.line.continued
	}
	p.mu.Unlock()
	switch {
	case st.dead:
		i.State = StateDead
	case phase == phaseIdle || phase == phasePrompt:
		i.State = StateIdle
	case st.alternate:
		i.State = StateFullscreen
	case origin == originPerson && phase == phaseRunning:
		i.State = StateHuman
	default:
		i.State = StateRunning
		if phase == phaseRunning && quiet >= quietTime {
			o := p.currentDevice().observe(ctx)
			if o.prompt && p.lease.held() {
				_ = p.queryStatus(ctx) // which restores the hook
			}
			if o.state != "" && (!o.raw || quiet >= rawStable) {
				i.State = o.state
			}
		}
	}
	p.mu.Lock()
	p.lastInfo, p.lastInfoAt = i, time.Now()
	p.mu.Unlock()
	return i, nil
}

// Prompt returns the directory of a shell that shows its prompt, as the shell named it there; it
// asks nobody. ok is false while anything else may be in front, and for a pane that this process
// does not drive.
func (p *Pane) Prompt() (dir string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shell.dir, !p.gone && p.c.serves(p.session) && p.lease.held() && p.shell.phase == phaseIdle && p.shell.dir != ""
}

// acceptRecent is the key of a context under which Info may repeat what it said.
type acceptRecent struct{}

// AcceptRecent returns a context under which [Pane.Info] may say what it said within
// backend.Recent, if the pane has shown nothing since.
func AcceptRecent(ctx context.Context) context.Context {
	return context.WithValue(ctx, acceptRecent{}, true)
}

// recentInfo returns what Info said last, if that is accepted.
func (p *Pane) recentInfo(ctx context.Context) (Info, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ok := ctx.Value(acceptRecent{}) != nil && time.Since(p.lastInfoAt) < backend.Recent && p.lastOut.Before(p.lastInfoAt)
	return p.lastInfo, ok
}

// Interrupt ends the command that runs in the pane and brings the prompt back within five
// seconds: by C-c, then SIGTERM and SIGKILL to the foreground process group, and a new
// shell if the shell itself does not react. At the prompt it does nothing. Only the pane's
// driver can.
func (p *Pane) Interrupt(ctx context.Context) error {
	end, err := p.use(ctx)
	if err != nil {
		return err
	}
	defer end()
	if !p.lease.held() {
		return ErrDriven
	}
	idle := func() bool { return p.shell.phase == phaseIdle }
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for i, step := range []struct {
		signal string
		wait   time.Duration
	}{{"", time.Second}, {"TERM", time.Second}, {"KILL", 500 * time.Millisecond}, {"KILL", 500 * time.Millisecond}, {"KILL", 500 * time.Millisecond}} {
		p.mu.Lock()
		done := idle() && !p.line.continued
		if !done { // tmux refuses it in copy mode, which it would end
			p.press([]byte{3}, p.lease.blocked, func(error) {}) // a refusal is noticed below
		}
		p.mu.Unlock()
		if done {
			if i > 0 { // it has just ended
				p.interrupted(ctx)
			}
			return nil
		}
		if step.signal != "" {
			p.currentDevice().signal(ctx, step.signal)
		}
		err := p.wait(ctx, step.wait, func() bool { return idle() && !p.line.continued || !p.lease.held() })
		switch {
		case !p.lease.held():
			return ErrDriven
		case err == nil:
			p.interrupted(ctx)
			return nil
		case ctx.Err() != nil || p.isGone():
			return err
		}
	}
	// The shell itself does not react.
	p.currentDevice().killShell(ctx)
	return p.wait(ctx, startTime, func() bool { return idle() && !p.line.continued })
}

// interrupted is called when C-c was pressed and the shell is at its prompt. A C-c that the
// prompt overtook would interrupt the next command: the shell answers when it has read it.
func (p *Pane) interrupted(ctx context.Context) {
	p.killOrphans(ctx)
	if p.s.caps.Bash != "" {
		_ = p.queryStatus(ctx) // one that does not answer is found busy by the next command
	}
}
