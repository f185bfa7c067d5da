package agent

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/store"
	"countersign/tools"
)

// execWord matches a command that a person runs on a target.
var execWord = regexp.MustCompile(`(?s)^exec\s+(\S+?):\s+(.*)$`)

// execArgs is the [Form] of the word "exec": a target and a command for it.
func execArgs(text string, _ []string) (Args, bool) {
	m := execWord.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return Args{}, false
	}
	return Args{ID: m[1], Text: m[2]}, true
}

// exec runs the command of a person's own word on a target.
func (a *Agent) exec(ctx context.Context, ev chat.Event, args Args) (Answer, error) {
	why, err := a.Ask(ctx, ev, Command{Target: args.ID, Text: args.Text})
	return Answer{Text: why}, err
}

// Ask begins a command of a person, or of their program, without the model: by the same proof,
// card and record as any other. why is not empty where it can't begin. After nil it is durable, and
// the same event again changes nothing. ev.Text says what is asked, for the record.
func (a *Agent) Ask(ctx context.Context, ev chat.Event, what Command) (why string, err error) {
	a.accepting.Add(1)
	defer a.accepting.Add(-1)
	c, why := a.cfg.Desk.Exec(ctx, ev.Thread, ev.From, ev.Groups, what)
	if why != "" {
		return why, nil
	}
	ev.Text = a.cfg.Redact(ev.Text)
	return "", a.enqueue(ctx, ev, itemWanted, wantedCall{Event: ev, Call: c, Alone: true, Claimed: what.Tool != "" && what.Caller.Way != "", Caller: what.Caller}, "", "")
}

// Begins is the number of a thread's next entry, for [Agent.Executed].
func Begins(tx store.Tx, thread chat.ThreadID) uint64 { return history.VersionOf(tx, thread).Next }

// Executed says what became of what [Agent.Ask] began with an event, in the entries of its thread
// from a number on. The zero state means that it hasn't begun.
func Executed(tx store.Tx, thread chat.ThreadID, from uint64, event chat.EventID) chat.CallStatus {
	return executed(history.LoadFrom(tx, thread, from), event)
}

// LastExecuted is Executed for the last command that a person, or their program, has run in a thread.
func LastExecuted(tx store.Tx, thread chat.ThreadID) chat.CallStatus {
	// Whoever waits asks again and again, and it is near the end of the transcript.
	next := history.VersionOf(tx, thread).Next
	for span := uint64(64); ; span *= 8 {
		from := next - min(span, next)
		if x := executed(history.LoadFrom(tx, thread, from), ""); x.Number > 0 || from == 0 {
			return x
		}
	}
}

// executed says what became of the command of an event, or of the last one where event is "".
func executed(entries []history.Entry, event chat.EventID) (x chat.CallStatus) {
	call, asked := "", event == ""
	for _, e := range entries {
		switch {
		case event != "" && e.Message != nil && e.Message.ID == event:
			asked = true
		case !asked:
		case (call == "" || event == "") && e.Reply != nil && e.Reply.Alone && len(e.Reply.Calls) == 1:
			call, x = e.Reply.Calls[0].ID, chat.CallStatus{State: chat.ExecRunning, Call: e.Reply.Calls[0].ID, Number: e.Seq}
		case call == "" || x.State == chat.ExecDone:
		case e.Ask != nil && e.Ask.Call == call:
			x.State, x.Request = chat.ExecWaiting, string(e.Ask.Approval)
		case e.Decision != nil && e.Decision.Call == call:
			x.State = chat.ExecRunning
		case e.Result != nil && e.Result.Call == call:
			x.State = chat.ExecDone
			resultOfExec(&x, *e.Result)
		case e.Stop != nil:
			x.State, x.Failed, x.Note = chat.ExecDone, true, "stopped by "+e.Stop.From.Name
		}
	}
	return x
}

// shellTool is the tool that runs commands of people and programs.
const shellTool = "run_shell"

// resultOfExec fills in how a command ended.
func resultOfExec(x *chat.CallStatus, r history.Result) {
	x.Failed, x.Unknown, x.Kept = r.Failed, r.Unknown, r.Output
	var env struct {
		Result struct {
			ExitCode *int     `json:"exit_code"`
			Stdout   string   `json:"stdout"`
			Stderr   string   `json:"stderr"`
			State    string   `json:"state"`
			Notice   string   `json:"notice"`
			Allowed  bool     `json:"allowed"`
			Command  string   `json:"command"`
			Digest   string   `json:"digest"`
			Locked   bool     `json:"locked"`
			Needs    []string `json:"needs"`
		} `json:"result"`
	}
	read := json.Unmarshal([]byte(r.Text), &env) == nil
	if read && env.Result.ExitCode != nil {
		x.ExitCode, x.Stdout, x.Stderr = env.Result.ExitCode, env.Result.Stdout, env.Result.Stderr
		return
	}
	if r.Tool == shellTool && r.Failed && !r.Denied && !r.Refused && !r.Skipped && !r.Unstarted || read && env.Result.State != "" { // it began, and has no exit code
		x.Unknown, x.Stdout, x.Stderr = true, env.Result.Stdout, env.Result.Stderr
	}
	if read && env.Result.Notice != "" {
		x.Note = env.Result.Notice
		return
	}
	if read && !r.Failed && env.Result.Allowed {
		x.Allowed, x.Command, x.Digest, x.Locked, x.Needs = true, env.Result.Command, env.Result.Digest, env.Result.Locked, env.Result.Needs
		return
	}
	if !r.Failed {
		x.Result = r.Text
		return
	}
	x.Note = noteOf(r)
}

// noteOf says why a call was not run, or how it failed.
func noteOf(r history.Result) string {
	if !r.Denied {
		return strings.TrimPrefix(r.Text, tools.ErrorPrefix)
	}
	var said struct {
		Reason string `json:"reason"`
	}
	if json.Unmarshal([]byte(r.Text), &said) == nil && said.Reason != "" {
		return "denied: " + said.Reason
	}
	return "denied"
}
