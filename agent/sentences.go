package agent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/agent/llm"
	"countersign/agent/workflow"
	"countersign/approvals"
	"countersign/tools"
)

// What people read of the agent, side by side. Texts for models are where they are made.

const (
	sayNothingRuns   = "Nothing is running here."
	sayStopping      = "Stopping. Nothing more of this turn runs."
	sayUndoAsks      = "Undo needs approval."
	sayStillWorking  = "I'm still working, so I haven't started that. Try again when I'm done, or say `stop` first."
	sayNotByToken    = "A token can't approve or deny. Sign in to the console and press the button on the card."
	sayBotsDecide    = "Bots can't decide."
	sayQuestionOver  = "That question is closed."
	sayAnswered      = "That question was already answered."
	sayThanks        = "Thank you. The workflow continues."
	sayGuestsAnswer  = "Guests and bots can't answer. Ask a member of the team."
	sayNoOutputs     = "Outputs aren't kept here."
	sayOutputUnread  = "I can't read that output right now. Check the bot's log."
	sayWholeOutput   = "The whole output."
	sayCutOutput     = "The start and the end of the output. It's too long for one file."
	sayHistoryUnread = "I can't read this thread's history right now. Try again. If it keeps failing, check the bot's log."
	sayIdle          = "Idle: I'm waiting for a message."
	sayEmptyReply    = "The model sent an empty reply."
	sayTryAgain      = "Say `go on` to try again."
	sayCheckModel    = " " + sayTryAgain + " If it keeps happening, check OPENAI_MODEL."
	sayKept          = " Nothing in this thread is lost. " + sayTryAgain
	sayReplyCut      = "\n\n_(The reply reached the model's length limit. Say `go on` for the rest.)_"
	sayReplyTooBig   = "\n\n_(The reply had %s. Only its first %s are kept.)_"
	sayTooLong       = "This conversation no longer fits the model. Start a new thread and say what is left to do, or use a model with a larger window (model.window)."
	sayNoSummary     = "The model couldn't summarize this long conversation. " + sayTryAgain
	sayCapInAside    = " I can't answer until the open request is decided."
	sayDiskFull      = "the disk is full. Free some space and I'll continue"
	sayStoreRefuses  = "it refuses writes. Check the bot's log"
	sayUndoing       = "The target is undoing it."
	sayPartOfIt      = "A part of it."
	sayBeginning     = "The beginning of it."
)

// sayOnlyRevoked answers a stop where nothing ran, and standing approvals ended.
func sayOnlyRevoked(n int) string {
	if n == 1 {
		return "Nothing is running here. The standing approval in this thread has ended."
	}
	return fmt.Sprintf("Nothing is running here. The %d standing approvals in this thread have ended.", n)
}

// sayTooManyRounds says that a bot isn't answered any more.
func sayTooManyRounds(who string) string {
	return fmt.Sprintf("I've answered bots here %d times in a row, so I don't answer %s any more. I'll go on when a person writes.", maxRounds, inlineCode(who))
}

// sayNoVote answers who names a request and a decision in a message that is no vote.
func sayNoVote(verb string, id approvals.ID) string {
	return fmt.Sprintf("That didn't count as a vote. To decide, write `%s %s` on a line of its own, or press the button on the card.", verb, id)
}

// sayNoOutput says that an output is not there.
func sayNoOutput(id string) string {
	return fmt.Sprintf("There is no output `%s` in this thread. It may have expired.", id)
}

// sayPenHeld answers a message while a person has the keyboard.
func sayPenHeld(who string) string {
	return fmt.Sprintf("%s the keyboard, so I'm paused. I'll read this after `give`.", chat.Has(who))
}

// sayPaused is the status while a person has the keyboard.
func sayPaused(who string) string {
	return fmt.Sprintf("Paused: %s the keyboard. I'll continue after `give`.", chat.Has(who))
}

// saySilent says why the keyboard was taken back.
func saySilent(d time.Duration) string {
	return fmt.Sprintf("Nobody typed for %s, so I've taken the keyboard back. ", words(d))
}

// sayNoAnswer says that nobody decided for the time after.
func sayNoAnswer(after time.Duration, until time.Time) string {
	return fmt.Sprintf("No answer for %s, so I've paused. You can still decide until %s UTC.", words(after), until.UTC().Format("15:04"))
}

// sayWaiting is the status while a request waits.
func sayWaiting(ask *history.Ask, now time.Time) string {
	id := ask.Approval
	return fmt.Sprintf("Waiting for a decision (expires in %s). To decide here, write `approve %s` or `deny %s`.", words(ask.Expires.Sub(now)), id, id)
}

// sayAnswerWanted is the status while a workflow asks.
func sayAnswerWanted(question string) string { return "Waiting for an answer: " + question }

// sayWaitsUntil is the status while a workflow waits.
func sayWaitsUntil(until time.Time, workflow string) string {
	return fmt.Sprintf("Waiting until %s UTC, as the workflow `%s` says.", until.UTC().Format("15:04:05"), workflow)
}

