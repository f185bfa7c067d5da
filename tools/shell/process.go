package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	if err := k.unchanged(wctx); err != nil {
		return tools.Result{}, err
	}
	spec := backend.Spec{Shell: k.args.Command, Dir: k.bound.dir, DirID: k.bound.id, Env: k.environ(), Stdout: stdout, Stderr: stderr}
	if k.proven && k.caps.Bash != "" {
		// Exactly the shell that the proof is about, without anybody's settings.
		spec.Shell, spec.Argv = "", []string{k.caps.Bash, "--noprofile", "--norc", "-c", k.args.Command}
	}
	res, gone, err := k.run(ctx, wctx, spec)
	if err != nil {
		return tools.Result{}, err
	}
	out.flush()
	so, se := cut(stdout.captured()), cut(stderr.captured())
	switch {
	case gone:
		return lost(k.t.cfg.Target.ID(), so, se, "", out), nil
	case res.Killed && errors.Is(context.Cause(wctx), errWaited):
		out.event(tools.Info, "killed")
		out.event(tools.Completed, "timeout")
		how := "use a target with tmux for long commands"
		if k.t.cfg.Sessions != nil {
			how = `use "wait": false to run it in a pane`
		}
		return tools.Result{}, tools.Failed("%s", timedOut(k.wait.limit, "was killed with everything it had started; allow more time, or "+how, so, se))
	case res.Killed:
		r := result{Stdout: so, Stderr: se, State: "stopped", Notice: "The command was killed with everything it had started, because somebody said stop. What it had done until then stays done."}
		if errors.Is(context.Cause(ctx), tools.ErrShutdown) {
			r.Notice = "The command was killed with everything it had started, because the bot went away. What it had done until then stays done."
		}
		out.event(tools.Info, r.Notice)
		out.event(tools.Completed, r.State)
		return tools.Result{Value: r, Failed: true, Text: people(so, se, r.Notice), Cut: where(so, se)}, nil
	}
	notice := sentences(k.notice, k.t.plainNotice(k.thread))
	if res.Signal != "" {
		notice = sentences(notice, "The command was ended by the signal "+res.Signal+".")
	}
	out.event(tools.Info, sentences(fmt.Sprintf("ended after %s", round(res.Duration)), notice))
	out.event(tools.Completed, fmt.Sprintf("exit code %d", res.Code))
	k.show(ctx, so, se)
	return exited(res.Code, so, se, notice), nil
}

// run notes a process, starts it and waits for its end; gone says that nobody knows
// how it ended. An error means that it did not run.
func (k *call) run(ctx, wctx context.Context, spec backend.Spec) (res backend.Result, gone bool, err error) {
	if !k.proven && k.t.cfg.Journal != nil {
		if spec.Mark, err = k.t.cfg.Journal.Began(ctx, k.thread, k.id); err != nil {
			return res, false, tools.Failed("the command was not run: it could not be noted: %w", err)
		}
	}
	target := k.t.cfg.Target
	p, err := target.Start(wctx, spec)
	if errors.Is(err, backend.ErrLost) {
		return res, true, nil
	}
	if err != nil {
		k.done(ctx, spec.Mark)
		if errors.Is(err, backend.ErrChanged) {
			return res, false, tools.Failed("the command was not run: the directory %s changed after it was checked; propose it again: %w", k.bound.dir, err)
		}
		return res, false, tools.Failed("the command did not start on %s: %w", target.ID(), err)
	}
	if res, err = p.Wait(); err != nil {
		return res, true, nil //nolint:nilerr // it ran, and nobody knows how that ended
	}
	k.done(ctx, spec.Mark)
	return res, false, nil
}

// done lets go of the note of a command whose outcome is known.
func (k *call) done(ctx context.Context, mark string) {
	if mark != "" {
		_ = k.t.cfg.Journal.Ended(context.WithoutCancel(ctx), k.thread, k.id) // see forget
	}
}

// plainNotice says once in each thread why there is no terminal.
func (t *tool) plainNotice(thread string) string {
	if t.cfg.Notice == "" {
		return ""
	}
	if _, said := t.said.LoadOrStore(thread, true); said {
		return ""
	}
	return t.cfg.Notice
}

// shower is a pane that can show people a text without its shell having a part in
// it; *tmux.Pane may be one.
type shower interface {
	Show(ctx context.Context, text string) error
}

// maxShown is how many characters of each stream a pane shows of what ran beside
// it.
const maxShown = 2000

// show lets the people at the pane see what ran beside it. It is a courtesy: the
// thread has the result, so a pane that cannot be made or written is passed over.
func (k *call) show(ctx context.Context, stdout, stderr string) {
	if k.t.cfg.Sessions == nil {
		return
	}
	p, _, err := k.t.cfg.Sessions.Ensure(ctx, k.thread, k.args.Session, k.args.Pane)
	if err != nil {
		return
	}
	if s, ok := p.(shower); ok {
		text := "(beside this shell) $ " + k.args.Command + "\n" + tools.TruncateHead(stdout, maxShown)
		if stderr != "" {
			text = strings.TrimRight(text, "\n") + "\n" + tools.TruncateHead(stderr, maxShown)
		}
		_ = s.Show(ctx, text) // see above
	}
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
