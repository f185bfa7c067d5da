package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"countersign/approvals"
	"countersign/tools"
)

// lineRange selects lines of an output.
type lineRange struct {
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
	Tail   int `json:"tail"`
}

// Plan implements tools.Tool.
func (t output) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		ProcessID string `json:"process_id"`
		lineRange
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if args.Tail > 0 && (args.Offset > 0 || args.Limit > 0) {
		return tools.Plan{}, tools.Invalid(`"tail" is for the last lines, and "offset" and "limit" for others; give one of the two`)
	}
	if _, err := t.find(ctx, c.Thread, args.ProcessID); err != nil {
		return tools.Plan{}, err
	}
	return tools.Planned(t.observeAction(c), approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		emitStarted(sink, c.Name+" "+args.ProcessID)
		return t.run(ctx, c.Thread, args.ProcessID, args.lineRange, sink)
	}), nil
}

// page is the model's view of an output.
type page struct {
	ProcessID string `json:"process_id"`
	State     string `json:"state"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"`
	// Output has a bracketed marker where something was left out.
	Output string `json:"output"`
	// NextOffset is the next line, or the last line if it is incomplete.
	NextOffset int    `json:"next_offset"`
	Notice     string `json:"notice,omitempty"`
}

func (t output) run(ctx context.Context, thread, id string, w lineRange, sink tools.Sink) (tools.Result, error) {
	r, err := t.find(ctx, thread, id)
	if err != nil {
		return tools.Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	mode, from, most := "from", max(w.Offset, 1), w.Limit
	if most <= 0 {
		most = maxLines
	}
	if w.Tail > 0 {
		mode, from = "tail", w.Tail
	}
	text, err := t.look(ctx, outputScript, append(append([]string{r.Base}, r.identity()...), mode, strconv.Itoa(from),
		strconv.Itoa(most), strconv.Itoa(maxBytes))...)
	if err != nil {
		return tools.Result{}, tools.Failed("the output of %s could not be read: the target %s does not answer: %w; whether it still runs is "+
			"not known, ask again later", id, t.Name, err)
	}
	now := observation{row: r}
	if r.State != ended || r.TargetID != t.Target.ID() {
		now = t.interpret(r, parse(text)[r.Mark], nil)
	}
	v := t.view(now, listedCommand)
	head, data, ok := strings.Cut(text, "\ndata\n")
	if now.State == ended && r.State != ended {
		if err := t.save(withoutCancel(ctx), now.row); err != nil {
			t.Log.WarnContext(ctx, "what was found out about a background process could not be stored", "id", id, "err", err)
		}
	}
	p := page{ProcessID: id, State: v.State, ExitCode: v.ExitCode, Signal: v.Signal, Notice: v.Notice, NextOffset: 1}
	if !ok {
		return tools.Result{}, tools.Failed("the output of %s is not on %s (any more): its files below %s are gone", id, t.Name, r.Base)
	}
	c, ok := parseExcerpt(head)
	if !ok {
		return tools.Result{}, tools.Failed("the output of %s could not be read: %s answered something else than was asked; ask again", id, t.Name)
	}
	p.Output, p.NextOffset = c.text([]byte(data), w.Tail > 0)
	emitFinished(sink, v.line(), v.State)
	people := p.Output
	if v.State != "running" {
		people = strings.TrimRight(people, "\n") + "\n[" + strings.TrimPrefix(v.line(), id+": ") + "]"
	}
	return tools.Result{Value: p, Text: strings.TrimPrefix(people, "\n")}, nil
}

// excerpt describes which part of an output was read.
type excerpt struct {
	size   int64 // total bytes
	lines  int   // total complete lines
	open   bool  // whether an incomplete line follows them
	from   int   // first line of the part
	before int64 // bytes before that line
}

// parseExcerpt parses the lines "total" and "from" of output.sh.
func parseExcerpt(head string) (excerpt, bool) {
	var c excerpt
	seen := 0
	for line := range strings.Lines(head) {
		var open int
		if n, err := fmt.Sscanf(line, "total %d %d %d", &c.size, &c.lines, &open); err == nil && n == 3 {
			c.open = open != 0
			seen |= 1
		}
		if n, err := fmt.Sscanf(line, "from %d %d", &c.from, &c.before); err == nil && n == 2 {
			seen |= 2
		}
	}
	return c, seen == 3 && c.size >= 0 && c.lines >= 0 && c.from >= 1 && c.before >= 0 && c.before <= c.size
}

// text returns a part with markers for what was left out, and the line to continue with. With tail
// it keeps the last bytes, otherwise the first.
func (c excerpt) text(data []byte, tail bool) (text string, next int) {
	before, after := c.before, int64(0)
	if tail {
		before = c.size - int64(len(data))
	} else {
		after = max(0, c.size-before-int64(len(data)))
	}
	breaks := bytes.Count(data, []byte("\n"))
	next = c.from + breaks
	if tail {
		next = c.lines + 1
	}
	if breaks == 0 && after > 0 && len(data) > 0 {
		next++ // skip a line that is too long for any call, so that reading can continue
	}
	next = min(next, c.lines+1)
	var b strings.Builder
	switch {
	case tail && before > c.before:
		fmt.Fprintf(&b, "[%d bytes before this are left out]\n", before)
	case before > 0:
		fmt.Fprintf(&b, "[%s (%d bytes) before this are left out]\n", count(min(c.from-1, c.lines), "line", "lines"), before)
	}
	b.WriteString(strings.ToValidUTF8(string(data), "\uFFFD"))
	if after > 0 {
		if len(data) > 0 && data[len(data)-1] != '\n' {
			b.WriteByte('\n')
		}
		left := c.lines - (next - 1)
		if c.open {
			left++
		}
		fmt.Fprintf(&b, "[%s (%d bytes) after this are left out; go on with \"offset\": %d, or give \"tail\"]", count(left, "line", "lines"), after, next)
	}
	return b.String(), next
}
