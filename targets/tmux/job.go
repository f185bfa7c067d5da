package tmux

import (
	"bytes"
	"slices"
	"time"
)

// jobPhase is how far a job has come.
type jobPhase int

const (
	jobSent      jobPhase = iota // sent to tmux to be typed; a command that starts now is not the job
	jobTyped                     // tmux has typed it
	jobUnstarted                 // a prompt came instead of its start, which may still come
	jobRunning
	jobDraining // it has ended, and the rest of its standard error is awaited
	jobDetached // the connection was lost, and its state is unknown
	jobEnded
	jobRefused  // it was not typed
	jobReleased // the caller waits no longer
)

func (p jobPhase) String() string {
	return [...]string{"sent", "typed", "unstarted", "running", "draining", "detached", "ended", "refused", "released"}[p]
}

// captured reports whether the pane's output belongs to a job in this phase.
func (p jobPhase) captured() bool { return p <= jobDraining }

// jobEvent is what is learned of a job.
type jobEvent int

const (
	jobTypingConfirmed jobEvent = iota // by tmux
	jobTypingRefused                   // by tmux: it will never be typed
	jobLineCleared                     // mark V: the shell will never run it
	jobCommandStarted                  // mark C
	jobCommandEnded                    // mark D
	jobStatusReported                  // mark S: only a prompt answers
	jobShellExited                     // mark X
	jobStderrEnded                     // nothing more of standard error comes
	jobStartTimedOut                   // its start did not come soon after a prompt
	jobContactLost
	jobContactRegained // and it still runs
	jobResumed         // it runs, and was typed before
	jobOutcomeFound    // in the records of the shell
	jobGivenUp         // the caller waits no longer
)

func (e jobEvent) String() string {
	return [...]string{
		"typing confirmed", "typing refused", "line cleared", "command started", "command ended", "status reported", "shell exited",
		"stderr ended", "start timed out", "contact lost", "contact regained", "resumed", "outcome found", "given up",
	}[e]
}

// jobTransitions holds every transition. An event that has none does not concern the job:
// marks are those of anybody's commands, and timers can come late.
var jobTransitions = map[jobPhase]map[jobEvent]jobPhase{
	jobSent: {
		jobTypingConfirmed: jobTyped, jobTypingRefused: jobRefused, jobLineCleared: jobRefused, jobResumed: jobRunning,
		jobContactLost: jobDetached, jobGivenUp: jobReleased,
	},
	jobTyped: {
		jobCommandStarted: jobRunning, jobCommandEnded: jobUnstarted, jobLineCleared: jobRefused,
		jobContactLost: jobDetached, jobGivenUp: jobReleased,
	},
	jobUnstarted: {
		jobCommandStarted: jobRunning, jobStartTimedOut: jobEnded,
		jobContactLost: jobDetached, jobGivenUp: jobReleased,
	},
	jobRunning: {
		jobCommandEnded: jobDraining, jobShellExited: jobDraining, jobStatusReported: jobEnded,
		jobContactLost: jobDetached, jobGivenUp: jobReleased,
	},
	jobDraining: {jobStderrEnded: jobEnded, jobGivenUp: jobReleased},
	jobDetached: {jobContactRegained: jobRunning, jobOutcomeFound: jobEnded, jobGivenUp: jobReleased},
}

// stderrCapture is how a job's standard error is captured.
type stderrCapture int

const (
	stderrMerged   stderrCapture = iota // with standard output
	stderrApart                         // by the companion
	stderrCutShort                      // by the companion, until it was given up
)

// job is one command that was typed. Pane.mu guards it.
type job struct {
	phase     jobPhase
	done      chan struct{} // closed at its end
	answered  chan struct{} // closed when tmux has answered to the typing
	refused   error         // why it was not typed
	seq       int           // of the prompt before it
	shellEnds int           // how many shells had ended on the companion before it
	where     Where
	begin     time.Time
	lostAt    time.Time // when the connection was lost last; zero if it never was
	resumed   bool      // typed before; see Resume

	echo   []byte // what came between its typing and its start
	stderr stderrCapture
	conv   unCRLF
	out    *collector
	err    *collector
	emit   func(Stream, []byte)
	note   func(string)

	endedBy jobEvent
	code    int
	dur     time.Duration // 0 before its end
	notice  string
}

