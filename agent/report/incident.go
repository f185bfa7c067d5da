// Package report creates the record of an incident from a thread: the draft of a
// post-mortem in Markdown ([Timeline]), and an archive ([Export]) with the transcript, the
// commands as a table, the requests for approval, the chain of decisions with its proof,
// whole outputs and recordings.
//
// It works on the data passed to it. Only [Load] reads a store, and [Chain] exports from
// one. It calls no model, so the same incident always gives the same bytes. It has no side
// effects.
//
// Everything that people, machines and models wrote is untrusted. It is redacted, invisible
// characters are made visible, and it is escaped for its context.
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

// Incident is everything known about one thread. The package does not modify it.
type Incident struct {
	Thread chat.ThreadID
	// Made is the time of the report, used in the header of the chain and for every file
	// of the archive. No other time comes from outside the record.
	Made time.Time
	// Entries is the transcript in order.
	Entries []history.Entry
	// Records are the thread's requests for approval. A missing one is described from the
	// transcript.
	Records []approvals.Record
	// Lines is the thread's chain of decisions. Without it the report cannot say why reads
	// ran without approval, and lacks escalations and refused votes.
	Lines []audit.Line
	// Anchor is the newest anchor of all chains, zero if there is none.
	Anchor audit.AnchorLine
	// Alerts are the messages of alerting systems, in any order.
	Alerts []Alert
	// Faults are sentences about missing or damaged data, shown with the open questions.
	Faults []string
	// Redactor removes secrets from every text. The default uses the built-in rules,
	// which do not know this installation's values.
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

// Load reads a thread's transcript, requests and chain into memory, in the caller's
// transaction. The caller sets Made, Alerts and Redactor. A damaged chain is not an error,
// because the report matters even more then; it becomes one of the Incident's Faults. An
// unreadable transcript aborts the transaction.
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
		inc.Faults = append(inc.Faults, fmt.Sprintf("The record of decisions of this thread is damaged (%v): keep a copy of the store as it is, and run `countersign audit verify`.", err))
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

// caught runs a function that may abort, and returns that as an error, so that a read-only
// transaction can continue.
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
