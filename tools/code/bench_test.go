package code

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"countersign/targets/local"
	"countersign/tools"
	"countersign/tools/toolstest"
)

const benchFiles = 50_000

// tree makes a checkout of 50,000 files: a mix of languages, 6 KB each on average, with
// sizes from some hundred bytes to 100 KB, and words of a vocabulary of 20,000.
func tree(b *testing.B) string {
	b.Helper()
	dir := os.Getenv("CODE_BENCH_TREE") // to keep it between two runs
	if dir == "" {
		dir = b.TempDir()
	} else if _, err := os.Stat(dir + "/done"); err == nil {
		return dir
	}
	r := rand.New(rand.NewPCG(7, 7))
	const letters = "etaoinsrhdlucmfywgpbvkxqjz"
	vocabulary := make([]string, 20_000)
	for i := range vocabulary {
		w := make([]byte, 3+r.IntN(8))
		for k := range w {
			w[k] = letters[min(r.IntN(26), r.IntN(26))]
		}
		vocabulary[i] = string(w)
	}
	word := func() string { return vocabulary[min(r.IntN(20_000), r.IntN(20_000), r.IntN(20_000))] }
	write := map[string]func(*strings.Builder){
		"go": func(t *strings.Builder) {
			fmt.Fprintf(t, "// %s %s %s.\nfunc %s%s(%s int, %s string) error {\n\tif %s > %d {\n\t\treturn %s(%s, %q)\n\t}\n\tfor i := range %s {\n\t\t%s.%s(i)\n\t}\n\treturn nil\n}\n\n",
				word(), word(), word(), strings.ToUpper(word()[:1]), word(), word(), word(), word(), r.IntN(999), word(), word(), word()+" "+word(), word(), word(), word())
		},
		"py": func(t *strings.Builder) {
			fmt.Fprintf(t, "def %s_%s(%s, %s=None):\n    # %s %s %s\n    if %s:\n        return %s(%s, '%s %s')\n    for x in %s:\n        %s.%s(x)\n\n\n",
				word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word())
		},
		"ts": func(t *strings.Builder) {
			fmt.Fprintf(t, "export function %s%s(%s: string, %s?: number): void {\n  if (%s) { %s.%s('%s %s'); }\n  const %s = %s.map((x) => x.%s);\n}\n\n",
				word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word(), word())
		},
		"java": func(t *strings.Builder) {
			fmt.Fprintf(t, "class %s%s {\n    private int %s = %d;\n    public void %s(String %s) {\n        if (%s != null) { %s.%s(\"%s %s\"); }\n    }\n}\n\n",
				word(), word(), word(), r.IntN(999), word(), word(), word(), word(), word(), word(), word())
		},
		"rs": func(t *strings.Builder) {
			fmt.Fprintf(t, "/// %s %s\npub fn %s_%s(%s: &str) -> Option<u32> {\n    let %s = %s.%s()?;\n    match %s { 0 => None, n => Some(n + %d) }\n}\n\n",
				word(), word(), word(), word(), word(), word(), word(), word(), word(), r.IntN(999))
		},
		"md": func(t *strings.Builder) { fmt.Fprintf(t, "%s %s %s %s %s.\n", word(), word(), word(), word(), word()) },
		"json": func(t *strings.Builder) {
			fmt.Fprintf(t, "  {\"%s\": \"%s\", \"%s\": %d},\n", word(), word(), word(), r.IntN(9999))
		},
	}
	exts := []string{"go", "go", "go", "py", "py", "ts", "ts", "java", "rs", "md", "json"}
	for i := range benchFiles {
		ext := exts[r.IntN(len(exts))]
		var t strings.Builder
		if ext == "go" {
			fmt.Fprintf(&t, "package %s\n\n", word())
		}
		// Exponential, as sizes of sources are: many small, few large.
		size := min(300+int(r.ExpFloat64()*5700), 100_000)
		for t.Len() < size {
			write[ext](&t)
		}
		if i == 31_234 {
			t.WriteString("// the needle of the haystack\n")
		}
		name := fmt.Sprintf("%s/%02d/%02d/%s_%d.%s", dir, i%70, i/70%30, word(), i, ext)
		if i < 70*30 {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				b.Fatal(err)
			}
		}
		if err := os.WriteFile(name, []byte(t.String()), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/done", nil, 0o600); err != nil {
		b.Fatal(err)
	}
	return dir
}

type bench struct {
	b   *testing.B
	c   Config
	reg *tools.Registry
}

