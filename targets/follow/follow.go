// Package follow keeps what a process prints where it runs, and follows it from there: after a
// restart of the bot, or when the connection to its target was lost.
//
// [Script] is the part of the shell wrapper that keeps the output. Programs that print into it
// don't notice that nobody reads any more: they are neither ended by SIGPIPE nor blocked.
package follow

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// Limit is how many bytes of each stream are kept: the beginning.
const Limit = 1 << 20

// Script defines the shell function keep, which copies its input to its output and into a file,
// up to Limit. It goes on when its output is closed and when the file is full, and the signals that
// end the program's group leave it alone, since the program may print something about them.
const Script = `keep() {
  trap '' PIPE XFSZ TERM INT HUP QUIT
  umask 077
  ulimit -f 2048
  PATH=$PATH:/usr/bin:/bin
  tee "$1" || cat >/dev/null
}
`

// Look is what a target knows of a process.
type Look struct {
	backend.Testimony
	// Out and Err are what was kept of its streams from the given offsets on. More may follow at
	// once if one of them has MaxLook bytes.
	Out, Err []byte
}

// MaxLook is how many bytes of each stream one look brings.
const MaxLook = 256 << 10

// Source is a target that keeps records.
type Source interface {
	// Look reads the record of a mark, and its streams from the offsets out and err. An unknown mark
	// is no error.
	Look(ctx context.Context, mark string, out, err int64) (Look, error)
	// End ends the process group of a mark: SIGTERM, grace, SIGKILL. It returns when that is done.
	End(ctx context.Context, mark string, grace time.Duration) error
}

// patience is how long a target that does not answer is asked again.
const patience = 2 * time.Minute

// Process follows a process: it writes to the streams of s what the process printed so far and
// prints from now on, and asks the source every interval. Kill ends the process. The end of ctx ends
// only the following: Wait returns its cause. The error wraps fs.ErrNotExist if the source has no
// record of the mark, and Wait's error wraps backend.ErrLost if nothing tells how the process ended.
func Process(ctx context.Context, src Source, mark string, every time.Duration, s backend.Spec) (backend.Process, error) {
	p := &process{src: src, mark: mark, every: every, spec: s, killed: make(chan struct{}), done: make(chan struct{})}
	if p.spec.Grace <= 0 {
		p.spec.Grace = 2 * time.Second
	}
	l, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	if l.Began.IsZero() {
		return nil, fmt.Errorf("there is no record of the process: %w", fs.ErrNotExist)
	}
	go p.run(ctx, l)
	return p, nil
}

type process struct {
	src      Source
	mark     string
	every    time.Duration
	spec     backend.Spec
	out, err int64 // what was read of the streams; run's, and before that Process's

	once   sync.Once
	killed chan struct{} // closed by Kill
	done   chan struct{} // closed when res and fail are set
	res    backend.Result
	fail   error
}

// Wait implements backend.Process.
func (p *process) Wait() (backend.Result, error) {
	<-p.done
	return p.res, p.fail
}

// Kill implements backend.Process.
func (p *process) Kill() { p.once.Do(func() { close(p.killed) }) }

// look asks once and passes on what is new.
func (p *process) look(ctx context.Context) (Look, error) {
	l, err := p.src.Look(ctx, p.mark, p.out, p.err)
	if err != nil {
		return l, err
	}
	for _, stream := range []struct {
		at  *int64
		dst io.Writer
		b   []byte
	}{{&p.out, p.spec.Stdout, l.Out}, {&p.err, p.spec.Stderr, l.Err}} {
		*stream.at += int64(len(stream.b))
		if stream.dst != nil && len(stream.b) > 0 {
			_, _ = stream.dst.Write(stream.b) // a writer that fails does not end the process
		}
	}
	return l, nil
}

// run owns p until the end.
func (p *process) run(ctx context.Context, l Look) {
	defer close(p.done)
	killed, answered, quiet := p.killed, time.Now(), 0
	for {
		more := len(l.Out) == MaxLook || len(l.Err) == MaxLook
		over := !l.Ended.IsZero() || !l.Running
		if over && len(l.Out)+len(l.Err) == 0 {
			quiet++ // what was printed last is kept a moment after the process has ended
		}
		if over && quiet > 1 {
			break
		}
		wait := p.every
		if over {
			wait = min(wait, 50*time.Millisecond)
		}
		if more {
			wait = 0
		}
		select {
		case <-ctx.Done():
			p.fail = context.Cause(ctx)
			return
		case <-killed:
			killed, p.res.Killed = nil, true
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			err := p.src.End(end, p.mark, p.spec.Grace)
			cancel()
			if err != nil {
				p.fail = fmt.Errorf("the process could not be ended: %w: %w", backend.ErrLost, err)
				return
			}
		case <-time.After(wait):
		}
		next, err := p.look(ctx)
		switch {
		case err == nil:
			l, answered = next, time.Now()
		case time.Since(answered) > patience:
			p.fail = fmt.Errorf("%w: %w", backend.ErrLost, err)
			return
		default:
			l.Out, l.Err = nil, nil
		}
	}
	switch {
	case !l.Ended.IsZero():
		p.res.Code, p.res.Signal, p.res.Duration = l.Code, Signal(l.Code), l.Ended.Sub(l.Began)
	case p.res.Killed:
		p.res.Code, p.res.Signal = 128+int(unix.SIGKILL), "KILL" // nobody was left to note it
	default:
		p.fail = fmt.Errorf("it ended without a record of how: %w", backend.ErrLost)
	}
}

// Signal names the signal in an exit code of a shell that waited for a program, without "SIG"; ""
// if there is none. A program may also choose such a code.
func Signal(code int) string {
	if n := code - 128; n > 0 && n <= int(unix.SIGSYS) {
		return strings.TrimPrefix(unix.SignalName(unix.Signal(n)), "SIG")
	}
	return ""
}
