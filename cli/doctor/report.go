package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat/network"
	"countersign/cli/words"
)

// result is what one check of the doctor found: a label, a sentence, and what to do.
type result struct {
	label string // ok, warn, FAIL or skip
	text  string // what was found
	fix   string // what to do about it; every failure has one
}

// The labels. A warning works and somebody should know of it; only a failure
// changes the exit status.
func fine(format string, a ...any) result {
	return result{label: "ok", text: fmt.Sprintf(format, a...)}
}
func warns(format string, a ...any) result {
	return result{label: "warn", text: fmt.Sprintf(format, a...)}
}
func fails(format string, a ...any) result {
	return result{label: "FAIL", text: fmt.Sprintf(format, a...)}
}
func skips(format string, a ...any) result {
	return result{label: "skip", text: fmt.Sprintf(format, a...)}
}

// withFix adds how to fix it.
func (r result) withFix(format string, a ...any) result {
	r.fix = fmt.Sprintf(format, a...)
	return r
}

// fromSentence is a sentence of another part of the bot, which has the form "what is wrong;
// what to do". fix is what to do where the sentence does not say.
func fromSentence(label, sentence, fix string) result {
	text, todo := splitFix(sentence)
	if todo == "" && (label == "FAIL" || label == "warn") {
		todo = fix
	}
	return result{label, text, todo}
}

// splitFix takes a sentence apart at its first semicolon that is not within brackets
// or quotes.
func splitFix(s string) (text, fix string) {
	depth, quoted := 0, false
	for i, c := range s {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case c == ';' && depth == 0 && !quoted && strings.HasPrefix(s[i:], "; "):
			return s[:i], strings.TrimSpace(s[i+2:])
		}
	}
	return s, ""
}

// pages are the documents about checks, by the words that their names begin with; the longest wins.
var pages = map[string]string{
	"environment": "configuration", "configuration": "configuration", "approvers": "targets", "policy": "policy", "votes": "policy-order", "rule": "policy-rules",
	"group": "sign-in", "mode": "policy-order", "data directory": "store", "store": "store", "disk": "store", "file system": "store", "web": "console-network",
	"web sign-in": "sign-in", "metrics": "metrics", "tools": "tools", "workflows": "workflows", "alerts": "alerts", "plugin": "plugins", "mcp": "plugins",
	"traces": "observability", "store standby": "postgres", "store commits": "postgres", "store connections": "postgres", "old store": "postgres-moving",
	"target": "targets", "engine": "containers", "terminals": "terminals", "files": "ssh", "shell": "ssh", "lock": "gate", "reads": "gate", "on call": "oncall", "tickets": "tickets", "rehearsals": "previews",
}

// pageOf is the document about a check: the doctor's own for one without another.
func pageOf(check string) string {
	fields := strings.Fields(check)
	for n := min(2, len(fields)); n > 0; n-- {
		if page := pages[strings.Join(fields[:n], " ")]; page != "" {
			return page
		}
	}
	if len(fields) > 0 && network.Of(fields[0]).Token != "" {
		return network.Of(fields[0]).Kind + "-troubleshooting"
	}
	return "doctor"
}

// report prints what was found. It belongs to one goroutine.
type report struct {
	out    io.Writer
	asJSON bool
	colour bool
	hide   func(string) string // takes secrets out; nil takes none
	began  time.Time

	ran   int
	count map[string]int // by the labels
	read  []string       // commands that print the documents about what failed
	err   error          // of the first line that could not be written
}

// finding is one check of doctor --json.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"` // ok, warn, fail or skip
	Text   string `json:"text"`
	// Fix says how to fix it; set for every failure and for warnings that can be fixed.
	Fix     string  `json:"fix,omitempty"`
	Seconds float64 `json:"seconds"`
}

// totals is the last line of doctor --json.
type totals struct {
	Checks  int     `json:"checks"`
	OK      int     `json:"ok"`
	Warn    int     `json:"warn"`
	Fail    int     `json:"fail"`
	Skip    int     `json:"skip"`
	Seconds float64 `json:"seconds"`
	Status  int     `json:"status"` // the exit status
}

// add reports one check; took is 0 for one that only looked at the configuration.
func (p *report) add(name string, r result, took time.Duration) {
	p.ran++
	if p.count == nil {
		p.count = map[string]int{}
	}
	p.count[r.label]++
	if command := words.Program() + " docs " + pageOf(name); r.label == "FAIL" && !slices.Contains(p.read, command) {
		p.read = append(p.read, command)
	}
	text, fix := p.line(r.text), p.line(r.fix)
	if p.asJSON {
		p.encode(finding{Check: name, Result: strings.ToLower(r.label), Text: text, Fix: fix, Seconds: seconds(took)})
		return
	}
	if fix != "" {
		text += "; " + fix
	}
	label := fmt.Sprintf("%-4s", r.label)
	if code := colours[r.label]; p.colour && code != "" {
		label = "\x1b[" + code + "m" + label + "\x1b[0m"
	}
	p.write(label + " " + name + ": " + text + "\n")
}

// colours are those of the labels on a terminal (ECMA-48, SGR): green, yellow, red and grey.
var colours = map[string]string{"ok": "32", "warn": "33", "FAIL": "1;31", "skip": "90"}

// end reports the totals; its error is that of the first line that was not written.
func (p *report) end(status int) error {
	if p.asJSON {
		p.encode(totals{
			Checks: p.ran, OK: p.count["ok"], Warn: p.count["warn"], Fail: p.count["FAIL"], Skip: p.count["skip"],
			Seconds: seconds(time.Since(p.began)), Status: status,
		})
	}
	return p.err
}

// line is a text on one line, without secrets.
func (p *report) line(s string) string {
	s = words.Named(strings.ReplaceAll(s, "\n", " "))
	if p.hide != nil {
		s = p.hide(s)
	}
	return s
}

func (p *report) encode(v any) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil && p.err == nil {
		p.err = err
	}
	p.write(b.String())
}

func (p *report) write(s string) {
	if _, err := io.WriteString(p.out, s); err != nil && p.err == nil {
		p.err = err
	}
}

// seconds is a time for JSON, in milliseconds' steps.
func seconds(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// sizeText is a number of bytes for people.
func sizeText(n uint64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d bytes", n)
	}
	f, units := float64(n)/step, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	for f >= step && len(units) > 1 {
		f, units = f/step, units[1:]
	}
	if f >= 10 {
		return fmt.Sprintf("%.0f %s", f, units[0])
	}
	return fmt.Sprintf("%.1f %s", f, units[0])
}
