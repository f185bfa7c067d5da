package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/approvals"
	"countersign/approvals/deed"
	"countersign/approvals/risk"
)

// Limits on how much of a run's output is posted. The rest is in the terminal.
const (
	shownLines = 20
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
		Allowed  bool   `json:"allowed"`
	} `json:"result"`
}

// runPost returns the message about one run, "" if there is nothing to say. What ran and how
// it ended stands above its output, unless a card of its own says so; a step of a plan has a
// line on the plan's. whole is the id of the output of which it shows the end, where that is
// to be posted as a file.
func runPost(a approvals.Action, r history.Result, step bool) (text, whole string) {
	var parts []string
	out, notice := printed(r.Text)
	if r.Output != "" {
		out, _, _ = cutLast(out, "\n[Output truncated ")
	}
	shown, lines := shorten(onScreen(out))
	if r.Changed && !r.Failed && (a.Path != "" || len(a.Paths) > 0) {
		shown = "" // that the file was written is what the card says
	}
	if shown != "" {
		parts = append(parts, fence(shown))
	}
	if notice != "" {
		parts = append(parts, notice)
	}
	switch {
	case r.Output == "":
	case r.Changed:
		parts, whole = append(parts, sayEndOf(lines)), r.Output
	default: // there are many reads, and few are looked into
		parts = append(parts, sayEndOf(lines)+" "+chat.WholeAt(r.Output))
	}
	if !r.Changed || step && len(parts) > 0 {
		parts = append([]string{runLine(a, r)}, parts...)
	}
	return strings.Join(parts, "\n"), whole
}

// thousands writes a count with separators.
func thousands(n int) string {
	s := strconv.Itoa(n)
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
	if sh.Result.Allowed { // nothing was printed
		return "", ""
	}
	return readable(env.Result), ""
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

// onScreen is an output as a terminal shows it: without colours, and without what was written
// over after a carriage return, as progress bars do. Other sequences stay, and are seen.
func onScreen(s string) string {
	if strings.ContainsRune(s, '\x1b') {
		s = colours.ReplaceAllString(s, "")
	}
	if !strings.ContainsRune(s, '\r') {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		l = strings.TrimRight(l, "\r")
		lines[i] = l[strings.LastIndexByte(l, '\r')+1:]
	}
	return strings.Join(lines, "\n")
}

// colours are the sequences that set colours and attributes or erase to the end of the line
// (ECMA-48, 8.3.117 and 8.3.41).
var colours = regexp.MustCompile(`\x1b\[[0-9;:]*[mK]`)

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
	case json.Unmarshal([]byte(r.Text), &sh) == nil && sh.Result.Allowed: // by a program, which says nothing of it
		return "allowed to run"
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

// shorten returns the end of an output as it is shown, and how many lines the whole has.
func shorten(s string) (end string, n int) {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	n = len(lines)
	s = strings.Join(lines[max(0, n-shownLines):], "\n")
	if len(s) > shownBytes {
		s = "…" + lastBytes(s, shownBytes)
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s, n
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
