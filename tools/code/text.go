package code

import (
	"strings"
	"unicode/utf8"
)

// displayLine returns a line of a file for display: valid UTF-8, white space unchanged, at most n
// bytes and then an ellipsis.
func displayLine(b []byte, n int) string {
	cut := len(b) > n
	if cut {
		b = b[:n]
	}
	s := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSuffix(string(b), "\r"), "\uFFFD"))
	if cut {
		s += "..."
	}
	return s
}
