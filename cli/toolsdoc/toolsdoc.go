// Package toolsdoc writes docs/tools.md from the catalogue: each tool by its group,
// with what it is for, its arguments, its level and the presets that have it.
//
// It knows no tool but by name: a tool without a group is an error, so that no new one
// is left out, and so is a group that names a tool that is not there. It does not show
// the guidance for models that follows a description's first part.
package toolsdoc

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"countersign/tools"
)

// group is a heading with its tools, in their order.
type group struct {
	title, about string
	tools        []string
}

// groups are those of the catalogue.
func groups() []group {
	return []group{
		{"Commands", "They run on the thread's target.", []string{"run_shell", "bash", "execute_code", "undo_command"}},
		{"Processes in the background", "They outlive the call, the connection and the bot.",
			[]string{"run_bash_background", "get_background_status", "get_background_output", "interrupt_background_process"}},
		{"Terminals", "They need tmux on the target.",
			[]string{"capture-pane", "send-keys", "tmux-create-session", "tmux-create-pane", "tmux-kill-pane", "tmux-kill-session"}},
		{"Files", "`roots` of a target keeps them within some directories.",
			[]string{"read_file", "read", "write_file", "write", "create_file", "edit", "apply_patch", "delete_file", "undo"}},
		{"Searching files", "`roots` of a target keeps them within some directories.", []string{"ls", "find", "grep"}},
		{"Git", "They run none of a repository's own programs: no hooks, pagers or helpers, as far as git lets that be said.", []string{
			"git_status", "git_diff", "git_log", "git_branch", "git_add", "git_commit", "git_checkout", "git_stash", "git_pull", "git_merge", "git_reset", "git_push",
		}},
		{"Code", "An index in memory of a checkout on the target.", []string{
			"indexer_search_code", "indexer_search_files", "indexer_extract_symbols", "indexer_analyze_file", "indexer_detect_language", "indexer_get_metrics",
		}},
		{"The web", "They run on the bot's own machine and reach nothing inside your network unless `internet` allows it.",
			[]string{"web_search", "fetch_url", "web_fetch"}},
		{"The thread", "", []string{"search_history", "read_output", "propose_plan", "run_workflow", "extend_budget", "allow_command", "allow_edit", "trust_host_key", "time"}},
		{"Sub-agents", "Each works in a conversation of its own; its changes ask in your thread ([roles.md](roles.md)).", []string{
			"sub_agent_code_analyzer", "sub_agent_code_explorer", "sub_agent_code_writer", "sub_agent_researcher", "sub_agent_shell_executor",
		}},
	}
}

const head = `# The tools

<!-- Made by: go generate ./cmd/bot -->

What the agent can call, as it comes with the bot; ` + "`countersign tools --markdown`" + ` writes this page. ` + "`countersign tools`" + ` lists what *your* bot shows the model,
with your preset, plugins and MCP servers, and ` + "`countersign tools --json`" + ` has the whole text that the model reads, with examples.

A tool's **level** is the least of its calls: a call can be higher (a command is judged by what it does), never lower. Level ` + "`read`" + ` is a tool that
can only look, or one whose calls are judged one by one. What runs unasked and who is asked is the [policy](policy.md)'s business.

Tools marked *claims* take four arguments more, all needed: ` + "`risk`" + ` (low, medium or high), ` + "`mutation`" + `, ` + "`privesc`" + ` (yes or no) and ` + "`why`" + ` (at most 2000
characters). They are the model's own word, stand on the card, and can only raise the level. With more than one target each tool that
works on a machine also takes ` + "`target`" + `, a target's name. Arguments that are not listed are refused.

A tool answers to its other names too, and to each name with ` + "`_`" + ` in place of ` + "`-`" + `.
`

const tail = `
## Tools from elsewhere

[Plugins and MCP servers](plugins.md) bring their own, at level ` + "`high`" + ` unless the configuration says otherwise, in every preset. Where a server's tool
has changed, ` + "`trust_mcp_tool`" + ` (level ` + "`high`" + `) lets people acknowledge it.
`

