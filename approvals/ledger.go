package approvals

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"countersign/adapters/chat"
	"countersign/approvals/risk"
	"countersign/store"
)

// Ledger keeps the records and makes permits. It holds no state and no
// database: every method works in the caller's transaction and is given the
// time.
//
// Keys:
//
//	("approval", id)              -> Record as JSON
//	("approval-open", thread, id) -> "" while the record is not final
//	("approval-face", id, nonce)  -> Digest of what the card with this nonce shows
//	("approval-grant", thread, digest) -> Grant as JSON
//	("approval-plan", thread)     -> Plan as JSON
//
// A refusal that must be remembered (expired, drifted) is a value, not an
// error: an error would roll back what records it.
type Ledger struct{}

func recordKey(id ID) []byte { return store.Key("approval", string(id)) }
func openKey(r Record) []byte {
	return store.Key("approval-open", string(r.Thread), string(r.ID))
}

func faceKey(id ID, nonce string) []byte { return store.Key("approval-face", string(id), nonce) }

func save(tx store.Tx, r Record) {
	store.Save(tx, recordKey(r.ID), r)
	if r.State.Final() {
		tx.Delete(openKey(r))
	} else {
		tx.Set(openKey(r), []byte{})
	}
}

// must moves the record; a move that the table does not have aborts the
// transaction, because the caller checked the state before.
func must(r *Record, to State) {
	if !r.move(to) {
		store.Abort(fmt.Errorf("%w: %s to %s", errMove, r.State, to))
	}
}

// Open files a request, with a new random nonce. If the id is known already, that record comes back
// unchanged: asking again after a crash finds the same request.
func (Ledger) Open(tx store.Tx, r Record) (rec Record, existed bool) {
	if old, ok := store.Load[Record](tx, recordKey(r.ID)); ok {
		return old, true
	}
	r.State = Pending
	r.Digest = r.Action.Digest()
	r.Nonce = rand.Text()[:nonceLength]
	store.Save(tx, faceKey(r.ID, r.Nonce), r.Digest)
	save(tx, r)
	return r, false
}

// nonceLength is the length of a nonce, in characters of 5 bits each.
const nonceLength = 16

// Shown returns the digest of what the card of request id showed whose buttons
// carry nonce; ok is false when there was no such card.
func (Ledger) Shown(tx store.Tx, id ID, nonce string) (d Digest, ok bool) {
	if nonce == "" {
		return Digest{}, false
	}
	return store.Load[Digest](tx, faceKey(id, nonce))
}

// Get returns a record.
func (Ledger) Get(tx store.Tx, id ID) (Record, bool) {
	return store.Load[Record](tx, recordKey(id))
}

// OpenIn lists the records of a thread that are not final.
func (l Ledger) OpenIn(tx store.Tx, thread chat.ThreadID) []Record {
	var out []Record
	start, end := store.Prefix("approval-open", string(thread))
	for k := range tx.Scan(start, end) {
		parts, err := store.Parts(k)
		if err != nil || len(parts) != 3 {
			continue
		}
		id, _ := parts[2].(string)
		if r, ok := l.Get(tx, ID(id)); ok {
			out = append(out, r)
		}
	}
	return out
}

// Refusal says why a vote did not count. The zero value means that it did.
type Refusal string

// The refusals that a vote can meet in the ledger.
const (
	Counted      Refusal = ""
	AlreadyDone  Refusal = "decided" // the record is not pending any more
	TooLate      Refusal = "expired" // it expires with this vote
	VotedBefore  Refusal = "voted"   // this person's approval already counts
	OtherContent Refusal = "digest"  // the vote is for another action
	NoPerson     Refusal = "bot"
	NoReason     Refusal = "reason" // this vote needs a reason
	NoNeed       Refusal = "need"   // this person's approval counts for nothing
)

