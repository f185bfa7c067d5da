package manual

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"countersign/cli/words"
)

// Root is where the documents are served.
const Root = "/docs"

// Style is where their style is.
const Style = Root + "/style.css"

//go:embed style.css
var style string

// maxWords bounds what is searched for, in bytes.
const maxWords = 200

// Handler serves the documents below [Root]: the tree and a search, and each page. They hold no
// secrets and are for everybody who reaches the console. version is the program's.
func (m *Manual) Handler(version string) http.Handler {
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID(),
		parser.WithASTTransformers(util.Prioritized(links{m}, 100)),
	))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set(words.VersionHeader, version)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "use GET", http.StatusMethodNotAllowed)
			return
		}
		name := strings.Trim(strings.TrimPrefix(r.URL.Path, Root), "/")
		if r.URL.Path == Style {
			h.Set("Content-Type", "text/css; charset=utf-8")
			_, _ = w.Write([]byte(style))
			return
		}
		if r.URL.Path == Root+"/"+apiFile {
			h.Set("Content-Type", "application/yaml")
			_, _ = w.Write(m.api)
			return
		}
		asked := r.URL.Query().Get("q")
		if len(asked) > maxWords {
			asked = asked[:maxWords]
		}
		var body string
		title, status := "Documents", http.StatusOK
		switch page, ok := m.Page(name); {
		case name == "" && strings.TrimSpace(asked) != "":
			title, body = "Search", m.results(asked)
		case name == "":
			body = m.tree()
		case ok:
			var b bytes.Buffer
			pc := parser.NewContext(parser.WithIDs(&ids{seen: map[string]bool{}}))
			pc.Set(fromKey, placeOf(page.Name))
			if err := md.Convert([]byte(page.Text), &b, parser.WithContext(pc)); err != nil {
				http.Error(w, "this page can't be shown", http.StatusInternalServerError)
				return
			}
			title, body = page.Title, contents(page)+b.String()+m.next(page)
		default:
			status = http.StatusNotFound
			title, body = "There is no such page", m.tree()
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>%[1]s · Countersign</title><link rel="stylesheet" href="%[2]s">
<header><a href="%[3]s">Countersign %[4]s</a> <a class="console" href="/">Console</a>
<form role="search" action="%[3]s"><input type="search" name="q" aria-label="Search the documents" placeholder="Search" maxlength="%[5]d" value="%[6]s"><button>Search</button></form></header>
<main><h1>%[1]s</h1>
%[7]s</main></html>
`, html.EscapeString(title), Style, Root, html.EscapeString(version), maxWords, html.EscapeString(asked), body)
	})
}

// tree is the index of all pages.
func (m *Manual) tree() string {
	var b strings.Builder
	for _, part := range m.Parts {
		fmt.Fprintf(&b, "<section><h2>%s</h2><p>%s</p><ul>", html.EscapeString(part.Title), html.EscapeString(part.About))
		for _, topic := range part.Topics {
			fmt.Fprintf(&b, `<li><a href="%s">%s</a>`, address(topic[0].Name, ""), html.EscapeString(topic[0].Title))
			var of []string
			for _, p := range topic[1:] {
				of = append(of, fmt.Sprintf(`<a href="%s">%s</a>`, address(p.Name, ""), html.EscapeString(p.Title)))
			}
			if len(of) > 0 {
				b.WriteString(`<p class="of">` + strings.Join(of, " · ") + "</p>")
			}
			b.WriteString("</li>")
		}
		b.WriteString("</ul></section>\n")
	}
	return b.String()
}

// contents are the headings of a page.
func contents(p *Page) string {
	var of []string
	for _, s := range p.Sections {
		if s.Title != "" {
			of = append(of, fmt.Sprintf(`<a href="#%s">%s</a>`, html.EscapeString(s.Anchor), html.EscapeString(s.Title)))
		}
	}
	if len(of) < 2 {
		return ""
	}
	return `<nav class="of" aria-label="This page">` + strings.Join(of, " · ") + "</nav>\n"
}

// next leads to the page after this one.
func (m *Manual) next(p *Page) string {
	var all []*Page
	for _, part := range m.Parts {
		all = append(all, part.Pages()...)
	}
	i := slices.Index(all, p) + 1
	if i >= len(all) {
		return ""
	}
	return fmt.Sprintf(`<p class="next">Next: <a href="%s">%s</a></p>`, address(all[i].Name, ""), html.EscapeString(all[i].Title))
}

// results are what a search finds.
func (m *Manual) results(asked string) string {
	hits := m.Search(asked, 12)
	if len(hits) == 0 {
		return "<p>No results. Try other words or browse below.</p>" + m.tree()
	}
	var b strings.Builder
	b.WriteString("<ol>")
	for _, h := range hits {
		fmt.Fprintf(&b, `<li><a href="%s">%s</a><p class="of">%s</p></li>`, address(h.Page.Name, h.Anchor), html.EscapeString(h.Name()), html.EscapeString(h.Excerpt))
	}
	return b.String() + "</ol>"
}

func address(name, anchor string) string {
	to := Root + "/" + url.PathEscape(name)
	if anchor != "" {
		to += "#" + url.PathEscape(anchor)
	}
	return html.EscapeString(to)
}

// fromKey has where the page stands that is transformed.
var fromKey = parser.NewContextKey()

// links leads the documents' links to each other to where they are served. Those to other files
// of the source become text.
type links struct{ m *Manual }

// Transform implements parser.ASTTransformer.
func (l links) Transform(doc *ast.Document, _ text.Reader, pc parser.Context) {
	var elsewhere []*ast.Link
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it returns what this returns: nothing
		link, ok := n.(*ast.Link)
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		to := string(link.Destination)
		name, anchor, _ := strings.Cut(to, "#")
		base := nameOf(pc.Get(fromKey).(string), name)
		switch _, there := l.m.Page(base); {
		case strings.HasPrefix(to, "https://"), strings.HasPrefix(to, "http://"), name == "", name == Root+"/"+apiFile:
		case there:
			link.Destination = []byte(Root + "/" + base)
			if anchor != "" {
				link.Destination = append(link.Destination, "#"+anchor...)
			}
		default:
			elsewhere = append(elsewhere, link)
		}
		return ast.WalkContinue, nil
	})
	for _, link := range elsewhere {
		for c := link.FirstChild(); c != nil; {
			next := c.NextSibling()
			link.Parent().InsertBefore(link.Parent(), link, c)
			c = next
		}
		link.Parent().RemoveChild(link.Parent(), link)
	}
}

// ids are the anchors of headings, as GitHub writes them.
type ids struct{ seen map[string]bool }

// Generate implements parser.IDs.
func (s *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	id := anchor(string(value))
	for n := 1; s.seen[id]; n++ {
		id = fmt.Sprintf("%s-%d", anchor(string(value)), n)
	}
	s.seen[id] = true
	return []byte(id)
}

// Put implements parser.IDs.
func (s *ids) Put(value []byte) { s.seen[string(value)] = true }
