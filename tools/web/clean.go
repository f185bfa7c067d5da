package web

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark follows text whose end was cut.
const mark = "...[truncated]"

// maxLines is the most lines of a page.
const maxLines = 2000

// clean makes text of what came from outside: newlines of one kind, invalid bytes
// replaced by U+FFFD, and nothing that a reader cannot see (control characters,
// zero-width and bidirectional ones, tags, private and unassigned characters),
// because a model reads those and a person does not.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || unseen(r) }) {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			b.WriteByte('\n')
		case r == '\n' || r == '\t' || !unseen(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unseen(r rune) bool {
	if r < utf8.RuneSelf {
		return (r < ' ' && r != '\n' && r != '\t') || r == 0x7f
	}
	if unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || r >= 0xE0100 && r <= 0xE01EF {
		return true // fillers, and variation selectors that can carry bytes
	}
	return !unicode.IsGraphic(r) // Cc, Cf, Co, Cs, Cn, Zl, Zp
}

// line makes one line of a text, of n characters at most.
func line(s string, n int) string {
	s = strings.Join(strings.Fields(clean(s)), " ")
	count := 0
	for i := range s {
		if count == n {
			return strings.TrimSpace(s[:i]) + "..."
		}
		count++
	}
	return s
}

// cutBytes keeps n bytes and [maxLines] lines at most, whichever is less, without
// cutting a character in two, and says when it cut.
func cutBytes(s string, n int) string {
	end := len(s)
	if end > n {
		end = n
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
	}
	lines := 0
	for i := range end {
		if s[i] != '\n' {
			continue
		}
		if lines++; lines == maxLines && i+1 < len(s) {
			return s[:i] + "\n" + mark
		}
	}
	if end == len(s) {
		return s
	}
	return s[:end] + mark
}
