package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
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
	stat    paneStatus
	fullAt  time.Time // since when the alternate screen is on
	lastOut time.Time

	typed    *job // typed, not started
	job      *job // running
	draining *job // ended on standard output, not yet on standard error

	scripts  []string // staged commands, removed after the next end
	conv     unCRLF
	tty, pid string // the terminal, and the supervisor's process number

	lineQuery lineQuery
	history   history
	viewers   viewers
	stderr    errStream
	notices   displayQueue // what Show was given
}

func (s *Server) newPane(c *conn, session string, id int, key, nonce string, epoch int64, driving bool) *Pane {
	p := &Pane{
		s: s, session: session, id: id, key: key, nonce: nonce, c: c, busy: make(chan struct{}, 1), changed: make(chan struct{}),
		viewers: newViewers(), history: history{complete: !s.shared.Load()},
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
	if st.alternate && !p.stat.alternate {
		p.fullAt = time.Now()
	}
	p.stat = st
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

// onText takes what programs wrote to the visible terminal.
func (p *Pane) onText(b []byte) {
	p.viewers.write(b)
	if p.stderr.mirror.incoming.swallows(len(b)) {
		return
	}
	switch p.shell.phase {
	case phaseRunning:
		p.lastOut = time.Now()
		if p.job != nil {
			p.keepOut(p.job, p.conv.convert(b))
		}
	case phasePrompt:
		p.shell.addPrompt(b)
	case phaseIdle:
		if p.typed == nil {
			if p.s.caps.Bash != "" || string(b) != askCursor {
				p.line.on(lineEchoed)
			}
			return
		}
		if len(p.typed.echo)+len(b) <= echoMax {
			p.typed.echo = append(p.typed.echo, b...)
		}
	case phaseStart:
	}
}

func (p *Pane) keepOut(j *job, b []byte) {
	if len(b) > 0 {
		j.out.add(b)
		j.emit(Out, b)
	}
}

// onMark takes the marks of the visible terminal.
func (p *Pane) onMark(kind, args string) {
	switch kind {
	case "M":
		p.onMirror(args)
		return
	}
	p.stderr.mirror.incoming.close() // the shell's own marks are outside
	switch kind {
	case "C":
		p.onStart()
	case "D":
		f := strings.SplitN(args, ";", 3)
		if len(f) != 3 {
			return
		}
		seq, err1 := strconv.Atoi(f[0])
		code, err2 := strconv.Atoi(f[1])
		if err1 != nil || err2 != nil {
			return
		}
		p.onEnd(seq, code, unpercent(f[2]))
	case "P":
		p.advance(promptPrinted)
		_, p.shell.pid, _ = strings.Cut(args, ";")
		p.line.on(linePrompted)
		p.flushMirror()
		p.flushNoticesLater()
	case "X":
		code, err := strconv.Atoi(args)
		if err != nil {
			return
		}
		p.onDeath(code)
	case "Q":
		p.line.continued = true
	case "H":
		p.history.text = unpercent(args)
		p.answered(&p.history.query)
	case "S":
		f := strings.Split(args, ";")
		if len(f) != 4 {
			return
		}
		p.answered(&p.lineQuery.query)
		p.advance(statusReported)
		p.shell.pid = f[3]
		p.shell.seq, _ = strconv.Atoi(f[0])
		p.lineQuery.lineLen, _ = strconv.Atoi(f[1])
		code, _ := strconv.Atoi(f[2])
		if p.lineQuery.lineLen > 0 {
			p.line.on(lineFoundText)
		} else {
			p.line.on(lineFoundEmpty)
		}
		if j := p.job; j != nil {
			// Only a prompt answers, so the command has ended without its mark.
			p.job = nil
			if !j.away {
				j.notice = "The command removed the shell's prompt hook; it was put back. The exit code may be wrong."
			}
			p.finish(j, code)
			p.end(j)
			// An empty line lets the hook set the rest again.
			p.advance(promptHookResumed)
			p.press([]byte("\r"), p.lease.blocked, func(error) {})
		}
	}
	p.notify()
}

// answered counts the answer to a question. One that this process did not ask comes
// from a new driver. The caller holds mu.
func (p *Pane) answered(q *query) {
	if own := q.answered(); !own && p.s.shared.Load() {
		p.demote()
	}
}

func (p *Pane) onStart() {
	p.advance(commandStarted)
	p.lastOut = time.Now()
	p.conv = unCRLF{}
	p.line.on(lineUnsettled)
	j := p.typed
	if j != nil && !j.taken {
		j = nil
	}
	p.origins.started(j != nil, p.lease.held())
	if j != nil {
		p.typed = nil
		p.job = j
		j.seq = p.shell.seq
		j.echo = nil
		j.ended = false
	}
	if !p.stderr.mirror.queue.empty() {
		p.delayMirror(mirrorDelay)
	}
}

func (p *Pane) onEnd(seq, code int, dir string) {
	p.advance(commandEnded)
	p.shell.seq, p.shell.dir = seq, dir
	p.line.on(lineUnsettled)
	if p.scripts != nil {
		go p.discard(p.scripts) // read by now, or never
		p.scripts = nil
	}
	if j := p.job; j != nil {
		p.job = nil
		p.keepOut(j, p.conv.flush())
		p.finish(j, code)
		p.drain(j)
		return
	}
	if p.origins.current == originPerson && p.typed == nil {
		p.history.ended(code)
	}
	if j := p.typed; j != nil && j.taken && !j.ended {
		// The shell did not start it: a syntax error, or somebody pressed
		// Enter right before and it starts yet.
		p.finish(j, code)
		time.AfterFunc(lateStart, func() { p.endUnstarted(j) })
	}
}

// drain completes a job when its standard error has ended as well.
func (p *Pane) drain(j *job) {
	if p.stderr.ended(j) {
		p.end(j)
		return
	}
	p.draining = j
	time.AfterFunc(endTime, func() { p.endLate(j) })
}

// onDeath takes the end of the shell. The supervisor starts the next one.
func (p *Pane) onDeath(code int) {
	p.advance(shellExited)
	p.stderr.seq = 0
	p.origins.reset()
	p.line.on(lineUnsettled)
	if j := p.job; j != nil {
		p.job = nil
		p.keepOut(j, p.conv.flush())
		j.died = true
		p.finish(j, code)
		p.drain(j)
	}
}

// finish notes the end of a job on standard output.
func (p *Pane) finish(j *job, code int) {
	j.code = code
	j.dur = time.Since(j.begin)
	j.ended = true
}

// end completes a job.
func (p *Pane) end(j *job) {
	if p.draining == j {
		p.draining = nil
	}
	close(j.done)
	p.notify()
}

// endLate completes a job whose end mark on the companion does not come.
func (p *Pane) endLate(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining != j {
		return
	}
	p.discardCompanion("the end mark of standard error is missing")
	if p.draining == j { // there was no companion to break, which ends it
		j.deafen()
		p.end(j)
	}
}

// endUnstarted completes a job that the shell refused to start.
func (p *Pane) endUnstarted(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.typed != j {
		return
	}
	p.typed = nil
	// After the echo of the line comes the shell's message.
	if _, rest, ok := bytes.Cut(j.echo, []byte("\n")); ok {
		rest = bytes.TrimPrefix(rest, []byte("\x1b[?2004l\r"))
		var u unCRLF
		p.keepOut(j, u.convert(rest))
	}
	j.notice = "The shell did not start the command."
	p.end(j)
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
