package main

import (
	"bytes"
	"strings"
	"testing"
)

const shopctlFile = `
risk:
  tools: |
    tool shopctl
      !cobra
      sub orders
        sub list : -n:num --json @none
  examples:
    readonly: [shopctl orders list --json]
    asks: [shopctl orders cancel 17]
`

// classifyText runs the command with a configuration file and standard input.
func classifyText(t *testing.T, config, in string, args ...string) (string, error) {
	t.Helper()
	path := ""
	if config != "" {
		path = write(t, config)
	}
	t.Setenv("COUNTERSIGN_CONFIG", path)
	c := classifyCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetIn(strings.NewReader(in))
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestClassifyGoesByTheConfiguredTables(t *testing.T) {
	for _, tc := range []struct {
		rule, config, command string
		readonly              bool
	}{
		{"a program that nobody named", "", "shopctl orders list", false},
		{"a program that the configuration names", shopctlFile, "shopctl orders list -n 5", true},
		{"what the configuration doesn't name", shopctlFile, "shopctl orders cancel 17", false},
		{"the embedded tables", shopctlFile, "ls -la | head", true},
		{"an attack", shopctlFile, "shopctl orders list; rm -rf /", false},
	} {
		out, err := classifyText(t, tc.config, tc.command+"\n")
		want := `"readonly":false`
		if tc.readonly {
			want = `"readonly":true,"risk":"read"`
		}
		if err != nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: %s: %v, want %s", tc.rule, out, err, want)
		}
	}
}

func TestClassifyRefusesABadConfigurationInOneSentence(t *testing.T) {
	for _, tc := range []struct{ rule, config, want string }{
		{"a table that can't be read", "risk: {tools: 'tool shopctl : @files'}", "risk.tools:1: unknown kind @files"},
		{"a table without examples", "risk: {tools: 'tool shopctl : @none'}", "has no example"},
		{"a danger", "risk: {tools: 'tool rm : @path*'}", "table of dangers"},
		{"an example that comes out otherwise", "risk: {examples: {readonly: ['rm x']}}", "risk.examples.readonly"},
		{"an unknown key", "risk: {tolls: x}", `unknown key "tolls"; did you mean "tools"?`},
	} {
		out, err := classifyText(t, tc.config, "ls\n")
		if err == nil || out != "" || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q %v", tc.rule, out, err)
		}
	}
	t.Setenv("COUNTERSIGN_CONFIG", "/nonexistent/bot.yaml")
	if err := classifyCommand().RunE(classifyCommand(), nil); err == nil || !strings.Contains(err.Error(), "COUNTERSIGN_CONFIG cannot be read") {
		t.Errorf("a file that isn't there: %v", err)
	}
}

func TestClassifyReadsLinesAndObjects(t *testing.T) {
	for _, tc := range []struct {
		rule, in, args string
		rows           int
		err            string
	}{
		{"lines", "ls\nrm x\n", "", 2, ""},
		{"a last line without its end", "ls\nrm x", "", 2, ""},
		{"an empty line is a command", "ls\n\nrm x\n", "", 3, ""},
		{"nothing", "", "", 0, ""},
		{"objects", "{\"command\":\"ls\\nrm x\"}\n\n{\"command\":\"\",\"more\":1}\n  ", "--jsonl", 2, ""},
		{"no object", "{\"command\":\"ls\"}\nls\n", "--jsonl", 0, `line 2 is not an object like {"command": "..."}`},
		{"an object without a command", "{\"cmd\":\"ls\"}\n", "--jsonl", 0, "line 1 is not an object"},
	} {
		out, err := classifyText(t, "", tc.in, strings.Fields(tc.args)...)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v", tc.rule, err)
			}
			continue
		}
		if err != nil || strings.Count(out, "\n") != tc.rows || strings.Count(out, `"readonly":`) != tc.rows {
			t.Errorf("%s: %q %v", tc.rule, out, err)
		}
	}
}
