package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// root is the repository, seen from this package.
const root = "../.."

// A fault is one sentence that begins with the place.
type fault string

func faultAt(doc string, line int, format string, a ...any) fault {
	return fault(fmt.Sprintf("%s:%d: ", doc, line) + fmt.Sprintf(format, a...))
}

func report(t *testing.T, faults []fault) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}

// document is what is checked of a Markdown file.
type document struct {
	path    string // from the root, with slashes
	blocks  []block
	links   []span // destinations
	code    []span // code within lines
	anchors map[string]bool
}

type span struct {
	line int
	text string
}

// block is one fenced block.
type block struct {
	doc     string
	line    int // of its first line of text
	lang    string
	marks   map[string]string
	text    string
	section int // how many headings come before it
}

func (b block) fault(format string, a ...any) fault { return faultAt(b.doc, b.line, format, a...) }

// Marks, each with its known values; nil takes any.
var marks = map[string]map[string]string{
	"needs": {
		"account":  "an account at Slack, Discord or a model's vendor",
		"root":     "root's rights on the reader's machine",
		"systemd":  "a machine with systemd",
		"cluster":  "a cluster of Kubernetes",
		"registry": "an engine for containers, and a registry of images",
		"host":     "another machine or a container of the reader's",
		"time":     "many minutes; CI runs it, or whoever measures",
	},
	"kind": {
		"policy-test":  "a table for bot policy test",
		"workflow":     "a runbook",
		"signer":       "the configuration of the signer",
		"alertmanager": "the configuration of Alertmanager",
		"grafana":      "a file for Grafana",
		"prometheus":   "the configuration or rules of Prometheus",
		"compose":      "a file for docker compose",
		"k8s":          "manifests of Kubernetes",
		"github":       "a workflow of GitHub Actions",
		"values":       "values of a chart",
		"ci":           "a pipeline of a CI system",
		"example":      "text that stands for itself",
	},
	"file": nil,
}

// languages that are checked, and those that only have to be named.
var languages = []string{"sh", "yaml", "json", "jsonl", "go", "python", "text", "dockerfile", "ini", "nginx", "diff", "mermaid"}

// assumed are marks of documents whose sh blocks carry none: a test of their own builds and
// runs the image.
var assumed = []struct{ prefix, needs string }{
	{"deploy/image/", "registry"},
}

// documents parses every document of the repository, sorted by path.
func documents(t testing.TB) ([]document, []fault) {
	t.Helper()
	var docs []document
	var faults []fault
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); rel != "." && (strings.HasPrefix(base, ".") || slices.Contains([]string{"testdata", "node_modules", "dist"}, base)) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		doc, f := parse(filepath.ToSlash(rel), src)
		docs, faults = append(docs, doc), append(faults, f...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return docs, faults
}

// parse reads a document. Its faults are marks and languages that are not known.
func parse(name string, src []byte) (document, []fault) {
	doc := document{path: name, anchors: map[string]bool{}}
	var faults []fault
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(src))
	lineOf := func(offset int) int { return 1 + strings.Count(string(src[:offset]), "\n") }
	section, at := 0, 1
	seen := map[string]int{}
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it has no errors of its own
		if !entering {
			return ast.WalkContinue, nil
		}
		if n.Type() == ast.TypeBlock && n.Lines() != nil && n.Lines().Len() > 0 {
			at = lineOf(n.Lines().At(0).Start)
		}
		switch n := n.(type) {
		case *ast.Heading:
			section++
			slug := anchor(plain(n, src))
			if k := seen[slug]; k > 0 {
				doc.anchors[fmt.Sprintf("%s-%d", slug, k)] = true
			} else {
				doc.anchors[slug] = true
			}
			seen[slug]++
		case *ast.FencedCodeBlock:
			b, f := fenced(n, src)
			b.doc, b.section, b.line = name, section, at
			if n.Lines().Len() == 0 && n.Info != nil {
				b.line = lineOf(n.Info.Segment.Start)
			}
			for _, sentence := range f {
				faults = append(faults, b.fault("%s", sentence))
			}
			doc.blocks = append(doc.blocks, b)
		case *ast.Link:
			doc.links = append(doc.links, span{at, string(n.Destination)})
		case *ast.Image:
			doc.links = append(doc.links, span{at, string(n.Destination)})
		case *ast.CodeSpan:
			doc.code = append(doc.code, span{at, plain(n, src)})
		case *ast.RawHTML:
			html(&doc, at, string(n.Segments.Value(src)))
		case *ast.HTMLBlock:
			html(&doc, at, string(n.Lines().Value(src)))
		}
		return ast.WalkContinue, nil
	})
	return doc, faults
}

