package approvals_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/passkey"
	"countersign/store"
	"countersign/store/mem"
)

// kept is a request as a store has it.
const kept = `{"id":"abcdefghij","thread":"web:1","call":"c1","requester":{"id":"web:alice"},"created":"0001-01-01T00:00:00Z","action":{"tool":"run_shell","kind":"shell","target":"local"},` +
	`"digest":"e57bc8c95ceb78e6d0e6c6f1c0a7b3f3c75f2d3a3b6ff0a0d6c1e0a4a1b7d2c9","nonce":"abcdefghijklmnop","claim":{"risk":"low"},"engine":{"readonly":false,"risk":"medium"},"level":"medium",` +
	`"rule":"default","policy":"p","require":{"needs":[{"rule":"default","count":1,"groups":["oncall"],"escalate":[{"after":60,"groups":["all"]}]}],"requester_may":false,"run_within":120},` +
	`"votes":[{"user":{"id":"web:bob"},"approve":true,"via":"button","event":"e1","at":"2026-01-02T03:00:00Z","digest":"e57bc8c95ceb78e6d0e6c6f1c0a7b3f3c75f2d3a3b6ff0a0d6c1e0a4a1b7d2c9","meets":[0]}],` +
	`"state":"done","expires_at":"2026-01-02T04:00:00Z","outcome":{"ok":true}}`

// TestTheHashOfAnOldRequestStays: a chain has it, so a newer version must calculate the same one.
func TestTheHashOfAnOldRequestStays(t *testing.T) {
	var r approvals.Record
	if err := json.Unmarshal([]byte(kept), &r); err != nil {
		t.Fatal(err)
	}
	const want = "2:810a75769baa2b8a11ee975d63c5959434b68272ba8a739254feedf90b77f660"
	if got := r.Facts(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestARequestAsItIsStoredHasTheSameHash: what is written with a decision is what is read for an archive.
func TestARequestAsItIsStoredHasTheSameHash(t *testing.T) {
	r := record(2)
	r.Nonce, r.Reason, r.Created = "abcdefghijklmnop", "odd \xff \u2028 <b> & \"x\" ü", time.Now().In(time.FixedZone("", 3600))
	r.Votes = []approvals.Vote{{User: chat.User{ID: "web:bob"}, Passkey: &passkey.Proof{Response: json.RawMessage(`{"a":"\u003c\u00fc"}`), Shown: json.RawMessage(`{"z":"<", "a":"\u00fc"}`)}}}
	db := mem.Open()
	update(t, db, func(tx store.Tx) {
		store.Save(tx, store.Key("approval", string(r.ID)), r)
		stored, _ := approvals.Ledger{}.Get(tx, r.ID)
		if r.Facts() != stored.Facts() {
			t.Errorf("%v\n%v", r.Row(), stored.Row())
		}
	})
	before := r.Facts()
	for name, change := range map[string]func(){
		"who":   func() { r.Votes[0].User.Name = "bob" },
		"why":   func() { r.Reason += "." },
		"state": func() { r.State = approvals.Denied },
		"need":  func() { r.Require.Needs[0].Groups = []string{"all"} },
	} {
		if change(); r.Facts() == before {
			t.Errorf("%s: another request has the same hash", name)
		}
		before = r.Facts()
	}
	if r.Nonce = ""; r.Facts() != "" {
		t.Error("a request that was not filed has a hash that could be guessed")
	}
}

// TestTheRowHasNoNonce, which is for buttons alone.
func TestTheRowHasNoNonce(t *testing.T) {
	r := record(1)
	r.Nonce = "abcdefghijklmnop"
	for _, m := range r.Row() {
		if m.Name == "nonce" || strings.Contains(string(m.Raw), r.Nonce) || strings.Contains(r.Salt(m.Name), r.Nonce) {
			t.Errorf("%s %s", m.Name, m.Raw)
		}
	}
}
