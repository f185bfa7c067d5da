package main

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer/codec"

	"countersign/agent/llm"
	"countersign/agent/llm/openai"
	"countersign/agent/llm/openai/openaitest"
	"countersign/bot"
	"countersign/config"
	"countersign/tools"
)

// TestThePresetsCostFewTokens: every request carries the tools, so their texts are short.
// The limits are a little above the numbers in docs/cost.md.
func TestThePresetsCostFewTokens(t *testing.T) {
	t.Setenv("COUNTERSIGN_CONFIG", "")
	t.Setenv("COUNTERSIGN_DATA_DIR", t.TempDir())
	counter := codec.NewO200kBase()
	for _, c := range []struct {
		preset      string
		plain, tmux int // at most, on a target without and with tmux
	}{{tools.DefaultPreset, 2600, 4400}, {"full", 9000, 10900}} {
		cmd := root()
		cmd.SetContext(t.Context())
		b, done, err := scratch(cmd, bot.Options{}, func(_ *config.Env, f *config.File) error {
			*f = config.Defaults()
			f.Agent.Preset = c.preset
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		var plain, all []llm.ToolSpec
		for _, s := range b.Toolbox().Everyone().Specs(nil) {
			spec := llm.ToolSpec{Name: s.Name, Description: s.ModelText, Schema: s.ModelSchema}
			all = append(all, spec)
			if !s.NeedsTmux {
				plain = append(plain, spec)
			}
		}
		if len(all) == len(plain) {
			t.Errorf("%s has no tools for terminals", c.preset)
		}
		for _, m := range []struct {
			on    string
			specs []llm.ToolSpec
			most  int
		}{{"without tmux", plain, c.plain}, {"with tmux", all, c.tmux}} {
			n := 0
			for _, tool := range sentTools(t, m.specs) { // one by one: long texts are only estimated
				c, err := counter.Count(string(tool) + ",")
				if err != nil {
					t.Fatal(err)
				}
				n += c
			}
			t.Logf("%s %s: %d tools, %d tokens", c.preset, m.on, len(m.specs), n)
			if n > m.most {
				t.Errorf("the preset %s costs %d tokens %s, more than %d; shorten descriptions", c.preset, n, m.on, m.most)
			}
		}
	}
}

// sentTools returns the tools of a request as a server receives them.
func sentTools(t *testing.T, specs []llm.ToolSpec) []json.RawMessage {
	t.Helper()
	s := openaitest.New(func(openaitest.Conversation) openaitest.Turn { return openaitest.Turn{Text: "ok"} })
	server := httptest.NewServer(s)
	defer server.Close()
	client, err := openai.New(openai.Config{BaseURL: server.URL + "/v1", Model: "scripted"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Reply(t.Context(), llm.Request{Items: []llm.Item{{Role: llm.User, Text: "hello"}}, Tools: specs}, nil); err != nil {
		t.Fatal(err)
	}
	var body struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(s.Journal()[0], &body); err != nil || len(body.Tools) != len(specs) {
		t.Fatalf("%d of %d tools were sent: %v", len(body.Tools), len(specs), err)
	}
	return body.Tools
}

// execute runs a subcommand as the operator of a configuration would.
func execute(t *testing.T, file string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("COUNTERSIGN_CONFIG", file)
	t.Setenv("COUNTERSIGN_DATA_DIR", t.TempDir())
	var out strings.Builder
	c := root()
	c.SetArgs(args)
	c.SetOut(&out)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// TestTheListOfToolsIsCurrent: docs/tools.md is what bot tools --markdown prints,
// whatever is configured.
func TestTheListOfToolsIsCurrent(t *testing.T) {
	out, err := execute(t, filepath.Join("../../docs/policies", "look-only.yaml"), "tools", "--markdown")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	if out != string(page) {
		t.Error("docs/tools.md is not what the program has; run go generate ./cmd/bot")
	}
	for _, more := range []string{"--json", "--preset=full"} {
		if _, err := execute(t, "", "tools", "--markdown", more); err == nil {
			t.Errorf("%s is not refused beside --markdown", more)
		}
	}
}
