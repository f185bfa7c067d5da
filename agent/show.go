package agent

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/deed"
	"countersign/approvals/risk"
)

// shellFields is the part of a result that all shell-like tools share.
type shellFields struct {
	ExitCode *int   `json:"exit_code"`
	Stdout   string `json:"stdout"`
	Stderr   string `json:"stderr"`
	Notice   string `json:"notice"`
	State    string `json:"state"`
	Allowed  bool   `json:"allowed"`
}

// runPost returns the message about one run, "" if there is nothing to say. What ran and how
// it ended stands above its output, unless a card of its own says so; a step of a plan has a
// line on the plan's. whole is the id of the output of which it shows a part, where that is
// to be posted as a file.
func runPost(a approvals.Action, r history.Result, step bool, out excerpt) (text, whole string) {
	if len(a.Steps) > 0 && !r.Failed {
		return "", "" // of a plan that was approved, only the model has to be told
	}
	if r.Changed && !r.Failed && (a.Path != "" || len(a.Paths) > 0) {
		out = excerpt{} // that the file was written is what the card says
	}
	sh := shellOf(r)
	if sh.State == stateFullscreen {
		out = excerpt{} // drawings
	}
	var parts []string
	if out.text != "" {
		parts = append(parts, fence(out.text))
	}
	switch {
	case out.said == "" || r.Output == "":
	case r.Changed:
		whole = r.Output
	default: // there are many reads, and few are looked into
		out.said += " " + chat.WholeAt(r.Output)
	}
	if out.said != "" {
		parts = append(parts, out.said)
	}
	switch waits := sayOpen[sh.State]; {
	case r.Failed && sh.State == stateRunning && sh.Notice != "": // it was to be stopped
		parts = append(parts, sh.Notice)
	case r.Unknown:
		_, found, _ := strings.Cut(noteOf(r), unknownText)
		found, _, _ = strings.Cut(strings.TrimPrefix(found, ". "), "\n[Output truncated ")
		parts = append(parts, sayOutcomeUnknown(r.Why)+paragraph(found))
	case waits != "":
		parts = append(parts, waits)
	case sh.Notice != "" && (sh.ExitCode != nil || sh.State == stateStopped):
		parts = append(parts, sh.Notice)
	}
	if !r.Changed || step && len(parts) > 0 {
		parts = append([]string{runLine(a, r)}, parts...)
	}
	return strings.Join(parts, "\n"), whole
}

// thousands writes a count with separators.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// runLine says what ran, where and how it ended.
func runLine(a approvals.Action, r history.Result) string {
	what := deed.Headline(a, nil)
	if a.Kind == approvals.KindShell {
		what = inlineCode(actionLine(a))
	} else if a.Path != "" {
		what += " · " + inlineCode(actionLine(a))
	}
	if a.Target != "local" && a.Target != "" {
		at, _, _ := strings.Cut(a.Target, "#")
		what += " on " + inlineCode(at)
	}
	how := outcomeNote(r)
	if how == "done" && a.Kind == approvals.KindObserve {
		return what
	}
	return what + " · " + strings.Replace(how, "exit code ", "exit ", 1)
}

// The states in which a call of run_shell ends and its command doesn't.
const (
	statePassword   = "waiting-password"
	stateInput      = "waiting-input"
	stateFullscreen = "fullscreen"
	stateStopped    = "stopped"
	stateRunning    = "running"
)

// shellOf is what a result says as that of a command; the zero value if it is none.
func shellOf(r history.Result) (sh shellFields) {
	var env struct {
		Result shellFields `json:"result"`
	}
	if json.Unmarshal([]byte(r.Text), &env) != nil {
		return shellFields{}
	}
	return env.Result
}

// printed extracts from a tool's value what people see: the command's output, or the value
// for people.
func printed(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var sh shellFields
	if json.Unmarshal(raw, &sh) == nil && (sh.ExitCode != nil || sh.State != "" || sh.Allowed) {
		return sh.Stdout + sh.Stderr
	}
	return readable(raw)
}

// doing names a call in a status: by its command where it has one, else by its tool and file.
// redact takes secrets out before anything is cut.
func doing(c llm.Call, redact func(string) string) string {
	var args struct{ Command, Path string }
	if json.Unmarshal([]byte(c.Args), &args) != nil {
		return c.Name
	}
	what := c.Name
	switch command := strings.TrimSpace(redact(args.Command)); {
	case command != "":
		first, _, more := strings.Cut(command, "\n")
		if what = first; more {
			what += " …"
		}
	case args.Path != "":
		what += " " + redact(args.Path)
	}
	what, _ = risk.Visible(what)
	if r := []rune(what); len(r) > maxDoing {
		what = string(r[:maxDoing]) + " …"
	}
	return what
}

// maxDoing is how much of a call a status shows, in characters.
const maxDoing = 60

// actionLine describes an action on one line.
func actionLine(a approvals.Action) string {
	s := a.Preview
	switch {
	case a.Kind == approvals.KindShell:
		s = string(a.Bytes)
	case a.Path != "":
		s = a.Path
	case len(a.Paths) > 0:
		s = strings.Join(a.Paths, ", ")
	case a.Pane != "" && s == "":
		s = a.Pane
	case len(a.Steps) == 0 && len(a.Args) > len("{}") && strings.Contains(strings.TrimSpace(s), "\n"):
		s = string(a.Args) // more useful than the first line of a long preview
	}
	s, _, cut := strings.Cut(strings.TrimSpace(s), "\n")
	if cut || len(s) > 160 {
		s = strings.ToValidUTF8(s[:min(len(s), 160)], "") + " …"
	}
	s, _ = risk.Visible(s)
	return s
}

func outcomeNote(r history.Result) string {
	sh := shellOf(r)
	switch {
	case r.Unknown:
		return "outcome unknown"
	case sh.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *sh.ExitCode)
	case openNotes[sh.State] != "" && !r.Failed:
		return openNotes[sh.State]
	case r.Failed && sh.State == stateStopped:
		return "stopped by a person while it ran"
	case r.Failed && r.Why != "":
		return r.Why
	case r.Failed:
		return "failed"
	case sh.Allowed: // by a program, which says nothing of it
		return "allowed to run"
	}
	return "done"
}

// openNotes are the outcomes of commands that haven't ended.
var openNotes = map[string]string{
	statePassword: approvals.NotePassword, stateInput: approvals.NoteInput, stateFullscreen: approvals.NoteFullscreen,
}

// firstLine returns the first line of a text, shortened to fit a card.
func firstLine(s string) string {
	const most = 300
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// fence puts text in a code block that nothing in the text can close.
func fence(s string) string {
	ticks := "```"
	for strings.Contains(s, ticks) {
		ticks += "`"
	}
	return ticks + "\n" + s + "\n" + ticks
}

func inlineCode(s string) string {
	ticks := "`"
	for strings.Contains(s, ticks) {
		ticks += "`"
	}
	if len(ticks) > 1 {
		return ticks + " " + s + " " + ticks
	}
	return ticks + s + ticks
}
