package shell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"countersign/approvals"
	"countersign/internal/failpoint"
	"countersign/targets/backend"
	"countersign/targets/backend/approved"
	"countersign/targets/lock"
	"countersign/targets/tmux"
	"countersign/tools"
	"countersign/tools/truncate"
)

// runProcess runs the command as a separate process.
func (k *call) runProcess(ctx context.Context, sink tools.Sink) (tools.Result, error) {
	out := newStream(sink)
	defer out.close()
	out.event(tools.Started, k.args.Command)
	wctx, cancel := context.WithTimeoutCause(ctx, k.wait.limit, errTimeout)
	defer cancel()
	led := k.followLinks(wctx, out, cancel)
	stdout, stderr := newCapture(tools.Stdout, out), newCapture(tools.Stderr, out)
	if !k.read { // only the directory matters to a read, and Start checks it
		if err := k.checkUnchanged(wctx); err != nil {
			return tools.Result{}, err
		}
	}
	spec := backend.Spec{Shell: k.args.Command, Dir: k.binding.dir, DirID: k.binding.id, Env: k.environ(), Stdout: stdout, Stderr: stderr, Lock: k.lock()}
	spec.Bounded = k.read && spec.Lock == nil
	if (k.read || k.alone) && k.caps.Bash != "" {
		// Exactly the shell that a proof is about, without startup files.
		spec.Shell, spec.Argv = "", []string{k.caps.Bash, "--noprofile", "--norc", "-c", k.args.Command}
	}
	if k.linksLater {
		if spec.Shell != "" {
			spec.Shell, spec.Argv = "", []string{"sh", "-c", k.args.Command}
		}
		opened := k.opened(k.args.Command)
		spec.Argv = slices.Concat([]string{"sh", "-c", unlessPipe, "sh", strconv.Itoa(len(opened))}, opened, spec.Argv)
	}
	if k.runsCertified {
		spec.Approval = string(approvals.UnderOf(ctx))
		k.notice = separateShellNote(k.args.Command, k.dir)
	}
	res, end, err := k.run(ctx, wctx, spec, out)
	to := led()
	if to == toPrivate {
		return tools.Result{Value: result{State: "refused"}, Failed: true, Text: "refused", Tried: triedLink}, nil
	}
	if err != nil {
		return tools.Result{}, err
	}
	out.flush()
	so, se := shorten(stdout.captured()), shorten(stderr.captured())
	if to == toUnknown {
		so, se = "", ""
		if end == ended && !res.Killed {
			return tools.Result{}, tools.Failed("%s did not say where the names in this read lead, so what it printed is not shown; run it again", k.t.cfg.Target.ID())
		}
	}
	if tried := k.deniedAttempt(res, so, se); tried != "" {
		out.event(tools.Info, "it is no read: it tried to "+tried+", which was refused")
		out.event(tools.Completed, "refused")
		return tools.Result{Value: result{Stdout: so, Stderr: se, State: "refused"}, Failed: true, Text: displayText(so, se, "refused"), Tried: tried}, nil
	}
	return k.processResult(ctx, wctx, res, end, so, se, out)
}

// spent is what to say of a read that used up its processor time (Spec.Bounded, lock.MaxCPU), "" of any other.
func (k *call) spent(res backend.Result) string {
	if !k.read || res.Code != 128+int(syscall.SIGXCPU) {
		return ""
	}
	return "This read used its 2 minutes of processor time. Narrow it, or propose it as a change."
}

// leftRunning is the result of a process that outlives the bot.
func (k *call) leftRunning() tools.Result {
	return unknownResult("The bot went away; the command was left running on " + k.t.cfg.Target.ID() + ".")
}

// ending is how the wait for a process ended.
type ending int

const (
	ended ending = iota
	lost         // nobody knows what became of it
	left         // the bot goes away, and the process runs on
)

