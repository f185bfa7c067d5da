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

// target is where plugins run: beside the bot.
const target = "harness"

// Plan implements tools.Tool. The action names the program, by its files' content,
// and the exact arguments.
func (t *tool) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	now, err := t.plugin.last()
	if err != nil {
		return tools.Plan{}, err
	}
	if err := t.same(now); err != nil {
		return tools.Plan{}, err
	}
	if !now.link.features[featLarge] {
		// 64 bytes for the call's number and its timeout
		if n := len(encode(callMessage{Type: "call", Name: t.name, Params: c.Args})) + 64; n > maxCall {
			return tools.Plan{}, tools.Invalid("the arguments make a line of %d bytes, and the plugin %s takes at most %d; send less at once", n, t.plugin.cfg.Name, maxCall)
		}
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, c.Args, "", "  "); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	a := approvals.Action{
		Tool: t.name, Kind: approvals.KindChange, Target: target, Dir: t.plugin.program.Dir,
		Bytes: c.Args, Args: c.Args, Files: maps.Clone(now.sums),
		Preview: fmt.Sprintf("Tool %s of the plugin %s (%s), with these arguments:\n%s", t.name, t.plugin.cfg.Name, shown(t.plugin.program, now.sums), pretty.String()),
		Whole:   true, // the arguments are all there, only with more blanks
	}
	if t.spec.Level == risk.Read {
		a.Kind = approvals.KindObserve // by the operator's word, and only by that
	}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.run(ctx, c, a.Files, sink)
	}), nil
}

// shown is what was started, for people: the executable and those of its
// arguments that are files. Others may be secrets.
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

// same tells whether the program still describes the tool as it did at first.
func (t *tool) same(now run) error {
	switch now.prints[t.name] {
	case t.sum:
		return nil
	case "":
		return tools.Failed("the plugin %s was started again and has no tool %s any more; start the bot again to see its present tools", t.plugin.cfg.Name, t.name)
	}
	return tools.Failed("the plugin %s was started again and describes %s differently now, so nothing was run; start the bot again to see its present description", t.plugin.cfg.Name, t.name)
}

// run gives the call to the program. It is given once, whatever happens.
func (t *tool) run(ctx context.Context, c tools.Call, files map[string]string, sink tools.Sink) (tools.Result, error) {
	sink(tools.Event{Kind: tools.Started, Text: t.name})
	for range foreign.Tries + 1 {
		now, err := t.plugin.live(ctx)
		if err != nil {
			return tools.Result{}, t.notBegun(ctx, err)
		}
		if err := t.same(now); err != nil {
			return tools.Result{}, err
		}
		if !maps.Equal(now.sums, files) {
			return tools.Result{}, tools.Failed("the files of the plugin %s changed since this was planned, so nothing was run; propose it again", t.plugin.cfg.Name)
		}
		out, err := now.link.call(ctx, t.name, c.Args, t.plugin.cfg.Timeout, sink)
		if errors.Is(err, errNotBegun) {
			continue // nobody was given anything
		}
		if err != nil {
			return tools.Result{}, t.notBegun(ctx, err)
		}
		return t.result(ctx, c, out, sink)
	}
	return tools.Result{}, tools.Failed("the plugin %s ends whenever it is started, so nothing was run; say in the thread that it does not work", t.plugin.cfg.Name)
}

// notBegun is the error of a call that the program was not given.
func (t *tool) notBegun(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*tools.Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return tools.Failed("stopped before the plugin %s was given the call; nothing was run: %w", t.plugin.cfg.Name, context.Cause(ctx))
	}
	return tools.Failed("the plugin %s was not given the call: %w; nothing was run", t.plugin.cfg.Name, err)
}

// result makes of an outcome what the model is told.
func (t *tool) result(ctx context.Context, c tools.Call, out outcome, sink tools.Sink) (tools.Result, error) {
	unknown := func(why string) (tools.Result, error) {
		text := fmt.Sprintf("plugin %s: %s. Whether the call took effect is not known, and it is not repeated.", t.plugin.cfg.Name, why)
		t.plugin.journal.Warn(ctx, "the outcome of a plugin's call is not known", why)
		sink(tools.Event{Kind: tools.Info, Text: text})
		sink(tools.Event{Kind: tools.Completed, Text: "unknown"})
		return tools.Result{Value: text, Text: text, Unknown: true, Failed: true}, nil
	}
	if out.lost != "" {
		return unknown(out.lost)
	}
	if out.unread != "" {
		return unknown("its answer cannot be read: " + out.unread)
	}
	full, notes, files, err := content(t.name, out.content)
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
	if out.stopped != "" {
		notes = append(notes, "["+out.stopped+"; the plugin was told to stop, and this is its answer]")
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
	return tools.Result{Value: text, Text: text, Failed: out.stopped != "", Cut: cut, Full: full}, nil
}
