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

// digestOf finds a digest in a card's small print.
var digestOf = regexp.MustCompile(`(?i)\bdigest:? ([!-~]{1,80})`)

// posted is what of a message from Discord is read.
type posted struct {
	Embeds     []Embed `json:"embeds"`
	Components []struct {
		Components []Button `json:"components"`
	} `json:"components"`
}

// Posted finds the button with a custom_id on a card that was posted, from the
// message of the interaction as JSON, so that [Modal] can ask after a restart too.
// Its Confirm is in other words than the card's own: it names the card's title, and
// the digest where the card does not show the code as it is. Its Style is not set.
//
// Errors: [ErrCustomID] when the message has no such button of ours, [ErrNotOnCard]
// when the button is for editing and the card does not have the text.
func Posted(message []byte, pressed string) (chat.Button, error) {
	verb, id, err := ParseCustomID(pressed)
	switch {
	case err != nil:
		return chat.Button{}, err
	case verb.Form():
		return chat.Button{}, ErrCustomID
	}
	var m posted
	if err := json.Unmarshal(message, &m); err != nil {
		return chat.Button{}, fmt.Errorf("%w: %w", ErrCustomID, err)
	}
	label, found := "", false
	for _, r := range m.Components {
		for _, b := range r.Components {
			if b.CustomID == pressed {
				label, found = b.Label, true
			}
		}
	}
	if !found {
		return chat.Button{}, ErrCustomID
	}
	b := chat.Button{ID: id, Label: label}
	var e Embed
	if len(m.Embeds) > 0 {
		e = m.Embeds[0]
	}
	code, whole := codeOf(e.Description)
	switch verb {
	case VerbReason:
		b.AskReason = true
	case VerbConfirm, VerbRead:
		b.AskReason = true
		digest := ""
		if e.Footer != nil {
			if got := digestOf.FindStringSubmatch(e.Footer.Text); got != nil {
				digest = got[1]
			}
		}
		if !whole {
			code = ""
		}
		b.Confirm = confirmation(verb, strings.TrimSpace("You pressed "+label+". "+unescape(e.Title)), "its file", digest, code)
	case VerbEdit:
		if !whole {
			return chat.Button{}, ErrNotOnCard
		}
		b.Edit = code
	case VerbRework:
		return chat.Button{}, ErrNotOnCard
	case VerbDecide, VerbSent, VerbEdited:
	}
	return b, nil
}

// codeOf is what stands in the one code block of a card's description; false when
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
