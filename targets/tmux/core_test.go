package tmux

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestRefusal(t *testing.T) {
	for _, tt := range []struct {
		rule  string
		phase shellPhase
		by    origin
		line  inputLine
		want  error
	}{
		{"an idle shell is ready", phaseIdle, originPerson, inputLine{}, nil},
		{"text on the line is checked later", phaseIdle, originPerson, inputLine{content: lineText}, nil},
		{"a command of several lines is somebody's", phaseIdle, originPerson, inputLine{continued: true}, errContinued},
		{"a person's command runs", phaseRunning, originPerson, inputLine{}, errPersonRuns},
		{"a command of this process runs", phaseRunning, originOwn, inputLine{}, errRuns},
		{"a command of nobody knows whom runs", phaseRunning, originUnknown, inputLine{}, errRuns},
		{"a starting shell is not ready", phaseStart, originPerson, inputLine{}, errRuns},
		{"an unfinished prompt is not ready", phasePrompt, originPerson, inputLine{}, errRuns},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := refusal(tt.phase, tt.by, tt.line); !errors.Is(got, tt.want) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestWaitDetector(t *testing.T) {
	now := time.Now()
	lastOut := now.Add(-time.Minute)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	t.Run("a password must be waited for long enough", func(t *testing.T) {
		d := newWaitDetector()
		o := observation{state: StatePassword}
		if got := d.observe(o, lastOut, now); got != "" || d.interval != stableTime/2 {
			t.Errorf("%q, next in %v", got, d.interval)
		}
		if got := d.observe(o, lastOut, at(stableTime)); got != StatePassword {
			t.Errorf("%q", got)
		}
	})
	t.Run("a program that reads keys must be silent for longer", func(t *testing.T) {
		d := newWaitDetector()
		o := observation{state: StateInput, raw: true}
		d.observe(o, lastOut, now)
		if got := d.observe(o, lastOut, at(rawStable-1)); got != "" {
			t.Errorf("%q", got)
		}
		if got := d.observe(o, lastOut, at(rawStable)); got != StateInput {
			t.Errorf("%q", got)
		}
	})
	t.Run("output starts the time anew", func(t *testing.T) {
		d := newWaitDetector()
		o := observation{state: StateInput}
		d.observe(o, lastOut, now)
		if got := d.observe(o, at(stableTime/2), at(stableTime)); got != "" {
			t.Errorf("%q", got)
		}
	})
	t.Run("who waits for nothing is observed less and less often", func(t *testing.T) {
		d := newWaitDetector()
		for range 10 {
			if got := d.observe(observation{}, lastOut, at(time.Hour)); got != "" {
				t.Errorf("%q", got)
			}
		}
		if d.interval != quietMax {
			t.Errorf("%v", d.interval)
		}
		if d.reset(); d.interval != quietTime {
			t.Errorf("after a reset %v", d.interval)
		}
	})
}

func TestObservation(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		st     terminalState
		hooked bool
		want   observation
	}{
		{"bash that edits a line has a prompt", terminalState{shell: true}, true, observation{prompt: true}},
		{"a line without echo is a secret", terminalState{canonical: true}, true, observation{state: StatePassword}},
		{"a read of a line is input", terminalState{canonical: true, echo: true, reads: true}, true, observation{state: StateInput}},
		{"busybox polls for its own read", terminalState{canonical: true, echo: true, polls: true, group: 7, shellPID: 7}, false, observation{state: StateInput}},
		{"a program that polls works", terminalState{canonical: true, echo: true, polls: true, group: 8, shellPID: 7}, true, observation{}},
		{"single keys may be input", terminalState{}, true, observation{state: StateInput, raw: true}},
		{"what neither reads nor polls works", terminalState{canonical: true, echo: true}, true, observation{}},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			if got := tt.st.observation(tt.hooked); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestMirrorDelay(t *testing.T) {
	for _, tt := range []struct {
		rule   string
		v      mirrorView
		flight int
		want   time.Duration
	}{
		{"the first bytes of a command wait for its end", mirrorView{phase: phaseRunning}, 0, mirrorDelay},
		{"more bytes follow at once", mirrorView{phase: phaseRunning}, 1, 0},
		{"at the prompt nothing waits", mirrorView{phase: phaseIdle}, 0, 0},
		{"another driver may show it", mirrorView{phase: phaseIdle, shared: true}, 0, mirrorSharedDelay},
		{"a command of unknown origin may be the other driver's", mirrorView{phase: phaseRunning, origin: originUnknown, shared: true}, 0, mirrorSharedDelay},
		{"a command of this process is shown by it", mirrorView{phase: phaseRunning, origin: originOwn, shared: true}, 0, mirrorDelay},
		{"so is one that drains", mirrorView{phase: phaseIdle, draining: true, shared: true}, 0, 0},
		{"so is one that is about to start", mirrorView{phase: phaseIdle, unstarted: true, shared: true}, 0, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			m := mirror{flight: tt.flight}
			if got := m.delay(tt.v); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

func TestMirrorDue(t *testing.T) {
	full := bytes.Repeat([]byte("x"), frameSize*mirrorFlight*2)
	for _, tt := range []struct {
		rule string
		v    mirrorView
		m    mirror
		want int
	}{
		{"at the prompt it shows", mirrorView{phase: phaseIdle}, mirror{}, 1},
		{"not while frames are on their way", mirrorView{phase: phaseIdle}, mirror{flight: 1}, 0},
		{"not behind a line that is being typed", mirrorView{phase: phaseIdle, unstarted: true}, mirror{}, 0},
		{"not what another driver may show", mirrorView{phase: phaseIdle, shared: true}, mirror{delayed: true}, 0},
		{"a running command's is shown at once", mirrorView{phase: phaseRunning}, mirror{}, 1},
		{"unless its prompt is about to come", mirrorView{phase: phaseRunning, stderrEnded: true}, mirror{}, 0},
		{"or may be", mirrorView{phase: phaseRunning}, mirror{delayed: true}, 0},
		{"a torn relay gets nothing", mirrorView{phase: phaseRunning}, mirror{queried: true}, 0},
		{"a starting shell gets nothing", mirrorView{phase: phaseStart}, mirror{}, 0},
		{"nor does an unfinished prompt", mirrorView{phase: phasePrompt}, mirror{}, 0},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			tt.v.nonce = "0123456789abcdef"
			tt.m.queue.add([]byte("error"))
			frames := tt.m.due(tt.v)
			if len(frames) != tt.want || tt.m.queue.empty() != (tt.want > 0) {
				t.Errorf("%d frames, queue %q", len(frames), tt.m.queue.buf)
			}
		})
	}
	t.Run("only so many frames are on their way", func(t *testing.T) {
		m := mirror{flight: 3}
		m.queue.add(full)
		if n := len(m.due(mirrorView{phase: phaseRunning, nonce: "0123456789abcdef"})); n != mirrorFlight-3 || m.queue.empty() {
			t.Errorf("%d frames", n)
		}
	})
	t.Run("what did not fit is told", func(t *testing.T) {
		var q displayQueue
		q.add(make([]byte, displayMax))
		q.add([]byte("more"))
		if got := string(q.take()); !strings.Contains(got, "[4 more bytes of standard error are not shown here]") || !q.empty() {
			t.Errorf("%q", got)
		}
	})
}

func TestAPromptThatAFrameOverwroteIsShownAgainOnce(t *testing.T) {
	var m mirror
	idle := mirrorView{phase: phaseIdle}
	m.opened("i", phaseIdle)
	if m.closed(idle) {
		t.Error("after a frame with its own prompt")
	}
	m.opened("b", phaseIdle)
	if m.closed(mirrorView{phase: phaseRunning}) {
		t.Error("while a command runs")
	}
	if !m.closed(idle) || m.closed(idle) {
		t.Error("not once")
	}
}
