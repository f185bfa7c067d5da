package history

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/store"
)

// Removed replaces the text of a message of a person who was forgotten.
const Removed = "(this message was removed)"

// Threads lists up to limit threads after the thread after, in order; "" begins.
func Threads(tx store.Tx, after chat.ThreadID, limit int) (out []chat.ThreadID) {
	start, end := store.Prefix("history-next")
	if after != "" {
		start = store.Key("history-next", string(after))
	}
	for key := range tx.Scan(start, end) {
		parts, err := store.Parts(key)
		if err != nil {
			store.Abort(err)
		}
		if name, _ := parts[1].(string); name != string(after) {
			if out = append(out, chat.ThreadID(name)); len(out) == limit {
				break
			}
		}
	}
	return out
}

// Newest is when a thread's last entry was written; ok is false if it has none.
func Newest(tx store.Tx, thread chat.ThreadID) (at time.Time, ok bool) {
	start, end := store.Prefix("history", string(thread))
	for k, v := range tx.ScanBack(start, end) {
		var e Entry
		store.Decode(k, v, &e)
		return e.At, true
	}
	return at, false
}

// Erase removes a thread's transcript, and returns the requests that were in it. Numbers aren't used again.
func Erase(tx store.Tx, thread chat.ThreadID) []approvals.ID {
	entries := Load(tx, thread)
	for _, e := range entries {
		tx.Delete(store.Key("history", string(thread), e.Seq))
	}
	if len(entries) > 0 {
		rewritten(tx, thread)
	}
	return requests(entries)
}

func requests(entries []Entry) (out []approvals.ID) {
	for _, e := range entries {
		if e.Ask != nil && !slices.Contains(out, e.Ask.Approval) {
			out = append(out, e.Ask.Approval)
		}
	}
	return out
}

func rewritten(tx store.Tx, thread chat.ThreadID) {
	store.Save(tx, store.Key("history-rewritten", string(thread)), VersionOf(tx, thread).Rewritten+1)
}

// ForgetPerson removes what somebody wrote in a thread, files, reasons and their name with it, and summaries, which
// may tell of it. It returns how many messages those were, and the requests of the thread.
func ForgetPerson(tx store.Tx, thread chat.ThreadID, who chat.UserID) (messages int, asked []approvals.ID) {
	entries := Load(tx, thread)
	some := false
	said := map[string]string{} // the reasons, by call: its result has them
	name := ""
	for _, e := range entries {
		changed := false
		theirs := func(u *chat.User) bool {
			if u.ID != who {
				return false
			}
			changed, name = changed || u.Name != "", cmp.Or(u.Name, name)
			u.Name = ""
			return true
		}
		if m := e.Message; m != nil && theirs(&m.From) && m.Text != Removed {
			m.Text, m.Files, m.Kept, m.Groups, changed = Removed, nil, "", nil, true
			messages++
		}
		if d := e.Decision; d != nil && d.By == string(who) && d.ByName+d.Reason != "" {
			name = cmp.Or(d.ByName, name)
			said[d.Call], d.ByName, d.Reason, changed = d.Reason, "", "", true
		}
		if r := e.Result; r != nil && said[r.Call] != "" {
			r.Text, r.Why, changed = without(r.Text, said[r.Call]), without(r.Why, said[r.Call]), true
		}
		unname := func(text *string) { // what the bot said of them
			was := *text
			*text = chat.Unnamed(was, name)
			changed = changed || *text != was
		}
		if r := e.Result; r != nil && (r.Skipped || r.Refused) {
			unname(&r.Text)
		}
		if s := e.Step; s != nil && theirs(&s.By) && s.Text != Removed {
			s.Text, changed = Removed, true
		}
		switch {
		case e.Edited != nil:
			theirs(&e.Edited.By)
		case e.Stop != nil:
			theirs(&e.Stop.From)
		case e.Pen != nil:
			theirs(&e.Pen.By)
		case e.Note != nil: // that they had the keyboard
			unname(&e.Note.Text)
		case e.End != nil:
			unname(&e.End.Text)
		}
		if changed {
			some, e.Tokens = true, 0
			store.Save(tx, store.Key("history", string(thread), e.Seq), e)
		}
	}
	if !some {
		return 0, requests(entries)
	}
	for _, e := range entries {
		if e.Summary != nil {
			e.Summary, e.Tokens = &Summary{Upto: e.Summary.Upto, Text: "(left out: it may have told of messages that were removed since)"}, 0
			store.Save(tx, store.Key("history", string(thread), e.Seq), e)
		}
	}
	rewritten(tx, thread)
	return messages, requests(entries)
}

// without is a text, which may be JSON, without what was said in it.
func without(text, said string) string {
	for _, encode := range []func(any) ([]byte, error){json.Marshal, approvals.Encode} {
		if raw, err := encode(said); err == nil {
			text = strings.ReplaceAll(text, string(raw[1:len(raw)-1]), Removed)
		}
	}
	return strings.ReplaceAll(text, said, Removed)
}

// Waits reports whether a call with work of its own has begun in a thread and not ended, such as a runbook that waits
// for an answer or a time; asked are the thread's requests.
func Waits(tx store.Tx, thread chat.ThreadID) (waits bool, asked []approvals.ID) {
	entries := Load(tx, thread)
	for _, e := range entries {
		waits = e.Begin != nil || waits && (e.End == nil || e.Scope != "")
	}
	return waits, requests(entries)
}
