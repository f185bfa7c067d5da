package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"countersign/targets/backend"
	"countersign/targets/session"
	"countersign/targets/tmux"
	"countersign/tools"
	"countersign/tools/truncate"
)

var (
	_ tools.Resumer = (*tool)(nil)
	_ tools.Resumer = (*bashTool)(nil)
	_ tools.Resumer = (*codeTool)(nil)
)

// Resume implements tools.Resumer.
func (t *tool) Resume(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	k := &call{t: t, thread: c.Thread, id: c.ID}
	if err := json.Unmarshal(c.Args, &k.args); err != nil {
		return tools.Result{}, tools.Invalid("%v", err)
	}
	var err error
	if k.wait, err = parseWait(k.args.Wait, t.cfg.MaxWait); err != nil {
		return tools.Result{}, err
	}
	if t.cfg.Sessions != nil {
		typed, ok, err := t.cfg.Sessions.Typed(ctx, c.Thread, c.ID)
		switch {
		case isGone(err):
			return unknownResult(fmt.Sprintf("The terminal is gone, so nothing tells how the command ended (%v).", err)), nil
		case err != nil:
			return tools.Result{}, err
		case ok:
			return t.ended(ctx, c, sink, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
				return k.resumeInPane(ctx, typed, sink)
			})
		}
	}
	return t.ended(ctx, c, sink, k.resumeProcess)
}

// Resume implements tools.Resumer.
func (b *bashTool) Resume(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	return b.t.ended(ctx, c, sink, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return b.t.resumeMerged(ctx, c, sink)
	})
}

// Resume implements tools.Resumer.
func (x *codeTool) Resume(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	return x.t.ended(ctx, c, sink, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return x.t.resumeMerged(ctx, c, sink)
	})
}

// resumeMerged follows a process with a single stream.
func (t *tool) resumeMerged(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	k := &call{t: t, thread: c.Thread, id: c.ID, wait: wait{limit: bashTimeout}}
	var args struct {
		Command, Code string
		Timeout       int
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Result{}, tools.Invalid("%v", err)
	}
	k.args.Command = cmp.Or(args.Command, args.Code)
	if args.Timeout > 0 {
		k.wait.limit = time.Duration(args.Timeout) * time.Second
	}
	out := newStream(sink)
	defer out.close()
	both := &capture{truncate.NewWriter(), tools.Stdout, out}
	return k.follow(ctx, backend.Spec{Stdout: both}, out, func(wctx context.Context, res backend.Result, end ending) (tools.Result, error) {
		return k.mergedResult(wctx, res, end, both, out)
	})
}

// isGone reports whether an error means that a pane does not exist any more.
func isGone(err error) bool {
	return errors.Is(err, session.ErrNoSession) || errors.Is(err, session.ErrNoPane) || errors.Is(err, tmux.ErrGone)
}

func unknownResult(say string) tools.Result {
	return tools.Result{Value: result{State: string(tmux.Lost), Notice: say}, Failed: true, Unknown: true, Why: say, Text: say}
}

// notBegun is the error for a command that was never typed or started.
func notBegun() error { return tools.NotRun("the command", "the bot was restarted before it began") }

// resumeInPane waits for a command that was typed before.
func (k *call) resumeInPane(ctx context.Context, t session.Typed, sink tools.Sink) (tools.Result, error) {
	out := newStream(sink)
	defer out.close()
	out.event(tools.Started, k.args.Command)
	wctx, cancel := context.WithDeadlineCause(ctx, k.until(t.At), errTimeout)
	defer cancel()
	o, err := t.Pane.Resume(wctx, t.Where, t.At, tmux.Command{
		Text: k.args.Command, Keep: keepOutput, Output: out.terminal, Note: func(s string) { out.event(tools.Info, s) },
	})
	out.flush()
	switch {
	case isGone(err):
		return unknownResult(fmt.Sprintf("The pane %s is gone, so nothing tells how the command ended.", t.Pane.ID())), nil
	case errors.Is(err, tmux.ErrChanged):
		return tools.Result{}, errShellChanged
	case err != nil:
		return tools.Result{}, err
	case o.Kind == tmux.Untyped:
		return tools.Result{}, notBegun()
	case k.wait.dispatch:
		return dispatched(t.Pane, "", out), nil
	}
	return k.paneResult(ctx, t.Pane, "", o, out)
}

// leastWait is how long a command is waited for whose time ended while the bot was away.
const leastWait = 2 * time.Second

// until is the end of the wait for a command that began at a time.
func (k *call) until(began time.Time) time.Time {
	end, least := began.Add(k.wait.limit), time.Now().Add(leastWait)
	if k.wait.dispatch || end.Before(least) {
		return least
	}
	return end
}

// resumeProcess follows a process with two streams.
func (k *call) resumeProcess(ctx context.Context, sink tools.Sink) (tools.Result, error) {
	out := newStream(sink)
	defer out.close()
	stdout, stderr := newCapture(tools.Stdout, out), newCapture(tools.Stderr, out)
	return k.follow(ctx, backend.Spec{Stdout: stdout, Stderr: stderr}, out, func(wctx context.Context, res backend.Result, end ending) (tools.Result, error) {
		out.flush()
		return k.processResult(ctx, wctx, res, end, shorten(stdout.captured()), shorten(stderr.captured()), out)
	})
}

// follow waits for a process of which the target keeps a record, and reports it with report.
func (k *call) follow(
	ctx context.Context, s backend.Spec, out *stream, report func(context.Context, backend.Result, ending) (tools.Result, error),
) (tools.Result, error) {
	w, can := k.t.cfg.Target.(backend.Witness)
	const noRecord = "The bot was restarted, and this machine keeps no record of how the command ended."
	if k.t.cfg.Journal == nil || !can {
		return unknownResult(noRecord), nil
	}
	mark, at, ok, err := k.t.cfg.Journal.Noted(ctx, k.thread, k.id)
	switch {
	case err != nil:
		return tools.Result{}, err
	case !ok:
		return tools.Result{}, notBegun()
	case mark == "":
		return unknownResult(noRecord), nil
	}
	p, err := w.Follow(context.WithoutCancel(ctx), mark, s)
	if errors.Is(err, fs.ErrNotExist) { // it may have run where no record could be made
		return unknownResult(noRecord), nil
	}
	if err != nil {
		return tools.Result{}, err
	}
	out.event(tools.Started, k.args.Command)
	wctx, cancel := context.WithDeadlineCause(ctx, k.until(at), errTimeout)
	defer cancel()
	defer killWith(wctx, p)()
	res, end := waitFor(wctx, p, true)
	return report(wctx, res, end)
}
