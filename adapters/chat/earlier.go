package chat

import (
	"fmt"
	"strings"
	"time"
)

// Earlier is the name of the file in [Event].Files that holds what others said in the
// thread before the bot was asked.
const Earlier = "what was said in this thread before"

// MaxEarlier bounds its text in bytes. The latest messages are kept.
const MaxEarlier = 24 << 10

// Talk gathers what others said, the oldest first. The zero value is ready.
type Talk struct {
	lines []string
	size  int
	cut   bool
}

// Add adds what somebody said, unless it is blank.
func (t *Talk) Add(at time.Time, who, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	line := fmt.Sprintf("[%s] %s: %s", at.UTC().Format("2006-01-02 15:04"), who, text)
	t.lines, t.size = append(t.lines, line), t.size+len(line)
	for t.size > MaxEarlier && len(t.lines) > 1 {
		t.size -= len(t.lines[0])
		t.lines, t.cut = t.lines[1:], true
	}
}

// File is what was gathered; ok is false when there is nothing. cut says that more was
// said that is not in it.
func (t *Talk) File(cut bool) (f File, ok bool) {
	text := strings.Join(t.lines, "\n")
	if len(text) > MaxEarlier {
		text, cut = text[len(text)-MaxEarlier:], true
	}
	return File{Name: Earlier, Text: strings.ToValidUTF8(text, ""), Cut: cut || t.cut}, text != ""
}

// maxWho bounds a name in the name of a forwarded message, in characters.
const maxWho = 80

// Forwarded is a message that somebody forwarded, as a file: its words are of somebody else. Who wrote it,
// where and when is left out where that is not known.
func Forwarded(who, where string, at time.Time, text string) File {
	var name strings.Builder
	name.WriteString("forwarded message")
	for _, part := range [][2]string{{" by ", who}, {" in ", where}} {
		if s := []rune(strings.Join(strings.Fields(part[1]), " ")); len(s) > 0 {
			name.WriteString(part[0] + string(s[:min(len(s), maxWho)]))
		}
	}
	if !at.IsZero() {
		name.WriteString(", " + at.UTC().Format("2006-01-02 15:04 UTC"))
	}
	f := File{Name: name.String(), Text: text}
	if strings.TrimSpace(text) == "" {
		f.Text = "(no text)"
	}
	if len(f.Text) > MaxEarlier {
		f.Text, f.Cut = strings.ToValidUTF8(f.Text[:MaxEarlier], ""), true
	}
	return f
}
