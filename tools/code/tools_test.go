package code

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/tools"
	"countersign/tools/toolstest"
)

func TestToolsKeepTheirPromises(t *testing.T) {
	target := &toolstest.Target{Name: "box"}
	target.Put("/srv/a/main.go", "package main\n")
	target.Put("/srv/b/main.go", "package main\n")
	target.Put("/srv/a/other.go", "package main\n")
	other := map[string]string{"path": `"/srv/a/other.go"`, "kind": `"class"`}
	args := map[string][]string{
		"indexer_search_code":     {`{"path":"/srv/a","pattern":"main","path_filter":"*.go","case_sensitive":true,"context_lines":2,"max_results":3}`},
		"indexer_search_files":    {`{"path":"/srv/a","pattern":"*.go","max_results":3}`},
		"indexer_analyze_file":    {`{"path":"/srv/a/main.go"}`},
		"indexer_extract_symbols": {`{"path":"/srv/a","name":"x","kind":"function","path_filter":"*.go","max_results":3}`, `{"path":"/home/tester/x.go"}`},
		"indexer_get_metrics":     {`{"path":"/srv/a"}`, `{"path":"/srv/a/main.go"}`},
		"indexer_detect_language": {`{"path":"/srv/a"}`, `{"path":"/srv/a/main.go"}`},
	}
	target.Put("/home/tester/x.go", "package x\n")
	target.Put("/home/tester/other.go", "package x\n")
	for _, tool := range New(Config{Target: target, User: "tester"}) {
		name := tool.Spec().Name
		t.Run(name, func(t *testing.T) {
			var cases []toolstest.Case
			for i, a := range args[name] {
				o := maps.Clone(other)
				if name == "indexer_search_code" || name == "indexer_search_files" {
					o["path"] = `"/srv/b"`
				}
				cases = append(cases, toolstest.Case{Name: fmt.Sprint(i), Args: a, Other: o})
			}
			toolstest.Check(t, tool, target.Effects, cases...)
		})
	}
}

func lines1(ms []match) []string {
	var out []string
	for _, m := range ms {
		out = append(out, fmt.Sprintf("%s:%d:%d %s", m.File, m.Line, m.Column, m.Text))
	}
	return out
}

