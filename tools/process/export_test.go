package process

import (
	"context"

	"countersign/store"
)

// Row is what the store knows of a process, as far as tests look at it or change it.
type Row struct {
	ID, Mark, Base, State, Boot, TargetID, By, Dir string
	PID                                            int
	Start                                          uint64
}

func ids(r row) Row {
	return Row{ID: r.ID, Mark: r.Mark, Base: r.Base, State: string(r.State), Boot: r.Boot, TargetID: r.TargetID, By: r.By, Dir: r.Dir, PID: r.PID, Start: r.Start}
}

// Rows lists all rows, oldest first.
func Rows(ctx context.Context, db store.DB) (out []Row, err error) {
	err = db.View(ctx, func(tx store.Tx) error {
		out = nil
		for _, r := range rows(tx, anyRow) {
			out = append(out, ids(r))
		}
		return nil
	})
	return out, err
}

// Change changes what identifies a process, as if its number had been used again.
func Change(ctx context.Context, db store.DB, id string, f func(*Row)) error {
	return db.Update(ctx, func(tx store.Tx) error {
		for _, r := range rows(tx, func(r row) bool { return r.ID == id }) {
			v := ids(r)
			f(&v)
			r.PID, r.Start, r.Boot, r.Mark, r.TargetID = v.PID, v.Start, v.Boot, v.Mark, v.TargetID
			store.Save(tx, r.key(), r)
		}
		return nil
	})
}

// Parse reads what a target says.
func Parse(out string) (processes int) { return len(parse(out)) }
