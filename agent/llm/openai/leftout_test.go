package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"countersign/agent/llm"
)

// picky answers 400 while a request offers a tool that it refuses.
type picky struct {
	refuses map[string]string // by the tool's name: what it says
	answer  string
	asked   [][]string // the tools of each request
}

func (p *picky) Do(r *http.Request) (*http.Response, error) {
	var req struct {
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		return nil, err
	}
	names := []string{}
	for _, t := range req.Tools {
		names = append(names, t.Function.Name)
	}
	p.asked = append(p.asked, names)
	status, body := http.StatusOK, p.answer
	for i, n := range names {
		if says, refused := p.refuses[n]; refused {
			status, body = http.StatusBadRequest, fmt.Sprintf(`{"error":{"message":%q}}`, strings.ReplaceAll(says, "#", fmt.Sprint(i)))
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func withTools(names ...string) llm.Request {
	r := ask()
	for _, n := range names {
		r.Tools = append(r.Tools, llm.ToolSpec{Name: n, Schema: json.RawMessage(`{"type":"object","properties":{}}`), Foreign: strings.HasPrefix(n, "mcp_")})
	}
	return r
}

// TestAToolThatAServerRefusesIsLeftOut: one foreign schema stops no thread, and people are told once.
func TestAToolThatAServerRefusesIsLeftOut(t *testing.T) {
	fine := sse(textFrame("fine"), finishFrame("stop"), done)
	for name, tc := range map[string]struct {
		says string // of mcp_fake_query
		left []string
		note string
	}{
		"OpenAI names it":           {"Invalid schema for function 'mcp_fake_query': In context=('properties', 'page', 'anyOf', '0'), schema must have a 'type' key.", []string{"run_shell", "mcp_fake", "mcp_fake_query_all"}, "The tool mcp_fake_query isn't offered"},
		"behind much else":          {strings.Repeat("x ", 300) + "Invalid schema for function 'mcp_fake_query'", []string{"run_shell", "mcp_fake", "mcp_fake_query_all"}, "The tool mcp_fake_query isn't offered"},
		"Anthropic counts":          {"tools.#.custom.input_schema: JSON schema is invalid", []string{"run_shell", "mcp_fake", "mcp_fake_query_all"}, "The tool mcp_fake_query isn't offered"},
		"Gemini counts":             {"* GenerateContentRequest.tools[0].function_declarations[#].parameters.properties[page].any_of[0]: missing field", []string{"run_shell", "mcp_fake", "mcp_fake_query_all"}, "The tool mcp_fake_query isn't offered"},
		"Kimi names none of others": {"invalid parameter value", []string{"run_shell"}, "The tools mcp_fake, mcp_fake_query, mcp_fake_query_all aren't offered"},
	} {
		p := &picky{refuses: map[string]string{"mcp_fake_query": tc.says}, answer: fine}
		var log bytes.Buffer
		c := client(t, "http://model.test", func(cfg *Config) { cfg.HTTPClient, cfg.Log = p, slog.New(slog.NewTextHandler(&log, nil)) })
		req := withTools("run_shell", "mcp_fake", "mcp_fake_query", "mcp_fake_query_all")
		got, err := c.Reply(t.Context(), req, nil)
		if err != nil || got.Text != "fine" || !strings.Contains(got.Notice, tc.note) || len(p.asked) != 2 || !slices.Equal(p.asked[1], tc.left) {
			t.Errorf("%s: %+v, %v, asked with %q", name, got, err, p.asked)
		}
		if got, err = c.Reply(t.Context(), req, nil); err != nil || got.Notice != "" || len(p.asked) != 3 || !slices.Equal(p.asked[2], tc.left) {
			t.Errorf("%s, again: %+v, %v, asked with %q", name, got, err, p.asked)
		}
		if strings.Count(log.String(), "left out") != 1 {
			t.Errorf("%s: the log says\n%s", name, &log)
		}
		// Another schema is another attempt.
		req.Tools[2].Schema = json.RawMessage(`{"type":"object"}`)
		if _, err = c.Reply(t.Context(), req, nil); err != nil || !slices.Contains(p.asked[3], "mcp_fake_query") {
			t.Errorf("%s, another schema: %v, asked with %q", name, err, p.asked)
		}
	}
}

// TestARefusalThatNoToolIsToBlameFor stays what it was.
func TestARefusalThatNoToolIsToBlameFor(t *testing.T) {
	for says, want := range map[string]string{
		"An assistant message with 'tool_calls' must be followed by tool messages: mcp_fake":                                       "tool_calls",
		"tool call validation failed: parameters for tool run_shell did not match schema: errors: [missing properties: 'command']": "did not match schema",
		"Failed to call a function. Please adjust your prompt (tool_use_failed): run_shell parameters":                             "tool_use_failed",
		"temperature is out of range": "temperature is out of range",
	} {
		p := &picky{refuses: map[string]string{"run_shell": says}}
		c := client(t, "http://model.test", func(cfg *Config) { cfg.HTTPClient = p })
		_, err := c.Reply(t.Context(), withTools("run_shell", "mcp_fake"), nil)
		if le, ok := errors.AsType[*llm.Error](err); !ok || !strings.Contains(le.Sentence, want) || !strings.Contains(le.Sentence, "status 400") || len(p.asked) > 2 {
			t.Errorf("%q: %v, asked with %q", says, err, p.asked)
		}
	}
}

// TestWhatTheModelOrAFilterDidTakesNoToolAway: the next request may go well with all of them.
func TestWhatTheModelOrAFilterDidTakesNoToolAway(t *testing.T) {
	for _, says := range []string{
		"Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
		"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
		"tool call validation failed: attempted to call tool 'x' which was not in request.tools",
	} {
		p := &picky{refuses: map[string]string{"mcp_fake": says}, answer: sse(textFrame("fine"), finishFrame("stop"), done)}
		c := client(t, "http://model.test", func(cfg *Config) { cfg.HTTPClient = p })
		if _, err := c.Reply(t.Context(), withTools("run_shell", "mcp_fake"), nil); err == nil {
			t.Errorf("%q: asked with %q", says, p.asked)
		}
	}
}

func TestNamesOfCallsWithoutWhatServersLeaveAroundThem(t *testing.T) {
	offered := withTools("run_shell", "functions_list", "tools:odd").Tools
	for name, want := range map[string]string{
		"run_shell<|channel|>commentary": "run_shell", "run_shell<|constrain|>json": "run_shell", "functions.run_shell": "run_shell", "default_api.run_shell": "run_shell",
		"functions.run_shell:0": "run_shell", " run_shell\n": "run_shell", "tools:odd": "tools:odd", "functions_list": "functions_list",
		"rm<|channel|>commentary": "rm<|channel|>commentary", "functions.rm": "functions.rm", "": "",
	} {
		if got := offeredNames(offered, []llm.Call{{Name: name}}); got[0].Name != want {
			t.Errorf("%q becomes %q, not %q", name, got[0].Name, want)
		}
	}
}

// TestCallsThatCameAsText: the server of a model should have read them.
func TestCallsThatCameAsText(t *testing.T) {
	text := func(s string) served {
		var frame strings.Builder
		for _, piece := range strings.SplitAfter(s, " ") {
			raw, err := json.Marshal(piece)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&frame, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%s},\"finish_reason\":null}]}\n\n", raw)
		}
		return served{body: frame.String() + sse(finishFrame("stop"), done)}
	}
	for name, says := range map[string]string{
		"harmony":        `analysisWe need to check load.assistantcommentary to=functions.run_shell json{"command":"rm -rf /srv/x"}`,
		"Hermes, Qwen":   "<tool_call>\n{\"name\": \"run_shell\", \"arguments\": {}}\n</tool_call>",
		"GLM":            "<tool_call>run_shell\n<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>",
		"Qwen Coder":     "<tool_call>\n<function=run_shell>\n<parameter=command>ls</parameter></function></tool_call>",
		"MiniMax":        `<minimax:tool_call><invoke name="run_shell"><parameter name="command">ls</parameter></invoke></minimax:tool_call>`,
		"Mistral":        `[TOOL_CALLS][{"name": "run_shell", "arguments": {}}]`,
		"Mistral, newer": `[TOOL_CALLS]run_shell[ARGS]{}`,
		"Llama":          `<|python_tag|>{"name": "run_shell", "parameters": {}}`,
		"Kimi":           `<|tool_calls_section_begin|><|tool_call_begin|>functions.run_shell:0<|tool_call_argument_begin|>{}`,
		"DeepSeek":       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>run_shell\n",
	} {
		s, _ := server(t, text(says))
		_, err := client(t, s.URL).Reply(t.Context(), withTools("run_shell"), nil)
		if le, ok := errors.AsType[*llm.Error](err); !ok || !strings.Contains(le.Sentence, "doesn't turn the calls of m into tool calls; switch") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, says := range map[string]string{
		"a tool that isn't offered": `to=functions.other {"a":1}`, "a call that is quoted": "Write `<function=run_shell>`, or\n```\nto=functions.run_shell\n```\nas you like.",
	} {
		s, _ := server(t, text(says))
		if got, err := client(t, s.URL).Reply(t.Context(), withTools("run_shell"), nil); err != nil || got.Text != says {
			t.Errorf("%s: %q, %v", name, got.Text, err)
		}
	}
}
