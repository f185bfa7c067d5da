// Package queue is the durable inbox of each thread: what came in and was not
// worked on yet, in order, without duplicates, with one owner at a time.
//
// An item enters at most once, whatever its network redelivers ([Put]), or later
// ([PutAt], [Due]). A worker claims a thread and gets a [Fence]; each of its
// transactions begins with the fence's Check, so a worker that was replaced
// cannot write any more. Taking items out and recording what came of them belong
// in the same transaction: then each item counts exactly once.
//
// The package starts no goroutine, has no clock and does not know who is alive:
// owners are names, and callers say which of them live. An owner's name should
// hold the run of its process (the store's boot epoch, say), so that a restart
// makes all earlier claims those of dead owners.
//
// Rows, under the key "queue" (see store.Key):
//
//	thread  <thread>            -> owner, epoch         kept for ever: the epoch of a thread only grows
//	last    <thread>            -> seq u64 (as a key part), the last one given out; kept for ever
//	work    <thread>            -> owner, since         threads with items or a claim, no others
//	item    <thread> <seq u64>  -> itemRow as JSON
//	seen    <hash>              -> at (as a key part)   dedupe, by a hash of the item's ID
//	age     <hour i64> <hash>   -> nothing              seen rows by the hour of at, for Prune
//	later   <due time> <hash>   -> itemRow as JSON
//	due     <hash>              -> due time             the later row of an ID
//
// IDs are hashed and ages are in hours because many networks count up their IDs,
// and rows that are all written at one end of the key space are slow in engines
// with page locks.
package queue

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"countersign/store"
	"countersign/store/aging"
)

// ErrFenced means that the claim was released or taken over. The worker must
// stop, and write and post nothing more for the thread.
var ErrFenced = errors.New("queue: the claim on this thread was taken over or released")

// Item is one thing that came in for a thread.
type Item struct {
	ID     string // identifies the event; items with an empty ID are never duplicates
	Thread string // whose inbox
	Kind   string // defined by the caller
	Body   json.RawMessage
	At     time.Time // when it arrived; determines the age of its ID for Prune
	Seq    uint64    // position in its thread, from 1; Put assigns it
}

// itemRow is an Item as it is stored. Fields can be added or removed, but their
// names must not change. The body is bytes, so that storing it does not parse it
// again: that was a quarter of the cost of Put.
type itemRow struct {
	ID     string    `json:"id"`
	Thread string    `json:"thread"`
	Kind   string    `json:"kind"`
	Body   []byte    `json:"body,omitempty"`
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq"`
}

func saveItem(tx store.Tx, key []byte, it Item) {
	store.Save(tx, key, itemRow{it.ID, it.Thread, it.Kind, it.Body, it.At, it.Seq})
}

func decodeItem(key, val []byte) Item {
	var r itemRow
	store.Decode(key, val, &r)
	return Item{ID: r.ID, Thread: r.Thread, Kind: r.Kind, Body: r.Body, At: r.At, Seq: r.Seq}
}

type threadRow struct {
	Owner string `json:"owner,omitempty"`
	Epoch uint64 `json:"epoch,omitempty"` // number of claims so far
}

type workRow struct {
	Owner string    `json:"owner,omitempty"`
	Since time.Time `json:"since"` // arrival of the item that created this row
}

func threadKey(thread string) []byte           { return store.Key("queue", "thread", thread) }
func workKey(thread string) []byte             { return store.Key("queue", "work", thread) }
func itemKey(thread string, seq uint64) []byte { return store.Key("queue", "item", thread, seq) }
func seenKey(hash []byte) []byte               { return store.Key("queue", "seen", hash) }

func laterKey(due time.Time, hash []byte) []byte {
	return store.Key("queue", "later", due, hash)
}
func dueKey(hash []byte) []byte { return store.Key("queue", "due", hash) }

func hashOf(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:16]
}

// ages indexes the seen rows by when they were written.
var ages = aging.Index{"queue", "age"}

// Put appends an item to its thread's inbox. If an item with that ID came before,
// within the time that [Prune] keeps, Put does nothing and returns false.
func Put(tx store.Tx, it Item) (fresh bool) {
	return put(tx, it, it.At)
}

