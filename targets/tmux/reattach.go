package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// defaultReattach is how long a lost connection is retried, and reattachPause the pause
	// between two attempts.
	defaultReattach = 45 * time.Second
	reattachPause   = 500 * time.Millisecond
)

// reattach attaches again to a pane whose connection was lost while a command runs in it:
// tmux kept both. It returns the outcome if that is settled, and "" if there is a connection
// again and the command still runs.
func (p *Pane) reattach(ctx context.Context, j *job) (OutcomeKind, string) {
	limit := p.s.o.Reattach
	if limit <= 0 {
		limit = defaultReattach
	}
	began := time.Now()
	p.mu.Lock()
	j.lostAt = began
	unstarted := j.unstarted()
	// Until it is known how the command is doing, what the terminal shows is not its output.
	p.advanceJob(j, jobContactLost)
	p.mu.Unlock()
	if j.note != nil {
		j.note("The connection was lost while the command ran; trying to get it back, for " + limit.String() + " at most.")
	}
	err := p.retryEnsure(ctx, limit)
	away := time.Since(began).Round(100 * time.Millisecond)
	switch {
	case errors.Is(err, ErrGone):
		return Lost, "The pane was gone when the connection came back; whether the command finished is not known."
	case err != nil && ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return TimedOut, "The connection was lost while the command ran, and is not back; whether it finished is not known."
		}
		return Cancelled, "The connection was lost while the command ran, and is not back; whether it finished is not known."
	case err != nil:
		return Lost, fmt.Sprintf("The connection to the terminal was lost while the command ran and did not come back within %s; "+
			"whether it finished is not known.", limit)
	}
	kind, notice := p.recoverJob(ctx, j, unstarted, away)
	if j.note != nil {
		j.note("The connection is back.")
	}
	return kind, notice
}

// retryEnsure calls ensure until it succeeds, the pane is gone, or limit is over.
func (p *Pane) retryEnsure(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := p.ensure(ctx)
	for err != nil && !errors.Is(err, ErrGone) && ctx.Err() == nil {
		timer := time.NewTimer(reattachPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		err = p.ensure(ctx)
	}
	return err
}

// recoverJob finds out how a job is doing after its connection was lost for a while.
// unstarted means that its start had not been seen before. It never types the command again.
func (p *Pane) recoverJob(ctx context.Context, j *job, unstarted bool, away time.Duration) (OutcomeKind, string) {
	const unseen = "What the command printed meanwhile is on the screen, and not in the output."
	lost := "The connection was lost for " + away.String()
	for {
		t, err := p.Testify(ctx, j.where)
		switch {
		case err != nil:
			return Lost, lost + " while the command ran, and how it ended is not known."
		case t.Ended:
			p.mu.Lock()
			if p.advanceJob(j, jobOutcomeFound) { // else its end was seen before
				j.finish(jobOutcomeFound, t.Code)
			}
			p.mu.Unlock()
			return Exited, lost + " while the command ran; the shell says how it ended. " + unseen
		case t.Refused:
			p.refuseJob(j, ErrChanged)
			return Lost, ""
		case t.Running && p.resumeCapture(j, lost+" while the command ran. "+unseen):
			return "", ""
		case t.Running:
			continue // it has ended just now
		case t.Unstarted && unstarted:
			return Lost, lost + " when the command was typed, and the shell is still at the prompt before it: it was not run."
		}
		return Lost, lost + " while the command ran, and how it ended is not known."
	}
}

// resumeCapture captures again the output of a job that runs. It reports false if the job
// has ended meanwhile.
func (p *Pane) resumeCapture(j *job, notice string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shell.phase != phaseRunning || p.shell.seq > j.seq || !p.advanceJob(j, jobContactRegained) {
		return false
	}
	j.notice = join(j.notice, notice)
	return true
}

// Testify finds out what became of a command that nobody waited for: how it ended, as the
// shell recorded it, or whether it still runs. The zero Testimony means that it is not known.
func (p *Pane) Testify(ctx context.Context, w Where) (Testimony, error) {
	if w.Shell == "" {
		return Testimony{}, nil
	}
	defer p.s.use(p.session)()
	for range 2 {
		// Read before the pane is asked: what ends in between is found in the second round.
		records, err := p.s.t.FS().ReadFile(ctx, p.s.file("r-"+p.key), 1<<20)
		if err == nil {
			if t := findEnd(string(records), w); t.Ended || t.Refused {
				return t, nil
			}
		}
		if err := p.ensure(ctx); err != nil {
			return Testimony{}, err
		}
		p.mu.Lock()
		same, seq, phase, ran := p.shell.pid == w.Shell, p.shell.seq, p.shell.phase, p.shell.lastRun
		p.mu.Unlock()
		switch {
		case phase == phaseRunning:
			st, err := p.currentDevice().state(ctx)
			if err != nil {
				return Testimony{}, err
			}
			if strconv.Itoa(st.shellPID) == w.Shell && !st.shell {
				return Testimony{Running: true}, nil
			}
		case same && seq == w.Seq && phase == phaseIdle:
			return Testimony{Unstarted: true}, nil
		case same && phase == phaseIdle && p.s.caps.Bash == "" && ran != unknownPrompt && ran < w.Seq:
			// An empty line has brought a new prompt there.
			return Testimony{Unstarted: true}, nil
		}
	}
	return Testimony{}, nil
}

// findEnd finds a command in the records of the shells, lines of "shell seq code time"; older
// shells write no time. The command's own is that of the next prompt.
func findEnd(records string, w Where) (t Testimony) {
	for line := range strings.Lines(records) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f) > 4 || f[0] != w.Shell || f[1] != strconv.Itoa(w.Seq+1) {
			continue
		}
		code, err := strconv.Atoi(f[2])
		if f[2] == "-" {
			return Testimony{Refused: true}
		}
		if err != nil {
			return Testimony{}
		}
		t = Testimony{Ended: true, Code: code}
		if len(f) == 4 {
			if at, err := strconv.ParseInt(f[3], 10, 64); err == nil {
				t.At = time.Unix(at, 0)
			}
		}
		return t
	}
	return Testimony{}
}
