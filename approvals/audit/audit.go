// Package audit keeps every decision in a hash chain per thread, and ties the
// chains together with anchors. A line's hash covers the line and the hash
// before it, so a changed, dropped, swapped or inserted line is found. The head
// row of a chain finds a cut tail. An anchor covers the heads of all chains that
// grew since the anchor before it, and anchors form a chain of their own, so
// that a chain which was rewritten or dropped whole, head and all, is found as
// long as one anchor that covers it is known: in the store, in an export, or as
// the hash that was posted in chat.
//
// It does not keep anybody who can write the store from rewriting everything,
// anchors included: for that, compare with a hash that was posted elsewhere. It
// cannot show what was dropped between an anchor and the next one by somebody
// who rewrote the chain and its head. It decides nothing, and it prunes nothing.
//
// Keys:
//
//	("audit", thread, n uint64)             -> line n of the thread, see form.go
//	("audit-head", thread)                  -> Head as JSON
//	("audit-new", thread)                   -> nothing, while the chain has lines that no anchor covers
//	("audit-anchor", n uint64)              -> AnchorLine with its hash, see form.go
//	("audit-anchored", n uint64, thread)    -> the head that anchor n covers, see form.go
//	("audit-anchor-head")                   -> Head of the chain of anchors as JSON
//	("audit-covered", thread)               -> Head that the newest anchor of the thread covers, as JSON
//	("audit-tree", index uint64)            -> hashes of the tree of anchors, see tree.go
//	("audit-witness", name)                 -> Witnessed as JSON
//	("audit-counts")                        -> how many covered lines there are of each What, as JSON
//
// An ordinary event writes rows of its own thread only. The rows of the
// instance are written by [Anchor] alone, so no key is hot.
package audit

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"countersign/internal/redact"
	"countersign/store"
)

// What can happen to a request.
const (
	Asked      = "asked"
	Approved   = "approved"
	Denied     = "denied"
	Refused    = "refused" // a vote that did not count
	Escalated  = "escalated"
	Relieved   = "relieved" // somebody else went on call while it waited
	BreakGlass = "break-glass"
	Reviewed   = "reviewed" // a break-glass run, afterwards
	Granted    = "granted"
	Revoked    = "revoked" // what was granted
	Allowed    = "allowed"
	Forbidden  = "forbidden"
	Running    = "running"
	Done       = "done"
	Unknown    = "unknown"   // it may or may not have run
	Unstarted  = "unstarted" // the bot went away before it ran; the approval still stands
	Expired    = "expired"
	Cancelled  = "cancelled"
	Invalid    = "invalid" // what would run is not what was approved
	Edited     = "edited"
	Repeated   = "asked again" // by the same program
	Receipt    = "receipt"     // what it really changed
	// How a change on trial ended (approvals.TrialEnd).
	Kept       = "kept"
	Undone     = "undone"
	UndoFailed = "undo failed"
	NotRun     = "not run"
	Ticket     = "ticket" // somebody named the thread's
	Policy     = "policy" // the policy or a person's standing changed
)

// Known lists the constants above. Lines with another What are kept and counted
// all the same: a record too many is better than one too few.
func Known() []string {
	return []string{
		Asked, Approved, Denied, Refused, Escalated, Relieved, BreakGlass, Reviewed, Granted, Revoked, Allowed, Forbidden, Running, Done, Unknown, Unstarted,
		Expired, Cancelled, Invalid, Edited, Repeated, Receipt, Kept, Undone, UndoFailed, NotRun, Ticket, Policy,
	}
}

// MaxText is how many bytes of a text a line keeps: of Command, Outcome and
// Note. What is longer is cut, and its length in bytes is said.
const MaxText = 4 << 10

// Event is one thing that happened to a request. Every field but What may be
// empty.
type Event struct {
	What     string   // one of the constants above
	Approval string   // id of the request
	Call     string   // id of the model's call
	Digest   string   // of the action, in hex
	Tool     string   //
	Kind     string   // of the action: shell, keys, change, observe
	Target   string   // the machine
	Level    string   // final risk level
	Effects  []string // what the engine expects it to do
	Rule     string   // of the policy that decided
	Policy   string   // hash of the policy
	User     string   // who did it, as the network's immutable id
	Groups   []string // what the network vouched for at that moment
	Via      string   // button, text, cli, ...
	// Command is the exact text that was asked for or run. When it is written, its
	// whole bytes are hashed into CommandSHA256 and the stored text is redacted and
	// cut; when it is read, it is the stored text.
	Command string
	// CommandSHA256 is in hex, over the whole exact bytes. A writer that gives no
	// Command may set it, to name a command whose text another line has.
	CommandSHA256 string
	Outcome       string // how the run ended, one line
	OK            bool   // it ended well
	// Facts is the hash of all that the request says, as approvals.Record.Facts makes it.
	Facts string
	Note  string // why, in somebody's words
}

