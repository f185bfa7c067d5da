package slack

import (
	"context"
	"regexp"
	"strings"
)

// entity is what Slack writes for mentions, links and dates in a message's
// text: <@U1>, <#C1|name>, <!here>, <https://x|label>.
var entity = regexp.MustCompile(`<([^<>]*)>`)

var unescape = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")

// plain turns a message's text into what its writer saw. bot is our own user
// id: a mention of it at the beginning is an address, not content.
func plain(text, bot, name string) string {
	t := strings.TrimLeft(text, " \t\n")
	for {
		rest, ok := strings.CutPrefix(t, "<@"+bot+">")
		if !ok {
			if r, named := strings.CutPrefix(t, "<@"+bot+"|"); named {
				if _, after, closed := strings.Cut(r, ">"); closed {
					rest, ok = after, true
				}
			}
		}
		if !ok || bot == "" {
			break
		}
		t = strings.TrimLeft(rest, " \t\n:,")
	}
	if t == strings.TrimLeft(text, " \t\n") {
		t = text
	}
	t = entity.ReplaceAllStringFunc(t, func(e string) string { return shown(e[1:len(e)-1], bot, name) })
	return unescape.Replace(t)
}

// shown is what people see for one entity; its text is still escaped.
func shown(e, bot, name string) string {
	target, label, labelled := strings.Cut(e, "|")
	if target == "" {
		return "<" + e + ">"
	}
	switch target[0] {
	case '@':
		if target[1:] == bot && name != "" {
			return "@" + name
		}
		if labelled {
			return "@" + label
		}
		return target
	case '#':
		if labelled && label != "" {
			return "#" + label
		}
		return target
	case '!':
		if labelled {
			return label
		}
		return "@" + strings.TrimPrefix(target, "!")
	}
	target = strings.TrimPrefix(target, "mailto:")
	target = strings.TrimPrefix(target, "tel:")
	if !labelled || label == "" || label == target || "http://"+label == target || "https://"+label == target {
		return target
	}
	return label + " (" + target + ")"
}

// someone is the mention of a person without a name.
var someone = regexp.MustCompile(`<@([UW][A-Z0-9]{2,30})>`)

// maxNamed bounds how many people of one message are looked up.
const maxNamed = 10

// named gives the people whom a message mentions their names, as readers see them.
func (a *Adapter) named(ctx context.Context, text string) string {
	left := maxNamed
	return someone.ReplaceAllStringFunc(text, func(m string) string {
		id := m[2 : len(m)-1]
		if left--; left < 0 || id == a.self().user {
			return m
		}
		name := a.people.name(ctx, id)
		return "<@" + id + "|" + strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", " ").Replace(name) + ">"
	})
}

// mentions reports whether text addresses the user.
func mentions(text, user string) bool {
	return user != "" && (strings.Contains(text, "<@"+user+">") || strings.Contains(text, "<@"+user+"|"))
}

// alertText is the text of a message from an alerting bot, which often stands
// in its attachments alone.
func alertText(text string, attachments []attachment) string {
	parts := []string{}
	if text != "" {
		parts = append(parts, text)
	}
	for _, a := range attachments {
		if a.forwarded() {
			continue
		}
		for _, s := range []string{a.Pretext, a.Title, a.Text} {
			if s != "" {
				parts = append(parts, s)
			}
		}
		for _, f := range a.Fields {
			parts = append(parts, strings.TrimSpace(f.Title+": "+f.Value))
		}
		if a.Title == "" && a.Text == "" && len(a.Fields) == 0 && a.Fallback != "" {
			parts = append(parts, a.Fallback)
		}
	}
	return strings.Join(parts, "\n")
}
