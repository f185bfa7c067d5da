package web

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Limits on a page: what is deeper, wider or larger is shown as plain text.
const (
	maxDeep   = 100    // nested elements: each level copies its content
	maxNested = 8      // nested lists and quotes: each indents every line
	maxCells  = 20_000 // cells of a table, counting the widest row for all
)

// markdown converts a page to Markdown. Links are made absolute relative to at, the page's URL. It
// never fails: invalid HTML becomes plain text.
func markdown(src string, at *url.URL) string {
	doc, err := html.Parse(strings.NewReader(src))
	if err != nil { // nested deeper than the parser allows
		return plain(src)
	}
	out, err := render(doc, at)
	if err != nil {
		return plain(src)
	}
	return sanitize(out)
}

func render(doc *html.Node, at *url.URL) (text string, err error) {
	defer func() {
		if r := recover(); r != nil { // third-party code on foreign input
			err = fmt.Errorf("the page cannot be converted: %v", r)
		}
	}()
	p := prepare(doc, at)
	// Without escapes: the reader is not a Markdown parser, and finding out what to escape takes
	// quadratic time on a page of brackets.
	conv := converter.NewConverter(converter.WithEscapeMode(converter.EscapeModeDisabled), converter.WithPlugins(
		base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(commonmark.WithListEndComment(false)),
		table.NewTablePlugin(table.WithCellPaddingBehavior(table.CellPaddingBehaviorMinimal),
			table.WithNewlineBehavior(table.NewlineBehaviorPreserve), table.WithHeaderPromotion(true)),
	))
	conv.Register.RendererFor("img", converter.TagTypeInline, image, converter.PriorityEarly)
	b, err := conv.ConvertNode(doc)
	if err != nil {
		return "", err
	}
	text = string(b)
	if p.title != "" && !p.heading {
		text = "# " + p.title + "\n\n" + text
	}
	return strings.TrimSpace(text) + "\n", nil
}

// image shows an image as its alternative text.
func image(_ converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	alt, given := attr(n, "alt")
	alt = line(alt, 500)
	switch {
	case alt != "":
		_, _ = w.WriteString("[Image: " + alt + "]")
	case !given:
		_, _ = w.WriteString("[Image]")
	} // an empty text means that the image is decorative
	return converter.RenderSuccess
}

// preparedPage is what was learned while a page was prepared.
type preparedPage struct {
	base    *url.URL
	title   string
	heading bool
}

// prepare removes what readers don't see (scripts, navigation, hidden elements), makes links
// absolute, and flattens what would be too large.
func prepare(doc *html.Node, at *url.URL) *preparedPage {
	p := &preparedPage{base: at}
	// The base and the title are in the head, before all links.
	p.walk(doc, 0, 0)
	return p
}

func (p *preparedPage) walk(n *html.Node, depth, nested int) {
	if depth == maxDeep {
		var b strings.Builder
		p.writeText(n, &b)
		for n.FirstChild != nil {
			n.RemoveChild(n.FirstChild)
		}
		n.AppendChild(&html.Node{Type: html.TextNode, Data: b.String()})
		return
	}
	for c := n.FirstChild; c != nil; {
		next := c.NextSibling
		if c.Type == html.ElementNode {
			if p.isHidden(c) {
				n.RemoveChild(c)
				c = next
				continue
			}
			p.element(c, nested)
		}
		deeper := nested
		switch c.DataAtom {
		case atom.Ul, atom.Ol, atom.Blockquote:
			deeper++
		default:
		}
		p.walk(c, depth+1, deeper)
		c = next
	}
}

// writeText writes the text inside n, without hidden elements.
func (p *preparedPage) writeText(n *html.Node, b *strings.Builder) {
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		switch {
		case c.Type == html.TextNode:
			b.WriteString(c.Data + " ")
		case c.Type == html.ElementNode && !p.isHidden(c):
			p.writeText(c, b)
		}
	}
}

