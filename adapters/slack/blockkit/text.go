package blockkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slack-go/slack"
)

// emojiSelector asks for the coloured form of the character before it. Dropping
// it changes a picture, never a word.
const emojiSelector = "\uFE0F"

// visible is text for people: hidden characters are shown as escapes.
func visible(s string) string {
	return visibleCode(strings.ReplaceAll(s, emojiSelector, ""))
}

// visibleCode is visible without an exception: all but newlines, tabs and
// printable characters becomes an escape.
func visibleCode(s string) string {
	clean := true
	for i := range len(s) {
		if c := s[i]; c != '\n' && c != '\t' && (c < ' ' || c >= 0x7f) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1, r == 0x7f, r < ' ' && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case hidden(r):
			fmt.Fprintf(&b, `\u{%04X}`, r)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// hidden reports whether a reader can't see a rune above ASCII for what it is.
// Spaces of other widths stay: they look like the spaces that they are.
func hidden(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return false
	case !unicode.IsGraphic(r), unicode.In(r, unicode.Cf, unicode.Co, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return true
	}
	return r == 0x2800 || r == 0xFFFC // the Braille blank, the object replacement
}

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
	s = clip(visible(s), limit)
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
	s = calls.ReplaceAllString(visible(s), "@ $1")
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
