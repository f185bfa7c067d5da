package chat

import "time"

// List is what the bot knows of one kind of thing, for people who look after it.
type List struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	About   string   `json:"about,omitempty"` // a sentence
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`
	More    bool     `json:"more,omitempty"` // there are others: narrow it by words
	// Bars are amounts in order, such as what each day cost.
	Bars []Bar `json:"bars,omitempty"`
}

// Row is one thing: a cell for each column, and what can be said about it.
type Row struct {
	Cells []Cell `json:"cells"`
	// Say is what a person would write to act on it, in Thread or in a new one, and Do what that
	// does; "" is nothing. It is put into the message field, and they send it.
	Say    string   `json:"say,omitempty"`
	Do     string   `json:"do,omitempty"`
	Thread ThreadID `json:"thread,omitempty"` // where it belongs, if that can be opened in the console
}

// Cell is one value of a row.
type Cell struct {
	Text string    `json:"text,omitempty"`
	At   time.Time `json:"at,omitzero"` // a moment instead of a text
	Tone Tone      `json:"tone,omitempty"`
	Code bool      `json:"code,omitempty"` // exact text
}

// Bar is one amount of a series.
type Bar struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Text  string  `json:"text"` // the value for people
}
