package code

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"countersign/test/needstest"
	"countersign/tools/code/wire"
)

func TestOnlyTheFileThatCrashesTheParserIsLost(t *testing.T) {
	needGrammars(t)
	w := newWorld(t, func(c *Config) { c.Worker = testWorker(t, crashingMode) })
	for i := range 30 {
		text := "fine"
		if i%10 == 3 {
			text = "BOOM"
		}
		w.put(fmt.Sprintf("f%02d.go", i), text)
	}
	got := as[symbolsResult](w, "indexer_extract_symbols", `{}`)
	if len(got.Symbols) != 27 || got.Parsed != 27 || len(got.NotParsed) != 3 || got.NotParsed[0] != "f03.go: the parser failed over it" {
		t.Errorf("%+v", got)
	}
	if out := w.run("indexer_analyze_file", `{"path":"f03.go"}`); out.Err == nil || !strings.Contains(out.Text, "f03.go was not parsed") {
		t.Error(out.Text)
	}
}

func TestAParserIsNotBelieved(t *testing.T) {
	needGrammars(t)
	w := newWorld(t, func(c *Config) { c.Worker = testWorker(t, crashingMode) })
	w.put("a.go", "LIE\n\n")
	got := as[fileAnalysis](w, "indexer_analyze_file", `{"path":"a.go"}`)
	if s := got.Symbols[0]; s.Name != "a\uFFFD[31m b" || s.Line != 1 || s.End != 3 || s.Complexity != 0 {
		t.Errorf("%+v", s)
	}
	w = newWorld(t, func(c *Config) { c.Worker = testWorker(t, lyingMode) })
	w.put("a.go", "package a\n")
	if out := w.run("indexer_analyze_file", `{"path":"a.go"}`); out.Err == nil || !strings.Contains(out.Text, "the parser cannot be started") {
		t.Error(out.Text)
	}
}

// hostile are texts that are made to hurt.
func hostile() map[string]string {
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, wire.MaxText-1)
	for i := range noise {
		noise[i] = byte(1 + r.IntN(255))
	}
	return map[string]string{
		"brackets":      strings.Repeat("(", wire.MaxText-1),
		"braces":        strings.Repeat("{[(", wire.MaxText/3-1),
		"closing":       strings.Repeat(")}]", wire.MaxText/3-1),
		"nested ifs":    "package a\nfunc f() {" + strings.Repeat("if x {", 100_000) + strings.Repeat("}", 100_000) + "}",
		"nested calls":  "x = " + strings.Repeat("f(", 200_000) + strings.Repeat(")", 200_000),
		"operators":     "x = 1" + strings.Repeat("+1", 400_000),
		"not utf-8":     string(noise),
		"one long line": strings.Repeat("a ", wire.MaxText/2-1),
		"quotes":        strings.Repeat("\"'`", wire.MaxText/3-1),
		"many symbols":  "package a\n" + strings.Repeat("func f() {}\n", 60_000),
		"heredocs":      strings.Repeat("cat <<A\n", 50_000),
		"templates":     strings.Repeat("<T", 200_000),
		"empty":         "",
	}
}

func TestHostileFilesKillNothing(t *testing.T) {
	needstest.Long(t)
	needGrammars(t)
	w := newWorld(t)
	exts := []string{"go", "sh", "tsx", "rs", "py", "java", "js", "ts"}
	texts := hostile()
	n := len(texts)
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		w.put(name+"."+exts[i%len(exts)], texts[name])
	}
	w.put("zz.go", "package a\nfunc Survivor() {}\n")
	got := as[symbolsResult](w, "indexer_extract_symbols", `{"name":"Survivor"}`)
	if len(got.Symbols) != 1 {
		t.Errorf("%+v", got)
	}
	all := as[symbolsResult](w, "indexer_extract_symbols", `{"kind":"macro","max_results":1000}`)
	t.Logf("%d of %d files were parsed: %q", all.Parsed, n+1, all.NotParsed)
	b, err := json.Marshal(all)
	if err != nil || !utf8.Valid(b) {
		t.Error("the result is no valid text")
	}
	if got := as[matches](w, "indexer_search_code", `{"pattern":"Survivor"}`); len(got.Matches) != 1 {
		t.Errorf("%+v", got)
	}
}

// FuzzPacking: what a parser may answer is what comes out of its row again.
func FuzzPacking(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x3e" + `{"symbols":[{"kind":"x","name":"\u0000","line":-1,"end":1e3}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := wire.ReadAnswer(bytes.NewReader(in), 10)
		if err != nil {
			return
		}
		u := unpacker{pack(p)}
		unpackStatus(&u)
		for range p.Symbols {
			u.text()
			u.text()
			u.text()
			u.text()
			u.number()
			u.number()
			u.number()
		}
		if len(u.b) != 0 {
			t.Fatal("packing loses something")
		}
	})
}

func TestAPoolEndsWithItsCall(t *testing.T) {
	needGrammars(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := newPool(testWorker(t, workerMode), 1)
	if _, err := p.parse(ctx, wire.Request{Language: "Go"}, []byte("package a\n")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.parse(ctx, wire.Request{Language: "Go"}, []byte("package a\n")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.close()
}
