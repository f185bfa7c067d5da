package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"countersign/targets/session"
	"countersign/targets/tmux"
	"countersign/tools"
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
			return k.resumeInPane(ctx, typed, sink)
		}
	}
	return t.resumeProcess(ctx, c, sink)
}

// Resume implements tools.Resumer.
func (b *bashTool) Resume(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	return b.t.resumeProcess(ctx, c, sink)
}

// Resume implements tools.Resumer.
func (x *codeTool) Resume(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	return x.t.resumeProcess(ctx, c, sink)
}

// isGone reports whether an error means that a pane does not exist any more.
func isGone(err error) bool {
	return errors.Is(err, session.ErrNoSession) || errors.Is(err, session.ErrNoPane) || errors.Is(err, tmux.ErrGone)
}

func unknownResult(say string) tools.Result {
	return tools.Result{Value: result{State: string(tmux.Lost), Notice: say}, Failed: true, Unknown: true, Text: say}
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

// askAgain is the pause between two questions to a target about a process.
const askAgain = time.Second

// resumeProcess waits for a process whose end the target records.
func (t *tool) resumeProcess(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	if t.cfg.Journal == nil {
		return unknownResult(""), nil
	}
	out := newStream(sink)
	defer out.close()
	for {
		note, ok, err := t.cfg.Journal.Noted(ctx, c.Thread, c.ID)
		switch {
		case err != nil:
			return tools.Result{}, err
		case !ok:
			return tools.Result{}, notBegun()
		case !note.Ended.IsZero():
			say := "The bot was restarted while it ran, so its output was not kept."
			out.event(tools.Info, say)
			out.event(tools.Completed, fmt.Sprintf("exit code %d", note.Code))
			return exitedResult(note.Code, "", "", say), nil
		case !note.Running:
			return unknownResult(""), nil
		}
		select {
		case <-ctx.Done():
			return unknownResult("It's still running on " + t.cfg.Target.ID() + ", where the bot no longer waits for it."), nil
		case <-time.After(askAgain):
		}
	}
}