var (
	htmlID   = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
	htmlLink = regexp.MustCompile(`\b(?:href|src)="([^"]+)"`)
)

func html(doc *document, line int, s string) {
	for _, m := range htmlID.FindAllStringSubmatch(s, -1) {
		doc.anchors[m[1]] = true
	}
	for _, m := range htmlLink.FindAllStringSubmatch(s, -1) {
		doc.links = append(doc.links, span{line, m[1]})
	}
}

// fenced reads a block's language, marks and text.
func fenced(n *ast.FencedCodeBlock, src []byte) (block, []string) {
	b := block{lang: "text", marks: map[string]string{}, text: string(n.Lines().Value(src))}
	var words []string
	if n.Info != nil {
		words = strings.Fields(string(n.Info.Segment.Value(src)))
	}
	if len(words) == 0 {
		return b, nil
	}
	b.lang, words = words[0], words[1:]
	var faults []string
	if !slices.Contains(languages, b.lang) {
		faults = append(faults, fmt.Sprintf("the language %q of this block is not known; use one of %s", b.lang, strings.Join(languages, ", ")))
	}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		known, ok := marks[key]
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("the mark %q of this block is not known; use needs=, kind= or file=", w))
		case known != nil && known[value] == "":
			faults = append(faults, fmt.Sprintf("%s has no value %q; use one of %s", key, value, strings.Join(sorted(known), ", ")))
		case known == nil && !filepath.IsLocal(value):
			faults = append(faults, fmt.Sprintf("file=%q leads out of the reader's directory; name a file in it", value))
		default:
			b.marks[key] = value
		}
	}
	return b, faults
}

