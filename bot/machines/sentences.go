package machines

import (
	"fmt"
	"time"
)

// What people read of the machines, side by side.

const sayNoTmuxHere = "tmux isn't installed, so nobody can watch commands run. Install it with: apt-get install tmux"

// sayChangedSince says why something isn't undone.
const sayChangedSince = "it has changed since that command, so undoing it could undo somebody else's work"

// saySwitchedOff says that a target has no terminals because its operator wants none.
func saySwitchedOff(target string) string {
	return "Terminals are off for " + target + ". Commands run without one."
}

// sayNoTmux says that a target has no terminals.
func sayNoTmux(target string) string {
	return target + " has no tmux, so nobody can watch commands run there. Install tmux to change that."
}

// sayIdleEnded says that a terminal was ended because nobody used it.
func sayIdleEnded(session, target string, idle fmt.Stringer) string {
	return fmt.Sprintf("The terminal %s on %s was idle for %s, so I closed it. The next command opens a new one, without the old directory and variables.", session, target, idle)
}

// sayOutcome says what became of a command whose outcome was unknown.
func sayOutcome(found string) string { return "About the command with the unknown outcome: " + found }

// sayEnded says that a machine noted how a command ended.
func sayEnded(target string, at time.Time, code int) string {
	return fmt.Sprintf("%s recorded that it ended at %s UTC with exit code %d.", target, at.UTC().Format("15:04:05"), code)
}

// sayRuns says that a command goes on.
func sayRuns(target string) string { return "It's still running on " + target + "." }

// sayNotRun says that a machine has no note of a command's beginning. A command whose note could
// not be written runs all the same, so that it didn't run is likely and not certain.
func sayNotRun(target string) string {
	return target + " has no record of it, so it probably didn't run. Check before you run it again."
}

// sayKilled says that a machine noted a command's beginning alone.
func sayKilled(target string) string {
	return target + " recorded that it started, but not how it ended. It was killed, or the machine went down."
}
