package blockkit

import "countersign/adapters/chat/visible"

// What people read on cards and pages, beside what they hold, side by side.

const (

	// Cards.
	sayNoButton   = "The button %q can't be shown here. Answer in the thread or on another network."
	sayNotAllFits = "This is too long to show in full. The attached file %[2]s has the missing part (%[1]s)."
	askReason     = "Reason for denying (optional)"
	askWhy        = "Reason (optional)"

	// The form that edits a command.
	askInstead  = "What should run instead"
	hintInstead = "This exact text is checked again and needs its own approval."
	askSteps    = "Steps to run"
	hintSteps   = "Uncheck the steps to drop. The others need their own approval."

	// The app's home page.
	headWaiting     = "Waiting for you"
	sayNothingWaits = "Nothing is waiting for you."
	headOthers      = "Waiting for others"
	headSessions    = "Terminal sessions"
	headBusy        = "Working"
	sayQuiet        = "Nothing is running. Message me here or mention me in a channel, and say what you need. Requests that need your decision appear here."
	sayBeginning    = "This is the start. The full text, %s, is in the attached file %s."
)

// askWrite asks for what has to be written to approve.
func askWrite(write string) string { return "Write " + visible.Text(write) + " to approve" }

// sayInvisible warns of characters that a card can't show.
func sayInvisible(file string) string {
	return "Some characters are invisible and shown as \\u{...} or \\x... " + file + " has the original."
}

// sayRest says where the rest of a card is.
func sayRest(file string) string { return "Everything else is in the attached file " + file + "." }

// saySplit says that one line stands in two blocks.
func saySplit(file string) string {
	return "This is one line, split in two because of its length. " + file + " has the original."
}

// sayReadFirst is what the confirmation of a button says where a card shows a part.
func sayReadFirst(file string) string {
	return "This card shows only part of it. Read " + file + " first."
}
