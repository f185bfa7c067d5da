package blockkit

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/slack-go/slack"

	"countersign/adapters/chat/visible"
)

// codeBlock is the block_id of the block that shows a card's command as a whole.
const codeBlock = "cs.code"

// reasonBlock and reasonAction name the field of a card in which a person can
// say why before they press a button.
const (
	reasonBlock  = "cs.why"
	reasonAction = "cs.text"
)

// Reason is what a person typed into a card's field; "" when nothing.
func Reason(s *slack.BlockActionStates) string {
	if s == nil {
		return ""
	}
	return strings.TrimSpace(s.Values[reasonBlock][reasonAction].Value)
}

// FormError is the answer to a submitted form that stands under its input.
func FormError(sentence string) *slack.ViewSubmissionResponse {
	return slack.NewErrorsViewSubmissionResponse(map[string]string{inputBlock: clip(sentence, MaxPlainText)})
}

// Notice is one sentence as a message, with an address of the bot's own after it unless that is empty.
func Notice(sentence, link string) Message {
	run := []slack.RichTextSectionElement{text(visible.Text(sentence), nil)}
	if link != "" {
		run = append(run, text(" ", nil), slack.NewRichTextSectionLinkElement(link, "", nil))
		sentence += " " + link
	}
	return Message{Text: fallback(sentence), Blocks: []slack.Block{slack.NewRichTextBlock("", slack.NewRichTextSection(run...))}}
}

// Escape makes plain text fit for the text of a message, where nothing in it
// mentions, links or formats.
func Escape(s string) string { return fallback(s) }

// EscapeMarkdown makes plain text fit for Markdown that is given to [Reply].
func EscapeMarkdown(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r':
			r = ' '
		case r < 0x80 && strings.ContainsRune("\\`*_{}[]()#+-.!|~<>&:@\"'=$%^/;,?", r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Plain is the text of a message's blocks as people read it, a line for each
// part; for where the blocks themselves were refused.
func Plain(blocks []slack.Block) string {
	raw, err := json.Marshal(blocks)
	if err != nil {
		return ""
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return ""
	}
	var b strings.Builder
	plainOf(&b, v)
	return strings.TrimSpace(b.String())
}

// dates are moments in mrkdwn, with what is shown of them elsewhere.
var dates = regexp.MustCompile(`<!date\^[0-9]+\^[^|>]*\|([^>]*)>`)

func plainOf(b *strings.Builder, v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			plainOf(b, e)
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		switch kind {
		case "actions", "input", "divider":
			return
		case "plan", "task_card":
			s, _ := v["title"].(string)
			b.WriteString(s + "\n")
			plainOf(b, v["tasks"])
			return
		case "link":
			s, _ := v["url"].(string)
			b.WriteString(s)
			return
		case "date":
			s, _ := v["fallback"].(string)
			b.WriteString(s)
			return
		case slack.MarkdownType:
			s, _ := v["text"].(string)
			b.WriteString(dates.ReplaceAllString(s, "$1") + "\n")
			return
		}
		switch t := v["text"].(type) {
		case string:
			b.WriteString(t)
			if kind != "text" {
				b.WriteByte('\n')
			}
		case map[string]any:
			plainOf(b, t)
		}
		for _, key := range []string{"fields", "elements", "rows"} {
			plainOf(b, v[key])
		}
		if strings.HasPrefix(kind, "rich_text") && kind != "rich_text" && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
	}
}

// CodeOf finds the command on a card that was posted; false when it is not there
// as a whole.
func CodeOf(blocks []slack.Block) (string, bool) {
	for _, b := range blocks {
		rt, ok := b.(*slack.RichTextBlock)
		if !ok || rt.BlockID != codeBlock {
			continue
		}
		var s strings.Builder
		for _, e := range rt.Elements {
			pre, ok := e.(*slack.RichTextPreformatted)
			if !ok {
				return "", false
			}
			for _, t := range pre.Elements {
				text, ok := t.(*slack.RichTextSectionTextElement)
				if !ok {
					return "", false
				}
				s.WriteString(text.Text)
			}
		}
		return s.String(), true
	}
	return "", false
}