func newBench(b *testing.B, dir string) *bench {
	b.Helper()
	x := &bench{b: b, c: Config{Target: local.New(local.Options{Dir: dir}), Dir: dir, Cache: NewCache(), Worker: testWorker(b, workerMode)}}
	var err error
	if x.reg, err = tools.NewRegistry(time.Now, New(x.c)...); err != nil {
		b.Fatal(err)
	}
	return x
}

func (x *bench) run(tool, args string) any {
	x.b.Helper()
	out := toolstest.Run(x.b.Context(), x.b, x.reg, tool, args)
	if out.Err != nil {
		x.b.Fatal(out.Err)
	}
	return out.Result.Value
}

// BenchmarkFirstIndex50k is the first index, and after it all symbols of all files.
func BenchmarkFirstIndex50k(b *testing.B) {
	dir := tree(b)
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			x := newBench(b, dir)
			x.run("indexer_search_files", `{"pattern":"*.go","max_results":1}`)
			var after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&after)
			for _, r := range x.c.Cache.roots {
				b.ReportMetric(float64(r.snap.memory())/1e6, "index-MB")
				b.ReportMetric(float64(r.snap.text)/1e6, "text-MB")
			}
			b.ReportMetric(float64(after.HeapAlloc)/1e6, "heap-MB")
		}
	})
	b.Run("index and all symbols", func(b *testing.B) {
		for b.Loop() {
			x := newBench(b, dir)
			v, ok := x.run("indexer_extract_symbols", `{"kind":"macro"}`).(symbolsResult)
			if !ok || v.Parsed < 30_000 {
				b.Fatalf("%+v", v)
			}
			b.ReportMetric(float64(v.Parsed), "parsed-files")
			b.ReportMetric(float64(x.c.Cache.symbols.size)/1e6, "symbols-MB")
		}
	})
}

// BenchmarkQuery is one question to a warm index, which was listed a moment ago or has to
// be listed again.
func BenchmarkQuery(b *testing.B) {
	dir := tree(b)
	x := newBench(b, dir)
	x.run("indexer_extract_symbols", `{"kind":"macro"}`)
	now := time.Now() // of the cache; it only goes on
	x.c.Cache.now = func() time.Time { return now }
	for _, q := range []struct{ name, tool, args string }{
		{"one file", "indexer_search_code", `{"pattern":"needle of the haystack"}`},
		{"a name, any case", "indexer_search_code", `{"pattern":"func \\w+\\(neta int"}`},
		{"first 100 of many", "indexer_search_code", `{"pattern":"return nil"}`},
		{"no trigram, 100 of many", "indexer_search_code", `{"pattern":"\\d{3}"}`},
		{"no match, many candidates", "indexer_search_code", `{"pattern":"return.*needle.*nil"}`},
		{"no trigram, no match", "indexer_search_code", `{"pattern":"[0-9]{9}"}`},
		{"files", "indexer_search_files", `{"pattern":"**/*_31*.go"}`},
		{"symbols by name", "indexer_extract_symbols", `{"name":"tetao"}`},
		{"all symbols, none fits", "indexer_extract_symbols", `{"kind":"macro"}`},
		{"metrics", "indexer_get_metrics", `{}`},
	} {
		for _, stale := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/listed again %v", q.name, stale), func(b *testing.B) {
				x.run(q.tool, q.args)
				for b.Loop() {
					if stale {
						now = now.Add(time.Hour)
					}
					x.run(q.tool, q.args)
				}
			})
		}
	}
}

// BenchmarkContent compares the two ways to get at texts again.
func BenchmarkContent(b *testing.B) {
	dir := tree(b)
	x := newBench(b, dir)
	x.run("indexer_search_files", `{"pattern":"x"}`)
	var files []*file
	for _, r := range x.c.Cache.roots {
		files = r.snap.files
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if err := x.c.contents(b.Context(), dir, files, func(int, *file, []byte, error) {}, workers()); err != nil {
				b.Fatal(err)
			}
		}
	})
	kept := make([]*file, len(files))
	var size int64
	for i, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.path))
		if err != nil {
			b.Fatal(err)
		}
		c := *f
		c.compressed = deflate(text)
		size += int64(len(c.compressed))
		kept[i] = &c
	}
	b.Run("decompress", func(b *testing.B) {
		for b.Loop() {
			if err := x.c.contents(b.Context(), dir, kept, func(int, *file, []byte, error) {}, workers()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(size)/1e6, "kept-MB")
	})
	b.Run("decompress one", func(b *testing.B) {
		for b.Loop() {
			if _, err := io.Copy(io.Discard, flate.NewReader(bytes.NewReader(kept[0].compressed))); err != nil {
				b.Fatal(err)
			}
		}
	})
}