// Markdown writes the page for a catalogue of all tools.
func Markdown(r *tools.Registry) (string, error) {
	chosen, err := presets(r)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(head)
	b.WriteString(chosen.table())
	left := map[string]bool{}
	for _, n := range r.Names() {
		left[n] = true
	}
	var errs []error
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n## %s\n", g.title)
		if g.about != "" {
			fmt.Fprintf(&b, "\n%s\n", g.about)
		}
		for _, name := range g.tools {
			s, ok := r.Lookup(name)
			if !ok || !left[s.Name] {
				errs = append(errs, fmt.Errorf("the group %q names %s, which is no tool or has been named before; correct the group", g.title, name))
				continue
			}
			delete(left, s.Name)
			text, err := section(s, chosen.with(s.Name))
			if err != nil {
				errs = append(errs, err)
			}
			b.WriteString(text)
		}
	}
	for _, n := range r.Names() {
		if left[n] {
			errs = append(errs, fmt.Errorf("the tool %s is in no group; add it to one in cli/toolsdoc", n))
		}
	}
	b.WriteString(tail)
	return b.String(), errors.Join(errs...)
}

// choice is what the presets have.
type choice struct {
	names []string
	tools map[string][]string // by preset, sorted, without unlisted ones
}

func presets(r *tools.Registry) (choice, error) {
	c := choice{names: tools.Presets(), tools: map[string][]string{}}
	for _, p := range c.names {
		sel, err := r.Select(tools.Selection{Preset: p})
		if err != nil {
			return c, err
		}
		for _, s := range sel.Specs(nil) {
			c.tools[p] = append(c.tools[p], s.Name)
		}
	}
	return c, nil
}

func (c choice) with(tool string) (in []string) {
	for _, p := range c.names {
		if slices.Contains(c.tools[p], tool) {
			in = append(in, "`"+p+"`")
		}
	}
	return in
}

func (c choice) table() string {
	var b strings.Builder
	b.WriteString("\n## Presets\n\n`agent.preset` chooses one, `tools.additional` and `tools.disabled` correct it, and a [role](roles.md) " +
		"may have one of its own. Tools that need tmux are left out where there\n" +
		"is none. `run_shell` and `bash`, `read_file` and `read`, `write_file` and `write`, `fetch_url` and `web_fetch` do the same in two " +
		"styles; no preset shows both.\n\n| preset | tools |\n|---|---|\n")
	for _, p := range c.names {
		what := "none"
		switch n := len(c.tools[p]); {
		case n == len(c.tools["full"]):
			what = fmt.Sprintf("all %d but the second of two styles", n)
		case n > 0:
			what = "`" + strings.Join(c.tools[p], "`, `") + "`"
		}
		word := ""
		if p == tools.DefaultPreset {
			word = " (the default)"
		}
		fmt.Fprintf(&b, "| `%s`%s | %s |\n", p, word, what)
	}
	return b.String()
}

// section is what the page says of one tool.
func section(s tools.Spec, in []string) (string, error) {
	var b strings.Builder
	lead, _, _ := strings.Cut(s.Description, "\n## ")
	fmt.Fprintf(&b, "\n### %s\n\n%s\n\n", s.Name, lines(strings.TrimSpace(lead)))
	p, err := read(s.Schema)
	if err != nil {
		return "", fmt.Errorf("the schema of %s cannot be shown: %w", s.Name, err)
	}
	facts := []string{"Level `" + s.Level.String() + "`"}
	if p.claims {
		facts = append(facts, "*claims*")
	}
	if s.NeedsTmux {
		facts = append(facts, "needs tmux")
	}
	switch {
	case s.Unlisted:
		facts = append(facts, "for people (a button or a word in chat): the model is not told of it, and no preset names it")
	case len(in) == 0:
		facts = append(facts, "in no preset: `tools.additional` adds it")
	default:
		facts = append(facts, "in "+strings.Join(in, ", "))
	}
	if len(s.Aliases) > 0 {
		facts = append(facts, "also called `"+strings.Join(s.Aliases, "`, `")+"`")
	}
	b.WriteString(strings.Join(facts, "; ") + ".\n")
	b.WriteString(p.table())
	return b.String(), nil
}

// parameters are the arguments of a tool.
type parameters struct {
	list   []parameter
	claims bool // the four labels are among them, and left out of the list
}

type parameter struct {
	name     string
	required bool
	property
}

// property is what the page shows of a JSON Schema.
type property struct {
	Type          types           `json:"type"`
	Description   string          `json:"description"`
	Default       json.RawMessage `json:"default"`
	Enum          []any           `json:"enum"`
	Minimum       *json.Number    `json:"minimum"`
	Maximum       *json.Number    `json:"maximum"`
	MinLength     int             `json:"minLength"`
	MaxLength     int             `json:"maxLength"`
	MinItems      int             `json:"minItems"`
	MaxItems      int             `json:"maxItems"`
	MaxProperties int             `json:"maxProperties"`
	Pattern       string          `json:"pattern"`
	Items         *property       `json:"items"`
}

// types is one type, or several.
type types []string