// processResult reports a process: wctx ended with the wait for it, ctx with the call.
func (k *call) processResult(ctx, wctx context.Context, res backend.Result, end ending, so, se string, out *stream) (tools.Result, error) {
	switch {
	case end == lost:
		return lostResult(k.t.cfg.Target.ID(), so, se, "", out), nil
	case end == left:
		return k.leftRunning(), nil
	case res.Killed && errors.Is(context.Cause(wctx), errTimeout):
		out.event(tools.Info, "killed")
		out.event(tools.Completed, "timeout")
		how := "use a target with tmux for long commands"
		if k.t.cfg.Once {
			how = "ask a running bot"
		} else if k.t.cfg.Sessions != nil && !k.alone {
			how = `use "wait": false to run it in a pane`
		}
		return tools.Result{Cut: cutAt(so, se), Why: sayKilled(k.wait.limit)}, tools.Failed("%s", timeoutMessage(k.wait.limit, "was killed with everything it had started; allow more time, or "+how, so, se))
	case res.Killed:
		r := result{Stdout: so, Stderr: se, State: "stopped",
			Notice: "Stopped. The command and everything it had started were killed. What it had done until then stays done."}
		if errors.Is(context.Cause(ctx), tools.ErrShutdown) {
			r.Notice = "The bot went away, so the command and everything it had started were killed. What it had done until then stays done."
		}
		out.event(tools.Info, r.Notice)
		out.event(tools.Completed, r.State)
		return tools.Result{Value: r, Failed: true, Text: displayText(so, se, r.Notice), Cut: cutAt(so, se)}, nil
	}
	notice := joinSentences(k.notice, k.t.noTerminalNotice(k.thread))
	if spent := k.spent(res); spent != "" {
		notice = joinSentences(notice, spent)
	} else if res.Signal != "" {
		notice = joinSentences(notice, "The command was ended by the signal "+res.Signal+".")
	}
	out.event(tools.Info, joinSentences(fmt.Sprintf("ended after %s", round(res.Duration)), notice))
	out.event(tools.Completed, fmt.Sprintf("exit code %d", res.Code))
	k.showInPane(ctx, so, se)
	r := exitedResult(res.Code, so, se, notice)
	r.Signal = res.Signal
	return r, nil
}

// sayKilled says for people that a command took too long.
func sayKilled(limit time.Duration) string {
	return fmt.Sprintf("it took more than %s and was killed with everything it had started", limit)
}

// triedLink is what a read tried that was stopped because of where a name leads.
const triedLink = "read a pipe, a terminal, or a link to a protected file"

// lead is where the names of a read lead.
type lead int

const (
	toShown   lead = iota // only to what may be shown
	toPrivate             // also to what may not be shown without approval
	toUnknown             // the target did not say, so nothing is shown
)

// followLinks begins to look at where the names of a read lead, if its plan left that for now.
// Until that is known, nothing of the output is passed on; a read that must not be shown is
// ended. The function that it returns waits for the answer.
func (k *call) followLinks(ctx context.Context, out *stream, end func()) func() lead {
	if !k.linksLater {
		return func() lead { return toShown }
	}
	release := out.hold()
	answer := make(chan lead, 1)
	go func() {
		switch private, err := k.linksToPrivate(ctx, k.args.Command, looks{}); {
		case err != nil:
			release(false)
			answer <- toUnknown
		case private:
			release(false)
			end()
			answer <- toPrivate
		default:
			release(true)
			answer <- toShown
		}
	}()
	return func() lead { return <-answer }
}

// run records a process, starts it and waits for its end. An error means that it did not run.
func (k *call) run(ctx, wctx context.Context, spec backend.Spec, out *stream) (res backend.Result, end ending, err error) {
	if !k.read && k.t.cfg.Journal != nil { // a read may be repeated
		if spec.Mark, err = k.t.cfg.Journal.Began(ctx, k.thread, k.id); err != nil {
			return res, lost, tools.NotRun("the command", "it could not be noted: %w", err)
		}
		failpoint.Hit(failpoint.CommandNoted)
		k.runs(ctx, spec.Mark, "", "")
	}
	target := k.t.cfg.Target
	sctx := wctx
	var streams passed
	if k.outlives(spec) {
		streams = passOn(&spec)
		var cancel context.CancelFunc
		sctx, cancel = untilStopped(wctx)
		defer func() {
			if end != left { // what is left is not ended with this call
				cancel()
			}
		}()
	}
	p, err := approved.Start(sctx, target, spec)
	if k.known && (errors.Is(err, backend.ErrChanged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) { // it was replaced or removed since it was looked at last
		now, lookErr := k.t.bind(wctx, k.dir, "", k.caps)
		switch {
		case lookErr != nil:
		case now.gone:
			return res, lost, tools.NotRun("the command", "the directory %s is gone; run it again, and it runs in /", k.dir)
		case errors.Is(err, backend.ErrChanged) && now.dir == k.binding.dir && now.id != "":
			spec.DirID = now.id
			p, err = approved.Start(wctx, target, spec)
		}
	}
	switch {
	case errors.Is(err, backend.ErrLost) && k.outlives(spec):
		res, end = k.rejoin(wctx, spec, out)
		return res, end, nil
	case errors.Is(err, backend.ErrLost):
		return res, lost, nil
	case err != nil:
		if errors.Is(err, backend.ErrChanged) {
			return res, lost, tools.NotRun("the command", "the directory %s changed after it was checked; propose it again: %w", k.binding.dir, err)
		}
		if k.runsCertified {
			return res, lost, tools.NotRun("the command", "%w", err)
		}
		return res, lost, tools.NotRun("the command", "it did not start on %s: %w", target.ID(), err)
	}
	if res, end = waitFor(wctx, p, k.outlives(spec)); end == lost && k.outlives(spec) {
		streams.again()
		res, end = k.rejoin(wctx, spec, out)
	}
	return res, end, nil
}

// outlives reports whether a process goes on when the bot goes away, and is found again.
func (k *call) outlives(spec backend.Spec) bool {
	_, can := k.t.cfg.Target.(backend.Witness)
	return can && spec.Mark != "" && !k.t.cfg.Once
}

// untilStopped is a context with the deadline of ctx that ends when ctx does, except when the bot
// goes away.
func untilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	until, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	end := func() { cancel(nil) }
	if at, ok := ctx.Deadline(); ok {
		var release context.CancelFunc
		until, release = context.WithDeadline(until, at)
		end = func() { release(); cancel(nil) }
	}
	stop := context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, tools.ErrShutdown) {
			cancel(cause)
		}
	})
	return until, func() { stop(); end() }
}