// put is Put for an item that enters its inbox at now.
func put(tx store.Tx, it Item, now time.Time) (fresh bool) {
	if it.ID != "" && !See(tx, it.ID, now) {
		return false
	}
	it.Seq = next(tx, it.Thread)
	if work := workKey(it.Thread); !has(tx, work) {
		store.Save(tx, work, workRow{Since: now})
	}
	saveItem(tx, itemKey(it.Thread, it.Seq), it)
	return true
}

// Amend is Put for an item that changes an earlier one. It calls change with each
// item in the thread's inbox, in order, until change returns ok; body then replaces that
// item's body. If change accepts none, the item is put like any other.
func Amend(tx store.Tx, it Item, change func(waiting Item) (body []byte, ok bool)) (fresh bool) {
	if it.ID != "" && Seen(tx, it.ID) {
		return false
	}
	for key, val := range tx.Scan(store.Prefix("queue", "item", it.Thread)) {
		old := decodeItem(key, val)
		body, ok := change(old)
		if !ok {
			continue
		}
		old.Body = body
		saveItem(tx, key, old)
		if it.ID != "" {
			hash := hashOf(it.ID)
			tx.Set(seenKey(hash), store.Key(it.At))
			tx.Set(ages.Key(it.At, hash), nil)
		}
		return true
	}
	return Put(tx, it)
}

// next returns the thread's next sequence number and stores it as used.
func next(tx store.Tx, thread string) uint64 {
	key := store.Key("queue", "last", thread)
	var seq uint64
	if val, ok := tx.Get(key); ok {
		parts, err := store.Parts(val)
		if err != nil || len(parts) != 1 {
			store.Abort(fmt.Errorf("queue: the row %s is damaged", store.Format(key)))
		}
		seq, _ = parts[0].(uint64)
	}
	seq++
	tx.Set(key, store.Key(seq))
	return seq
}

// See marks an ID as that of an item that was in an inbox, for what needs no worker. fresh is false if
// it was there before, within the time that [Prune] keeps.
func See(tx store.Tx, id string, now time.Time) (fresh bool) {
	hash := hashOf(id)
	if has(tx, seenKey(hash)) {
		return false
	}
	tx.Set(seenKey(hash), store.Key(now))
	tx.Set(ages.Key(now, hash), nil)
	return true
}

// Seen reports whether an item with this ID is or was in an inbox.
func Seen(tx store.Tx, id string) bool {
	return has(tx, seenKey(hashOf(id)))
}

// Join makes a thread known, as an item in its inbox would.
func Join(tx store.Tx, thread string) {
	if key := store.Key("queue", "last", thread); !has(tx, key) {
		tx.Set(key, store.Key(uint64(0)))
	}
}

// Known reports whether a thread ever had an item or was joined.
func Known(tx store.Tx, thread string) bool {
	return has(tx, store.Key("queue", "last", thread))
}

