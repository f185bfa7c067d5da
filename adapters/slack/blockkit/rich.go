package blockkit

import (
	"slices"
	"strings"

	"github.com/slack-go/slack"

	"countersign/adapters/chat/markdown"
	"countersign/adapters/chat/visible"
)

// maxIndent is how deep Slack's own editor nests a list.
const maxIndent = 8

// rich draws blocks as the elements of one rich_text block.
type rich struct {
	out []slack.RichTextElement
	// run is a section or quote that is still open, so that paragraphs in a row
	// become one with empty lines between them.
	run    []slack.RichTextSectionElement
	quoted bool
}

func draw(blocks []markdown.Block) []slack.RichTextElement {
	var r rich
	for _, b := range blocks {
		r.block(b, false)
	}
	r.flush()
	return r.out
}

// drawnSize is what a block adds to a message, in bytes of JSON. Drawn together,
// blocks take no more than the sum.
func drawnSize(b markdown.Block) int {
	return jsonSize(draw([]markdown.Block{b}))
}

func (r *rich) flush() {
	if len(r.run) > 0 {
		if r.quoted {
			r.out = append(r.out, &slack.RichTextQuote{Type: slack.RTEQuote, Elements: r.run})
		} else {
			r.out = append(r.out, slack.NewRichTextSection(r.run...))
		}
	}
	r.run = nil
}

func (r *rich) block(b markdown.Block, quoted bool) {
	if quoted != r.quoted {
		r.flush()
		r.quoted = quoted
	}
	switch b.Kind {
	case markdown.Paragraph:
		r.prose(sectionElements(b.Spans, false))
	case markdown.Heading:
		r.prose(sectionElements(b.Spans, true))
	case markdown.Rule:
		r.prose([]slack.RichTextSectionElement{text("———", nil)})
	case markdown.Code:
		r.preformatted(visible.Code(b.Text), quoted)
	case markdown.Table:
		r.preformatted(visible.Text(markdown.TableText(b)), quoted)
	case markdown.Quote:
		for _, in := range b.Blocks {
			r.block(in, true)
		}
	case markdown.List:
		r.list(b.Items, quoted)
	}
}

func (r *rich) prose(e []slack.RichTextSectionElement) {
	if len(e) == 0 {
		return
	}
	if len(r.run) > 0 {
		r.run = append(r.run, text("\n\n", nil))
	}
	r.run = append(r.run, e...)
}

func (r *rich) preformatted(s string, quoted bool) {
	r.flush()
	p := preformatted(s)
	p.Border = border(quoted)
	r.out = append(r.out, p)
}

func preformatted(s string) *slack.RichTextPreformatted {
	if s == "" {
		s = " " // an element without text is refused
	}
	return &slack.RichTextPreformatted{Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{text(s, nil)}}
}

// border is the bar at the left that marks what is quoted.
func border(quoted bool) int {
	if quoted {
		return 1
	}
	return 0
}

// list draws items as Slack has them: one element for each run of the same depth
// and kind. What stands below an item's text and is no paragraph ends the
// element, and the list goes on after it.
func (r *rich) list(items []markdown.Item, quoted bool) {
	r.flush()
	var cur *slack.RichTextList
	var last markdown.Item
	for _, it := range items {
		e := sectionElements(it.Spans, false)
		if m := markdown.TaskMark(it); m != "" {
			e = append([]slack.RichTextSectionElement{text(m, nil)}, e...)
		}
		blocks := it.Blocks
		for len(blocks) > 0 && blocks[0].Kind == markdown.Paragraph {
			if len(e) > 0 {
				e = append(e, text("\n\n", nil))
			}
			e = append(e, sectionElements(blocks[0].Spans, false)...)
			blocks = blocks[1:]
		}
		switch {
		case it.More: // Slack has no item without a bullet
			if len(e) > 0 {
				r.prose(e)
				r.flush()
			}
			cur = nil
		default:
			if len(e) == 0 {
				e = append(e, text(" ", nil))
			}
			if cur == nil || it.Depth != last.Depth || it.Ordered != last.Ordered || it.Ordered && it.Number != last.Number+1 {
				cur = slack.NewRichTextList(slack.RTEListBullet, min(it.Depth, maxIndent))
				cur.Border = border(quoted)
				if it.Ordered {
					cur.Style, cur.Offset = slack.RTEListOrdered, max(it.Number-1, 0)
				}
				r.out = append(r.out, cur)
			}
			cur.Elements = append(cur.Elements, slack.NewRichTextSection(e...))
		}
		if len(blocks) > 0 {
			for _, b := range blocks {
				r.block(b, quoted)
			}
			r.flush()
			r.quoted = quoted
			cur = nil
		}
		last = it
	}
}

// text is a rich_text element that Slack does not parse. s must be visible.
func text(s string, style *slack.RichTextSectionTextStyle) slack.RichTextSectionElement {
	return slack.NewRichTextSectionTextElement(s, style)
}

