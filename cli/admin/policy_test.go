package admin

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/config"
	"countersign/config/rules"
	"countersign/test/needstest"

	"countersign/approvals"

	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
	"countersign/approvals/policy"
	"countersign/targets/backend"
	"countersign/targets/backend/warranttest"
	"countersign/targets/local"
	"countersign/tools"
)

// TestTheDocumentedPolicyHolds loads the configuration in docs/policy.md and checks
// its table.
func TestTheDocumentedPolicyHolds(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml[^\n]*\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d examples, want a configuration and a table", len(blocks))
	}
	dir := t.TempDir()
	file, table := filepath.Join(dir, "bot.yaml"), filepath.Join(dir, "table.yaml")
	for path, b := range map[string][]byte{file: blocks[0][1], table: blocks[1][1]} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("COUNTERSIGN_CONFIG", file)
	t.Setenv("COUNTERSIGN_DATA_DIR", dir)
	var out strings.Builder
	c := root()
	c.SetArgs([]string{"policy", "test", table})
	c.SetOut(&out)
	if err := c.ExecuteContext(context.Background()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, page := range []string{"policy-order", "policy-rules", "policy-conditions"} {
		raw, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, raw...)
	}
	for _, key := range yamlKeys(reflect.TypeFor[policy.Config]()) {
		if !strings.Contains(string(text), key) {
			t.Errorf("no page about the policy names the key %s", key)
		}
	}
	for _, key := range rowKeys {
		if !strings.Contains(string(text)+policyTestCommand().Long, key) {
			t.Errorf("nothing documents the key %s of a table", key)
		}
	}
}

func yamlKeys(t reflect.Type) []string {
	var out []string
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
			out = append(out, name)
			out = append(out, yamlKeys(f.Type)...)
		}
	}
	return out
}

func TestRowKeysAreAllOfThem(t *testing.T) {
	var got []string
	for f := range reflect.TypeFor[row]().Fields() {
		if f.Anonymous {
			got = append(got, yamlKeys(f.Type)...)
			continue
		}
		got = append(got, yamlKeys(reflect.StructOf([]reflect.StructField{f}))...)
	}
	for _, key := range got {
		if !strings.Contains(strings.Join(rowKeys, " "), key) {
			t.Errorf("rowKeys lacks %s", key)
		}
	}
	if len(got) != len(rowKeys) {
		t.Errorf("%v and %v", got, rowKeys)
	}
}

func FuzzPolicyTable(f *testing.F) {
	f.Add("- {name: x, command: ls, expect: ask}")
	f.Add("- {name: x, tool: edit, args: {a: [1]}, at: 2024-01-01T12:00:00Z, expect: forbid}")
	r, err := rules.New(config.Defaults())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parseTable("t", []byte(text))
		if err != nil {
			if _, ok := errors.AsType[*config.Error](err); !ok || strings.Contains(err.Error(), "\n") && !strings.Contains(text, "\n") {
				t.Fatal(err)
			}
			return
		}
		k := &explainer{rules: r, specs: map[string]toolLevel{}}
		for _, row := range table {
			if row.Tool != "" {
				k.specs[row.Tool] = toolLevel{name: row.Tool, level: 3}
			}
			if why, err := k.mismatch(t.Context(), row); err == nil && why == "" && row.Expect == "allow" && row.Mode == "review" {
				t.Fatal("a command runs alone in review")
			}
		}
	})
}

