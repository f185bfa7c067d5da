package card

import (
	"math"
	"strings"

	"countersign/approvals"
)

// maxFound is how many lines of a preview are on the card; the details have all.
const maxFound = 3

// found returns the text of a preview, after the word for its evidence.
func found(p approvals.Preview) string {
	switch {
	case p.Evidence == "" || p.Text == "":
		return p.Text
	case p.Text == "":
		return upperFirst(string(p.Evidence))
	}
	return upperFirst(string(p.Evidence)) + ": " + p.Text
}

// maxBack is how many characters of a way back are on the card; the details have all.
const maxBack = 160

// back is the way back from an action, in one line.
func back(b approvals.Back) string {
	if b.Kind == "" {
		return ""
	}
	out := upperFirst(string(b.Kind))
	if b.Text != "" {
		out += ": " + line(b.Text)
	}
	if r := []rune(out); len(r) > maxBack {
		out = string(r[:maxBack]) + "…"
	}
	return out
}

// maxRest is how many characters of a rehearsal the last line of a preview has.
const maxRest = 240

// foundLines is found in a few lines. The lines of a rehearsal are one effect each, the worst first, so
// that those without a line of their own share the last one.
func foundLines(p approvals.Preview, most int) []string {
	text := visible(found(p))
	if p.Evidence != approvals.Rehearsed {
		return firstLines(text, most)
	}
	lines := firstLines(text, math.MaxInt)
	if len(lines) <= most {
		return lines
	}
	rest := []rune(strings.Join(lines[most-1:], "; "))
	if len(rest) > maxRest {
		rest = append(rest[:maxRest:maxRest], []rune(" … and more, in the details")...)
	}
	return append(lines[:most-1:most-1], string(rest))
}
