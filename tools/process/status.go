package process

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/tools"
)

const (
	// shownCommand and listedCommand are how many characters of a command a status and a list show.
	shownCommand  = 2000
	listedCommand = 200
	// maxListed is how many processes a list shows: the newest.
	maxListed = 40
)

// view is the model's view of a process.
type view struct {
	ProcessID string `json:"process_id"`
	// State is running, exited, signalled, ended (how is unknown), or unknown.
	State     string `json:"state"`
	ExitCode  *int   `json:"exit_code,omitempty"`
	Signal    string `json:"signal,omitempty"`
	PID       int    `json:"pid,omitempty"`
	Processes int    `json:"processes,omitempty"` // running now
	Command   string `json:"command"`
	Directory string `json:"directory"`
	Target    string `json:"target"`
	Started   string `json:"started"`
	Lasted    string `json:"lasted,omitempty"` // until now, or until it ended
	Bytes     int64  `json:"output_bytes"`
	Notice    string `json:"notice,omitempty"`
}

// view returns the view of a process.
func (s *suite) view(v observation, command int) view {
	out := view{
		ProcessID: v.ID, PID: v.PID, Command: tools.TruncateHead(v.Command, command), Directory: v.Dir, Target: v.Target,
		Started: v.Created.UTC().Format(time.RFC3339), Bytes: v.Bytes, Processes: len(v.live),
	}
	if d := s.duration(v); d > 0 {
		out.Lasted = d.String()
	}
	var notes []string
	if v.Full {
		notes = append(notes, fmt.Sprintf("Its output is kept up to %d bytes, and there was more: the rest was thrown away.", v.Bytes))
	}
	switch {
	case v.unknown != "":
		out.State, out.Lasted = "unknown", ""
		notes = append(notes, "What it does is not known: "+v.unknown+".")
	case v.Code != nil && signalName(*v.Code) != "":
		out.State, out.Signal, out.ExitCode = "signalled", signalName(*v.Code), v.Code
	case v.Code != nil:
		out.State, out.ExitCode = "exited", v.Code
	case v.State == ended:
		out.State = "ended"
		notes = append(notes, "How it ended is not known: "+v.Why+".")
	default:
		out.State = "running"
	}
	if v.Code != nil && len(v.live) > 0 {
		notes = append(notes, fmt.Sprintf("The command itself has ended, and %s that it started still run; interrupt_background_process "+
			"ends them.", count(len(v.live), "process", "processes")))
	}
	out.Notice = strings.Join(notes, " ")
	return out
}

// line is a view in one line, for people.
func (v view) line() string {
	var b strings.Builder
	b.WriteString(v.ProcessID + ": ")
	switch v.State {
	case "running":
		b.WriteString("running")
		if v.Lasted != "" {
			b.WriteString(" for " + v.Lasted)
		}
	case "exited":
		fmt.Fprintf(&b, "exited with code %d", *v.ExitCode)
	case "signalled":
		fmt.Fprintf(&b, "ended by signal %s (code %d)", v.Signal, *v.ExitCode)
	default:
		b.WriteString(v.State)
	}
	if v.Lasted != "" && v.State != "running" {
		b.WriteString(" after " + v.Lasted)
	}
	fmt.Fprintf(&b, ", %d bytes of output: %s", v.Bytes, tools.TruncateHead(v.Command, listedCommand))
	if v.Notice != "" {
		b.WriteString("\n" + v.Notice)
	}
	return b.String()
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Plan implements tools.Tool.
func (t status) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		ProcessID string `json:"process_id"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	if args.ProcessID != "" {
		if _, err := t.find(ctx, c.Thread, args.ProcessID); err != nil {
			return tools.Plan{}, err
		}
	}
	return tools.Planned(t.observeAction(c), approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		emitStarted(sink, strings.TrimSpace(c.Name+" "+args.ProcessID))
		if args.ProcessID == "" {
			return t.all(ctx, c.Thread, sink)
		}
		return t.reportOne(ctx, c.Thread, args.ProcessID, sink)
	}), nil
}

// observeAction is the action of a query.
func (s *suite) observeAction(c tools.Call) approvals.Action {
	return approvals.Action{Tool: c.Name, Kind: approvals.KindObserve, Target: s.Target.ID(), User: s.User, Args: c.Args}
}

func (t status) reportOne(ctx context.Context, thread, id string, sink tools.Sink) (tools.Result, error) {
	r, err := t.find(ctx, thread, id)
	if err != nil {
		return tools.Result{}, err
	}
	v := t.view(t.refresh(ctx, []row{r})[0], shownCommand)
	emitFinished(sink, v.line(), v.State)
	return tools.Result{Value: v, Text: v.line()}, nil
}

// listResult is what the model gets for a call without an id.
type listResult struct {
	Processes []view `json:"processes"`
	Notice    string `json:"notice,omitempty"`
}

func (t status) all(ctx context.Context, thread string, sink tools.Sink) (tools.Result, error) {
	own, err := t.list(ctx, func(r row) bool { return r.Thread == thread })
	if err != nil {
		return tools.Result{}, err
	}
	out := listResult{Processes: []view{}}
	if cut := len(own) - maxListed; cut > 0 {
		// Processes that may be running come before ended ones, regardless of age.
		var first, rest []row
		for _, r := range own {
			if r.State == ended {
				rest = append(rest, r)
			} else {
				first = append(first, r)
			}
		}
		own = append(rest, first...)[cut:]
		out.Notice = fmt.Sprintf("%s of this thread are older and not listed.", count(cut, "process", "processes"))
	}
	var lines []string
	for _, v := range t.refresh(ctx, own) {
		one := t.view(v, listedCommand)
		out.Processes = append(out.Processes, one)
		lines = append(lines, one.line())
	}
	if len(lines) == 0 {
		lines = append(lines, "This thread has no processes in the background.")
	}
	if out.Notice != "" {
		lines = append(lines, out.Notice)
	}
	emitFinished(sink, count(len(out.Processes), "process", "processes"), "done")
	return tools.Result{Value: out, Text: strings.Join(lines, "\n")}, nil
}
