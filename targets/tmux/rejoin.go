package tmux

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// rejoin attaches again to a pane whose connection was lost while a command runs in
// it: tmux kept both. It returns the outcome when that is settled, and "" when there
// is a connection again and the command still runs.
func (p *Pane) rejoin(ctx context.Context, j *job) (OutcomeKind, string) {
	limit := p.s.o.Reattach
	if limit <= 0 {
		limit = defaultReattach
	}
	began := time.Now()
	p.mu.Lock()
	j.lostAt = began
	typed := j.unstarted() // its start was not seen
	// What the terminal says until it is known how the command is doing is none of
	// its output.
	p.advanceJob(j, jobContactLost)
	p.mu.Unlock()
	if j.note != nil {
		j.note("The connection was lost while the command ran; trying to get it back, for " + limit.String() + " at most.")
	}
	rctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := p.ensure(rctx)
	for err != nil && !errors.Is(err, ErrGone) && rctx.Err() == nil {
		timer := time.NewTimer(rejoinPause)
		select {
		case <-timer.C:
		case <-rctx.Done():
		}
		timer.Stop()
		err = p.ensure(rctx)
	}
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
		return Lost, fmt.Sprintf("The connection to the terminal was lost while the command ran and did not come back within %s; whether it finished is not known.", limit)
	}
	kind, notice := p.resume(ctx, j, typed, away)
	if j.note != nil {
		j.note("The connection is back.")
	}
	return kind, notice
}

// resume finds out how a job is doing after its connection was lost for a while.
func (p *Pane) resume(ctx context.Context, j *job, typed bool, away time.Duration) (OutcomeKind, string) {
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
		case t.Running && p.retake(j, lost+" while the command ran. "+unseen):
			return "", ""
		case t.Running:
			continue // it has ended just now
		case t.Unstarted && typed:
			return Lost, lost + " when the command was typed, and the shell is still at the prompt before it: it was not run."
		}
		return Lost, lost + " while the command ran, and how it ended is not known."
	}
}

// retake listens again to a job that runs. It reports false when the job has ended
// meanwhile.
func (p *Pane) retake(j *job, notice string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shell.phase != phaseRunning || p.shell.seq > j.seq || !p.advanceJob(j, jobContactRegained) {
		return false
	}
	j.notice = join(j.notice, notice)
	return true
}

// Testify says what became of a command that nobody waited for: how it ended, as
// the shell noted it, or whether it still runs. The zero Testimony means that nobody
// knows.
func (p *Pane) Testify(ctx context.Context, w Where) (Testimony, error) {
	if w.Shell == "" {
		return Testimony{}, nil
	}
	for range 2 {
		// Read before the pane is asked: what ends in between is found in the second
		// round.
		notes, err := p.s.t.FS().ReadFile(ctx, p.s.file("r-"+p.key), 1<<20)
		if err == nil {
			if code, ok := noted(string(notes), w); ok {
				return Testimony{Ended: true, Code: code}, nil
			}
		}
		if err := p.ensure(ctx); err != nil {
			return Testimony{}, err
		}
		p.mu.Lock()
		same, seq, phase := p.shell.pid == w.Shell, p.shell.seq, p.shell.phase
		p.mu.Unlock()
		switch {
		case phase == phaseRunning:
			tt, err := p.terminal(ctx)
			if err != nil {
				return Testimony{}, err
			}
			if strconv.Itoa(tt.shellPID) == w.Shell && !tt.shell {
				return Testimony{Running: true}, nil
			}
		case same && seq == w.Seq && phase == phaseIdle:
			return Testimony{Unstarted: true}, nil
		}
	}
	return Testimony{}, nil
}

// noted finds a command in the notes of its shell, lines of "shell seq code": its own
// is the next after its prompt.
func noted(notes string, w Where) (code int, ok bool) {
	for line := range strings.Lines(notes) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != w.Shell || f[1] != strconv.Itoa(w.Seq+1) {
			continue
		}
		code, err := strconv.Atoi(f[2])
		return code, err == nil
	}
	return 0, false
}
