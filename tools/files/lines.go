package files

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/tools"
)

//go:embed read.md
var linesDescription string

const (
	// maxLines and maxPage (bytes) bound what read returns of a file, whichever is reached first.
	maxLines = 2000
	maxPage  = 50 << 10
	// maxScan is the largest file in which read counts lines, in bytes.
	maxScan = 64 << 20
)

// pageReader is the tool read: a range of a file's lines.
type pageReader struct{ Config }

// Spec implements tools.Tool.
func (pageReader) Spec() tools.Spec {
	return tools.Spec{
		Name: "read", Description: linesDescription, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"path":   pathProperty(),
				"offset": {Type: "integer", Minimum: 1, Description: "First line; default 1."},
				"limit":  {Type: "integer", Minimum: 1, Description: "Most lines; default and maximum 2000."},
			},
			Required: []string{"path"},
		}),
	}
}

// Plan implements tools.Tool.
func (r pageReader) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Path   string `json:"path"`
		Offset int    `json:"offset"`
		Limit  int    `json:"limit"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	resolved, err := r.resolve(ctx, args.Path)
	if err != nil {
		return tools.Plan{}, err
	}
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: r.Target.ID(), User: r.User, Path: resolved, Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		sink(tools.Event{Kind: tools.Started, Text: "reading " + resolved})
		b, _, err := r.regular(ctx, args.Path, resolved, maxScan)
		if errors.Is(err, backend.ErrTooBig) {
			return tools.Result{}, tools.Failed("%s is larger than 64 MiB; read a part of it with run_shell (sed -n, tail, grep)", args.Path)
		}
		if err != nil {
			return tools.Result{}, err
		}
		if err := checkText(args.Path, b, int64(len(b))); err != nil {
			return tools.Result{}, err
		}
		text, err := page(b, max(args.Offset, 1), args.Limit)
		if err != nil {
			return tools.Result{}, tools.Failed("%s: %w", args.Path, err)
		}
		sink(tools.Event{Kind: tools.Info, Text: fmt.Sprintf("%d bytes", len(b))})
		sink(tools.Event{Kind: tools.Completed, Text: "read"})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

// regular reads a regular file and checks that it is still the planned one. Of a file larger than
// limit it returns the beginning, with backend.ErrTooBig.
func (c Config) regular(ctx context.Context, name, resolved string, limit int64) ([]byte, backend.FileInfo, error) {
	if err := c.checkSameFile(ctx, name, resolved); err != nil {
		return nil, backend.FileInfo{}, err
	}
	st, err := c.Target.FS().Stat(ctx, resolved)
	switch {
	case err != nil:
		return nil, st, explain(name, err)
	case st.Mode.IsDir():
		return nil, st, tools.Failed("%s is a directory; list it with ls", name)
	case !st.Mode.IsRegular():
		return nil, st, tools.Failed("%s is no regular file, and reading it could block; read it with run_shell if it must be", name)
	}
	b, large := c.Target.FS().ReadFile(ctx, resolved, limit)
	if large != nil && !errors.Is(large, backend.ErrTooBig) {
		return nil, st, explain(name, large)
	}
	// The permit is for this file, so a link that replaced it must not be read.
	if err := c.checkSameFile(ctx, name, resolved); err != nil {
		return nil, st, err
	}
	if now, err := c.Target.FS().Stat(ctx, resolved); err != nil || now.ID != st.ID {
		return nil, st, tools.Failed("%s was replaced while it was read; read it again", name)
	}
	return b, st, large
}

// page returns lines starting at first, with a note about what is left out.
func page(b []byte, first, limit int) (string, error) {
	lines := bytes.SplitAfter(b, []byte("\n"))
	if n := len(lines); n > 0 && len(lines[n-1]) == 0 {
		lines = lines[:n-1]
	}
	if first > len(lines) && (first > 1 || len(lines) > 0) {
		return "", fmt.Errorf("there is no line %d; the file has %d", first, len(lines))
	}
	if limit <= 0 || limit > maxLines {
		limit = maxLines
	}
	rest := lines[min(first-1, len(lines)):]
	var out strings.Builder
	shown := 0
	for _, l := range rest {
		if shown == limit || out.Len()+len(l) > maxPage {
			break
		}
		out.Write(l)
		shown++
	}
	if shown == 0 && len(rest) > 0 { // a single line longer than a page
		out.Write(trimPartialRune(rest[0][:maxPage]))
		fmt.Fprintf(&out, "\n[Output truncated at 50KB inside line %d of %d, which has %d bytes; the file has %d bytes]", first, len(lines), len(rest[0]), len(b))
		return strings.ToValidUTF8(out.String(), "\uFFFD"), nil
	}
	note := invalidBytesNote([]byte(out.String()))
	text := strings.ToValidUTF8(out.String(), "\uFFFD")
	if shown < len(rest) {
		why := fmt.Sprintf("after %d lines", shown)
		if shown < limit {
			why = "at 50KB"
		}
		text = strings.TrimSuffix(text, "\n") + fmt.Sprintf("\n[Output truncated %s: lines %d to %d of %d, the file has %d bytes; go on with "+
			"offset %d]", why, first, first+shown-1, len(lines), len(b), first+shown)
	}
	return text + note, nil
}
