package tmux

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// startTime bounds the start of a shell.
	startTime = 15 * time.Second
	// probeTime bounds the answer of a shell that is at its prompt.
	probeTime = 2 * time.Second
	// endTime is how long the end mark of standard error may come after that
	// of standard output.
	endTime = time.Second
	// lateStart is how long a command that ended without having started may
	// still start: somebody else's empty line looks the same.
	lateStart = 150 * time.Millisecond
	// askCursor is the question for the cursor's place that busybox's line editor
	// writes behind each prompt (ask_terminal in libbb/lineedit.c). Nobody typed it.
	askCursor = "\x1b[6n"
	echoMax   = 64 << 10
)

// Pane is a shared shell. It is safe for concurrent use; one command runs at a
// time. A Pane outlives its shell and its connection: both are mended by the
// next call. When the pane or its session is gone every call returns ErrGone,
// and the caller makes a new one.
type Pane struct {
	s       *Server
	session string
	id      int
	key     string
	nonce   string

	busy chan struct{} // held by the one who types

	mu      sync.Mutex
	c       *conn
	gone    bool
	changed chan struct{} // closed and replaced at each change

	out     scanner
	shell   shellState
	origins origins
	line    inputLine
	lease   lease
	display displayState
	lastOut time.Time

	job     *job     // whose output is captured; nil if there is none
	scripts []string // staged commands, removed after the next end
	conv    unCRLF
	device  device

	lineQuery lineQuery
	history   history
	viewers   viewers
	stderr    errStream
	notices   displayQueue // what Show was given
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
		s: s, session: session, id: id, key: key, nonce: nonce, c: c, busy: make(chan struct{}, 1), changed: make(chan struct{}),
		viewers: newViewers(), device: device{s: s}, history: history{complete: !s.shared.Load()},
	}
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

// forget ends the bookkeeping of a pane.
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

// ID returns tmux's name of the pane, "%3".
func (p *Pane) ID() string { return paneName(p.id) }

// Session returns the name of the pane's session.
func (p *Pane) Session() string { return p.session }

func (p *Pane) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// notify wakes everybody who waits for a change. The caller holds mu.
func (p *Pane) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// output implements sink.
func (p *Pane) output(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.feed(b)
}

// status implements sink.
func (p *Pane) status(st paneStatus) {
	if st.dead {
		// Its supervisor was killed: there is nobody who could start a shell.
		p.lost(true)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setStatus(st)
}

func (p *Pane) setStatus(st paneStatus) {
	if st.epoch > p.lease.epoch {
		p.demote()
	}
	p.display.set(st, time.Now())
	p.notify()
}

// lost implements sink.
func (p *Pane) lost(gone bool) {
	p.mu.Lock()
	gone = gone && !p.gone
	p.gone = p.gone || gone
	c := p.c
	p.viewers.removeAll()
	p.notify()
	p.mu.Unlock()
	if gone {
		p.forget()
		// The dead pane that tmux keeps; not one that a new server gave the same number,
		// and not one that only this process took for gone.
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
	err := p.shell.on(e)
	if err != nil {
		p.s.log.Warn("a conclusion about the pane's shell was dropped", slog.String("pane", p.ID()), slog.Any("error", err))
	}
	return err == nil
}

// wait waits until ok, called with mu held, is true.
func (p *Pane) wait(ctx context.Context, limit time.Duration, ok func() bool) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		p.mu.Lock()
		good, gone, changed, c := ok(), p.gone, p.changed, p.c
		p.mu.Unlock()
		switch {
		case good:
			return nil
		case gone:
			return p.goneError()
		case !c.alive():
			return errConn
		}
		select {
		case <-changed:
		case <-c.dead:
			// lost comes right after, and wakes by changed as well.
		case <-timer.C:
			return errSilent
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errSilent means that what was waited for did not come.
var errSilent = errors.New("tmux: the shell does not answer; close the pane and make a new one")

func (p *Pane) goneError() error {
	return fmt.Errorf("%w: %s in session %s", ErrGone, p.ID(), p.session)
}

// do sends a command line; what fails because the pane is gone is ErrGone.
func (p *Pane) do(ctx context.Context, line string) ([]string, error) {
	p.mu.Lock()
	c, gone := p.c, p.gone
	p.mu.Unlock()
	if gone {
		return nil, p.goneError()
	}
	lines, err := c.do(ctx, line)
	if missing(err) {
		p.lost(true)
		return nil, p.goneError()
	}
	return lines, err
}
