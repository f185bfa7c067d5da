package markdown

import (
	"html"
	"net/url"
	"regexp"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// MaxSource is how many bytes are read as Markdown. Longer text, and text that
// nests more than 31 deep in one line, comes back as one paragraph: some hostile
// inputs cost the square of their length.
const MaxSource = 64 << 10

// maxNested is how deep quotes nest; a deeper quote joins the one around it.
const maxNested = 6

// deep finds a line that opens very many quotes and lists at once. goldmark
// takes more than the square of their number: 20 s for 64 KiB.
var deep = regexp.MustCompile(`(?m)^(?:[ \t]*(?:>|[-+*][ \t]|[0-9]{1,9}[.)][ \t])){32}`)

// maxBrackets is how many opening brackets a text may have: goldmark takes the
// square of their number, 0.1 s for this many.
const maxBrackets = 4096

// Deep reports whether a text opens so many quotes and lists in one line, or so
// many brackets, that reading it as Markdown takes the square of its length or
// more. Show it as plain text.
func Deep(src string) bool {
	return strings.Count(src, "[") > maxBrackets || deep.MatchString(src)
}

// Parse reads GitHub's flavour of Markdown (tables, strikethrough, bare links,
// task lists). It never fails: what is no Markdown is a paragraph. Bytes that
// are not UTF-8 become U+FFFD and every line end becomes "\n"; otherwise no
// text is dropped but the marks of the structure itself. Reference definitions
// are not resolved and stay where they were written, since a definition that
// nothing refers to would be hidden text. Safe for concurrent use.
func Parse(src string) []Block {
	src = strings.ToValidUTF8(src, "\uFFFD")
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	src = strings.ReplaceAll(src, "\x00", "\uFFFD") // as CommonMark does
	if strings.TrimSpace(src) == "" {
		return nil
	}
	if len(src) > MaxSource || Deep(src) {
		return []Block{{Kind: Paragraph, Spans: []Span{{Text: src}}}}
	}
	r := reader{src: []byte(src)}
	return r.blocks(newParser().Parse(text.NewReader(r.src)), 0)
}

// newParser is goldmark's without reference definitions.
func newParser() parser.Parser {
	return parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithInlineParsers(parser.DefaultInlineParsers()...),
		parser.WithInlineParsers( // priorities as in goldmark's own extensions
			util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
			util.Prioritized(extension.NewStrikethroughParser(), 500),
			util.Prioritized(extension.NewLinkifyParser(), 999),
		),
		parser.WithParagraphTransformers(util.Prioritized(extension.NewTableParagraphTransformer(), 200)),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)),
	)
}

// reader turns goldmark's tree into ours.
type reader struct{ src []byte }

func (r reader) blocks(parent ast.Node, nested int) []Block {
	var out []Block
	for n := parent.FirstChild(); n != nil; n = n.NextSibling() {
		out = append(out, r.block(n, nested)...)
	}
	return out
}

func (r reader) block(n ast.Node, nested int) []Block {
	switch n := n.(type) {
	case *ast.Paragraph, *ast.TextBlock:
		return paragraph(r.spans(n))
	case *ast.Heading:
		spans := r.spans(n)
		if len(spans) == 0 {
			return nil
		}
		return []Block{{Kind: Heading, Level: n.Level, Spans: spans}}
	case *ast.FencedCodeBlock:
		return r.fenced(n)
	case *ast.CodeBlock:
		return []Block{{Kind: Code, Text: r.lines(n.Lines())}}
	case *ast.HTMLBlock:
		s := string(n.Lines().Value(r.src))
		if n.HasClosure() {
			s += string(n.ClosureLine.Value(r.src))
		}
		return plainParagraph(s)
	case *ast.ThematicBreak:
		return []Block{{Kind: Rule}}
	case *ast.Blockquote:
		inner := r.blocks(n, nested+1)
		if nested >= maxNested || len(inner) == 0 {
			return inner
		}
		return []Block{{Kind: Quote, Blocks: inner}}
	case *ast.List:
		if items := r.items(n, 0, nested); len(items) > 0 {
			return []Block{{Kind: List, Items: items}}
		}
		return nil
	case *east.Table:
		return []Block{r.table(n)}
	}
	// Nothing else comes out of this parser; should it, its text is kept.
	if n.Type() == ast.TypeInline {
		return paragraph(r.inline(nil, n, Span{}))
	}
	if n.HasChildren() {
		return r.blocks(n, nested)
	}
	return plainParagraph(string(n.Lines().Value(r.src)))
}

