package embed

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/adapters/chat/face"
	"countersign/adapters/chat/markdown"
	"countersign/adapters/chat/visible"
)

// headBytes is how much of a text that is too long for messages is shown above
// its file.
const headBytes = 1500

// Reply draws Markdown as one message or more, each within the limits; no message
// ends inside a code block. What needs more than [MaxMessages] becomes one message
// with the beginning and a file "reply.md" with the whole text, unchanged. files
// ride on the last message, and those above [MaxFiles] on further ones.
func Reply(text string, files []chat.File) []Message {
	if strings.TrimSpace(text) == "" {
		return withFiles(nil, files)
	}
	// A UTF-16 unit is three bytes at most, and Discord's Markdown is seldom shorter
	// than the one that was written: this has no room.
	if len(text) > 3*MaxMessages*MaxContent {
		return headOf(text, files)
	}
	var out []string
	for _, part := range markdown.Split(markdown.Parse(text), partRoom, drawnSize) {
		if s := draw(part); strings.TrimSpace(s) != "" {
			out = append(out, s)
		}
	}
	switch {
	case len(out) == 0: // only marks, such as an empty quote
		if s := strings.TrimSpace(visible.Text(text)); s != "" {
			out = []string{clipEscaped(s, MaxContent)}
		}
	case len(out) > MaxMessages:
		return headOf(text, files)
	}
	return withFiles(out, files)
}

// withFiles makes a message of each text and adds the files at the end.
func withFiles(texts []string, files []chat.File) []Message {
	chunks := slices.Collect(slices.Chunk(files, MaxFiles))
	var out []Message
	for i, s := range texts {
		var with []chat.File
		if i == len(texts)-1 && len(chunks) > 0 {
			with, chunks = chunks[0], chunks[1:]
		}
		out = append(out, newMessage(s, FlagSuppressEmbeds, with))
	}
	for _, c := range chunks {
		out = append(out, newMessage(attached(c), FlagSuppressEmbeds, c))
	}
	if len(out) == 0 {
		out = append(out, newMessage("(no text)", FlagSuppressEmbeds, nil))
	}
	return out
}

// headOf shows the beginning of a text and attaches the whole.
func headOf(s string, files []chat.File) []Message {
	whole := chat.File{Name: face.FreeName("reply.md", files), Text: s}
	head := s[:runeStart(s, headBytes)]
	if nl := strings.LastIndexByte(head, '\n'); nl > len(head)/2 {
		head = head[:nl]
	}
	note := fmt.Sprintf("**This is the beginning. The whole text, %s, is in the attached file %s.**", escape(measure(s)), escape(whole.Name))
	text := note
	if parts := markdown.Split(markdown.Parse(head), partRoom-utf16Len(note)-separator, drawnSize); len(parts) > 0 {
		if shown := draw(parts[0]); strings.TrimSpace(shown) != "" {
			text = shown + "\n\n" + note
		}
	}
	return withFiles([]string{text}, append([]chat.File{whole}, files...))
}

func attached(files []chat.File) string {
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	return clipEscaped("Attached: "+visible.Text(strings.Join(names, ", ")), MaxContent)
}

// Notice is one sentence of plain text as a message.
func Notice(sentence string) Message { return Linked(sentence, "") }

// Linked is [Notice] with an address of the bot's own after it, unless that is empty.
func Linked(sentence, link string) Message {
	room := MaxContent
	if link != "" {
		link = " " + link
		room -= utf16Len(link)
	}
	s := clipEscaped(strings.TrimSpace(visible.Text(sentence)), room)
	if s == "" {
		s = "(no text)"
	}
	return newMessage(s+link, FlagSuppressEmbeds, nil)
}

// Limits of a draft: how many bytes at the end of it are read, and into how large
// pieces it is cut, in UTF-16 units, to find those that fit.
const (
	draftBytes = 3 * MaxContent
	draftPiece = MaxContent / 8
)

// Progress draws the draft of a reply as one message: the end of it where it is
// longer, behind an ellipsis. Code that was cut at the front stands in a code block
// still. What was left out comes with the reply.
func Progress(text string) Message {
	const more = "…\n"
	src, cut := tail(text)
	var blocks []markdown.Block
	for _, part := range markdown.Split(markdown.Parse(src), draftPiece, drawnSize) {
		blocks = append(blocks, part...)
	}
	used := len(more)
	from := len(blocks)
	for from > 0 {
		n := drawnSize(blocks[from-1])
		if used+n > partRoom {
			cut = true
			break
		}
		used += n
		from--
	}
	s := draw(joined(blocks[from:]))
	if strings.TrimSpace(s) == "" {
		s = "…"
	} else if cut {
		s = more + s
	}
	return newMessage(s, FlagSuppressEmbeds, nil)
}

// tail is the end of a text, from the start of a line where there is one, and
// whether it is not the whole. Inside a fence it begins with one.
func tail(s string) (string, bool) {
	if len(s) <= draftBytes {
		return s, false
	}
	at := runeStart(s, len(s)-draftBytes)
	if nl := strings.IndexByte(s[at:], '\n'); nl >= 0 && nl < draftBytes/2 {
		at += nl + 1
	}
	open := false
	for l := range strings.Lines(s[:at]) {
		if strings.HasPrefix(strings.TrimLeft(l, " "), "```") {
			open = !open
		}
	}
	if open {
		return "```\n" + s[at:], true
	}
	return s[at:], true
}

// joined puts pieces that were cut from one block together again. They take no
// more room than before.
func joined(pieces []markdown.Block) []markdown.Block {
	var out []markdown.Block
	for _, b := range pieces {
		last := len(out) - 1
		if last < 0 || !b.More || out[last].Kind != b.Kind {
			out = append(out, b)
			continue
		}
		o := &out[last]
		switch b.Kind {
		case markdown.Code:
			o.Text += b.Text
		case markdown.Paragraph, markdown.Heading:
			o.Spans = joinedSpans(o.Spans, b.Spans)
		case markdown.List:
			o.Items = slices.Concat(o.Items, b.Items)
		case markdown.Quote:
			o.Blocks = slices.Concat(o.Blocks, b.Blocks)
		default:
			out = append(out, b)
		}
	}
	return out
}

// joinedSpans makes one span again of one that was cut.
func joinedSpans(a, b []markdown.Span) []markdown.Span {
	out := slices.Concat(a, b)
	k := len(a)
	if k == 0 || k == len(out) {
		return out
	}
	last, next := out[k-1], out[k]
	text := last.Text + next.Text
	last.Text, next.Text = "", ""
	if last.Link != "" || last != next {
		return out
	}
	out[k-1].Text = text
	return slices.Delete(out, k, k+1)
}

// runeStart moves n down to the start of a character of s.
func runeStart(s string, n int) int {
	if n >= len(s) {
		return len(s)
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}
