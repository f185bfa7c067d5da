package approvals

import (
	"bytes"
	"maps"

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

// forgotten stands for what was removed. A reader of an archive knows its form.
const forgotten = "[redacted]"

// ForgetPerson removes somebody's name and reasons from a request that is over, and returns it. Their id and votes stay,
// as the audit record has them too; what is removed has its hash, by which an archive is checked.
func (Ledger) ForgetPerson(tx store.Tx, id ID, who chat.UserID) (r Record, ok bool) {
	r, ok = store.Load[Record](tx, recordKey(id))
	if !ok || !r.State.Final() {
		return r, false
	}
	before := r.Row()
	remove := func(by chat.User, texts ...*string) {
		for _, s := range texts {
			if by.ID == who && *s != "" {
				*s = forgotten
			}
		}
	}
	remove(r.Requester, &r.Requester.Name)
	remove(r.DroppedBy, &r.DroppedBy.Name)
	remove(r.Trial.By, &r.Trial.By.Name)
	remove(r.Review.By, &r.Review.By.Name, &r.Review.Note)
	remove(r.By, &r.By.Name, &r.Reason)
	remove(r.Undoes.By, &r.Undoes.By.Name)
	remove(r.UndoneBy, &r.UndoneBy.Name)
	for i := range r.Votes {
		remove(r.Votes[i].User, &r.Votes[i].User.Name, &r.Votes[i].Reason)
	}
	leaves := maps.Clone(r.Leaves)
	for i, m := range r.Row() {
		if !bytes.Equal(m.Raw, before[i].Raw) {
			if leaves == nil {
				leaves = map[string]string{}
			}
			leaves[m.Name] = r.Leaf(before[i])
		}
	}
	r.Leaves = leaves
	store.Save(tx, recordKey(id), r)
	return r, true
}
