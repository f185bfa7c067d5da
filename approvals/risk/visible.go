package risk

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible escapes what a reader cannot see. Control, zero-width and bidirectional characters, blanks
// other than the plain space, tags, variation selectors, private and unassigned characters become
// \u{200B}; bytes that are not UTF-8 become \x80. Newlines, tabs and printable letters of every script
// stay. It reports whether anything was escaped.
//
// The output cannot be told from a text that contains such escapes literally. It is for people to
// read, not to be parsed.
func Visible(s string) (out string, changed bool) {
	clean := true
	for i := range len(s) {
		if c := s[i]; c != '\n' && c != '\t' && (c < ' ' || c >= 0x7f) {
			clean = false
			break
		}
	}
	if clean {
		return s, false
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n <= 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
			changed = true
		case r == '\n' || r == '\t' || !hidden(r):
			b.WriteRune(r)
		default:
			b.WriteString(visibleRune(r))
			changed = true
		}
		i += n
	}
	return b.String(), changed
}

// hidden reports whether a reader cannot recognise a rune.
func hidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	switch {
	case !unicode.IsGraphic(r), unicode.Is(unicode.Zs, r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Co, r):
		return true
	case unicode.Is(unicode.Variation_Selector, r), unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
		return true // Hangul fillers, combining grapheme joiner, Khmer vowels
	case r == 0x2800 || r == 0xFFFC || r == 0xFFFD: // Braille blank, object and replacement characters
		return true
	}
	return false
}

func visibleRune(r rune) string {
	if r < 0x80 {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return fmt.Sprintf(`\u{%04X}`, r)
}

// NonASCII returns the distinct printable characters of a text outside plain ASCII, in order of
// appearance. A card warns of them, because letters of other scripts can look like Latin ones.
func NonASCII(s string) []rune {
	var out []rune
	seen := map[rune]bool{}
	for _, r := range s {
		if r >= utf8.RuneSelf && !hidden(r) && !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}
