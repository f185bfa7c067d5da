package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func repository(t *testing.T) ([]row, found) {
	t.Helper()
	list, err := parseRows(rowsFile)
	if err != nil {
		t.Fatal(err)
	}
	f, err := scan(root)
	if err != nil {
		t.Fatal(err)
	}
	return list, f
}

func TestTheDocumentIsUpToDate(t *testing.T) {
	list, f := repository(t)
	got, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(document)))
	if err != nil {
		t.Fatal(err)
	}
	if want := render(list, f.shows); string(got) != want {
		t.Errorf("%s is not what the rows and the tests say; run: go generate ./test/features", document)
	}
}

func TestEveryRowHasATest(t *testing.T) {
	list, f := repository(t)
	rows := map[string]bool{}
	for _, r := range list {
		rows[r.id] = true
		if r.open == "" && len(f.shows[r.id]) == 0 {
			t.Errorf("%s (%s) has neither a test nor an open state; write its id beside the test that shows it", r.id, r.what)
		}
	}
	for id, tests := range f.shows {
		if !rows[id] {
			t.Errorf("%s is no row, but %s names it", id, tests[0])
		}
	}
	for _, l := range f.loose {
		t.Errorf("%s is beside no test; write it into the comment of one", l)
	}
}

// The numbers of rows of the documents, so that none is lost from rows.tsv.
func TestAllRowsOfTheDocumentsAreThere(t *testing.T) {
	list, _ := repository(t)
	n := map[string]int{}
	last := ""
	for _, r := range list {
		n[r.id[:1]]++
		if last != "" && last[:1] == r.id[:1] && (len(last) > len(r.id) || len(last) == len(r.id) && last >= r.id) {
			t.Errorf("%s comes after %s", r.id, last)
		}
		last = r.id
	}
	for letter, want := range map[string]int{"B": 116, "N": 61, "Q": 50, "X": 36, "D": 5} {
		if n[letter] != want {
			t.Errorf("%s has %d rows, want %d", letter, n[letter], want)
		}
	}
}

