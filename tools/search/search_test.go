package search_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/search"
	"countersign/tools/toolstest"
)

func TestToolsKeepTheirPromises(t *testing.T) {
	target := &toolstest.Target{Name: "box"}
	target.Put("/etc/hostname", "web-1\n")
	target.Put("/srv/x", "y\n")
	for i, tool := range search.New(search.Config{Target: target, User: "tester", Dir: "/etc"}) {
		c := toolstest.Case{Name: "call", Args: []string{
			`{"path":"/etc","show_hidden":true}`,
			`{"path":"/etc","pattern":"a","type":"file","max_results":3}`,
			`{"path":"/etc","pattern":"a","glob":"*.go","case_sensitive":true,"context_lines":2,"max_results":3}`,
		}[i], Other: map[string]string{"path": `"/srv"`, "type": `"dir"`}}
		t.Run(tool.Spec().Name, func(t *testing.T) { toolstest.Check(t, tool, target.Effects, c) })
	}
}

// world is a directory with some files, and the tools over it.
func world(t *testing.T, private func(string) bool) (dir string, run func(tool, args string) string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `
mkdir -p src/deep .hidden empty
printf 'package a\n// Error one\nfunc A() {}\n\nfunc B() {}\n// error two\n' > src/a.go
printf 'package b\nfunc error() {}\n' > src/deep/b.go
printf 'ERROR in a log\nfine\n' > app.log
mkdir -p repo/.git/hooks; printf 'needle\n' > repo/.git/hooks/x; printf 'needle\n' > repo/.gitignore; printf 'needle\000' > repo/x.bin
printf 'binary\000error\n' > bin.dat
printf 'error hidden\n' > .hidden/f
seq -f 'match %g' 1 150 > many
i=0; while [ $i -lt 250 ]; do : > empty/f$i; i=$((i+1)); done
ln -s src link
printf 'secret error\n' > private
head -c 3000 /dev/zero | tr '\000' x > long; echo ' error' >> long
touch -d '2026-01-02 03:04:05 UTC' app.log
`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	reg, err := tools.NewRegistry(time.Now, search.New(search.Config{Target: local.New(local.Options{Dir: dir}), Dir: dir, Private: private})...)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir()) // N-25, N-31: no program is needed
	return dir, func(tool, args string) string {
		t.Helper()
		p, err := reg.Plan(t.Context(), tools.Call{ID: "c", Thread: "t", Name: tool, Args: []byte(args)})
		if err != nil {
			return "ERR " + err.Error()
		}
		out := toolstest.RunPlan(t.Context(), t, reg, p)
		if out.Err != nil {
			return "ERR " + out.Err.Error()
		}
		return fmt.Sprint(out.Result.Value)
	}
}

