package report

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"countersign/adapters/chat"
	"countersign/adapters/chat/visible"
	"countersign/internal/redact"
)

// What one line shows at most, in characters.
const (
	maxSaid    = 200 // of what somebody wrote
	maxCommand = 200 // of a command; a longer one stands whole in the appendix
	maxName    = 60  // of a name, a tool, a target
)

// writer turns what others wrote into Markdown that shows it and does nothing else.
type writer struct{ r *redact.Redactor }

// clean takes out secrets, before anything is cut: no half of one may stay.
func (w writer) clean(s string) string {
	return w.r.Redact(strings.ToValidUTF8(s, "\uFFFD"))
}

// cleanCommand is clean for a command: none that stands beside a secret is missing.
func (w writer) cleanCommand(s string) string {
	return w.r.RedactCommand(strings.ToValidUTF8(s, "\uFFFD"))
}

// text is one line of plain text of at most n characters.
func (w writer) text(s string, n int) string {
	s, _ = cut(visibleLine(w.clean(s)), n)
	return escape(s)
}

// visibleLine makes one line of a text, with everything in it visible.
func visibleLine(s string) string { return visible.Text(strings.Join(strings.Fields(s), " ")) }

// code is one line of code; whole says that nothing of it is missing.
func (w writer) code(s string, n int) (shown string, whole bool) {
	s = strings.TrimRight(visible.Code(w.cleanCommand(s)), "\n")
	first, _, more := strings.Cut(s, "\n")
	first, short := cut(first, n)
	if more && !short {
		first += " …"
	}
	return inline(strings.ReplaceAll(first, "\t", `\t`)), !more && !short
}

// name is a short piece of code: a tool, a target, an id.
func (w writer) name(s string) string {
	shown, _ := w.code(s, maxName)
	return shown
}

// user is a person as the thread knows them.
func (w writer) user(u chat.User) string {
	return w.text(nameOf(u), maxName)
}

func nameOf(u chat.User) string {
	switch {
	case u.Name != "":
		return u.Name
	case u.ID != "":
		return string(u.ID)
	}
	return "somebody"
}

// cut keeps n characters.
func cut(s string, n int) (kept string, short bool) {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s, false
	}
	runes := []rune(s)
	return strings.TrimRight(string(runes[:n]), " ") + "…", true
}

// escape makes text of what would be markup: of CommonMark, of HTML, of tables, and of
// the marks with which chat networks and forges mention somebody.
func escape(s string) string {
	var b strings.Builder
	before := ' '
	for i, r := range s {
		switch r {
		case '\\', '`', '*', '_', '[', ']', '|', '~', '#', '$':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		case '@', '＠':
			b.WriteRune(r)
			rest := s[i+utf8.RuneLen(r):]
			next, _ := utf8.DecodeRuneInString(rest)
			if !isWordRune(before) && isWordRune(next) || everybody.MatchString(rest) {
				b.WriteRune(zeroWidthSpace) // no one is called
			}
		default:
			b.WriteRune(r)
		}
		before = r
	}
	return b.String()
}

// zeroWidthSpace is a blank without a width: with it behind the mark a mention is none any more,
// and looks the same.
const zeroWidthSpace = '\u200B'

// everybody are the names that call everybody, which some networks also find within a
// word.
var everybody = regexp.MustCompile(`^(?i:everyone|here|channel)`)

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '!' || r == '&'
}

// inline is code in a line, whatever it contains but a newline.
func inline(s string) string {
	if s == "" {
		return "(nothing)"
	}
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 || strings.TrimSpace(s) != s {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}

// block is code of several lines.
func block(s string) string {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "text\n" + strings.TrimRight(s, "\n") + "\n" + fence + "\n"
}

// span is a length of time for people.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second).Seconds()))
	}
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	if h > 0 {
		return fmt.Sprintf("%d h %02d min", h, m)
	}
	return fmt.Sprintf("%d min %02d s", m, s)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
