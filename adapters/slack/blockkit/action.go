package blockkit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slack-go/slack"

	"countersign/adapters/chat"
)

// Verb says what the adapter does first when a button is pressed.
type Verb string

// The verbs. They begin an action_id; "cs." keeps them apart from those of
// other makers.
const (
	VerbDecide Verb = "cs.decide" // the click is the decision
	VerbReason Verb = "cs.reason" // the same, with a reason: from the card's field ([Reason])
	VerbEdit   Verb = "cs.edit"   // open [EditModal], then decide
	VerbOpen   Verb = "cs.open"   // a link on the home page: acknowledge, nothing else
	// VerbConfirm is an entry of the menu that opens [ConfirmModal] before it decides: a
	// menu's own confirmation would be asked for all of its entries.
	VerbConfirm Verb = "cs.ask"
)

// menuAction is the action_id of the menu. What was chosen is in the option's value, as the
// action_id that a button would have.
const menuAction = "cs.more"

// maxOption is the longest value of a menu's entry, in bytes.
const maxOption = 75

// maxButtonID is the longest id of a button, in bytes: it stands twice in each,
// after a verb in the action_id and as the value.
const maxButtonID = 128

// ErrAction means that a press did not come from a button of this package.
var ErrAction = errors.New("blockkit: this is no button of ours; nothing was decided, use the buttons on the card")

// actionID is the action_id of a button, or false when the id can't be carried.
func actionID(v Verb, id chat.ButtonID) (string, bool) {
	return string(v) + ":" + string(id), validButton(id)
}

// validButton reports whether an id is one to maxButtonID printable ASCII
// characters without spaces, which no network or log changes.
func validButton(id chat.ButtonID) bool { return word(string(id), maxButtonID) }

// word reports whether s is 1 to n printable ASCII characters without spaces.
func word(s string, n int) bool {
	if s == "" || len(s) > n {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// Pressed returns what a press of a button or a choice in the menu asks for. verb is "" for
// what another maker drew.
func Pressed(a *slack.BlockAction) (verb Verb, button chat.ButtonID, err error) {
	id, value := a.ActionID, a.Value
	if id == menuAction {
		id = a.SelectedOption.Value
		_, value, _ = strings.Cut(id, ":")
	}
	verb, _ = VerbOf(id)
	button, err = ParseAction(id, value)
	return verb, button, err
}

// ParseAction returns the button that was pressed, from the action_id and value
// of an interaction. Both must name the same button; anything else, and the
// link buttons of the home page, is [ErrAction].
func ParseAction(actionID, value string) (chat.ButtonID, error) {
	verb, id, ok := strings.Cut(actionID, ":")
	if !ok || id != value || !validButton(chat.ButtonID(id)) {
		return "", ErrAction
	}
	switch Verb(verb) {
	case VerbDecide, VerbReason, VerbEdit, VerbConfirm:
		return chat.ButtonID(id), nil
	case VerbOpen:
		return "", fmt.Errorf("%w (a link was opened)", ErrAction)
	}
	return "", ErrAction
}

// VerbOf returns the verb of an action_id of this package, or false. It does
// not vouch for the rest: that is [ParseAction]'s part.
func VerbOf(actionID string) (Verb, bool) {
	v, _, ok := strings.Cut(actionID, ":")
	switch Verb(v) {
	case VerbDecide, VerbReason, VerbEdit, VerbConfirm, VerbOpen:
		return Verb(v), ok
	}
	return "", false
}

// verbOf is the verb that a button needs.
func verbOf(b chat.Button) Verb {
	switch {
	case b.Edit != "":
		return VerbEdit
	case b.AskReason:
		return VerbReason
	}
	return VerbDecide
}
