package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/risk"
)

// Limits on how much of a run's output is posted. The rest is in the terminal.
const (
	shownLines = 24
	shownBytes = 2400
)

// shellResult is the part of a result that all shell-like tools share.
type shellResult struct {
	Result struct {
		ExitCode *int   `json:"exit_code"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
		Notice   string `json:"notice"`
		State    string `json:"state"`
	} `json:"result"`
}

// runPost returns the message about one run: what ran, how it ended and the end of its
// output.
func runPost(c llm.Call, a approvals.Action, r history.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**", c.Name)
	if what := actionLine(a); what != "" {
		fmt.Fprintf(&b, " %s", inlineCode(what))
	}
	if a.Target != "local" && a.Target != "" {
		at, _, _ := strings.Cut(a.Target, "#")
		fmt.Fprintf(&b, " on %s", inlineCode(at))
	}
	fmt.Fprintf(&b, " · %s", outcomeNote(r))
	out, notice := printed(r.Text)
	if r.Output != "" {
		out, _, _ = cutLast(out, "\n[Output truncated ")
		notice = strings.TrimSpace(notice + "\nThis is not all of it: `output " + r.Output + "` posts the whole output.")
	}
	if out = shorten(out); out != "" {
		b.WriteString("\n" + fence(out))
	}
	if notice != "" {
		b.WriteString("\n" + notice)
	}
	return b.String()
}

// printed extracts from a result what people see: the command's output, or the result
// without its envelope, and any notice.
func printed(text string) (out, notice string) {
	var env struct {
		Result json.RawMessage `json:"result"`
	}
	if json.Unmarshal([]byte(text), &env) != nil || len(env.Result) == 0 {
		return text, ""
	}
	if json.Unmarshal(env.Result, &out) == nil {
		return out, ""
	}
	var sh shellResult
	if json.Unmarshal([]byte(text), &sh) == nil && (sh.Result.ExitCode != nil || sh.Result.State == "stopped") {
		return strings.TrimRight(sh.Result.Stdout+sh.Result.Stderr, "\n"), sh.Result.Notice
	}
	return readable(env.Result), ""
}

// cutLast is strings.Cut around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

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
	var sh shellResult
	switch {
	case r.Unknown:
		return "outcome unknown"
	case json.Unmarshal([]byte(r.Text), &sh) == nil && sh.Result.ExitCode != nil:
		return fmt.Sprintf("exit code %d", *sh.Result.ExitCode)
	case r.Failed && json.Unmarshal([]byte(r.Text), &sh) == nil && sh.Result.State == "stopped":
		return "stopped by a person while it ran"
	case r.Failed && r.Why != "":
		return r.Why
	case r.Failed:
		return "failed"
	}
	return "done"
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

func shorten(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) > shownLines {
		cut := len(lines) - shownLines
		lines = append([]string{fmt.Sprintf("… %d lines above", cut)}, lines[cut:]...)
	}
	s = strings.Join(lines, "\n")
	if len(s) > shownBytes {
		s = "…" + lastBytes(s, shownBytes)
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
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
