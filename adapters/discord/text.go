package discord

import "strings"

// escape is text that Markdown shows as it is, on one line.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r':
			r = ' '
		case r < 0x80 && strings.ContainsRune("\\`*_{}[]()#+-.!|~<>&:@\"'=$%^/;,?", r):
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// fence is a Markdown code block with s in it.
func fence(s string) string {
	ticks := "```"
	for strings.Contains(s, ticks) {
		ticks += "`"
	}
	return ticks + "\n" + s + "\n" + ticks
}
