package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"countersign/store"
)

func anchorKey(n uint64) []byte                  { return store.Key("audit-anchor", n) }
func anchorHeadKey() []byte                      { return store.Key("audit-anchor-head") }
func anchoredKey(n uint64, thread string) []byte { return store.Key("audit-anchored", n, thread) }
func coveredKey(thread string) []byte            { return store.Key("audit-covered", thread) }
func countsKey() []byte                          { return store.Key("audit-counts") }

// lastPart is the thread of a key that ends with one.
func lastPart(key []byte) string {
	parts, err := store.Parts(key)
	if err == nil {
		if s, ok := parts[len(parts)-1].(string); ok {
			return s
		}
	}
	store.Abort(fmt.Errorf("audit: the row %s names no thread", store.Format(key)))
	return ""
}

// fresh yields the threads whose chains have lines that no anchor covers, in
// byte order. Before the first anchor that is every chain: those from before
// there were anchors have no mark.
func fresh(tx store.Tx, yield func(thread string)) {
	from := "audit-new"
	if _, ok := tx.Get(anchorHeadKey()); !ok {
		from = "audit-head"
	}
	for key := range tx.Scan(store.Prefix(from)) {
		yield(lastPart(key))
	}
}

// Anchor makes an anchor over all chains that grew since the one before. It
// returns false and writes nothing when none did. Its work and its memory grow
// with what is new; the first anchor of a store reads every line once.
func Anchor(tx store.Tx, now time.Time) (AnchorLine, bool) {
	last, _ := store.Load[Head](tx, anchorHeadKey())
	counts := loadCounts(tx)
	before, _ := Latest(tx)
	a := AnchorLine{N: last.N, At: now.UTC(), Lines: before.Lines, Prev: last.Hash}
	root := sha256.New()
	var threads []string
	fresh(tx, func(thread string) { threads = append(threads, thread) })
	for _, thread := range threads {
		head, ok := store.Load[Head](tx, headKey(thread))
		was, _ := store.Load[Head](tx, coveredKey(thread))
		if !ok || head.N <= was.N {
			continue // dropped or cut: the mark stays, and verifying says so
		}
		raw, err := encodeCovered(covered{a.N, thread, was.N, head.N, head.Hash})
		if err != nil {
			store.Abort(fmt.Errorf("audit: thread %s cannot be anchored: %w", name(thread), err))
		}
		_, _ = root.Write(append(raw, '\n'))
		tx.Set(anchoredKey(a.N, thread), raw)
		store.Save(tx, coveredKey(thread), head)
		tx.Delete(newKey(thread))
		tally(tx, thread, was.N, head.N, counts)
		a.Threads++
		a.Lines += head.N - was.N
	}
	if a.Threads == 0 {
		return AnchorLine{}, false
	}
	a.Root = hex.EncodeToString(root.Sum(nil))
	raw, hash, err := encodeAnchor(a)
	if err != nil {
		store.Abort(fmt.Errorf("audit: the anchor cannot be written: %w", err))
	}
	a.Hash = hash
	tx.Set(anchorKey(a.N), raw)
	if err := growTree(tx, a.N, raw); err != nil {
		store.Abort(fmt.Errorf("audit: the anchor cannot be added to the tree: %w", err))
	}
	store.Save(tx, anchorHeadKey(), Head{N: a.N + 1, Hash: hash})
	store.Save(tx, countsKey(), counts)
	return a, true
}

// Latest returns the newest anchor, false when there is none or when its row
// cannot be read; [Check] says which.
func Latest(tx store.Tx) (AnchorLine, bool) {
	head, ok := store.Load[Head](tx, anchorHeadKey())
	if !ok || head.N == 0 {
		return AnchorLine{}, false
	}
	raw, _ := tx.Get(anchorKey(head.N - 1))
	a, _, problem := parseAnchor(raw)
	return a, problem == ""
}

// Counts is how many lines there are of each What, in all threads. It reads the
// lines that no anchor covers, and no others.
func Counts(tx store.Tx) map[string]uint64 {
	counts := loadCounts(tx)
	fresh(tx, func(thread string) {
		was, _ := store.Load[Head](tx, coveredKey(thread))
		head, _ := store.Load[Head](tx, headKey(thread))
		tally(tx, thread, was.N, head.N, counts)
	})
	return counts
}

func loadCounts(tx store.Tx) map[string]uint64 {
	counts, ok := store.Load[map[string]uint64](tx, countsKey())
	if !ok || counts == nil {
		return map[string]uint64{}
	}
	return counts
}

// tally counts the lines from (included) to to of a thread.
func tally(tx store.Tx, thread string, from, to uint64, counts map[string]uint64) {
	for _, raw := range tx.Scan(lineKey(thread, from), lineKey(thread, to)) {
		if l := parseLine(raw); l.Event.What != "" {
			counts[l.Event.What]++
		}
	}
}

// Totals is what happened in a stretch of time.
type Totals struct {
	Since   time.Time
	By      map[string]int // lines by What
	Lines   int
	Threads int // in which something happened
	// Anchor is the newest one; Anchored is false when there is none.
	Anchor   AnchorLine
	Anchored bool
}

// Summary counts the lines at or after since, and names the newest anchor. It
// reads each chain back from its end to the first line that is older.
func Summary(tx store.Tx, since time.Time) Totals {
	t := Totals{Since: since, By: map[string]int{}}
	for key := range tx.Scan(store.Prefix("audit-head")) {
		thread, some := lastPart(key), false
		for _, raw := range tx.ScanBack(store.Prefix("audit", thread)) {
			l := parseLine(raw)
			if l.At.Before(since) {
				break
			}
			some = true
			t.Lines++
			t.By[l.Event.What]++
		}
		if some {
			t.Threads++
		}
	}
	t.Anchor, t.Anchored = Latest(tx)
	return t
}