func newJob(c Command, stderr stderrCapture) *job {
	emit := c.Output
	if emit == nil {
		emit = func(Stream, []byte) {}
	}
	return &job{
		done: make(chan struct{}), answered: make(chan struct{}), begin: time.Now(), stderr: stderr,
		out: newCollector(c.Keep), err: newCollector(c.Keep), emit: emit, note: c.Note,
	}
}

// in reports whether j is a job in one of the phases; nil is in none.
func (j *job) in(phases ...jobPhase) bool { return j != nil && slices.Contains(phases, j.phase) }

// unstarted reports whether j is a job whose start has not been seen.
func (j *job) unstarted() bool { return j.in(jobSent, jobTyped, jobUnstarted) }

// apply moves the job to the phase that follows the event. It reports false, and changes
// nothing, if the event does not concern the job.
func (j *job) apply(e jobEvent) bool {
	next, ok := jobTransitions[j.phase][e]
	if ok {
		j.phase = next
	}
	return ok
}

// addOut adds bytes of standard output.
func (j *job) addOut(b []byte) {
	if len(b) > 0 {
		j.out.add(b)
		j.emit(Out, b)
	}
}

// addOutput adds what the terminal shows while the job runs.
func (j *job) addOutput(b []byte) { j.addOut(j.conv.convert(b)) }

// addErr adds bytes of standard error.
func (j *job) addErr(b []byte) {
	if len(b) > 0 {
		j.err.add(b)
		j.emit(Err, b)
	}
}

// addEcho adds what the terminal shows between the typing and the start.
func (j *job) addEcho(b []byte) {
	if len(j.echo)+len(b) <= echoMax {
		j.echo = append(j.echo, b...)
	}
}

// finish records the end of the command.
func (j *job) finish(by jobEvent, code int) {
	j.endedBy, j.code, j.dur = by, code, time.Since(j.begin)
}

// restart drops an end that was not the job's own: it starts after the prompt seq.
func (j *job) restart(seq int) {
	j.seq, j.dur, j.echo, j.conv = seq, 0, nil, unCRLF{}
}

// cutStderr records that the rest of standard error is not received.
func (j *job) cutStderr() {
	if j.stderr == stderrApart {
		j.stderr = stderrCutShort
		j.notice = join(j.notice, "The end of standard error could not be seen; some of it may be missing.")
	}
}

// advanceJob moves a job to the phase that follows the event, and reports whether the event
// concerned it. The caller holds mu.
func (p *Pane) advanceJob(j *job, e jobEvent) bool {
	if j == nil || !j.apply(e) {
		return false
	}
	switch {
	case j.phase.captured():
		p.job = j
	case p.job == j:
		p.job = nil
	}
	return true
}

// completeJob ends the waiting for a job if the event ends the job. It does so once. The
// caller holds mu.
func (p *Pane) completeJob(j *job, e jobEvent) {
	if p.advanceJob(j, e) {
		close(j.done)
		p.notify()
	}
}

// drainJob records the end of a job, and completes it once its standard error has ended as
// well. The caller holds mu.
func (p *Pane) drainJob(j *job, by jobEvent, code int) {
	j.addOut(j.conv.flush())
	j.finish(by, code)
	if p.stderr.ended(j) {
		p.completeJob(j, jobStderrEnded)
		return
	}
	time.AfterFunc(endTime, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !j.in(jobDraining) {
			return
		}
		p.discardCompanion("the end mark of standard error is missing") // which completes the job
		j.cutStderr()
		p.completeJob(j, jobStderrEnded)
	})
}

// awaitStart completes a job that does not start soon after a prompt: the shell refused it,
// for example for a syntax error. The caller holds mu.
func (p *Pane) awaitStart(j *job, code int) {
	j.finish(jobStartTimedOut, code)
	time.AfterFunc(lateStart, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !j.in(jobUnstarted) {
			return
		}
		// After the echo of the line comes the shell's message.
		if _, rest, ok := bytes.Cut(j.echo, []byte("\n")); ok {
			rest = bytes.TrimPrefix(rest, []byte("\x1b[?2004l\r"))
			j.addOutput(rest)
		}
		j.notice = "The shell did not start the command."
		p.completeJob(j, jobStartTimedOut)
	})
}

// refuseJob records that a job's line was not typed.
func (p *Pane) refuseJob(j *job, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.refused = why
	p.advanceJob(j, jobTypingRefused)
	p.notify()
}

// releaseJob stops the capture of a job that goes on by itself.
func (p *Pane) releaseJob(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unstarted := j.unstarted()
	if p.advanceJob(j, jobGivenUp) && unstarted {
		p.origins.claimNext() // its start is still to come
	}
}