// Line is one event in the chain of a thread.
type Line struct {
	Thread string
	N      uint64 // from 0
	At     time.Time
	Event  Event
	Prev   string // hash of the line before, "" for the first
	Hash   string
	// Withheld says that an export left out secrets of the line's texts; these
	// cannot be checked then.
	Withheld bool
}

// Head is the end of a chain.
type Head struct {
	N    uint64 `json:"n"` // number of lines
	Hash string `json:"hash"`
}

func lineKey(thread string, n uint64) []byte { return store.Key("audit", thread, n) }
func headKey(thread string) []byte           { return store.Key("audit-head", thread) }
func newKey(thread string) []byte            { return store.Key("audit-new", thread) }

// Trail writes lines. The zero Trail is ready for use: it takes out what looks
// like a secret. It is immutable.
type Trail struct {
	// Redact takes secrets out of a text before it is stored; nil means the
	// built-in rules of internal/redact, which know no value of this installation.
	Redact func(string) string
	// Tell is called in the transaction with each event as it is stored; nil is not. It may run more
	// than once, and must have no effect outside the transaction.
	Tell func(tx store.Tx, thread string, e Event, at time.Time)
}

// Append adds an event to the thread's chain with a zero [Trail].
func Append(tx store.Tx, thread string, e Event, at time.Time) { Trail{}.Append(tx, thread, e, at) }

// Append adds an event to the thread's chain. It belongs into the transaction
// that makes the event true. A chain whose head row cannot be read aborts the
// transaction, so nothing is decided without its line.
func (t Trail) Append(tx store.Tx, thread string, e Event, at time.Time) {
	clean := t.Redact
	if clean == nil {
		clean = redact.New().RedactCommand
	}
	if e.Command != "" {
		sum := sha256.Sum256([]byte(e.Command))
		e.CommandSHA256 = hex.EncodeToString(sum[:])
	}
	e.Command, e.Outcome, e.Note = short(e.Command, clean), short(e.Outcome, clean), short(e.Note, clean)
	head, _ := store.Load[Head](tx, headKey(thread))
	raw, hash, err := encodeLine(Line{Thread: thread, N: head.N, At: at.UTC(), Event: e, Prev: head.Hash}, rand.Text())
	if err != nil {
		store.Abort(fmt.Errorf("audit: the event cannot be written, so nothing is decided: %w", err))
	}
	tx.Set(lineKey(thread, head.N), raw)
	store.Save(tx, headKey(thread), Head{N: head.N + 1, Hash: hash})
	tx.Set(newKey(thread), nil)
	if t.Tell != nil {
		t.Tell(tx, thread, e, at)
	}
}

// short redacts a text and cuts it at MaxText, with its length said. Redacting
// comes first, so that no half of a secret stays; and again after the cut, which
// may have gone through a placeholder, so that an export finds nothing more.
func short(text string, clean func(string) string) string {
	size := len(text)
	text = clean(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= MaxText {
		return text
	}
	cut := MaxText
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return clean(text[:cut]) + fmt.Sprintf(" … [cut: %d bytes in all]", size)
}

// Each yields the lines of every thread that are not older than since, thread by
// thread and each in its order. A line that cannot be read is left out; [Check]
// says what is wrong with it.
func Each(tx store.Tx, since time.Time) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for key, raw := range tx.Scan(store.Prefix("audit")) {
			thread, _, ok := lineOf(key)
			l := parseLine(raw)
			if !ok || (l.problem != "" && l.Hash == "") || l.At.Before(since) {
				continue
			}
			l.Thread = thread
			if !yield(l.Line) {
				return
			}
		}
	}
}

// Lines returns the thread's chain in order, all of it in memory. A line that
// cannot be read aborts the transaction; [Verify] says what is wrong with it.
func Lines(tx store.Tx, thread string) []Line {
	var out []Line
	for key, raw := range tx.Scan(store.Prefix("audit", thread)) {
		l := parseLine(raw)
		if l.problem != "" && l.Hash == "" {
			store.Abort(fmt.Errorf("audit: the row %s %s", store.Format(key), l.problem))
		}
		l.Thread = thread
		out = append(out, l.Line)
	}
	return out
}
