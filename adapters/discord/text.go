package discord

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"countersign/adapters/chat/visible"
)

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

// reference is what Discord writes for things that have a name in a message and none
// elsewhere: people, roles, channels, commands, times, pages of the server and emoji
// (docs.discord.com/developers/reference, "Message Formatting").
var reference = regexp.MustCompile(`<(?:(@!?|@&|#)[0-9]{1,20}|/([^<>:]{1,100}):[0-9]{1,20}|t:(-?[0-9]{1,12})(?::[A-Za-z])?|id:([a-z-]{1,40})|a?(:[A-Za-z0-9_]{1,32}:)[0-9]{1,20})>`)

// threadName is one line as the name of a thread, of limit characters at most. Discord
// shows a name as it is: hidden characters are made visible, and references are words.
func threadName(line string, limit int) string {
	line = reference.ReplaceAllStringFunc(line, func(s string) string {
		p := reference.FindStringSubmatch(s)
		switch {
		case p[1] == "#":
			return "#channel"
		case p[1] == "@&":
			return "@role"
		case p[1] != "":
			return "@someone"
		case p[2] != "":
			return "/" + p[2]
		case p[4] != "":
			return p[4]
		case p[5] != "":
			return p[5]
		}
		at, err := strconv.ParseInt(p[3], 10, 64)
		if err != nil {
			return s
		}
		return time.Unix(at, 0).UTC().Format("2006-01-02 15:04 UTC")
	})
	line = strings.Join(strings.Fields(visible.Text(strings.Map(printable, line))), " ")
	if r := []rune(line); len(r) > limit {
		line = strings.TrimSpace(string(r[:limit-1])) + "…"
	}
	return line
}

// printable drops what has no place in a name.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
