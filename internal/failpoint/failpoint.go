// Package failpoint names the lines at which a crash is interesting. In normal
// builds [Hit] does nothing; a build with the tag "failpoint" kills the process
// with SIGKILL at the point and count that COUNTERSIGN_FAILPOINT names
// ("command-running:2" dies the second time that point is reached). The crash
// suite walks [Names], so a new point is tested by existing.
package failpoint

// Point is one named line.
type Point string

// The points, in the order in which one approved command passes them.
const (
	EventStored    Point = "event-stored"
	ModelAsked     Point = "model-asked"
	ModelReplied   Point = "model-replied"
	CardRequested  Point = "card-requested"
	CardPosted     Point = "card-posted"
	AsideAsked     Point = "aside-asked"   // the model, while the card waits
	AsideReplied   Point = "aside-replied" // its reply is not stored yet
	VoteStored     Point = "vote-stored"
	IntentStored   Point = "intent-stored"
	CommandNoted   Point = "command-noted" // and neither typed nor started
	CommandRunning Point = "command-running"
	OutcomeStored  Point = "outcome-stored"
	ReplyPosted    Point = "reply-posted"

	// Passed on the way where they are needed.
	TerminalMade    Point = "terminal-made"    // and not noted
	TerminalAdopted Point = "terminal-adopted" // one that an earlier process made, and not noted
	TimerSet        Point = "timer-set"        // of a change that undoes itself, and the command is not noted
)

// Asides returns the points that a bot passes when people talk while a card waits.
func Asides() []Point { return []Point{AsideAsked, AsideReplied} }

// Names returns the points that every approved command passes, in order.
func Names() []Point {
	return []Point{
		EventStored, ModelAsked, ModelReplied, CardRequested, CardPosted,
		VoteStored, IntentStored, CommandNoted, CommandRunning, OutcomeStored, ReplyPosted,
	}
}
