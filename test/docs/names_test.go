package docs

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maintainers are the documents that name parts of the code.
var maintainers = []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "docs/adding-a-store-engine.md", "docs/adding-a-target.md", "docs/adding-a-tool.md", "docs/adding-an-adapter.md"}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	pathForm = regexp.MustCompile(`^\.?[a-z][\w.-]*(/[\w.*-]+)*/?$`)
	nameForm = regexp.MustCompile(`^(?:[a-zA-Z]\w*\.)?([A-Za-z]\w*)$`)
	testForm = regexp.MustCompile(`\bTest[A-Z]\w+`)
)

// What a maintainers' document names by a path, as a test, or as Type.Method and package.Name, exists.
func TestWhatMaintainersReadExists(t *testing.T) {
	declared := declaredNames(t)
	for _, doc := range maintainers {
		text, err := os.ReadFile(filepath.Join(root, doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range testForm.FindAllString(string(text), -1) {
			if !declared[name] && name != "TestJudge" { // a pattern of several
				t.Errorf("%s: no test is called %s", doc, name)
			}
		}
		for _, m := range codeSpan.FindAllStringSubmatch(string(text), -1) {
			if why := absent(m[1], declared); why != "" {
				t.Errorf("%s: `%s`: %s", doc, m[1], why)
			}
		}
	}
}

// absent says what a span of code names that isn't there.
func absent(span string, declared map[string]bool) string {
	if strings.Contains(span, "/") && pathForm.MatchString(span) {
		found, err := filepath.Glob(filepath.Join(root, span))
		first, _, _ := strings.Cut(span, "/")
		_, std := os.Stat(filepath.Join(build.Default.GOROOT, "src", span))
		if err == nil && len(found) == 0 && std != nil && !strings.HasSuffix(first, ".net") {
			return "there is no such file or folder"
		}
		return ""
	}
	if m := nameForm.FindStringSubmatch(span); m != nil && strings.Contains(span, ".") && ast.IsExported(m[1]) && !declared[m[1]] {
		return "nothing is called " + m[1]
	}
	return ""
}

// declaredNames are all names of functions, methods, types, fields, constants and variables.
func declaredNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names[n.Name.Name] = true
			case *ast.TypeSpec:
				names[n.Name.Name] = true
			case *ast.Field:
				for _, id := range n.Names {
					names[id.Name] = true
				}
			case *ast.ValueSpec:
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
