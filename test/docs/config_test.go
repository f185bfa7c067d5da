package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"countersign/agent/workflow"
	"countersign/proof/signer"
)

// prelude adds to a part of a configuration the groups and targets that it names and
// does not define: a group of one person, a container. It returns the text unchanged when
// nothing is missing, and what it added.
func prelude(src string) (whole string, added []string, err error) {
	var file map[string]any
	if err := yaml.Unmarshal([]byte(src), &file); err != nil {
		return "", nil, err
	}
	groups, targets := map[string]bool{}, map[string]bool{}
	mentioned(file, groups, targets)
	for _, kind := range []struct {
		key   string
		names map[string]bool
		value map[string]any
	}{
		{"groups", groups, map[string]any{"web": []string{"you"}}},
		{"targets", targets, map[string]any{"kind": "container", "container": "scratch"}},
	} {
		section, _ := file[kind.key].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(kind.names)) {
			if _, ok := section[name]; ok || kind.key == "targets" && name == "local" {
				continue
			}
			if section == nil {
				section = map[string]any{}
				file[kind.key] = section
			}
			section[name] = kind.value
			added = append(added, kind.key+"."+name)
		}
	}
	if len(added) == 0 {
		return src, nil, nil
	}
	out, err := yaml.Marshal(file)
	return string(out), added, err
}

// Keys below which a configuration names groups and targets.
var (
	groupKeys  = []string{"approvers", "users", "moderators", "groups", "requesters", "break_glass"}
	targetKeys = []string{"target", "targets"}
)

// mentioned collects the names of groups and targets.
func mentioned(v any, groups, targets map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			switch list := names(below); {
			case slices.Contains(groupKeys, key):
				for _, n := range list {
					groups[n] = true
				}
			case slices.Contains(targetKeys, key):
				for _, n := range list {
					targets[n] = true
				}
			}
			mentioned(below, groups, targets)
		}
	case []any:
		for _, below := range v {
			mentioned(below, groups, targets)
		}
	}
}

// names are a word or a list of them; anything else is none, and neither is a pattern.
func names(v any) (list []string) {
	switch v := v.(type) {
	case string:
		list = []string{v}
	case []any:
		for _, x := range v {
			if s, ok := x.(string); ok {
				list = append(list, s)
			}
		}
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "" || strings.ContainsAny(s, "*~:") })
}

// configFaults loads a part of a configuration with the bot itself. path is where it
// was written, for tables.
func configFaults(t testing.TB, b block) (path string, faults []fault) {
	t.Helper()
	whole, added, err := prelude(b.text)
	if err != nil {
		return "", []fault{b.fault("the block is no YAML: %v", err)}
	}
	path = filepath.Join(t.TempDir(), "block.yaml")
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"config", "print"},
		{"policy", "explain", "--user", "web:you", "uptime"}, // it also reads the policy, with its examples
	} {
		if out, err := once(t, []string{"COUNTERSIGN_CONFIG=" + path}, args...); err != nil {
			return path, []fault{b.fault("bot %s does not take the block (with %v added): %s", strings.Join(args, " "), added, strings.TrimSpace(out))}
		}
	}
	return path, nil
}

// yamlFaults checks a block of YAML. config is the file of the configuration that came
// before it in its document; it returns that of this block if it is one.
func yamlFaults(t testing.TB, b block, config string) (string, []fault) {
	t.Helper()
	switch b.marks["kind"] {
	case "":
		return configFaults(t, b)
	case "workflow":
		var head struct {
			Name string `yaml:"name"`
		}
		if err := yaml.Unmarshal([]byte(b.text), &head); err != nil {
			return config, []fault{b.fault("the block is no YAML: %v", err)}
		}
		if _, err := workflow.Parse(head.Name, []byte(b.text)); err != nil {
			return config, []fault{b.fault("the block is no workflow: %v", err)}
		}
	case "signer":
		if _, err := signer.Parse([]byte(b.text)); err != nil {
			return config, []fault{b.fault("the signer does not take the block: %v", err)}
		}
	case "policy-test":
		path := filepath.Join(t.TempDir(), "table.yaml")
		if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var env []string
		if config != "" {
			env = []string{"COUNTERSIGN_CONFIG=" + config}
		}
		if out, err := once(t, env, "policy", "test", path); err != nil {
			return config, []fault{b.fault("bot policy test: %s", strings.TrimSpace(out))}
		}
	default:
		d := yaml.NewDecoder(strings.NewReader(b.text))
		for {
			var v any
			if err := d.Decode(&v); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return config, []fault{b.fault("the block is no YAML: %v", err)}
			}
		}
	}
	return config, nil
}

// codeFaults checks a block in a language that is only parsed.
func codeFaults(t testing.TB, b block) []fault {
	t.Helper()
	switch b.lang {
	case "json":
		if !json.Valid([]byte(b.text)) {
			return []fault{b.fault("the block is no JSON")}
		}
	case "jsonl":
		for i, line := range lines(b.text) {
			if !json.Valid([]byte(line)) {
				return []fault{faultAt(b.doc, b.line+i, "the line is no JSON")}
			}
		}
	case "python":
		missing(t, "python3", "apt-get install python3")
		cmd := exec.Command("python3", "-c", "import ast, sys; ast.parse(sys.stdin.read())")
		cmd.Stdin = strings.NewReader(b.text)
		if out, err := cmd.CombinedOutput(); err != nil {
			return []fault{b.fault("the block is no Python: %s", strings.TrimSpace(string(out)))}
		}
	case "go":
		return goFaults(t, b)
	}
	return nil
}

