package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"countersign/targets/backend"
	"countersign/targets/backend/approved"
	"countersign/tools"
)

// errTimeout is the cause of ending a run that took too long.
var errTimeout = errors.New("the wait is over")

// result is what the model gets.
type result struct {
	ExitCode *int `json:"exit_code"` // null if there is none
	// Output is what git printed: stdout, or stderr if stdout is empty.
	Output    string   `json:"output"`
	Conflicts []string `json:"conflicts,omitempty"` // files with merge conflicts
	Notice    string   `json:"notice,omitempty"`
}

// tee keeps the beginning of a stream and passes all of it on.
type tee struct {
	limitedBuffer
	kind tools.EventKind
	mu   *sync.Mutex // shared by both streams, so that the sink is called sequentially
	sink tools.Sink
}

func (t *tee) Write(b []byte) (int, error) {
	n, err := t.limitedBuffer.Write(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sink(tools.Event{Kind: t.kind, Text: strings.ToValidUTF8(string(b), "\ufffd")})
	return n, err
}

// run runs the planned command if nothing has changed since.
func (t *tool) run(ctx context.Context, c tools.Call, k *prepared, sink tools.Sink) (tools.Result, error) {
	sink(tools.Event{Kind: tools.Started, Text: string(k.action.Bytes)})
	if err := t.verifyUnchanged(ctx, c, k); err != nil {
		return tools.Result{}, err
	}
	wctx, cancel := context.WithTimeoutCause(ctx, t.MaxWait, errTimeout)
	defer cancel()
	var mu sync.Mutex
	so := &tee{limitedBuffer: limitedBuffer{limit: keepOutput}, kind: tools.Stdout, mu: &mu, sink: sink}
	se := &tee{limitedBuffer: limitedBuffer{limit: keepOutput}, kind: tools.Stderr, mu: &mu, sink: sink}
	spec := backend.Spec{Argv: k.argv, Dir: k.repo.dir, DirID: k.repo.dirID, Env: k.env, Stdout: so, Stderr: se}
	if k.change && t.Journal != nil {
		mark, err := t.Journal.Began(ctx, c.Thread, c.ID)
		if err != nil {
			return tools.Result{}, tools.NotRun("git", "it could not be noted: %w", err)
		}
		spec.Mark = mark
	}
	p, err := approved.Start(wctx, t.Target, spec)
	switch {
	case errors.Is(err, backend.ErrLost):
		return t.lostResult(k, "", sink)
	case err != nil:
		if errors.Is(err, backend.ErrChanged) {
			return tools.Result{}, tools.NotRun("git", "the directory %s changed after it was checked; propose it again: %w", k.repo.dir, err)
		}
		return tools.Result{}, tools.Failed("git did not start on %s: %w", t.Target.ID(), err)
	}
	res, err := p.Wait()
	mu.Lock() // drop what a background process still prints
	so.sink, se.sink = func(tools.Event) {}, func(tools.Event) {}
	mu.Unlock()
	text := firstNonEmpty(so.String(), se.String())
	if err != nil {
		return t.lostResult(k, text, sink)
	}
	if res.Killed {
		return t.stoppedResult(ctx, wctx, k, text, sink)
	}
	r := result{ExitCode: &res.Code, Output: text}
	if res.Signal != "" {
		r.Notice = "git was ended by the signal " + res.Signal + "."
	}
	if res.Code != 0 && k.change {
		r.Conflicts = conflicts(ctx, k.repo)
		if len(r.Conflicts) > 0 {
			r.Notice = strings.TrimSpace(r.Notice + fmt.Sprintf(" There are conflicts in %s. Nothing was committed: edit them, then git_add and "+
				"git_commit; or give up with run_shell and \"git merge --abort\".", count(len(r.Conflicts), "file", "files")))
		}
	}
	end := fmt.Sprintf("exit code %d", res.Code)
	sink(tools.Event{Kind: tools.Info, Text: strings.TrimSpace(end + ". " + r.Notice)})
	sink(tools.Event{Kind: tools.Completed, Text: end})
	return tools.Result{Value: r, Failed: res.Code != 0, Text: people(r, end), Cut: cut(text)}, nil
}

// firstNonEmpty returns stdout, or stderr if stdout is empty.
func firstNonEmpty(stdout, stderr string) string {
	if strings.TrimSpace(stdout) == "" {
		stdout = stderr
	}
	return tools.TruncateHead(stdout, maxOutput)
}

// cut returns text with a note if it is too long.
func cut(text string) string {
	if tools.Truncated(text) {
		return fmt.Sprintf("at %d characters", maxOutput)
	}
	return ""
}

func people(r result, end string) string {
	var b strings.Builder
	if s := strings.TrimRight(r.Output, "\n"); s != "" {
		b.WriteString(s + "\n")
	}
	if r.Notice != "" {
		b.WriteString(r.Notice + "\n")
	}
	return b.String() + end
}

// conflicts lists the files with merge conflicts; nil if they cannot be determined.
func conflicts(ctx context.Context, r *repo) []string {
	out, ok, err := r.read(ctx, "ls-files", "--unmerged", "-z")
	if err != nil || !ok {
		return nil
	}
	var names []string
	for entry := range strings.SplitSeq(out, "\x00") {
		if _, name, found := strings.Cut(entry, "\t"); found {
			names = append(names, strings.ToValidUTF8(name, "\ufffd"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stoppedResult is the result of a run that a person or the timeout ended.
func (t *tool) stoppedResult(ctx, wctx context.Context, k *prepared, text string, sink tools.Sink) (tools.Result, error) {
	r := result{Output: text, Notice: "git was killed, because somebody said stop."}
	switch {
	case errors.Is(context.Cause(ctx), tools.ErrShutdown):
		r.Notice = "git was killed, because the bot went away."
	case errors.Is(context.Cause(wctx), errTimeout):
		r.Notice = fmt.Sprintf("git did not end within %s and was killed.", t.MaxWait)
	}
	if k.change {
		r.Notice += " What it had done until then stays done; a file index.lock may be left in " + k.repo.git + "."
	}
	sink(tools.Event{Kind: tools.Info, Text: r.Notice})
	sink(tools.Event{Kind: tools.Completed, Text: "stopped"})
	return tools.Result{Value: r, Failed: true, Text: people(r, "stopped"), Cut: cut(text)}, nil
}

// lostResult is the result of a run whose outcome is unknown.
func (t *tool) lostResult(k *prepared, text string, sink tools.Sink) (tools.Result, error) {
	lost := "Contact with " + t.Target.ID() + " was lost while git ran"
	r := result{Output: text, Notice: lost + ": it may or may not have happened. Look with git_status and git_log before doing anything else."}
	if !k.change {
		r.Notice = "Contact with " + t.Target.ID() + " was lost while git looked. Nothing was changed."
	}
	sink(tools.Event{Kind: tools.Info, Text: r.Notice})
	sink(tools.Event{Kind: tools.Completed, Text: "outcome unknown"})
	res := tools.Result{Value: r, Failed: true, Unknown: k.change, Text: people(r, "outcome unknown")}
	if k.change {
		res.Why = lost + "."
	}
	return res, nil
}
