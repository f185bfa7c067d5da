package code

import (
	"strings"
	"unicode/utf8"
)

// one makes foreign text one line of valid characters, at most n bytes and a mark.
func one(s string, n int) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			space = b.Len() > 0
			continue
		case r < ' ' || r == 0x7f:
			r = utf8.RuneError
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		if b.Len()+utf8.RuneLen(r) > n {
			b.WriteString("...")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

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
