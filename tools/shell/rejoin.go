package shell

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"countersign/targets/backend"
	"countersign/tools"
)

const (
	// rejoinTime is how long a lost connection is retried, as that of a terminal is, and rejoinPause
	// the pause between two attempts. stopTime is how long that goes on after a stop, which is to end
	// the process.
	rejoinTime  = 45 * time.Second
	rejoinPause = 500 * time.Millisecond
	stopTime    = 5 * time.Second
)

// rejoin follows a process whose connection was lost while it ran.
func (k *call) rejoin(ctx context.Context, spec backend.Spec, out *stream) (backend.Result, ending) {
	out.event(tools.Info, "The connection was lost while the command ran; trying to get it back, for "+rejoinTime.String()+" at most.")
	limit, done := time.After(rejoinTime), ctx.Done()
	for {
		p, err := k.t.cfg.Target.(backend.Witness).Follow(context.WithoutCancel(ctx), spec.Mark, spec)
		switch {
		case err == nil:
			out.event(tools.Info, "The connection is back.")
			defer killWith(ctx, p)()
			return waitFor(ctx, p, true)
		case errors.Is(err, fs.ErrNotExist):
			return backend.Result{}, lost
		}
		select {
		case <-time.After(rejoinPause):
		case <-limit:
			return backend.Result{}, lost
		case <-done:
			if errors.Is(context.Cause(ctx), tools.ErrShutdown) {
				return backend.Result{}, left
			}
			limit, done = time.After(stopTime), nil
		}
	}
}

// killWith kills a process when ctx ends, except when that is because the bot goes away. The function
// that it returns releases it from that.
func killWith(ctx context.Context, p backend.Process) (release func() bool) {
	return context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), tools.ErrShutdown) {
			p.Kill()
		}
	})
}

// passed counts what the streams of a process passed on.
type passed []*passing

// passOn makes the streams of a process count.
func passOn(s *backend.Spec) passed {
	out := &passing{dst: s.Stdout}
	all := passed{out}
	errs := out
	if s.Stderr != s.Stdout {
		errs = &passing{dst: s.Stderr}
		all = append(all, errs)
	}
	s.Stdout, s.Stderr = out, errs
	return all
}

// again makes the streams leave out what they have passed on: it comes once more. Nobody may be
// writing.
func (p passed) again() {
	for _, w := range p {
		w.skip, w.n = w.n, 0
	}
}

// passing is a stream that counts what it passes on. One goroutine at a time may write.
type passing struct {
	dst     io.Writer
	n, skip int64
}

func (p *passing) Write(b []byte) (int, error) {
	p.n += int64(len(b))
	old := min(p.skip, int64(len(b)))
	p.skip -= old
	if int64(len(b)) > old {
		if _, err := p.dst.Write(b[old:]); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}
