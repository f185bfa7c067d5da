// Package foreign holds what all tools of external programs share: those of programs that the
// operator wrote (tools/plugin) and of other people's servers (tools/mcp). It sanitizes their
// texts, names, schemas and files, starts, stops and restarts their programs, and logs what they
// write to stderr.
//
// Nothing here trusts its input: invisible characters are removed, or refused where removing them
// would change the meaning; everything is bounded. The package speaks no protocol, holds no tools,
// and decides neither levels nor whether a call may run. It does not confine programs.
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

// escapes matches terminal control sequences (ECMA-48: CSI and OSC), so that their printable part
// is removed too.
var escapes = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?)")

// IsVisible reports whether every character of s appears as what it is. It is for names and values,
// which must not be changed.
func IsVisible(s string) bool {
	_, changed := risk.Visible(s)
	return !changed
}

// Clean returns s with "\n" newlines, plain spaces, U+FFFD for each byte that is not UTF-8, and
// without characters that a model reads but a person does not see (see [risk.Visible]).
func Clean(s string) string {
	if IsVisible(s) {
		return s
	}
	s = strings.ReplaceAll(escapes.ReplaceAllString(s, ""), "\r\n", "\n")
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\r' || r == '\u2028' || r == '\u2029' || r == '\u0085':
			b.WriteByte('\n')
		case r == utf8.RuneError || IsVisible(string(r)): // U+FFFD is meant to be seen
			b.WriteRune(r)
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// Text is Clean with surrounding space trimmed, cut to most bytes. A cut adds a mark of 6 more
// bytes.
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

// Line returns s as one line of at most n characters and an ellipsis.
func Line(s string, n int) string {
	return tools.TruncateHead(strings.Join(strings.Fields(Clean(s)), " "), n)
}

// Quote quotes a foreign name for use in a sentence.
func Quote(s string) string { return tools.Quote(Line(s, 128)) }

// MaxName is the longest tool name that models accept, in bytes.
const MaxName = 64

var toolName = regexp.MustCompile(fmt.Sprintf(`^[a-zA-Z0-9_-]{1,%d}$`, MaxName))

// IsToolName reports whether s is a valid tool name: 1 to 64 letters, digits, dashes and
// underscores.
func IsToolName(s string) bool { return toolName.MatchString(s) }

// FoldName returns the form in which two names count as equal: the registry takes dashes for
// underscores, and people overlook the case of a letter.
func FoldName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "_")) }

// extensions maps the media types that files may have to their extensions. mime.ExtensionsByType
// depends on the machine.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
	"application/pdf": ".pdf", "application/json": ".json", "application/zip": ".zip", "application/gzip": ".gz",
	"text/plain": ".txt", "text/csv": ".csv", "text/html": ".html",
	"audio/mpeg": ".mp3", "audio/wav": ".wav", "audio/ogg": ".ogg", "video/mp4": ".mp4",
}

// MediaType returns the known media type that a tool declared for a file, and its extension;
// otherwise application/octet-stream and ".bin".
func MediaType(says string) (kind, ending string) {
	kind, _, _ = strings.Cut(says, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	if ending, ok := extensions[kind]; ok {
		return kind, ending
	}
	return "application/octet-stream", ".bin"
}

// FileName returns the last element of a path in plain characters, at most 80 and without a leading
// dot; "" if nothing is left.
func FileName(s string) string {
	s = s[strings.LastIndexAny(s, `/\`)+1:]
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '.' || IsToolName(string(r)):
			return r
		case r == ' ':
			return '_'
		}
		return -1
	}, s)
	s = s[max(0, len(s)-80):] // keep the end, which has the extension
	return strings.TrimLeft(s, ".-")
}