// Vote counts one vote. The caller has checked that this person may vote. One
// denial decides; approvals decide when enough distinct people gave one.
func (Ledger) Vote(tx store.Tx, id ID, v Vote) (Record, Refusal, error) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok {
		return Record{}, "", ErrNotFound
	}
	switch {
	case r.State != Pending:
		return r, AlreadyDone, nil
	case !v.At.Before(r.ExpiresAt):
		must(&r, Expired)
		r.Decided = v.At
		save(tx, r)
		return r, TooLate, nil
	case v.User.Bot || v.User.ID == "":
		return r, NoPerson, nil
	case v.Digest != r.Digest:
		return r, OtherContent, nil
	case v.Approve && v.Reason == "" && (v.Glass || r.Require.ReasonRequired):
		return r, NoReason, nil
	case v.Approve && !v.Glass && slices.ContainsFunc(r.Votes, func(o Vote) bool { return o.Approve && o.User.ID == v.User.ID }):
		return r, VotedBefore, nil
	case v.Approve && !v.Glass && !slices.ContainsFunc(v.Meets, func(i int) bool { return i >= 0 && i < len(r.Require.Needs) }):
		return r, NoNeed, nil
	}
	v.Grant = v.Grant && v.Approve && !v.Glass && r.Require.Grant > 0
	r.Votes = append(r.Votes, v)
	switch {
	case !v.Approve:
		must(&r, Denied)
		r.Decided, r.By, r.Reason = v.At, v.User, v.Reason
	case r.Satisfied():
		must(&r, Approved)
		r.Decided, r.By, r.Reason = v.At, v.User, v.Reason
		r.RunBy = v.At.Add(r.Require.RunWithin)
		r.Review.Due = v.Glass
		if v.Grant {
			grant(tx, r)
		}
	}
	save(tx, r)
	return r, Counted, nil
}

// Settle approves a pending request on another basis than its own votes. by is
// who stands for the basis.
func (Ledger) Settle(tx store.Tx, id ID, b Basis, by chat.User, now time.Time) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || b.Kind == ByVotes || r.State != Pending || !now.Before(r.ExpiresAt) {
		return r, false
	}
	must(&r, Approved)
	r.Basis, r.By, r.Reason, r.Decided, r.RunBy = b, by, b.Why, now, now.Add(r.Require.RunWithin)
	save(tx, r)
	return r, true
}

// Escalate takes the steps of a pending request's escalation whose time has come
// and returns the groups that may vote since. Votes that were given before count
// on.
func (Ledger) Escalate(tx store.Tx, id ID, now time.Time) (r Record, added []string) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || r.State != Pending {
		return r, nil
	}
	for i := range r.Require.Needs {
		n := &r.Require.Needs[i]
		for n.Taken < len(n.Escalate) && !now.Before(r.Created.Add(n.Escalate[n.Taken].After)) {
			for _, g := range n.Escalate[n.Taken].Groups {
				if !slices.Contains(n.Groups, g) {
					n.Groups = append(n.Groups, g)
					added = append(added, g)
				}
			}
			n.Taken++
		}
	}
	save(tx, r)
	slices.Sort(added)
	return r, slices.Compact(added)
}

// Reviewed records that somebody looked at what was decided alone. Who decided,
// and who asked, cannot.
func (Ledger) Reviewed(tx store.Tx, id ID, by chat.User, note string, now time.Time) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || !r.Review.Due || by.Bot || by.ID == "" || by.ID == r.By.ID || by.ID == r.Requester.ID {
		return r, false
	}
	r.Review = Review{By: by, At: now, Note: note}
	save(tx, r)
	return r, true
}

// Consume turns an approval into a permit, once. It writes the intent (state
// running) with it. When it gives none, the sentence says why, and the record
// remembers: what drifted makes it invalid, a late run makes it expired.
func (Ledger) Consume(tx store.Tx, id ID, a Action, now time.Time) (Permit, Record, string) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok {
		return Permit{}, Record{}, "there is no such request"
	}
	if r.State != Approved {
		return Permit{}, r, "the request is " + string(r.State) + ", not approved"
	}
	why := ""
	switch drift := Drift(r.Action, a); {
	case now.After(r.RunBy):
		must(&r, Expired)
		why = "the approval was not used within " + r.Require.RunWithin.String()
	case r.Digest != a.Digest() || r.Digest != r.Action.Digest():
		must(&r, Invalid)
		if len(drift) == 0 {
			drift = []string{"content"}
		}
		why = "what would run is no longer what was approved: " + strings.Join(drift, ", ") + " changed"
	default:
		must(&r, Running)
		begin(tx, r, now)
	}
	if why != "" {
		r.Reason, r.Ended = why, now
		save(tx, r)
		return Permit{}, r, why
	}
	save(tx, r)
	return Permit{digest: r.Digest, ok: true}, r, ""
}

// ErrNotProven means that an action is not proven to only look.
var ErrNotProven = errors.New("approvals: the action is not proven to only read")

