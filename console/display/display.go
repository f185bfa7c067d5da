// Package display makes of what people, models and machines have written what the console's page shows: text in which
// nothing hides, and HTML of the bot's Markdown without raw HTML, images, or links other than http and https.
//
// It doesn't change what people edit or download, and it knows no thread and no person.
package display

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/adapters/chat/visible"
)

// lineEnds makes one kind of line end of all.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Text is text as people read it: what hides or reorders is an escape.
func Text(s string) string { return visible.Text(lineEnds.Replace(s)) }

// exact is Text for what somebody decides on. It also shows marks that are
// drawn over or under a letter which has none in its script: a stroke through a command
// makes another one of it.
func exact(s string) string {
	s = visible.Code(s)
	if !strings.ContainsFunc(s, isMark) {
		return s
	}
	var b strings.Builder
	base := utf8.RuneError
	for _, r := range s {
		switch {
		case !isMark(r):
			base = r
			b.WriteRune(r)
		case base < utf8.RuneSelf, unicode.In(base, unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Common), unicode.Is(unicode.Me, r):
			fmt.Fprintf(&b, `\u{%04X}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isMark(r rune) bool { return unicode.In(r, unicode.Mn, unicode.Me) }

// Card is a card as the page gets it. What a person is to edit stays as it is.
func Card(c *chat.Card) *chat.Card {
	if c == nil {
		return nil
	}
	out := *c
	out.Warn, out.Preview, out.Fields, out.Details = slices.Clone(c.Warn), slices.Clone(c.Preview), slices.Clone(c.Fields), slices.Clone(c.Details)
	for s := range out.Texts() {
		*s = exact(*s)
	}
	out.Choose, out.After = buttons(c.Choose), buttons(c.After)
	out.Attach = Files(c.Attach)
	return &out
}

func buttons(list []chat.Button) []chat.Button {
	out := slices.Clone(list)
	for i := range out {
		out[i].Label, out[i].Confirm = exact(out[i].Label), exact(out[i].Confirm)
	}
	return out
}

// Files are files as the page gets them. It leaves the content as it is, which people download; the page shows what
// hides in it.
func Files(list []chat.File) []chat.File {
	out := slices.Clone(list)
	for i := range out {
		out[i].Name = Text(out[i].Name)
	}
	return out
}

// Progress is what the bot does as the page gets it.
func Progress(p chat.Progress) chat.Progress {
	p.Status, p.Text = Text(p.Status), Text(p.Text)
	return p
}

// Answer is an answer to a press as the page gets it.
func Answer(ans chat.Answer) chat.Answer {
	ans.Card, ans.Show, ans.Notice = Card(ans.Card), Card(ans.Show), Text(ans.Notice)
	return ans
}
