// Package report makes the record of an incident out of what a thread left behind: a
// draft of a post-mortem in Markdown ([Timeline]), and an archive with everything that
// belongs to it ([Export]): the transcript, the commands as a table, the requests for
// approval, the chain of decisions with what proves it, whole outputs and recordings.
//
// It works on data that it is handed; only [Load] reads a store, and [Chain] exports from
// one. It calls no model: every sentence is made of entries, so the same incident gives
// the same bytes. It decides nothing, posts nothing and keeps nothing.
//
// What people, machines and models wrote is data. It is shown without its secrets, with
// what is invisible made visible, and escaped for the place where it stands.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/history"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/internal/redact"
	"countersign/store"
)

// Incident is everything that is known of one thread. Nothing of it is changed.
type Incident struct {
	Thread chat.ThreadID
	// Made is when the report is made, in the header of the chain and as the time of
	// every file of the archive. It is the only time that does not come from the record.
	Made time.Time
	// Entries is the transcript in order.
	Entries []history.Entry
	// Records are the thread's requests for approval. One that is not here is told of by
	// what the transcript says about it.
	Records []approvals.Record
	// Lines is the thread's chain of decisions; without it nothing is known of the right
	// by which look-ups ran, nor of escalations and refused votes.
	Lines []audit.Line
	// Anchor is the newest anchor of all chains; zero when there is none.
	Anchor audit.AnchorLine
	// Alerts are what alerting systems said, in any order.
	Alerts []Alert
	// Faults are sentences about what is missing from the above, or wrong with it. They
	// are shown with the open questions.
	Faults []string
	// Redactor takes secrets out of every text. Without one the built-in rules are
	// used, which know no value of this installation.
	Redactor *redact.Redactor
}

// Alert is one message of an alerting system.
type Alert struct {
	At     time.Time         `json:"at"`
	Source string            `json:"source"`           // the alerting system: "alertmanager"
	Key    string            `json:"key,omitempty"`    // what a firing and a resolved alert have in common
	Status string            `json:"status,omitempty"` // [Firing], [Resolved], or the source's own word
	Title  string            `json:"title"`
	Text   string            `json:"text,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	URL    string            `json:"url,omitempty"`
}

// The two states of an alert that the report understands.
const (
	Firing   = "firing"
	Resolved = "resolved"
)

// Load reads a thread's transcript, its requests and its chain in the caller's
// transaction, all of it into memory. Made, Alerts and Redactor are the caller's to set.
// A damaged chain is no error but one of the Incident's Faults: the report is wanted all
// the more then. A transcript that cannot be read aborts the transaction.
func Load(tx store.Tx, thread chat.ThreadID) Incident {
	inc := Incident{Thread: thread, Entries: history.Load(tx, thread)}
	err := caught(func() {
		inc.Lines = audit.Lines(tx, string(thread))
		inc.Anchor, _ = audit.Latest(tx)
	})
	if err == nil {
		err = audit.Verify(tx, string(thread))
	}
	if err != nil {
		inc.Faults = append(inc.Faults, fmt.Sprintf("The record of decisions of this thread is damaged (%v): keep a copy of the store as it is, and run `bot audit verify`.", err))
	}
	var ledger approvals.Ledger
	seen := map[approvals.ID]bool{"": true}
	add := func(id approvals.ID) {
		if seen[id] {
			return
		}
		seen[id] = true
		if r, ok := ledger.Get(tx, id); ok && r.Thread == thread {
			inc.Records = append(inc.Records, r)
		}
	}
	for i := range inc.Entries {
		if a := inc.Entries[i].Ask; a != nil {
			add(a.Approval)
		}
	}
	for _, l := range inc.Lines {
		add(approvals.ID(l.Event.Approval))
	}
	for _, r := range ledger.OpenIn(tx, thread) {
		add(r.ID)
	}
	slices.SortFunc(inc.Records, func(a, b approvals.Record) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return inc
}

// caught runs what may abort a transaction that only reads, so that it goes on.
func caught(read func()) (err error) {
	defer store.Catch(&err)
	read()
	return nil
}

// redactor is never nil.
func (inc Incident) redactor() *redact.Redactor {
	if inc.Redactor != nil {
		return inc.Redactor
	}
	return redact.New()
}
