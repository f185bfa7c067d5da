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

// mirrorError shows bytes of standard error, now or soon. The caller holds mu.
func (p *Pane) mirrorError(b []byte) {
	m := &p.stderr.mirror
	m.add(b)
	switch {
	case p.s.shared.Load() && !p.job.unstarted() && !p.job.in(jobDraining) && (p.origins.current != originOwn || p.shell.phase != phaseRunning):
		p.delayMirror(mirrorSharedDelay)
	case p.shell.phase != phaseRunning || m.flight > 0:
		p.flushMirror()
	default:
		p.delayMirror(mirrorDelay)
	}
}

// flushMirror sends what waits to be shown, as far as possible now. The caller holds mu.
func (p *Pane) flushMirror() {
	m := &p.stderr.mirror
	if p.stderr.companion == nil || p.tty == "" || m.queue.empty() || m.queried {
		return
	}
	switch p.shell.phase {
	case phaseIdle:
		uncertain := m.delayed && p.s.shared.Load()
		if !p.job.unstarted() && m.flight == 0 && !uncertain {
			// The prompt is there already: erase it, and show it again below.
			p.showIdle(append([]byte("\r\x1b[K"), m.queue.take()...))
		}
	case phaseRunning:
		// Where the command's standard error has ended, the prompt is about to come.
		if m.delayed || p.job.in(jobRunning) && p.job.stderr != stderrMerged && p.stderr.ended(p.job) {
			return
		}
		for m.flight < mirrorFlight && !m.queue.empty() {
			var cut []byte
			cut, m.queue.buf = cutFrame(m.queue.buf, frameRoom(p.nonce))
			p.sendFrame(encodeFrame(p.nonce, "M;b", withoutNUL(cut)))
			if m.queue.empty() {
				m.queue.buf = m.queue.take()
			}
		}
	case phaseStart, phasePrompt:
	}
}

// showIdle shows data above the prompt. The caller holds mu.
func (p *Pane) showIdle(data []byte) {
	for _, f := range idleFrames(p.nonce, data, p.shell.prompt) {
		p.sendFrame(f)
	}
}

// setMirrorTarget tells the relay which terminal is the visible one.
func (p *Pane) setMirrorTarget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stderr.companion == nil || p.tty == "" || !p.lease.held() {
		return
	}
	p.sendFrame(encodeFrame(p.nonce, "T;"+p.tty+";", nil))
}

// sendFrame types a frame into the companion. The caller holds mu.
func (p *Pane) sendFrame(f []byte) {
	m, comp := &p.stderr.mirror, p.stderr.companion
	gen := m.gen
	m.flight++
	buffer := fmt.Sprintf("f%d-%s", comp.id, p.s.token)
	comp.c.post(fmt.Sprintf("set-buffer -b %s %s", buffer, quote(string(f))), nil)
	comp.c.post(fmt.Sprintf("paste-buffer -d -r -b %s -t %%%d", buffer, comp.id), func(r reply) {
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
	})
}

// onMirror takes the marks around a frame in the visible stream. The caller holds mu.
func (p *Pane) onMirror(args string) {
	m := &p.stderr.mirror
	switch args {
	case "b", "i":
		m.incoming.open = true
		m.overlap = m.overlap || (args == "b" && p.shell.phase == phaseIdle)
	default:
		m.incoming.close()
		if m.overlap && p.shell.phase == phaseIdle && !p.job.unstarted() && p.stderr.companion != nil && m.queue.empty() && p.lease.held() {
			m.overlap = false
			p.showIdle(nil)
		}
	}
}