// sectionElements draws spans. A link shows its address: either that alone, or
// after the text that it was given.
func sectionElements(spans []markdown.Span, bold bool) []slack.RichTextSectionElement {
	var out []slack.RichTextSectionElement
	for _, s := range spans {
		var style *slack.RichTextSectionTextStyle
		if s.Bold || bold || s.Italic || s.Strike || s.Code {
			style = &slack.RichTextSectionTextStyle{Bold: s.Bold || bold, Italic: s.Italic, Strike: s.Strike, Code: s.Code}
		}
		shown := visible.Text(s.Text)
		if s.Code {
			shown = visible.Code(s.Text)
		}
		switch {
		case s.Named():
			if shown = strings.TrimRight(shown, " "); shown != "" {
				out = append(out, text(shown, style))
			}
			out = append(out, text(" (", nil), slack.NewRichTextSectionLinkElement(s.Link, "", nil), text(")", nil))
		case s.Link == s.Text && s.Link != "":
			out = append(out, slack.NewRichTextSectionLinkElement(s.Link, "", style))
		case s.Link != "":
			out = append(out, slack.NewRichTextSectionLinkElement(s.Link, shown, style))
		case shown != "":
			out = append(out, text(shown, style))
		}
	}
	return out
}

// unit is one block of a message with the Markdown that it shows.
type unit struct {
	block slack.Block
	size  int // bytes of JSON
	of    []markdown.Block
}

func newUnit(b slack.Block, of ...markdown.Block) unit {
	return unit{block: b, size: jsonSize(b), of: of}
}

// units lays a document out as blocks. The first table that fits becomes a table
// block; Slack takes one in a message.
func units(doc []markdown.Block) []unit {
	var out []unit
	var group []markdown.Block
	flush := func() {
		wrapper := jsonSize(slack.NewRichTextBlock("", []slack.RichTextElement{}...)) + 2
		for _, part := range markdown.Split(group, MaxBlockJSON-wrapper, drawnSize) {
			if e := draw(part); len(e) > 0 {
				out = append(out, newUnit(slack.NewRichTextBlock("", e...), part...))
			}
		}
		group = nil
	}
	tables := 0
	for _, b := range doc {
		switch b.Kind {
		case markdown.Rule:
			flush()
			out = append(out, newUnit(slack.NewDividerBlock(), b))
			continue
		case markdown.Table:
			if t, ok := table(b); ok && tables == 0 {
				flush()
				out = append(out, newUnit(t, b))
				tables++
				continue
			}
		default:
		}
		group = append(group, b)
	}
	flush()
	return out
}

// table makes a table block, or false for one that Slack would refuse.
func table(b markdown.Block) (*slack.TableBlock, bool) {
	if len(b.Rows) == 0 || len(b.Rows) > MaxTableRows || len(b.Rows[0]) == 0 || len(b.Rows[0]) > MaxTableColumns {
		return nil, false
	}
	t := slack.NewTableBlock("")
	for _, a := range b.Align {
		s := slack.ColumnSetting{Align: slack.ColumnAlignmentLeft, IsWrapped: true}
		switch a {
		case markdown.AlignRight:
			s.Align = slack.ColumnAlignmentRight
		case markdown.AlignCenter:
			s.Align = slack.ColumnAlignmentCenter
		case markdown.AlignNone, markdown.AlignLeft:
		}
		t.ColumnSettings = append(t.ColumnSettings, s)
	}
	for _, row := range b.Rows {
		var cells []slack.TableCell
		for _, c := range row {
			cells = append(cells, cell(c))
		}
		t.AddRow(cells...)
	}
	return t, jsonSize(t) <= MaxTableJSON
}

func cell(c markdown.Cell) slack.TableCell {
	plain := !slices.ContainsFunc(c, func(s markdown.Span) bool {
		return s.Link != "" || s.Bold || s.Italic || s.Strike || s.Code
	})
	if !plain {
		return slack.NewTableRichTextCell(slack.NewRichTextSection(sectionElements(c, false)...))
	}
	s := visible.Text(markdown.PlainSpans(c))
	if strings.TrimSpace(s) == "" {
		s = " " // a cell without text is refused
	}
	return slack.NewTableRawTextCell(s)
}

// pack puts units into as many messages as they need, each within limit bytes
// of JSON and count blocks.
func pack(us []unit, limit, count int) [][]unit {
	var out [][]unit
	var cur []unit
	used := 2 // the brackets
	for _, u := range us {
		if len(cur) > 0 && (used+u.size+1 > limit || len(cur) == count) {
			out = append(out, cur)
			cur, used = nil, 2
		}
		cur = append(cur, u)
		used += u.size + 1
	}
	if len(cur) > 0 {
		out = append(out, cur)
	}
	return out
}

// message joins units to a message.
func message(us []unit) Message {
	var m Message
	var doc []markdown.Block
	for _, u := range us {
		m.Blocks = append(m.Blocks, u.block)
		doc = append(doc, u.of...)
	}
	m.Text = fallback(markdown.Plain(doc))
	return m
}
