package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"countersign/store"
	"countersign/tools"
)

// state is the state of a process in the store.
type state string

const (
	// starting means that the start is not confirmed.
	starting state = "starting"
	running  state = "running"
	// ended means that it and its children are gone, or never existed.
	ended state = "over"
)

// row is one process.
type row struct {
	ID       string    `json:"id"`        // "bg-3f2a"
	Target   string    `json:"target"`    // name in the configuration
	TargetID string    `json:"target_id"` // the target's proven identity at the start
	Thread   string    `json:"thread"`
	Call     string    `json:"call"`
	By       string    `json:"by,omitempty"`
	Command  string    `json:"command"`
	Dir      string    `json:"dir"`
	Base     string    `json:"base"` // directory on the target that contains the process's directory
	Mark     string    `json:"mark"` // name of the directory below Base, and value of the environment variable
	Created  time.Time `json:"created"`
	State    state     `json:"state"`

	// The identity of the process: pid, start time in kernel ticks, and boot id. PID is 0 until the
	// start is confirmed.
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	Boot  string `json:"boot,omitempty"`
	// Began and Ended are in the target's clock, in seconds.
	Began int64 `json:"began,omitempty"`

	// Set once it has ended. Code is nil if nothing recorded it; Why then says what is known.
	Code  *int   `json:"code,omitempty"`
	Ended int64  `json:"ended,omitempty"`
	Why   string `json:"why,omitempty"`
	// Seen is when the bot first saw that it had ended.
	Seen  time.Time `json:"seen,omitzero"`
	Bytes int64     `json:"bytes,omitempty"`
	Full  bool      `json:"full,omitempty"`
}

const table = "process"

func (r row) key() []byte { return store.Key(table, r.Target, r.ID) }

// rows lists the matching processes, oldest first.
func rows(tx store.Tx, match func(row) bool) []row {
	var out []row
	start, end := store.Prefix(table)
	for k, v := range tx.Scan(start, end) {
		var r row
		store.Decode(k, v, &r)
		if match(r) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b row) int { return a.Created.Compare(b.Created) })
	return out
}

// list is rows in its own transaction.
func (s *suite) list(ctx context.Context, match func(row) bool) ([]row, error) {
	var out []row
	err := s.DB.View(ctx, func(tx store.Tx) error {
		out = rows(tx, match)
		return nil
	})
	if err != nil {
		return nil, tools.Failed("the processes could not be looked up: %w", err)
	}
	return out, nil
}

// find returns a process of the thread on this target. A thread cannot see the processes of others.
func (s *suite) find(ctx context.Context, thread, id string) (row, error) {
	own, err := s.list(ctx, func(r row) bool { return r.Thread == thread })
	if err != nil {
		return row{}, err
	}
	var ids []string
	for _, r := range own {
		switch {
		case r.ID == id && r.Target != s.Name:
			return row{}, tools.Failed("%s runs on the target %s; name that target", id, r.Target)
		case r.ID == id:
			return r, nil
		case r.Target == s.Name:
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return row{}, tools.Failed("there is no process %s in this thread, which has none on %s; start one with run_bash_background", tools.Quote(id), s.Name)
	}
	return row{}, tools.Failed("there is no process %s in this thread; those on %s are %s", tools.Quote(id), s.Name, strings.Join(ids[max(0, len(ids)-20):], ", "))
}

// limitError means that a limit on processes is reached.
type limitError struct{ sentence string }

// Error implements error.
func (e *limitError) Error() string { return e.sentence }

// checkLimits compares the limits with the processes that may be running.
func (s *suite) checkLimits(all []row, thread string) error {
	var here int
	var own []string
	for _, r := range all {
		if r.State == ended {
			continue
		}
		if r.Target == s.Name {
			here++
		}
		if r.Thread == thread {
			name := r.ID
			if r.Target != s.Name {
				name += " on " + r.Target
			}
			own = append(own, name)
		}
	}
	switch {
	case len(own) >= s.Limits.Thread:
		return &limitError{fmt.Sprintf("the command was not started: this thread already has %d processes in the background (%s), and the "+
			"limit is %d; wait until one ends, end one with interrupt_background_process, or look with get_background_status at those on other "+
			"targets, where one may have ended",
			len(own), strings.Join(own, ", "), s.Limits.Thread)}
	case here >= s.Limits.Target:
		return &limitError{fmt.Sprintf("the command was not started: %d processes of this and other threads already run in the background on "+
			"%s, and the limit is %d; wait until one ends, or end one that is no longer needed with interrupt_background_process", here, s.Name, s.Limits.Target)}
	}
	return nil
}

// anyRow matches every row.
func anyRow(row) bool { return true }

// reserve stores the row of a process that is about to start and assigns its id.
func (s *suite) reserve(ctx context.Context, r row) (row, error) {
	var secret [12]byte
	_, _ = rand.Read(secret[:]) // never fails
	err := s.DB.Update(ctx, func(tx store.Tx) error {
		all := rows(tx, anyRow)
		if err := s.checkLimits(all, r.Thread); err != nil {
			return err
		}
		for digits := 4; ; digits++ { // longer ids when the short ones are used up
			var b [8]byte
			_, _ = rand.Read(b[:])
			r.ID = "bg-" + hex.EncodeToString(b[:])[:min(digits, 16)]
			if !slices.ContainsFunc(all, func(o row) bool { return o.ID == r.ID }) {
				break
			}
		}
		r.Mark = r.ID + "-" + hex.EncodeToString(secret[:])
		store.Save(tx, r.key(), r)
		return nil
	})
	var full *limitError
	switch {
	case errors.As(err, &full):
		return row{}, err
	case err != nil:
		return row{}, tools.Failed("the command was not started: it could not be noted: %w", err)
	}
	return r, nil
}

// save stores what was found out about processes. Rows that were deleted in the meantime stay
// deleted, and ended ones stay ended.
func (s *suite) save(ctx context.Context, found ...row) error {
	return s.DB.Update(ctx, func(tx store.Tx) error {
		for _, r := range found {
			if was, ok := store.Load[row](tx, r.key()); ok && was.State != ended {
				store.Save(tx, r.key(), r)
			}
		}
		return nil
	})
}

// forget deletes rows.
func (s *suite) forget(ctx context.Context, gone ...row) error {
	return s.DB.Update(ctx, func(tx store.Tx) error {
		for _, r := range gone {
			tx.Delete(r.key())
		}
		return nil
	})
}
