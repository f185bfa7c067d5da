package shell

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/truncate"
)

//go:embed bash.md
var bashDescription string

// bashTimeout is the default timeout of the tool bash.
const bashTimeout = 120 * time.Second

// NewBash returns the tool bash: it runs a command as a separate process and returns both streams
// in the order written. It never uses a pane.
func NewBash(c Config) tools.Tool {
	c.Sessions, c.Ways, c.Notice = nil, nil, ""
	t, ok := New(c).(*tool)
	if !ok {
		panic("shell: New makes another tool") // a programming error
	}
	return &bashTool{t}
}

type bashTool struct{ t *tool }

// Spec implements tools.Tool.
func (b *bashTool) Spec() tools.Spec {
	return tools.Spec{
		Name: "bash", Description: bashDescription, Level: risk.Read, // as run_shell: the risk engine judges the text
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"command": {Type: "string", Pattern: `\S`, MaxLength: maxCommand, Description: "Shell command."},
				"timeout": {Type: "integer", Minimum: 1, Maximum: int(maxNamedWait.Seconds()), Description: "Seconds; default 120."},
			},
			Required: []string{"command"},
		}),
	}
}

// Plan implements tools.Tool.
func (b *bashTool) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Command string `json:"command"`
		Timeout int    `json:"timeout"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if strings.ContainsRune(args.Command, 0) {
		return tools.Plan{}, tools.Invalid(`"command" holds a NUL byte, which no shell accepts; remove it`)
	}
	t := b.t
	k := &call{t: t, thread: c.Thread, id: c.ID, dir: t.cfg.Dir, wait: wait{limit: bashTimeout}}
	k.args.Command = args.Command
	if args.Timeout > 0 {
		k.wait.limit = time.Duration(args.Timeout) * time.Second
	}
	var err error
	if k.caps, err = t.cfg.Target.Probe(ctx); err != nil {
		return tools.Plan{}, tools.Failed("the target %s does not answer: %w", t.cfg.Target.ID(), err)
	}
	if k.dir == "" {
		k.dir = "." // the target's default
	}
	seen := t.look(ctx, k.dir, k.args.Command, k.caps)
	if k.binding, err = t.bindLooked(ctx, k.dir, "", k.caps, seen); err != nil {
		return tools.Plan{}, bindError(err)
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindShell, Target: t.cfg.Target.ID(), User: t.cfg.User,
		Bytes: []byte(args.Command), Args: c.Args, Env: map[string]string{approvals.ProcessFact: environmentHash(k.environ())},
	}
	if !k.planRead(ctx, c, &a, seen) {
		k.boundText = args.Command
		if k.binding, err = t.bindLooked(ctx, k.dir, k.boundText, k.caps, seen); err != nil {
			return tools.Plan{}, bindError(err)
		}
	}
	a.Dir, a.Files = k.binding.dir, k.binding.files
	k.noteSight(c)
	run := k.runMerged
	if !k.read {
		run = t.noted(c, a, run)
	}
	return tools.Planned(a, approvals.Claim{}, run), nil
}

// runMerged runs the command with a single stream for stdout and stderr.
func (k *call) runMerged(ctx context.Context, sink tools.Sink) (tools.Result, error) {
	out := newStream(sink)
	defer out.close()
	out.event(tools.Started, k.args.Command)
	wctx, cancel := context.WithTimeoutCause(ctx, k.wait.limit, errTimeout)
	defer cancel()
	if !k.read { // only the directory matters to a read, and Start checks it
		if err := k.checkUnchanged(wctx); err != nil {
			return tools.Result{}, err
		}
	}
	both := &capture{truncate.NewWriter(), tools.Stdout, out}
	spec := k.spec()
	spec.Stdout, spec.Stderr = both, both
	res, end, err := k.run(ctx, wctx, spec, out)
	if err != nil {
		return tools.Result{}, err
	}
	return k.mergedResult(wctx, res, end, both, out)
}

// mergedResult reports a process with a single stream; wctx ended with the wait for it.
func (k *call) mergedResult(wctx context.Context, res backend.Result, end ending, both *capture, out *stream) (tools.Result, error) {
	out.flush()
	text, where := both.Text()
	if tried := k.deniedAttempt(res, text); tried != "" {
		out.event(tools.Completed, "refused")
		return tools.Result{Value: text, Text: text, Failed: true, Tried: tried}, nil
	}
	switch {
	case end == lost:
		return lostResult(k.t.cfg.Target.ID(), text, "", "", out), nil
	case end == left:
		return k.leftRunning(), nil
	case res.Killed && errors.Is(context.Cause(wctx), errTimeout):
		out.event(tools.Completed, "timeout")
		return tools.Result{Cut: where, Why: sayKilled(k.wait.limit)}, tools.Failed("%s", timeoutMessage(k.wait.limit, "was killed with everything it had started; give a longer timeout", text, ""))
	case res.Killed:
		text = strings.TrimRight(text, "\n") + "\n[stopped: the command was killed with everything it had started]"
		out.event(tools.Completed, "stopped")
		return tools.Result{Value: text, Text: text, Failed: true, Why: "stopped by a person while it ran", Cut: where}, nil
	case res.Code != 0:
		text = strings.TrimRight(text, "\n") + fmt.Sprintf("\n[exit code: %d]", res.Code)
		if spent := k.spent(res); spent != "" {
			text += "\n[" + spent + "]"
		}
		text = strings.TrimPrefix(text, "\n")
	}
	out.event(tools.Info, fmt.Sprintf("ended after %s", round(res.Duration)))
	out.event(tools.Completed, fmt.Sprintf("exit code %d", res.Code))
	r := tools.Result{Value: text, Text: text, Failed: res.Code != 0, Signal: res.Signal, Cut: where}
	if r.Failed {
		r.Why = fmt.Sprintf("exit code %d", res.Code)
	}
	return r, nil
}
