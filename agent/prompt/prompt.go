// Package prompt writes the system prompt of an agent from embedded Markdown.
// The same [Info] always gives the same text, byte for byte, so that providers
// can cache it: there are no times or counters in it, and what differs between
// bots comes last as far as the text allows.
//
// It does not describe single tools (their specs do) and enforces nothing: what
// a call may do is decided by package approvals, whatever a model was told.
package prompt

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
	"text/template"
	"unicode"
)

//go:embed system.md
var system string

var parsed = sync.OnceValue(func() *template.Template { return template.Must(template.New("system").Parse(system)) })

// Info is what the prompt says about the bot.
type Info struct {
	Agent  string // name of the agent
	Target string // name of the machine it works on
	// Targets are all machines that it can name, each with its labels; none when there
	// is one only.
	Targets []string
	Tmux    bool   // commands run in terminals that people can watch
	Mode    string // readonly, review or balanced; "" means balanced
	// Role is Markdown that the configuration adds: what this agent is for. Its headings
	// should be of the third level or below.
	Role string
	// SubAgent says that it works on one task for the agent of a thread, and reports.
	SubAgent bool
	// Workflows are those that it can run, each its name and what it is for in one line.
	// Sub-agents run none and are told of none.
	Workflows []string
	// Facts are facts about the machine that stay as they are, one a line
	// ("Debian 12, 4 cores"). They may come from the machine itself.
	Facts []string
}

// factLen bounds one fact, and what is said of one workflow, in runes.
const factLen = 200

// System returns the system prompt. It is safe for concurrent use.
func System(i Info) string {
	i.Agent, i.Target = line(i.Agent), line(i.Target)
	i.Facts, i.Targets, i.Workflows = lines(i.Facts, fact), lines(i.Targets, line), lines(i.Workflows, fact)
	if i.SubAgent {
		i.Workflows = nil
	}
	i.Role = block(i.Role)
	var b strings.Builder
	if err := parsed().Execute(&b, i); err != nil {
		panic("prompt: " + err.Error()) // the embedded text is wrong; its test says so first
	}
	return b.String()
}

// lines are the items that clean leaves something of.
func lines(items []string, clean func(string) string) []string {
	var out []string
	for _, s := range items {
		if s = clean(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

var blank = regexp.MustCompile(`\n[ \t]*(\n[ \t]*)+\n`)

// block brings Markdown into the form of the rest: no space around it, and at most one
// empty line between two.
func block(s string) string {
	return blank.ReplaceAllString(strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")), "\n\n")
}

// line keeps a configured name on one line and inside its code quotes.
func line(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "`", "'")
}

// fact makes s one short line without control or invisible characters, so that
// it cannot open a section of its own.
func fact(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > factLen {
		return string(rs[:factLen]) + "..."
	}
	return s
}
