package chat

import "strings"

// The statuses that networks tell from others: whoever writes one begins it with these
// words. Details may follow, as in "waiting for a decision on request 1".
const (
	StatusThinking = "thinking"
	StatusWriting  = "writing"
	StatusDecision = "waiting for a decision"
	StatusWaiting  = "waiting" // for anything else
	StatusPaused   = "paused:" // and why
)

// Activity is what a status is about. A network may show some by other means than words.
type Activity int

// The activities.
const (
	ActivityNone     Activity = iota // nothing goes on
	ActivityWork                     // something runs, and the status says what
	ActivityModel                    // the model thinks or writes
	ActivityDecision                 // people are to decide on a card, which says so itself
	ActivityWait                     // nothing runs, and the status says why
)

// ActivityOf returns what a status is about.
func ActivityOf(status string) Activity {
	begins := func(with string) bool { return strings.HasPrefix(status+" ", with+" ") }
	switch {
	case status == "":
		return ActivityNone
	case begins(StatusThinking), begins(StatusWriting):
		return ActivityModel
	case begins(StatusDecision):
		return ActivityDecision
	case begins(StatusWaiting), begins(StatusPaused):
		return ActivityWait
	}
	return ActivityWork
}
