package tmux

import (
	"strconv"
	"strings"
)

// quote makes s one argument of a tmux command line: bytes that mean something to tmux's
// parser become octal escapes. NUL cannot be sent and is left out.
func quote(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 8)
	b.WriteByte('"')
	for i := range len(s) {
		c := s[i]
		switch {
		case c == 0:
		case c < ' ' || c > '~' || strings.IndexByte(`"\$~;#{}`, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte('0' + c>>6)
			b.WriteByte('0' + c>>3&7)
			b.WriteByte('0' + c&7)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// shellQuote makes s one word of a POSIX shell.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// shellWord quotes s only if it has to be quoted, since people read it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r == '/' || r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return shellQuote(s)
}

// escapeFormat keeps tmux from expanding s as a format.
func escapeFormat(s string) string { return strings.ReplaceAll(s, "#", "##") }

// hexKeys returns the send-keys command that types bytes as they are.
func hexKeys(pane int, b []byte) string {
	const digits = "0123456789abcdef"
	line := make([]byte, 0, 32+3*len(b))
	line = append(line, "send-keys -t %"...)
	line = strconv.AppendInt(line, int64(pane), 10)
	line = append(line, " -H"...)
	for _, c := range b {
		line = append(line, ' ', digits[c>>4], digits[c&15])
	}
	return string(line)
}

// paneNumber parses "%12".
func paneNumber(id string) (int, bool) {
	rest, ok := strings.CutPrefix(id, "%")
	n, err := strconv.Atoi(rest)
	return n, ok && err == nil && n >= 0
}

func paneName(n int) string { return "%" + strconv.Itoa(n) }
