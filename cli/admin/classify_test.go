package admin

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
	c := ClassifyCommand()
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
	if err := ClassifyCommand().RunE(ClassifyCommand(), nil); err == nil || !strings.Contains(err.Error(), "COUNTERSIGN_CONFIG cannot be read") {
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

func TestClassifyJudgesForTheTargetThatTheFlagsDescribe(t *testing.T) {
	const places = "risk: {places: ['ssh:web1', 'context:staging']}"
	for _, tc := range []struct {
		rule, config, command, args string
		readonly                    bool
	}{
		{"a plain command", "", "df -h | tail -3", "", true},
		{"a loop", "", "for i in 1 2; do date; done", "", false},
		{"a loop under a lock", "", "for i in 1 2; do date; done", "--lock enforced", true},
		{"a loop without one", "", "for i in 1 2; do date; done", "--lock=none", false},
		{"a redirection for a plain sh", "", "ls 2>/dev/null", "--shell posix", true},
		{"a redirection for any shell", "", "ls 2>/dev/null", "--shell any", false},
		{"a bashism for a plain sh, under a lock", "", "[[ -f x ]] && date", "--lock enforced --shell posix", false},
		{"a change under a lock", "", "rm -rf /", "--lock enforced", false},
		{"a place that nobody lists", "", "ssh web1 uptime", "--lock enforced", false},
		{"a place that the configuration lists", places, "ssh web1 uptime", "", true},
		{"another place", places, "ssh web2 uptime", "", false},
		{"another cluster that is listed", places, "kubectl --context staging get ns", "", true},
		{"everything below a directory that is not known", "", "grep -r x .", "", false},
		{"everything below one that is", "", "grep -r x .", "--dir /srv/app", true},
		{"everything below one with secrets", "", "grep -r x .", "--dir /root", false},
	} {
		out, err := classifyText(t, tc.config, tc.command+"\n", strings.Fields(tc.args)...)
		want := `"readonly":false`
		if tc.readonly {
			want = `"readonly":true,"risk":"read"`
		}
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %s: %v, want %s", tc.rule, out, err, want)
		}
	}
	out, err := classifyText(t, places, "ssh web1 uptime\n")
	if err != nil || !strings.Contains(out, `"needs":["net"],"hops":[{"kind":"ssh","name":"web1"}]}`) {
		t.Errorf("%s: %v: want what the lock has to leave open, and where it goes", out, err)
	}
}

func TestClassifyRefusesFlagsThatNobodyKnows(t *testing.T) {
	for args, want := range map[string]string{
		"--lock maybe": `--lock is "maybe"; use enforced or none`,
		"--lock=":      `--lock is ""; use enforced or none`,
		"--shell zsh":  `--shell is "zsh"; use bash, posix or any`,
		"--dir srv":    `--dir is "srv"; write an absolute path`,
	} {
		out, err := classifyText(t, "", "ls\n", strings.Fields(args)...)
		if err == nil || out != "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q %v, want %s", args, out, err, want)
		}
	}
}
