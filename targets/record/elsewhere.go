package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/store"
)

// A Register tells which replica of the program has which recordings, where several
// share a store: a recording stays a file of the replica that made it. It is a help for
// people who look for one, and may be behind what there is. A nil Register, as that of a
// program that is alone, knows nothing. It is safe for concurrent use.
//
// Rows (see store.Key):
//
//	"recording" <group> <replica> <target> <session> <pane> -> Held
type Register struct {
	db   store.DB
	here string
}

// NewRegister returns the register of a replica, whose name should tell people where its
// files are, and be the same after a restart if the files are.
func NewRegister(db store.DB, here string) *Register { return &Register{db, here} }

// Held says that a replica has recordings of a pane.
type Held struct {
	Replica string `json:"replica"`
	Target  string `json:"target"` // the machine
	Session string `json:"session"`
	Pane    string `json:"pane"`
	// Last is when the latest of them was last known to be written to.
	Last time.Time `json:"last"`
}

// Note stores that this replica has recordings. The group is what [Register.Elsewhere]
// asks for, such as a conversation's label; the Replica of each is filled in. To be called
// when a recording begins, and now and then while there are files.
func (r *Register) Note(ctx context.Context, group string, list ...Held) error {
	if r == nil || len(list) == 0 {
		return nil
	}
	return r.db.Update(ctx, func(tx store.Tx) error {
		for _, h := range list {
			h.Replica, h.Last = r.here, h.Last.UTC()
			key := store.Key("recording", group, h.Replica, h.Target, h.Session, h.Pane)
			if old, ok := store.Load[Held](tx, key); !ok || old.Last.Before(h.Last) {
				store.Save(tx, key, h)
			}
		}
		return nil
	})
}

// Elsewhere returns what other replicas have of a group, by replica, the latest first.
func (r *Register) Elsewhere(ctx context.Context, group string) (out []Held, err error) {
	if r == nil {
		return nil, nil
	}
	err = r.db.View(ctx, func(tx store.Tx) error {
		out = nil
		for key, val := range tx.Scan(store.Prefix("recording", group)) {
			var h Held
			if store.Decode(key, val, &h); h.Replica != r.here {
				out = append(out, h)
			}
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b Held) int {
		return cmp.Or(strings.Compare(a.Replica, b.Replica), b.Last.Compare(a.Last))
	})
	return out, err
}

// Prune forgets recordings, of all replicas, that were last written to before a time.
func (r *Register) Prune(ctx context.Context, before time.Time) (removed int, err error) {
	if r == nil {
		return 0, nil
	}
	old := func(key, val []byte) bool {
		var h Held
		store.Decode(key, val, &h)
		return h.Last.Before(before)
	}
	var keys [][]byte
	err = r.db.View(ctx, func(tx store.Tx) error {
		keys = nil
		for key, val := range tx.Scan(store.Prefix("recording")) {
			if old(key, val) {
				keys = append(keys, key)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	for batch := range slices.Chunk(keys, 500) {
		n := 0
		err := r.db.Update(ctx, func(tx store.Tx) error {
			n = 0
			for _, key := range batch {
				if val, ok := tx.Get(key); ok && old(key, val) { // it may have been noted again
					tx.Delete(key)
					n++
				}
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// maxNamed is how many panes of a replica [Sentence] names.
const maxNamed = 5

// Sentence tells people where recordings are that are not here; "" when there are none.
func Sentence(list []Held) string {
	if len(list) == 0 {
		return ""
	}
	var replicas []string
	for len(list) > 0 {
		name := list[0].Replica
		n := slices.IndexFunc(list, func(h Held) bool { return h.Replica != name })
		if n < 0 {
			n = len(list)
		}
		var panes []string
		for _, h := range list[:min(n, maxNamed)] {
			panes = append(panes, fmt.Sprintf("%s %s, pane %s", h.Target, h.Session, h.Pane))
		}
		if n > maxNamed {
			panes = append(panes, fmt.Sprintf("%d more", n-maxNamed))
		}
		replicas = append(replicas, fmt.Sprintf("%s (%s)", name, strings.Join(panes, "; ")))
		list = list[n:]
	}
	return "Recordings of this thread's terminals that are not here are in the data directories of other replicas of this bot, as long as " +
		"those exist: " + strings.Join(replicas, ", ") + "."
}
