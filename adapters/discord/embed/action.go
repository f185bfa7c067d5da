package embed

import (
	"errors"
	"strings"

	"countersign/adapters/chat"
)

// Verb says what the adapter does first when a button is pressed or a form comes
// back.
type Verb string

// The verbs. They begin a custom_id; "cs." keeps them apart from those of other
// makers. All but VerbDecide, VerbKeep, VerbSent and VerbEdited open a [Modal] or a [StepsMenu].
const (
	VerbDecide  Verb = "cs.decide"  // the click is the decision
	VerbReason  Verb = "cs.reason"  // ask for a reason, then decide
	VerbConfirm Verb = "cs.confirm" // ask once more, then decide
	// VerbRead is VerbConfirm on a card that does not show the code as it is.
	VerbRead Verb = "cs.read"
	VerbEdit Verb = "cs.edit" // offer the card's code for editing, then decide
	// VerbRework is VerbEdit for a text that is not on the card.
	VerbRework Verb = "cs.rework"

	VerbKeep Verb = "cs.keep" // steps of a plan were chosen in a [StepsMenu]: decide

	VerbSent   Verb = "cs.sent"   // a form with a reason came back: decide
	VerbEdited Verb = "cs.edited" // a form with a changed text came back: decide
)

// MenuID is the custom_id of a card's menu.
const MenuID = "cs.more"

// maxButtonID is the longest id of a button, in bytes: with the longest verb and
// a colon it makes a custom_id.
const maxButtonID = MaxCustomID - len(VerbConfirm) - 1

// ErrCustomID means that a press or a form did not come from a button of this
// package.
var ErrCustomID = errors.New("embed: this is no button or form of ours; nothing was decided, use the buttons on the card")

// customID names a button on a card, or a form.
func customID(v Verb, id chat.ButtonID) string { return string(v) + ":" + string(id) }

// validButton reports whether an id is one to maxButtonID printable ASCII
// characters without spaces, which no network or log changes.
func validButton(id chat.ButtonID) bool {
	if id == "" || len(id) > maxButtonID {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f {
			return false
		}
	}
	return true
}

// ParseCustomID takes the custom_id of an interaction apart. Anything that this
// package did not write is [ErrCustomID]. A press has one of the other verbs and a
// form VerbSent or VerbEdited; the caller refuses the one where the other belongs.
func ParseCustomID(s string) (Verb, chat.ButtonID, error) {
	verb, id, ok := strings.Cut(s, ":")
	if !ok || !validButton(chat.ButtonID(id)) {
		return "", "", ErrCustomID
	}
	switch v := Verb(verb); v {
	case VerbDecide, VerbReason, VerbConfirm, VerbRead, VerbEdit, VerbRework, VerbKeep, VerbSent, VerbEdited:
		return v, chat.ButtonID(id), nil
	}
	return "", "", ErrCustomID
}

// Asks reports whether a press opens a form before anything is decided.
func (v Verb) Asks() bool {
	switch v {
	case VerbReason, VerbConfirm, VerbRead, VerbEdit, VerbRework:
		return true
	case VerbDecide, VerbKeep, VerbSent, VerbEdited:
	}
	return false
}

// Form reports whether the verb is that of a form that came back.
func (v Verb) Form() bool { return v == VerbSent || v == VerbEdited }