func (p *preparedPage) isHidden(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Iframe, atom.Object, atom.Embed, atom.Nav, atom.Svg,
		atom.Button, atom.Select, atom.Textarea, atom.Input, atom.Dialog, atom.Canvas, atom.Audio, atom.Video:
		return true
	default:
	}
	if _, ok := attr(n, "hidden"); ok && n.DataAtom != atom.Html && n.DataAtom != atom.Body {
		return true
	}
	style, _ := attr(n, "style")
	style = strings.ToLower(strings.Join(strings.Fields(style), ""))
	return strings.Contains(style, "display:none") || strings.Contains(style, "visibility:hidden")
}

func (p *preparedPage) element(n *html.Node, nested int) {
	switch n.DataAtom {
	case atom.Title:
		if p.title == "" {
			p.title = line(textOf(n), 200)
		}
	case atom.H1:
		p.heading = true
	case atom.Base:
		if href, ok := attr(n, "href"); ok {
			if u, err := p.base.Parse(strings.TrimSpace(href)); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
				p.base = u
			}
		}
	case atom.A:
		p.link(n)
	case atom.Ul, atom.Ol, atom.Blockquote:
		if nested >= maxNested {
			setTag(n, atom.Div)
		}
	case atom.Table:
		if isInside(n, atom.Table) {
			flatten(n)
		} else if rows, cols := size(n); rows*cols > maxCells {
			flatten(n)
		}
	case atom.Td, atom.Th:
		for i := range n.Attr { // a span counts as many cells
			if k := n.Attr[i].Key; (k == "colspan" || k == "rowspan") && len(n.Attr[i].Val) > 1 {
				n.Attr[i].Val = "1"
			}
		}
	default:
	}
}

// link makes a link absolute; one that a reader cannot follow loses its address.
func (p *preparedPage) link(n *html.Node) {
	for i := range n.Attr {
		if n.Attr[i].Key != "href" {
			continue
		}
		u, err := p.base.Parse(strings.TrimSpace(n.Attr[i].Val))
		if err != nil || len(n.Attr[i].Val) > maxURL || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto") {
			setTag(n, atom.Span)
			n.Attr = nil
			return
		}
		u.User = nil
		n.Attr[i].Val = sanitize(u.String())
	}
}

func setTag(n *html.Node, a atom.Atom) { n.DataAtom, n.Data = a, a.String() }

// flatten converts a table and its content to a sequence of blocks.
func flatten(n *html.Node) {
	setTag(n, atom.Div)
	for c := range n.Descendants() {
		switch c.DataAtom {
		case atom.Table, atom.Tr, atom.Thead, atom.Tbody, atom.Tfoot, atom.Caption, atom.Td, atom.Th, atom.Colgroup, atom.Col:
			setTag(c, atom.Div)
		default:
		}
	}
}

// size returns a table's rows and the cells of its widest row, including nested tables.
func size(n *html.Node) (rows, cols int) {
	for c := range n.Descendants() {
		if c.DataAtom != atom.Tr {
			continue
		}
		rows++
		cells := 0
		for d := c.FirstChild; d != nil; d = d.NextSibling {
			if d.DataAtom == atom.Td || d.DataAtom == atom.Th {
				cells++
				for _, a := range d.Attr {
					if a.Key == "colspan" {
						cells += 8 // at most 9 remain
					}
				}
			}
		}
		cols = max(cols, cells)
	}
	return rows, cols
}

func isInside(n *html.Node, a atom.Atom) bool {
	for p := n.Parent; p != nil; p = p.Parent {
		if p.DataAtom == a {
			return true
		}
	}
	return false
}

func attr(n *html.Node, key string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == key && a.Namespace == "" {
			return a.Val, true
		}
	}
	return "", false
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

// plain returns the text of a page without its markup.
func plain(src string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(src))
	skip := ""
	for {
		switch z.Next() {
		case html.ErrorToken:
			return sanitize(strings.TrimSpace(b.String())) + "\n"
		case html.StartTagToken:
			name, _ := z.TagName()
			if s := string(name); skip == "" && (s == "script" || s == "style" || s == "noscript" || s == "template") {
				skip = s
			}
		case html.EndTagToken:
			if name, _ := z.TagName(); string(name) == skip {
				skip = ""
			}
			b.WriteByte('\n')
		case html.TextToken:
			if t := strings.TrimSpace(string(z.Text())); skip == "" && t != "" {
				b.WriteString(t + " ")
			}
		default:
		}
	}
}
