package embed

import (
	"regexp"
	"strconv"
	"strings"

	"countersign/adapters/chat/markdown"
	"countersign/adapters/chat/visible"
)

// maxIndent is how deep a list nests; Discord draws eleven levels.
const maxIndent = 8

// draw writes blocks as Discord's Markdown.
func draw(blocks []markdown.Block) string {
	return drawIn(blocks, false)
}

func drawIn(blocks []markdown.Block, quoted bool) string {
	var b strings.Builder
	prev := markdown.Rule
	for _, bl := range blocks {
		s := drawBlock(bl, quoted)
		if strings.TrimSpace(s) == "" {
			continue
		}
		switch {
		case b.Len() == 0:
		case prev == markdown.Heading, fenced(prev), fenced(bl.Kind): // these bring their own space
			b.WriteString("\n")
		default:
			b.WriteString("\n\n")
		}
		b.WriteString(s)
		prev = bl.Kind
	}
	return b.String()
}

func fenced(k markdown.Kind) bool { return k == markdown.Code || k == markdown.Table }

// separator is what drawIn puts between blocks at most. partRoom is how much
// blocks may take in one message: text at the end of a block may cost its style,
// so that a longer text can be a little shorter when it is drawn, and a shorter one
// a little longer.
const (
	separator = 2
	partRoom  = MaxContent - 40
)

// drawnSize is what a block adds to a message, in UTF-16 units. Drawn together,
// blocks take no more than the sum.
func drawnSize(b markdown.Block) int {
	return utf16Len(drawBlock(b, false)) + separator
}

func drawBlock(b markdown.Block, quoted bool) string {
	switch b.Kind {
	case markdown.Paragraph:
		return inline(b.Spans, false)
	case markdown.Heading:
		return heading(b)
	case markdown.Code:
		return fence(language(b.Lang), fenceable(b.Text))
	case markdown.Table:
		return fence("", fenceable(visible.Text(markdown.TableText(b))))
	case markdown.List:
		return list(b.Items, quoted)
	case markdown.Quote:
		s := drawIn(b.Blocks, true)
		if quoted || s == "" { // Discord has no quote inside a quote
			return s
		}
		return "> " + strings.ReplaceAll(s, "\n", "\n> ")
	case markdown.Rule:
	}
	return "———"
}

// heading is one line; Discord has three levels, and drops a # at the end.
func heading(b markdown.Block) string {
	s := strings.ReplaceAll(inline(b.Spans, false), "\n", " ")
	if b.Level < 1 || b.Level > 3 || strings.HasSuffix(s, "#") {
		return inline(b.Spans, true)
	}
	if strings.TrimSpace(s) == "" {
		return ""
	}
	return strings.Repeat("#", b.Level) + " " + s
}

var languageName = regexp.MustCompile(`^[A-Za-z0-9_+.#-]{1,20}$`)

// language is a code block's language, or "" for a word that Discord would show.
func language(s string) string {
	if languageName.MatchString(s) {
		return s
	}
	return ""
}

// list draws items, a line each. Code and quotes inside stand at the margin, where
// no indentation gets into them.
func list(items []markdown.Item, quoted bool) string {
	var lines []string
	for _, it := range items {
		pad := strings.Repeat("  ", max(min(it.Depth, maxIndent), 0))
		mark := "- "
		switch {
		case it.More:
			mark = "  "
		case it.Ordered:
			mark = strconv.Itoa(it.Number) + ". "
		}
		rest := pad + "  "
		text := escape(markdown.TaskMark(it)) + inline(it.Spans, false)
		if text != "" || !it.More {
			lines = append(lines, strings.TrimRight(pad+mark+strings.ReplaceAll(text, "\n", "\n"+rest), " "))
		}
		for _, b := range it.Blocks {
			var s string
			switch b.Kind {
			case markdown.Paragraph:
				s = inline(b.Spans, false)
			case markdown.Heading:
				s = inline(b.Spans, true)
			default:
				if s = drawBlock(b, quoted); s != "" {
					lines = append(lines, s)
				}
				continue
			}
			if s != "" {
				lines = append(lines, rest+strings.ReplaceAll(s, "\n", "\n"+rest))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// inline draws spans. A style that could not be told apart from its neighbour or
// from its text is left out; the text stays.
func inline(spans []markdown.Span, bold bool) string {
	var b strings.Builder
	last := byte(0) // the mark that was closed at the end of b
	for _, s := range spans {
		s.Bold = s.Bold || bold
		if s.Link != "" {
			link(&b, s, last)
			last = 0
			continue
		}
		last = styled(&b, s, last)
	}
	return b.String()
}

// styled writes a span's text behind the mark last, and returns the mark that b
// ends with then, or 0.
func styled(b *strings.Builder, s markdown.Span, last byte) byte {
	if s.Text == "" {
		return last
	}
	body, lead, trail, end := "", "", "", byte(0)
	code := false
	if s.Code && last != '`' {
		if body, code = codeSpan(visible.Code(s.Text)); code {
			end = '`'
		}
	}
	if !code { // marks must touch their text
		text := visible.Text(s.Text)
		body = strings.Trim(text, " \t\n")
		at := strings.Index(text, body)
		lead, trail = text[:at], text[at+len(body):]
		body = escape(body)
	}
	marks := marksFor(s, body)
	if marks != "" && (lead != "" || marks[0] != last) {
		end = marks[0]
	} else {
		marks = ""
	}
	b.WriteString(lead + marks + body)
	for i := len(marks) - 1; i >= 0; i-- {
		b.WriteByte(marks[i])
	}
	b.WriteString(trail)
	if trail != "" {
		return 0
	}
	return end
}

// marksFor is what opens a span's style; mirrored, it closes it. Every style is
// one character, so that a text that has it is left plain.
func marksFor(s markdown.Span, body string) string {
	marks := ""
	if body == "" {
		return marks
	}
	if s.Strike && !strings.Contains(body, "~") {
		marks += "~~"
	}
	if !strings.Contains(body, "*") {
		if s.Bold {
			marks += "**"
		}
		if s.Italic {
			marks += "*"
		}
	}
	return marks
}

// link writes a link with its address, which leads to the web or is text.
func link(b *strings.Builder, s markdown.Span, last byte) {
	address := escape(s.Link)
	if strings.HasPrefix(s.Link, "http://") || strings.HasPrefix(s.Link, "https://") {
		address = "<" + anyCall.ReplaceAllString(s.Link, "%40$1") + ">"
	}
	switch {
	case s.Named():
		text := s
		text.Link, text.Text = "", strings.TrimRight(s.Text, " ")
		styled(b, text, last)
		b.WriteString(" (" + address + ")")
	case strings.HasPrefix(address, "<"):
		b.WriteString(address)
	default:
		b.WriteString(escape(visible.Text(s.Text)))
	}
}
