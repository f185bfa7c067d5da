package agent

import (
	"encoding/json"
	"slices"

	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/taint"
	"countersign/approvals"
	"countersign/approvals/deed"
)

// maxTaint limits, in entries, how far back the source of a command's words is searched.
const maxTaint = 2000

// taintLine names the untrusted source in which a distinctive word of the command first
// appeared: a tool's output, or a message from a bot or an outsider.
func (w *worker) taintLine(a approvals.Action) string {
	text := slices.Clone(a.Bytes)
	for _, s := range a.Steps {
		text = append(append(text, '\n'), s.Bytes...)
	}
	return w.a.cfg.Redact(taint.Line(string(text), taintSources(w.entries)))
}

// commands are the tools whose output is that of a command.
var commands = []string{"run_shell", "bash", "execute_code", "read_output", "get_background_output", "capture-pane", "send-keys"}

func taintSources(entries []history.Entry) []taint.Source {
	entries = entries[max(0, len(entries)-maxTaint):]
	calls := map[string]llm.Call{}
	var out []taint.Source
	for i := range entries {
		switch e := &entries[i]; {
		case e.Message != nil:
			m := e.Message
			s := taint.Source{Kind: "message", Name: m.From.Name, Text: m.Text, Trusted: !m.From.Bot && !m.From.Outside}
			if m.From.Bot {
				s.Kind = "alert"
			}
			out = append(out, s)
			for _, f := range m.Files {
				out = append(out, taint.Source{Kind: "file", Name: f.Name, Text: f.Text})
			}
		case e.Reply != nil:
			for _, c := range e.Reply.Calls {
				calls[c.ID] = c
			}
		case e.Edited != nil:
			out = append(out, taint.Source{Kind: "message", Name: e.Edited.By.Name, Text: e.Edited.Text, Trusted: true})
		case e.Result != nil:
			if e.Result.Skipped || e.Result.Denied {
				continue
			}
			c := calls[e.Result.Call]
			s := taint.Source{Kind: "tool output", Name: c.Name, Text: e.Result.Text}
			if slices.Contains(commands, s.Name) {
				s.Kind = "command output"
			}
			var args struct {
				Command string `json:"command"`
			}
			// A command about what a listing has found is what people expect, and tells them nothing.
			s.Trusted = c.Name == "ls" || c.Name == "find" || json.Unmarshal([]byte(c.Args), &args) == nil && deed.Lists(args.Command)
			out = append(out, s)
		}
	}
	return out
}
