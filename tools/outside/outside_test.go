package outside_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/tools"
	"countersign/tools/outside"
	"countersign/tools/toolstest"
)

func hidden(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }

func plan(t *testing.T, in outside.Args) (tools.Plan, error) {
	t.Helper()
	reg, err := tools.NewRegistry(time.Now, outside.New(outside.Config{Classify: risk.Judge, Redact: hidden})...)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return reg.Plan(t.Context(), tools.Call{Name: outside.Name, Thread: "web:1", ID: "c1", Args: raw, Direct: true})
}

// What a program may run is bound to machine, directory, shell and every byte of the command.
func TestAQuestionIsBoundToAllThatItSays(t *testing.T) {
	base := outside.Args{Host: "laptop", Dir: "/home/ann/src", Shell: "bash", Command: "git push"}
	p, err := plan(t, base)
	if err != nil {
		t.Fatal(err)
	}
	a := p.Action
	if a.Kind != approvals.KindShell || a.Target != "outside:laptop" || a.Dir != "/home/ann/src" || a.Shell != "bash" || string(a.Bytes) != "git push" || a.Locked {
		t.Errorf("%+v", a)
	}
	for what, change := range map[string]func(*outside.Args){
		"host": func(x *outside.Args) { x.Host = "desk" }, "directory": func(x *outside.Args) { x.Dir = "/srv" },
		"shell": func(x *outside.Args) { x.Shell = "zsh" }, "command": func(x *outside.Args) { x.Command = "git push " },
	} {
		in := base
		change(&in)
		if q, err := plan(t, in); err != nil || q.Action.Digest() == a.Digest() {
			t.Errorf("another %s is the same action: %v", what, err)
		}
	}
	if p, err := plan(t, outside.Args{Host: "h", Dir: "/", Shell: "zsh", Command: "ls"}); err != nil || p.Action.Shell != "" {
		t.Errorf("a shell that the proof isn't about: %+v %v", p.Action, err)
	}
}

func TestTheAnswerIsTheCommandAndRunsNothing(t *testing.T) {
	reg, err := tools.NewRegistry(time.Now, outside.New(outside.Config{Classify: risk.Judge, Redact: hidden})...)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan(t, outside.Args{Host: "laptop", Dir: "/", Command: "touch /tmp/never"})
	if err != nil {
		t.Fatal(err)
	}
	o := toolstest.RunPlan(t.Context(), t, reg, p)
	sum := sha256.Sum256([]byte("touch /tmp/never"))
	if o.Err != nil || !reflect.DeepEqual(o.Result.Value, outside.Answer{Allowed: true, Command: "touch /tmp/never", Digest: hex.EncodeToString(sum[:])}) {
		t.Errorf("%+v %v", o.Result, o.Err)
	}
}

// A model can't ask in a program's name.
func TestModelsAreNotOfferedIt(t *testing.T) {
	reg, err := tools.NewRegistry(time.Now, outside.New(outside.Config{Classify: risk.Judge, Redact: hidden})...)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := reg.Plan(t.Context(), tools.Call{Name: outside.Name, Thread: "web:1", ID: "c1", Args: json.RawMessage(`{"host": "laptop", "dir": "/", "command": "ls"}`)}); err == nil {
		t.Errorf("%+v", p.Action)
	}
}

func TestQuestionsThatSayTooLittle(t *testing.T) {
	for _, in := range []outside.Args{
		{Host: "", Dir: "/", Command: "ls"}, {Host: "a b", Dir: "/", Command: "ls"}, {Host: "-x", Dir: "/", Command: "ls"}, {Host: "h", Dir: "", Command: "ls"},
		{Host: "h", Dir: "src", Command: "ls"}, {Host: "h", Dir: "/", Command: " "}, {Host: "h", Dir: "/", Command: "ls\x00"}, {Host: "h", Dir: "/a\x00b", Command: "ls"},
		{Host: "h", Dir: "/", Command: strings.Repeat("x", outside.MaxCommand+1)}, {Host: strings.Repeat("h", 64), Dir: "/", Command: "ls"},
	} {
		if p, err := plan(t, in); err == nil {
			t.Errorf("%.60v is planned: %+v", in, p.Action)
		}
	}
}

// A command's files are bound and shown, and are none of its arguments.
func TestAQuestionIsBoundToTheFilesThatItRuns(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	in := outside.Args{Host: "laptop", Dir: "/src", Shell: "bash", Command: "./deploy.sh", Files: []outside.File{{Path: "/src/deploy.sh", Digest: sum, Text: "rsync site web-1: hunter2\n"}}}
	p, err := plan(t, in)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Action; a.Files["/src/deploy.sh"] != sum || !strings.Contains(a.Preview, "rsync site") || strings.Contains(a.Preview, "hunter2") || strings.Contains(string(a.Args), "rsync") {
		t.Errorf("%+v", a)
	}
	was := p.Action.Digest()
	in.Files[0].Digest = strings.Repeat("cd", 32)
	if p, err = plan(t, in); err != nil || p.Action.Digest() == was {
		t.Errorf("another content is the same action: %v", err)
	}
	in.Files[0].Digest, in.Files[0].Link = "", "/home/ann/.netrc"
	if p, err = plan(t, in); err != nil || p.Action.Files["/src/deploy.sh"] != "a link to /home/ann/.netrc" {
		t.Errorf("a link: %+v %v", p.Action, err)
	}
	in.Files[0].Path = "deploy.sh"
	if _, err := plan(t, in); err == nil {
		t.Error("a path that isn't absolute is planned")
	}
}

