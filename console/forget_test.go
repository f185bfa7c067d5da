package console

import (
	"strings"
	"testing"

	"countersign/adapters/chat"
	"countersign/store"
)

// kept is what the store has of a conversation, as text.
func (r *rig) kept() string {
	r.t.Helper()
	var b strings.Builder
	err := r.db.View(r.t.Context(), func(tx store.Tx) error {
		b.Reset()
		for _, rows := range []string{"thread", "message", "text", "change", "key", "recent"} {
			from, to := store.Prefix(scheme, rows)
			for k, v := range tx.Scan(from, to) {
				b.WriteString(store.Format(k) + " " + string(v) + "\n")
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

func TestAPersonsWordsAndAConversationCanBeRemoved(t *testing.T) {
	r := newRig(t, anybody)
	alice, bob := r.signIn("alice"), r.signIn("bob")
	th := alice.start("the drawer of alice")
	bob.tell(th, "messages", say("m2", "the shelf of bob"))
	r.post(th, chat.Post{Key: "p", Text: "an answer"})
	r.post(th, chat.Post{Key: "card/x", Card: &chat.Card{Title: "Restart it", Body: "denied by alice: too late", Final: true}})
	change := func(f func(tx store.Tx)) {
		t.Helper()
		if err := r.db.Update(t.Context(), func(tx store.Tx) error { f(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	change(func(tx store.Tx) {
		ForgetInThread(tx, th, "web:alice", map[string]chat.Card{"card/x": {Title: "Restart it", Body: "denied", Final: true}})
		ForgetPerson(tx, "web:alice")
	})
	if left := r.kept(); strings.Contains(left, "drawer") || strings.Contains(left, "too late") || !strings.Contains(left, "the shelf of bob") || !strings.Contains(left, "an answer") {
		t.Errorf("%s", left)
	}
	if got, _ := bob.list("q", "drawer"); len(got) != 0 {
		t.Errorf("it is found: %+v", got)
	}
	if got, _ := bob.list("q", "shelf"); len(got) != 1 || got[0].Title != sayRemoved {
		t.Errorf("%+v", got)
	}
	ref, _, err := r.a.Open(t.Context(), "web", "exec", chat.Post{Key: "exec", Text: "alice: `cat /home/alice/x`"})
	if err != nil {
		t.Fatal(err)
	}
	r.post(ref, chat.Post{Key: "pen", Text: "Nobody typed for 10 minutes. alice had the keyboard on `local`, taken from alice-2, and then from alice."})
	change(func(tx store.Tx) { ForgetInThread(tx, ref, "web:alice", nil) })
	if left := r.kept(); !strings.Contains(left, `"somebody: `+"`cat /home/alice/x`"+`"`) || !strings.Contains(left, "Nobody typed for 10 minutes. somebody had the keyboard on `local`, taken from alice-2, and then from somebody.") || strings.Contains(left, `"title":"alice`) {
		t.Errorf("%s", left)
	}
	change(func(tx store.Tx) { EraseThread(tx, th); EraseThread(tx, ref) })
	if left := r.kept(); left != "" {
		t.Errorf("left: %s", left)
	}
	if got := bob.do("GET", "/api/threads/"+string(th), ""); got.status != 404 {
		t.Errorf("%d %s", got.status, got.body)
	}
}
