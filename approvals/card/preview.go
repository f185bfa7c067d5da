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
	case p.Evidence == approvals.UnknownEffect:
		return "Effect unknown: " + p.Text
	case p.Text == "":
		return upperFirst(string(p.Evidence))
	}
	return upperFirst(string(p.Evidence)) + ": " + p.Text
}

// maxBack is how many characters of a way back are on the card; the details have all.
const maxBack = 160

// wayBack is the way back from an action.
func wayBack(b approvals.Back) string {
	out := map[approvals.BackKind]string{approvals.OnePress: "Undo", approvals.ByHand: "Undo by hand", approvals.NoWay: "Can't be undone"}[b.Kind]
	if out == "" {
		return ""
	}
	if b.Text != "" {
		out += ": " + line(b.Text)
	}
	return out
}

// back is wayBack on the card.
func back(b approvals.Back) string {
	return strings.Replace(clipped(wayBack(b), maxBack), " …", "…", 1)
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