// sayWorking is the status of a thread at work.
func sayWorking(doing string) string { return fmt.Sprintf("Working: %s.", doing) }

// sayUnread says that earlier messages of a discussion were not read.
func sayUnread(why string) string {
	return "I didn't read what was said here before you asked me: " + why + ". Tell me what I need to know."
}

// sayStopped ends a turn.
func sayStopped(who string, maybe bool) string {
	s := "Stopped by " + who + "."
	if maybe {
		s += " A command was still running, and its outcome is unknown. Check the result before running it again."
	}
	return s
}

// sayOutcomeUnknown says that nobody knows what became of a command. why is the tool's sentence of how contact was lost,
// if it has one.
func sayOutcomeUnknown(why string) string {
	return cmp.Or(workflow.Plain(why, 300), "Contact with the command was lost.") + " **It may or may not have happened, and I won't run it again on my own.** " +
		"`sessions` shows how to look yourself."
}

// sayEditRefused says that a person's edit cannot be asked for.
func sayEditRefused(who, why string) string {
	return fmt.Sprintf("%s's edit was refused, so **nothing ran**: %s. Say what you want instead.", who, inlineCode(why))
}

// sayNotDone answers a person whose call could not be planned.
func sayNotDone(why string) string { return "Nothing was done: " + why + "." }

// sayNotRun says that a call of the agent was refused before anybody was asked.
func sayNotRun(c llm.Call, why string, redact func(string) string) string {
	var args struct {
		Target string `json:"target"`
	}
	_ = json.Unmarshal([]byte(c.Args), &args) // arguments that can't be read may be why
	what := inlineCode(doing(c, redact))
	if args.Target != "" {
		what += " on " + inlineCode(args.Target)
	}
	return what + " · not run: " + firstLine(why)
}

// sayModelFails says that the model cannot be asked.
func sayModelFails(err error) string { return "The model can't be reached: " + err.Error() }

// sayLimit says that a turn reached one of its limits.
func sayLimit(limit string) string {
	return "I stopped here: this turn reached its limit of " + limit + ". Say `go on` to let me continue."
}

// maxReason bounds a reason in a sentence, in characters.
const maxReason = 200

// sayStuck says that a turn only repeats what can't succeed; why may be "".
func sayStuck(why string) string {
	s := "I stopped here: I kept repeating a call that fails every time"
	if why != "" {
		why, _, _ = strings.Cut(why, "\n")
		s += ": " + strings.TrimSuffix(tools.TruncateHead(why, maxReason), ".")
	}
	return s + ". Say what to do instead, or `go on`."
}

// sayOpen says, by its state, what a command that hasn't ended waits for.
var sayOpen = map[string]string{ //nolint:gosec // these are sentences
	statePassword:   "It asks for a password. Say `take` and type it in the terminal, or say `stop`. Hidden passwords are in no record.",
	stateInput:      "It waits for input. Say `take` to type in the terminal, or say `stop`.",
	stateFullscreen: "It opened a full-screen program. Say `take` to use it in the terminal, or say `stop`.",
}

// words writes a time as people say it.
func words(d time.Duration) string {
	switch {
	case d < time.Minute:
		return plural(max(int(d.Seconds()), 0), "second")
	case d < 2*time.Hour:
		return plural(int(d.Minutes()), "minute")
	}
	return plural(int(d.Hours()), "hour")
}

// helpHead is the help before the rows of the words.
const helpHead = "Write what you need in plain words. Nothing that changes anything runs until one of you presses Approve.\n\n" +
	"| word | what it does |\n|---|---|\n"

// Rows of the help: how a chat word is written, and what it does.
const (
	helpStop       = "`stop` | stops the running command and this turn"
	helpStatus     = "`status` | says what I'm doing"
	helpApprove    = "`approve <id> [reason]` | approves a request"
	helpDeny       = "`deny <id> [reason]` | denies a request"
	helpBreakGlass = "`break-glass <id> <reason>` | approves it alone, where the policy allows it; somebody else must review it"
	helpReviewed   = "`reviewed <id> [note]` | records that you reviewed what was approved alone"
	helpTicket     = "`ticket` / `ticket <key>` | shows or sets this thread's ticket"
	helpExec       = "`exec <target>: <command>` | runs your own command there, approved like mine"
	helpOutput     = "`output <id>` | posts a command's whole output as a file"
	helpHelp       = "`help` | this list"
)

// noteTrial tells the model that an approved change is gone.
func noteTrial(command, how string) string {
	return "The approved command below was to undo itself unless somebody kept it. " + how + ".\n" + command
}

// sayNotKept and sayNotUndone answer a press on a target that does not answer.
func sayNotKept(err error) string {
	return "Couldn't keep it: " + err.Error() + ". It undoes itself if nobody keeps it in time."
}

func sayNotUndone(err error) string {
	return "Couldn't reach the target: " + err.Error() + ". It undoes the change itself when the time is up."
}