// TestExplainSaysWhatTheBotDecides compares what is said of a call that nobody planned
// with what the gate makes of the same call when its tool plans it.
func TestExplainSaysWhatTheBotDecides(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bot.yaml")
	text := `
targets:
  local: {kind: local, tmux: false, dir: ` + dir + `, approvers: [oncall], labels: {env: dev}}
groups:
  oncall: {web: [alice]}
policy:
  rules:
    - {name: staging-is-fine, match: {tools: [git_add, git_commit, write_file, time]}, then: allow}
    - {name: nothing-of-dev, match: {labels: {env: dev}, tools: [web_search]}, then: forbid}
`
	for path, s := range map[string]string{file: text, filepath.Join(dir, "a.txt"): "one\n"} {
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("COUNTERSIGN_CONFIG", file)
	t.Setenv("COUNTERSIGN_DATA_DIR", filepath.Join(dir, "data"))
	for _, line := range []string{"init -q -b main", "add a.txt", "-c user.name=x -c user.email=x@x.example commit -q -m first", "branch other"} {
		if out, err := warranttest.Start(t.Context(), local.New(local.Options{Dir: dir}), backend.Spec{Shell: "git " + line, Dir: dir}); err != nil {
			t.Fatal(err)
		} else if res, err := out.Wait(); err != nil || res.Code != 0 {
			t.Fatalf("git %s: %+v %v", line, res, err)
		}
	}
	cmd := root()
	cmd.SetContext(t.Context())
	b, done, err := scratchOf(cmd)(func(_ *config.Env, f *config.File) error { f.Agent.Preset = "full"; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	k, err := newExplainer(scratchOf(cmd))
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.Machines()["local"].Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lock := "none"
	if o.Caps.Lock.By != "" {
		lock = "enforced"
	}
	for _, tt := range []struct{ tool, args string }{
		{"run_shell", `{"command":"ls"}`},
		{"run_shell", `{"command":"rm a.txt"}`},
		{"run_shell", `{"command":"cat /etc/shadow"}`},
		{"run_shell", `{"command":"x=$(ls); echo \"$x\""}`},
		{"run_bash_background", `{"command":"sleep 1"}`},
		{"run_bash_background", `{"command":"uptime"}`},
		{"git_add", `{"files":["a.txt"]}`},
		{"git_status", `{}`},
		{"git_log", `{}`},
		{"git_branch", `{}`},
		{"git_branch", `{"name":"x"}`},
		{"git_branch", `{"name":"other","delete":true}`},
		{"git_checkout", `{"branch":"other"}`},
		{"git_merge", `{"branch":"other"}`},
		{"git_reset", `{"mode":"hard"}`},
		{"write_file", `{"path":"` + dir + `/b.txt","content":"x"}`},
		{"delete_file", `{"path":"` + dir + `/a.txt"}`},
		{"read_file", `{"path":"` + dir + `/a.txt"}`},
		{"execute_code", `{"language":"python","code":"print(1)"}`},
		{"time", `{}`},
		{"ls", `{"path":"` + dir + `"}`},
		{"grep", `{"pattern":"one","path":"` + dir + `"}`},
		{"find", `{"path":"` + dir + `"}`},
		{"edit", `{"path":"` + dir + `/a.txt","old_text":"one","new_text":"two"}`},
		{"create_file", `{"path":"` + dir + `/c.txt","content":"x"}`},
		{"apply_patch", `{"patch":"--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+x\n","dir":"` + dir + `"}`},
		{"web_search", `{"query":"x"}`},
		{"fetch_url", `{"url":"https://example.com/"}`},
		{"indexer_search_files", `{"pattern":"*"}`},
		{"read_file", `{"path":"/etc/shadow"}`},
		{"get_background_status", `{}`},
	} {
		t.Run(tt.tool+" "+tt.args, func(t *testing.T) {
			if tt.tool == "execute_code" {
				needstest.Program(t, "python3", "apt-get install python3")
			}
			args := tt.args
			if tt.tool == "run_shell" {
				args = strings.Replace(args, "{", `{"risk":"low","mutation":false,"privesc":false,"why":"the test",`, 1)
			}
			p, err := b.Toolbox().Plan(t.Context(), tools.Call{Direct: true, ID: "c", Thread: "web:1", By: "web:alice", Name: tt.tool, Args: []byte(args)})
			if err != nil {
				t.Fatal(err)
			}
			is, decided, err := b.Caller().Gate.Explain(t.Context(), approvals.Request{Thread: "web:1", By: chat.User{ID: "web:alice"}, Action: p.Action, Floor: p.Level})
			if err != nil {
				t.Fatal(err)
			}
			q := Question{Tool: tt.tool, User: "web:alice", At: is.Now, Lock: lock}
			if err := yaml.Unmarshal([]byte(tt.args), &q.Args); err != nil {
				t.Fatal(err)
			}
			q.Args = *q.Args.Content[0]
			said, d, err := k.judge(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if d.Lane != decided.Lane || d.Rule != decided.Rule || said.Kind != is.Kind || said.Level != is.Level || !slices.Equal(said.Effects, is.Effects) || said.Harmless != is.Harmless || said.Target != is.Target {
				t.Errorf("the bot: %s by %s, %s %s %v harmless %v on %s\nexplained: %s by %s, %s %s %v harmless %v on %s",
					laneName(decided.Lane), decided.Rule, is.Kind, is.Level, is.Effects, is.Harmless, is.Target,
					laneName(d.Lane), d.Rule, said.Kind, said.Level, said.Effects, said.Harmless, said.Target)
			}
		})
	}
}

func TestExplainKnowsWhoMayUseATargetAndWhere(t *testing.T) {
	f := config.Defaults()
	f.Groups = map[string]policy.Group{"dba": {People: policy.IDs{"web": {"dora"}}, Groups: policy.IDs{"slack": {"S1"}}}, "oncall": {People: policy.IDs{"web": {"alice", "dora"}}}}
	f.Targets = map[string]config.TargetConfig{
		"local": {Kind: "local", Approvers: []string{"oncall"}},
		"db-1":  {Kind: "ssh", Host: "db-1", Approvers: []string{"oncall"}, Users: []string{"dba"}, Channels: []string{"slack:C1", "web"}},
	}
	f.Agent.Target = "local"
	f.Channels = []config.ChannelConfig{{Platform: "slack", ID: "C1", Target: "db-1"}}
	r, err := rules.New(f)
	if err != nil {
		t.Fatal(err)
	}
	k := &explainer{rules: r, specs: map[string]toolLevel{"web_search": {name: "web_search", level: 1, own: true}}}
	for _, tt := range []struct {
		rule string
		q    Question
		want string
		says string
	}{
		{"one of the users", Question{Command: "uptime", Target: "db-1", User: "web:dora"}, "allow", ""},
		{"somebody else", Question{Command: "uptime", Target: "db-1", User: "web:alice"}, "forbid", "for people of dba only"},
		{"somebody else who changes something", Question{Command: "rm x", Target: "db-1", User: "web:alice"}, "forbid", "for people of dba only"},
		{"whom the network vouches for", Question{Command: "uptime", Target: "db-1", Channel: "slack:C1", User: "slack:T1:U1", Groups: []string{"S1"}}, "allow", ""},
		{"another channel", Question{Command: "uptime", Target: "db-1", Channel: "slack:C2", User: "slack:T1:U1", Groups: []string{"S1"}}, "forbid", "may not be used in this channel"},
		{"the channel's own target", Question{Command: "uptime", Channel: "slack:C1", User: "slack:T1:U2"}, "forbid", "for people of dba only"},
		{"a target for everybody", Question{Command: "uptime", User: "web:alice"}, "allow", ""},
		{"a hop to a place that is not one's own", Question{Command: "ssh db-1 uptime", User: "web:alice"}, "ask", ""},
		{"what the bot does by itself", Question{Tool: "web_search", Target: "db-1", User: "web:alice"}, "allow", ""},
	} {
		in, d, err := k.judge(t.Context(), tt.q)
		if err != nil {
			t.Fatal(err)
		}
		if laneName(d.Lane) != tt.want || !strings.Contains(d.Sentence, tt.says) {
			t.Errorf("%s: %s (%s): %s\n%s", tt.rule, laneName(d.Lane), d.Rule, d.Sentence, k.explain(in, d))
		}
	}
}

func TestExplainSaysWhoIsOnCall(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rota.ics")
	if err := os.WriteFile(file, []byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:x\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTAMP:20260101T000000Z\r\nSUMMARY:bob@example.com\r\nDTSTART:20260310T000000Z\r\nDTEND:20260310T080000Z\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := config.Defaults()
	rota := policy.Reference{Source: "rota"}.String()
	f.OnCall = map[string]config.OnCallConfig{"rota": {Kind: "ical", Path: file, Fallback: "leads"}}
	f.Groups = map[string]policy.Group{"leads": {People: policy.IDs{"web": {"dora"}}}}
	f.People = map[string]policy.Group{"bob@example.com": {People: policy.IDs{"web": {"bob"}}}}
	f.Targets = map[string]config.TargetConfig{"local": {Kind: "local", Approvers: []string{rota}}}
	for at, want := range map[string]string{
		"2026-03-10T05:00:00Z": "1 person of bob@example.com, on call until 08:00 UTC",
		"2026-03-10T09:00:00Z": "1 person of leads (nobody is on call)",
	} {
		r, err := rules.New(f)
		if err != nil {
			t.Fatal(err)
		}
		k := &explainer{rules: r, specs: map[string]toolLevel{}}
		when, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.onCall(t.Context(), when); err != nil {
			t.Fatal(err)
		}
		in, d, err := k.judge(t.Context(), Question{Command: "touch x", User: "web:eve", At: when})
		if err != nil {
			t.Fatal(err)
		}
		if said := k.explain(in, d); !strings.Contains(said, want) {
			t.Errorf("at %s it doesn't say %q:\n%s", at, want, said)
		}
	}
}
