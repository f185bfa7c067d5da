package approvals

import (
	"bytes"

	"countersign/adapters/chat"
	"countersign/store"
)

// HasOpen reports whether a thread has a request that isn't over.
func (Ledger) HasOpen(tx store.Tx, thread chat.ThreadID) bool {
	for range tx.Scan(store.Prefix("approval-open", string(thread))) {
		return true
	}
	return false
}

// Erase removes a request that is over, with its cards' faces. The audit record keeps its lines.
func (Ledger) Erase(tx store.Tx, id ID) bool {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || !r.State.Final() {
		return false
	}
	tx.Delete(recordKey(id))
	tx.Delete(endedKey(r))
	var faces [][]byte
	for k := range tx.Scan(store.Prefix("approval-face", string(id))) {
		faces = append(faces, bytes.Clone(k))
	}
	for _, k := range faces {
		tx.Delete(k)
	}
	return true
}

// ForgetPerson removes somebody's name and reasons from a request that is over. Their id and votes stay, as the
// audit record has them too.
func (Ledger) ForgetPerson(tx store.Tx, id ID, who chat.UserID) {
	r, ok := store.Load[Record](tx, recordKey(id))
	if !ok || !r.State.Final() {
		return
	}
	unnamed := func(u *chat.User) {
		if u.ID == who {
			u.Name = ""
		}
	}
	for _, u := range []*chat.User{&r.Requester, &r.By, &r.DroppedBy} {
		unnamed(u)
	}
	if r.By.ID == who {
		r.Reason = ""
	}
	for i := range r.Votes {
		if r.Votes[i].User.ID == who {
			r.Votes[i].User.Name, r.Votes[i].Reason = "", ""
		}
	}
	store.Save(tx, recordKey(id), r)
}
