package oidc

import (
	"errors"
	"fmt"
)

// What people are told when a sign-in fails, side by side.

// sentence is an error whose text is for the person; the details are in the log.
type sentence string

func (s sentence) Error() string { return string(s) }

// refusal is a sentence for the person, and why it was said, for who sets the console up.
type refusal struct {
	sentence
	why error
}

// Unwrap gives both.
func (r refusal) Unwrap() []error { return []error{r.sentence, r.why} }

// Why is the reason of an error of this package for who sets the console up; the text of the error is for
// the person who signs in.
func Why(err error) string {
	if r, ok := errors.AsType[refusal](err); ok {
		return r.why.Error()
	}
	return err.Error()
}

const (
	errDown   sentence = "The identity provider can't be reached. Try again in a moment, or use a sign-in link from the bot."
	errSetUp  sentence = "The identity provider isn't set up as the console expects. Ask whoever runs the bot to check its log."
	errState  sentence = "This sign-in is old or was started in another browser. Start again on the console's page."
	errDenied sentence = "The identity provider refused the sign-in. Ask whoever runs it to give you access to the console."
	errOver   sentence = "The identity provider no longer knows this sign-in. Start again on the console's page."
	errUntrue sentence = "The identity provider's answer can't be verified, so you aren't signed in. Start again. If it keeps failing, ask whoever runs the bot to check its log."
	errClock  sentence = "The identity provider's answer isn't valid at this time. Start again. If it keeps failing, ask whoever runs the bot to compare both clocks."
	errGroups sentence = "The console can't read the groups that the identity provider lists for you. Ask whoever runs the bot to check its log."
	errMany   sentence = "You're in more groups than the identity provider sends, so none of them counts here. Ask whoever runs it to send only the groups that are assigned to this application."

	// The provider says no, or it says nothing.
	errUnverified sentence = "The identity provider says that your email address isn't verified. Verify it there. If you can't, ask whoever runs the bot to take names from another claim. The bot's log names some."
	errUnsaid     sentence = "The identity provider doesn't say whether your email address is verified. Ask whoever runs the bot to take people's names from the claim oid or sub instead. Entra ID can also send xms_edov."
)

// sayNoName refuses a sign-in without the claim that holds the name.
func sayNoName(claim string) sentence {
	return sentence(fmt.Sprintf("The identity provider doesn't send your name (the claim %q). Ask whoever runs it to add that claim.", claim))
}
