package approvals

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"countersign/adapters/chat"
	"countersign/approvals/risk"
	"countersign/store"
)

// Ledger keeps the records and makes permits. It has no state and no database:
// every method works in the caller's transaction and takes the time as an
// argument.
//
// Keys:
//
//	("approval", id)              -> Record as JSON
//	("approval-open", thread, id) -> "" while the record is not final
//	("approval-ended", age, id)   -> "" for the newest changes that ran, see [Ledger.Recent]
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
	if !r.State.Final() {
		tx.Set(openKey(r), []byte{})
		return
	}
	tx.Delete(openKey(r))
	if (r.State == Done || r.State == OutcomeUnknown) && r.Basis.Step == 0 && !r.Ended.IsZero() {
		tx.Set(endedKey(r), []byte{})
		if r.Ended.UnixNano()%trimEvery == 0 {
			trim(tx)
		}
	}
}

// endedKey sorts the newest first.
func endedKey(r Record) []byte {
	return store.Key("approval-ended", math.MaxUint64-uint64(r.Ended.UnixNano()), string(r.ID))
}

const (
	// maxRecent is how many changes that ran Recent knows of at least, and trimEvery how many
	// pass on average until those beyond are forgotten.
	maxRecent = 200
	trimEvery = 16
)

func trim(tx store.Tx) {
	var old [][]byte
	start, end := store.Prefix("approval-ended")
	n := 0
	for k := range tx.Scan(start, end) {
		if n++; n > maxRecent {
			old = append(old, bytes.Clone(k))
		}
	}
	for _, k := range old {
		tx.Delete(k)
	}
}

// Recent returns the requests of up to n changes that ran last, the newest first, of at most
// [maxRecent]. A step of a plan counts as a part of its plan.
func (l Ledger) Recent(tx store.Tx, n int) []Record { return l.listed(tx, n, "approval-ended") }

// mustMove changes the record's state. The caller has checked that the table allows
// the move; otherwise mustMove aborts the transaction.
func mustMove(r *Record, to State) {
	if !r.move(to) {
		store.Abort(fmt.Errorf("%w: %s to %s", errMove, r.State, to))
	}
}

// Open files a request with a new random nonce. If the id exists, Open returns that record
// unchanged, so that filing it again after a crash has no effect.
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

// Repeat counts that a program asked for a request once more; ok is false if there is none.
func (Ledger) Repeat(tx store.Tx, id ID) (r Record, ok bool) {
	if r, ok = store.Load[Record](tx, recordKey(id)); ok {
		r.Repeats++
		save(tx, r)
	}
	return r, ok
}

// nonceLength is the length of a nonce, in characters of 5 bits each.
const nonceLength = 16

// Shown returns the digest that the card with this nonce displayed. ok is false if the
// request had no such card.
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

// OpenIn returns the records of a thread that are not final.
func (l Ledger) OpenIn(tx store.Tx, thread chat.ThreadID) []Record {
	return l.listed(tx, math.MaxInt, "approval-open", string(thread))
}

// AllOpen returns the records of all threads that are not final.
func (l Ledger) AllOpen(tx store.Tx) []Record { return l.listed(tx, math.MaxInt, "approval-open") }

