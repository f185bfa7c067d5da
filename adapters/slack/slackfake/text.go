package slackfake

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// unescape turns the three entities of Slack's text back into characters.
func unescape(t string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(t)
}

// angle finds everything between angle brackets, which is how links and mentions are written in mrkdwn.
var angle = regexp.MustCompile(`<([^<>\n]*)>`)

// readable turns mrkdwn into what people read: labels in the place of links and mentions, and no entities. Marks such as *bold*
// stay as they are.
func readable(t string) string {
	t = angle.ReplaceAllStringFunc(t, func(m string) string {
		body, label, labelled := strings.Cut(m[1:len(m)-1], "|")
		switch {
		case body == "":
			return m
		case labelled && label != "":
			return label
		case strings.HasPrefix(body, "!subteam^"):
			return "@" + body[len("!subteam^"):]
		case body[0] == '!':
			return "@" + body[1:]
		default:
			return body
		}
	})
	return unescape(t)
}

// Plain renders blocks to the text that a person would read, one line for each part: mrkdwn with labels for links and mentions,
// buttons as [Text], inputs as their label, table cells between bars. It is for tests that look for words; it keeps marks such as
// *bold* and shows what is unknown as nothing.
func Plain(blocks json.RawMessage) string {
	got, err := decode(string(blocks))
	if err != nil {
		return ""
	}
	list, _ := got.([]any)
	var lines []string
	for _, b := range list {
		if m, isMap := b.(map[string]any); isMap {
			lines = append(lines, plainBlock(m)...)
		}
	}
	return strings.Join(lines, "\n")
}

// Plain returns what people read of a message: its blocks, or its text when there are none.
func (m Msg) Plain() string {
	if m.Blocks != nil {
		return Plain(m.Blocks)
	}
	if m.NoMrkdwn {
		return unescape(m.Text)
	}
	return readable(m.Text)
}

func plainBlock(b map[string]any) (lines []string) {
	els, _ := b["elements"].([]any)
	add := func(t string) {
		if t != "" {
			lines = append(lines, t)
		}
	}
	switch b["type"] {
	case "divider":
		add("---")
	case "header":
		add(plainText(b["text"]))
	case "markdown":
		t, _ := b["text"].(string)
		add(readable(t))
	case "section":
		add(plainText(b["text"]))
		fields, _ := b["fields"].([]any)
		for _, f := range fields {
			add(plainText(f))
		}
		add(plainElement(b["accessory"]))
	case "context", "actions", "context_actions":
		var parts []string
		for _, e := range els {
			if p := plainElement(e); p != "" {
				parts = append(parts, p)
			}
		}
		add(strings.Join(parts, " "))
	case "image":
		alt, _ := b["alt_text"].(string)
		add(alt)
	case "input":
		add(plainText(b["label"]))
	case "rich_text":
		for _, e := range els {
			add(plainRich(e, ""))
		}
	case "table":
		rows, _ := b["rows"].([]any)
		for _, r := range rows {
			var cells []string
			cs, _ := r.([]any)
			for _, c := range cs {
				m, _ := c.(map[string]any)
				if m["type"] == "rich_text" {
					cells = append(cells, strings.Join(plainBlock(m), " "))
				} else {
					t, _ := m["text"].(string)
					cells = append(cells, t)
				}
			}
			add(strings.Join(cells, " | "))
		}
	case "alert", "card":
		for _, f := range []string{"title", "subtitle", "text", "body"} {
			add(plainText(b[f]))
		}
	case "task_card", "plan":
		t, _ := b["title"].(string)
		if status, _ := b["status"].(string); status != "" {
			t += " [" + status + "]"
		}
		add(t)
		tasks, _ := b["tasks"].([]any)
		for _, task := range tasks {
			m, _ := task.(map[string]any)
			lines = append(lines, plainBlock(map[string]any{"type": "task_card", "title": m["title"], "status": m["status"]})...)
		}
	}
	return lines
}

func plainText(v any) string {
	m, _ := v.(map[string]any)
	t, _ := m["text"].(string)
	if m["type"] == "mrkdwn" {
		return readable(t)
	}
	return t
}

func plainElement(v any) string {
	m, _ := v.(map[string]any)
	switch m["type"] {
	case "mrkdwn", "plain_text":
		return plainText(v)
	case "image":
		alt, _ := m["alt_text"].(string)
		return alt
	case "button", "workflow_button", "icon_button":
		return "[" + plainText(m["text"]) + "]"
	case "overflow":
		var all []string
		options, _ := m["options"].([]any)
		for _, o := range options {
			o, _ := o.(map[string]any)
			all = append(all, plainText(o["text"]))
		}
		return "[… " + strings.Join(all, " | ") + "]"
	default:
		return plainText(m["placeholder"])
	}
}

// plainRich renders an element of a rich_text block or a leaf of one.
func plainRich(v any, bullet string) string {
	m, _ := v.(map[string]any)
	els, _ := m["elements"].([]any)
	val := func(k string) string { s, _ := m[k].(string); return s }
	switch m["type"] {
	case "rich_text_list":
		var items []string
		for _, e := range els {
			items = append(items, plainRich(e, "- "))
		}
		return strings.Join(items, "\n")
	case "rich_text_section", "rich_text_preformatted", "rich_text_quote":
		var b strings.Builder
		b.WriteString(bullet)
		for _, e := range els {
			b.WriteString(plainRich(e, ""))
		}
		return b.String()
	case "text":
		return val("text")
	case "link":
		if t := val("text"); t != "" {
			return t
		}
		return val("url")
	case "user":
		return "@" + val("user_id")
	case "channel":
		return "#" + val("channel_id")
	case "usergroup":
		return "@" + val("usergroup_id")
	case "broadcast":
		return "@" + val("range")
	case "emoji":
		return ":" + val("name") + ":"
	case "date":
		return val("fallback")
	case "color":
		return val("value")
	}
	return ""
}

