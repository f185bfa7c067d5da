package tools_test

import (
	"strings"
	"testing"
	"time"

	"countersign/tools"
	"countersign/tools/files"
	"countersign/tools/gitcmd"
	"countersign/tools/process"
	"countersign/tools/toolstest"
)

// A place has one word, and the words of other programs mean the same.
func TestOneWordForAPlace(t *testing.T) {
	target := &toolstest.Target{Name: "box"}
	target.Put("/srv/a.txt", "one\n")
	reg, err := tools.NewRegistry(time.Now, files.New(files.Config{Target: target, User: "tester"})...)
	if err != nil {
		t.Fatal(err)
	}
	plan := func(name, args string) (tools.Plan, error) {
		return reg.Plan(t.Context(), tools.Call{ID: "c", Thread: "test:1", Name: name, Args: []byte(args)})
	}
	want, err := plan("read_file", `{"path":"/srv/a.txt"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range tools.PathAliases() {
		got, err := plan("read_file", `{"`+word+`":"/srv/a.txt"}`)
		if err != nil || got.Action.Digest() != want.Action.Digest() {
			t.Errorf("%s: %v", word, err)
		}
		if _, err := plan("read_file", `{"path":"/srv/a.txt","`+word+`":"/srv/a.txt"}`); err == nil || err.Error() != `invalid arguments: "path" and "`+word+`" are two words for the same argument; give "path" alone` {
			t.Errorf("path with %s: %v", word, err)
		}
	}
	if _, err := plan("read_file", `{"dir":"/srv","file":"a.txt"}`); err == nil || !strings.Contains(err.Error(), `"dir" and "file" are two words`) {
		t.Error(err)
	}
	for _, list := range [][]tools.Tool{files.New(files.Config{Target: target}), gitcmd.New(gitcmd.Config{Target: target}), process.New(process.Config{Target: target})} {
		for _, tool := range list {
			for _, word := range tools.PathAliases() {
				if strings.Contains(string(tool.Spec().Schema), `"`+word+`":`) {
					t.Errorf("%s tells models of %q", tool.Spec().Name, word)
				}
			}
		}
	}
}

// What is below another place in the words of old is one place, where a tool says so.
func TestAPlaceBelowAnother(t *testing.T) {
	spec := tools.Spec{Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{"path": {Type: "string"}}}), Below: []string{"file"}}
	for in, want := range map[string]string{
		`{"file":"a","path":"/srv"}`:            `{"path":"/srv/a"}`,
		`{"file":"a"}`:                          `{"path":"a"}`,
		`{"file":"/a","path":"/srv"}`:           `{"file":"/a","path":"/srv"}`, // is refused
		`{"dir":"/srv","file":"a"}`:             `{"path":"/srv/a"}`,
		`{"other":1,"path":"/srv"}`:             `{"other":1,"path":"/srv"}`,
		`{"file":"a","path":""}`:                `{"file":"a","path":""}`,
		`{"file":"a","dir":"/x","path":"/srv"}`: `{"file":"a","dir":"/x","path":"/srv"}`,
	} {
		if got := string(tools.NormalizePathArg(spec, []byte(in))); got != want {
			t.Errorf("%s becomes %s, not %s", in, got, want)
		}
	}
	files := tools.Spec{Schema: tools.MustSchema(tools.SimpleSchema{Properties: map[string]tools.Property{"path": {Type: "string"}, "files": {Type: "array"}}})}
	if got := string(tools.NormalizePathArg(files, []byte(`{"file":"a"}`))); got != `{"file":"a"}` {
		t.Errorf("beside a list of files a file is no place: %s", got)
	}
}