func paragraph(spans []Span) []Block {
	if len(spans) == 0 {
		return nil
	}
	return []Block{{Kind: Paragraph, Spans: spans}}
}

func plainParagraph(s string) []Block {
	s = strings.Trim(s, "\n")
	if strings.TrimSpace(s) == "" {
		return nil
	}
	return []Block{{Kind: Paragraph, Spans: []Span{{Text: s}}}}
}

// langWord is what the word after a fence looks like when it names a language.
var langWord = regexp.MustCompile(`^[A-Za-z0-9_+#./-]{1,40}$`)

func (r reader) fenced(n *ast.FencedCodeBlock) []Block {
	b := Block{Kind: Code, Text: r.lines(n.Lines())}
	if n.Info == nil {
		return []Block{b}
	}
	info := strings.TrimSpace(unescape(string(n.Info.Segment.Value(r.src))))
	if langWord.MatchString(info) {
		b.Lang = info
		return []Block{b}
	}
	return append(plainParagraph(info), b) // more than a language: text that must not vanish
}

func (r reader) lines(s *text.Segments) string {
	return strings.TrimSuffix(string(s.Value(r.src)), "\n")
}

func (r reader) items(l *ast.List, depth, nested int) []Item {
	var out []Item
	number := l.Start
	for li := l.FirstChild(); li != nil; li = li.NextSibling() {
		cur := Item{Depth: depth, Ordered: l.IsOrdered()}
		if cur.Ordered {
			cur.Number = number
			number++
		}
		for c := li.FirstChild(); c != nil; c = c.NextSibling() {
			switch c := c.(type) {
			case *ast.List:
				if !cur.More || len(cur.Spans)+len(cur.Blocks) > 0 {
					out = append(out, cur)
				}
				out = append(out, r.items(c, depth+1, nested)...)
				cur = Item{Depth: depth, Ordered: cur.Ordered, Number: cur.Number, More: true}
			case *ast.TextBlock, *ast.Paragraph:
				if box, ok := c.FirstChild().(*east.TaskCheckBox); ok && cur.Task == nil && !cur.More {
					ticked := box.IsChecked
					cur.Task = &ticked
				}
				if spans := r.spans(c); len(cur.Spans)+len(cur.Blocks) == 0 {
					cur.Spans = spans
				} else {
					cur.Blocks = append(cur.Blocks, paragraph(spans)...)
				}
			default:
				cur.Blocks = append(cur.Blocks, r.block(c, nested)...)
			}
		}
		if !cur.More || len(cur.Spans)+len(cur.Blocks) > 0 {
			out = append(out, cur)
		}
	}
	return out
}

func (r reader) table(t *east.Table) Block {
	b := Block{Kind: Table}
	for _, a := range t.Alignments {
		switch a {
		case east.AlignLeft:
			b.Align = append(b.Align, AlignLeft)
		case east.AlignRight:
			b.Align = append(b.Align, AlignRight)
		case east.AlignCenter:
			b.Align = append(b.Align, AlignCenter)
		default:
			b.Align = append(b.Align, AlignNone)
		}
	}
	width := len(b.Align)
	for row := t.FirstChild(); row != nil; row = row.NextSibling() {
		var cells []Cell
		for c := row.FirstChild(); c != nil; c = c.NextSibling() {
			cells = append(cells, r.spans(c))
		}
		width = max(width, len(cells))
		b.Rows = append(b.Rows, cells)
	}
	for i := range b.Rows {
		for len(b.Rows[i]) < width {
			b.Rows[i] = append(b.Rows[i], nil)
		}
	}
	for len(b.Align) < width {
		b.Align = append(b.Align, AlignNone)
	}
	return b
}

// spans reads the inline content of n, without the space around it.
func (r reader) spans(n ast.Node) []Span {
	var out []Span
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		out = r.inline(out, c, Span{})
	}
	for len(out) > 0 {
		last := &out[len(out)-1]
		if last.Link != "" || last.Code {
			break
		}
		if last.Text = strings.TrimRight(last.Text, " \t\n"); last.Text != "" {
			break
		}
		out = out[:len(out)-1]
	}
	return out
}

