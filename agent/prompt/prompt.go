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
	"unicode"
)

// The texts have names in braces where bots differ. They are replaced once, so that what is
// put in cannot hold one. A template engine would call methods by name, for which the linker
// keeps the exported methods of everything: 11 MB of the program.
var (
	//go:embed system.md
	system string
	//go:embed terminal.md
	terminal string
	//go:embed plain.md
	plain string
	//go:embed task.md
	task string
)

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
	return strings.NewReplacer(
		"{who}", i.who(),
		"{machine}", pick(i.Target != "", "the machine `"+i.Target+"`", "one machine"),
		"{targets}", i.targets(),
		"{mode}", mode[i.Mode],
		"{orAsk}", pick(i.SubAgent, "", " or ask"),
		"{people}", pick(i.SubAgent, "your task", "the people in the thread"),
		"{tell}", pick(i.SubAgent, "say in your report", "tell the thread"),
		"{leave}", pick(i.SubAgent, "say in your report that a person has to do it", "ask a person to do that step"+pick(i.Tmux, " in the shared terminal", "")),
		"{terminals}", pick(i.Tmux, terminal, plain),
		"{asker}", pick(i.SubAgent, "your task", "the person who asked"),
		"{more}", i.more(),
	).Replace(system)
}

// mode is what the modes add to the rules of approval.
var mode = map[string]string{
	"readonly": "\n- This agent is read-only. Calls that change something are refused; describe the change so that a person can make it.",
	"review":   "\n- This agent is in review mode: every command waits for a person, also harmless ones. Ask for few, useful ones.",
}

func pick(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}

func (i Info) who() string {
	if i.SubAgent {
		return "You are a sub-agent" + pick(i.Agent != "", " of `"+i.Agent+"`", "") + ": you do one task for the agent that leads a chat thread."
	}
	return "You are" + pick(i.Agent != "", " `"+i.Agent+"`,", "") + " an on-call agent for a team in a chat thread."
}

func (i Info) targets() string {
	if len(i.Targets) == 0 {
		return ""
	}
	return "\n- This thread works on `" + i.Target + "`. Other machines are reached with the argument `target` of a tool; each has files, directories and terminals of its own. " +
		"Say in your reply which machine a finding is from. The machines:\n  - `" + strings.Join(i.Targets, "`\n  - `") + "`"
}

// more are the sections that only some bots have, at the end.
func (i Info) more() string {
	var b strings.Builder
	if len(i.Workflows) > 0 {
		b.WriteString("\n\n## Workflows\n\nThe team has written down what to do about some problems. When one of them fits, run it with run_workflow instead of finding steps of your own:\n\n- " +
			strings.Join(i.Workflows, "\n- "))
	}
	if i.SubAgent {
		b.WriteString("\n\n" + strings.TrimSuffix(task, "\n"))
	}
	if i.Role != "" {
		b.WriteString("\n\n## Your role\n\n" + i.Role)
	}
	if len(i.Facts) > 0 {
		b.WriteString("\n\n## Facts about the machine\n\n- " + strings.Join(i.Facts, "\n- "))
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
