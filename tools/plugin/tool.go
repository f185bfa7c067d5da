package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/foreign"
	"countersign/tools/truncate"
)

// tool is one tool of a plugin.
type tool struct {
	plugin *runner
	name   string
	sum    string
	spec   tools.Spec
	files  func(ctx context.Context, thread, name, mime string, data []byte)
}

var _ tools.Tool = (*tool)(nil)

// Spec implements tools.Tool.
func (t *tool) Spec() tools.Spec { return t.spec }

// target is the target in actions: plugins run beside the bot.
const target = "harness"

// Plan implements tools.Tool. The action contains the hashes of the program's files and the exact
// arguments.
func (t *tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	now, err := t.plugin.lastRun()
	if err != nil {
		return tools.Plan{}, err
	}
	if err := t.checkSameTool(now); err != nil {
		return tools.Plan{}, err
	}
	if !now.session.features[featLarge] {
		// 64 bytes for the call's number and its timeout
		if n := len(encode(callMessage{Type: "call", Name: t.name, Params: c.Args})) + 64; n > maxCall {
			return tools.Plan{}, tools.Invalid("the arguments make a line of %d bytes, and the plugin %s takes at most %d; send less at once",
				n, t.plugin.cfg.Name, maxCall)
		}
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, c.Args, "", "  "); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{
		Tool: t.name, Kind: approvals.KindChange, Target: target, Dir: t.plugin.program.Dir,
		Bytes: c.Args, Args: c.Args, Files: maps.Clone(now.fileHashes),
		Preview: fmt.Sprintf("Tool %s of the plugin %s (%s), with these arguments:\n%s", t.name, t.plugin.cfg.Name,
			shown(t.plugin.program, now.fileHashes), pretty.String()),
		Whole: true, // all arguments, only with more white space
	}
	if t.spec.Level == risk.Read {
		a.Kind = approvals.KindObserve // only the operator can declare this
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.run(ctx, c, a.Files, sink)
	}), nil
}

// shown lists what was started: the executable and those arguments that are files. Others may be
// secrets.
func shown(p foreign.Program, files map[string]string) string {
	out := []string{p.Path}
	for _, a := range p.Args {
		if !filepath.IsAbs(a) {
			a = filepath.Join(p.Dir, a)
		}
		if _, ok := files[a]; ok {
			out = append(out, a)
		}
	}
	return strings.Join(out, " ")
}

// checkSameTool checks that the program still describes the tool as it did at first.
func (t *tool) checkSameTool(now run) error {
	switch now.fingerprints[t.name] {
	case t.sum:
		return nil
	case "":
		return tools.Failed("the plugin %s was started again and has no tool %s any more; start the bot again to see its present tools", t.plugin.cfg.Name, t.name)
	}
	return tools.Failed("the plugin %s was started again and describes %s differently now, so nothing was run; start the bot again to see "+
		"its present description", t.plugin.cfg.Name, t.name)
}

// run sends the call to the program, at most once.
func (t *tool) run(ctx context.Context, c tools.Call, files map[string]string, sink tools.Sink) (tools.Result, error) {
	sink(tools.Event{Kind: tools.Started, Text: t.name})
	for range foreign.Tries + 1 {
		now, err := t.plugin.liveRun(ctx)
		if err != nil {
			return tools.Result{}, t.notStartedError(ctx, err)
		}
		if err := t.checkSameTool(now); err != nil {
			return tools.Result{}, err
		}
		if !maps.Equal(now.fileHashes, files) {
			return tools.Result{}, tools.Failed("the files of the plugin %s changed since this was planned, so nothing was run; propose it again", t.plugin.cfg.Name)
		}
		out, err := now.session.call(ctx, t.name, c.Args, t.plugin.cfg.Timeout, sink)
		if errors.Is(err, errNotStarted) {
			continue // nothing was sent
		}
		if err != nil {
			return tools.Result{}, t.notStartedError(ctx, err)
		}
		return t.result(ctx, c, out, sink)
	}
	return tools.Result{}, tools.Failed("the plugin %s ends whenever it is started, so nothing was run; say in the thread that it "+
		"does not work", t.plugin.cfg.Name)
}

// notStartedError is the error of a call that was not sent.
func (t *tool) notStartedError(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*tools.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return tools.Failed("stopped before the plugin %s was given the call; nothing was run: %w", t.plugin.cfg.Name, context.Cause(ctx))
	}
	return tools.Failed("the plugin %s was not given the call: %w; nothing was run", t.plugin.cfg.Name, err)
}

// result converts an outcome to the model's result.
func (t *tool) result(ctx context.Context, c tools.Call, out outcome, sink tools.Sink) (tools.Result, error) {
	unknown := func(why string) (tools.Result, error) {
		lost := fmt.Sprintf("plugin %s: %s.", t.plugin.cfg.Name, why)
		text := lost + " Whether the call took effect is not known, and it is not repeated."
		t.plugin.journal.Warn(ctx, "the outcome of a plugin's call is not known", why)
		sink(tools.Event{Kind: tools.Info, Text: text})
		sink(tools.Event{Kind: tools.Completed, Text: "unknown"})
		return tools.Result{Value: text, Text: text, Unknown: true, Failed: true, Why: lost}, nil
	}
	if out.lostReason != "" {
		return unknown(out.lostReason)
	}
	if out.unread != "" {
		return unknown("its answer cannot be read: " + out.unread)
	}
	full, notes, files, err := parseContent(t.name, out.content)
	if err != nil {
		return unknown("its answer cannot be read: " + err.Error())
	}
	if t.files != nil {
		for _, f := range files {
			t.files(ctx, c.Thread, f.name, f.mime, f.data)
		}
	}
	text, cut := truncate.Both(full)
	if cut == "" {
		full = ""
	}
	if out.stopReason != "" {
		notes = append(notes, "["+out.stopReason+"; the plugin was told to stop, and this is its answer]")
	}
	for _, n := range notes {
		text = strings.TrimPrefix(strings.TrimSuffix(text, "\n")+"\n"+n, "\n")
	}
	if out.isError {
		if text == "" {
			text = "the plugin reports an error and says nothing of it"
		}
		sink(tools.Event{Kind: tools.Completed, Text: "error"})
		return tools.Result{}, tools.Failed("%s", text)
	}
	sink(tools.Event{Kind: tools.Completed, Text: "done"})
	return tools.Result{Value: text, Text: text, Failed: out.stopReason != "", Cut: cut, Full: full}, nil
}