func editPlan(t *testing.T, in outside.Edit) (tools.Plan, error) {
	t.Helper()
	reg, err := tools.NewRegistry(time.Now, outside.New(outside.Config{Classify: risk.Judge, Redact: hidden})...)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return reg.Plan(t.Context(), tools.Call{Name: outside.EditName, Thread: "web:1", ID: "c1", Args: raw, Direct: true})
}

func TestAnEditIsBoundToWhatWasThere(t *testing.T) {
	edit := func(in outside.Edit) (approvals.Action, error) {
		p, err := editPlan(t, in)
		return p.Action, err
	}
	base := outside.Edit{Host: "laptop", File: outside.File{Path: "/src/a", Digest: strings.Repeat("ab", 32)}, Change: "-a\n+b\n"}
	a, err := edit(base)
	if err != nil || a.Kind != approvals.KindChange || a.Preview != base.Change || a.Path != "/src/a" || a.Files["/src/a"] != base.Digest {
		t.Fatalf("%+v %v", a, err)
	}
	base.Digest = ""
	if b, err := edit(base); err != nil || b.Files["/src/a"] != approvals.Absent || b.Digest() == a.Digest() {
		t.Errorf("a new file: %+v %v", b, err)
	}
	base.Link = "/src/b"
	if b, err := edit(base); err != nil || !slices.Equal(b.Paths, []string{"/src/a", "/src/b"}) || b.Files["/src/b"] != approvals.Absent {
		t.Errorf("a link: %+v %v", b, err)
	}
	for _, bad := range []outside.Edit{
		{Host: "h", File: outside.File{Path: "a"}, Change: "x"}, {Host: "h", File: outside.File{Path: "/a"}}, {Host: "h", File: outside.File{Path: "/a", Digest: "1"}, Change: "x"},
		{Host: "-", File: outside.File{Path: "/a"}, Change: "x"}, {Host: "h", File: outside.File{Path: "/a", Link: "b"}, Change: "x"}, {Host: "h", Change: "x"},
	} {
		if b, err := edit(bad); err == nil {
			t.Errorf("%+v is planned: %+v", bad, b)
		}
	}
}

// A patch counts with every file that it names, whatever the program says of them.
func TestAPatchIsAboutAllItsFiles(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	patch := "*** Begin Patch\n*** Update File: a.md\n@@\n-x\n+y\n*** Add File: /etc/cron.d/x\n+x\n*** Update File: old.md\n*** Move to: sub/keys\n@@\n-x\n+y\n*** End Patch\n"
	all := []outside.File{{Path: "/src/a.md", Digest: sum}, {Path: "/etc/cron.d/x"}, {Path: "/src/old.md", Digest: sum}, {Path: "/src/sub/keys"}}
	base := outside.Edit{Host: "laptop", Dir: "/src", Change: patch, Files: all}
	p, err := editPlan(t, base)
	if a := p.Action; err != nil || !slices.Equal(a.Paths, []string{"/src/a.md", "/etc/cron.d/x", "/src/old.md", "/src/sub/keys"}) || a.Path != "" || len(a.Files) != 4 || a.Files["/src/sub/keys"] != approvals.Absent {
		t.Fatalf("%+v %v", p.Action, err)
	}
	removes := base
	removes.Change, removes.Files = "*** Begin Patch\n*** Delete File: a.md\n*** End Patch\n", all[:1]
	if p, err := editPlan(t, removes); err != nil || p.Level != risk.High || p.Action.Path != "/src/a.md" {
		t.Errorf("%+v %v", p, err)
	}
	for what, change := range map[string]func(*outside.Edit){
		"a file left out": func(x *outside.Edit) { x.Files = all[:3] }, "one too many": func(x *outside.Edit) { x.Files = append(slices.Clone(all), outside.File{Path: "/src/c"}) },
		"one twice": func(x *outside.Edit) { x.Files = append(slices.Clone(all), all[0]) }, "no directory": func(x *outside.Edit) { x.Dir = "" },
		"a mark behind a blank": func(x *outside.Edit) { x.Change = strings.Replace(patch, "*** Add", " *** Add", 1) },
		"a mark in a new file":  func(x *outside.Edit) { x.Change = strings.Replace(patch, "+x\n", "+x\n x\n", 1) },
		"no end":                func(x *outside.Edit) { x.Change = strings.TrimSuffix(patch, "*** End Patch\n") },
		"more behind its end":   func(x *outside.Edit) { x.Change += "*** Add File: b\n+x\n" },
		"no patch":              func(x *outside.Edit) { x.Change = "-a\n+b\n" },
	} {
		in := base
		change(&in)
		if p, err := editPlan(t, in); err == nil {
			t.Errorf("%s is planned: %+v", what, p.Action)
		}
	}
}
