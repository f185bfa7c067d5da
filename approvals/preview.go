package approvals

import "countersign/store"

// Evidence says how the bot knows what an action would do.
type Evidence string

// The kinds of evidence, the strongest first.
const (
	// Rehearsed: it ran in a throwaway view of the target's files, which shows all that it did.
	Rehearsed Evidence = "rehearsed"
	// Predicted: the target, or the program itself, was asked by reads alone.
	Predicted Evidence = "predicted"
	// UnknownEffect: neither could be done, and the text says why.
	UnknownEffect Evidence = "unknown"
)

// Preview is what an action would do, for the people who decide about it: lines of plain text. Nothing
// else follows from it. The zero Preview says nothing.
type Preview struct {
	Evidence Evidence `json:"evidence,omitempty"`
	Text     string   `json:"text,omitempty"`
	Back     Back     `json:"back,omitzero"`
	// Files are the names that the rehearsal changed, for the receipt: absolute paths. One with "/" at its
	// end stands for many in that directory.
	Files []string `json:"files,omitempty"`
	// Retry says that only the moment was against it: the target was busy, or not to be reached.
	Retry bool `json:"-"`
}

// BackKind says how an action can be undone.
type BackKind string

// The kinds of ways back.
const (
	OnePress BackKind = "one press back"
	ByHand   BackKind = "back by hand"
	NoWay    BackKind = "no way back"
)

// Back is the way back from an action, for people. The zero Back says that none is known.
type Back struct {
	Kind BackKind `json:"kind,omitempty"`
	Text string   `json:"text,omitempty"`
	// Keep are the files that are copied before the action runs, and Made those that it makes: absolute
	// paths, of an action whose rehearsal showed all of them.
	Keep []string `json:"keep,omitempty"`
	Made []string `json:"made,omitempty"`
	// Timed says that the target can take the way itself, after a while.
	Timed bool `json:"timed,omitempty"`
}

// IsZero reports whether the preview says nothing.
func (p Preview) IsZero() bool { return p.Evidence == "" && p.Text == "" && p.Back.Kind == "" }

// Preview adds a late preview to a request. ok is false if it is decided
// already, or there is no such request.
func (Ledger) Preview(tx store.Tx, id ID, p Preview) (r Record, ok bool) {
	if r, ok = store.Load[Record](tx, recordKey(id)); !ok || r.State != Pending {
		return r, false
	}
	r.Preview = p
	save(tx, r)
	return r, true
}
