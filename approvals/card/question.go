package card

import (
	"countersign/adapters/chat"
)

// Question is the card of a workflow's question: name is the workflow's, title the step's,
// and text what is asked. problem says what was wrong with the last answer, or is "". Without
// choices the answer is written in the thread.
//
// An answer approves nothing, so its buttons have no colour and nothing beside them to
// confirm. Text comes redacted.
func Question(name, title, text, problem string, choices []chat.Button) chat.Card {
	c := chat.Card{Title: name + ": " + title, Body: text, Choose: choices}
	if problem != "" {
		c.Warn = []string{problem + "."}
	}
	if len(choices) == 0 {
		c.Fields = []chat.Field{{Name: "Answer", Value: askWritten}}
	}
	return c
}

// Answered is the card of a question that somebody answered.
func Answered(name, text, answer string, by chat.User) chat.Card {
	return chat.Card{
		Title: name + ": answered", Body: text, Final: true,
		Fields: []chat.Field{{Name: "Answer", Value: answer}, {Name: "By", Value: by.Name}},
	}
}

// NotAnswered is the card of a question whose workflow was stopped.
func NotAnswered(name, text string) chat.Card {
	return chat.Card{Title: name + ": not answered", Body: text, Final: true}
}
