package embed

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/adapters/chat/visible"
)

// always are the characters that Discord's Markdown may read as markup wherever
// they stand: marks, links, spoilers, and what stands in angle brackets: mentions,
// custom emoji, times.
const always = "\\*_~|`<>[]"

// calls are the words behind an @ that call people.
var calls = regexp.MustCompile(`(?i)^(everyone|here)`)

// escape makes visible text that Discord shows as it is. Discord takes a
// backslash before any character but letters, digits and spaces for an escape.
func escape(s string) string {
	var b strings.Builder
	const (
		start  = iota // of a line, or spaces after it
		digits        // at the start of a line
		inside
	)
	at := start
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		n := i + size
		next, _ := utf8.DecodeRuneInString(s[n:])
		call := r == '@' && calls.MatchString(s[n:])
		switch {
		case strings.ContainsRune(always, r), call, r == '@' && n == len(s),
			// :name: is an emoji, and :// makes an address a link. At the end of s
			// nobody knows what follows.
			r == ':' && (n == len(s) || !unicode.IsSpace(next)),
			// Headings, small text and lists.
			at == start && (r == '#' || r == '-' || r == '+'),
			at == digits && (r == '.' || r == ')'):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
		if call {
			b.WriteByte(' ')
		}
		switch {
		case r == '\n':
			at = start
		case at == start && unicode.IsSpace(r):
		case at != inside && r >= '0' && r <= '9':
			at = digits
		default:
			at = inside
		}
		i = n
	}
	return b.String()
}

// unescape is the text that escape made s from, but for the space in a call.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

var anyCall = regexp.MustCompile(`(?i)@(everyone|here)`)

// uncalled is visible text for where Discord parses nothing, without words that
// call everybody.
func uncalled(s string) string { return anyCall.ReplaceAllString(s, "@ $1") }

// fenceable is visible code that can't close a code block, and that has more than
// line breaks, which alone make none.
func fenceable(s string) string {
	if s = visible.Code(s); s != "" && strings.Trim(s, "\n") == "" {
		return strings.Repeat(`\x0a`, len(s))
	}
	return strings.ReplaceAll(s, "```", "``\\x60")
}

// fence shows fenceable text in a code block. The line break after the opening
// fence keeps Discord from taking the first word for a language. Without anything
// but line breaks Discord would show the fence itself.
func fence(lang, s string) string {
	if strings.Trim(s, "\n") == "" {
		s = " "
	}
	return "```" + lang + "\n" + s + "\n```"
}

// codeSpan shows visible text in a code span, or returns false for one with
// backticks that no code span can hold.
func codeSpan(s string) (string, bool) {
	s = strings.ReplaceAll(s, "\n", " ")
	var one, two bool
	for i := 0; i < len(s); {
		n := 0
		for i+n < len(s) && s[i+n] == '`' {
			n++
		}
		one, two = one || n == 1, two || n == 2
		if n > 2 { // would be read as a code block
			return "", false
		}
		i += max(n, 1)
	}
	mark := "`"
	switch {
	case one && two, s == "":
		return "", false
	case one:
		mark = "``"
	}
	if s[0] == '`' || s[len(s)-1] == '`' {
		s = " " + s + " " // Discord removes these
	}
	return mark + s + mark, true
}

// utf16Len counts UTF-16 units, the largest of the ways to count characters.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += units(r)
	}
	return n
}

func units(r rune) int {
	if r > 0xFFFF {
		return 2
	}
	return 1
}

// clip cuts s to n UTF-16 units at most, with an ellipsis where it was cut.
func clip(s string, n int) string {
	if utf16Len(s) <= n {
		return s
	}
	return prefix(s, n-1) + "…"
}

// prefix is the longest beginning of s of n UTF-16 units at most.
func prefix(s string, n int) string {
	used := 0
	for i, r := range s {
		if used += units(r); used > n {
			return s[:i]
		}
	}
	return s
}

// suffix is the longest end of s of n UTF-16 units at most.
func suffix(s string, n int) string {
	at := len(s)
	for used := 0; at > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:at])
		if used += units(r); used > n {
			break
		}
		at -= size
	}
	return s[at:]
}

// escapedPrefix is the longest beginning of s that takes n UTF-16 units at most
// when it is escaped.
func escapedPrefix(s string, n int) string {
	s = prefix(s, n)
	for over := utf16Len(escape(s)) - n; over > 0; over = utf16Len(escape(s)) - n {
		// A character takes three units at most, an @ with its space.
		s = prefix(s, max(utf16Len(s)-max(over/3, 1), 0))
	}
	return s
}

// clipEscaped is escaped visible text of n UTF-16 units at most, with an ellipsis
// where it was cut.
func clipEscaped(s string, n int) string {
	if e := escape(s); utf16Len(e) <= n {
		return e
	}
	return escape(escapedPrefix(s, n-1)) + "…"
}
