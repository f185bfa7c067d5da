// Package face is what a card has in common on all networks: its headline, its state in words, itself as
// plain text, and which of its buttons are offered. Where each part stands is the network's own. It is
// pure and knows the chat vocabulary alone.
package face

import (
	"fmt"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/adapters/chat/visible"
)

// Headline is a card's title with its tone and its environment.
func Headline(c chat.Card) string {
	s := mark(c.Tone) + strings.Join(strings.Fields(c.Title), " ")
	switch {
	case c.Production:
		s += " · " + strings.ToUpper(c.Env)
	case c.Env != "":
		s += " · " + c.Env
	}
	return strings.TrimSpace(s)
}

// mark is a card's tone as one character, with its space. The level stands in the title in words
// too: colour alone says nothing to some people.
func mark(t chat.Tone) string {
	switch t {
	case chat.ToneLow:
		return "🔵 "
	case chat.ToneMedium:
		return "🟡 "
	case chat.ToneHigh:
		return "🔴 "
	case chat.ToneGood:
		return "✓ "
	case chat.ToneBad:
		return "✗ "
	case chat.ToneNeutral:
	}
	return ""
}

// State says in words that a card waits, or "": a decided one and one with a footer say so
// themselves. Screen readers do not announce that a card has buttons.
func State(c chat.Card) string {
	if c.Final || len(c.Choose) == 0 || c.Footer != "" {
		return ""
	}
	return "waiting for an answer"
}

// Part is what a line of a card is about. A network shows the parts in this order, the code between
// Risk and Preview.
type Part int

// The parts.
const (
	Risk    Part = iota
	Context      // what else decides what the code does
	Preview      // what it would do
	Warning      // must stand out
	Field        // has a label
	Body
	Why // the agent's words: a quotation
)

// Line is a text of a card that is not empty, as the card has it: nothing of it is made visible or escaped.
type Line struct {
	Part        Part
	Label, Text string
}

// Lines are the texts of a card between its headline and its small print, without the code.
func Lines(c chat.Card) []Line {
	lines := []Line{{Risk, "", c.Risk}, {Context, "", c.Context}}
	for _, l := range c.Preview {
		lines = append(lines, Line{Preview, "", l})
	}
	for _, w := range c.Warn {
		lines = append(lines, Line{Warning, "", w})
	}
	for _, f := range c.Fields {
		lines = append(lines, Line{Field, f.Name, f.Value})
	}
	lines = append(lines, Line{Body, "", c.Body}, Line{Why, "Why", c.Why})
	return slices.DeleteFunc(lines, func(l Line) bool { return l.Text == "" })
}

// Text is a card as plain text, a line for each of its parts but its details: for notifications and
// screen readers.
func Text(c chat.Card) string {
	lines := text(c)
	if len(c.Details) == 0 {
		lines = with(lines, "Digest", c.Digest)
	}
	return strings.Join(lines, "\n")
}

// Whole is Text with the details, for the file of a card that has no room.
func Whole(c chat.Card) string {
	lines := text(c)
	for _, f := range c.Details {
		lines = with(lines, f.Name, visible.Below(f.Value))
	}
	return strings.Join(with(lines, "Digest", c.Digest), "\n")
}

func text(c chat.Card) (lines []string) {
	lines = with(lines, "", Headline(c))
	lines = with(lines, "State", State(c))
	code := c.Code
	for _, l := range Lines(c) {
		if l.Part > Risk {
			lines, code = with(lines, "", code), ""
		}
		switch l.Part {
		case Warning:
			l.Label = "Warning"
		case Why:
			l.Text = "“" + visible.Below(l.Text) + "”"
		case Preview, Field:
			l.Text = visible.Below(l.Text)
		case Risk, Context, Body:
		}
		lines = with(lines, l.Label, l.Text)
	}
	lines = with(with(lines, "", code), "", c.Footer)
	if !c.Expires.IsZero() && !c.Final {
		lines = with(lines, "", "expires at "+c.Expires.UTC().Format("15:04")+" UTC")
	}
	return lines
}

// with adds a line, unless nothing of its text can be seen.
func with(lines []string, label, text string) []string {
	if strings.TrimSpace(visible.Text(text)) == "" {
		return lines
	}
	if label != "" {
		text = label + ": " + text
	}
	return append(lines, text)
}

// Buttons are those that a card offers, at most most of them. Left out, with their labels in left, are
// those that can't be told apart: whose id is not valid or was given before, and what is too many.
func Buttons(c chat.Card, most int, valid func(chat.ButtonID) bool) (kept []chat.Button, left []string) {
	offered := c.Choose
	if c.Final {
		offered = c.After
	}
	seen := map[chat.ButtonID]bool{}
	for _, b := range offered {
		if !valid(b.ID) || seen[b.ID] || len(kept) == most {
			left = append(left, b.Label)
			continue
		}
		seen[b.ID] = true
		kept = append(kept, b)
	}
	return kept, left
}

// FreeName is a name for a file beside others: with a number where one of them has it already.
func FreeName(name string, files []chat.File) string {
	stem, ext, _ := strings.Cut(name, ".")
	for n := 2; ; n++ {
		taken := false
		for _, f := range files {
			taken = taken || f.Name == name
		}
		if !taken {
			return name
		}
		name = fmt.Sprintf("%s-%d.%s", stem, n, ext)
	}
}
