package embed

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"countersign/adapters/chat"
)

// ErrNotOnCard means that the text to edit can't be taken from the card.
var ErrNotOnCard = errors.New("embed: the text is not on the card as it is, so it can't be edited here; deny it and say in the thread what to change")

// ErrNotShown means that the card as it was posted does not have what would run.
var ErrNotShown = errors.New("embed: this message does not show what would run, so it can't be approved here; give my role Embed Links and Attach Files and ask again, or decide it on another network")

// digestOf finds a digest in a card's small print.
var digestOf = regexp.MustCompile(`(?i)\bdigest:? ([!-~]{1,80})`)

// posted is what of a message from Discord is read.
type posted struct {
	Content     string       `json:"content"`
	Embeds      []Embed      `json:"embeds"`
	Attachments []Attachment `json:"attachments"`
	Components  []struct {
		Components []Button `json:"components"`
	} `json:"components"`
}

// Posted finds the button with a custom_id on a card that was posted, from the
// message of the interaction as JSON, so that [Modal] can ask after a restart too.
// Its Confirm is in other words than the card's own: it names the card's title and
// target, and the digest where the card does not show the code as it is. Its Style is
// not set.
//
// Errors: [ErrCustomID] when the message has no such button of ours, [ErrNotOnCard]
// when the button is for editing and the card does not have the text, [ErrNotShown]
// when it approves something that the message has nowhere.
func Posted(message []byte, pressed string) (Choice, error) {
	verb, id, err := ParseCustomID(pressed)
	switch {
	case err != nil:
		return Choice{}, err
	case verb.Form():
		return Choice{}, ErrCustomID
	}
	var m posted
	if err := json.Unmarshal(message, &m); err != nil {
		return Choice{}, fmt.Errorf("%w: %w", ErrCustomID, err)
	}
	label, found := "", false
	for _, r := range m.Components {
		for _, b := range r.Components {
			if b.CustomID == pressed {
				label, found = b.Label, true
			}
			for _, o := range b.Options {
				if o.Value == pressed {
					label, found = o.Label, true
				}
			}
		}
	}
	if !found {
		return Choice{}, ErrCustomID
	}
	b := Choice{Button: chat.Button{ID: id, Label: label}}
	var e Embed
	if len(m.Embeds) > 0 {
		e = m.Embeds[0]
	}
	summary, said, _ := strings.Cut(m.Content, "\n")
	code, whole := codeOf(m.Content)
	if !whole {
		code, whole = codeOf(e.Description)
	}
	if !whole {
		code = ""
	}
	switch verb {
	case VerbReason:
		b.AskReason = true
	case VerbConfirm, VerbRead:
		b.AskReason = true
		b.Code = code
		ask := strings.TrimSpace("You pressed " + label + ". " + unescape(summary))
		if verb == VerbRead {
			b.File = "its file"
			if len(m.Attachments) == 0 {
				return Choice{}, ErrNotShown
			}
			ask = readFirst(false, b.File, digestIn(e, said)) + "\n" + ask
		}
		b.Confirm = ask
	case VerbEdit:
		if !whole {
			return Choice{}, ErrNotOnCard
		}
		b.Edit = code
	case VerbRework:
		return Choice{}, ErrNotOnCard
	case VerbDecide, VerbKeep, VerbSent, VerbEdited:
	}
	return b, nil
}

// digestIn is the digest that a card's small print names, or else its text.
func digestIn(e Embed, said string) string {
	small := ""
	if e.Footer != nil {
		small = e.Footer.Text
	}
	for _, s := range []string{small, unescape(said)} {
		if got := digestOf.FindStringSubmatch(s); got != nil {
			return got[1]
		}
	}
	return ""
}

// codeOf is what stands in the one code block of a text or a description; false when
// there is none, or more than one. Escaped text never has a fence.
func codeOf(description string) (string, bool) {
	const opening, closing = "```\n", "\n```"
	if strings.Count(description, "```") != 2 {
		return "", false
	}
	_, rest, ok := strings.Cut(description, opening)
	end := strings.LastIndex(rest, closing)
	if !ok || end < 0 {
		return "", false
	}
	return rest[:end], true
}
