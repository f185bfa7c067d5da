package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// test is one test function, fuzz target or example, or one script.
type test struct {
	file string // relative to the root, with slashes
	name string // of the function; empty for a script
}

func (t test) String() string {
	if t.name == "" {
		return "`" + t.file + "`"
	}
	return "`" + t.file + "` " + t.name
}

// found is what the tests of a repository say of rows.
type found struct {
	shows map[string][]test // by the ids of rows; the tests of a row in the order of the document
	// loose are places with an id that no test reaches, "file: id".
	loose []string
}

var (
	// textID is an id in text, or two ids with all between them: "N-13 to N-18", "B-100..B-116".
	textID  = regexp.MustCompile(`\b([BNQXD])-([0-9]{2,3})\b(?:(?:\.\.| to )([BNQXD])-([0-9]{2,3})\b)?`)
	isATest = regexp.MustCompile(`^(Test|Fuzz|Example)($|[^a-z])`)
)

// idsInText returns the ids in a text, each once, in their order. A part of a longer
// word (SHA-N-12, B-52x) is none.
func idsInText(text string) []string {
	var out []string
	for _, m := range textID.FindAllStringSubmatchIndex(text, -1) {
		if m[0] > 0 && text[m[0]-1] == '-' || m[1] < len(text) && text[m[1]] == '-' {
			continue
		}
		part := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return text[m[2*i]:m[2*i+1]]
		}
		out = appendRange(out, part(1), part(2), part(3), part(4))
	}
	return out
}

// appendRange adds the ids from letter-from to last-to, both included, that are not in
// ids yet. A range across families or backwards is its two ends.
func appendRange(ids []string, letter, from, last, to string) []string {
	add := func(letter string, n int) {
		if id := fmt.Sprintf("%s-%02d", letter, n); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	a, _ := strconv.Atoi(from) // digits, by the expression
	if last == "" {
		add(letter, a)
		return ids
	}
	b, _ := strconv.Atoi(to)
	if last != letter || b < a {
		add(letter, a)
		add(last, b)
		return ids
	}
	for n := a; n <= b; n++ {
		add(letter, n)
	}
	return ids
}

// declared is one declaration of a test file.
type declared struct {
	test       // name is empty for what is not a test
	names, ids []string
	uses       map[string]bool // identifiers in it
}

// scan reads the tests below root. Files in testdata are scripts; the tests of this
// package itself are about ids and show no row.
func scan(root string) (found, error) {
	f := found{shows: map[string][]test{}}
	packages := map[string][]declared{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || rel == "test/features") {
				return fs.SkipDir
			}
			return nil
		}
		script := strings.HasSuffix(rel, ".txtar") && strings.Contains(rel, "testdata/script/")
		code := strings.HasSuffix(rel, "_test.go") && !strings.Contains(rel, "testdata/")
		if !script && !code {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if script {
			for _, id := range idsInText(string(src)) {
				f.shows[id] = append(f.shows[id], test{file: rel})
			}
			return nil
		}
		dir := rel[:strings.LastIndexByte("/"+rel, '/')]
		ds, loose, err := declarations(rel, src)
		packages[dir] = append(packages[dir], ds...)
		f.loose = append(f.loose, loose...)
		return err
	})
	if err != nil {
		return found{}, err
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		f.attribute(packages[dir])
	}
	for id, ts := range f.shows {
		slices.SortFunc(ts, compare)
		f.shows[id] = slices.Compact(ts)
	}
	slices.Sort(f.loose)
	return f, nil
}

// compare orders the tests of a row: those of the built program first, then by place and name.
func compare(a, b test) int {
	rank := func(t test) int {
		switch {
		case strings.HasPrefix(t.file, "test/e2e/") || strings.HasPrefix(t.file, "cmd/"):
			return 0
		}
		return 1
	}
	return cmp.Or(rank(a)-rank(b), cmp.Compare(a.file, b.file), cmp.Compare(a.name, b.name))
}

// declarations reads one file of tests. loose are ids in comments that belong to no
// declaration.
func declarations(rel string, src []byte) (out []declared, loose []string, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, rel, src, parser.ParseComments)
	if err != nil {
		return nil, nil, err
	}
	rest := bytes.Clone(src)
	for _, decl := range file.Decls {
		d := declared{test: test{file: rel}, uses: map[string]bool{}}
		from, to := decl.Pos(), decl.End()
		switch x := decl.(type) {
		case *ast.FuncDecl:
			d.names = []string{x.Name.Name}
			if x.Recv == nil && isATest.MatchString(x.Name.Name) && x.Name.Name != "TestMain" {
				d.name = x.Name.Name
			}
			if x.Doc != nil {
				from = x.Doc.Pos()
			}
		case *ast.GenDecl:
			if x.Tok == token.IMPORT {
				continue
			}
			if x.Doc != nil {
				from = x.Doc.Pos()
			}
			for _, s := range x.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						d.names = append(d.names, n.Name)
					}
				case *ast.TypeSpec:
					d.names = append(d.names, s.Name.Name)
				}
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				d.uses[id.Name] = true
			}
			return true
		})
		a, b := fset.Position(from).Offset, fset.Position(to).Offset
		// A comment behind the end, on the same line, belongs to it.
		if nl := bytes.IndexByte(src[b:], '\n'); nl >= 0 {
			b += nl
		}
		d.ids = idsInText(string(src[a:b]))
		for i := a; i < b; i++ {
			rest[i] = ' '
		}
		out = append(out, d)
	}
	for _, id := range idsInText(string(rest)) {
		loose = append(loose, rel+": "+id)
	}
	return out, loose, nil
}

// attribute gives the ids of one package to its tests. An id in something that is no
// test (a table, a helper that checks) belongs to the tests that use it, directly or
// not; identifiers are compared by their names alone.
func (f *found) attribute(ds []declared) {
	byName := map[string][]int{}
	for i, d := range ds {
		for _, n := range d.names {
			byName[n] = append(byName[n], i)
		}
	}
	reached := make([]bool, len(ds))
	for i, d := range ds {
		if d.name == "" {
			continue
		}
		seen := map[int]bool{i: true}
		for todo := []int{i}; len(todo) > 0; todo = todo[1:] {
			now := ds[todo[0]]
			reached[todo[0]] = true
			for _, id := range now.ids {
				f.shows[id] = append(f.shows[id], d.test)
			}
			for use := range now.uses {
				for _, j := range byName[use] {
					if !seen[j] && ds[j].name == "" {
						seen[j] = true
						todo = append(todo, j)
					}
				}
			}
		}
	}
	for i, d := range ds {
		for _, id := range d.ids {
			if !reached[i] {
				f.loose = append(f.loose, d.file+": "+id)
			}
		}
	}
}
