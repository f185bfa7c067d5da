package openai

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"countersign/agent/llm"
)

// leftOut remembers which tools a server refused, by the model and the tool with its schema: one schema that a
// server doesn't take would otherwise stop every request.
type leftOut struct {
	mu    sync.Mutex
	known map[string]bool
}

func leftOutKey(model string, t llm.ToolSpec) string {
	return model + "\x00" + t.Name + "\x00" + string(t.Schema)
}

// of returns the tools that a model's server takes, as far as is known.
func (l *leftOut) of(model string, all []llm.ToolSpec) []llm.ToolSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(t llm.ToolSpec) bool { return l.known[leftOutKey(model, t)] })
}

func (l *leftOut) add(model string, tools []llm.ToolSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[string]bool{}
	}
	for _, t := range tools {
		l.known[leftOutKey(model, t)] = true
	}
}

var (
	// "Invalid schema for function 'mcp_x': ...", "tools.3.custom.input_schema: ...", "Invalid 'tools[0].function.name'"
	definitionWords = regexp.MustCompile(`(?i)schema|parameters|grammar|function_?declaration|\btools?\b.{0,3}\d|invalid (tool|function)`)
	// "... 'tool_calls' must be followed by tool messages ..." is about the conversation, and "tool call validation failed:
	// parameters for tool x did not match schema" (Groq) about what the model has just written.
	conversationWords = regexp.MustCompile(`(?i)tool.call|tool_use_failed|failed_generation|content.(filter|management)|messages\b`)
	// "GenerateContentRequest.tools[0].function_declarations[12].parameters.properties[page]" counts declarations.
	declarationNumber = regexp.MustCompile(`(?i)function_?declarations[.\[](\d+)`)
	toolNumber        = regexp.MustCompile(`(?i)\btools[.\[](\d+)`)
)

// refusedTools are the tools for whose definitions a server refused a request: those that it names, by name
// or by number; else all foreign ones, as some servers only say that a parameter is invalid.
func (f *fault) refusedTools(sent []llm.ToolSpec) []llm.ToolSpec {
	switch f.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusInternalServerError:
	case 0:
		if f.kind != inStream {
			return nil
		}
	default:
		return nil
	}
	if f.quota || f.tooLong || f.wants&wantAnotherModel != 0 || conversationWords.MatchString(f.words) {
		return nil
	}
	if definitionWords.MatchString(f.words) {
		var named []llm.ToolSpec
		for _, t := range sent {
			if containsName(f.words, t.Name) {
				named = append(named, t)
			}
		}
		if len(named) > 0 {
			return []llm.ToolSpec{slices.MaxFunc(named, func(a, b llm.ToolSpec) int { return cmp.Compare(len(a.Name), len(b.Name)) })}
		}
		for _, number := range []*regexp.Regexp{declarationNumber, toolNumber} {
			m := number.FindStringSubmatch(f.words)
			if m == nil {
				continue
			}
			if n, err := strconv.Atoi(m[1]); err == nil && n < len(sent) {
				return []llm.ToolSpec{sent[n]}
			}
		}
	}
	if f.status != http.StatusBadRequest && f.status != http.StatusUnprocessableEntity && !definitionWords.MatchString(f.words) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(sent), func(t llm.ToolSpec) bool { return !t.Foreign })
}

// containsName reports whether a text has a name that isn't a part of another one.
func containsName(text, name string) bool {
	isPart := func(s string) bool { return s != "" && (s[0] == '_' || s[0] == '-' || isAlnum(s[0])) }
	for at := 0; ; {
		i := strings.Index(text[at:], name)
		if i < 0 || name == "" {
			return false
		}
		at += i
		if (at == 0 || !isPart(text[at-1:at])) && !isPart(text[at+len(name):]) {
			return true
		}
		at += len(name)
	}
}

func isAlnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func toolNames(tools []llm.ToolSpec) []string {
	out := make([]string, len(tools))
	for i, t := range tools {
		out[i] = t.Name
	}
	return out
}
