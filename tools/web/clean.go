package web

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark follows text whose end was cut.
const mark = "...[truncated]"

// maxLines is the maximum number of lines of a page.
const maxLines = 2000

// sanitize returns foreign text with "\n" newlines, U+FFFD for invalid bytes, and without
// characters that a model reads but a person cannot see (control, zero-width, bidirectional, tag,
// private-use and unassigned characters).
func sanitize(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || isInvisible(r) }) {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			b.WriteByte('\n')
		case r == '\n' || r == '\t' || !isInvisible(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isInvisible(r rune) bool {
	if r < utf8.RuneSelf {
		return (r < ' ' && r != '\n' && r != '\t') || r == 0x7f
	}
	if unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || r >= 0xE0100 && r <= 0xE01EF {
		return true // fillers, and variation selectors that can encode data
	}
	return !unicode.IsGraphic(r) // Cc, Cf, Co, Cs, Cn, Zl, Zp
}

// line returns a text as one line of at most n characters.
func line(s string, n int) string {
	s = strings.Join(strings.Fields(sanitize(s)), " ")
	count := 0
	for i := range s {
		if count == n {
			return strings.TrimSpace(s[:i]) + "..."
		}
		count++
	}
	return s
}

// cutBytes keeps at most n bytes and [maxLines] lines, without splitting a character, and marks a
// cut.
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
