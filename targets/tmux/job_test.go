package tmux

import (
	"testing"
	"time"
)

func TestJobTransitions(t *testing.T) {
	type step struct {
		from, to jobPhase
	}
	for _, tt := range []struct {
		rule string
		e    jobEvent
		want []step // from every other phase the event does nothing
	}{
		{"a line is typed once tmux says so", jobTypingConfirmed, []step{{jobSent, jobTyped}}},
		{"only a line that is not typed is refused", jobTypingRefused, []step{{jobSent, jobRefused}}},
		{"a line that its shell has cleared is refused", jobLineCleared, []step{{jobSent, jobRefused}, {jobTyped, jobRefused}}},
		{"a start before the typing is somebody else's, and one after a prompt counts", jobCommandStarted,
			[]step{{jobTyped, jobRunning}, {jobUnstarted, jobRunning}}},
		{"a prompt ends what runs, and what was typed has not started", jobCommandEnded,
			[]step{{jobTyped, jobUnstarted}, {jobRunning, jobDraining}}},
		{"an answer of the shell ends what runs", jobStatusReported, []step{{jobRunning, jobEnded}}},
		{"a shell takes along what runs, and the next one may read what was typed", jobShellExited, []step{{jobRunning, jobDraining}}},
		{"the end of standard error ends what drains", jobStderrEnded, []step{{jobDraining, jobEnded}}},
		{"what started late is not ended as unstarted", jobStartTimedOut, []step{{jobUnstarted, jobEnded}}},
		{"a lost connection does not matter to what has ended", jobContactLost,
			[]step{{jobSent, jobDetached}, {jobTyped, jobDetached}, {jobUnstarted, jobDetached}, {jobRunning, jobDetached}}},
		{"only a detached job runs again", jobContactRegained, []step{{jobDetached, jobRunning}}},
		{"notes of the shell settle a detached job", jobOutcomeFound, []step{{jobDetached, jobEnded}}},
		{"whatever has not ended can be given up", jobGivenUp, []step{
			{jobSent, jobReleased},
			{jobTyped, jobReleased},
			{jobUnstarted, jobReleased},
			{jobRunning, jobReleased},
			{jobDraining, jobReleased},
			{jobDetached, jobReleased},
		}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			want := map[jobPhase]jobPhase{}
			for _, s := range tt.want {
				want[s.from] = s.to
			}
			for from := jobSent; from <= jobReleased; from++ {
				j := job{phase: from}
				concerned := j.apply(tt.e)
				to, legal := want[from]
				if !legal {
					to = from
				}
				if concerned != legal || j.phase != to {
					t.Errorf("from %v to %v (%v), not %v", from, j.phase, concerned, to)
				}
			}
		})
	}
}

func TestAnEndedJobStaysEnded(t *testing.T) {
	for _, from := range []jobPhase{jobEnded, jobRefused, jobReleased} {
		if n := len(jobTransitions[from]); n != 0 {
			t.Errorf("%v has %d transitions", from, n)
		}
	}
}

func TestAJobIsCapturedUntilItEndsOrIsLost(t *testing.T) {
	p := &Pane{paneLink: paneLink{changed: make(chan struct{})}}
	j := newJob(Command{}, stderrApart)
	p.job = j
	for _, step := range []struct {
		e        jobEvent
		captured bool
	}{
		{jobTypingConfirmed, true},
		{jobCommandEnded, true},
		{jobCommandStarted, true},
		{jobContactLost, false},
		{jobContactRegained, true},
		{jobCommandEnded, true},
		{jobStderrEnded, false},
	} {
		if advance(p, j, step.e); (p.job == j) != step.captured {
			t.Fatalf("after %v the job is %v", step.e, j.phase)
		}
	}
	p.completeJob(j, jobStderrEnded) // its channel is closed only once
	select {
	case <-j.done:
	default:
		t.Error("the job is not done")
	}
}

// advance completes a job by the event that does, and else moves it to its next phase.
func advance(p *Pane, j *job, e jobEvent) {
	if e == jobStderrEnded {
		p.completeJob(j, e)
		return
	}
	p.advanceJob(j, e)
}

func TestAJobThatStartsLateHasNotEnded(t *testing.T) {
	j := newJob(Command{}, stderrMerged)
	j.begin = time.Now().Add(-time.Second)
	j.addEcho([]byte("echo"))
	j.finish(jobStartTimedOut, 2)
	if j.dur < time.Second || j.code != 2 {
		t.Errorf("%v, code %d", j.dur, j.code)
	}
	j.restart(5)
	if j.dur != 0 || j.seq != 5 || j.echo != nil {
		t.Errorf("%v after %d, echo %q", j.dur, j.seq, j.echo)
	}
}

func TestOnlyASeparateStandardErrorIsCutShort(t *testing.T) {
	for from, want := range map[stderrCapture]stderrCapture{stderrMerged: stderrMerged, stderrApart: stderrCutShort, stderrCutShort: stderrCutShort} {
		j := job{stderr: from}
		j.cutStderr()
		if j.stderr != want || (j.notice != "") != (from == stderrApart) {
			t.Errorf("%v became %v, %q", from, j.stderr, j.notice)
		}
	}
	for _, none := range []*job{nil, {phase: jobRunning}} {
		if none.unstarted() {
			t.Errorf("%+v waits for its start", none)
		}
	}
}
