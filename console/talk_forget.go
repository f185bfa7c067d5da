package console

import (
	"bytes"
	"slices"
	"strings"

	"countersign/adapters/chat"
	"countersign/store"
)

// sayRemoved replaces what a person wrote who was forgotten.
const sayRemoved = "(this message was removed)"

// EraseThread removes a conversation of the console; other networks' are not here.
func EraseThread(tx store.Tx, thread chat.ThreadID) {
	id, ok := threadPart(thread)
	if !ok {
		return
	}
	t, ok := store.Load[threadRow](tx, threadKey(id))
	if !ok {
		return
	}
	tx.Delete(t.listKey(id))
	tx.Delete(threadKey(id))
	tx.Delete(textKey(id))
	for _, rows := range []string{"message", "change", "pending", "key"} {
		deleteRows(tx, scheme, rows, id)
	}
}

func deleteRows(tx store.Tx, prefix ...any) {
	var keys [][]byte
	for k := range tx.Scan(store.Prefix(prefix...)) {
		keys = append(keys, bytes.Clone(k))
	}
	for _, k := range keys {
		tx.Delete(k)
	}
}

// ForgetInThread removes what a person of the console wrote in a conversation, what it is called after it, and their
// name from what the bot said there. cards are
// those of its requests as they are without that person, by the keys of their posts.
func ForgetInThread(tx store.Tx, thread chat.ThreadID, who chat.UserID, cards map[string]chat.Card) {
	id, ok := threadPart(thread)
	if !ok {
		return
	}
	t, ok := store.Load[threadRow](tx, threadKey(id))
	if !ok {
		return
	}
	type found struct {
		key []byte
		row messageRow
	}
	var all []found
	changed := false
	name, _ := strings.CutPrefix(string(who), scheme+":")
	for k, m := range decoded[messageRow](tx.Scan(store.Prefix(scheme, "message", id))) {
		if m.From.ID == who && !m.From.Bot {
			m.Text, m.Files, m.From.Name, m.Groups = sayRemoved, nil, "", nil
			changed = true
		}
		if m.From.Bot {
			text, files := chat.Unnamed(m.Text, name), len(m.Files)
			m.Files = slices.DeleteFunc(m.Files, func(f chat.File) bool { // drafts and archives of the conversation repeat it
				return strings.Contains(f.Text, name) || bytes.HasPrefix(f.Data, []byte("PK"))
			})
			m.Text, changed = text, changed || text != m.Text || len(m.Files) < files
		}
		if c, ok := cards[m.Key]; ok && m.Card != nil {
			m.Card, changed = &c, true
		}
		all = append(all, found{bytes.Clone(k), m})
	}
	switch {
	case t.By == "":
		t.Title = chat.Unnamed(t.Title, name)
	case userID(t.By) == who:
		t.Title, changed = sayRemoved, true
	}
	if !changed {
		return
	}
	store.Save(tx, threadKey(id), t)
	for _, f := range all {
		store.Save(tx, f.key, f.row)
	}
	tx.Delete(textKey(id)) // made again of what is left
	for _, f := range all {
		noteWords(tx, id, f.row)
	}
}

// ForgetPerson removes what the console keeps for a person: devices, wishes, marks and pins. Sessions and tokens end
// with their place in the configuration.
func ForgetPerson(tx store.Tx, who chat.UserID) {
	user, ok := strings.CutPrefix(string(who), scheme+":")
	if !ok {
		return
	}
	for _, rows := range []string{"device", "pushed", "mark", "pin"} {
		deleteRows(tx, scheme, rows, user)
	}
	tx.Delete(wishKey(user))
	tx.Delete(readerKey(user))
}
