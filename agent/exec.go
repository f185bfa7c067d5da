package agent

import (
	"context"
	"encoding/json"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/store"
)

// exec runs the command of a person's own word on a target, without the model: by the same proof,
// card and record as any other.
func (a *Agent) exec(ctx context.Context, ev chat.Event, w word) error {
	c, why := a.cfg.Desk.Exec(ctx, ev.Thread, ev.From, ev.Groups, Command{Target: w.id, Text: w.command, Program: w.to, Dir: w.dir, Shell: w.shell})
	if why != "" {
		return a.answer(ctx, ev, why)
	}
	ev.Text = a.cfg.Redact(ev.Text)
	return a.queueCall(ctx, wantedCall{Event: ev, Call: c, Alone: true, Program: w.to})
}

// Exec says what became of the command that a thread's last "exec" ran. The zero state means that
// there is none.
func (a *Agent) Exec(ctx context.Context, thread chat.ThreadID) (chat.Executed, error) {
	var x chat.Executed
	err := a.cfg.DB.View(ctx, func(tx store.Tx) error {
		// Whoever waits asks again and again, and it is near the end of the transcript.
		next := history.VersionOf(tx, thread).Next
		for span := uint64(64); ; span *= 8 {
			from := next - min(span, next)
			if x = executed(history.LoadFrom(tx, thread, from)); x.Number > 0 || from == 0 {
				return nil
			}
		}
	})
	return x, err
}

func executed(entries []history.Entry) (x chat.Executed) {
	call := ""
	for _, e := range entries {
		switch {
		case e.Reply != nil && e.Reply.Alone && len(e.Reply.Calls) == 1:
			call, x = e.Reply.Calls[0].ID, chat.Executed{State: chat.ExecRunning, Number: e.Seq}
		case call == "":
		case e.Ask != nil && e.Ask.Call == call:
			x.State, x.Request = chat.ExecWaiting, string(e.Ask.Approval)
		case e.Decision != nil && e.Decision.Call == call:
			x.State = chat.ExecRunning
		case e.Result != nil && e.Result.Call == call:
			x.State = chat.ExecDone
			resultOfExec(&x, *e.Result)
		case e.Stop != nil && x.State != chat.ExecDone:
			x.State, x.Failed, x.Note = chat.ExecDone, true, "stopped by "+e.Stop.From.Name
		}
	}
	return x
}

// resultOfExec fills in how a command ended.
func resultOfExec(x *chat.Executed, r history.Result) {
	x.Failed, x.Unknown, x.Kept = r.Failed, r.Unknown, r.Output
	var env struct {
		Result struct {
			ExitCode *int   `json:"exit_code"`
			Stdout   string `json:"stdout"`
			Stderr   string `json:"stderr"`
			Allowed  bool   `json:"allowed"`
			Command  string `json:"command"`
			Digest   string `json:"digest"`
		} `json:"result"`
	}
	read := json.Unmarshal([]byte(r.Text), &env) == nil
	if read && env.Result.ExitCode != nil {
		x.ExitCode, x.Stdout, x.Stderr = env.Result.ExitCode, env.Result.Stdout, env.Result.Stderr
		return
	}
	if read && !r.Failed && env.Result.Allowed {
		x.Allowed, x.Command, x.Digest = true, env.Result.Command, env.Result.Digest
		return
	}
	x.Note = noteOf(r)
}

// noteOf says why a call was not run, or how it failed.
func noteOf(r history.Result) string {
	if !r.Denied {
		return strings.TrimPrefix(r.Text, "Tool error: ")
	}
	var said struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal([]byte(r.Text), &said) == nil && said.Reason != "" {
		return "denied: " + said.Reason
	}
	return "denied"
}
