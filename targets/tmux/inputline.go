package tmux

// lineContent is what stands on the shell's input line behind the prompt.
type lineContent int

const (
	lineEmpty            lineContent = iota
	lineText                         // something that this process did not send
	lineDraft                        // keys that SendKeys typed without Enter
	lineDraftUnconfirmed             // a draft was there when a command started or ended: it may be left
)

func (c lineContent) String() string {
	return [...]string{"empty", "text", "draft", "unconfirmed draft"}[c]
}

// lineEvent is what is learned of the input line.
type lineEvent int

const (
	lineEchoed     lineEvent = iota // something was written behind the prompt
	lineKeysSent                    // SendKeys types; the echo is still to come
	lineUnsettled                   // a command started or ended, or the shell exited
	linePrompted                    // mark P: the prompt was printed
	lineFoundEmpty                  // mark S
	lineFoundText                   // mark S
	lineUnread                      // there is a prompt, and this process may not ask what is behind it
)

func (e lineEvent) String() string {
	return [...]string{"echoed", "keys sent", "unsettled", "prompted", "found empty", "found text", "unread"}[e]
}

// lineTransitions holds what follows from each event. A draft outlives a command, since its
// keys may still be on their way when the command starts; a prompt or the shell's answer
// settles it.
var lineTransitions = [...][4]lineContent{
	//               empty      text       draft           unconfirmed draft
	lineEchoed:     {lineText, lineText, lineDraft, lineDraft},
	lineKeysSent:   {lineDraft, lineDraft, lineDraft, lineDraft},
	lineUnsettled:  {lineEmpty, lineEmpty, lineDraftUnconfirmed, lineDraftUnconfirmed},
	linePrompted:   {lineEmpty, lineEmpty, lineEmpty, lineEmpty},
	lineFoundEmpty: {lineEmpty, lineEmpty, lineEmpty, lineEmpty},
	lineFoundText:  {lineText, lineText, lineDraft, lineDraft},
	lineUnread:     {lineText, lineText, lineDraft, lineDraft},
}

// inputLine is the shell's input line, as far as this process knows. The bot does not type
// over text on it.
type inputLine struct {
	content   lineContent
	continued bool // the shell waits for more lines of a command (mark Q)
}

// apply moves the line to the state that follows the event.
func (l *inputLine) apply(e lineEvent) {
	l.content = lineTransitions[e][l.content]
	if e == lineUnsettled || e == linePrompted {
		l.continued = false
	}
}

// hasText reports whether something stands on the line.
func (l *inputLine) hasText() bool { return l.content == lineText || l.content == lineDraft }

// hasDraft reports whether some of it may be keys of SendKeys.
func (l *inputLine) hasDraft() bool {
	return l.content == lineDraft || l.content == lineDraftUnconfirmed
}

// untouched reports whether no command has been begun.
func (l *inputLine) untouched() bool { return !l.hasText() && !l.continued }
