package console

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

// shownText is text as people read it: what hides or reorders is an escape.
func shownText(s string) string { return visible.Text(lineEnds.Replace(s)) }

// shownExact is shownText for what somebody decides on. It also shows marks that are
// drawn over or under a letter which has none in its script: a stroke through a command
// makes another one of it.
func shownExact(s string) string {
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

// shownCard is a card as the page gets it. What a person is to edit stays as it is.
func shownCard(c *chat.Card) *chat.Card {
	if c == nil {
		return nil
	}
	out := *c
	out.Warn, out.Preview, out.Fields, out.Details = slices.Clone(c.Warn), slices.Clone(c.Preview), slices.Clone(c.Fields), slices.Clone(c.Details)
	for s := range out.Texts() {
		*s = shownExact(*s)
	}
	out.Choose, out.After = shownButtons(c.Choose), shownButtons(c.After)
	out.Attach = shownFiles(c.Attach)
	return &out
}

func shownButtons(list []chat.Button) []chat.Button {
	out := slices.Clone(list)
	for i := range out {
		out[i].Label, out[i].Confirm = shownExact(out[i].Label), shownExact(out[i].Confirm)
	}
	return out
}

// shownFiles leaves the content as it is, which people download; the page shows what
// hides in it.
func shownFiles(list []chat.File) []chat.File {
	out := slices.Clone(list)
	for i := range out {
		out[i].Name = shownText(out[i].Name)
	}
	return out
}

func shownProgress(p chat.Progress) chat.Progress {
	p.Status, p.Text = shownText(p.Status), shownText(p.Text)
	return p
}

func shownAnswer(ans chat.Answer) chat.Answer {
	ans.Card, ans.Show, ans.Notice = shownCard(ans.Card), shownCard(ans.Show), shownText(ans.Notice)
	return ans
}
