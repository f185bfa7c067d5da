package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"countersign/internal/failpoint"
	"countersign/targets/backend"
	"countersign/targets/session"
	"countersign/targets/tmux"
	"countersign/tools"
)

// runInPane runs the command in its managed pane.
func (k *call) runInPane(ctx context.Context, sink tools.Sink) (tools.Result, error) {
	k.t.showQueue.wait(k.thread) // show earlier output first
	looking := ctx
	if k.seen.recent(k.dir) {
		looking = tmux.AcceptRecent(ctx)
	}
	unchanged := func(dir string) error { return k.checkUnchangedIn(ctx, dir) }
	if k.ref.Exists { // it is looked at while the pane is
		unchanged = k.checkAhead(ctx)
	}
	p, made, err := k.t.cfg.Sessions.Ensure(looking, k.thread, k.args.Session, k.args.Pane)
	if err != nil {
		return tools.Result{}, tools.NotRun("the command", "%w", err)
	}
	if err := k.checkSamePane(looking, p, unchanged); err != nil {
		return tools.Result{}, err
	}
	if err := k.t.cfg.Sessions.Writable(ctx, k.thread, k.ref.Session); err != nil {
		return tools.Result{}, tools.NotRun("the command", "%w", err)
	}
	out := newStream(sink)
	defer out.close()
	out.event(tools.Started, k.args.Command)
	k.t.cfg.Sessions.Mark(p.Session(), k.ref.Pane, "run_shell: "+k.args.Command)
	cmd := tmux.Command{
		Text: k.args.Command, State: k.state, Keep: keepOutput,
		Note: func(s string) { out.event(tools.Info, s) },
	}
	cmd.Before = func(w tmux.Where) error {
		err := k.t.cfg.Sessions.Began(ctx, k.thread, k.id, k.ref, w)
		k.runs(ctx, "", w.Shell, w.Records)
		failpoint.Hit(failpoint.CommandNoted)
		return err
	}
	if k.wait.dispatch {
		err := p.Dispatch(ctx, cmd)
		if err != nil {
			return k.notStarted(p, err)
		}
		return dispatched(p, made, out), nil
	}
	cmd.Output = out.terminal
	wctx, cancel := context.WithTimeoutCause(ctx, k.wait.limit, errTimeout)
	defer cancel()
	o, err := p.Run(wctx, cmd)
	out.flush()
	if err != nil {
		return k.notStarted(p, err)
	}
	return k.paneResult(ctx, p, made, o, out)
}

func dispatched(p session.Screen, made string, out *stream) tools.Result {
	text := "command dispatched to tmux pane " + p.ID()
	if made != "" {
		text = made + "\n" + text
	}
	out.event(tools.Info, text)
	out.event(tools.Completed, "dispatched")
	return tools.Result{Value: text, Text: text}
}

// paneResult reports a command that was typed.
func (k *call) paneResult(ctx context.Context, p session.Pane, made string, o tmux.Outcome, out *stream) (tools.Result, error) {
	stdout, stderr := shorten(o.Stdout), shorten(o.Stderr)
	notice := joinSentences(made, o.Notice)
	if !o.Split && o.Kind == tmux.Exited && o.Stdout.Total > 0 {
		notice = joinSentences(notice, "Standard output and standard error are merged in stdout here.")
	}
	where := fmt.Sprintf("pane %s of the session %s", p.ID(), p.Session())
	switch o.Kind {
	case tmux.Exited:
		out.event(tools.Info, joinSentences(fmt.Sprintf("ended after %s in %s", round(o.Duration), o.Dir), notice))
		out.event(tools.Completed, fmt.Sprintf("exit code %d", o.Code))
		r := exitedResult(o.Code, stdout, stderr, notice)
		if v, ok := r.Value.(result); ok && o.Screen != "" {
			v.Screen = tools.TruncateTail(o.Screen, maxOutput)
			r.Value = v
		}
		return r, nil
	case tmux.TimedOut:
		if !k.t.cfg.Once {
			out.event(tools.Info, "still running in "+where)
		}
		out.event(tools.Completed, "timeout")
		if k.t.cfg.Once {
			return tools.Result{Cut: cutAt(stdout, stderr)}, tools.Failed("%s", timeoutMessage(k.wait.limit, k.interrupt(ctx, p)+"; allow more time", stdout, stderr))
		}
		why := fmt.Sprintf("it took more than %s and still runs in its terminal", k.wait.limit)
		return tools.Result{Cut: cutAt(stdout, stderr), Why: why}, tools.Failed("%s", timeoutMessage(k.wait.limit, "is still running in pane "+p.ID()+
			"; look at it with capture-pane, or stop it with send-keys and C-c", stdout, stderr))
	case tmux.Cancelled:
		return k.stopInPane(ctx, p, o, out)
	case tmux.WaitingPassword, tmux.WaitingInput, tmux.Fullscreen:
		return k.interactiveResult(ctx, p, o, stdout, stderr, notice, out), nil
	case tmux.Lost, tmux.Untyped:
	}
	return lostResult(where, stdout, stderr, notice, out), nil
}

