// Package foreign holds what is the same for all tools that come from elsewhere, be it
// a program that the operator wrote (tools/plugin) or a server of other people
// (tools/mcp): their texts, names, schemas and files made fit to be shown, their
// programs started, ended and started again, and what these write on the side logged.
//
// Nothing here believes a word of what it is given: what a person cannot see is taken
// out, and refused where taking it out would change what is meant; everything has a
// bound. It speaks no protocol, holds no tools, and decides neither a level nor whether
// a call may run. It does not confine a program.
package foreign

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"countersign/approvals/risk"
	"countersign/tools"
)

// escapes finds terminal control sequences (ECMA-48: CSI and OSC), so that their
// printable rest does not stay behind.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?)")

// Exact reports whether a reader sees each character of a text for what it is. It is
// for names and values, which have to stay as they are.
func Exact(s string) bool {
	_, changed := risk.Visible(s)
	return !changed
}

// Clean makes text of foreign bytes: newlines of one kind, plain blanks, U+FFFD for
// each byte that is no UTF-8, and nothing that a model reads and a person does not see
// (see [risk.Visible]).
func Clean(s string) string {
	if Exact(s) {
		return s
	}
	s = strings.ReplaceAll(escapes.ReplaceAllString(s, ""), "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			b.WriteByte('\n')
		case r == utf8.RuneError || Exact(string(r)): // U+FFFD is there for people to see
			b.WriteRune(r)
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// Text is Clean without blanks around it, cut to most bytes. It says when it cut, in 6
// bytes more.
func Text(s string, most int) string {
	s = strings.TrimSpace(Clean(s))
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.TrimSpace(strings.TrimSpace(s[:most]) + " [cut]")
}

// Line makes one line of a foreign text, of n characters at most and a mark.
func Line(s string, n int) string {
	return tools.TruncateHead(strings.Join(strings.Fields(Clean(s)), " "), n)
}

// Quote quotes a foreign name for a sentence.
func Quote(s string) string { return tools.Quote(Line(s, 128)) }

// MaxName is the length in bytes of the longest name that a tool can have; models take
// no longer ones.
const MaxName = 64

var toolName = regexp.MustCompile(fmt.Sprintf(`^[a-zA-Z0-9_-]{1,%d}$`, MaxName))

// Name reports whether a text can be the name of a tool: 1 to 64 letters, digits,
// dashes and underscores.
func Name(s string) bool { return toolName.MatchString(s) }

// Spelling is the form in which two names count as the same: the registry takes dashes
// for underscores, and people do not see the case of a letter.
func Spelling(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "_")) }

// kinds are the media types that files may have, with their endings.
// mime.ExtensionsByType answers differently on each machine.
var kinds = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"application/pdf": ".pdf", "application/json": ".json", "application/zip": ".zip", "application/gzip": ".gz",
	"text/plain": ".txt", "text/csv": ".csv", "text/html": ".html",
	"audio/mpeg": ".mp3", "audio/wav": ".wav", "audio/ogg": ".ogg", "video/mp4": ".mp4",
}

// Kind makes a media type of what a tool says of a file, and the ending that goes with
// it. What is not known is application/octet-stream and ".bin".
func Kind(says string) (kind, ending string) {
	kind, _, _ = strings.Cut(says, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if ending, ok := kinds[kind]; ok {
		return kind, ending
	}
	return "application/octet-stream", ".bin"
}

// FileName keeps the last part of a file's name, in plain characters, 80 at most and
// without a dot in front; "" means that nothing is left.
func FileName(s string) string {
	s = s[strings.LastIndexAny(s, `/\`)+1:]
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '.' || Name(string(r)):
			return r
		case r == ' ':
			return '_'
		}
		return -1
	}, s)
	s = s[max(0, len(s)-80):] // the end has the extension
	return strings.TrimLeft(s, ".-")
}
