package blockkit

import (
	"fmt"
	"strings"

	"github.com/slack-go/slack"

	"countersign/adapters/chat"
	"countersign/adapters/chat/face"
	"countersign/adapters/chat/markdown"
)

// headBytes is how much of a text that is too long for messages is shown above
// its file.
const headBytes = 2500

// Reply draws Markdown as one message or more, each within the limits. What
// needs more than [MaxMessages] becomes one message with the beginning and a
// file "reply.md" with the whole text, unchanged. files ride on the last
// message. A text of white space alone gives one message without blocks.
func Reply(text string, files []chat.File) []Message {
	if strings.TrimSpace(text) == "" {
		return []Message{{Text: fallback(attached(files)), Files: files}}
	}
	// Blocks take more than the Markdown that they show, so this has no room.
	if len(text) > MaxMessages*MaxMessageJSON {
		return []Message{headOf(text, files)}
	}
	us := units(markdown.Parse(text))
	if len(us) == 0 { // only marks, such as an empty quote
		return []Message{{Text: fallback(text), Files: files}}
	}
	parts := pack(us, MaxMessageJSON, MaxBlocks)
	if len(parts) > MaxMessages {
		return []Message{headOf(text, files)}
	}
	var out []Message
	for _, p := range parts {
		out = append(out, message(p))
	}
	out[len(out)-1].Files = files
	return out
}

// headOf shows the beginning of a text and attaches the whole.
func headOf(s string, files []chat.File) Message {
	whole := chat.File{Name: face.FreeName("reply.md", files), Text: s}
	head := s[:runeStart(s, headBytes)]
	if nl := strings.LastIndexByte(head, '\n'); nl > len(head)/2 {
		head = head[:nl]
	}
	note := fmt.Sprintf(sayBeginning, measure(s), whole.Name)
	end := newUnit(slack.NewRichTextBlock("", slack.NewRichTextSection(text(note, &slack.RichTextSectionTextStyle{Bold: true}))))
	var m Message
	if parts := pack(units(markdown.Parse(head)), MaxMessageJSON-end.size-1, MaxBlocks-1); len(parts) > 0 {
		m = message(append(parts[0], end))
	} else {
		m = message([]unit{end})
	}
	m.Text = fallback(clip(markdown.Plain(markdown.Parse(head)), MaxText-500) + "\n\n" + note)
	m.Files = append([]chat.File{whole}, files...)
	return m
}

func attached(files []chat.File) string {
	if len(files) == 0 {
		return ""
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	return "Attached: " + strings.Join(names, ", ")
}

// measure says how long a text is.
func measure(s string) string {
	lines := strings.Count(strings.TrimSuffix(s, "\n"), "\n") + 1
	if lines == 1 {
		return fmt.Sprintf("1 line, %d bytes", len(s))
	}
	return fmt.Sprintf("%d lines, %d bytes", lines, len(s))
}
