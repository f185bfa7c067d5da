package approvals

import (
	"strings"

	"countersign/store"
)

// Method says how the bot knows what an action changed.
type Method string

// The methods.
const (
	// Recorded: the target's kernel told while it ran, and only what the action did itself.
	Recorded Method = "recorded"
	// Compared: looks before and after were compared, and somebody else may have done it.
	Compared Method = "compared"
)

// Receipt is what an action changed, for people: lines of plain text. Nothing follows from it. The zero
// Receipt says nothing.
type Receipt struct {
	Method Method `json:"method,omitempty"`
	// AsApproved means that it did what its rehearsal had shown, and nothing else.
	AsApproved bool `json:"as_approved,omitempty"`
	// Also is what those who approved weren't shown and need to know.
	Also []string `json:"also,omitempty"`
	Text string   `json:"text,omitempty"` // all of it
}

// Sentence says in one line what people who approved need to know; "" if there is nothing.
func (r Receipt) Sentence() string {
	switch {
	case len(r.Also) > 0 && r.Method == Recorded:
		return "Also: " + strings.Join(r.Also, "; ")
	case len(r.Also) > 0:
		return "Also, by it or by somebody else: " + strings.Join(r.Also, "; ")
	case r.AsApproved && r.Method == Recorded:
		return "as approved"
	case r.AsApproved:
		return "nothing else found"
	}
	return ""
}

// IsZero reports whether the receipt says nothing.
func (r Receipt) IsZero() bool { return r.Method == "" }

// Receipt adds the receipt to a request that ran. ok is false for any other.
func (Ledger) Receipt(tx store.Tx, id ID, receipt Receipt) (r Record, ok bool) {
	if r, ok = store.Load[Record](tx, recordKey(id)); !ok || r.State != Done {
		return r, false
	}
	r.Receipt = receipt
	save(tx, r)
	return r, true
}
