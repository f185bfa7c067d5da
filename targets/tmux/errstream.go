package tmux

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
)

// errStream is the standard error of a pane's shell, as its companion carries it. Pane.mu
// guards it.
type errStream struct {
	scanner   scanner
	companion *companion // nil while both streams are merged
	ready     bool       // the companion's relay runs
	boot      []byte     // what the companion wrote before it was ready
	seq       int        // of the last end mark
	shellEnds int        // how many shells have ended there
	editing   bool       // the line editor writes there, unseen
	command   int        // the prompt before the command whose output comes, anyCommand or noCommand
	mirror    mirror
	conv      unCRLF // of what commands write
	// pending keeps what comes between a snapshot of the companion and the moment at which
	// a job takes it; nil otherwise.
	pending []byte
}

// pendingMax bounds what is kept of it.
const pendingMax = 1 << 20

const (
	// noCommand means that no command of the bot has started since the last one ended.
	noCommand = -1
	// anyCommand means that the last marks are unknown.
	anyCommand = math.MaxInt
)

// separate reports whether the next command's standard error can be captured apart.
func (e *errStream) separate() bool { return e.companion != nil && e.ready }

// ended reports whether nothing more of a job can come.
func (e *errStream) ended(j *job) bool {
	return j.stderr != stderrApart || e.seq > j.seq || e.shellEnds > j.shellEnds
}

// carries reports whether what comes now is standard error of a job.
func (e *errStream) carries(j *job) bool {
	if e.command == anyCommand {
		return !e.ended(j)
	}
	return j.stderr == stderrApart && e.command >= j.seq
}

// attach makes comp, which may be nil, the companion. Its relay is assumed to run.
func (e *errStream) attach(comp *companion) {
	e.companion = comp
	e.ready = comp != nil
	e.editing, e.command = false, anyCommand
}

// detach ends the use of the companion.
func (e *errStream) detach() {
	e.attach(nil)
	e.mirror.reset()
}

// restart prepares for a start of the companion's relay.
func (e *errStream) restart() {
	e.ready, e.boot = false, nil
	e.editing, e.command = false, anyCommand
	e.scanner.part, e.conv = nil, unCRLF{}
}

// started handles what the companion wrote before its relay was ready, and reports whether
// it is ready now.
func (e *errStream) started(b []byte) bool {
	e.boot = append(e.boot, b...)
	if !bytes.Contains(e.boot, []byte(relayReady)) {
		return false
	}
	e.ready, e.boot = true, nil
	return true
}

// errSink receives the events of the companion's connection for a pane.
type errSink struct {
	p    *Pane
	comp *companion
}

func (e errSink) output(b []byte) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.p.stderr.companion == e.comp {
		e.p.stderr.scanner.feed(b)
	}
}

func (e errSink) status(st paneStatus) {
	if st.dead {
		e.lost(true)
	}
}

func (e errSink) lost(bool) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if e.p.stderr.companion == e.comp {
		e.p.discardCompanion("the companion pane is gone")
	}
}

// attachCompanion makes comp the pane's companion. Its relay is assumed to run unless
// startRelay follows.
func (p *Pane) attachCompanion(comp *companion) {
	p.mu.Lock()
	p.stderr.attach(comp)
	p.mu.Unlock()
	if comp != nil {
		comp.c.register(comp.id, errSink{p, comp})
	}
}

// reattachCompanion attaches to the pane's companion. Only the driver makes one where there
// is none. The caller holds setup.
func (p *Pane) reattachCompanion(ctx context.Context) {
	if p.s.caps.Bash == "" {
		return
	}
	comp, fresh, err := p.s.findCompanion(ctx, p.key, p.lease.held())
	if err != nil {
		p.s.log.WarnContext(ctx, "standard error will not be captured apart", slog.Any("error", err))
	}
	p.attachCompanion(comp)
	if fresh {
		p.startRelay(ctx)
	}
}

// discardCompanion gives up the companion; the next command gets a new one. Only the driver
// ends the companion's pane, as another process may need it. The caller holds mu.
func (p *Pane) discardCompanion(why string) {
	comp := p.stderr.companion
	if comp == nil {
		return
	}
	p.stderr.detach()
	p.s.log.Debug("the companion pane was given up", slog.String("pane", p.ID()), slog.String("why", why))
	comp.c.register(comp.id, nil)
	if p.lease.held() {
		comp.c.post(fmt.Sprintf("kill-pane -t %%%d", comp.id), nil)
	}
	if j := p.job; j != nil {
		j.cutStderr()
		p.completeJob(j, jobStderrEnded)
	}
	p.notify()
}

// startRelay starts the relay of a fresh companion and waits for it. If that fails the pane
// does without, and both streams are merged.
func (p *Pane) startRelay(ctx context.Context) {
	p.mu.Lock()
	comp := p.stderr.companion
	p.stderr.restart()
	p.mu.Unlock()
	if comp == nil {
		return
	}
	if err := p.startRelayOf(ctx, comp); err != nil {
		p.mu.Lock()
		p.discardCompanion(err.Error())
		p.mu.Unlock()
	}
}

