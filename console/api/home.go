package api

import (
	"time"

	"countersign/adapters/chat"
)

// Home is what goes on in all threads of all networks, as one person may see it.
type Home struct {
	Yours   []HomeCard  // requests that the person may approve, the most urgent first
	Others  []HomeCard  // requests that others have to decide
	Running []HomeCard  // approved, and not ended
	Busy    []chat.Busy // other threads in which something goes on
	Changes []HomeCard  // that ran lately, the newest first
	Alerts  []Firing    // problems that alerts told of and that go on, the worst first
	OnCall  []string    // who is on call now, as in "Bob, primary until 08:00 UTC"
}

// Firing is a problem that an alert told of and that goes on.
type Firing struct {
	ID       string        `json:"id"` // in the list of alerts
	Title    string        `json:"title"`
	Severity string        `json:"severity,omitempty"` // in the sender's words
	Source   string        `json:"source,omitempty"`
	Runbook  string        `json:"runbook,omitempty"` // an address of the web
	Since    time.Time     `json:"since"`
	Thread   chat.ThreadID `json:"thread,omitempty"` // where the person may read it
	Silenced bool          `json:"silenced,omitempty"`
}

// HomeCard is a card away from its thread.
type HomeCard struct {
	ID     string        `json:"id"` // of the request
	Thread chat.ThreadID `json:"thread"`
	At     time.Time     `json:"at"` // when it was asked, or ended
	Card   chat.Card     `json:"card"`
	// Not says why the person can't approve it, and Glass that they may break glass for it.
	Not   string `json:"not,omitempty"`
	Glass bool   `json:"glass,omitempty"`
	// Network is where its thread is, as people call it; "" for a conversation of the console, which sets it.
	Network string `json:"network,omitempty"`
}