func TestIDs(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
	}{
		"one":                             {"see B-04.", "B-04"},
		"three digits":                    {"B-104: panes", "B-104"},
		"several, each once":              {"B-64 B-80, N-01 and B-64", "B-64 B-80 N-01"},
		"a range in words":                {"N-13 to N-16 with", "N-13 N-14 N-15 N-16"},
		"a range with dots":               {"B-98..B-101", "B-98 B-99 B-100 B-101"},
		"a range across families is ends": {"B-98 to N-02", "B-98 N-02"},
		"a range backwards is its ends":   {"B-98 to B-02", "B-98 B-02"},
		"no range, two ids":               {"B-01 B-03", "B-01 B-03"},
		"a part of a word is none":        {"SHAB-12 X-1 B-52x N-1234 a-B-12 B-12-a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(idsInText(c.in), " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// tree writes files and returns their root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAnIDBelongsToTheTestThatUsesIt(t *testing.T) {
	f, err := scan(tree(t, map[string]string{
		"a/a_test.go": `package a

// N-01 to N-02.
func TestOne(t *testing.T) { check(t) }

func check(t *testing.T) { _ = table }

var table = []string{"X-05 a case"}

func TestTwo(t *testing.T) {
	_ = "X-06" // B-03
} // B-04

func BenchmarkB05(b *testing.B) { _ = "B-06" }

func TestMain(m *testing.M) { _ = "B-07" }

// B-08 stands alone.

type thing struct{}

func (thing) TestB09(t *testing.T) { _ = "B-10" }
`,
		"a/b_test.go":                    "package a\n\n// N-02\nfunc FuzzTwo(f *testing.F) { _ = table }\n",
		"a/a.go":                         "package a // B-11\n",
		"b/testdata/script/x.txtar":      "# B-12\n",
		"b/testdata/other.txtar":         "# B-13\n",
		".hidden/a_test.go":              "package a // B-14\n",
		"test/features/features_test.go": "package main // B-15\n",
		"test/e2e/z_test.go":             "package e2e\n\n// X-05\nfunc TestZ(t *testing.T) {}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for id, tests := range f.shows {
		var s []string
		for _, x := range tests {
			s = append(s, x.String())
		}
		got[id] = strings.Join(s, ", ")
	}
	want := map[string]string{
		"N-01": "`a/a_test.go` TestOne",
		"N-02": "`a/a_test.go` TestOne, `a/b_test.go` FuzzTwo",
		"X-05": "`test/e2e/z_test.go` TestZ, `a/a_test.go` TestOne, `a/b_test.go` FuzzTwo",
		"X-06": "`a/a_test.go` TestTwo", "B-03": "`a/a_test.go` TestTwo", "B-04": "`a/a_test.go` TestTwo",
		"B-12": "`b/testdata/script/x.txtar`",
	}
	for id := range want {
		if got[id] != want[id] {
			t.Errorf("%s is shown by %q, want %q", id, got[id], want[id])
		}
	}
	for id := range got {
		if want[id] == "" {
			t.Errorf("%s is shown by %q", id, got[id])
		}
	}
	loose := []string{"a/a_test.go: B-06", "a/a_test.go: B-07", "a/a_test.go: B-08", "a/a_test.go: B-10"}
	if !slices.Equal(f.loose, loose) {
		t.Errorf("loose ids %q, want %q", f.loose, loose)
	}
}

func TestRowsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"two cells":           {"B-01\tx\n", "2 cells"},
		"no id":               {"B1\tx\t\n", "is no id"},
		"two ids":             {"B-01 B-02\tx\t\n", "is no id"},
		"the same id twice":   {"# rows\n\nB-01\tx\t\nB-01\ty\t\n", "line 4: B-01 is there twice"},
		"nothing said":        {"B-01\t \t\n", "say what"},
		"a bar":               {"B-01\ta|b\t\n", "vertical bar"},
		"an unknown state":    {"B-01\tx\tdone\n", "leave it empty"},
		"a state without why": {"B-01\tx\topen: \n", "leave it empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseRows(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestTheDocument(t *testing.T) {
	list, err := parseRows("B-01\tone\t\nB-02\ttwo\topen: later\nN-01\tthree\t\nQ-01\tfour\topen: half\n")
	if err != nil {
		t.Fatal(err)
	}
	many := []test{{"a_test.go", "TestA"}, {"b_test.go", "TestB"}, {"c.txtar", ""}, {"d_test.go", "TestD"}}
	text := render(list, map[string][]test{"B-01": many, "N-01": many[:1], "Q-01": many[:1]})
	for _, want := range []string{
		"4 rows.\n2 have a test that carries the row's id; 2 are open",
		"## Buddy\n\n| row | what it is | tests |\n|---|---|---|\n" +
			"| B-01 | one | `a_test.go` TestA<br>`b_test.go` TestB<br>`c.txtar` |\n| B-02 | two | open: later |\n\n## nickcecere/agent\n",
		"| Q-01 | four | open: half<br>`a_test.go` TestA |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

func TestTheCommandPrintsOrWrites(t *testing.T) {
	dir := tree(t, map[string]string{document: "old", "a/a_test.go": "package a\n\n// B-01\nfunc TestOne(t *testing.T) {}\n"})
	var out, errs bytes.Buffer
	if err := run([]string{"-root", dir}, &out, &errs); err != nil || !strings.Contains(out.String(), "`a/a_test.go` TestOne") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := run([]string{"-root", dir, "-w"}, &bytes.Buffer{}, &errs); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(document)))
	if err != nil || string(raw) != out.String() {
		t.Errorf("%v: what is written is not what is printed", err)
	}
	if err := run([]string{"-wrong"}, &out, &errs); err == nil {
		t.Error("an unknown flag is taken")
	}
	if err := run([]string{"-root", filepath.Join(dir, "nowhere")}, &out, &errs); err == nil {
		t.Error("a root that is not there is taken")
	}
}