//
func TestSearchingCode(t *testing.T) {
	w := newWorld(t)
	w.put("src/a.go", "package a\n// Error one\nfunc A() {}\n\nfunc B() {}\n// error two\n")
	w.put("src/deep/b.go", "package b\r\nfunc error() {}\r\n")
	w.put("app.log", "ERROR in a log\nfine")
	w.put("bin.dat", "binary\x00error\n")
	w.put("node_modules/x/i.js", "error\n")
	w.put(".git/config", "error\n")
	w.put("long", strings.Repeat("x", 5000)+" error "+strings.Repeat("y", 5000)+"\n")
	w.put("many", strings.Repeat("match\n", 150))
	w.put("bad", "\xff\xfe error \x1b[31m\n")
	for _, c := range []struct {
		rule, args string
		want       []string
		truncated  bool
	}{
		{"capital letters do not matter", `{"pattern":"error","path_filter":"*.go"}`, []string{"src/a.go:2:4 // Error one", "src/a.go:6:4 // error two", "src/deep/b.go:2:6 func error() {}"}, false},
		{"unless asked for", `{"pattern":"Error","case_sensitive":true}`, []string{"src/a.go:2:4 // Error one"}, false},
		{"an expression of Go", `{"pattern":"^func [AB]\\(\\)"}`, []string{"src/a.go:3:1 func A() {}", "src/a.go:5:1 func B() {}"}, false},
		{"a line is there once", `{"pattern":"n","path_filter":"app.log"}`, []string{"app.log:1:8 ERROR in a log", "app.log:2:3 fine"}, false},
		{"a filter on paths", `{"pattern":"func","path_filter":"src/**/b.go"}`, []string{"src/deep/b.go:2:1 func error() {}"}, false},
		{"as many as asked for, and told so", `{"pattern":"match","max_results":2}`, []string{"many:1:1 match", "many:2:1 match"}, true},
		{"exactly as many as there are is all", `{"pattern":"fine","max_results":1}`, []string{"app.log:2:1 fine"}, false},
		{"the end of a file is no line", `{"pattern":"^$","path_filter":"*.go"}`, []string{"src/a.go:4:1 "}, false},
		{"bytes that are no text are shown as such", `{"pattern":"error","path_filter":"bad"}`, []string{"bad:1:4 \uFFFD\uFFFD error \uFFFD[31m"}, false},
		{"nothing", `{"pattern":"nowhere"}`, nil, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := as[matches](w, "indexer_search_code", c.args)
			// The BOM-like bytes are two invalid ones; neighbours become one mark.
			want := c.want
			if c.rule == "bytes that are no text are shown as such" {
				want = []string{"bad:1:4 \uFFFD error \uFFFD[31m"}
			}
			if !slices.Equal(lines1(got.Matches), want) || got.Truncated != c.truncated {
				t.Errorf("got %q (%v), want %q", lines1(got.Matches), got.Truncated, want)
			}
		})
	}
	t.Run("lines around", func(t *testing.T) {
		got := as[matches](w, "indexer_search_code", `{"pattern":"func A","context_lines":2}`)
		if m := got.Matches[0]; !slices.Equal(m.Before, []string{"package a", "// Error one"}) || !slices.Equal(m.After, []string{"", "func B() {}"}) {
			t.Errorf("%+v", m)
		}
	})
	t.Run("a long line is cut around the match", func(t *testing.T) {
		got := as[matches](w, "indexer_search_code", `{"pattern":" error ","path_filter":"long"}`)
		if s := got.Matches[0].Text; len(s) > 320 || !strings.Contains(s, "x error y") {
			t.Errorf("%q", s)
		}
	})
	t.Run("what is not indexed is said", func(t *testing.T) {
		got := as[matches](w, "indexer_search_code", `{"pattern":"error"}`)
		if got.LeftOut[skipBinary] != 1 || got.LeftOut[skipVendored] != 2 || got.Files != 6 {
			t.Errorf("%+v", got.summary)
		}
		if text := got.String(); !strings.Contains(text, "[not indexed: 1 binary]") {
			t.Error(text)
		}
	})
	t.Run("the index rules files out", func(t *testing.T) {
		if got := as[matches](w, "indexer_search_code", `{"pattern":"func [AB]"}`); got.Searched != 1 {
			t.Errorf("%d files were searched", got.Searched)
		}
	})
	t.Run("no expression", func(t *testing.T) {
		if out := w.run("indexer_search_code", `{"pattern":"("}`); out.Err == nil || !strings.Contains(out.Text, "no regular expression") {
			t.Error(out.Text)
		}
	})
	t.Run("the result is whole JSON in the same order each time", func(t *testing.T) {
		a, b := w.run("indexer_search_code", `{"pattern":"e"}`), w.run("indexer_search_code", `{"pattern":"e"}`)
		ja, err1 := json.Marshal(a.Result.Value)
		jb, err2 := json.Marshal(b.Result.Value)
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(ja, jb) || !bytes.Contains(ja, []byte(`"indexed_files":6`)) {
			t.Errorf("%s\n%s", ja, jb)
		}
	})
}

//
func TestSearchingFiles(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"a.go", "src/b.go", "src/x/c.ts", "README.md"} {
		w.put(n, "x\ny\n")
	}
	got := as[foundFiles](w, "indexer_search_files", `{"pattern":"*.go"}`)
	if !reflect.DeepEqual(got.Found, []foundFile{{"a.go", "Go", 4, 2}, {"src/b.go", "Go", 4, 2}}) || got.Total != 2 || got.Truncated {
		t.Errorf("%+v", got)
	}
	got = as[foundFiles](w, "indexer_search_files", `{"pattern":"src/**","max_results":1}`)
	if len(got.Found) != 1 || got.Found[0].File != "src/b.go" || got.Total != 2 || !got.Truncated {
		t.Errorf("%+v", got)
	}
}

