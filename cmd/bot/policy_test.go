package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"countersign/approvals/policy"
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
	config, table := filepath.Join(dir, "bot.yaml"), filepath.Join(dir, "table.yaml")
	for path, b := range map[string][]byte{config: blocks[0][1], table: blocks[1][1]} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("COUNTERSIGN_CONFIG", config)
	t.Setenv("COUNTERSIGN_DATA_DIR", dir)
	var out strings.Builder
	c := root()
	c.SetArgs([]string{"policy", "test", table})
	c.SetOut(&out)
	if err := c.ExecuteContext(context.Background()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, key := range yamlKeys(reflect.TypeFor[policy.Config]()) {
		if !strings.Contains(string(text), key) {
			t.Errorf("docs/policy.md does not name the key %s", key)
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
	r, err := newRules(defaults())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parseTable("t", []byte(text))
		if err != nil {
			if _, ok := errors.AsType[*usageError](err); !ok || strings.Contains(err.Error(), "\n") && !strings.Contains(text, "\n") {
				t.Fatal(err)
			}
			return
		}
		k := &counsel{rules: r, specs: map[string]toolLevel{}}
		for _, row := range table {
			if row.Tool != "" {
				k.specs[row.Tool] = toolLevel{row.Tool, 3}
			}
			if why, err := k.miss(row); err == nil && why == "" && row.Expect == "allow" && row.Mode == "review" {
				t.Fatal("a command runs alone in review")
			}
		}
	})
}