// Working returns the threads that have items or are being worked on.
func Working(tx store.Tx) []string {
	var threads []string
	for key := range tx.Scan(store.Prefix("queue", "work")) {
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

func has(tx store.Tx, key []byte) bool {
	_, ok := tx.Get(key)
	return ok
}

// waiting reports whether the thread has items.
func waiting(tx store.Tx, thread string) bool {
	for range tx.Scan(store.Prefix("queue", "item", thread)) {
		return true
	}
	return false
}

// PutAt schedules an item for [Due] to put into the inbox. It replaces a scheduled item
// with the same ID. If the ID is or was in an inbox, PutAt does nothing and returns
// false, so setting a timer again after it fired needs a new ID. An empty ID aborts the
// transaction.
func PutAt(tx store.Tx, due time.Time, it Item) (kept bool) {
	if it.ID == "" {
		store.Abort(errors.New("queue: an item for later needs an ID"))
	}
	Cancel(tx, it.ID)
	hash := hashOf(it.ID)
	if has(tx, seenKey(hash)) {
		return false
	}
	saveItem(tx, laterKey(due, hash), it)
	store.Save(tx, dueKey(hash), due)
	return true
}

// Cancel removes the scheduled item with this ID. An item that has reached the inbox stays
// there.
func Cancel(tx store.Tx, id string) {
	hash := hashOf(id)
	due, ok := store.Load[time.Time](tx, dueKey(hash))
	if !ok {
		return
	}
	tx.Delete(laterKey(due, hash))
	tx.Delete(dueKey(hash))
}

// Due moves scheduled items with due <= now into their inboxes, the earliest first and at
// most limit of them (0: all). It returns the threads that got one, without duplicates.
func Due(tx store.Tx, now time.Time, limit int) (threads []string) {
	start, _ := store.Prefix("queue", "later")
	_, end := store.Prefix("queue", "later", now)
	moved := 0
	for key, val := range tx.Scan(start, end) {
		if limit > 0 && moved == limit {
			break
		}
		moved++
		it := decodeItem(key, val)
		tx.Delete(key)
		tx.Delete(dueKey(hashOf(it.ID)))
		if put(tx, it, now) && !slices.Contains(threads, it.Thread) {
			threads = append(threads, it.Thread)
		}
	}
	return threads
}

// Scheduled returns the threads that have items for later, without duplicates.
func Scheduled(tx store.Tx) (threads []string) {
	for key, val := range tx.Scan(store.Prefix("queue", "later")) {
		if t := decodeItem(key, val).Thread; !slices.Contains(threads, t) {
			threads = append(threads, t)
		}
	}
	return threads
}

// NextDue returns the due time of the earliest scheduled item, false if there is none.
func NextDue(tx store.Tx) (time.Time, bool) {
	for key := range tx.Scan(store.Prefix("queue", "later")) {
		parts, err := store.Parts(key)
		if err != nil {
			store.Abort(err)
		}
		if due, ok := parts[2].(time.Time); ok {
			return due, true
		}
	}
	return time.Time{}, false
}

// Waiting counts the items in all inboxes by scanning them.
func Waiting(tx store.Tx) (n int) {
	for range tx.Scan(store.Prefix("queue", "item")) {
		n++
	}
	return n
}

// Has reports whether a thread's inbox has items.
func Has(tx store.Tx, thread string) bool {
	for range tx.Scan(store.Prefix("queue", "item", thread)) {
		return true
	}
	return false
}

// HasKind reports whether a thread's inbox has an item of this kind, by scanning it.
func HasKind(tx store.Tx, thread, kind string) bool {
	for key, val := range tx.Scan(store.Prefix("queue", "item", thread)) {
		if decodeItem(key, val).Kind == kind {
			return true
		}
	}
	return false
}

// Idle reports whether a thread has neither items nor unfinished work.
func Idle(tx store.Tx, thread string) bool { return !has(tx, workKey(thread)) }

// Owner returns the owner of the claim on a thread, "" if there is none.
func Owner(tx store.Tx, thread string) string {
	t, _ := store.Load[threadRow](tx, threadKey(thread))
	return t.Owner
}

// Fence is a claim on a thread: the right to work on it until somebody else
// claims it. The zero Fence is no claim.
type Fence struct {
	Thread string `json:"thread"`
	Owner  string `json:"owner"`
	Epoch  uint64 `json:"epoch"` // grows with every claim on the thread
}

// Claim makes owner the owner of thread. It returns false if another live owner has it.
// An owner may claim its own thread again, which fences the worker that had it. alive is
// not called for owner itself.
func Claim(tx store.Tx, thread, owner string, alive func(owner string) bool) (Fence, bool) {
	if owner == "" {
		store.Abort(errors.New("queue: an owner needs a name"))
	}
	t, _ := store.Load[threadRow](tx, threadKey(thread))
	if t.Owner != "" && t.Owner != owner && alive(t.Owner) {
		return Fence{}, false
	}
	t.Owner = owner
	t.Epoch++
	store.Save(tx, threadKey(thread), t)
	w, _ := store.Load[workRow](tx, workKey(thread))
	w.Owner = owner
	store.Save(tx, workKey(thread), w)
	return Fence{Thread: thread, Owner: owner, Epoch: t.Epoch}, true
}

// First reports whether owner has a thread that nobody had before.
func First(tx store.Tx, thread, owner string) bool {
	t, _ := store.Load[threadRow](tx, threadKey(thread))
	return t.Owner == owner && t.Epoch == 1
}

// Check returns [ErrFenced] if the claim no longer holds. Every transaction in which an
// owner writes for its thread must begin with it.
func (f Fence) Check(tx store.Tx) error {
	t, _ := store.Load[threadRow](tx, threadKey(f.Thread))
	if f.Owner == "" || t.Owner != f.Owner || t.Epoch != f.Epoch {
		return ErrFenced
	}
	return nil
}

// mustHold is Check for functions without an error result: it aborts the transaction.
func (f Fence) mustHold(tx store.Tx) {
	if err := f.Check(tx); err != nil {
		store.Abort(err)
	}
}

// Drain removes items from the thread's inbox and returns them in order, at most limit of
// them (0: all). It aborts with [ErrFenced] if the claim does not hold.
func Drain(tx store.Tx, f Fence, limit int) []Item {
	f.mustHold(tx)
	var items []Item
	for key, val := range tx.Scan(store.Prefix("queue", "item", f.Thread)) {
		if limit > 0 && len(items) == limit {
			break
		}
		it := decodeItem(key, val)
		items = append(items, it)
		tx.Delete(key)
	}
	return items
}

// Release ends the claim. If items are waiting, it keeps the claim and returns false. It
// aborts with [ErrFenced] if the claim does not hold.
func Release(tx store.Tx, f Fence) bool {
	f.mustHold(tx)
	if waiting(tx, f.Thread) {
		return false
	}
	disown(tx, f)
	tx.Delete(workKey(f.Thread))
	return true
}

// Yield ends the claim on a thread with unfinished work, for a process that shuts down.
// [Ready] returns the thread immediately. Yield aborts with [ErrFenced] if the claim does
// not hold.
func Yield(tx store.Tx, f Fence) {
	f.mustHold(tx)
	disown(tx, f)
	w, _ := store.Load[workRow](tx, workKey(f.Thread))
	w.Owner = ""
	store.Save(tx, workKey(f.Thread), w)
}

func disown(tx store.Tx, f Fence) {
	t, _ := store.Load[threadRow](tx, threadKey(f.Thread))
	t.Owner = ""
	store.Save(tx, threadKey(f.Thread), t)
}

// Ready returns the threads to work on, the longest waiting first and at most limit of
// them (0: all). These have no live owner, and either items or work that a dead owner left
// unfinished. The cost grows with the number of threads with items or a claim, not with
// all threads that ever existed.
func Ready(tx store.Tx, limit int, alive func(owner string) bool) []string {
	type ready struct {
		thread string
		since  time.Time
	}
	var found []ready
	for key, val := range tx.Scan(store.Prefix("queue", "work")) {
		var w workRow
		store.Decode(key, val, &w)
		if w.Owner != "" && alive(w.Owner) {
			continue
		}
		parts, err := store.Parts(key)
		if err != nil {
			store.Abort(err)
		}
		thread, _ := parts[2].(string)
		found = append(found, ready{thread, w.Since})
	}
	slices.SortStableFunc(found, func(a, b ready) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.thread, b.thread))
	})
	if limit > 0 && len(found) > limit {
		found = found[:limit]
	}
	threads := make([]string, len(found))
	for i, r := range found {
		threads[i] = r.thread
	}
	return threads
}

// Prune deletes IDs that came before a time, at most limit of them (0: all), and returns
// how many it deleted. An event redelivered after that counts as new, so keep IDs for
// longer than any network redelivers.
func Prune(tx store.Tx, before time.Time, limit int) int {
	return ages.Prune(tx, before, limit, func(r aging.Row) bool {
		hash, _ := r.Parts[0].([]byte)
		if at, ok := tx.Get(seenKey(hash)); ok && bytes.Compare(at, store.Key(before)) >= 0 {
			return false // in the hour of before, but after it
		}
		tx.Delete(seenKey(hash))
		return true
	})
}