// checkAhead begins to check that nothing changed in the directory of the plan. The function that
// it returns has the result, and checks again if the directory is another.
func (k *call) checkAhead(ctx context.Context) func(dir string) error {
	planned := k.dir
	result := make(chan error, 1)
	go func() { result <- k.checkUnchangedIn(ctx, planned) }()
	return func(dir string) error {
		if err := <-result; dir == planned {
			return err
		}
		return k.checkUnchangedIn(ctx, dir)
	}
}

// checkSamePane checks that the pane is the approved one, with the same program in front and in the
// same directory, and that no file changed.
func (k *call) checkSamePane(ctx context.Context, p session.Screen, unchanged func(dir string) error) error {
	if k.ref.Exists {
		if p.ID() != k.ref.ID {
			return tools.NotRun("the command", "the pane %s was replaced by %s after it was checked; propose it again", k.ref.ID, p.ID())
		}
		info, err := p.Info(ctx)
		switch {
		case errors.Is(err, tmux.ErrGone):
			_, err = k.notStarted(p, err)
			return err
		case err != nil:
			return tools.NotRun("the command", "the pane %s could not be looked at: %w", p.ID(), err)
		}
		if info.Program != k.ref.Program {
			return tools.NotRun("the command", "the pane %s now has %s in front, and had %s when it was checked; look with capture-pane and "+
				"propose it again", p.ID(), tools.Quote(info.Program), tools.Quote(k.ref.Program))
		}
		if info.Dir != "" {
			k.dir = info.Dir
		}
	}
	return unchanged(k.dir)
}

// notStarted reports a command that did not start, or may not have.
func (k *call) notStarted(p session.Screen, err error) (tools.Result, error) {
	var busy *tmux.StateError
	switch {
	case errors.Is(err, tmux.ErrChanged):
		return tools.Result{}, errShellChanged
	case errors.As(err, &busy):
		return tools.Result{}, tools.NotRun("the command", "the pane %s is %s: %w", p.ID(), busy.State, err)
	case errors.Is(err, tmux.ErrGone):
		return tools.Result{}, tools.NotRun("the command", "the pane %s is gone; propose it again, the pane is then made anew: %w", p.ID(), err)
	case errors.Is(err, backend.ErrLost):
		return lostResult("pane "+p.ID(), "", "", "", nil), nil
	}
	return tools.Result{}, tools.Failed("the command did not run in pane %s: %w", p.ID(), err)
}

// interactiveResult reports a command that waits for a person.
func (k *call) interactiveResult(ctx context.Context, p session.Pane, o tmux.Outcome, stdout, stderr, notice string, out *stream) tools.Result {
	var is, say string
	switch o.Kind {
	case tmux.WaitingPassword:
		is = "The command asks for a password."
		say = "Do not type one: ask in the thread for somebody to say `take`, attach and type it, or stop the command with send-keys and C-c."
	case tmux.WaitingInput:
		is = "The command waits for input."
		say = "Answer it with send-keys, or stop it with C-c."
	default:
		is = "The command has opened a full-screen program."
		say = "Leave it with send-keys (often q or C-c), and use a batch form next time."
	}
	if o.Notice != "" {
		is = "" // the terminal shows it
	}
	end := fmt.Sprintf("still running in pane %s: %s", p.ID(), o.Kind)
	if k.t.cfg.Once { // nobody will return to this terminal
		switch o.Kind {
		case tmux.WaitingPassword:
			is = "The command asked for a password."
		case tmux.WaitingInput:
			is = "The command waited for input."
		default:
			is = "The command opened a full-screen program."
		}
		end = "The command " + k.interrupt(ctx, p) + "."
		say = "Nobody can answer it here: it " + strings.TrimPrefix(end, "The command ") + " Use a batch form, or ask a running bot."
	}
	say = joinSentences(notice, is, say)
	out.event(tools.Info, say)
	out.event(tools.Completed, string(o.Kind))
	return tools.Result{
		Value:  result{Stdout: stdout, Stderr: stderr, State: string(o.Kind), Screen: tools.TruncateTail(o.Screen, maxOutput), Notice: say},
		Failed: k.t.cfg.Once, Text: displayText(stdout, stderr, end), Cut: cutAt(stdout, stderr),
	}
}

