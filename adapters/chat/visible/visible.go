// Package visible makes the invisible in text for people visible: what hides in a
// command must not hide on its card, whatever network shows it.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EmojiSelector asks for the coloured form of the character before it. Dropping
// it changes a picture, never a word.
const EmojiSelector = "\uFE0F"

// joiner makes one picture of two.
const joiner = '\u200D'

// Text is text for people: hidden characters are shown as escapes, but what joins two pictures.
func Text(s string) string { return shown(strings.ReplaceAll(s, EmojiSelector, ""), true) }

// Code is Text without an exception: all but newlines, tabs and
// printable characters becomes an escape.
func Code(s string) string { return shown(s, false) }

// isPicture reports whether a rune is a picture that others can be joined with, or its colour of skin.
func isPicture(r rune) bool {
	return r >= 0x1F000 && r < 0x1FB00 && unicode.In(r, unicode.So, unicode.Sk) || strings.ContainsRune("♀♂⚕⚖⚧✈❤➡↔↕⬛", r)
}

func shown(s string, pictures bool) string {
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
	var last rune
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		next, _ := utf8.DecodeRuneInString(s[i+n:])
		switch {
		case pictures && r == joiner && isPicture(last) && isPicture(next):
			b.WriteRune(r)
		case r == utf8.RuneError && n <= 1, r == 0x7f, r < ' ' && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case Hidden(r):
			fmt.Fprintf(&b, `\u{%04X}`, r)
		default:
			b.WriteRune(r)
		}
		i += n
		last = r
	}
	return b.String()
}

// Hidden reports whether a reader can't see a rune above ASCII for what it is.
// Spaces of other widths stay: they look like the spaces that they are.
func Hidden(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return false
	case !unicode.IsGraphic(r), unicode.In(r, unicode.Cf, unicode.Co, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return true
	}
	return r == 0x2800 || r == 0xFFFC // the Braille blank, the object replacement
}

// Below is the text of a labelled line with other such lines below it: only a label
// begins a line.
func Below(s string) string { return strings.ReplaceAll(s, "\n", "\n    ") }

// Line is a text in one line, of at most 100 characters, for a list or the end of a sentence.
func Line(s string) string {
	s = strings.Join(strings.Fields(Text(s)), " ")
	if r := []rune(s); len(r) > 100 {
		s = string(r[:100]) + "…"
	}
	return s
}