// UnmarshalJSON reads a text or a list of texts.
func (t *types) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = types{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(t))
}

var claims = []string{"risk", "mutation", "privesc", "why"}

// read takes the arguments out of a schema: the needed ones first, in their order, the
// others by name.
func read(schema json.RawMessage) (parameters, error) {
	var s struct {
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return parameters{}, err
	}
	p := parameters{claims: true}
	for _, c := range claims {
		p.claims = p.claims && slices.Contains(s.Required, c)
	}
	var names []string
	for n := range s.Properties {
		if !slices.Contains(s.Required, n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	for i, n := range append(slices.Clone(s.Required), names...) {
		if !p.claims || !slices.Contains(claims, n) {
			p.list = append(p.list, parameter{n, i < len(s.Required), s.Properties[n]})
		}
	}
	return p, nil
}

func (p parameters) table() string {
	if len(p.list) == 0 {
		return "\nIt has no arguments of its own.\n"
	}
	var b strings.Builder
	b.WriteString("\n| argument | type | needed | default | limits | meaning |\n|---|---|---|---|---|---|\n")
	for _, a := range p.list {
		needed := ""
		if a.required {
			needed = "yes"
		}
		def := ""
		if len(a.Default) > 0 {
			def = code(string(a.Default))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", a.name, a.kind(), needed, def, a.limits(), prose(a.Description))
	}
	return b.String()
}

func (p property) kind() string {
	word := strings.Join(p.Type, " or ")
	if p.Items != nil && len(p.Items.Type) > 0 {
		word += " of " + p.Items.kind()
	}
	return word
}

func (p property) limits() string {
	var out []string
	say := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	if len(p.Enum) > 0 {
		words := make([]string, len(p.Enum))
		for i, e := range p.Enum {
			words[i] = code(fmt.Sprintf("%v", e))
			if e == "" {
				words[i] = "empty"
			}
		}
		say("%s", strings.Join(words, ", "))
	}
	span := func(low, high, unit string) {
		switch {
		case low != "" && high != "":
			say("%s to %s%s", low, high, unit)
		case low != "":
			say("at least %s%s", low, unit)
		case high != "":
			say("at most %s%s", high, unit)
		}
	}
	span(number(p.Minimum), number(p.Maximum), "")
	span(count(p.MinLength), count(p.MaxLength), " characters")
	span(count(p.MinItems), count(p.MaxItems), " items")
	span("", count(p.MaxProperties), " entries")
	switch p.Pattern {
	case "":
	case `\S`:
		say("not blank")
	default:
		say("fits %s", code(p.Pattern))
	}
	if p.Items != nil {
		if inner := p.Items.limits(); inner != "" {
			say("each %s", inner)
		}
	}
	return strings.Join(out, "; ")
}

func number(n *json.Number) string {
	if n == nil {
		return ""
	}
	return n.String()
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// code is a text as a code span that also a cell of a table can hold.
func code(s string) string {
	ticks := "`"
	for strings.Contains(s, ticks) {
		ticks += "`"
	}
	if len(ticks) > 1 {
		s = " " + s + " "
	}
	return ticks + strings.ReplaceAll(s, "|", `\|`) + ticks
}

// emphasis finds an underscore that does not stand within a word, where it means nothing.
var emphasis = regexp.MustCompile(`(^|[^A-Za-z0-9])_`)

// lines is a description that keeps its lines, so that a list stays one.
func lines(s string) string {
	all := strings.Split(s, "\n")
	for i, line := range all {
		item, ok := strings.CutPrefix(line, "- ")
		all[i] = prose(item)
		if ok {
			all[i] = "- " + all[i]
		}
	}
	return strings.Join(all, "\n")
}

// prose is a description on one line, in which only code spans mean anything.
func prose(s string) string {
	parts := strings.Split(strings.Join(strings.Fields(s), " "), "`")
	if len(parts)%2 == 0 { // a tick without its second
		parts = []string{strings.Join(parts, "'")}
	}
	mark := strings.NewReplacer(`\`, `\\`, "*", `\*`, "<", `\<`, "[", `\[`, "|", `\|`)
	for i := range parts {
		if i%2 == 1 && strings.Contains(parts[i], `\|`) { // not to be written as code in a cell
			parts[i] = "'" + mark.Replace(parts[i]) + "'"
		} else if i%2 == 0 {
			parts[i] = emphasis.ReplaceAllString(mark.Replace(parts[i]), `$1\_`)
		} else {
			parts[i] = code(parts[i])
		}
	}
	return strings.Join(parts, "")
}
