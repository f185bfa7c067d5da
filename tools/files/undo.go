package files

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/store"
	"countersign/tools"
)

//go:embed undo.md
var undoDescription string

// Limits of the content that is saved for one change: per file, and in total.
const (
	maxImage  = 1 << 20
	maxImages = 4 << 20
)

// Images stores the content of files before a change. It is safe for concurrent use.
//
// Keys: ("undo", id of the request) -> SavedChange as JSON. The content is stored unredacted,
// because undo writes it back.
type Images struct {
	db  store.DB
	now func() time.Time
}

// NewImages returns the images in a store.
func NewImages(db store.DB, now func() time.Time) *Images { return &Images{db, now} }

// SavedChange is what is needed to undo one change.
type SavedChange struct {
	Thread string    `json:"thread"`
	Target string    `json:"target"` // name in the configuration
	At     time.Time `json:"at"`
	Files  []Image   `json:"files"`
}

// Image is one file before a change, and its hash after it.
type Image struct {
	Path   string      `json:"path"`
	Absent bool        `json:"absent,omitempty"` // the file did not exist
	Old    []byte      `json:"old,omitempty"`
	Mode   fs.FileMode `json:"mode,omitempty"`
	Sum    string      `json:"sum"` // after the change; [Absent] if it was deleted
}

// save stores the content of the files before a change. ok is false if they are too large or m is
// nil.
func (m *Images) save(ctx context.Context, target string, c tools.Call, changes []change) (ok bool, err error) {
	if m == nil {
		return false, nil
	}
	k := SavedChange{Thread: c.Thread, Target: target, At: m.now()}
	total := 0
	for _, ch := range changes {
		if total += len(ch.old); len(ch.old) > maxImage || total > maxImages {
			return false, nil
		}
		k.Files = append(k.Files, Image{Path: ch.resolved, Absent: ch.sum == Absent, Old: ch.old, Mode: ch.mode, Sum: ch.sumAfter()})
	}
	err = m.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, imageKey(ChangeID(c)), k)
		return nil
	})
	return err == nil, err
}

// ChangeID returns the id of a call's change: that of its approval request.
func ChangeID(c tools.Call) string { return string(approvals.NewID(c.Thread, c.ID)) }

func imageKey(id string) []byte { return store.Key("undo", id) }

// Load returns a saved change of a thread.
func (m *Images) Load(ctx context.Context, thread, id string) (k SavedChange, ok bool, err error) {
	if m == nil {
		return SavedChange{}, false, nil
	}
	err = m.db.View(ctx, func(tx store.Tx) error {
		k, ok = store.Load[SavedChange](tx, imageKey(id))
		return nil
	})
	return k, ok && k.Thread == thread, err
}

// PruneImages deletes up to limit images of changes before a time and returns how many.
func PruneImages(tx store.Tx, before time.Time, limit int) int {
	n := 0
	start, end := store.Prefix("undo")
	var old [][]byte
	for key := range tx.Scan(start, end) {
		if k, ok := store.Load[SavedChange](tx, key); ok && k.At.Before(before) && len(old) < limit {
			old = append(old, append([]byte(nil), key...))
		}
	}
	for _, key := range old {
		tx.Delete(key)
		n++
	}
	return n
}

// undoer is the tool undo. People use it through a button or a chat command; models are not offered
// it.
type undoer struct{ writer }

// Spec implements tools.Tool.
func (undoer) Spec() tools.Spec {
	return tools.Spec{
		Name: "undo", Description: undoDescription, Level: risk.Medium, Unlisted: true,
		Schema: tools.MustSchema(tools.SimpleSchema{
			Properties: map[string]tools.Property{"change": {Type: "string", Pattern: `^[a-z0-9]{10}$`, Description: "Id of the change's request."}},
			Required:   []string{"change"},
		}),
	}
}

// Plan implements tools.Tool.
func (t undoer) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	var args struct {
		Change string `json:"change"`
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return tools.Plan{}, tools.Invalid("%v", err)
	}
	k, ok, err := t.Images.Load(ctx, c.Thread, args.Change)
	switch {
	case err != nil:
		return tools.Plan{}, tools.Failed("what the files were before could not be read: %w", err)
	case !ok || k.Target != t.Name:
		return tools.Plan{}, tools.Failed("there is nothing to undo under %s here: it is not a change of files of this thread, was too "+
			"large, or is too long ago", args.Change)
	}
	var changes []change
	level := risk.Medium
	var exact strings.Builder
	for _, f := range k.Files {
		b, err := t.bind(ctx, f.Path)
		if err != nil {
			return tools.Plan{}, err
		}
		was := Absent
		if !f.Absent {
			was = sum(f.Old)
		}
		switch {
		case b.resolved != f.Path:
			return tools.Plan{}, tools.Failed("%s leads to %s by now, so it cannot be undone; put it right with edit", f.Path, b.resolved)
		case b.sum == was && was != f.Sum:
			return tools.Plan{}, tools.Failed("%s is what it was before this change already, so there is nothing to undo", f.Path)
		case b.sum != f.Sum:
			return tools.Plan{}, tools.Failed("%s has changed since, so undoing would lose what somebody else did; put it right with edit", f.Path)
		}
		ch := change{plannedFile: b, content: f.Old, removed: f.Absent, restoreMode: f.Mode}
		if ch.removed {
			level = risk.High
		}
		fmt.Fprintf(&exact, "%s becomes %s\n", f.Path, was)
		changes = append(changes, ch)
	}
	a := t.action(c, changes)
	a.Bytes, a.Args = []byte(exact.String()), c.Args
	plan := tools.Planned(a, approvals.Claim{}, func(ctx context.Context, sink tools.Sink) (tools.Result, error) {
		return t.commit(ctx, sink, c, "Undone: "+summarize(changes), changes...)
	})
	plan.Level, plan.Undoes = level, approvals.ID(args.Change)
	return plan, nil
}