// goFaults compiles a whole file as a package of this module, and parses a fragment.
func goFaults(t testing.TB, b block) []fault {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", b.text, parser.PackageClauseOnly)
	if err != nil {
		if _, err := format.Source([]byte(b.text)); err != nil {
			return []fault{b.fault("the block is no Go: %v", err)}
		}
		return nil
	}
	// The file is in an overlay only, so that the repository stays as it is.
	whole, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text, overlay := filepath.Join(dir, "block.go"), filepath.Join(dir, "overlay.json")
	to := filepath.Join(whole, "test", "docs", "block", file.Name.Name, "block.go")
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{to: text}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(text, []byte(b.text), 0o600), os.WriteFile(overlay, raw, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", os.DevNull, "countersign/test/docs/block/"+file.Name.Name)
	cmd.Dir = whole
	if out, err := cmd.CombinedOutput(); err != nil {
		return []fault{b.fault("the block does not compile: %s", bytes.TrimSpace(out))}
	}
	return nil
}

func TestPrelude(t *testing.T) {
	for name, c := range map[string]struct {
		in, added string
	}{
		"nothing is missing":       {"targets: {a: {kind: local, approvers: [x]}}\ngroups: {x: {web: [you]}}\n", "[]"},
		"a group":                  {"targets: {a: {kind: local, approvers: [x, y]}}\ngroups: {x: {web: [you]}}\n", "[groups.y]"},
		"no groups at all":         {"policy: {break_glass: [lead], rules: [{name: n, approve: {groups: [a], escalate: [{after: 5m, groups: [b]}]}}]}\n", "[groups.a groups.b groups.lead]"},
		"the target of a channel":  {"channels: [{platform: slack, id: C1, target: web-1}]\n", "[targets.web-1]"},
		"this machine":             {"agent: {target: local}\n", "[]"},
		"patterns name nobody":     {"policy: {rules: [{name: n, match: {targets: [\"db-*\"]}}]}\n", "[]"},
		"the sections are no name": {"targets: {a: {kind: local}}\ngroups: {x: {web: [you]}}\n", "[]"},
	} {
		whole, added, err := prelude(c.in)
		if got := fmt.Sprint(added); err != nil || got != c.added || added == nil && whole != c.in {
			t.Errorf("%s: %s %v\n%s", name, got, err, whole)
		}
	}
}

func TestWrongBlocksAreFaults(t *testing.T) {
	for name, c := range map[string]struct {
		b    block
		want int
	}{
		"a part of a configuration": {block{lang: "yaml", text: "targets: {local: {kind: local, approvers: [oncall]}}\n"}, 0},
		"an unknown key":            {block{lang: "yaml", text: "targets: {local: {kind: local, aprovers: [oncall]}}\n"}, 1},
		"a rule's wrong example":    {block{lang: "yaml", text: "policy: {rules: [{name: n, match: {risk: '>= high'}, then: forbid, examples: {match: [uptime]}}]}\n"}, 1},
		"no YAML":                   {block{lang: "yaml", text: "a: [\n"}, 1},
		"a table":                   {block{lang: "yaml", marks: map[string]string{"kind": "policy-test"}, text: "- {name: n, command: uptime, user: 'web:you', expect: allow}\n"}, 0},
		"a table that misses":       {block{lang: "yaml", marks: map[string]string{"kind": "policy-test"}, text: "- {name: n, command: uptime, user: 'web:you', expect: forbid}\n"}, 1},
		"no signer's":               {block{lang: "yaml", marks: map[string]string{"kind": "signer"}, text: "listen: /s\n"}, 1},
		"no workflow":               {block{lang: "yaml", marks: map[string]string{"kind": "workflow"}, text: "name: n\nsteps: []\n"}, 1},
		"manifests":                 {block{lang: "yaml", marks: map[string]string{"kind": "k8s"}, text: "a: b\n---\nc: d\n"}, 0},
		"broken manifests":          {block{lang: "yaml", marks: map[string]string{"kind": "k8s"}, text: "a: b\n---\nc: [\n"}, 1},
		"JSON":                      {block{lang: "json", text: "{\"a\": 1}\n"}, 0},
		"no JSON":                   {block{lang: "json", text: "{\"a\": 1\n"}, 1},
		"lines of JSON":             {block{lang: "jsonl", text: "{}\n[]\n"}, 0},
		"a broken line of JSON":     {block{lang: "jsonl", text: "{}\n[\n"}, 1},
		"a Go file":                 {block{lang: "go", text: "package x\n\nimport \"countersign/store\"\n\nvar _ store.DB\n"}, 0},
		"a Go file with a mistake":  {block{lang: "go", text: "package x\n\nvar _ store.DB\n"}, 1},
		"a part of Go":              {block{lang: "go", text: "x := f()\nreturn x\n"}, 0},
		"no Go":                     {block{lang: "go", text: "x := f(\n"}, 1},
		"Python":                    {block{lang: "python", text: "x = 1\n"}, 0},
		"no Python":                 {block{lang: "python", text: "x = = 1\n"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.b.doc, c.b.line = "x.md", 1
			var faults []fault
			if c.b.lang == "yaml" {
				_, faults = yamlFaults(t, c.b, "")
			} else {
				faults = codeFaults(t, c.b)
			}
			if len(faults) != c.want {
				t.Errorf("%q, want %d faults", faults, c.want)
			}
		})
	}
}
