package api

import (
	"time"

	"countersign/adapters/chat"
)

// List is what the bot knows of one kind of thing, for people who look after it.
type List struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	About   string   `json:"about,omitempty"` // a sentence
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`
	More    bool     `json:"more,omitempty"` // there are others: narrow it by words
	// Bars are amounts in order, such as what each day cost.
	Bars []BarValue `json:"bars,omitempty"`
	// Fields are what can be asked of it beside words, and Ask is the button that does; without
	// Ask a change of a field is enough. Note is the answer to it as a whole.
	Fields []FormField `json:"fields,omitempty"`
	Ask    string      `json:"ask,omitempty"`
	Slow   bool        `json:"slow,omitempty"` // words take long: it isn't asked over and over
	Note   string      `json:"note,omitempty"`
}

// FormField is one thing to fill in.
type FormField struct {
	Name    string   `json:"name"`
	Label   string   `json:"label"`
	Hint    string   `json:"hint,omitempty"`    // an example
	Choices []string `json:"choices,omitempty"` // there are no other values; nil: any text
	Long    bool     `json:"long,omitempty"`    // the text has lines
	Value   string   `json:"value,omitempty"`   // before anybody fills it in
}

// ListQuestion is what somebody asks of a list.
type ListQuestion struct {
	chat.Inquiry
	ID     string
	Words  string            // which each row has
	Fields map[string]string // by name; nil: nothing was filled in
	All    bool              // more rows than fit a page, to keep them as a file
}

// Value is what was filled in, or what a field has before.
func (q ListQuestion) Value(f FormField) string {
	if v, ok := q.Fields[f.Name]; ok {
		return v
	}
	return f.Value
}

// Row is one thing: a cell for each column, and what can be said about it.
type Row struct {
	Cells []Cell `json:"cells"`
	// Say is what a person would write to act on it, in Thread or in a new one, and Do what that
	// does; "" is nothing. It is put into the message field, and they send it.
	Say    string        `json:"say,omitempty"`
	Do     string        `json:"do,omitempty"`
	Thread chat.ThreadID `json:"thread,omitempty"` // where it belongs, if that can be opened in the console
	// Recording is one of Thread's, and Moment the seconds in it that are meant.
	Recording string  `json:"recording,omitempty"`
	Moment    float64 `json:"moment,omitempty"`
	// ID and Acts are what can be done about it with one press.
	ID   string      `json:"id,omitempty"`
	Acts []RowAction `json:"acts,omitempty"`
}

// RowAction is a button of a row.
type RowAction struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Cell is one value of a row.
type Cell struct {
	Text string    `json:"text,omitempty"`
	At   time.Time `json:"at,omitzero"` // a moment instead of a text
	Tone chat.Tone `json:"tone,omitempty"`
	Code bool      `json:"code,omitempty"` // exact text
}

// BarValue is one amount of a series.
type BarValue struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Text  string  `json:"text"` // the value for people
}