func (p *Pane) startRelayOf(ctx context.Context, comp *companion) error {
	_, err := comp.c.do(ctx, fmt.Sprintf("respawn-pane -k -t %%%d /bin/sh %s", comp.id, quote(p.s.file("relay.sh"))))
	if err != nil {
		return err
	}
	lines, err := comp.c.do(ctx, fmt.Sprintf("display-message -p -t %%%d '#{pane_id} #{pane_tty}'", comp.id))
	if err != nil {
		return err
	}
	if err := comp.parse(reply{lines: lines}.first()); err != nil {
		return err
	}
	if err := p.wait(ctx, startTime, func() bool { return p.stderr.ready || p.stderr.companion != comp }); err != nil {
		return err
	}
	return p.s.writeFile(ctx, "e-"+p.key, comp.tty+"\n")
}

// ensureCompanion gives a pane that has lost its companion a new one. The shell is at its
// prompt.
func (p *Pane) ensureCompanion(ctx context.Context) {
	p.mu.Lock()
	var waiting []byte
	if p.stderr.companion != nil && p.stderr.mirror.queried {
		waiting = p.stderr.mirror.queue.take()
		p.discardCompanion("a program sent the error terminal a query, which it answered into the relay")
	}
	have := p.stderr.companion != nil
	p.mu.Unlock()
	if have || p.s.caps.Bash == "" {
		return
	}
	unlock, err := p.s.lock(ctx)
	if err != nil {
		return
	}
	comp, fresh, err := p.s.findCompanion(ctx, p.key, true)
	unlock()
	if err != nil {
		p.s.log.WarnContext(ctx, "standard error will not be captured apart", slog.Any("error", err))
		return
	}
	p.attachCompanion(comp)
	if fresh {
		p.startRelay(ctx)
	}
	// The answer means that the shell has opened the new terminal.
	if err := p.queryStatus(ctx); err != nil {
		p.mu.Lock()
		p.discardCompanion("the shell did not open the new companion")
		p.mu.Unlock()
		return
	}
	p.setMirrorTarget()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(waiting) > 0 && p.stderr.companion != nil {
		p.stderr.mirror.queue.add(waiting)
		p.flushMirror()
	}
}

// onErrText handles what programs wrote to standard error.
func (p *Pane) onErrText(b []byte) {
	if !p.stderr.ready {
		if p.stderr.started(b) {
			p.notify()
		}
		return
	}
	if p.stderr.editing {
		return
	}
	if bytes.Contains(b, []byte(p.nonce)) {
		// A program has set the terminal to echo: what is shown would come back and be
		// shown again.
		p.discardCompanion("a program changed the modes of the error terminal")
		return
	}
	p.lastOut = time.Now()
	p.addErrText(p.stderr.conv.convert(b))
}

// addErrText adds standard error to the job that it is of, and shows it.
func (p *Pane) addErrText(b []byte) {
	if len(b) == 0 {
		return
	}
	// A job may write here before the other connection has reported its start.
	switch {
	case p.job != nil && p.stderr.carries(p.job):
		p.job.addErr(b)
	case p.stderr.pending != nil && len(p.stderr.pending) < pendingMax:
		p.stderr.pending = append(p.stderr.pending, b...)
	}
	if p.lease.held() { // another driver shows it itself
		p.mirrorError(b)
	}
}

// onErrMark handles the marks on the companion.
func (p *Pane) onErrMark(kind, args string) {
	switch kind {
	case "R":
		p.stderr.editing = true
	case "C":
		p.stderr.editing, p.stderr.conv = false, unCRLF{} // what is held back is not the command's
		p.stderr.command, _ = strconv.Atoi(args)
	case "Q":
		p.endIncomplete()
	case "P":
		if !p.stderr.editing { // a command has removed the hook, which moves standard error back
			p.onPrompt(args)
			p.notify()
		}
	case "E":
		p.addErrText(p.stderr.conv.flush())
		p.stderr.editing, p.stderr.command = false, noCommand
		if args == "x" { // the shell has ended
			p.stderr.shellEnds++
		} else if seq, err := strconv.Atoi(args); err == nil {
			p.stderr.seq = seq
		}
		if p.job.in(jobDraining) && p.stderr.ended(p.job) {
			p.completeJob(p.job, jobStderrEnded)
		}
	case "M", "T":
		p.discardCompanion("a program changed the modes of the error terminal")
	}
}

// endIncomplete ends a job for which the shell wants more lines: its grammar is not that of
// this package, or an alias has changed the line. The caller holds mu.
func (p *Pane) endIncomplete() {
	if p.job == nil || !p.stderr.editing || !p.lease.held() {
		return
	}
	p.job.notice = join(p.job.notice, "The shell took the command for an incomplete one; it was not run.")
	p.press([]byte{3}, p.lease.blocked, func(error) {}) // without it the job goes on, and can be interrupted
}
