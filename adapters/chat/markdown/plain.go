package markdown

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// PlainSpans is the text of spans without their style; a link whose text is not
// its address is "text (address)".
func PlainSpans(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		b.WriteString(s.Plain())
	}
	return b.String()
}

// Plain writes blocks as plain text for people: for notifications, for clients
// that show nothing else, for files. It ends without a newline.
func Plain(blocks []Block) string {
	var b strings.Builder
	for i, bl := range blocks {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(plainBlock(bl))
	}
	return b.String()
}

func plainBlock(b Block) string {
	switch b.Kind {
	case Code:
		return b.Text
	case List:
		var out []string
		for _, it := range b.Items {
			out = append(out, plainItem(it))
		}
		return strings.Join(out, "\n")
	case Quote:
		return indent(Plain(b.Blocks), "> ", "> ")
	case Table:
		return TableText(b)
	case Rule:
		return "---"
	case Paragraph, Heading:
	}
	return PlainSpans(b.Spans)
}

func plainItem(it Item) string {
	pad := strings.Repeat("  ", min(it.Depth, 20))
	mark := Marker(it)
	body := PlainSpans(it.Spans)
	if len(it.Blocks) > 0 {
		if body != "" {
			body += "\n"
		}
		body += Plain(it.Blocks)
	}
	return indent(body, pad+mark, pad+strings.Repeat(" ", min(len(mark), 4)))
}

// Marker is what stands before an item in plain text, with its space: "- ",
// "3. ", "- [x] ", or only spaces for one that goes on.
func Marker(it Item) string {
	mark := "- "
	switch {
	case it.More:
		return "  "
	case it.Ordered:
		mark = strconv.Itoa(it.Number) + ". "
	}
	return mark + TaskMark(it)
}

// TaskMark is an item's checkbox as text, with its space; "" without one.
func TaskMark(it Item) string {
	switch {
	case it.Task == nil:
		return ""
	case *it.Task:
		return "[x] "
	}
	return "[ ] "
}

// indent puts first before the first line of s and rest before the others.
func indent(s, first, rest string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if i == 0 {
			lines[i] = first + l
		} else {
			lines[i] = strings.TrimRight(rest+l, " ")
		}
	}
	return strings.Join(lines, "\n")
}

// TableText is a table as aligned text for a fixed-width font: the header, a
// rule, the rows, two spaces between columns. Nothing is wrapped or cut. It is
// "" for a block that is no table.
func TableText(b Block) string {
	var wide []int
	rows := make([][]string, len(b.Rows))
	for i, row := range b.Rows {
		for j, c := range row {
			s := strings.Join(strings.FieldsFunc(PlainSpans(c), func(r rune) bool { return r == '\n' || r == '\t' }), " ")
			rows[i] = append(rows[i], s)
			if j == len(wide) {
				wide = append(wide, 1)
			}
			wide[j] = max(wide[j], Width(s))
		}
	}
	var out []string
	for i, row := range rows {
		var l strings.Builder
		for j, s := range row {
			if j > 0 {
				l.WriteString("  ")
			}
			left, right := 0, wide[j]-Width(s)
			if j < len(b.Align) {
				switch b.Align[j] {
				case AlignRight:
					left, right = right, 0
				case AlignCenter:
					left, right = right/2, right-right/2
				case AlignNone, AlignLeft:
				}
			}
			l.WriteString(strings.Repeat(" ", left) + s + strings.Repeat(" ", right))
		}
		out = append(out, strings.TrimRight(l.String(), " "))
		if i == 0 {
			var l []string
			for _, w := range wide {
				l = append(l, strings.Repeat("-", w))
			}
			out = append(out, strings.Join(l, "  "))
		}
	}
	return strings.Join(out, "\n")
}

// Width is how many columns s takes in a fixed-width font: East Asian wide
// characters (Unicode's UAX 11) and emoji two, combining and formatting
// characters none.
func Width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case r < 0x300:
			n++
		default:
			switch width.LookupRune(r).Kind() {
			case width.EastAsianWide, width.EastAsianFullwidth:
				n += 2
			default:
				n++
			}
		}
	}
	return n
}
