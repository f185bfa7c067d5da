package embed

// What people read on cards and in forms, beside what they hold, side by side.

const (

	// Cards.
	labelMore     = "More"
	sayExact      = "This is exactly what would run."
	sayNoButton   = "The button %q can't be shown here. Answer in the thread or on another network."
	sayBreaks     = "The command %s with %d line breaks."
	sayNotAllFits = "This is too long to show in full. The attached file %[2]s has the missing part (%[1]s)."

	// The form that edits a command.
	askInstead  = "What should run instead"
	saySteps    = "Which steps should run? Uncheck those to drop. The others need their own approval."
	hintInstead = "This exact text is checked again and needs its own approval."
	askReason   = "Reason (optional)"
)

// sayInvisible warns of characters that a card can't show.
func sayInvisible(file string) string {
	return "Some characters are invisible and shown as \\u{...} or \\x... The attached file " + file + " has the original."
}

// sayBreak says that a command begins or ends with a line break, which Discord hides.
func sayBreak(edge string) string { return "The command " + edge + " with a line break." }

// sayRest says where the rest of a card is.
func sayRest(file string) string { return "Everything else is in the attached file " + file + "." }

// sayReadWhole stands where a command is too long for its message.
func sayReadWhole(file string) string {
	return "This is too long to show here. Read the attached file " + file + " before you decide."
}

// sayInFile stands where details are too long for a message.
func sayInFile(file string) string {
	return "This is too long to show here. It's in the attached file " + file + "."
}

// sayReadFirst is what the form of a button says where a card shows a part.
func sayReadFirst(file string) string {
	return "This card shows only part of it. Read " + file + " first."
}
