package agent

import (
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
)

// A person's own command ends the turn without the model, unless somebody spoke meanwhile.
func TestAPersonsOwnCommandAsksNoModel(t *testing.T) {
	message := func(text string) history.Entry {
		return history.Entry{Kind: history.KindMessage, Message: &history.Message{ID: chat.EventID(text), From: chat.User{ID: "web:alice"}, Text: text}}
	}
	reply := history.Entry{Kind: history.KindReply, Reply: &history.Reply{Calls: []llm.Call{{ID: "c1", Name: "run_shell"}}, Finish: llm.FinishCalls, Direct: true, Alone: true}}
	result := history.Entry{Kind: history.KindResult, Result: &history.Result{Call: "c1", Text: `{"result":{"exit_code":3,"stdout":"out\n","stderr":"err\n"}}`, Failed: true}}
	for _, tc := range []struct {
		name    string
		entries []history.Entry
		want    stepKind
		state   chat.ExecState
	}{
		{"it runs", []history.Entry{message("exec"), reply}, stepPropose, chat.ExecRunning},
		{"it has run", []history.Entry{message("exec"), reply, result}, stepEnd, chat.ExecDone},
		{"somebody asked something", []history.Entry{message("exec"), reply, message("why?"), result}, stepModel, chat.ExecDone},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if s := fold(tc.entries).next(time.Time{}, Limits{}); s.kind != tc.want {
				t.Errorf("the next step is %v, want %v", s.kind, tc.want)
			}
			x := executed(tc.entries, "exec")
			if x.State != tc.state || (tc.state == chat.ExecDone) != (x.ExitCode != nil && *x.ExitCode == 3 && x.Stdout == "out\n" && x.Stderr == "err\n") {
				t.Errorf("%+v", x)
			}
		})
	}
}

func TestTheWordExecNamesItsTarget(t *testing.T) {
	words := newTable((&Agent{}).ownWords(), nil)
	for text, want := range map[string]Args{
		"exec web-1: df -h":        {ID: "web-1", Text: "df -h"},
		"exec web-1:\n  a\n  b c":  {ID: "web-1", Text: "a\n  b c"},
		"exec the plan we made":    {},
		"exec web-1 df -h":         {},
		"please exec web-1: df -h": {},
	} {
		if w, args, ok := words.parse(text); ok != (want.ID != "") || ok && (w.Name != "exec" || args.ID != want.ID || args.Text != want.Text) {
			t.Errorf("%q is %s %+v", text, w.Name, args)
		}
	}
}
