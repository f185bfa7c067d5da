package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"countersign/adapters/chat"
)

// openAPI is docs/openapi.yaml as JSON.
func openAPI(t *testing.T) map[string]any {
	t.Helper()
	raw, err := os.ReadFile("../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(doc); err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return out.(map[string]any)
}

var route = regexp.MustCompile(`(?:mux\.Handle(?:Func)?\(|\t\{)"(GET|POST) /api(/[^"]+)"`)

func TestTheDescriptionOfTheAPIHasEveryRoute(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range route.FindAllStringSubmatch(string(raw), -1) {
			there[m[1]+" "+m[2]] = true
		}
	}
	described := map[string]bool{}
	for path, item := range openAPI(t)["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				described[strings.ToUpper(method)+" "+path] = true
			}
		}
	}
	if a, b := slices.Sorted(maps.Keys(there)), slices.Sorted(maps.Keys(described)); !slices.Equal(a, b) || len(a) < 20 {
		t.Errorf("the program has\n%s\nand docs/openapi.yaml\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
}

// TestAnswersAreAsDescribed asks the console and holds each answer against its schema.
func TestAnswersAreAsDescribed(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("mem:///api.json", openAPI(t)); err != nil {
		t.Fatal(err)
	}
	schema := func(response string) *jsonschema.Schema {
		s, err := compiler.Compile("mem:///api.json#/components/responses/" + response + "/content/application~1json/schema")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	r := newRig(t, func(c *Config) { c.Desk = &stage{} })
	you := r.signIn("you")
	thread := you.start("hello")
	if _, err := r.a.Post(t.Context(), thread, chat.Post{Key: "k", Card: &chat.Card{Title: "Restart nginx", Risk: "high risk", Code: "systemctl restart nginx", Choose: []chat.Button{{ID: "approve:1", Label: "Approve", Style: chat.StyleApprove}}}}); err != nil {
		t.Fatal(err)
	}
	you.token("read", 1)
	for _, c := range []struct{ method, path, body, response string }{
		{"GET", "/api/me", "", "Me"}, {"GET", "/api/home", "", "Home"}, {"GET", "/api/threads", "", "Threads"}, {"GET", "/api/threads/" + string(thread), "", "Thread"},
		{"POST", "/api/threads", `{"id":"9","text":"x"}`, "ThreadID"}, {"POST", "/api/threads/" + string(thread) + "/messages", `{"id":"9","text":"x"}`, "ThreadID"},
		{"POST", "/api/threads/" + string(thread) + "/clicks", `{"id":"9","button":"approve:1"}`, "Pressed"},
		{"GET", "/api/lists/approvals", "", "List"}, {"POST", "/api/lists/policy", `{"fields":{}}`, "List"}, {"GET", "/api/tokens", "", "Tokens"}, {"GET", "/api/lists/nothing", "", "Error"},
		{"POST", "/api/threads", `{}`, "Error"}, {"GET", "/api/nothing", "", "Error"},
	} {
		got := you.do(c.method, c.path, c.body)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(got.body))
		if err == nil {
			err = schema(c.response).Validate(value)
		}
		if err != nil || (got.status >= 400) != (c.response == "Error") || got.header.Get("API-Version") != "1" {
			t.Errorf("%s %s: %d %v\n%s", c.method, c.path, got.status, err, got.body)
		}
	}
}
