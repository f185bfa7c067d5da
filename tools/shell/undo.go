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

// Receipts notes what approved commands really change.
type Receipts interface {
	// Begin begins to look at the target for a call, unless that has begun, and does not wait. It ends if
	// nothing runs soon.
	Begin(thread, call string)
	// Runs says what the command will be, right before it runs: the program that is started next with mark
	// among its arguments, or what the process with this number does, which notes ends of commands in the file
	// records. It takes at most a fraction of a second.
	Runs(ctx context.Context, thread, call, mark, process, records string)
	// Ended yields what the command of a call changed, which this or an earlier process of the bot began,
	// within a few seconds; soon says that it takes milliseconds. The zero Receipt means that nobody looked.
	Ended(ctx context.Context, thread, call string) (found <-chan approvals.Receipt, soon bool)
}

// noted makes a run note what it changes, and how that can be undone.
func (t *tool) noted(c tools.Call, a approvals.Action, run runFunc) runFunc {
	return func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		if t.cfg.Receipts != nil {
			t.cfg.Receipts.Begin(c.Thread, c.ID)
		}
		return t.ended(ctx, c, sink, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
			if t.cfg.Ways != nil {
				if err := t.cfg.Ways.Begin(ctx, c.Thread, c.ID, a); err != nil {
					return tools.Result{}, &tools.Error{Kind: tools.ExecutionFailed, Sentence: "not run: " + err.Error(), Cause: err, NotStarted: true}
				}
			}
			return run(ctx, sink)
		})
	}
}

// runs says what the call's command will be, right before it runs.
func (k *call) runs(ctx context.Context, mark, process, records string) {
	if !k.read && !k.wait.dispatch && k.t.cfg.Receipts != nil {
		k.t.cfg.Receipts.Runs(ctx, k.thread, k.id, mark, process, records)
	}
}

type runFunc = func(context.Context, tools.Sink) (tools.Result, error)

// ended runs something to its end, and says what it changed and whether that can be undone.
func (t *tool) ended(ctx context.Context, c tools.Call, sink tools.Sink, run runFunc) (tools.Result, error) {
	res, err := run(ctx, sink)
	ctx = context.WithoutCancel(ctx)
	if t.cfg.Receipts != nil {
		res.Receipt, res.ReceiptSoon = t.cfg.Receipts.Ended(ctx, c.Thread, c.ID)
	}
	res.Undo = err == nil && !res.Unknown && t.cfg.Ways != nil && t.cfg.Ways.Ended(ctx, c.Thread, c.ID)
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
	raw, err := json.Marshal(map[string]any{"command": command, "mutation": true, "privesc": false, "risk": "medium", "why": "undo"})
	if err != nil {
		return tools.Plan{}, tools.Failed("%w", err)
	}
	cfg := u.t.cfg
	cfg.Ways = nil
	if dir != "" {
		cfg.Dir = dir
	}
	c.Name, c.Args = "run_shell", raw // for policies it is a command like any other
	plan, err := (&tool{cfg: cfg}).Plan(ctx, c)
	plan.Undoes = approvals.ID(args.Change)
	return plan, err
}

// Resume implements tools.Resumer.
func (u undoer) Resume(ctx context.Context, c tools.Call, sink tools.Sink) (tools.Result, error) {
	k := &call{t: u.t, thread: c.Thread, id: c.ID, wait: wait{limit: u.t.cfg.MaxWait}}
	return u.t.ended(ctx, c, sink, k.resumeProcess)
}
