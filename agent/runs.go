package agent

import (
	"time"

	"countersign/adapters/chat"
	"countersign/agent/workflow"
	"countersign/store"
)

// Run is how far a runbook is, or how it ended.
type Run struct {
	ID     string        `json:"id"`
	Thread chat.ThreadID `json:"thread"`
	Name   string        `json:"name"`
	Began  time.Time     `json:"began"`
	At     time.Time     `json:"at"` // of the last step
	Steps  []RunStep     `json:"steps"`
	// End is how it ended, "" while it goes on.
	End string `json:"end,omitempty"`
}

// RunStep is one step of a run.
type RunStep struct {
	Title string         `json:"title"`
	State workflow.State `json:"state"`
}

// maxRuns bounds how many runs are kept, the newest ones.
const maxRuns = 100

func runKey(r Run) []byte { return store.Key("flow", "runs", r.Began.UnixNano(), r.ID) }

// Runs returns the runs that are known, the newest first. It is part of a transaction.
func Runs(tx store.Tx) []Run {
	start, end := store.Prefix("flow", "runs")
	var out []Run
	for key, raw := range tx.Scan(start, end) {
		var r Run
		store.Decode(key, raw, &r)
		out = append([]Run{r}, out...)
	}
	return out
}

// putRun notes how far a runbook is. end is how it ended; "" asks the runbook.
func (w *worker) putRun(tx store.Tx, n *turn, wf *workflow.Workflow, end string) {
	past := w.pastSteps(n)
	r := Run{ID: n.scope, Thread: w.thread, Name: n.begin.Name, Began: n.began, At: w.a.cfg.Now(), End: end}
	switch next := workflow.Next(wf, n.begin.Inputs, past); {
	case end != "":
	case next.Kind == workflow.KindDone:
		r.End = "done"
	case next.Kind == workflow.KindFailed:
		r.End = "ended early"
	}
	for _, o := range workflow.Outcomes(wf, n.begin.Inputs, past) {
		if o.Kind == workflow.KindDone || o.Kind == workflow.KindFailed {
			continue // it only ends the run
		}
		if o.State == workflow.Active && r.End != "" {
			o.State = workflow.Failed
		}
		r.Steps = append(r.Steps, RunStep{w.a.cfg.Redact(o.Title), o.State})
	}
	if _, there := tx.Get(runKey(r)); !there {
		if all := Runs(tx); len(all) >= maxRuns {
			tx.Delete(runKey(all[len(all)-1]))
		}
	}
	store.Save(tx, runKey(r), r)
}
