package output

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/truncate"
)

//go:embed read_output.md
var readDescription string

// maxLine is how many bytes of one line are shown.
const maxLine = 4 << 10

// Reader returns the tool read_output.
func (l *Log) Reader() tools.Tool { return reader{l} }

type reader struct{ l *Log }

// Spec implements tools.Tool.
func (reader) Spec() tools.Spec {
	return tools.Spec{
		Name: "read_output", Description: readDescription, Level: risk.Read,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{
				"output": {Type: "string", Pattern: idForm.String(), Description: "Id from the note in the result."},
				"offset": {Type: "integer", Minimum: 1, Description: "First line; default 1."},
				"limit":  {Type: "integer", Minimum: 1, Maximum: truncate.MaxLines, Description: "Most lines; default 2000."},
				"grep":   {Type: "string", MaxLength: 1000, Description: "Only lines matching this regular expression."},
			},
			Required: []string{"output"},
		}),
	}
}

// Plan implements tools.Tool.
func (r reader) Plan(_ context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Output string `json:"output"`
		Offset int    `json:"offset"`
		Limit  int    `json:"limit"`
		Grep   string `json:"grep"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	var match *regexp.Regexp
	if args.Grep != "" {
		var err error
		if match, err = regexp.Compile(args.Grep); err != nil {
			return tools.Plan{}, tools.Invalid(`"grep" is no regular expression: %v`, err)
		}
	}
	args.Offset = max(args.Offset, 1)
	if args.Limit == 0 {
		args.Limit = truncate.MaxLines
	}
	a := approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: "harness", Args: c.Args}
	return tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		f, _, err := r.l.OpenContext(ctx, c.Thread, args.Output)
		if errors.Is(err, ErrNone) {
			return tools.Result{}, tools.Failed("there is no output %s in this thread, or no longer; run the command again if you still need it", args.Output)
		}
		if err != nil {
			return tools.Result{}, tools.Failed("the output %s cannot be read: %w", args.Output, err)
		}
		defer func() { _ = f.Close() }()
		text, err := page(ctx, f, args.Offset, args.Limit, match)
		if err != nil {
			return tools.Result{}, tools.Failed("the output %s cannot be read: %w", args.Output, err)
		}
		sink(tools.Event{Kind: tools.Completed, Text: "read"})
		return tools.Result{Value: text, Text: text}, nil
	}), nil
}

// page returns lines from offset on, at most limit and truncate.MaxBytes. With match it returns
// only matching lines, each with its number.
func page(ctx context.Context, f io.Reader, offset, limit int, match *regexp.Regexp) (string, error) {
	in := bufio.NewReaderSize(f, 64<<10)
	var out strings.Builder
	shown, more, next, total := 0, 0, 0, 0
	for {
		line, err := readLine(in)
		if line == "" && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		total++
		if total%4096 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		if total < offset || match != nil && !match.MatchString(strings.TrimSuffix(line, "\n")) {
			continue
		}
		if shown >= limit || out.Len()+len(line) > truncate.MaxBytes {
			if more++; next == 0 {
				next = total
			}
			continue
		}
		shown++
		if match != nil {
			fmt.Fprintf(&out, "%d:", total)
		}
		out.WriteString(line)
	}
	text := strings.ToValidUTF8(out.String(), "\uFFFD")
	what := "lines"
	if match != nil {
		what = "matching lines"
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if more > 0 {
		return text + fmt.Sprintf("[%d more %s; go on with offset %d]", more, what, next), nil
	}
	return text + fmt.Sprintf("[end: %d %s shown of %d lines]", shown, what, total), nil
}

// readLine reads one line and keeps at most maxLine bytes of it.
func readLine(in *bufio.Reader) (string, error) {
	var kept []byte
	cut := 0
	for {
		piece, err := in.ReadSlice('\n')
		room := min(maxLine-len(kept), len(piece))
		kept = append(kept, piece[:room]...)
		cut += len(piece) - room
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if cut > 0 {
			return strings.TrimSuffix(string(kept), "\n") + fmt.Sprintf(" [... %d bytes]\n", cut), err
		}
		return string(kept), err
	}
}