// over the whole index, by name and kind.
func TestExtractingSymbols(t *testing.T) {
	t.Parallel()
	needGrammars(t)
	w := newWorld(t)
	for _, name := range fixtures {
		w.put("src/"+name, fixture(t, name))
	}
	w.put("README.md", "Run\n")
	for _, c := range []struct {
		rule, args string
		want       []string
	}{
		{"by name", `{"name":"STORE"}`, []string{"Store", "Store"}},
		{"by kind", `{"kind":"class","path_filter":"*.py"}`, []string{"Base", "Meta", "Model"}},
		{"a type is any declaration of one", `{"kind":"type","path_filter":"*.go"}`, []string{"Handler", "Kind", "Pair", "Server"}},
		{"functions", `{"kind":"function","path_filter":"*.sh"}`, []string{"deploy", "log"}},
		{"imports", `{"kind":"import","path_filter":"*.ts"}`, []string{"./user", "express"}},
		{"of one file", `{"path":"src/view.tsx"}`, []string{"Box", "List", "Props", "react", "render"}},
		{"nothing of that name", `{"name":"nowhere"}`, nil},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got := as[symbolsResult](w, "indexer_extract_symbols", c.args)
			if !slices.Equal(names(got.Symbols), c.want) {
				t.Errorf("got %q, want %q", names(got.Symbols), c.want)
			}
		})
	}
	t.Run("only files that may hold the name are parsed", func(t *testing.T) {
		if got := as[symbolsResult](w, "indexer_extract_symbols", `{"name":"AlsoGood"}`); got.Parsed != 1 || len(got.Symbols) != 1 || got.Symbols[0].File != "src/broken.go" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the order is that of paths and lines", func(t *testing.T) {
		got := as[symbolsResult](w, "indexer_extract_symbols", `{"max_results":1000}`)
		if !slices.IsSortedFunc(got.Symbols, func(a, b fileSymbol) int {
			if a.File != b.File {
				return strings.Compare(a.File, b.File)
			}
			return a.Line - b.Line
		}) {
			t.Errorf("%+v", got.Symbols)
		}
	})
	t.Run("as many as asked for", func(t *testing.T) {
		if got := as[symbolsResult](w, "indexer_extract_symbols", `{"max_results":3}`); len(got.Symbols) != 3 || !got.Truncated {
			t.Errorf("%+v", got)
		}
	})
	t.Run("without a grammar", func(t *testing.T) {
		if out := w.run("indexer_extract_symbols", `{"path":"README.md"}`); out.Err == nil || !strings.Contains(out.Text, "Markdown, for which there is no grammar") {
			t.Error(out.Text)
		}
	})
}

func TestSymbolsAreRefusedWithoutAParser(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Worker = nil })
	w.put("a.go", "package a\n")
	for _, call := range []string{"indexer_extract_symbols", "indexer_analyze_file"} {
		if out := w.run(call, `{"path":"a.go"}`); out.Err == nil || !strings.Contains(out.Text, "search with indexer_search_code") {
			t.Error(out.Text)
		}
	}
}

//
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.put("a.go", "package a\n\n// c\n/* d\n\n e */\nvar s = \"// no\" // yes\nvar r = `\n// in a string\n`\n")
	w.put("b.py", "# c\n\nx = 1 # y\n")
	w.put("c.rs", "fn f<'a>() {} // '\n// only\n")
	w.put("data.bin", "\x00")
	got := as[metrics](w, "indexer_get_metrics", `{}`)
	want := []tally{
		{Language: "Go", Files: 1, Bytes: 82, Lines: 10, Code: 5, Comment: 4, Blank: 1},
		{Language: "Python", Files: 1, Bytes: 15, Lines: 3, Code: 1, Comment: 1, Blank: 1},
		{Language: "Rust", Files: 1, Bytes: 26, Lines: 2, Code: 1, Comment: 1},
	}
	for i := range want {
		want[i].Bytes = got.Languages[i].Bytes
	}
	if !reflect.DeepEqual(got.Languages, want) || got.Total.Lines != 15 || got.Total.Files != 3 {
		t.Errorf("%+v", got)
	}
	one := as[metrics](w, "indexer_get_metrics", `{"path":"b.py"}`)
	if one.Total.Code != 1 || one.Total.Language != "Python" || one.File != "b.py" {
		t.Errorf("%+v", one)
	}
}