// listed returns up to n of the records whose ids end the keys of a list.
func (l Ledger) listed(tx store.Tx, n int, prefix ...any) []Record {
	var out []Record
	start, end := store.Prefix(prefix...)
	for k := range tx.Scan(start, end) {
		if len(out) == n {
			break
		}
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

// Refusal says why a vote was not counted. The zero value means that it was.
type Refusal string

// The refusals that a vote can meet in the ledger.
const (
	Counted      Refusal = ""
	AlreadyDone  Refusal = "decided" // the record is not pending any more
	TooLate      Refusal = "expired" // the vote came after the expiry, and expires the record
	VotedBefore  Refusal = "voted"   // this person has approved already
	OtherContent Refusal = "digest"  // the vote is for another action
	NoPerson     Refusal = "bot"
	NoReason     Refusal = "reason" // this vote needs a reason
	NotWritten   Refusal = "write"  // what has to be written was not, see Require.Write
	NotSigned    Refusal = "proof"  // this vote needs a signature, see Require.Proof
	NoNeed       Refusal = "need"   // this person's approval counts for nothing
)

// again reports whether an earlier approval is of the same person: by their name, or by whose
// passkey signed it.
func (v Vote) again(o Vote) bool {
	return o.Counts() && (o.User.ID == v.User.ID || v.Passkey != nil && o.Passkey != nil && o.Passkey.KeyOwner == v.Passkey.KeyOwner)
}

// Vote counts one vote of a person whom the caller has authorised. One denial decides;
// approvals decide once every need has enough distinct people.
func (Ledger) Vote(tx store.Tx, id ID, v Vote) (Record, Refusal, error) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok {
		return Record{}, "", ErrNotFound
	}
	switch {
	case r.State != Pending:
		return r, AlreadyDone, nil
	case !v.At.Before(r.ExpiresAt):
		mustMove(&r, Expired)
		r.Decided = v.At
		save(tx, r)
		return r, TooLate, nil
	case v.User.Bot || v.User.ID == "":
		return r, NoPerson, nil
	case v.Digest != r.Digest:
		return r, OtherContent, nil
	case v.Approve && r.Require.Proof != "" && v.Passkey == nil:
		return r, NotSigned, nil
	case v.Approve && !v.Glass && r.Require.Write != "" && strings.TrimSpace(v.Reason) != r.Require.Write:
		return r, NotWritten, nil
	case v.Approve && v.Reason == "" && (v.Glass || r.Require.ReasonRequired):
		return r, NoReason, nil
	case v.Approve && !v.Glass && slices.ContainsFunc(r.Votes, v.again):
		return r, VotedBefore, nil
	case v.Approve && !v.Glass && !slices.ContainsFunc(v.Meets, func(i int) bool { return i >= 0 && i < len(r.Require.Needs) }):
		return r, NoNeed, nil
	}
	v.Grant = v.Grant && v.Approve && !v.Glass && r.Require.Grant > 0
	v.Trial = v.Trial && v.Approve && !v.Glass && r.Preview.Back.Timed && r.Require.KeepWithin > 0
	if v.Trial { // one vote on that condition binds the others
		r.Trial.For = r.Require.KeepWithin
	}
	r.Votes = append(r.Votes, v)
	if v.Approve {
		r.Ticket = v.Ticket
	}
	switch {
	case !v.Approve:
		mustMove(&r, Denied)
		r.Decided, r.By, r.Reason = v.At, v.User, v.Reason
	case r.Satisfied():
		mustMove(&r, Approved)
		r.Decided, r.By, r.Reason = v.At, v.User, v.Reason
		r.RunBy = v.At.Add(r.Require.RunWithin)
		r.Review.Due = v.Glass
		if v.Grant {
			saveGrant(tx, r)
		}
	}
	save(tx, r)
	return r, Counted, nil
}

// Settle approves a pending request on a basis other than its own votes. by is the person,
// or the policy, behind that basis.
func (Ledger) Settle(tx store.Tx, id ID, b Basis, by chat.User, now time.Time) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || b.Kind == ByVotes || r.State != Pending || !now.Before(r.ExpiresAt) {
		return r, false
	}
	mustMove(&r, Approved)
	r.Basis, r.By, r.Reason, r.Decided, r.RunBy = b, by, b.Why, now, now.Add(r.Require.RunWithin)
	save(tx, r)
	if plan, ok := store.Load[Record](tx, recordKey(b.Of)); ok && b.Kind == ByPlan && b.Step == len(plan.Steps)+1 {
		plan.Steps = append(plan.Steps, r.ID)
		save(tx, plan)
	}
	return r, true
}