func sorted(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// needs says what a sh block needs that a test does not have; "" is nothing.
func (b block) needs() string {
	if b.marks["needs"] == "" {
		for _, a := range assumed {
			if strings.HasPrefix(b.doc, a.prefix) {
				return a.needs
			}
		}
	}
	return b.marks["needs"]
}

// plain is the text that a node shows.
func plain(n ast.Node, src []byte) string {
	var s strings.Builder
	_ = ast.Walk(n, func(c ast.Node, entering bool) (ast.WalkStatus, error) { // it has no errors of its own
		switch c := c.(type) {
		case *ast.Text:
			if entering {
				s.Write(c.Segment.Value(src))
				if c.SoftLineBreak() {
					s.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				s.Write(c.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return s.String()
}

// anchor is the name that GitHub gives a heading: lower case, blanks as dashes,
// and nothing but letters, digits, dashes and underscores.
func anchor(heading string) string {
	var s strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case r == ' ' || r == '-':
			s.WriteByte('-')
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r):
			s.WriteRune(r)
		}
	}
	return s.String()
}

func TestParse(t *testing.T) {
	src := "# A, b & `c`\n\n## A, b & `c`\n\n- one\n  ```sh needs=root file=a/b\n  echo hi\n  ```\n\nSee [x](y.md#z) and `bot run`.\n\n```\nout\n```\n"
	doc, faults := parse("d/x.md", []byte(src))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if !doc.anchors["a-b--c"] || !doc.anchors["a-b--c-1"] {
		t.Errorf("anchors: %v", doc.anchors)
	}
	if len(doc.blocks) != 2 || doc.blocks[0].text != "echo hi\n" || doc.blocks[0].needs() != "root" || doc.blocks[0].marks["file"] != "a/b" || doc.blocks[0].line != 7 {
		t.Errorf("blocks: %+v", doc.blocks)
	}
	if doc.blocks[1].lang != "text" || doc.blocks[1].section != 2 {
		t.Errorf("blocks: %+v", doc.blocks[1])
	}
	if len(doc.links) != 1 || doc.links[0].text != "y.md#z" || doc.links[0].line != 10 {
		t.Errorf("links: %+v", doc.links)
	}
	if len(doc.code) != 3 || doc.code[2].text != "bot run" {
		t.Errorf("code: %+v", doc.code)
	}
}

func TestMarksThatAreNotKnownAreFaults(t *testing.T) {
	for _, info := range []string{"bash", "console", "sh needs=money", "sh wants=root", "sh needs", "yaml kind=workflows", "yaml file=../x", "yaml file=/etc/x", "yaml file="} {
		if _, faults := parse("x.md", []byte("```"+info+"\nx\n```\n")); len(faults) != 1 {
			t.Errorf("%q: %v, want one fault", info, faults)
		}
	}
}

// linkFaults checks one relative link; links to other places are not followed.
func linkFaults(docs map[string]document, d document, l span) []fault {
	if strings.Contains(l.text, "://") || strings.HasPrefix(l.text, "mailto:") {
		return nil
	}
	dest, fragment, _ := strings.Cut(l.text, "#")
	if strings.HasPrefix(dest, "/") {
		return []fault{faultAt(d.path, l.line, "the link %s begins at nobody's root; write it relative to the document", l.text)}
	}
	to := d.path
	if dest != "" {
		to = path.Join(path.Dir(d.path), dest)
		if !filepath.IsLocal(to) {
			return []fault{faultAt(d.path, l.line, "the link %s leads out of the repository", l.text)}
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(to))); err != nil {
			return []fault{faultAt(d.path, l.line, "the link %s leads to nothing: there is no %s", l.text, to)}
		}
	}
	if target, ok := docs[to]; fragment != "" && ok && !target.anchors[fragment] {
		return []fault{faultAt(d.path, l.line, "the link %s leads to no heading of %s", l.text, to)}
	}
	return nil
}

func TestLinks(t *testing.T) {
	list, faults := documents(t)
	report(t, faults)
	docs, links := map[string]document{}, 0
	for _, d := range list {
		docs[d.path] = d
	}
	for _, d := range list {
		for _, l := range d.links {
			links++
			report(t, linkFaults(docs, d, l))
		}
	}
	t.Logf("%d links in %d documents", links, len(list))
}

func TestEveryDocumentIsReachedFromTheREADME(t *testing.T) {
	list, _ := documents(t)
	docs := map[string]document{}
	for _, d := range list {
		docs[d.path] = d
	}
	reached := map[string]bool{}
	for todo := []string{"README.md"}; len(todo) > 0; todo = todo[1:] {
		if reached[todo[0]] {
			continue
		}
		reached[todo[0]] = true
		for _, l := range docs[todo[0]].links {
			dest, _, _ := strings.Cut(l.text, "#")
			to := path.Join(path.Dir(todo[0]), dest)
			if _, ok := docs[to]; !ok {
				to = path.Join(to, "README.md") // a link to a directory shows its page
			}
			if _, ok := docs[to]; ok && dest != "" {
				todo = append(todo, to)
			}
		}
	}
	for name := range docs {
		if strings.HasPrefix(name, "docs/") && !reached[name] {
			t.Errorf("%s cannot be reached from README.md; link it from there or from a page that is", name)
		}
	}
}

func TestWrongLinksAreFaults(t *testing.T) {
	d, _ := parse("docs/x.md", []byte("# Here\n"))
	docs := map[string]document{"docs/x.md": d}
	for link, want := range map[string]int{
		"#here": 0, "#there": 1, "policy.md": 0, "../README.md": 0, "../deploy": 0, "nowhere.md": 1, "../../x": 1, "/etc": 1, "https://example.com/x": 0, "x.md#there": 1,
	} {
		if got := linkFaults(docs, d, span{1, link}); len(got) != want {
			t.Errorf("%s: %v, want %d faults", link, got, want)
		}
	}
}
