// Package outbox holds what has to be posted: a row is written in the same
// transaction as the state that it announces, so neither exists without the
// other, and a [Sender] posts it afterwards.
//
// Rows of a thread are posted in order, but for those that yield (Options.Yields); threads
// do not wait for each other. A
// row's key names the message: the first row of a key posts it, later ones edit
// it, with the reference that the first one brought back. A crash between the
// post and its record means that the row is sent once more with the same key;
// [Row].Attempts tells Send when to look whether it came through before.
//
// The package does not know what a body means or where it goes.
//
// Rows, under the key "outbox" (see store.Key):
//
//	seq      <thread>                    -> last sequence number; kept for ever
//	turn     <thread>                    -> the sender that tried last, and their number, where senders have names; kept for ever
//	todo     <thread>                    -> nothing; threads with pending rows, no others
//	row      <thread> <seq u64>          -> Row
//	key      <thread> <key>              -> ref, at, last pending seq
//	age      <hour i64> <thread> <key>   -> nothing; keys with a ref by the hour of at, for Prune
//	dropped  <hour i64> <thread> <seq>   -> Row with the reason as its LastError
package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"countersign/store"
	"countersign/store/aging"
)

// Row is one post or edit.
type Row struct {
	Thread string          `json:"thread"`
	Key    string          `json:"key"` // names the message within its thread
	Seq    uint64          `json:"seq"` // place in its thread, from 1
	Body   json.RawMessage `json:"body"`
	At     time.Time       `json:"at"` // of the Put
	// Attempts counts the attempts, including the current one. More than one means
	// that an earlier attempt may have succeeded.
	Attempts  int       `json:"attempts"`
	NotBefore time.Time `json:"not_before,omitzero"` // no attempt before this time
	LastError string    `json:"last_error,omitempty"`
	By        string    `json:"by,omitempty"` // the sender that tried it last
	// Ref is the reference of the message posted under this key, "" if there is none
	// yet. It is not stored in the row.
	Ref string `json:"-"`
	// Joined are the rows behind this one that are sent with it, see [Options].Joins. They
	// are not stored in the row.
	Joined []Row `json:"-"`
}

type keyRow struct {
	Ref  string    `json:"ref,omitempty"`
	At   time.Time `json:"at"`             // of the last row that was sent
	Last uint64    `json:"last,omitempty"` // newest pending row, 0 when none
}

// turnRow says which sender sends for a thread.
type turnRow struct {
	By string `json:"by"`
	N  uint64 `json:"n"` // of senders so far
}

func turnKey(thread string) []byte            { return store.Key("outbox", "turn", thread) }
func seqKey(thread string) []byte             { return store.Key("outbox", "seq", thread) }
func todoKey(thread string) []byte            { return store.Key("outbox", "todo", thread) }
func rowKey(thread string, seq uint64) []byte { return store.Key("outbox", "row", thread, seq) }
func refKey(thread, key string) []byte        { return store.Key("outbox", "key", thread, key) }

var (
	ages  = aging.Index{"outbox", "age"}
	drops = aging.Index{"outbox", "dropped"}
)

// Put writes a row to be posted after the thread's earlier ones. If the newest pending
// row of the same key was never attempted, or is an edit that failed, this one replaces it
// in its position: an edit of an unposted message is pointless, and so is one that is out of
// date. body is stored as JSON. An empty key, or a body
// that does not encode, aborts the transaction.
func Put(tx store.Tx, thread, key string, body any, at time.Time) {
	if key == "" {
		store.Abort(errors.New("outbox: a row needs a key"))
	}
	raw, err := json.Marshal(body)
	if err != nil {
		store.Abort(fmt.Errorf("outbox: the body of %q does not encode: %w", key, err))
	}
	k, _ := store.Load[keyRow](tx, refKey(thread, key))
	if k.Last != 0 {
		if old, ok := store.Load[Row](tx, rowKey(thread, k.Last)); ok && (old.Attempts == 0 || k.Ref != "" && old.LastError != "") {
			if old.Body = raw; old.Attempts > 0 {
				old.Attempts, old.NotBefore, old.LastError, old.At = 0, time.Time{}, "", at
			}
			store.Save(tx, rowKey(thread, old.Seq), old)
			return
		}
	}
	seq, _ := store.Load[uint64](tx, seqKey(thread))
	seq++
	store.Save(tx, seqKey(thread), seq)
	store.Save(tx, rowKey(thread, seq), Row{Thread: thread, Key: key, Seq: seq, Body: raw, At: at})
	k.Last = seq
	store.Save(tx, refKey(thread, key), k)
	tx.Set(todoKey(thread), nil)
}

// Pending returns the unposted rows of a thread in order, at most limit of them (0: all).
func Pending(tx store.Tx, thread string, limit int) []Row {
	var rows []Row
	for key, val := range tx.Scan(store.Prefix("outbox", "row", thread)) {
		if limit > 0 && len(rows) == limit {
			break
		}
		var r Row
		store.Decode(key, val, &r)
		r.Ref, _ = Ref(tx, thread, r.Key)
		rows = append(rows, r)
	}
	return rows
}

// Threads returns the threads that have pending rows, at most limit of them (0: all).
func Threads(tx store.Tx, limit int) []string {
	var threads []string
	for key := range tx.Scan(store.Prefix("outbox", "todo")) {
		if limit > 0 && len(threads) == limit {
			break
		}
		parts, err := store.Parts(key)
		if err != nil {
			store.Abort(err)
		}
		if thread, ok := parts[2].(string); ok {
			threads = append(threads, thread)
		}
	}
	return threads
}