// Escalate applies the escalation steps of a pending request that are due, and returns the
// groups they added. Earlier votes still count.
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

// OnDuty stores who is on call for the needs of a pending request, as far as that has changed. changed
// are those who weren't before; there are none if the request isn't pending.
func (Ledger) OnDuty(tx store.Tx, id ID, look func(groups []string) []Duty) (r Record, changed []Duty) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || r.State != Pending {
		return r, nil
	}
	for i := range r.Require.Needs {
		n := &r.Require.Needs[i]
		now := look(n.Groups)
		for _, d := range now {
			if !slices.ContainsFunc(n.Duty, d.Same) {
				changed = append(changed, d)
			}
		}
		n.Duty = now
	}
	if len(changed) > 0 {
		save(tx, r)
	}
	return r, changed
}

// Lapse takes from the approvals of a pending request what they don't meet any more, as counts says. It
// returns whose votes are void by that.
func (Ledger) Lapse(tx store.Tx, id ID, counts func(v Vote, n Need) bool) (r Record, void []chat.User) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || r.State != Pending {
		return r, nil
	}
	changed := false
	for i := range r.Votes {
		v := &r.Votes[i]
		if !v.Counts() {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(v.Meets), func(n int) bool {
			return n < 0 || n >= len(r.Require.Needs) || !counts(*v, r.Require.Needs[n])
		})
		changed = changed || len(left) < len(v.Meets)
		if v.Meets = left; len(left) == 0 {
			v.Void, v.Meets = true, nil
			void = append(void, v.User)
		}
	}
	if changed {
		save(tx, r)
	}
	return r, void
}

// Reviewed records the review of a break-glass approval. Neither its approver nor its
// requester may review it.
func (Ledger) Reviewed(tx store.Tx, id ID, by chat.User, note string, now time.Time) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || !r.Review.Due || by.Bot || by.ID == "" || by.ID == r.By.ID || by.ID == r.Requester.ID {
		return r, false
	}
	r.Review = Review{By: by, At: now, Note: note}
	save(tx, r)
	return r, true
}

// Consume turns an approval into a permit, once, and writes the intent (state running).
// If it refuses, the returned sentence says why and the record's state changes with it: to
// invalid if the action drifted, to expired if the run came too late.
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
		mustMove(&r, Expired)
		why = "the approval was not used within " + r.Require.RunWithin.String()
	case r.Digest != r.Action.Digest(), r.Digest != a.Digest() && (!r.Unstarted || !a.isAsShown(r.Action)):
		mustMove(&r, Invalid)
		if len(drift) == 0 {
			drift = []string{"content"}
		}
		why = "what would run is no longer what was approved: " + strings.Join(drift, ", ") + " changed"
		if slices.Equal(drift, []string{driftShell}) {
			why = ShellChanged
		}
	default:
		mustMove(&r, Running)
		if r.Trial.For > 0 {
			r.Trial.Until = now.Add(r.Trial.For)
		}
		savePlan(tx, r, now)
	}
	if why != "" {
		r.Reason, r.Ended = why, now
		save(tx, r)
		return Permit{}, r, why
	}
	save(tx, r)
	return Permit{digest: a.Digest(), ok: true, by: r.ID}, r, ""
}

// ErrNotProven means that an action is not proven to be read-only.
var ErrNotProven = errors.New("approvals: the action is not proven to only read")

// Reading returns shell text equivalent to reading a file. A tool that reads the file is
// judged by this text. Reading fails for a name that shell text cannot express.
func Reading(path string) (string, error) {
	quoted, err := syntax.Quote(path, syntax.LangBash)
	if err != nil {
		return "", fmt.Errorf("approvals: the name of the file cannot be written as text: %w", err)
	}
	return "cat -- " + quoted, nil
}

