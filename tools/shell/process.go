package shell

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"countersign/tools"
	"countersign/tools/backend"
	"countersign/tools/tmux"
)

// process runs the command as a plain process.
func (k *call) process(ctx context.Context, sink tools.Sink) (tools.Result, error) {
	out := newStream(sink)
	defer out.close()
	out.event(tools.Started, k.args.Command)
	wctx, cancel := context.WithTimeoutCause(ctx, k.wait.limit, errWaited)
	defer cancel()
	stdout := &head{kind: tools.Stdout, out: out}
	stderr := &head{kind: tools.Stderr, out: out}
	target := k.t.cfg.Target
	p, err := target.Start(wctx, backend.Spec{Shell: k.args.Command, Dir: k.t.cfg.Dir, Stdout: stdout, Stderr: stderr})
	if errors.Is(err, backend.ErrLost) {
		return lost(target.ID(), "", "", "", out), nil
	}
	if err != nil {
		return tools.Result{}, tools.Failed("the command did not start on %s: %w", target.ID(), err)
	}
	res, err := p.Wait()
	out.flush()
	so, se := cut(stdout.captured()), cut(stderr.captured())
	switch {
	case err != nil:
		return lost(target.ID(), so, se, "", out), nil
	case res.Killed && errors.Is(context.Cause(wctx), errWaited):
		out.event(tools.Info, "killed")
		out.event(tools.Completed, "timeout")
		return tools.Result{}, tools.Failed("%s", timedOut(k.wait.limit, "was killed with everything it had started; allow more time, or use a target with tmux for long commands", so, se))
	case res.Killed:
		r := result{Stdout: so, Stderr: se, State: "stopped", Notice: "The command was killed with everything it had started, because somebody said stop. What it had done until then stays done."}
		if errors.Is(context.Cause(ctx), tools.ErrShutdown) {
			r.Notice = "The command was killed with everything it had started, because the bot went away. What it had done until then stays done."
		}
		out.event(tools.Info, r.Notice)
		out.event(tools.Completed, r.State)
		return tools.Result{Value: r, Failed: true, Text: people(so, se, r.Notice)}, nil
	}
	notice := ""
	if res.Signal != "" {
		notice = "The command was ended by the signal " + res.Signal + "."
	}
	out.event(tools.Info, sentences(fmt.Sprintf("ended after %s", round(res.Duration)), notice))
	out.event(tools.Completed, fmt.Sprintf("exit code %d", res.Code))
	return exited(res.Code, so, se, notice), nil
}

// head keeps the head of a stream and passes all of it on.
type head struct {
	kind tools.EventKind
	out  *stream

	mu    sync.Mutex
	kept  []byte
	total int64
}

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	if room := keepOutput/2 - len(h.kept); room > 0 {
		h.kept = append(h.kept, b[:min(room, len(b))]...)
	}
	h.total += int64(len(b))
	h.mu.Unlock()
	h.out.bytes(h.kind, b)
	return len(b), nil
}

func (h *head) captured() tmux.Captured {
	h.mu.Lock()
	defer h.mu.Unlock()
	return tmux.Captured{Head: h.kept, Total: h.total}
}