// inline appends n to out; style is what the nodes around it say.
func (r reader) inline(out []Span, n ast.Node, style Span) []Span {
	switch n := n.(type) {
	case *ast.Text:
		s := string(n.Segment.Value(r.src))
		if !n.IsRaw() {
			s = unescape(s)
		}
		if n.SoftLineBreak() || n.HardLineBreak() {
			s = strings.TrimRight(s, " ") + "\n" // as chat networks show it
		}
		return add(out, style, s)
	case *ast.String:
		return add(out, style, string(n.Value))
	case *ast.CodeSpan:
		style.Code = true
		return add(out, style, strings.ReplaceAll(r.raw(n), "\n", " "))
	case *ast.Emphasis:
		if n.Level >= 2 {
			style.Bold = true
		} else {
			style.Italic = true
		}
	case *east.Strikethrough:
		style.Strike = true
	case *ast.RawHTML:
		return add(out, style, string(n.Segments.Value(r.src)))
	case *ast.AutoLink:
		label := string(n.Label(r.src))
		to := string(n.URL(r.src))
		if n.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(to), "mailto:") {
			to = "mailto:" + to
		}
		return addLink(out, style, label, to, "")
	case *ast.Link:
		label, inner := r.label(n, style)
		return addLink(out, inner, label, unescape(string(n.Destination)), unescape(string(n.Title)))
	case *ast.Image:
		label, _ := r.label(n, style)
		label = strings.TrimSpace("image " + label)
		return addLink(add(out, style, "["), style, label, unescape(string(n.Destination)), unescape(string(n.Title)), "]")
	case *east.TaskCheckBox:
		return out // the item has it
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		out = r.inline(out, c, style)
	}
	return out
}

// label is the text of a link or image, and the style of the whole when it has
// only one.
func (r reader) label(n ast.Node, style Span) (string, Span) {
	var spans []Span
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		spans = r.inline(spans, c, style)
	}
	if len(spans) == 1 {
		style = spans[0]
		style.Text, style.Link = "", ""
	}
	return PlainSpans(spans), style
}

// raw is the text of a code span.
func (r reader) raw(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Segment.Value(r.src))
		case *ast.String:
			b.Write(c.Value)
		}
	}
	return b.String()
}

// add appends text in a style, joining it to a span before it of the same.
func add(out []Span, style Span, s string) []Span {
	if s == "" {
		return out
	}
	style.Text = s
	if k := len(out) - 1; k >= 0 && out[k].Link == "" && style.Link == "" {
		if last := out[k]; last.Bold == style.Bold && last.Italic == style.Italic && last.Strike == style.Strike && last.Code == style.Code {
			out[k].Text += s
			return out
		}
	}
	return append(out, style)
}

// addLink appends a link, or plain text with the address when it leads
// elsewhere than the web or to a mailbox. after follows the label.
func addLink(out []Span, style Span, label, to, title string, after ...string) []Span {
	plain := style
	plain.Code = false
	if strings.TrimSpace(label) == "" {
		label = to
	}
	tail := strings.Join(after, "")
	if title != "" {
		tail += " \"" + title + "\""
	}
	if link, ok := safeLink(to); ok {
		style.Link, style.Text = link, label
		return add(append(out, style), plain, tail)
	}
	out = add(out, style, label)
	if to != "" && to != label {
		out = add(out, plain, " ("+to+")")
	}
	return add(out, plain, tail)
}

// maxLink is the longest address that stays a link, in bytes; longer ones are
// shown as text.
const maxLink = 1500

// safeLink returns an address in a form that every reader understands the same
// way, or false.
func safeLink(raw string) (string, bool) {
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil || u.User != nil { // http://known.example@other.example
		return "", false
	}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" || u.Opaque != "" {
			return "", false
		}
	case "mailto":
		if !strings.Contains(u.Opaque, "@") {
			return "", false
		}
	default:
		return "", false
	}
	var b strings.Builder
	for _, c := range []byte(u.String()) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("<>|\"'`\\^{}", c) >= 0 {
			const digits = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
			continue
		}
		b.WriteByte(c)
	}
	if b.Len() > maxLink {
		return "", false
	}
	return b.String(), true
}

// entity is an HTML character reference, as long as HTML5 has them.
var entity = regexp.MustCompile(`^&(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{0,31});`)

// unescape resolves backslash escapes and character references, which goldmark
// leaves in the text.
func unescape(s string) string {
	if !strings.ContainsAny(s, `\&`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && util.IsPunct(s[i+1]):
			b.WriteByte(s[i+1])
			i += 2
			continue
		case c == '&':
			if m := entity.FindString(s[i:min(len(s), i+34)]); m != "" {
				b.WriteString(strings.ReplaceAll(html.UnescapeString(m), "\r", "\n"))
				i += len(m)
				continue
			}
		}
		b.WriteByte(s[i])
		i++
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}
