// Package audit keeps every decision in a hash chain per thread: each line's
// hash covers the line and the hash before it, so a changed, dropped or swapped
// line is found, and a cut tail too as long as the head row is there.
//
// Keys:
//
//	("audit", thread, n uint64) -> Line as JSON
//	("audit-head", thread)      -> Head as JSON
//
// It does not keep anybody from rewriting a whole chain with its head: for that
// the head must be anchored elsewhere.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"countersign/store"
)

// Event is one thing that happened to a request.
type Event struct {
	What     string `json:"what"` // asked, vote, refused, decided, running, done, unknown, ...
	Approval string `json:"approval"`
	Digest   string `json:"digest,omitempty"`
	Tool     string `json:"tool,omitempty"`
	Target   string `json:"target,omitempty"`
	Level    string `json:"level,omitempty"`
	User     string `json:"user,omitempty"`
	Via      string `json:"via,omitempty"`
	Note     string `json:"note,omitempty"`
}

// Line is one event in the chain.
type Line struct {
	N     uint64    `json:"n"`
	At    time.Time `json:"at"`
	Event Event     `json:"event"`
	Prev  string    `json:"prev"`
	Hash  string    `json:"hash"`
}

// Head is the end of a chain.
type Head struct {
	N    uint64 `json:"n"` // number of lines
	Hash string `json:"hash"`
}

func (l Line) sum() string {
	l.Hash = ""
	b, err := json.Marshal(l)
	if err != nil {
		return "" // cannot happen: every field marshals
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// Append adds an event to the thread's chain.
func Append(tx store.Tx, thread string, e Event, at time.Time) {
	head, _ := store.Load[Head](tx, store.Key("audit-head", thread))
	l := Line{N: head.N, At: at.UTC(), Event: e, Prev: head.Hash}
	l.Hash = l.sum()
	store.Save(tx, store.Key("audit", thread, l.N), l)
	store.Save(tx, store.Key("audit-head", thread), Head{N: l.N + 1, Hash: l.Hash})
}

// Lines returns the thread's chain in order.
func Lines(tx store.Tx, thread string) []Line {
	var out []Line
	start, end := store.Prefix("audit", thread)
	for k := range tx.Scan(start, end) {
		if l, ok := store.Load[Line](tx, k); ok {
			out = append(out, l)
		}
	}
	return out
}

// Verify checks the thread's chain. The error names the first line that is
// wrong.
func Verify(tx store.Tx, thread string) error {
	lines := Lines(tx, thread)
	prev := ""
	for i, l := range lines {
		switch {
		case l.N != uint64(i):
			return fmt.Errorf("audit: thread %s: line %d is missing", thread, i)
		case l.Prev != prev:
			return fmt.Errorf("audit: thread %s: line %d does not follow the one before it", thread, i)
		case l.Hash != l.sum():
			return fmt.Errorf("audit: thread %s: line %d was changed", thread, i)
		}
		prev = l.Hash
	}
	head, _ := store.Load[Head](tx, store.Key("audit-head", thread))
	if head.N != uint64(len(lines)) || head.Hash != prev {
		return fmt.Errorf("audit: thread %s: the chain has %d lines, its head says %d", thread, len(lines), head.N)
	}
	return nil
}
