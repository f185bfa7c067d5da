package remote

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
	"countersign/targets/follow"
)

// Wait implements backend.Process.
func (p *process) Wait() (backend.Result, error) {
	<-p.over
	return p.res, p.werr
}

// Kill implements backend.Process.
func (p *process) Kill() { p.killOnce.Do(func() { close(p.killed) }) }

// lastLine is how long the output of a program that has ended is waited for where something still holds it open.
const lastLine = 200 * time.Millisecond

// run owns a started program to its end.
func (p *process) run(closed <-chan channelEnd, cancel <-chan struct{}) {
	defer close(p.over)
	if p.locked {
		defer p.m.prepareSpare()
	}
	var cerr error
	// The program may know what the end of its streams looks like, so the transport has to say that it has ended.
	told, over := p.done, false
	var ended <-chan struct{}
	var last <-chan time.Time
	for closed != nil && !over && !p.res.Killed {
		select {
		case <-told:
			told = nil
			if e, ok := p.ch.(Ending); ok {
				ended = e.Ended()
			}
		case <-ended:
			// Its last line may still be on its way, after one like it that the program has printed.
			ended = nil
			last = time.After(lastLine)
		case <-last:
			over = true
		case end := <-closed:
			closed, cerr = nil, end.err
		case <-cancel:
			p.res.Killed = true
		case <-p.killed:
			p.res.Killed = true
		}
	}
	if p.res.Killed {
		closed, cerr = p.terminate(closed)
	}
	p.ch.Close()
	if closed != nil {
		<-closed // nothing is written after this
	}
	p.out.flush()
	if p.err != nil {
		p.err.flush()
	}
	p.res.Duration = time.Since(p.begin)
	p.mu.Lock()
	known, code := p.outEnded, p.code
	p.res.Hits = p.hits
	p.mu.Unlock()
	switch {
	case known && (cerr == nil || p.res.Killed):
		p.setResult(code)
	case p.res.Killed && cerr == nil:
		p.setResult(128 + int(unix.SIGKILL)) // nobody was left to tell
	default:
		p.werr = p.m.lost(cerr)
	}
}

// terminate ends the group and waits for the end of the program. The error means
// that it is not known to have ended.
func (p *process) terminate(closed <-chan channelEnd) (<-chan channelEnd, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.grace+killTime)
	defer cancel()
	_, _, _, err := p.m.script(ctx, killScript, nil, []string{p.pid, strconv.Itoa(int(p.grace/(100*time.Millisecond)) + 1)})
	if err != nil {
		select {
		case <-p.done:
			return closed, nil
		default:
			return closed, err
		}
	}
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-closed:
		closed = nil
	case <-timer.C:
	}
	return closed, nil
}

// setResult makes the result of an exit code. The shell that waits for a program says
// 128+n for a signal n, and cannot tell that from an exit code of that number.
func (p *process) setResult(code int) {
	p.res.Code = code
	p.res.Signal = follow.Signal(code)
}

// abandon ends a program whose start nobody waits for any more.
func (p *process) abandon(closed <-chan channelEnd) {
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-p.there:
		if p.pid != "" {
			_, _ = p.terminate(nil)
		}
	case <-closed:
		return
	case <-timer.C:
	}
	p.ch.Close()
	<-closed
}
