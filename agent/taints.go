package agent

import (
	"fmt"

	"countersign/agent/history"
	"countersign/agent/taint"
	"countersign/approvals"
)

// maxTaint bounds how far back, in entries, the source of a command's words is
// looked for.
const maxTaint = 2000

// taint says which untrusted source first showed a telling word of a command:
// output of a tool, or the message of a bot or of somebody from outside.
func (w *worker) taint(a approvals.Action) string {
	return w.a.cfg.Redact(taint.Line(string(a.Bytes), sources(w.entries)))
}

func sources(entries []history.Entry) []taint.Source {
	entries = entries[max(0, len(entries)-maxTaint):]
	calls := map[string]string{}
	var out []taint.Source
	for i := range entries {
		switch e := &entries[i]; {
		case e.Message != nil:
			m := e.Message
			s := taint.Source{Kind: "message", Name: m.From.Name, Entry: e.Seq, Text: m.Text, Trusted: !m.From.Bot && !m.From.Outside}
			if m.From.Bot {
				s.Kind = "alert"
			}
			out = append(out, s)
			for _, f := range m.Files {
				out = append(out, taint.Source{Kind: "file", Name: f.Name, Entry: e.Seq, Text: f.Text})
			}
		case e.Reply != nil:
			for _, c := range e.Reply.Calls {
				calls[c.ID] = c.Name
			}
		case e.Edited != nil:
			out = append(out, taint.Source{Kind: "message", Name: e.Edited.By.Name, Entry: e.Seq, Text: e.Edited.Text, Trusted: true})
		case e.Result != nil:
			if e.Result.Skipped || e.Result.Denied {
				continue
			}
			out = append(out, taint.Source{Kind: "tool output", Name: fmt.Sprintf("%s (call %s)", calls[e.Result.Call], e.Result.Call), Entry: e.Seq, Text: e.Result.Text})
		}
	}
	return out
}
