package tmux

import (
	"fmt"
	"time"
)

const (
	// mirrorFlight is how many frames are on their way at a time.
	mirrorFlight = 16
	// mirrorDelay is how long the first bytes wait for the end of the command.
	mirrorDelay = 15 * time.Millisecond
	// mirrorSharedDelay is how long bytes wait that come while no command of this process
	// runs, where several processes share the panes: a new driver may have caused them,
	// and shows them itself. This process learns of a new driver within a second.
	mirrorSharedDelay = 1500 * time.Millisecond
)

// mirror shows standard error in the visible pane. Pane.mu guards it.
type mirror struct {
	incoming incoming // frames that come back in the visible stream
	queue    displayQueue
	flight   int         // frames on their way
	gen      int         // counts resets; what started under an older one is void
	delayed  bool        // a timer will flush the queue
	overlap  bool        // a frame for a running command came in behind the prompt
	filter   queryFilter // of what is added
	// queried means that a program sent the error terminal a query. The terminal's answer
	// went into the relay, whose frames are torn from there on.
	queried bool
}

func (m *mirror) reset() { *m = mirror{gen: m.gen + 1} }

// idle reports whether everything has been shown.
func (m *mirror) idle() bool { return m.flight == 0 && m.queue.empty() }

// add queues bytes of standard error.
func (m *mirror) add(b []byte) {
	shown, queried := m.filter.strip(b)
	m.queried = m.queried || queried
	m.queue.add(shown)
}

// mirrorView is what decides when and how the mirror shows its queue.
type mirrorView struct {
	phase       shellPhase
	origin      origin // of the command that runs
	unstarted   bool   // a job has been typed and has not started
	draining    bool   // a job has ended, and some of its standard error has not come
	stderrEnded bool   // a job runs whose standard error has ended: the prompt is about to come
	shared      bool   // other processes may drive the pane
	nonce       string
	prompt      []byte
}

// delay is how long bytes that have just come wait before they are shown.
func (m *mirror) delay(v mirrorView) time.Duration {
	ours := v.unstarted || v.draining || v.origin == originOwn && v.phase == phaseRunning
	switch {
	case v.shared && !ours:
		return mirrorSharedDelay
	case v.phase != phaseRunning || m.flight > 0:
		return 0
	default:
		return mirrorDelay
	}
}

// due removes from the queue what can be shown now, and returns it as frames.
func (m *mirror) due(v mirrorView) (frames [][]byte) {
	if m.queue.empty() || m.queried {
		return nil
	}
	switch v.phase {
	case phaseIdle:
		uncertain := m.delayed && v.shared
		if v.unstarted || m.flight > 0 || uncertain {
			return nil
		}
		return idleFrames(v.nonce, erasePrompt(m.queue.take()), v.prompt)
	case phaseRunning:
		if m.delayed || v.stderrEnded {
			return nil
		}
		for m.flight+len(frames) < mirrorFlight && !m.queue.empty() {
			var cut []byte
			cut, m.queue.buf = cutFrame(m.queue.buf, frameRoom(v.nonce))
			frames = append(frames, encodeFrame(v.nonce, "M;b", withoutNUL(cut)))
			if m.queue.empty() {
				m.queue.buf = m.queue.take()
			}
		}
	case phaseStart, phasePrompt:
	}
	return frames
}

// opened handles the opening mark of a frame in the visible stream.
func (m *mirror) opened(kind string, phase shellPhase) {
	m.incoming.open = true
	m.overlap = m.overlap || kind == "b" && phase == phaseIdle
}

// closed handles the closing mark of a frame, and reports whether the prompt must be shown
// again below it.
func (m *mirror) closed(v mirrorView) bool {
	m.incoming.close()
	if !m.overlap || v.phase != phaseIdle || v.unstarted || !m.queue.empty() {
		return false
	}
	m.overlap = false
	return true
}

// mirrorView returns the present view. The caller holds mu.
func (p *Pane) mirrorView() mirrorView {
	return mirrorView{
		phase: p.shell.phase, origin: p.origins.current,
		unstarted: p.job.unstarted(), draining: p.job.in(jobDraining),
		stderrEnded: p.job.in(jobRunning) && p.job.stderr != stderrMerged && p.stderr.ended(p.job),
		shared:      p.s.shared.Load(), nonce: p.nonce, prompt: p.shell.prompt,
	}
}

// mirrorError shows bytes of standard error, now or soon. The caller holds mu.
func (p *Pane) mirrorError(b []byte) {
	m := &p.stderr.mirror
	m.add(b)
	if limit := m.delay(p.mirrorView()); limit > 0 {
		p.delayMirror(limit)
		return
	}
	p.flushMirror()
}

// delayMirror flushes the mirror a moment later: most commands end right after an error
// message, which then is shown above the prompt instead of behind it. The caller holds mu.
func (p *Pane) delayMirror(limit time.Duration) {
	m := &p.stderr.mirror
	if m.delayed {
		return
	}
	m.delayed = true
	gen := m.gen
	time.AfterFunc(limit, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if m.gen == gen {
			m.delayed = false
			p.flushMirror()
		}
	})
}

// flushMirror sends what waits to be shown, as far as possible now. The caller holds mu.
func (p *Pane) flushMirror() {
	if p.stderr.companion != nil && p.device.tty != "" {
		p.sendFrames(p.stderr.mirror.due(p.mirrorView()))
	}
}

// setMirrorTarget tells the relay which terminal is the visible one.
func (p *Pane) setMirrorTarget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stderr.companion == nil || p.device.tty == "" || !p.lease.held() {
		return
	}
	p.sendFrames([][]byte{encodeFrame(p.nonce, "T;"+p.device.tty+";", nil)})
}

// sendFrames types frames into the companion. The caller holds mu.
func (p *Pane) sendFrames(frames [][]byte) {
	m, comp := &p.stderr.mirror, p.stderr.companion
	gen := m.gen
	sent := func(r reply) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if m.gen != gen {
			return
		}
		m.flight--
		if r.err == nil {
			p.flushMirror()
		}
		p.notify()
	}
	for _, f := range frames {
		m.flight++
		buffer := fmt.Sprintf("f%d-%s", comp.id, p.s.token)
		comp.c.post(fmt.Sprintf("set-buffer -b %s %s", buffer, quote(string(f))), nil)
		comp.c.post(fmt.Sprintf("paste-buffer -d -r -b %s -t %%%d", buffer, comp.id), sent)
	}
}

// onMirror handles the marks around a frame in the visible stream. The caller holds mu.
func (p *Pane) onMirror(args string) {
	m := &p.stderr.mirror
	if args == "b" || args == "i" {
		m.opened(args, p.shell.phase)
		return
	}
	if p.stderr.companion == nil || !p.lease.held() {
		m.incoming.close()
		return
	}
	if v := p.mirrorView(); m.closed(v) {
		p.sendFrames(idleFrames(v.nonce, nil, v.prompt))
	}
}
