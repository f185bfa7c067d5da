package openai

import (
	"regexp"
	"slices"
	"strings"

	"countersign/agent/llm"
)

// What servers leave around the name of a tool: the namespace that a model was taught ("functions.run_shell",
// "default_api.run_shell"), and its own tokens and numbers behind it ("run_shell<|channel|>commentary",
// "run_shell:0").
var (
	nameBefore = regexp.MustCompile(`^(?:functions|function|default_api|tools?)[.:/]`)
	nameBehind = regexp.MustCompile(`(?s)\s*(?:<[|\x{ff5c}].*|:\d+)$`)
)

// offeredNames corrects the names of calls that are an offered tool's but for what a server left around them.
func offeredNames(offered []llm.ToolSpec, calls []llm.Call) []llm.Call {
	isOffered := func(name string) bool {
		return slices.ContainsFunc(offered, func(t llm.ToolSpec) bool { return t.Name == name })
	}
	for i, c := range calls {
		name := strings.Trim(nameBehind.ReplaceAllString(c.Name, ""), " \t\n\"'`")
		if bare := nameBefore.ReplaceAllString(name, ""); !isOffered(name) && isOffered(bare) {
			name = bare
		}
		if !isOffered(c.Name) && isOffered(name) {
			calls[i].Name = name
		}
	}
	return calls
}

// callsAsText are the forms in which models write calls, which their server should have read. The group is the
// name of the tool. (github.com/vllm-project/vllm, vllm/tool_parsers; OpenAI's harmony format.)
var callsAsText = []*regexp.Regexp{
	regexp.MustCompile(`\bto=(?:functions|tools?)\.([\w-]+)`),
	regexp.MustCompile(`<tool_call>\s*\{\s*"name"\s*:\s*"([\w-]+)"`),
	regexp.MustCompile(`<tool_call>\s*([\w-]+)\s*<arg_key>`),
	regexp.MustCompile(`<function=([\w-]+)>`),
	regexp.MustCompile(`invoke name="([\w-]+)"`),
	regexp.MustCompile(`\[TOOL_CALLS\]\s*(?:\[\s*\{\s*"name"\s*:\s*")?([\w-]+)`),
	regexp.MustCompile(`<\|python_tag\|>\s*\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([\w-]+)"`),
	regexp.MustCompile(`<\|tool_call_begin\|>\s*(?:functions\.)?([\w-]+)`),
	regexp.MustCompile(`<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?([\w-]+)`),
}

var quotedCode = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")

// isUntranslated reports whether a reply has calls of offered tools as text, and none as calls.
func isUntranslated(r llm.Reply, offered []llm.ToolSpec) bool {
	if len(r.Calls) > 0 || r.Text == "" {
		return false
	}
	text := quotedCode.ReplaceAllString(withoutThoughts(r.Text), "")
	for _, form := range callsAsText {
		for _, m := range form.FindAllStringSubmatch(text, -1) {
			if slices.ContainsFunc(offered, func(t llm.ToolSpec) bool { return t.Name == m[1] }) {
				return true
			}
		}
	}
	return false
}
