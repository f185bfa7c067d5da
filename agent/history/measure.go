package history

// Sizes in tokens of what surrounds a text in a request. They are generous: a view must
// never be larger than it says.
const (
	frame     = 6   // of one message
	callFrame = 24  // of one call, with its id
	markFrame = 34  // the marks in an envelope
	dataFrame = 22  // the delimiters of a text that is data
	fileFrame = 40  // those of a file
	noteFrame = 56  // those of a note
	editFrame = 90  // the words around a call that was edited
	stubSize  = 100 // a stub, beside the names in it
	cutSize   = 110 // the note in a text that was cut, beside the text
)

// Guess estimates the tokens of n bytes that nobody counted, at 2.2 bytes a token, which
// is what logs have with o200k: prose and code have fewer tokens.
func Guess(n int) int { return (n*10 + 21) / 22 }

func guess(text string) int { return Guess(len(text)) }

// Measure returns the tokens of what a model is shown of an entry, with count for those of
// a text: what [Entry.Tokens] is set to when the entry is appended. It is 0 for kinds that
// a model is not shown.
func Measure(e Entry, count func(text string) int) int {
	switch {
	case e.Message != nil:
		n := frame + count(e.Message.From.Name) + 2 + count(e.Message.Text)
		if e.Message.From.Bot || e.Message.From.Outside {
			n += dataFrame
		}
		for _, f := range e.Message.Files {
			n += fileFrame + count(f.Name) + count(f.Text)
		}
		return n
	case e.Reply != nil:
		n := frame + count(e.Reply.Text) + Guess(len(e.Reply.Opaque)/2)
		for _, c := range e.Reply.Calls {
			n += callFrame + count(c.Name) + count(c.Args)
		}
		return n
	case e.Edited != nil:
		return editFrame + count(e.Edited.By.Name) + count(e.Edited.Argument) + count(e.Edited.Shown)
	case e.Result != nil:
		return frame + markFrame + count(e.Result.Tool) + count(e.Result.Text)
	case e.Note != nil:
		return frame + noteFrame + count(e.Note.Text)
	case shownEnd(&e):
		return frame + callFrame + count(e.End.Text)
	case e.Begin != nil:
		return frame + count(e.Begin.Task)
	case e.Summary != nil:
		return frame + count(e.Summary.Text)
	}
	return 0
}

// size is what an entry was measured to have, or a guess.
func size(e *Entry) int {
	if e.Tokens > 0 {
		return e.Tokens
	}
	return Measure(*e, guess)
}
