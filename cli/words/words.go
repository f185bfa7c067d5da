// Package words is what the commands' sentences share.
package words

import (
	"strconv"
	"strings"
	"time"
)

// Plural is a count of things: "1 row", "2 rows".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Brief writes a time without its empty units: 15m, not 15m0s; "" for none.
func Brief(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Printable is text from elsewhere as a part of one line.
func Printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, " ")))
}
