// Package aging indexes rows by their age, so that old ones can be deleted
// without a scan of all of them.
//
// An index row has the key <prefix> <hour i64> <parts>. Its parts say which rows
// it stands for. The key has the hour and not the instant because rows that are
// all written at one end of the key space are slow in engines with page locks.
package aging

import (
	"fmt"
	"iter"
	"time"

	"countersign/store"
)

// Index is the prefix of the keys of one index.
type Index []any

// Row is a row of an index.
type Row struct {
	Key, Value []byte
	Parts      []any // of the key, after the hour
}

// Key returns the key of the index row with these parts for a time.
func (x Index) Key(at time.Time, parts ...any) []byte {
	key := append(append([]any{}, x...), hour(at))
	return store.Key(append(key, parts...)...)
}

// Until yields the rows of all hours up to that of a time, which it includes. A caller
// that needs the exact time checks it itself.
func (x Index) Until(tx store.Tx, at time.Time) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		start, _ := store.Prefix(x...)
		_, end := store.Prefix(append(append([]any{}, x...), hour(at))...)
		for key, val := range tx.Scan(start, end) {
			parts, err := store.Parts(key)
			if err != nil || len(parts) <= len(x) {
				store.Abort(fmt.Errorf("aging: the row %s is none of an index", store.Format(key)))
			}
			if !yield(Row{Key: key, Value: val, Parts: parts[len(x)+1:]}) {
				return
			}
		}
	}
}

// Prune deletes the rows of [Index.Until] for which remove returns true, at most limit of
// them (0: all), and returns how many. remove deletes the rows that an index row stands
// for; returning false keeps the index row.
func (x Index) Prune(tx store.Tx, at time.Time, limit int, remove func(Row) bool) int {
	n := 0
	for r := range x.Until(tx, at) {
		if limit > 0 && n == limit {
			break
		}
		if remove(r) {
			tx.Delete(r.Key)
			n++
		}
	}
	return n
}

// hour returns the hours since 1970, rounded down.
func hour(t time.Time) int64 {
	h := t.Unix() / 3600
	if t.Unix()%3600 < 0 {
		h--
	}
	return h
}