func TestSearching(t *testing.T) {
	dir, run := world(t, func(p string) bool { return strings.HasSuffix(p, "/private") })
	for _, tt := range []struct {
		rule, tool, args string
		want             []string // parts
		not              []string
	}{
		{"N-35 sizes and times", "ls", `{}`, []string{"20 2026-01-02 03:04:05 app.log", "src/", "link@"}, []string{".hidden", "private"}},
		{"N-36 hidden names on request", "ls", `{"show_hidden":true}`, []string{".hidden/"}, nil},
		{"N-35 of a directory", "ls", `{"path":"src"}`, []string{"a.go", "deep/"}, []string{"b.go"}},
		{"ls of a file", "ls", `{"path":"app.log"}`, []string{"ERR", "is no directory"}, nil},
		{"ls of nothing", "ls", `{"path":"nowhere"}`, []string{"ERR", "does not exist"}, nil},
		{"ls is cut by nothing here", "ls", `{"path":"empty"}`, []string{"f249"}, []string{"truncated"}},

		{"N-32 a glob on names", "find", `{"pattern":"*.go"}`, []string{"src/a.go\n", "src/deep/b.go\n"}, []string{"app.log", "link/"}},
		{"N-32 a part of the name", "find", `{"pattern":"ap"}`, []string{"app.log"}, []string{"a.go"}},
		{"a glob on paths", "find", `{"pattern":"src/**/b.go"}`, []string{"src/deep/b.go"}, []string{"a.go"}},
		{"** may be nothing", "find", `{"pattern":"src/**/a.go"}`, []string{"src/a.go"}, nil},
		{"N-33 only directories", "find", `{"type":"dir"}`, []string{"src/\n", "src/deep/\n"}, []string{"app.log", "link"}},
		{"N-33 only files", "find", `{"type":"file","pattern":"*"}`, []string{"app.log"}, []string{"deep/\n", "link\n"}},
		{"N-34 200 results", "find", `{"path":"empty"}`, []string{"[250 results, of which 200 are shown"}, nil},
		{"N-34 as many as asked for", "find", `{"path":"empty","max_results":3}`, []string{"[250 results, of which 3 are shown"}, nil},
		{"nothing fits", "find", `{"pattern":"*.rs"}`, []string{"[nothing was found]"}, nil},
		{"no glob", "find", `{"pattern":"[a"}`, []string{"ERR", "is no glob"}, nil},
		{"private files are not found", "find", `{"pattern":"priv"}`, []string{"nothing was found"}, nil},

		{"N-28 capital letters do not matter", "grep", `{"pattern":"error"}`, []string{"src/a.go:2: // Error one", "src/a.go:6: // error two", "src/deep/b.go:2: func error() {}", "app.log:1: ERROR in a log", ".hidden/f:1:"}, []string{"bin.dat", "private:", "secret"}},
		{"N-28 unless asked for", "grep", `{"pattern":"error","case_sensitive":true}`, []string{"src/a.go:6:", "src/deep/b.go:2:"}, []string{"app.log", "a.go:2:"}},
		{"N-25 an expression of Go", "grep", `{"pattern":"^func [AB]\\(\\)","path":"src"}`, []string{"a.go:3: func A() {}", "a.go:5: func B() {}"}, []string{"b.go"}},
		{"N-26 one file", "grep", `{"pattern":"fine","path":"app.log"}`, []string{dir + "/app.log:2: fine"}, nil},
		{"N-27 files that fit", "grep", `{"pattern":"error","glob":"*.log"}`, []string{"app.log:1:"}, []string{"a.go"}},
		{"N-29 lines around", "grep", `{"pattern":"func A","path":"src/a.go","context_lines":1}`, []string{"a.go-2- // Error one\n", "a.go:3: func A() {}\n", "a.go-4- \n"}, []string{"a.go-5-", "a.go-1-"}},
		{"N-29 lines around are shown once", "grep", `{"pattern":"func","path":"src/a.go","context_lines":2}`, []string{"a.go-1-", "a.go-2-", ":3:", "a.go-4- \n", ":5:", "a.go-6-"}, []string{"--"}},
		{"N-30 100 matches", "grep", `{"pattern":"match","path":"many"}`, []string{"many:100: match 100", "[stopped after 100 matches"}, []string{"match 101"}},
		{"as many as asked for", "grep", `{"pattern":"match","path":"many","max_results":3}`, []string{"many:3:", "[stopped after 3 matches"}, []string{"match 4"}},
		{"long lines are cut", "grep", `{"pattern":" error","path":"long"}`, []string{"long:1: xxx", "x...\n"}, nil},
		{"no match", "grep", `{"pattern":"nowhere"}`, []string{"[no match in "}, nil},
		{"nothing of git's own", "grep", `{"pattern":"needle"}`, []string{"repo/.gitignore:1:", "no text"}, []string{".git/", "x.bin"}},
		{"nothing of git's own without a plain word", "grep", `{"pattern":"n[e][e]."}`, []string{"repo/.gitignore:1:", "[2 files are no text, and were not searched]"}, []string{".git/", "x.bin"}},
		{"unless it is named", "grep", `{"pattern":"needle","path":"repo/.git"}`, []string{"hooks/x:1:"}, nil},
		{"or what is in it", "grep", `{"pattern":"needle","path":"repo/.git/hooks"}`, []string{"x:1:"}, nil},
		{"find finds .git", "find", `{"pattern":".git","path":"repo"}`, []string{".git/\n"}, []string{"hooks"}},
		{"ls lists it", "ls", `{"path":"repo/.git"}`, []string{"hooks/"}, nil},
		{"no expression", "grep", `{"pattern":"("}`, []string{"ERR", "no regular expression"}, nil},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			got := run(tt.tool, tt.args)
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is missing in:\n%.2000s", want, got)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(got, not) {
					t.Errorf("%q is in:\n%.2000s", not, got)
				}
			}
		})
	}
}

func TestAliases(t *testing.T) {
	reg, err := tools.NewRegistry(time.Now, search.New(search.Config{Target: &toolstest.Target{Name: "box"}})...)
	if err != nil {
		t.Fatal(err)
	}
	for alias, want := range map[string]string{"glob_files": "find", "find_files": "find", "glob": "find", "grep_file": "grep", "grep_files": "grep", "list_files": "ls"} {
		if s, ok := reg.Lookup(alias); !ok || s.Name != want {
			t.Errorf("%s means %q", alias, s.Name)
		}
	}
}

func BenchmarkFind100000Files(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		sub := fmt.Sprintf("%s/%d", dir, i)
		if err := os.Mkdir(sub, 0o700); err != nil {
			b.Fatal(err)
		}
		for j := range 1000 {
			if err := os.WriteFile(fmt.Sprintf("%s/f%d", sub, j), nil, 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	reg, err := tools.NewRegistry(time.Now, search.New(search.Config{Target: local.New(local.Options{Dir: dir}), Dir: dir})...)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p, err := reg.Plan(b.Context(), tools.Call{Name: "find", Args: []byte(`{"pattern":"f999"}`)})
		if err != nil {
			b.Fatal(err)
		}
		if out := toolstest.RunPlan(b.Context(), b, reg, p); out.Err != nil {
			b.Fatal(out.Err)
		}
	}
}