//
func TestDetectingLanguages(t *testing.T) {
	w := newWorld(t)
	for _, name := range fixtures {
		w.put(name, fixture(t, name))
	}
	w.put("run", "#!/usr/bin/env python3\nprint(1)\n")
	w.put("Makefile", "all:\n")
	w.put("img.png", "\x89PNG\x00")
	for name, want := range map[string]string{
		"server.go": "Go", "models.py": "Python", "app.js": "JavaScript", "api.ts": "TypeScript", "view.tsx": "TSX", "lib.rs": "Rust",
		"Service.java": "Java", "deploy.sh": "Shell", "run": "Python", "Makefile": "Makefile", "img.png": noLanguage,
	} {
		if got := as[languageResult](w, "indexer_detect_language", `{"path":"`+name+`"}`); got.Language != want {
			t.Errorf("%s is %s", name, got.Language)
		}
	}
	got := as[languageResult](w, "indexer_detect_language", `{}`)
	if len(got.Languages) != 9 || got.Language != got.Languages[0].Language || got.Type != "programming" {
		t.Errorf("%+v", got)
	}
}

func TestAChangeBetweenTwoQueriesIsSeen(t *testing.T) {
	w := newWorld(t)
	w.put("a.txt", "first\n")
	w.put("b.txt", "other\n")
	count := func(pattern string) int {
		return len(as[matches](w, "indexer_search_code", `{"pattern":"`+pattern+`"}`).Matches)
	}
	if count("first") != 1 {
		t.Fatal("it is not found")
	}
	w.put("a.txt", "second\n")
	if count("second") != 0 {
		t.Error("the root was listed again within the same moment")
	}
	w.later()
	if count("second") != 1 || count("first") != 0 {
		t.Error("the change is not seen")
	}
	// The same size and the same time: only the content tells.
	st, err := os.Stat(w.dir + "/a.txt")
	if err != nil {
		t.Fatal(err)
	}
	w.now = st.ModTime().Add(time.Second)
	w.c.Cache.roots = map[key]*root{}
	if count("second") != 1 {
		t.Fatal("it is not found")
	}
	w.put("a.txt", "hidden\n")
	w.put("a.txt", "sneaky\n")
	if err := os.Chtimes(w.dir+"/a.txt", st.ModTime(), st.ModTime()); err != nil {
		t.Fatal(err)
	}
	w.later()
	if count("sneaky") != 1 {
		t.Error("a change within the resolution of times is not seen")
	}
	if err := os.Remove(w.dir + "/b.txt"); err != nil {
		t.Fatal(err)
	}
	w.put("c.txt", "third\n")
	w.later()
	if count("other") != 0 || count("third") != 1 {
		t.Error("a file that is gone or new is not seen")
	}
}

