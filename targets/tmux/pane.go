package tmux

import (
	"fmt"
	"log/slog"
	"time"
)

const (
	// startTime bounds the start of a shell.
	startTime = 15 * time.Second
	// probeTime bounds the answer of a shell that is at its prompt.
	probeTime = 2 * time.Second
	// endTime is how long the end mark of standard error may come after that of standard
	// output.
	endTime = time.Second
	// lateStart is how long a command may still start after a prompt came instead of its
	// start: the prompt may be that of a person's empty line.
	lateStart = 150 * time.Millisecond
	// askCursor is the cursor query that busybox's line editor writes behind each prompt
	// (ask_terminal in libbb/lineedit.c). Nobody typed it.
	askCursor = "\x1b[6n"
	// echoMax bounds what is kept between the typing and the start of a command.
	echoMax = 64 << 10
)

// Pane is a shared shell. It is safe for concurrent use; one command runs at a time. A Pane
// outlives its shell and its connection: the next call restores either. When the pane or
// its session is gone, every call returns ErrGone, and the caller makes a new one.
type Pane struct {
	paneLink
	s     *Server
	nonce string
	// unhidden means that the shell's rc file is of an earlier version, without keyHide and
	// keyLoad: commands show how they are staged, and both streams are merged.
	unhidden bool
	// clearsStderr means that the rc file clears the companion before each command of the bot,
	// so that what stands there is standard error of the last one.
	clearsStderr bool
	// namesState means that the rc file has keyState and keyExpect.
	namesState bool
	unasked    []string      // what was on the screen before the shell was asked for its state
	emptyLines int           // that this process sent to a shell without a line editor, each of which brought a prompt
	busy       chan struct{} // has one element while a command is typed or runs

	out     scanner
	shell   shellState
	origins origins
	line    inputLine
	display displayState
	lastOut time.Time
	// what Info said last, and when
	lastInfo   Info
	lastInfoAt time.Time

	job     *job     // whose output is captured; nil if there is none
	scripts []string // staged commands, removed after the next end
	device  device

	statusQuery statusQuery
	stateQuery  stateQuery
	history     history
	viewers     viewers
	stderr      errStream
	notices     displayQueue // what Show was given
}

// displayState is what tmux reported last of the pane.
type displayState struct {
	paneStatus
	alternateSince time.Time // valid while the alternate screen is on
}

func (d *displayState) set(st paneStatus, now time.Time) {
	if st.alternate && !d.alternate {
		d.alternateSince = now
	}
	d.paneStatus = st
}

func (s *Server) newPane(c *conn, session string, id int, key, nonce string, epoch int64, driving bool) *Pane {
	p := &Pane{
		paneLink: paneLink{session: session, id: id, key: key, c: c, changed: make(chan struct{})},
		s:        s, nonce: nonce, busy: make(chan struct{}, 1),
		viewers: newViewers(), device: device{s: s}, history: history{complete: !s.shared.Load()},
	}
	p.onGone = func() { p.lost(true) }
	p.onDemoted = p.stopDriving
	p.lease.epoch = epoch
	p.lease.driving.Store(driving)
	p.out = scanner{nonce: nonce, text: p.onText, mark: p.onMark, forged: p.onForged}
	p.stderr.scanner = scanner{nonce: nonce, text: p.onErrText, mark: p.onErrMark, forged: p.onForged}
	s.mu.Lock()
	s.panes[id] = p
	s.mu.Unlock()
	c.register(id, p)
	return p
}

// forget removes the pane from the server and from its connections.
func (p *Pane) forget() {
	p.s.mu.Lock()
	if p.s.panes[p.id] == p {
		delete(p.s.panes, p.id)
	}
	p.s.mu.Unlock()
	p.mu.Lock()
	comp := p.stderr.companion
	p.stderr.companion = nil
	c := p.c
	p.mu.Unlock()
	c.register(p.id, nil)
	if comp != nil {
		comp.c.register(comp.id, nil)
	}
}

// stopDriving discards what only the driver knows. The caller holds mu.
func (p *Pane) stopDriving() {
	p.origins.dropClaim()
	p.stateQuery.said = Shell{}
	p.history.complete = false
	p.stderr.mirror.reset()
}

// ID returns tmux's name of the pane, "%3".
func (p *Pane) ID() string { return p.name() }

// Session returns the name of the pane's session.
func (p *Pane) Session() string { return p.session }

// output implements sink.
func (p *Pane) output(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.feed(b)
}

// status implements sink.
func (p *Pane) status(st paneStatus) {
	if st.dead {
		// The supervisor was killed, so nothing can start a shell any more.
		p.lost(true)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setStatus(st)
}

func (p *Pane) setStatus(st paneStatus) {
	if st.epoch > p.lease.epoch && p.s.shared.Load() {
		p.demote()
	}
	p.display.set(st, time.Now())
	p.notify()
}

// end ends what hangs on the connection, and with gone everything. It reports whether the pane is gone just now.
func (p *Pane) end(gone bool) bool {
	p.mu.Lock()
	gone = gone && !p.gone
	p.gone = p.gone || gone
	p.viewers.removeAll()
	p.notify()
	p.mu.Unlock()
	if gone {
		p.forget()
	}
	return gone
}

// lost implements sink.
func (p *Pane) lost(gone bool) {
	p.mu.Lock()
	c := p.c
	p.mu.Unlock()
	if p.end(gone) {
		// tmux keeps a dead pane. The condition spares a pane that a new server gave the same
		// number, and one that is not dead.
		kill := fmt.Sprintf("kill-pane -t %%%d", p.id)
		c.postIf(p.ID(), fmt.Sprintf("#{&&:#{pane_dead},#{==:#{%s},%s}}", optKey, p.key), kill, "display-message -p kept", nil, func(reply) {
			go p.s.discardPane(p.key)
		})
	}
}

func (p *Pane) onForged() {
	p.s.log.Warn("a program wrote a mark with a wrong nonce; it was dropped", slog.String("pane", p.ID()), slog.String("session", p.session))
}

// advance moves the shell to its next phase. It reports false, and changes nothing, for a
// conclusion that does not follow in the present one. The caller holds mu.
func (p *Pane) advance(e shellEvent) bool {
	err := p.shell.apply(e)
	if err != nil {
		p.s.log.Warn("a conclusion about the pane's shell was dropped", slog.String("pane", p.ID()), slog.Any("error", err))
	}
	return err == nil
}
