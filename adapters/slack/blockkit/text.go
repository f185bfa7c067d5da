package blockkit

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/slack-go/slack"

	"countersign/adapters/chat/visible"
)

// utf16Len counts UTF-16 units, the largest of the ways to count characters.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

// clip cuts s to n UTF-16 units at most, with an ellipsis where it was cut.
func clip(s string, n int) string {
	if utf16Len(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		w := 1
		if r > 0xFFFF {
			w = 2
		}
		if used += w; used > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// plain is a plain_text object of visible text, cut with an ellipsis; callers
// that may not cut see to it that it fits. Slack refuses an empty one.
func plain(s string, limit int) *slack.TextBlockObject {
	s = clip(visible.Text(s), limit)
	if strings.TrimSpace(s) == "" {
		s = "-"
	}
	return slack.NewTextBlockObject(slack.PlainTextType, s, false, false)
}

var (
	escapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	// Slack's own words that call everybody, in case names are looked for; also
	// at the beginning of a longer word, which may be cut there.
	calls = regexp.MustCompile(`(?i)@(channel|here|everyone|group)`)
)

// fallback makes a message's text field: the only place that Slack parses as
// mrkdwn. It is an abstract and ends with an ellipsis where it was cut.
func fallback(s string) string {
	s = calls.ReplaceAllString(visible.Text(s), "@ $1")
	if t := strings.TrimSpace(s); t != "" {
		s = t
	} else {
		s = "(no text)"
	}
	for n := MaxText; ; n = n * 3 / 4 {
		if e := escapes.Replace(clip(s, n)); utf16Len(e) <= MaxText {
			return e
		}
	}
}

// jsonSize is how many bytes v takes as JSON, as Slack sees it.
func jsonSize(v any) int {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // Slack decodes the escapes that the client adds
	if err := e.Encode(v); err != nil {
		return MaxMessageJSON + 1 // can't be sent: let it fit nowhere
	}
	return b.Len() - 1
}

// quoted is how many bytes s takes inside a JSON string.
func quoted(s string) int { return jsonSize(s) - 2 }

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
