package shell

import (
	"context"
	_ "embed"
	"encoding/json"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
)

//go:embed undo_command.md
var undoDescription string

// Ways keeps how commands that change something can be undone.
type Ways interface {
	// Begin notes, right before an approved command of a call runs, how it can be undone. It takes at most
	// a few seconds. The command must not run if it fails.
	Begin(ctx context.Context, thread, call string, a approvals.Action) error
	// Ended notes what the command left, and reports whether it can be undone.
	Ended(ctx context.Context, thread, call string) bool
	// Back returns the text that undoes the command of a request, and its directory. The error says for
	// people why it can't be undone, or not any more.
	Back(ctx context.Context, thread, change string) (command, dir string, err error)
}

// undoable makes a run note how it can be undone.
func (t *tool) undoable(c tools.Call, a approvals.Action, run runFunc) runFunc {
	return func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		if err := t.cfg.Ways.Begin(ctx, c.Thread, c.ID, a); err != nil {
			return tools.Result{}, &tools.Error{Kind: tools.ExecutionFailed, Sentence: "not run: " + err.Error(), Cause: err, NotStarted: true}
		}
		return t.ended(ctx, c, sink, run)
	}
}

type runFunc = func(context.Context, tools.Sink) (tools.Result, error)

// ended runs something to its end, and says whether it can be undone.
func (t *tool) ended(ctx context.Context, c tools.Call, sink tools.Sink, run runFunc) (tools.Result, error) {
	res, err := run(ctx, sink)
	if err == nil && !res.Unknown && t.cfg.Ways != nil {
		res.Undo = t.cfg.Ways.Ended(context.WithoutCancel(ctx), c.Thread, c.ID)
	}
	return res, err
}

// undoer is the tool undo_command. People use it through a button or a chat command; models are not
// offered it.
type undoer struct{ t *tool }

// NewUndo returns the tool undo_command, whose commands run outside of terminals.
func NewUndo(c Config) tools.Tool {
	ways := c.Ways
	c.Sessions, c.Ways = nil, nil
	t, _ := New(c).(*tool)
	t.cfg.Ways = ways
	return undoer{t}
}

// Spec implements tools.Tool.
func (undoer) Spec() tools.Spec {
	return tools.Spec{
		Name: "undo_command", Description: undoDescription, Level: risk.Medium, Unlisted: true,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"change": {Type: "string", Pattern: `^[a-z0-9]{10}$`, Description: "Id of the command's request."}},
			Required:   []string{"change"},
		}),
	}
}

// Plan implements tools.Tool. It is called when people are asked and again right before the run, so what
// has changed since is noticed both times.
func (u undoer) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Change string `json:"change"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if u.t.cfg.Ways == nil {
		return tools.Plan{}, tools.Failed("nothing is kept for an undo here")
	}
	command, dir, err := u.t.cfg.Ways.Back(ctx, c.Thread, args.Change)
	if err != nil {
		return tools.Plan{}, tools.Failed("%w", err)
	}
	raw, err := json.Marshal(map[string]any{"command": command, "mutation": true, "privesc": false, "risk": "medium", "why": "undoes request " + args.Change})
	if err != nil {
		return tools.Plan{}, tools.Failed("%w", err)
	}
	cfg := u.t.cfg
	cfg.Ways = nil
	if dir != "" {
		cfg.Dir = dir
	}
	c.Name, c.Args = "run_shell", raw // for policies it is a command like any other
	return (&tool{cfg: cfg}).Plan(ctx, c)
}

// Resume implements tools.Resumer.
func (u undoer) Resume(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	k := &call{t: u.t, thread: c.Thread, id: c.ID, wait: wait{limit: u.t.cfg.MaxWait}}
	return k.resumeProcess(ctx, sink)
}
