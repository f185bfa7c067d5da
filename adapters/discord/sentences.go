package discord

// What people read of Discord's adapter, side by side. Its doctor's findings are in doctor.go.

const (

	// Presses and forms.
	sayWho           = "Discord didn't say who you are, so nothing happened. Try again."
	sayNoRoles       = "Roles don't count in direct messages, or before you've agreed to the server's rules."
	sayNoDMs         = "I don't work in direct messages. Mention me in a server."
	sayNotHere       = "I'm not set up for this server."
	sayWhere         = "Discord didn't say which channel this is, so nothing happened. Try again."
	sayNoChannel     = "I'm not set up for this channel."
	sayUnknownButton = "This button no longer works. Ask again in the thread."
	sayFormDamaged   = "Discord returned an incomplete form, so nothing was decided. Open it again from the card."
	sayNotDecided    = "Something went wrong, so nothing was decided. Press the button again."

	// The slash command: what Discord's list says of it, and its answers.
	describeCommand   = "Status, approvals and sessions"
	describeStatus    = "What the bot is doing here"
	describeApprovals = "Requests waiting for a decision"
	describeSessions  = "Terminals of this channel's threads"
	describeRun       = "Start a workflow; without a name, list them"
	describeWorkflow  = "Its name and inputs: disk-full directory=/var"
	describeStop      = "Stop what is running here"
	describeHelp      = "List these commands"
	sayCommandFailed  = "Something went wrong. Try again. If it keeps failing, check the bot's log."
	sayNothingRuns    = "Nothing is running here."
	sayIdle           = "Idle: nothing is open here."
	sayNothingWaits   = "Nothing is waiting for a decision."
	sayNoSessions     = "There are no terminal sessions here."

	// Messages that were not read, or not shown as they were.
	sayStranger = "I only work for members of the servers I'm set up for, so I didn't read your message."
	sayMention  = "I can only read messages here that mention me or reply to me. (To change that, an administrator can enable this app's Message Content Intent and restart the bot.)"
	sayNotTaken = "I couldn't take your last message. Send it again in a moment."
	sayNoThread = "I can't start a thread in this channel. Give my role the permission Create Public Threads."
	sayNoVoice  = "Threads can't be started in the chat of a voice channel. Mention me in a text channel."
	sayUnread   = "Discord didn't return it. The permission Read Message History or the Message Content Intent may be missing"
	sayNoEmbeds = "Cards here show only the command, without warnings, approvers and expiry. Give my role the permission Embed Links in this channel."
)

const commandHelp = "`/" + CommandName + " status` what I'm doing here\n" +
	"`/" + CommandName + " approvals` requests waiting for a decision\n" +
	"`/" + CommandName + " sessions` terminals of the threads here\n" +
	"`/" + CommandName + " run` starts a workflow; without a name, lists them\n" +
	"`/" + CommandName + " stop` stops what runs here\n" +
	"`/" + CommandName + " help` this list\n\n" +
	"\"Here\" is this thread or, in a channel, all of its threads. Mention me in a channel to start a thread. In a thread, these words work without the slash too: `stop`, `status`, `sessions`, `approve <id>` or `deny <id> [reason]`."

// sayStarted says that a workflow runs.
func sayStarted(link string) string { return "Started: " + link }

// sayUnknownWord answers a slash command that there is not.
func sayUnknownWord(word string) string {
	return "Unknown command `" + code(word) + "`.\n\n" + commandHelp
}

// sayLate says that a press came too late.
func sayLate(who string) string {
	return who + "'s press arrived too late: Discord had already shown it as failed. It doesn't count. Press the button again."
}

// sayDeleted says that a card is gone whose request still waits.
func sayDeleted(name string) string {
	return "Someone deleted the card of an open request: " + name + ". To decide it, say approve or deny with its id."
}

// sayNoFiles is added to a message whose files Discord refused.
func sayNoFiles(why string) string { return "\n(I couldn't attach the files: " + why + ".)" }

// sayNotShown replaces a message that Discord refused.
func sayNotShown(why string) string {
	return "I couldn't post a message here: Discord refused it (" + why + "). Say `status` to see what I'm doing."
}
