package code

import (
	"strings"
	"unicode/utf8"
)

// shown makes one line of a file what is shown of it: valid characters, blanks as they
// are, at most n bytes and a mark.
func shown(b []byte, n int) string {
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
