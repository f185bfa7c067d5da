package desk

import (
	"fmt"
	"strings"

	"countersign/adapters/chat"
)

// What people read of the chat words, side by side.

const (
	sayApprovedBefore  = "You already approved this."
	sayBotsType        = "Bots can't take the keyboard."
	sayNoMachine       = "I can't tell which machine this thread works on right now. Try again."
	sayNoTerminalYet   = "This thread has no terminal yet. The first command opens one."
	sayTargets         = "Targets you can use here. `use NAME` changes what this thread works on:\n"
	sayEveryReadAsks   = "Every read asks there."
	sayConfiguredAsks  = "Every read asks there, as configured."
	sayPlainReads      = "It has no lock, so only plain reads run without asking."
	sayRoleMembers     = "Guests and bots can't change the role. Ask a member of the team."
	sayNoRole          = "From the next step on I work as configured, without a role."
	sayRunMembers      = "Guests and bots can't start workflows. Ask a member of the team."
	sayNoShell         = "I can't run commands here: this thread's role has no shell."
	sayOwnCommand      = "a person's own command"
	sayBadInputs       = "I can't read these inputs. Write `run NAME input=value input=\"two words\"`."
	sayInvite          = "I can't write in this channel. Invite me first."
	sayNoRecord        = "I can't read this thread's record right now. Check the bot's log."
	sayNoExport        = "I can't export this thread's record right now. Check the bot's log."
	sayTimeline        = "A draft post-mortem, made from this thread's record alone. The empty headings are for you."
	sayNotRecorded     = "Nothing is recorded here."
	sayNoList          = "I can't list the recordings right now. Check the bot's log."
	sayNothingRecorded = "This thread's terminals have no recording."
	sayRecordings      = "What this thread's terminals showed. Play a file with `asciinema play`, or in the web console:\n"
	sayUndoUnread      = "I can't read what the files were before. Try again."
	sayUndoUnnamed     = "I can't name that change."
	sayRoleRunsNone    = "This thread's role can't run workflows. `role` shows others."
	sayInputsUnwritten = "I can't pass these inputs on. Write them another way."
	sayApprovals       = "What was asked and what became of it, the newest first."
	sayTerminals       = "Terminals on the targets reached so far. Unused ones end automatically."
	sayListTargets     = "Where the bot can work."
	sayRunbooks        = "Start puts the line into the message field. Fill in the inputs and send it."
	sayCost            = "Model cost, last 30 days (UTC)."
	sayAudit           = "The last seven days. The command line verifies and exports all of it."
	sayRecordingsHere  = "What terminals on this machine showed, the newest first. Searching by words covers the console's recordings."
	saySearchedPart    = "Older recordings weren't searched."
	sayAlerts          = "Problems of the last 30 days. Silenced alerts don't post until then."
	sayEndSession      = "End the terminal session %s on %s."
	sayStartWorkflow   = "\n`run NAME input=value ...` begins one."
)

// Rows of the help: how a chat word is written, and what it does.
const (
	helpUndo      = "`undo <id>` | asks to undo what a request changed, like its button"
	helpRun       = "`run` / `run <workflow> name=value ...` | lists the workflows; starts one"
	helpRole      = "`role` / `role <name>` | lists the roles; gives this thread another one"
	helpUse       = "`use` / `use <target>` | lists the machines; makes this thread work on one"
	helpSessions  = "`sessions` | lists this thread's terminals and how to watch them"
	helpTake      = "`take` / `give` | takes the terminal's keyboard and pauses me; gives it back"
	helpRecording = "`recording` | posts what this thread's terminals showed"
	helpHandover  = "`handover` | what is waiting, running and changed, for the next person on call"
	helpTimeline  = "`timeline` | drafts a post-mortem from this thread"
	helpExport    = "`export` | posts everything recorded in this thread, with its proof"
)

// sayOwnRequest and sayNotApprover say why somebody can't approve.
func sayOwnRequest(who string) string {
	return "You can't approve this: you requested it. Ask " + who + "."
}
func sayNotApprover(who string) string {
	return "You can't approve this. It needs approval from " + who + "."
}

// sayNoTool refuses a program's call.
func sayNoTool(name string) string {
	return fmt.Sprintf("There is no tool %q that a program can call here.", name)
}

// sayGoesOn follows the answer to who gives back what nobody has: perhaps a bot took it back that was killed before it
// said so.
const sayGoesOn = " If I was paused because you had it, I'll continue."

