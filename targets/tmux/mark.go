package tmux

import (
	"strconv"
	"strings"
	"time"
)

// onText handles what programs wrote to the visible terminal. The caller holds mu, here and
// below.
func (p *Pane) onText(b []byte) {
	p.viewers.write(b)
	if p.stderr.mirror.incoming.swallows(len(b)) {
		return
	}
	switch p.shell.phase {
	case phaseRunning:
		p.lastOut = time.Now()
		if p.job.in(jobRunning) {
			p.job.addOutput(b)
		}
	case phasePrompt:
		p.shell.addPrompt(b)
	case phaseIdle:
		switch {
		case p.job.unstarted():
			p.job.addEcho(b)
		case p.s.caps.Bash != "" || string(b) != askCursor:
			p.line.apply(lineEchoed)
		}
	case phaseStart:
	}
}

// onMark handles the marks in the visible terminal; see bashRC.
func (p *Pane) onMark(kind, args string) {
	if kind == "M" {
		p.onMirror(args)
		return
	}
	p.stderr.mirror.incoming.close() // the shell's own marks are outside
	ok := true
	switch kind {
	case "C":
		p.onCommandStart(args)
	case "D":
		ok = p.onCommandEnd(args)
	case "P":
		p.onPrompt(args)
	case "X":
		ok = p.onShellExit(args)
	case "Q":
		p.line.continued = true
	case "H":
		p.history.text = percentDecode(args)
		p.answered(&p.history.query)
	case "S":
		ok = p.onStatus(args)
	case "T":
		ok = p.onState(args)
	case "V":
		p.onChanged()
	}
	if ok {
		p.notify()
	}
}

// answered counts the answer to a question. If this process did not ask, a new driver did.
func (p *Pane) answered(q *query) {
	if own := q.answered(); !own && p.s.shared.Load() {
		p.demote()
	}
}

func (p *Pane) onCommandStart(args string) {
	p.advance(commandStarted)
	p.lastOut = time.Now()
	p.line.apply(lineUnsettled)
	j := p.job
	own := p.advanceJob(j, jobCommandStarted)
	if own {
		j.restart(p.shell.seq)
		if j.stderr == stderrApart && !strings.HasSuffix(args, ";a") {
			j.stderr = stderrMerged // its keys did not do what they are bound to
		}
	}
	p.origins.started(own, p.lease.held())
	if !p.stderr.mirror.queue.empty() {
		p.delayMirror(mirrorDelay)
	}
}

func (p *Pane) onCommandEnd(args string) (ok bool) {
	f := strings.SplitN(args, ";", 3)
	if len(f) != 3 {
		return false
	}
	seq, err1 := strconv.Atoi(f[0])
	code, err2 := strconv.Atoi(f[1])
	if err1 != nil || err2 != nil {
		return false
	}
	ran := p.shell.phase == phaseRunning // else it is the shell's start, or an empty line
	p.advance(commandEnded)
	p.shell.seq, p.shell.dir = seq, percentDecode(f[2])
	p.line.apply(lineUnsettled)
	if p.scripts != nil {
		go p.removeScripts(p.scripts) // read by now, or never
		p.scripts = nil
	}
	j := p.job
	ended := p.advanceJob(j, jobCommandEnded)
	switch {
	case ended && j.in(jobDraining):
		p.drainJob(j, jobCommandEnded, code)
	case ended:
		p.awaitStart(j, code)
	case ran && !j.unstarted() && p.origins.current == originPerson:
		p.history.ended(code)
	}
	return true
}

func (p *Pane) onPrompt(args string) {
	p.advance(promptPrinted)
	_, shell, _ := strings.Cut(args, ";")
	var ran string
	p.shell.pid, ran, _ = strings.Cut(shell, ";")
	p.shell.lastRun = unknownPrompt
	if n, err := strconv.Atoi(ran); err == nil {
		p.shell.lastRun = n
	}
	p.line.apply(linePrompted)
	p.flushMirror()
	p.flushNoticesAsync()
}

// onShellExit handles the exit of the shell. The supervisor starts the next one.
func (p *Pane) onShellExit(args string) (ok bool) {
	code, err := strconv.Atoi(args)
	if err != nil {
		return false
	}
	p.advance(shellExited)
	p.stderr.seq = 0
	p.stateQuery.said = Shell{}
	p.origins.reset()
	p.line.apply(lineUnsettled)
	if j := p.job; p.advanceJob(j, jobShellExited) {
		p.drainJob(j, jobShellExited, code)
	}
	return true
}

// onStatus handles the answer to keyStatus. Only a prompt answers, so a command that runs
// has ended without its mark.
func (p *Pane) onStatus(args string) (ok bool) {
	f := strings.Split(args, ";")
	if len(f) < 4 || len(f) > 5 {
		return false
	}
	p.answered(&p.statusQuery.query)
	p.statusQuery.lastRun = unknownPrompt
	if len(f) == 5 {
		if n, err := strconv.Atoi(f[4]); err == nil {
			p.statusQuery.lastRun = n
		}
	}
	p.advance(statusReported)
	p.shell.pid = f[3]
	p.shell.seq, _ = strconv.Atoi(f[0])
	p.statusQuery.lineLen, _ = strconv.Atoi(f[1])
	code, _ := strconv.Atoi(f[2])
	if p.statusQuery.lineLen > 0 {
		p.line.apply(lineFoundText)
	} else {
		p.line.apply(lineFoundEmpty)
	}
	j := p.job
	if !j.in(jobRunning) {
		return true
	}
	if j.lostAt.IsZero() && !j.resumed {
		j.notice = "The command removed the shell's prompt hook; it was put back. The exit code may be wrong."
	}
	j.finish(jobStatusReported, code)
	p.stderr.command = noCommand
	p.completeJob(j, jobStatusReported)
	// An empty line lets the hook set the rest again.
	p.advance(promptHookResumed)
	p.press([]byte("\r"), p.lease.blocked, func(error) {})
	return true
}

// percentDecode undoes the hook's encoding of a directory.
func percentDecode(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
