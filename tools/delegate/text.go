package delegate

import (
	"errors"
	"fmt"
	"strings"

	"countersign/tools"
)

// maxLine bounds one line of a description, in characters: descriptions are sent to the model with
// each request.
const maxLine = 600

// oneLine returns s as one line, so that no configured text can start a section of its own.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if rs := []rune(s); len(rs) > maxLine {
		return string(rs[:maxLine]) + "..."
	}
	return s
}

// Guidance returns the description of the sub-agent's tool. It has all four sections (see
// [tools.Guidance]) whichever fields are set, because some sentences apply to every sub-agent.
func (a Agent) Guidance() string {
	what := oneLine(a.Description)
	var b strings.Builder
	fmt.Fprintf(&b, "Give sub-agent `%s` a task and wait for its report.", a.ID)
	if what != "" {
		b.WriteString(" " + what)
	}
	b.WriteString("\n")
	section := func(title string, groups ...[]string) {
		b.WriteString("\n## " + title + "\n")
		for _, items := range groups {
			for _, s := range items {
				if s = oneLine(s); s != "" {
					b.WriteString("- " + s + "\n")
				}
			}
		}
	}
	when := a.When
	if !hasText(when) {
		when = []string{"For a task of this kind that takes many calls."}
	}
	section("When to use", when)
	section("When NOT to use", a.Not, []string{
		"For one or two calls of your own, or when a person must decide first.",
	})
	section("Disambiguation", a.Differs, []string{
		"It sees only task and context. Its changes need approval like yours; you answer people from its report.",
	})
	tasks := a.Examples
	if !hasText(tasks) {
		tasks = []string{"What to do, where, and what to report."}
	}
	var examples []string
	for _, s := range tasks {
		if s = oneLine(s); s != "" {
			examples = append(examples, `{"task": `+quoteJSON(s)+`}`)
		}
	}
	b.WriteString("\n## Examples\n")
	for _, s := range examples {
		b.WriteString("- " + s + "\n")
	}
	return b.String()
}

func hasText(list []string) bool { return strings.TrimSpace(strings.Join(list, "")) != "" }

// workflowGuidance is the description of run_workflow.
func workflowGuidance(names []string, w Workflows) string {
	var b strings.Builder
	b.WriteString("Run a workflow that the team wrote: fixed steps in order. The workflows:\n\n")
	for _, n := range names {
		b.WriteString("- " + oneLine("`"+n+"`: "+w.Describe(n)) + "\n")
	}
	b.WriteString(`
## When to use
- When one fits this problem, or a person names it.

## When NOT to use
- When none fits. With guessed inputs: find them out or ask.

## Disambiguation
- run_workflow makes its own calls, approved like yours; propose_plan is for calls that you choose. It may stop early: read how it ended.

## Examples
`)
	fmt.Fprintf(&b, "- {\"name\": %s, \"inputs\": {\"an_input\": \"its value\"}}\n", quoteJSON(names[0]))
	return b.String()
}

// quoteJSON returns s as a JSON string, without HTML escapes.
func quoteJSON(s string) string { return string(tools.MustSchema(s)) }

// describeInputs lists the inputs of a workflow.
func describeInputs(inputs map[string]string) string {
	if len(inputs) == 0 {
		return "no inputs"
	}
	return "the inputs " + string(tools.MustSchema(inputs))
}

// invalid reports whether a call can never be made as it is, as opposed to not yet.
func invalid(err error) bool {
	e, ok := errors.AsType[*tools.Error](err)
	return ok && e.Kind == tools.InvalidArguments
}
