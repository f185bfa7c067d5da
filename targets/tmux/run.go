package tmux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// settleTime is how long typing waits for a prompt that has begun to come.
	settleTime = 500 * time.Millisecond
	// typeTime bounds the time between typing and start.
	typeTime = 10 * time.Second
)

// Run types a command at the pane's prompt and waits for its end. The end of ctx ends the
// waiting only: the command goes on in the pane, and Interrupt ends it. Run returns an error
// when the command was not typed: a *StateError when the pane is not at its prompt, ErrGone
// when there is no such pane any more.
func (p *Pane) Run(ctx context.Context, c Command) (Outcome, error) {
	release, err := p.acquire()
	if err != nil {
		return Outcome{}, err
	}
	defer release()
	defer p.s.use(p.session)()
	notice, err := p.prepare(ctx)
	if err != nil {
		return Outcome{}, err
	}
	p.ensureCompanion(ctx)
	p.mu.Lock()
	apart := p.stderr.separate()
	p.mu.Unlock()
	stderr := stderrMerged
	if apart && !p.unhidden && !readsKeys(c.Text) {
		stderr = stderrApart
	}
	j, err := p.typeCommand(ctx, c, stderr)
	if err != nil {
		return Outcome{}, err
	}
	o, err := p.awaitJob(ctx, j)
	o.Notice = join(notice, o.Notice)
	return o, err
}

// Dispatch types a command and returns when it has started. Its streams are not redirected
// and not captured: it is meant for what people watch, or for what runs for long. Output is
// ignored.
func (p *Pane) Dispatch(ctx context.Context, c Command) error {
	release, err := p.acquire()
	if err != nil {
		return err
	}
	defer release()
	defer p.s.use(p.session)()
	if _, err := p.prepare(ctx); err != nil {
		return err
	}
	j, err := p.typeCommand(ctx, Command{Text: c.Text, State: c.State, Keep: 1024, Before: c.Before}, stderrMerged)
	if err != nil {
		return err
	}
	defer p.releaseJob(j)
	if err := p.wait(ctx, typeTime, func() bool { return !j.in(jobSent, jobTyped) }); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return j.refused
}

func join(a, b string) string { return strings.TrimSpace(a + " " + b) }

// typeCommand types a command. Before it does, the caller learns where the command will be
// found again.
func (p *Pane) typeCommand(ctx context.Context, c Command, stderr stderrCapture) (*job, error) {
	keys, err := p.compose(ctx, c, stderr)
	if err != nil {
		return nil, err
	}
	j := newJob(c, stderr)
	p.mu.Lock()
	p.history.typed(c.Text)
	j.where = Where{Shell: p.shell.pid, Seq: p.shell.seq, Prompt: plainPrompt(p.shell.prompt), Apart: stderr == stderrApart, Records: p.s.file("r-" + p.key)}
	p.mu.Unlock()
	if c.Before != nil {
		if err := c.Before(j.where); err != nil {
			return nil, err
		}
	}
	return j, p.typeLine(ctx, j, keys)
}

// typeLine presses the keys that run j at the prompt. The first one clears what a person
// typed at the last moment.
func (p *Pane) typeLine(ctx context.Context, j *job, keys string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// The prompt may still be on its way, after an empty line of our own.
	_ = p.wait(ctx, settleTime, func() bool { return p.shell.phase == phaseIdle })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.lease.held() {
		return ErrDriven
	}
	if p.shell.phase != phaseIdle {
		return stateError(StateHuman, "Somebody has just started a command in the pane; wait until it ends, or use another pane.")
	}
	j.seq, j.shellEnds = p.shell.seq, p.stderr.shellEnds
	p.job = j
	p.press([]byte(keys), p.lease.blockedForBot, func(err error) {
		defer close(j.answered)
		switch {
		case err == nil:
			p.mu.Lock()
			p.advanceJob(j, jobTypingConfirmed)
			p.mu.Unlock()
		case !errors.Is(err, errConn):
			p.refuseJob(j, err)
		}
	})
	return nil
}

// awaitJob waits for a typed job and returns its outcome.
func (p *Pane) awaitJob(ctx context.Context, j *job) (Outcome, error) {
	kind, notice := p.watchJob(ctx, j)
	if kind == Lost {
		// Whether it was typed at all is on its way, or never comes.
		timer := time.NewTimer(probeTime)
		select {
		case <-j.answered:
		case <-timer.C:
		}
		timer.Stop()
	}
	p.mu.Lock()
	refused := j.refused
	p.mu.Unlock()
	if refused != nil {
		return Outcome{}, refused
	}
	p.releaseJob(j)
	o := p.outcome(j)
	o.Kind = kind
	o.Notice = join(notice, o.Notice)
	if kind == Exited {
		p.explainShellExit(ctx, j, &o)
	}
	if kind != Exited || !j.lostAt.IsZero() {
		o.Screen = p.screenText(ctx)
	}
	return o, nil
}

func (p *Pane) outcome(j *job) Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Outcome{
		Kind: Exited, Code: j.code, Stdout: j.out.captured(), Stderr: j.err.captured(),
		Split: j.stderr != stderrMerged, Dir: p.shell.dir, Duration: cmp.Or(j.dur, time.Since(j.begin)),
		Notice: j.notice, Where: j.where,
	}
}

const newShell = "a new one was started in the pane's first directory, without the variables and functions of the old one."

// explainShellExit completes the outcome of a job that ended with its shell.
func (p *Pane) explainShellExit(ctx context.Context, j *job, o *Outcome) {
	p.mu.Lock()
	exited := j.endedBy == jobShellExited
	if exited {
		p.shell.restarted = false // reported here
	}
	p.mu.Unlock()
	if !exited {
		return
	}
	_ = p.wait(context.WithoutCancel(ctx), probeTime, func() bool { return p.shell.phase == phaseIdle })
	p.mu.Lock()
	o.Dir = p.shell.dir
	p.mu.Unlock()
	// Shells report a signal as 128 and its number. A command that exits with such a code by
	// itself is rare.
	if n := o.Code - 128; n == 1 || n == 6 || n == 9 || n == 11 || n == 15 {
		o.Kind = Lost
		o.Notice = join(o.Notice, fmt.Sprintf("The pane's shell was killed by signal %d while the command ran; "+
			"whether the command finished is not known; %s", n, newShell))
		return
	}
	o.Notice = join(o.Notice, fmt.Sprintf("The command ended the pane's shell itself, with exit code %d; %s", o.Code, newShell))
}
