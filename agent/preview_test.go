package agent_test

import (
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/store"
)

// A target that was busy is asked once more what an action would do, while nobody has decided.
func TestAPreviewIsTriedOnceMore(t *testing.T) {
	late := approvals.Preview{Evidence: approvals.UnknownEffect, Text: "couldn't rehearse it (the target didn't answer in time)", Retry: true}
	better := approvals.Preview{Evidence: approvals.Rehearsed, Text: "creates x (0 B)"}
	shows := func(w *world, text string) bool { return strings.Contains(strings.Join(w.card().Preview, "\n"), text) }
	for _, tc := range []struct {
		rule  string
		found []approvals.Preview
		press string
		looks int
		want  string
	}{
		{"and the card has what it says", []approvals.Preview{late, better}, "", 2, "creates x"},
		{"but not a third time", []approvals.Preview{late, late, better}, "", 2, "didn't answer in time"},
		{"not where the answer is for good", []approvals.Preview{{Evidence: approvals.UnknownEffect, Text: "couldn't rehearse it (off)"}, better}, "", 1, "off"},
		{"not what is decided", []approvals.Preview{late, better}, "deny", 1, ""},
		{"not what is edited, whose new card has its own", []approvals.Preview{late, better}, "edit", 2, "creates x"},
		{"not what another replica's worker heard the decision of", []approvals.Preview{late, better}, "elsewhere", 1, ""},
		{"not what is stopped", []approvals.Preview{late, better}, "stop", 1, ""},
	} {
		run(t, tc.rule, script("touch x"), func(t *testing.T, w *world) {
			w.looked = tc.found
			w.say("do it")
			if tc.press == "" && !shows(w, tc.found[0].Text) {
				t.Errorf("at first: %+v", w.card())
			}
			switch tc.press {
			case "stop":
				w.say("stop")
			case "edit":
				w.pressWith("edit", "alice", "touch y")
			case "elsewhere":
				if err := w.db.Update(t.Context(), func(tx store.Tx) error {
					id := (approvals.Ledger{}).OpenIn(tx, "web:1")[0].ID
					w.gate.Cancel(tx, id, chat.User{ID: "web:alice", Name: "alice"}, "elsewhere")
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			case "deny":
				w.press("deny")
			}
			time.Sleep(time.Minute)
			w.settle()
			if w.looks != tc.looks || !shows(w, tc.want) {
				t.Errorf("%d looks: %+v", w.looks, w.card().Preview)
			}
		})
	}
}
