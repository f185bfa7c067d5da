package approvals

import "time"

// Ticket is a ticket of another system, as that system described it.
type Ticket struct {
	Key    string `json:"key"`              // "OPS-123", "acme/shop#7"
	Source string `json:"source,omitempty"` // as the configuration names the system
	URL    string `json:"url,omitempty"`
	Title  string `json:"title,omitempty"`
	Status string `json:"status,omitempty"` // in the system's own words
	// Open and Approved are what a change needs. Without a check both are true.
	Open     bool `json:"open,omitempty"`
	Approved bool `json:"approved,omitempty"`
	// Read is when the system said so; zero where nobody asks it. Problem is why it couldn't be asked, ""
	// is nothing.
	Read    time.Time `json:"read,omitzero"`
	Problem string    `json:"problem,omitempty"`
}

// TicketFresh is how long what a system said of a ticket counts.
const TicketFresh = 2 * time.Minute

// Needed is what is wrong with a ticket for which a change is made, as a sentence without its capital; "" is
// nothing.
func (t Ticket) Needed(now time.Time) string {
	switch {
	case t.Key == "":
		return "this needs a ticket: write its key in this thread"
	case t.Problem != "" && now.Sub(t.Read) > TicketFresh:
		return t.Key + " can't be checked, because " + t.Source + " " + t.Problem
	case !t.Open && !t.Approved && t.Title == "" && t.Read.IsZero():
		return t.Key + " is being checked; try again in a moment"
	case !t.Read.IsZero() && now.Sub(t.Read) > TicketFresh:
		return t.Key + " was last checked at " + Clock(t.Read, now) + "; try again in a moment"
	case !t.Open:
		return t.Key + " is closed (" + t.Status + "); write the key of an open one"
	case !t.Approved:
		return t.Key + " isn't approved (" + t.Status + ")"
	}
	return ""
}

// String names the ticket with its title and status.
func (t Ticket) String() string {
	s := t.Key
	if t.Title != "" {
		s += ": " + t.Title
	}
	if t.Status != "" {
		s += " (" + t.Status + ")"
	}
	return s
}
