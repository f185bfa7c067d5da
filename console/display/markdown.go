package display

import (
	"bytes"
	"html"
	"net/url"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	gmhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"

	"countersign/adapters/chat/markdown"
)

// maxMarkdown is how much Markdown is parsed; longer text is shown as it is.
const maxMarkdown = 32 << 10

// HTML makes HTML of a model's Markdown (GitHub's flavour). The input
// is hostile: raw HTML comes out as text, links lead to http and https only and
// open elsewhere without a referrer, images are never loaded but become links,
// and characters that hide or reorder text are made visible.
func HTML(src string) string {
	if strings.TrimSpace(src) == "" {
		return ""
	}
	src = Text(src)
	if len(src) > maxMarkdown || markdown.Deep(src) {
		return "<pre>" + html.EscapeString(src) + "</pre>"
	}
	var out bytes.Buffer
	if err := newMarkdown().Convert([]byte(src), &out); err != nil {
		return "<pre>" + html.EscapeString(src) + "</pre>"
	}
	return out.String()
}

func newMarkdown() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
			extension.Strikethrough, extension.Linkify,
		),
		goldmark.WithRendererOptions(
			gmhtml.WithHardWraps(), // as chat networks do
			renderer.WithNodeRenderers(util.Prioritized(plainHTML{}, 1)),
		),
	)
}

// plainHTML renders the nodes that could load or run something, and what commands printed.
type plainHTML struct{}

func (plainHTML) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindHTMLBlock, htmlBlock)
	reg.Register(ast.KindRawHTML, rawHTML)
	reg.Register(ast.KindLink, link)
	reg.Register(ast.KindAutoLink, autoLink)
	reg.Register(ast.KindImage, image)
	reg.Register(ast.KindCodeBlock, codeBlock)
	reg.Register(ast.KindFencedCodeBlock, codeBlock)
}

func htmlBlock(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<pre>")
		block, _ := n.(*ast.HTMLBlock)
		lines := block.Lines()
		for i := range lines.Len() {
			at := lines.At(i)
			_, _ = w.WriteString(html.EscapeString(string(at.Value(source))))
		}
		if block.HasClosure() {
			_, _ = w.WriteString(html.EscapeString(string(block.ClosureLine.Value(source))))
		}
		_, _ = w.WriteString("</pre>\n")
	}
	return ast.WalkSkipChildren, nil
}

func rawHTML(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if raw, ok := n.(*ast.RawHTML); ok && entering {
		for i := range raw.Segments.Len() {
			at := raw.Segments.At(i)
			_, _ = w.WriteString(html.EscapeString(string(at.Value(source))))
		}
	}
	return ast.WalkSkipChildren, nil
}

func link(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	l, ok := n.(*ast.Link)
	if !ok {
		return ast.WalkContinue, nil
	}
	to, ok := safeURL(l.Destination)
	switch {
	case !ok && !entering: // the text stays, the target is shown
		_, _ = w.WriteString(" (" + html.EscapeString(string(l.Destination)) + ")")
	case !ok:
	case entering:
		openLink(w, to)
	default:
		_, _ = w.WriteString("</a>")
	}
	return ast.WalkContinue, nil
}

func autoLink(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	l, ok := n.(*ast.AutoLink)
	if !ok || !entering {
		return ast.WalkContinue, nil
	}
	label := html.EscapeString(string(l.Label(source)))
	to, ok := safeURL(l.URL(source))
	if !ok {
		_, _ = w.WriteString(label)
		return ast.WalkContinue, nil
	}
	openLink(w, to)
	_, _ = w.WriteString(label + "</a>")
	return ast.WalkContinue, nil
}

func image(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	i, ok := n.(*ast.Image)
	if !ok || !entering {
		return ast.WalkContinue, nil
	}
	label := "image"
	if alt := plainText(i, source); alt != "" {
		label = "image: " + alt
	}
	label = html.EscapeString(label)
	to, ok := safeURL(i.Destination)
	switch {
	case !ok:
		_, _ = w.WriteString("[" + label + "]")
	case inLink(n): // a link in a link is no HTML
		_, _ = w.WriteString("[" + label + "] (" + html.EscapeString(to) + ")")
	default:
		openLink(w, to)
		_, _ = w.WriteString("[" + label + "]</a>")
	}
	return ast.WalkSkipChildren, nil
}

func inLink(n ast.Node) bool {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}

// plainText is the text of a node without its markup.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			switch n := n.(type) {
			case *ast.Text:
				b.Write(n.Segment.Value(source))
			case *ast.String:
				b.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// openLink shows the true target on hover: the text may claim another.
func openLink(w util.BufWriter, to string) {
	to = html.EscapeString(to)
	_, _ = w.WriteString(`<a href="` + to + `" title="` + to + `" target="_blank" rel="noopener noreferrer nofollow">`)
}

// safeURL accepts absolute http and https addresses and returns them in a form
// that a browser reads the same way.
func safeURL(raw []byte) (string, bool) {
	u, err := url.Parse(strings.TrimSpace(string(raw)))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return "", false // no relative ones: they would lead into the console
	}
	return u.String(), true
}
