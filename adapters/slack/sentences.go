package slack

import "strings"

// What people read of Slack's adapter, side by side. Its doctor's findings are in doctor.go.

const (

	// Presses and forms.
	sayUnknownButton = "This button no longer works. Ask again in the thread."
	sayNotDecided    = "Something went wrong, so nothing was decided. Press the button again."
	sayNoDetails     = "Slack didn't open the details. Press Details again."
	sayNotEditable   = "This command is too long to edit here. Deny it and say in the thread what to change."
	sayNoForm        = "This command can't be edited here. Deny it and say in the thread what to change."
	sayFormNotOpened = "Slack didn't open the form. Try again."
	sayFormDamaged   = "Slack returned an incomplete form. Close it and press Edit on the card again."
	sayNotSent       = "Something went wrong, so nothing was decided. Send it again."
	sayNotEdited     = "Something went wrong, so nothing was changed. Send it again."
	sayStopsNothing  = "I only work for people in this workspace, so nothing was stopped."
	saySlackGuest    = "User groups don't count for guests, or while Slack doesn't say who somebody is."
	sayStrangerDoes  = "I only work for people in this workspace."
	sayStranger      = "I only work for people in this workspace, so I didn't read your message."

	// The slash command.
	sayCommandFailed = "Something went wrong. Try again. If it keeps failing, check the bot's log."
	sayNothingRuns   = "Nothing is running in this channel's threads."
	sayIdle          = "Idle: no thread in this channel has open work."
	sayNothingWaits  = "Nothing is waiting for a decision."
	sayNoSessions    = "No thread in this channel has a terminal session."

	// Prompts that Slack offers. The second of each pair is what a press says.
	offerWrong    = "What's wrong?"
	askWrong      = "Check load, memory, disks and failed services, and tell me what's wrong."
	offerChanged  = "What changed?"
	askChanged    = "What changed on this machine in the last hour?"
	offerHelp     = "What can you do?"
	offerDeeper   = "Dig deeper"
	askDeeper     = "Dig deeper into this and tell me what you find."
	offerSolved   = "Is it fixed?"
	askSolved     = "Check whether it's fixed now."
	offerTimeline = "What happened here?"

	// Messages that Slack did not take as they were.
	sayUnread   = "Slack didn't return it. The scopes channels:history and groups:history may be missing"
	sayNoFile   = "I couldn't attach the file %s: %s"
	sayInFile   = "Slack refused this message's format. It's in the attached file."
	sayByWord   = "Slack refused the buttons. To decide, write `approve %s` or `deny %s`."
	sayNotShown = "I couldn't post a message here: Slack refused it as text and as a file (%s). Say `status` to see what I'm doing."

	// The live check of a set-up.
	sayCheckStopped = "The check was stopped."
	sayCheckOver    = "The check ended. Nobody pressed the button."
	sayCheck        = "This checks the Countersign setup. The button changes nothing. It only shows that presses arrive."

	// What Slack's own pages say of the app.
	describeApp     = "Works on your machines from a thread. Nothing changes until a person countersigns it."
	describeAgent   = "Investigates incidents on your machines, and asks in the thread before it changes anything."
	describeCommand = "Status, approvals, sessions and stop"
)

const commandHelp = "`" + SlashCommand + " status` what I'm doing in this channel\n" +
	"`" + SlashCommand + " approvals` requests waiting for a decision\n" +
	"`" + SlashCommand + " sessions` terminals of this channel's threads\n" +
	"`" + SlashCommand + " run NAME input=value ...` starts a workflow in a new thread; without a name, lists them\n" +
	"`" + SlashCommand + " stop` stops what runs in this channel's threads\n" +
	"`" + SlashCommand + " help` this list\n\n" +
	"Mention me in a channel to start a thread. Slack has no slash commands in threads. There, write `stop`, `status`, `sessions`, `approve <id>` or `deny <id> [reason]`."

// sayStarted says that a workflow runs.
func sayStarted(link string) string { return "Started: " + link }

// sayUnknownWord answers a slash command that there is not.
func sayUnknownWord(word string) string {
	return "Unknown command `" + strings.ReplaceAll(word, "`", "'") + "`.\n\n" + commandHelp
}

// sayNotAttached warns of a card without the file that it needs.
func sayNotAttached(err error) string {
	return "I couldn't attach the full command (" + err.Error() + "), so you can't approve it here. Deny it, or ask for smaller steps."
}