// sayObserver refuses the keyboard to somebody who may only watch.
func sayObserver(target string) string {
	return fmt.Sprintf("You can watch `%s`: `sessions` prints the command. Only its approvers and moderators can take the keyboard.", target)
}

// sayMayNotType refuses to hand the keyboard to somebody of whom it isn't known that they may have it.
func sayMayNotType(who, target string) string {
	return fmt.Sprintf("I can't tell whether %s may type on `%s`. Say `give`, then they can say `take`.", who, target)
}

// sayUnreachable says that a target cannot be used.
func sayUnreachable(target string, err error) string {
	return fmt.Sprintf("Can't reach %s: %v. Fix the connection, then try again.", target, err)
}

// sayNoTerminals says why a target has no terminal.
func sayNoTerminals(target, why string) string {
	return "There is no terminal on `" + target + "`. " + why
}

// sayTaken says who has the keyboard now. from is " from NAME", or "", and how is where to type, or "".
func sayTaken(who, target, from, how string) string {
	return fmt.Sprintf("%s the keyboard on `%s`%s. I'm paused until you say `give`.%s I'll see what you typed when you give it back, except hidden passwords.",
		chat.Has(who), target, from, how)
}

// sayAttach says how to type in a terminal of one's own.
func sayAttach(attach string) string {
	return fmt.Sprintf(" To type in a terminal of your own, attach with:\n\n```\n%s\n```\nDetach with Ctrl-b d.", attach)
}

// sayOpenTerminal says where to type in the console.
const sayOpenTerminal = " Type in *Terminal*."

// sayHeldElsewhere says that somebody still has the keyboard of another session.
func sayHeldElsewhere(who string) string {
	return who + " still has the keyboard of another session in this thread."
}

// sayNow says what a thread works on.
func sayNow(target, labels string) string {
	return fmt.Sprintf("This thread now works on `%s`%s.", target, labels)
}

// sayUnreachableNow is what follows if it cannot be reached.
func sayUnreachableNow(err error) string {
	return " It can't be reached right now: " + err.Error() + "."
}

// sayLocked says how reads run on a target with a lock.
func sayLocked(lock string, plain bool) string {
	if plain {
		return "Plain reads run there without asking, locked (" + lock + ")."
	}
	return "Reads run there without asking, locked (" + lock + ")."
}

// sayUnknownRole answers a role that does not exist.
func sayUnknownRole(name string) string { return "There is no role `" + name + "`. `role` lists them." }

// sayRole says which role a thread has from now on.
func sayRole(name, description string) string {
	return "From the next step on I'm `" + name + "`. " + description
}

// sayCannotOpen says that a network starts no threads.
func sayCannotOpen(workflow string) string {
	return "I can't start threads here. Write `run " + workflow + "` in a thread."
}

// sayExport says what the archive is, and how to get all of it.
func sayExport(thread string) string {
	return "This thread's record without secrets. Its README.txt says what it contains, how to verify it and what didn't fit. " +
		"On the bot's machine, `countersign export " + thread + "` writes all of it."
}

// sayNoChange answers the undo of a change that is not there.
func sayNoChange(change string) string {
	return "There is nothing to undo under `" + change + "`: it changed nothing here that the bot can undo, was too large, or is too old."
}

// sayNoWorkflow answers a workflow that does not exist.
func sayNoWorkflow(name string, known []string) string {
	text := "There is no workflow `" + name + "`."
	if len(known) > 0 {
		text += " You can run `" + strings.Join(known, "`, `") + "`."
	}
	return text + " For anything else, ask in a sentence, such as: please run " + name + "."
}

// sayNotStarted says why a workflow was not started.
func sayNotStarted(name string, err error) string {
	return "I didn't start `" + name + "`: " + err.Error()
}

// sayRunning says where a runbook runs that begins, and sayRunsHere where one would.
func sayRunning(name, where string) string { return "Running `" + name + "` on " + where + "." }
func sayRunsHere(where string) string      { return "In this conversation it runs on " + where + "." }

// sayRunsOn asks for the target of a runbook.
func sayRunsOn(name, target, where string) string {
	return "`" + name + "` would run on " + where + ". To start it there, add `on=" + target + "`. For another target, say `use NAME` first."
}

// sayNotChosen says that a target didn't become the thread's own, so nothing ran there.
func sayNotChosen(target string, err error) string {
	return fmt.Sprintf("I can't go to %s now (%v), so nothing ran. Try again.", target, err)
}

// sayWitnessed says how far a witness has signed the record.
func sayWitnessed(name string, signed, all int64) string {
	return fmt.Sprintf("The witness %s has signed %d of %d anchors.", name, signed, all)
}