var (
	// scheme is what makes a target between angle brackets a link.
	scheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)
	// bareURL finds URLs that Slack links without being asked.
	bareURL = regexp.MustCompile(`(?i)\b(?:https?://|mailto:)[^\s<>|"]+`)
	// mdLink is a link or image of standard Markdown.
	mdLink = regexp.MustCompile(`\[([^\]\n]*)\]\(\s*<?([^)\s>]+)>?[^)\n]*\)`)
	// bareBroadcast finds words that are parsed as a mention of everybody where Slack parses names.
	bareBroadcast = regexp.MustCompile(`(?:^|[\s(])@(here|channel|everyone)\b`)
)

// Mentions lists everything in a message that Slack would make active: "user:U1", "channel:C1", "usergroup:S1", "broadcast:here" and
// "link:URL|visible text", sorted and each once. It errs on the side of active: text in code marks counts, and so does the text of
// a message with blocks, which notifications show.
//
// In mrkdwn these are the forms in angle brackets; URLs without them are active unless the post says parse=none or the text object
// says verbatim; @here and its like without brackets are active in text objects without verbatim, and with parse=full (docs:
// "Formatting message text", "Text object"). In plain_text and in the text of rich_text nothing is. A markdown block has Markdown's
// links and Slack's own forms.
func Mentions(msg Msg) []string {
	var out []string
	autoURLs := msg.Parse != "none"
	if msg.Text != "" {
		if msg.Chunks != nil { // Streamed text is Markdown.
			out = append(out, activeMarkdown(msg.Text)...)
		} else {
			out = append(out, active(msg.Text, autoURLs, msg.Parse == "full" || msg.Parse == "client")...)
		}
	}
	for _, raw := range append([]json.RawMessage{msg.Blocks, msg.Attachments}, msg.Chunks...) {
		if v, err := decode(string(raw)); err == nil {
			out = append(out, activeBlocks(v)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func active(t string, autoURLs, names bool) (out []string) {
	rest := angle.ReplaceAllStringFunc(t, func(m string) string {
		body, label, _ := strings.Cut(m[1:len(m)-1], "|")
		switch {
		case body == "":
			return m
		case body[0] == '@':
			kind := "user:"
			if strings.HasPrefix(body, "@S") {
				kind = "usergroup:"
			}
			out = append(out, kind+body[1:])
		case body[0] == '#':
			out = append(out, "channel:"+body[1:])
		case strings.HasPrefix(body, "!subteam^"):
			out = append(out, "usergroup:"+body[len("!subteam^"):])
		case strings.HasPrefix(body, "!date^"):
			if parts := strings.Split(body, "^"); len(parts) > 3 && parts[3] != "" {
				out = append(out, "link:"+unescape(parts[3])+"|"+unescape(label))
			}
		case body[0] == '!':
			out = append(out, "broadcast:"+body[1:])
		case scheme.MatchString(body):
			if label == "" {
				label = body
			}
			out = append(out, "link:"+unescape(body)+"|"+unescape(label))
		default:
			return m
		}
		return " "
	})
	if autoURLs {
		for _, u := range bareURL.FindAllString(rest, -1) {
			u = unescape(strings.TrimRight(u, ".,;:!?)'`*_~"))
			out = append(out, "link:"+u+"|"+u)
		}
	}
	if names {
		for _, m := range bareBroadcast.FindAllStringSubmatch(rest, -1) {
			out = append(out, "broadcast:"+m[1])
		}
	}
	return out
}

func activeMarkdown(t string) (out []string) {
	rest := mdLink.ReplaceAllStringFunc(t, func(m string) string {
		p := mdLink.FindStringSubmatch(m)
		out = append(out, "link:"+p[2]+"|"+p[1])
		return " "
	})
	return append(out, active(rest, true, false)...)
}

// activeBlocks walks blocks, attachments or a chunk.
func activeBlocks(v any) (out []string) {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			out = append(out, activeBlocks(e)...)
		}
	case map[string]any:
		val := func(k string) string { s, _ := x[k].(string); return s }
		switch x["type"] {
		case "mrkdwn":
			verbatim, _ := x["verbatim"].(bool)
			return active(val("text"), !verbatim, !verbatim)
		case "markdown", "markdown_text":
			return activeMarkdown(val("text"))
		case "user":
			return []string{"user:" + val("user_id")}
		case "channel":
			return []string{"channel:" + val("channel_id")}
		case "usergroup":
			return []string{"usergroup:" + val("usergroup_id")}
		case "broadcast":
			return []string{"broadcast:" + val("range")}
		case "link", "date":
			if u := val("url"); u != "" {
				label := val("text")
				if label == "" {
					label = u
				}
				out = append(out, "link:"+u+"|"+label)
			}
		case "button":
			if u := val("url"); u != "" {
				out = append(out, "link:"+u+"|"+plainText(x["text"]))
			}
		}
		for k, e := range x {
			if k != "metadata" {
				out = append(out, activeBlocks(e)...)
			}
		}
	}
	return out
}