// hasPending reports whether a thread has pending rows.
func hasPending(tx store.Tx, thread string) bool {
	_, ok := tx.Get(todoKey(thread))
	return ok
}

// Attempt records, in advance, that a sender is about to send a row, and returns the row
// to send. It returns false if the row is no longer pending. After Attempt the row's body
// does not change.
func Attempt(tx store.Tx, row Row, by string) (Row, bool) {
	r, ok := store.Load[Row](tx, rowKey(row.Thread, row.Seq))
	if !ok {
		return Row{}, false
	}
	last := r.LastError
	r.LastError = "" // until it fails again it is on its way
	r.Attempts++
	if r.By = by; by != "" {
		if t, _ := store.Load[turnRow](tx, turnKey(r.Thread)); t.By != by {
			store.Save(tx, turnKey(r.Thread), turnRow{By: by, N: t.N + 1})
		}
	}
	store.Save(tx, rowKey(r.Thread, r.Seq), r)
	r.Ref, _ = Ref(tx, r.Thread, r.Key)
	r.LastError = last
	return r, true
}

// Turn returns the sender that attempted a row of the thread last, and how often the
// sender has changed. n is 0 if no sender has a name.
func Turn(tx store.Tx, thread string) (n uint64, by string) {
	t, _ := store.Load[turnRow](tx, turnKey(thread))
	return t.N, t.By
}

// Sent removes a posted row and stores the reference of its message. An empty ref keeps
// the stored one. If the row is no longer pending, Sent changes nothing and returns
// late; kept is then the reference that another sender stored, "" if there is none.
func Sent(tx store.Tx, row Row, ref string) (kept string, late bool) {
	if !remove(tx, row) {
		kept, _ = Ref(tx, row.Thread, row.Key)
		return kept, true
	}
	k, _ := store.Load[keyRow](tx, refKey(row.Thread, row.Key))
	if ref == "" {
		ref = k.Ref
	}
	if k.Ref != "" {
		tx.Delete(ages.Key(k.At, row.Thread, row.Key))
	}
	k.Ref, k.At = ref, row.At
	if k.Ref != "" {
		tx.Set(ages.Key(k.At, row.Thread, row.Key), nil)
	}
	saveKey(tx, row, k)
	return ref, false
}

// Failed records that an attempt failed, and when the next one may start.
func Failed(tx store.Tx, row Row, err error, next time.Time) {
	r, ok := store.Load[Row](tx, rowKey(row.Thread, row.Seq))
	if !ok {
		return
	}
	r.Attempts = max(r.Attempts, 1)
	r.LastError, r.NotBefore = err.Error(), next
	store.Save(tx, rowKey(r.Thread, r.Seq), r)
}

// Drop gives up on a row. It moves the row, with why as its LastError, to those that
// [Dropped] returns. Later rows of its key are not affected.
func Drop(tx store.Tx, row Row, why string) {
	r, ok := store.Load[Row](tx, rowKey(row.Thread, row.Seq))
	if !ok {
		return
	}
	remove(tx, row)
	k, _ := store.Load[keyRow](tx, refKey(row.Thread, row.Key))
	saveKey(tx, row, k)
	r.LastError = why
	store.Save(tx, drops.Key(r.At, r.Thread, r.Seq), r)
}

// remove deletes a pending row.
func remove(tx store.Tx, row Row) bool {
	key := rowKey(row.Thread, row.Seq)
	if _, ok := tx.Get(key); !ok {
		return false
	}
	tx.Delete(key)
	for range tx.Scan(store.Prefix("outbox", "row", row.Thread)) {
		return true
	}
	tx.Delete(todoKey(row.Thread))
	return true
}

// saveKey updates the row of row's key after row was removed. A key with neither a message
// nor pending rows is deleted.
func saveKey(tx store.Tx, row Row, k keyRow) {
	if k.Last == row.Seq {
		k.Last = 0
	}
	if k.Last == 0 && k.Ref == "" {
		tx.Delete(refKey(row.Thread, row.Key))
		return
	}
	store.Save(tx, refKey(row.Thread, row.Key), k)
}

// Ref returns the reference of the message posted under key, false if there is none or
// [Prune] deleted it.
func Ref(tx store.Tx, thread, key string) (string, bool) {
	k, _ := store.Load[keyRow](tx, refKey(thread, key))
	return k.Ref, k.Ref != ""
}

// Dropped returns the dropped rows, ordered by the hour they were put, at most limit of
// them (0: all).
func Dropped(tx store.Tx, limit int) []Row {
	var rows []Row
	for key, val := range tx.Scan(store.Prefix("outbox", "dropped")) {
		if limit > 0 && len(rows) == limit {
			break
		}
		var r Row
		store.Decode(key, val, &r)
		rows = append(rows, r)
	}
	return rows
}

// Prune deletes references last used, and dropped rows put, before a time. It deletes at
// most limit of them (0: all) and returns how many. After that a row of such a key posts a
// new message instead of an edit. Keys with pending rows keep their reference.
func Prune(tx store.Tx, before time.Time, limit int) int {
	n := ages.Prune(tx, before, limit, func(r aging.Row) bool {
		thread, _ := r.Parts[0].(string)
		name, _ := r.Parts[1].(string)
		k, _ := store.Load[keyRow](tx, refKey(thread, name))
		if k.Last != 0 || !k.At.Before(before) {
			return false
		}
		tx.Delete(refKey(thread, name))
		return true
	})
	if limit > 0 && n == limit {
		return n
	}
	return n + drops.Prune(tx, before, max(limit-n, 0), func(r aging.Row) bool {
		var row Row
		store.Decode(r.Key, r.Value, &row)
		return row.At.Before(before)
	})
}