// interrupt ends a command in a pane to which nobody returns, and says how that went: the sentence
// begins with "was".
func (k *call) interrupt(ctx context.Context, p session.Pane) string {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.t.cfg.StopWithin)
	defer cancel()
	if err := p.Interrupt(stop); err == nil && becomesIdle(stop, p) {
		return "was ended with Ctrl-C"
	}
	return "was not ended by Ctrl-C: its terminal closes when this command exits, which ends it unless it ignores that (SIGHUP)"
}

// stopInPane interrupts a command because a person said stop, and reports the result. When the bot
// itself shuts down, the command is left running.
func (k *call) stopInPane(ctx context.Context, p session.Pane, o tmux.Outcome, out *stream) (tools.Result, error) {
	r := result{Stdout: shorten(o.Stdout), Stderr: shorten(o.Stderr), State: "stopped"}
	if errors.Is(context.Cause(ctx), tools.ErrShutdown) && !k.t.cfg.Once {
		r.State, r.Notice = "unknown", fmt.Sprintf("The bot went away; the command was left running in pane %s.", p.ID())
		return tools.Result{Value: r, Failed: true, Unknown: true, Why: r.Notice, Text: r.Notice}, nil
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.t.cfg.StopWithin)
	defer cancel()
	err := p.Interrupt(stop)
	idle := err == nil && becomesIdle(stop, p)
	switch {
	case err != nil && !errors.Is(err, tmux.ErrGone):
		r.State, r.Notice = string(tmux.StateRunning),
			fmt.Sprintf("Stop was asked for, but the command in pane %s could not be interrupted: %v. It may still be running.", p.ID(), err)
	case idle || err != nil:
		r.Notice = "Stopped before its end. What it had done until then stays done."
	default:
		r.State, r.Notice = string(tmux.StateRunning), fmt.Sprintf("Stop was asked for and Ctrl-C was pressed in pane %s, but the command is still running.", p.ID())
	}
	out.event(tools.Info, r.Notice)
	out.event(tools.Completed, r.State)
	// If the pane could not be reached, the command may end in any way.
	res := tools.Result{Value: r, Failed: true, Text: displayText(r.Stdout, r.Stderr, r.Notice), Cut: cutAt(r.Stdout, r.Stderr)}
	if err != nil && !errors.Is(err, tmux.ErrGone) {
		res.Unknown, res.Why = true, r.Notice
	}
	return res, nil
}

// becomesIdle waits for the pane's prompt until ctx ends.
func becomesIdle(ctx context.Context, p session.Screen) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		info, err := p.Info(ctx)
		switch {
		case errors.Is(err, tmux.ErrGone):
			return true
		case err == nil && (info.State == tmux.StateIdle || info.State == tmux.StateDead):
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

func lostResult(where, stdout, stderr, notice string, out *stream) tools.Result {
	why := "Contact with " + where + " was lost while the command ran"
	say := joinSentences(notice, why+": it may or may not have happened. Check its effect with a command that only reads before doing anything else.")
	out.event(tools.Info, say)
	out.event(tools.Completed, "lost")
	return tools.Result{
		Value:  result{Stdout: stdout, Stderr: stderr, State: string(tmux.Lost), Notice: say},
		Failed: true, Unknown: true, Why: why + ".", Text: displayText(stdout, stderr, say),
	}
}

// timeoutMessage is the message for a wait that ended before the command.
func timeoutMessage(limit time.Duration, what, stdout, stderr string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "command timed out after %s (timeout) and %s", limit, what)
	for _, o := range []struct{ name, text string }{{"stdout", stdout}, {"stderr", stderr}} {
		if o.text != "" {
			fmt.Fprintf(&s, "\n%s so far:\n%s", o.name, o.text)
		}
	}
	return s.String()
}

// shorten cuts a captured stream for the model.
func shorten(c tmux.Captured) string {
	return tools.Ends(string(c.Head), string(c.Tail), c.Dropped(), maxOutput)
}
