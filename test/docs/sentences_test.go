package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var writeSentences = flag.Bool("sentences", false, "write testdata/sentences.txt")

// notIdiomatic matches what no sentence for people says: words of a translation, and internals.
var notIdiomatic = regexp.MustCompile(`(?i)\b(mend|mended|anew|found out|taken up again|parked|the engine|withal|cannot|may not approve|digest|inode|request [a-z0-9]{10})\b`)

// maxWords is how many words a sentence may have.
const maxWords = 25

// TestSentences prints all sentences of the catalogues (the files sentences.go and
// sentences.js) into one
// file that a reviewer reads side by side, and holds them to what can be checked: they are
// short, and say no internals.
func TestSentences(t *testing.T) {
	root := filepath.Join("..", "..")
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "sentences.go" && d.Name() != "sentences.js" {
			return err
		}
		texts, err := textsOf(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "# %s\n\n", filepath.ToSlash(rel))
		for name, text := range texts {
			fmt.Fprintf(&b, "%s\n", text)
			for s := range strings.SplitSeq(strings.ReplaceAll(text, " / ", "\n"), "\n") {
				for _, one := range regexp.MustCompile(`[.!?:;|]\s`).Split(s, -1) {
					if n := len(strings.Fields(one)); n > maxWords {
						t.Errorf("%s %s: a sentence has %d words: %q", rel, name, n, one)
					}
				}
			}
			if m := notIdiomatic.FindString(text); m != "" {
				t.Errorf("%s %s says %q: %q", rel, name, m, text)
			}
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "sentences.txt")
	if *writeSentences {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != b.String() {
		t.Fatalf("the sentences differ from %s (run with -sentences after reading them): %v", path, err)
	}
}

// textsOf yields the texts of a catalogue with their names, in order.
func textsOf(path string) (iter.Seq2[string, string], error) {
	if filepath.Ext(path) == ".go" {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		return literals(f), err
	}
	raw, err := os.ReadFile(path)
	return func(yield func(name, text string) bool) {
		for _, m := range regexp.MustCompile("(?m)^  (\\w+): .*?['`](.*)['`],$").FindAllSubmatch(raw, -1) {
			if !yield(string(m[1]), string(m[2])) {
				return
			}
		}
	}, err
}

// literals yields the declarations of a catalogue with their texts, in order. What stands
// between the literals of one text is shown as "…".
func literals(f *ast.File) func(yield func(name, text string) bool) {
	return func(yield func(name, text string) bool) {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && len(v.Values) > 0 {
						if text := textOf(v.Values[0]); text != "" && !yield(v.Names[0].Name, text) {
							return
						}
					}
				}
			case *ast.FuncDecl:
				var all []string
				ast.Inspect(d.Body, func(n ast.Node) bool {
					if e, ok := n.(ast.Expr); ok {
						if text := textOf(e); strings.Contains(text, " ") {
							all = append(all, strings.TrimSpace(text))
							return false
						}
					}
					return true
				})
				if len(all) > 0 && !yield(d.Name.Name, strings.Join(all, " / ")) {
					return
				}
			}
		}
	}
}

// textOf joins the literals of an expression.
func textOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		x, y := textOf(e.X), textOf(e.Y)
		if x == "" && y == "" {
			return ""
		}
		if x == "" {
			x = "…"
		}
		if y == "" {
			y = "…"
		}
		return x + y
	}
	return ""
}
