package tmux

import (
	"context"
	"errors"
	"time"
)

const (
	// quietTime is the silence after which a running command's terminal is inspected for the
	// first time. Later inspections come at growing intervals up to quietMax.
	quietTime = 300 * time.Millisecond
	quietMax  = 5 * time.Second
	// stableTime is how long a command must wait for something before Run returns because
	// of it.
	stableTime = time.Second
	// rawStable is the same for a program that reads single keys, which cannot be
	// distinguished from one that works in silence.
	rawStable = 4 * time.Second
)

// waitDetector finds out from observations of a silent command's terminal whether the
// command waits for a person. It does no I/O.
type waitDetector struct {
	state    State     // of the last observation
	since    time.Time // when it was observed first
	interval time.Duration
}

func newWaitDetector() waitDetector { return waitDetector{interval: quietTime} }

// reset forgets the observations: the command has written something, or has not started.
func (d *waitDetector) reset() { d.state, d.interval = "", quietTime }

// observe adds an observation. It returns the state that the command has been in for long
// enough to return because of it, or "". The next observation is due after d.interval.
func (d *waitDetector) observe(o observation, lastOut, now time.Time) State {
	if o.state != d.state || lastOut.After(d.since) {
		d.state, d.since = o.state, now
	}
	stable := stableTime
	if o.raw {
		stable = rawStable
	}
	if o.state != "" && now.Sub(d.since) >= stable {
		return o.state
	}
	d.interval = min(2*d.interval, quietMax)
	if o.state != "" {
		d.interval = stableTime / 2
	}
	return ""
}

// jobView is what the pane knows of a job at one moment.
type jobView struct {
	gone, refused  bool
	conn           *conn
	changed        <-chan struct{}
	started        bool
	hookMissing    bool // the job runs, and there is a prompt
	begin, lastOut time.Time
	alternate      bool
	alternateSince time.Time
}

func (p *Pane) jobView(j *job) jobView {
	p.mu.Lock()
	defer p.mu.Unlock()
	return jobView{
		gone: p.gone, refused: j.refused != nil, conn: p.c, changed: p.changed,
		started: !j.unstarted(), hookMissing: j.in(jobRunning) && p.shell.phase == phaseIdle,
		begin: j.begin, lastOut: p.lastOut,
		alternate: p.display.alternate, alternateSince: p.display.alternateSince,
	}
}

// lost returns why nothing more can be learned of the job, or "".
func (v jobView) lost() (kind OutcomeKind, notice string) {
	switch {
	case v.refused:
		return Lost, ""
	case v.gone:
		return Lost, "The pane went away while the command ran; whether it finished is not known."
	}
	return "", ""
}

// stalled returns why further waiting is useless, or "".
func (v jobView) stalled(now time.Time) (kind OutcomeKind, notice string) {
	switch {
	case v.alternate && now.Sub(v.alternateSince) >= stableTime && now.Sub(v.begin) >= stableTime && v.started:
		// What was on the screen before the command began may have just gone.
		return Fullscreen, "The command shows a full-screen program, which waits for keys."
	case !v.started && now.Sub(v.begin) > typeTime:
		return Lost, "The command was typed, but the shell did not start it; look at the pane."
	}
	return "", ""
}

// watchJob waits until the job ends, or until there is a reason to stop waiting.
func (p *Pane) watchJob(ctx context.Context, j *job) (OutcomeKind, string) {
	due := time.NewTimer(quietTime)
	defer due.Stop()
	// An observation can take several round trips, and the end must not wait for it.
	octx, stop := context.WithCancel(ctx)
	defer stop()
	var observed chan observation // of the observation under way, or nil
	detector := newWaitDetector()
	for {
		v := p.jobView(j)
		if isClosed(j.done) {
			return Exited, ""
		}
		if kind, notice := v.lost(); kind != "" {
			return kind, notice
		}
		if !v.conn.serves(p.session) {
			if kind, notice := p.reattach(ctx, j); kind != "" {
				return kind, notice
			}
			continue
		}
		if kind, notice := v.stalled(time.Now()); kind != "" {
			return kind, notice
		}
		if v.hookMissing && p.s.caps.Bash != "" && p.lease.held() {
			// There is a prompt, but no end: the command has removed the hook.
			if p.queryStatus(ctx) == nil {
				continue
			}
		}
		select {
		case <-j.done:
			return Exited, ""
		case <-v.changed:
			if v.alternate != p.alternate() {
				detector.interval = quietTime
				due.Reset(stableTime)
			}
		case <-v.conn.dead:
		case <-ctx.Done():
			// What is typed and has not begun would begin behind an interrupt that finds the
			// pane at its prompt.
			_ = p.wait(context.WithoutCancel(ctx), typeTime, func() bool { return !j.in(jobSent, jobTyped) })
			return contextOutcome(ctx, j)
		case <-due.C:
			if observed != nil {
				continue // its end sets the timer again
			}
			if quiet := time.Since(v.lastOut); v.started && quiet < quietTime {
				detector.reset()
				due.Reset(max(quietTime-quiet, 10*time.Millisecond))
				continue
			}
			observed = p.observeJob(octx, v.started)
		case o := <-observed:
			observed = nil
			if o.prompt && p.lease.held() {
				_ = p.queryStatus(ctx) // a prompt without its mark; the question restores the hook
			}
			if !v.started {
				detector.reset()
				due.Reset(quietTime)
				continue
			}
			switch detector.observe(o, v.lastOut, time.Now()) {
			case "":
				due.Reset(detector.interval)
			case StatePassword:
				return WaitingPassword, "The command asks for a password or another secret."
			default:
				return WaitingInput, "The command waits for input."
			}
		}
	}
}

// contextOutcome is the outcome of a job that ran when ctx ended.
func contextOutcome(ctx context.Context, j *job) (OutcomeKind, string) {
	switch {
	case isClosed(j.done):
		return Exited, ""
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return TimedOut, "The command still runs in the pane."
	default:
		return Cancelled, "The command still runs in the pane."
	}
}

// observeJob observes a silent command in a goroutine that ends by itself, or with ctx. It
// asks for the pane's status, and once the command has started observes its terminal.
func (p *Pane) observeJob(ctx context.Context, started bool) chan observation {
	got := make(chan observation, 1)
	go func() {
		_ = p.refresh(ctx) // a failure is noticed in the next round
		if !started {
			got <- observation{}
			return
		}
		got <- p.currentDevice().observe(ctx)
	}()
	return got
}

func (p *Pane) alternate() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.display.alternate
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