// waitFor waits for a process, but not where the bot goes away and the process outlives it.
func waitFor(ctx context.Context, p backend.Process, outlives bool) (backend.Result, ending) {
	var res backend.Result
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		res, err = p.Wait()
	}()
	select {
	case <-over:
	case <-ctx.Done():
		if outlives && errors.Is(context.Cause(ctx), tools.ErrShutdown) {
			return backend.Result{}, left
		}
		<-over
	}
	if err != nil { // it ran, and its outcome is unknown
		return res, lost
	}
	return res, ended
}

// noTerminalNotice returns, once per thread, why there is no terminal.
func (t *tool) noTerminalNotice(thread string) string {
	if t.cfg.Notice == "" {
		return ""
	}
	if _, said := t.noticeShown.LoadOrStore(thread, true); said {
		return ""
	}
	return t.cfg.Notice
}

// showInPane shows people at the pane what ran outside it, after the result is known. It is a
// courtesy: the thread has the result, so errors are ignored.
func (k *call) showInPane(ctx context.Context, stdout, stderr string) {
	if k.t.cfg.Sessions == nil || k.t.cfg.Once || k.alone {
		return
	}
	k.t.showQueue.add(k.thread, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), showTimeout)
		defer cancel()
		p, _, err := k.t.cfg.Sessions.Ensure(ctx, k.thread, k.args.Session, k.args.Pane)
		if err != nil {
			return
		}
		text := "(beside this shell) $ " + k.args.Command + "\n" + stdout
		if stderr != "" {
			text = strings.TrimRight(text, "\n") + "\n" + stderr
		}
		_ = p.Show(ctx, text) // see above
	})
}

// showTimeout bounds how long creating a pane and showing output in it may take.
const showTimeout = 20 * time.Second

// showQueue shows output in panes, sequentially within each thread. The zero value is ready to use.
type showQueue struct {
	mu   sync.Mutex
	last map[string]chan struct{} // per thread; closed when everything queued so far is shown
}

// add queues show after everything queued for the thread; it returns at once.
func (s *showQueue) add(thread string, show func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[string]chan struct{}{}
	}
	before, done := s.last[thread], make(chan struct{})
	s.last[thread] = done
	go func() {
		if before != nil {
			<-before
		}
		show()
		s.mu.Lock()
		if s.last[thread] == done {
			delete(s.last, thread)
		}
		s.mu.Unlock()
		close(done)
	}()
}

// wait waits until everything queued for a thread is shown.
func (s *showQueue) wait(thread string) {
	s.mu.Lock()
	last := s.last[thread]
	s.mu.Unlock()
	if last != nil {
		<-last
	}
}

// deniedAttempt returns what a read attempted and the lock refused, so it is not a read; "" if nothing, or
// nothing that its result depends on, as far as what it printed tells.
func (k *call) deniedAttempt(res backend.Result, printed ...string) string {
	if !k.read || len(res.Hits) == 0 {
		return ""
	}
	if slices.ContainsFunc(res.Hits, func(h backend.Hit) bool { return !h.OfCache(k.caps.Home) }) {
		return lock.Sentence(res.Hits)
	}
	if said := strings.Join(printed, ""); res.Code != 0 && (said == "" || saysRefused(said)) {
		return lock.Sentence(res.Hits)
	}
	return ""
}

// saysRefused reports whether a program says that something was refused.
func saysRefused(printed string) bool {
	printed = strings.ToLower(printed)
	return slices.ContainsFunc([]string{"permission denied", "not permitted", "read-only file system"}, func(s string) bool { return strings.Contains(printed, s) })
}

// capture keeps both ends of a stream and passes all of it on.
type capture struct {
	*truncate.Writer
	kind tools.EventKind
	out  *stream
}

func newCapture(kind tools.EventKind, out *stream) *capture {
	return &capture{truncate.Halves(keepOutput), kind, out}
}

// Write implements io.Writer.
func (c *capture) Write(b []byte) (int, error) {
	c.out.bytes(c.kind, b)
	return c.Writer.Write(b)
}

func (c *capture) captured() tmux.Captured {
	head, tail, size, _ := c.Ends()
	return tmux.Captured{Head: []byte(head), Tail: []byte(tail), Total: size}
}
