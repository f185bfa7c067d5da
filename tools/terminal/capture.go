package terminal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/session"
	"countersign/targets/tmux"
	"countersign/tools"
)

// maxScreen is how many characters of a snapshot the model gets.
const maxScreen = 8000

type capturer struct{ Config }

// Spec implements tools.Tool.
func (capturer) Spec() tools.Spec {
	line := func(d string) tools.Property {
		return tools.Property{Type: []string{"string", "integer"}, Pattern: `^(-|-?[0-9]{1,9})$`, Description: d}
	}
	flag := func(def bool, d string) tools.Property {
		return tools.Property{Type: "boolean", Default: def, Description: d}
	}
	return tools.Spec{
		Name: "capture-pane", Description: describe("capture-pane"), Level: risk.Read, NeedsTmux: true,
		Aliases: []string{"tmux-capture-pane"},
		Schema: tools.MustSchema(tools.SimpleSchema{Properties: merge(selectorProperties(), delayProperties("Wait first."), map[string]tools.Property{
			"start":                    line(`First line: 0 is the top of the screen, negative is history, "-" all history. Default 0.`),
			"end":                      line(`Last line. Default "-", the end of the screen.`),
			"join_wrapped_lines":       flag(true, "Join wrapped lines."),
			"preserve_trailing_spaces": flag(false, "Keep trailing spaces."),
			"include_escape_sequences": flag(false, "Keep ANSI colors."),
			"escape_non_printable":     flag(false, "Show control characters as octal."),
			"include_alternate_screen": flag(false, "Capture the alternate screen."),
		})}),
	}
}

type captureArgs struct {
	selector
	delay
	Start     json.RawMessage `json:"start"`
	End       json.RawMessage `json:"end"`
	Join      bool            `json:"join_wrapped_lines"`
	Spaces    bool            `json:"preserve_trailing_spaces"`
	Escapes   bool            `json:"include_escape_sequences"`
	Octal     bool            `json:"escape_non_printable"`
	Alternate bool            `json:"include_alternate_screen"`
}

// line converts a line number in either form to tmux's.
func line(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// Plan implements tools.Tool.
func (t capturer) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args captureArgs
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if err := args.normalize(); err != nil {
		return tools.Plan{}, err
	}
	wait, err := args.parse()
	if err != nil {
		return tools.Plan{}, err
	}
	notice := ""
	ref, err := t.Book.Find(ctx, c.Thread, args.Session, args.Pane)
	if missing(err) && args.Target == "" {
		notice = fallback(err)
		args.Session, args.Pane = "", ""
		ref, err = t.Book.Find(ctx, c.Thread, "", "")
	}
	if err != nil {
		return tools.Plan{}, tools.Failed("%w", err)
	}
	a := t.action(c.Name, approvals.KindObserve, ref, c.Args)
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.capture(ctx, c.Thread, ref, args, wait, notice, sink)
	}), nil
}

// fallback is the notice that another pane is shown.
func fallback(err error) string {
	return fmt.Sprintf("[notice: %s. This is the default shared pane instead.]", strings.TrimSuffix(err.Error(), "."))
}

func (t capturer) capture(ctx context.Context, thread string, ref session.Ref, args captureArgs, wait time.Duration, notice string,
	sink tools.Sink) (tools.Result, error) {
	sink(tools.Event{Kind: tools.Started, Text: "looking at the pane " + ref.Pane + " of " + ref.Session})
	if err := pause(ctx, wait); err != nil {
		return tools.Result{}, err
	}
	opts := tmux.CaptureOptions{
		Start: line(args.Start), End: line(args.End), Join: args.Join, TrailingSpaces: args.Spaces,
		Escapes: args.Escapes, EscapeNonPrintable: args.Octal, Alternate: args.Alternate,
	}
	text, after, err := t.readScreen(ctx, thread, ref.Session, ref.Pane, opts)
	if missing(err) {
		// The pane is gone, or the default pane was never created: try once more with the default
		// pane.
		if notice == "" && !createdOnDemand(ref) {
			notice = fallback(err)
		}
		var made string
		if _, made, err = t.Book.Ensure(ctx, thread, "", ""); err == nil {
			notice = strings.TrimSpace(notice + " " + made)
			text, after, err = t.readScreen(ctx, thread, "", "", opts)
		}
	}
	if err != nil {
		return tools.Result{}, tools.Failed("the pane cannot be captured: %w", err)
	}
	if !args.Spaces {
		text = strings.TrimRight(text, "\n")
		if text != "" {
			text += "\n"
		}
	}
	text = tools.TruncateTail(text, maxScreen)
	if notice != "" {
		text = notice + "\n" + text
		sink(tools.Event{Kind: tools.Info, Text: notice})
	}
	if after != "" {
		text = strings.TrimRight(text, "\n") + "\n[notice: " + after + "]"
		sink(tools.Event{Kind: tools.Info, Text: after})
	}
	sink(tools.Event{Kind: tools.Completed, Text: "captured"})
	return tools.Result{Value: text, Text: text}, nil
}

func (t capturer) readScreen(ctx context.Context, thread, session, pane string, o tmux.CaptureOptions) (text, notice string, err error) {
	p, err := t.Book.Open(ctx, thread, session, pane)
	if err != nil {
		return "", "", err
	}
	return p.Capture(ctx, o)
}