// Observe makes a permit from a proof. For shell text, the risk engine must have proved
// that exactly this text only reads. For a read-only tool, it must have proved the same of
// [Reading] its file; a tool without a file (the time, a pane) needs no proof. Keys must
// only exit a program that displays something.
func (Ledger) Observe(a Action, v risk.Verdict) (Permit, error) {
	proven := false
	switch a.Kind {
	case KindShell:
		proven = a.Private() && a.Shell != "" && v.Proves(string(a.Bytes), a.Locked)
	case KindObserve:
		text, err := Reading(a.Path)
		proven = len(a.Paths) == 0 && (a.Path == "" || (err == nil && v.Proves(text, true))) // a proof covers one file
	case KindKeys:
		proven = a.Leaves()
	case KindChange:
	}
	if !proven {
		return Permit{}, ErrNotProven
	}
	return Permit{digest: a.Digest(), ok: true, locked: a.Locked}, nil
}

// end moves a record to a final state. If the table forbids that, nothing changes and ok
// is false.
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

// Undone notes who had a change taken back, or, with nobody, that it is in place again.
func (Ledger) Undone(tx store.Tx, id ID, by chat.User, now time.Time) (r Record, ok bool) {
	if r, ok = store.Load[Record](tx, recordKey(id)); !ok || r.State != Done || (by.ID == "") == r.UndoneAt.IsZero() {
		return r, false
	}
	r.UndoneBy, r.UndoneAt = by, now
	if by.ID == "" {
		r.UndoneAt = time.Time{}
	}
	save(tx, r)
	return r, true
}

// Lost records that the outcome is unknown.
func (Ledger) Lost(tx store.Tx, id ID, now time.Time) (Record, bool) {
	return end(tx, id, OutcomeUnknown, now, func(*Record) {})
}

// Unstarted takes the use of an approval back: what used it never began. The approval stands
// until the time by which it had to be used, also with the terminal that was made for it.
func (Ledger) Unstarted(tx store.Tx, id ID) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || r.State != Running || !r.move(Approved) {
		return r, false
	}
	r.Unstarted = true
	save(tx, r)
	return r, true
}

// Invalidate ends a request that may no longer run.
func (Ledger) Invalidate(tx store.Tx, id ID, why string, now time.Time) (Record, bool) {
	return end(tx, id, Invalid, now, func(r *Record) { r.Reason = why })
}

// Cancel withdraws a request that has not started to run.
func (Ledger) Cancel(tx store.Tx, id ID, by chat.User, why string, now time.Time) (Record, bool) {
	return end(tx, id, Cancelled, now, func(r *Record) { r.By, r.Reason = by, why })
}

// Expire ends a request whose time to be decided, or to be run once approved, is over.
// Before that nothing changes and ok is false.
func (Ledger) Expire(tx store.Tx, id ID, now time.Time) (Record, bool) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || (r.State == Pending && now.Before(r.ExpiresAt)) || (r.State == Approved && !now.After(r.RunBy)) {
		return r, false
	}
	return end(tx, id, Expired, now, func(*Record) {})
}

const driftShell = "the terminal's environment"

// Drift describes, for people, the fields in which two actions differ.
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
	add("the arguments", !sameJSON(was.Args, is.Args))
	left := func(a Action) map[string]string {
		env := maps.Clone(a.Env)
		delete(env, ShellFact)
		delete(env, TerminalFact)
		return env
	}
	add(driftShell, was.Env[ShellFact] != is.Env[ShellFact] || was.Env[TerminalFact] != is.Env[TerminalFact])
	add("the environment", !maps.Equal(left(was), left(is)))
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

// sameJSON reports whether two texts encode the same value, or are equal.
func sameJSON(a, b json.RawMessage) bool {
	x, errX := json.Marshal(a) // as a stored record has it
	y, errY := json.Marshal(b)
	if errX != nil || errY != nil {
		return string(a) == string(b)
	}
	return string(x) == string(y)
}

// changed returns the sorted keys whose values differ.
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
