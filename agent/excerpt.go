package agent

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"countersign/tools/output"
)

// Limits on how much of an output is posted. The rest is in the terminal, and kept.
const (
	shownLines = 20
	shownBytes = 2400
)

// excerpt is what people are shown of an output.
type excerpt struct {
	text string
	said string // which part of it that is; "" if it is all of it
}

// newExcerpt returns the end of an output, or its beginning, in whole lines if one fits.
func newExcerpt(e output.Ends, first bool) excerpt {
	src, cut := e.Head, e.Tail != ""
	if cut && !first {
		src = e.Tail
	}
	text := strings.ToValidUTF8(onScreen(src), "\uFFFD")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	switch n := len(lines); {
	case !cut && n <= shownLines && len(text) <= shownBytes:
		return excerpt{text: strings.TrimRight(text, "\n")}
	case !cut || n == 1:
	case first && !strings.HasSuffix(src, "\n"):
		lines = lines[:n-1]
	case !first: // what is kept of the end begins anywhere
		lines = lines[1:]
	}
	if !first {
		slices.Reverse(lines)
	}
	n, size := 0, 0
	for n < min(shownLines, len(lines)) && size+len(lines[n]) < shownBytes {
		size += len(lines[n]) + 1
		n++
	}
	if n == 0 {
		part := lines[0]
		if first {
			part = strings.ToValidUTF8(part[:min(len(part), shownBytes)], "") + "…"
		} else {
			part = "…" + lastBytes(part, shownBytes)
		}
		return excerpt{part, sayPart(first, e)}
	}
	lines = slices.Clone(lines[:n])
	if !first {
		slices.Reverse(lines)
	}
	return excerpt{strings.Join(lines, "\n"), sayLines(first, n, e)}
}

// onScreen is an output as a terminal shows it: without colours, and without what was written
// over after a carriage return, as progress bars do. Other sequences stay, and are seen.
func onScreen(s string) string {
	if strings.ContainsRune(s, '\x1b') {
		s = colours.ReplaceAllString(s, "")
	}
	if !strings.ContainsRune(s, '\r') {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		l = strings.TrimRight(l, "\r")
		lines[i] = l[strings.LastIndexByte(l, '\r')+1:]
	}
	return strings.Join(lines, "\n")
}

// colours are the sequences that set colours, attributes and character sets, show the cursor, or erase to the end
// of the line (ECMA-48, 8.3.117 and 8.3.41; ECMA-35), as programs send them with each line.
var colours = regexp.MustCompile(`\x1b\[[0-9;:]*[mK]|\x1b[()][0B]\x0f?|\x1b\[\?25[hl]`)

// sayLines says which lines of an output are shown.
func sayLines(first bool, n int, e output.Ends) string {
	which := "last"
	if first {
		which = "first"
	}
	if n == 1 {
		return fmt.Sprintf("The %s line of %s.", which, thousands(e.Lines))
	}
	return fmt.Sprintf("The %s %d of %s lines.", which, n, thousands(e.Lines))
}

// sayPart says that a part of one line is shown.
func sayPart(first bool, e output.Ends) string {
	which := "end"
	if first {
		which = "beginning"
	}
	lines := "lines"
	if e.Lines == 1 {
		lines = "line"
	}
	return fmt.Sprintf("The %s of %s %s, %s bytes.", which, thousands(e.Lines), lines, thousands(e.Bytes))
}