func TestPrivateFilesAndLinksAreNotSeen(t *testing.T) {
	var dir string
	w := newWorld(t, func(c *Config) {
		c.Private = func(p string) bool { return strings.HasPrefix(p, dir+"/private") }
	})
	dir = w.dir
	out := t.TempDir()
	if err := os.WriteFile(out+"/secret.go", []byte("package secret\nfunc Secret() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.put("private/key.go", "package secret\nfunc Secret() {}\n")
	w.put("open.go", "package open\n")
	w.put("real/x.go", "package real\n")
	for link, to := range map[string]string{"file.go": out + "/secret.go", "dir": out, "inner": "real"} {
		if err := os.Symlink(to, filepath.Join(w.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	got := as[matches](w, "indexer_search_code", `{"pattern":"secret"}`)
	if len(got.Matches) != 0 || got.Files != 2 || got.LeftOut[skipSpecial] != 3 || got.LeftOut[skipPrivate] == 0 {
		t.Errorf("%+v", got)
	}
	if got := as[foundFiles](w, "indexer_search_files", `{"pattern":"*"}`); got.Total != 2 {
		t.Errorf("%+v", got)
	}
	for _, tool := range []string{"indexer_analyze_file", "indexer_get_metrics", "indexer_detect_language", "indexer_extract_symbols"} {
		for file, want := range map[string]string{
			"private/key.go": "private to the bot", "file.go": "leads out of", "dir/secret.go": "leads out of", "../x": "leads out of",
		} {
			if o := w.run(tool, `{"path":"`+file+`"}`); o.Err == nil || !strings.Contains(o.Text, want) {
				t.Errorf("%s of %s: %s", tool, file, o.Text)
			}
		}
	}
	if o := w.run("indexer_get_metrics", `{"path":"private"}`); o.Err == nil || !strings.Contains(o.Text, "private to the bot") {
		t.Error(o.Text)
	}
	// A file that becomes a link after it was listed is not followed.
	if err := os.Remove(w.dir + "/open.go"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out+"/secret.go", w.dir+"/open.go"); err != nil {
		t.Fatal(err)
	}
	if got := as[matches](w, "indexer_search_code", `{"pattern":"open|secret"}`); len(got.Matches) != 0 || len(got.Notes) != 1 {
		t.Errorf("%+v", got)
	}
	// Nor is one whose directory does.
	if err := os.Rename(w.dir+"/real", w.dir+"/gone"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(out, w.dir+"/real"); err != nil {
		t.Fatal(err)
	}
	if got := as[matches](w, "indexer_search_code", `{"pattern":"."}`); len(got.Matches) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestIndexingTellsHowFarItIsAndEndsAtOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 200 {
		w.put(fmt.Sprintf("f%d", i), "text\n")
	}
	w.c.Cache.now = func() time.Time { w.now = w.now.Add(time.Second / 4); return w.now }
	out := w.run("indexer_search_code", `{"pattern":"text"}`)
	n := 0
	for _, e := range out.Events {
		if e.Kind == tools.Info && strings.HasPrefix(e.Text, "indexing: ") && strings.Contains(e.Text, " of 200 files, 0 MB, ") {
			n++
		}
	}
	if n == 0 || n > 5 {
		t.Errorf("%d lines: %+v", n, out.Events)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	c := w.c
	c.Cache = NewCache()
	c.Target = cancelling{w.c.Target, cancel}
	reg, err := tools.NewRegistry(time.Now, New(c)...)
	if err != nil {
		t.Fatal(err)
	}
	p, err := reg.Plan(t.Context(), tools.Call{Name: "indexer_search_code", Args: []byte(`{"pattern":"text"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if out := toolstest.RunPlan(ctx, t, reg, p); !errors.Is(out.Err, context.Canceled) {
		t.Errorf("%v", out.Err)
	}
}

// cancelling is a target whose files cancel the call when the first one is read.
type cancelling struct {
	backend.Target
	cancel context.CancelCauseFunc
}

type cancellingFS struct {
	backend.FileSystem
	backend.Lister
	cancel context.CancelCauseFunc
}

func (c cancelling) FS() backend.FileSystem {
	fsys := c.Target.FS()
	return cancellingFS{fsys, fsys.(backend.Lister), c.cancel}
}

func (c cancelling) Start(context.Context, backend.Spec) (backend.Process, error) {
	return nil, errors.New("there is no tar")
}

func (c cancellingFS) ReadFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	c.cancel(nil)
	return c.FileSystem.ReadFile(ctx, name, limit)
}

func TestOldRootsLeaveTheCache(t *testing.T) {
	w := newWorld(t)
	for i := range maxRoots + 3 {
		w.put(fmt.Sprintf("r%d/f", i), "text\n")
		w.now = w.now.Add(time.Second)
		as[foundFiles](w, "indexer_search_files", fmt.Sprintf(`{"path":"r%d","pattern":"f"}`, i))
	}
	if n := len(w.c.Cache.roots); n != maxRoots {
		t.Errorf("%d roots are kept", n)
	}
	if _, ok := w.c.Cache.roots[key{"local", "tester", w.dir + "/r0"}]; ok {
		t.Error("the oldest is kept")
	}
}

func TestManyChangesDoNotPileUp(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		w.put(fmt.Sprintf("f%d", i), "text\n")
	}
	var last *snapshot
	for i := range 80 {
		w.put(fmt.Sprintf("f%d", i%60), fmt.Sprintf("round%d\n", i))
		w.later()
		if got := as[matches](w, "indexer_search_code", fmt.Sprintf(`{"pattern":"^round%d$"}`, i)); len(got.Matches) != 1 {
			t.Fatalf("round %d: %+v", i, got)
		}
		last = w.c.Cache.roots[key{"local", "tester", w.dir}].snap
		if len(last.segs) > 24 {
			t.Fatalf("%d segments", len(last.segs))
		}
	}
	if len(last.files) != 60 {
		t.Errorf("%d files", len(last.files))
	}
}
