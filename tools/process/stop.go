package process

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/targets/backend"
	"countersign/targets/backend/approved"
	"countersign/tools"
)

// killGrace is how long killed processes may take to disappear.
const killGrace = 2 * time.Second

// Plan implements tools.Tool.
func (t stopper) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		ProcessID string `json:"process_id"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	r, err := t.find(ctx, c.Thread, args.ProcessID)
	if err != nil {
		return tools.Plan{}, err
	}
	if r.State == ended {
		return tools.Plan{}, tools.Failed("%s has ended already; there is nothing to interrupt", t.view(observation{row: r}, listedCommand).line())
	}
	if _, err := t.Target.Probe(ctx); err != nil {
		return tools.Plan{}, tools.Failed("the target %s does not answer: %w", t.Target.ID(), err)
	}
	if err := t.checkTarget(r); err != nil {
		return tools.Plan{}, err
	}
	pid := "not known yet"
	if r.PID > 0 {
		pid = fmt.Sprintf("%d, started at tick %d of boot %s", r.PID, r.Start, r.Boot)
	}
	a := approvals.Action{
		Tool: c.Name, Kind: approvals.KindChange, Target: t.Target.ID(), User: t.User, Dir: r.Dir, Args: c.Args,
		Env: map[string]string{"process": pid},
		Preview: fmt.Sprintf("Ends %s (pid %s) and everything that it started: SIGINT, after %s SIGTERM, after %s more SIGKILL. Its command:\n%s",
			r.ID, pid, t.Grace, t.Grace, tools.TruncateHead(r.Command, shownCommand)),
	}
	p := tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		emitStarted(sink, c.Name+" "+r.ID)
		return t.run(ctx, c.Thread, r, sink)
	})
	p.Level = risk.High
	return p, nil
}

// checkTarget refuses a target that is now another machine.
func (s *suite) checkTarget(r row) error {
	if id := s.Target.ID(); id != r.TargetID {
		return tools.Failed("%s was started on %s, and %s is %s now; it is not looked for there", r.ID, r.TargetID, s.Name, id)
	}
	return nil
}

// stopResult is what the model gets.
type stopResult struct {
	view
	Gone    bool     `json:"gone"`
	Signals []string `json:"signals"` // that were sent, in order
}

func (t stopper) run(ctx context.Context, thread string, was row, sink tools.Sink) (tools.Result, error) {
	r, err := t.find(ctx, thread, was.ID)
	if err != nil {
		return tools.Result{}, err
	}
	if was.PID > 0 && (r.PID != was.PID || r.Start != was.Start || r.Boot != was.Boot) {
		return tools.Result{}, tools.Failed("%s was not interrupted: what is known of it changed after it was checked; propose it again", r.ID)
	}
	v := t.refresh(ctx, []row{r})[0]
	if err := t.checkTarget(r); err != nil {
		return tools.Result{}, err
	}
	if v.unknown != "" {
		return tools.Result{}, tools.Failed("%s was not interrupted: %s", r.ID, v.unknown)
	}
	r = v.row
	if r.State == ended {
		return t.outcome(v, nil, sink), nil
	}
	hundredths := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds()/10, 10) }
	wctx, cancel := context.WithTimeout(ctx, stopTimeout+killGrace+2*t.Grace)
	defer cancel()
	text, err := t.runScript(wctx, func(spec backend.Spec) (backend.Process, error) {
		return approved.Start(wctx, t.Target, spec)
	}, stopScript, append(append([]string{r.Base}, r.identity()...), hundredths(t.Grace), hundredths(killGrace))...)
	said := parse(text)[r.Mark]
	if err != nil {
		why := fmt.Sprintf("Whether %s has ended is not known: the target %s did not answer to the end (%v).", r.ID, t.Name, err)
		notice := why + " Ask get_background_status."
		emitFinished(sink, notice, "unknown")
		out := stopResult{view: t.view(observation{row: r, unknown: "the target did not answer to the end"}, listedCommand), Signals: said.signals}
		return tools.Result{Value: out, Unknown: true, Why: why, Text: notice}, nil
	}
	v = t.interpret(r, said, nil)
	if v.unknown == "" {
		if err := t.save(withoutCancel(ctx), v.row); err != nil {
			t.Log.WarnContext(ctx, "the end of a background process could not be stored", "id", r.ID, "err", err)
		}
	}
	return t.outcome(v, said.signals, sink), nil
}

// outcome returns the result of stopping a process.
func (t stopper) outcome(v observation, signals []string, sink tools.Sink) tools.Result {
	out := stopResult{view: t.view(v, listedCommand), Gone: v.State == ended && v.unknown == "", Signals: append([]string{}, signals...)}
	var said string
	switch {
	case !out.Gone:
		var left []string
		for _, p := range v.live {
			left = append(left, strconv.Itoa(p))
		}
		said = fmt.Sprintf("%s could not be ended: of it the processes %s still run, which may have other rights than the bot's account or "+
			"wait for a device.", v.ID, strings.Join(left, ", "))
		out.Notice = said
	case len(signals) == 0:
		said = v.ID + " had ended already, so no signal was sent: " + strings.TrimPrefix(out.line(), v.ID+": ")
	default:
		said = fmt.Sprintf("%s and everything that it started is gone (sent: SIG%s).", v.ID, strings.Join(signals, ", SIG"))
	}
	emitFinished(sink, said, out.State)
	return tools.Result{Value: out, Text: said, Failed: !out.Gone}
}