// Reading is the shell text that stands for looking at a file: a tool that reads
// the file is as harmless as this text is. It fails for a name that cannot be
// written as text.
func Reading(path string) (string, error) {
	quoted, err := syntax.Quote(path, syntax.LangBash)
	if err != nil {
		return "", fmt.Errorf("approvals: the name of the file cannot be written as text: %w", err)
	}
	return "cat -- " + quoted, nil
}

// Observe makes a permit from proof: the risk engine proved that exactly this
// text only reads, or the tool can only look, and the engine proved as much of
// [Reading] the file that it looks at; or the keys only leave a program that shows
// something. A tool that looks at no file (the time, a
// pane) needs no proof.
func (Ledger) Observe(a Action, v risk.Verdict) (Permit, error) {
	proven := false
	switch a.Kind {
	case KindShell:
		proven = a.Private() && a.Shell != "" && v.Proves(string(a.Bytes), a.Locked)
	case KindObserve:
		text, err := Reading(a.Path)
		proven = len(a.Paths) == 0 && (a.Path == "" || (err == nil && v.Proves(text, true))) // nobody proves several at once
	case KindKeys:
		proven = a.Leaves()
	case KindChange:
	}
	if !proven {
		return Permit{}, ErrNotProven
	}
	return Permit{digest: a.Digest(), ok: true}, nil
}

// end moves a record to an end state if it may go there; otherwise nothing
// changes and ok is false.
func end(tx store.Tx, id ID, to State, now time.Time, change func(*Record)) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || !r.move(to) {
		return r, false
	}
	r.Ended = now
	change(&r)
	save(tx, r)
	return r, true
}

// Finish records how the run ended.
func (Ledger) Finish(tx store.Tx, id ID, o Outcome, now time.Time) (Record, bool) {
	return end(tx, id, Done, now, func(r *Record) { r.Outcome = o })
}

// Lost records that it is not known whether, or how, it ran.
func (Ledger) Lost(tx store.Tx, id ID, now time.Time) (Record, bool) {
	return end(tx, id, OutUnk, now, func(*Record) {})
}

// Invalidate ends a request that may no longer run as it was approved.
func (Ledger) Invalidate(tx store.Tx, id ID, why string, now time.Time) (Record, bool) {
	return end(tx, id, Invalid, now, func(r *Record) { r.Reason = why })
}

// Cancel withdraws a request that has not begun to run.
func (Ledger) Cancel(tx store.Tx, id ID, by chat.User, why string, now time.Time) (Record, bool) {
	return end(tx, id, Cancelled, now, func(r *Record) { r.By, r.Reason = by, why })
}

// Expire ends a request whose time is over: the card's, or after the last vote
// the time to run. Before that nothing changes and ok is false.
func (Ledger) Expire(tx store.Tx, id ID, now time.Time) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || (r.State == Pending && now.Before(r.ExpiresAt)) || (r.State == Approved && !now.After(r.RunBy)) {
		return r, false
	}
	return end(tx, id, Expired, now, func(*Record) {})
}

// Drift names the fields in which two actions differ, for people.
func Drift(was, is Action) []string {
	var out []string
	add := func(name string, differs bool) {
		if differs {
			out = append(out, name)
		}
	}
	add("the tool", was.Tool != is.Tool)
	add("its kind", was.Kind != is.Kind)
	add("the target", was.Target != is.Target)
	add("the account", was.User != is.User)
	add("the directory", was.Dir != is.Dir)
	add("the session", was.Session != is.Session)
	add("the pane", was.Pane != is.Pane)
	add("what holds it back", was.Locked != is.Locked)
	add("the shell that reads it", was.Shell != is.Shell)
	add("the program in front", was.Foreground != is.Foreground)
	add("the file", was.Path != is.Path)
	add("the files", !slices.Equal(was.Paths, is.Paths))
	add("the text", string(was.Bytes) != string(is.Bytes))
	add("the arguments", string(was.Args) != string(is.Args))
	add("the environment", !sameMap(was.Env, is.Env))
	for _, name := range changed(was.Files, is.Files) {
		if strings.HasSuffix(name, "/") {
			add("the directory "+name, true)
		} else {
			add("the file "+name+", which it depends on,", true)
		}
	}
	add("the preview", was.Preview != is.Preview || was.Whole != is.Whole)
	add("the steps", !slices.EqualFunc(was.Steps, is.Steps, func(a, b Action) bool { return a.Digest() == b.Digest() }))
	return out
}

// changed are the keys whose values differ, in order.
func changed(a, b map[string]string) []string {
	var out []string
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			out = append(out, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func sameMap(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}
