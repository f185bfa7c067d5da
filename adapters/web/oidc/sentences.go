package oidc

import "fmt"

// What people are told when a sign-in fails, side by side.

// sentence is an error whose text is for the person; the details are in the log.
type sentence string

func (s sentence) Error() string { return string(s) }

const (
	errDown     sentence = "The identity provider can't be reached. Try again in a moment, or use a sign-in link from the bot."
	errSetUp    sentence = "The identity provider isn't set up as the console expects. Ask whoever runs the bot to check its log."
	errState    sentence = "This sign-in is old or was started in another browser. Start again on the console's page."
	errDenied   sentence = "The identity provider refused the sign-in. Ask whoever runs it to give you access to the console."
	errOver     sentence = "The identity provider no longer knows this sign-in. Start again on the console's page."
	errUntrue   sentence = "The identity provider's answer can't be verified, so you aren't signed in. Start again. If it keeps failing, ask whoever runs the bot to check its log."
	errClock    sentence = "The identity provider's answer isn't valid at this time. Start again. If it keeps failing, ask whoever runs the bot to compare both clocks."
	errGroups   sentence = "The console can't read the groups that the identity provider lists for you. Ask whoever runs the bot to check its log."
	errVerified sentence = "Your email address isn't verified at the identity provider. Verify it there, then sign in again."
)

// sayNoName refuses a sign-in without the claim that holds the name.
func sayNoName(claim string) sentence {
	return sentence(fmt.Sprintf("The identity provider doesn't send your name (the claim %q). Ask whoever runs it to add that claim.", claim))
}
