package approvals

import (
	"time"

	"countersign/adapters/chat"
	"countersign/store"
)

// Trial is a change that undoes itself on its target unless somebody keeps it. The zero Trial is none.
type Trial struct {
	For   time.Duration `json:"for,omitempty"`
	Until time.Time     `json:"until,omitzero"` // zero until the change begins to run
	Ended TrialEnd      `json:"ended,omitempty"`
	By    chat.User     `json:"by,omitzero"` // who ended it
	Note  string        `json:"note,omitempty"`
}

// TrialEnd is how a trial ended.
type TrialEnd string

// The ends of a trial; "" is none yet.
const (
	Kept       TrialEnd = "kept"
	Undone     TrialEnd = "undone"
	UndoFailed TrialEnd = "undo failed"
	NoTrial    TrialEnd = "not run" // the change did not run
)

// Open reports whether the change undoes itself unless somebody keeps it.
func (t Trial) Open() bool { return !t.Until.IsZero() && t.Ended == "" }

// EndTrial notes how a trial ended. ok is false if there is none, or it has ended already.
func (Ledger) EndTrial(tx store.Tx, id ID, end TrialEnd, by chat.User, note string) (r Record, ok bool) {
	r, ok = store.Load[Record](tx, recordKey(id))
	if !ok || !r.Trial.Open() {
		return r, false
	}
	r.Trial.Ended, r.Trial.By, r.Trial.Note = end, by, note
	save(tx, r)
	return r, true
}
