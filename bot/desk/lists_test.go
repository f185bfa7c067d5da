package desk

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/spend"
	"countersign/agent/workflow"
	"countersign/alerts"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/console/api"
	"countersign/store"
)

func TestWhatWasUndoneIsListedSo(t *testing.T) {
	r := approvals.Record{State: approvals.Done, Outcome: approvals.Outcome{OK: true, Note: "exit code 0"}}
	if got := outcome(r, true); got != "exit code 0" {
		t.Errorf("%q", got)
	}
	if r.UndoneAt = time.Now(); outcome(r, true) != "undone" {
		t.Errorf("%q", outcome(r, true))
	}
	r.UndoneAt, r.Trial.Ended = time.Time{}, approvals.Undone
	if outcome(r, true) != "undone" || outcome(r, false) != "done" {
		t.Errorf("%q", outcome(r, true))
	}
}

func TestLists(t *testing.T) {
	x := targets(t)
	lib, err := workflow.NewLibrary(workflow.Embedded())
	if err != nil {
		t.Fatal(err)
	}
	l := NewLists(NewHome(
		Commands{DB: x.DB, Targets: x, Agent: &talk{}, Runbooks: Runbooks{Library: lib, Targets: x}, Log: slog.New(slog.DiscardHandler)},
		gatekeeper{},
		func(string) string { return "" }, func(context.Context) ([]alerts.Problem, error) { return nil, nil },
	), func(s string) string { return strings.ReplaceAll(s, "secret-own", "[hidden]") })
	now := time.Now()
	update := func(fn func(tx store.Tx) error) {
		t.Helper()
		if err := x.DB.Update(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(id, thread string, approve bool) {
		update(func(tx store.Tx) error {
			r := approvals.Record{
				ID: approvals.ID(id), Thread: chat.ThreadID(thread), Call: id, Requester: chat.User{ID: "web:eve", Name: "eve"}, Created: now, Level: "high",
				Action:  approvals.Action{Tool: "run_shell", Kind: approvals.KindShell, Target: "local", Bytes: []byte("rm secret-" + id)},
				Require: approvals.Require{Needs: []approvals.Need{{Rule: "r", Count: 1, Groups: []string{"oncall"}}}, RunWithin: time.Minute}, ExpiresAt: now.Add(time.Minute),
			}
			var ledger approvals.Ledger
			ledger.Open(tx, r)
			if !approve {
				return nil
			}
			if _, _, err := ledger.Vote(tx, r.ID, approvals.Vote{User: chat.User{ID: "web:bob", Name: "bob"}, Approve: true, At: now, Digest: r.Action.Digest(), Meets: []int{0}}); err != nil {
				return err
			}
			ledger.Consume(tx, r.ID, r.Action, now)
			ledger.Finish(tx, r.ID, approvals.Outcome{OK: true, Note: "exit code 0"}, now)
			return nil
		})
	}
	list := func(id, words string) api.List {
		t.Helper()
		got, ok, err := l.List(t.Context(), api.ListQuestion{Inquiry: chat.Inquiry{From: alice}, ID: id, Words: words})
		if err != nil || !ok {
			t.Fatalf("%s: %v %v", id, ok, err)
		}
		for _, r := range got.Rows {
			if len(r.Cells) != len(got.Columns) {
				t.Errorf("%s: %d cells for %d columns", id, len(r.Cells), len(got.Columns))
			}
		}
		return got
	}
	ask("own", "web:1", true)
	ask("open", "web:2", false)
	ask("slack", "slack:T:C1:3", true)
	update(func(tx store.Tx) error {
		audit.Append(tx, "web:1", audit.Event{What: audit.Approved, User: "web:bob", Target: "local", Command: "rm secret-own\nmore"}, now.Add(-time.Minute))
		audit.Append(tx, "slack:T:C1:3", audit.Event{What: audit.Denied, User: "slack:U1", Target: "local", Command: "rm secret-slack"}, now)
		audit.Append(tx, "web:1", audit.Event{What: audit.Done}, now.AddDate(0, 0, -auditDays-1))
		spend.Add(tx, spend.Place{Thread: "web:1", Channel: "web", Day: spend.DayOf(now), Person: "Ann"}, spend.Charge{Model: "large", Amount: spend.Amount{Tokens: 1500, Money: 25_000}})
		spend.Add(tx, spend.Place{Thread: "slack:T:C1:3", Channel: "web", Day: spend.DayOf(now.AddDate(0, 0, -2)), Person: "Ann"}, spend.Charge{Model: "small", Amount: spend.Amount{Tokens: 700}})
		return nil
	})

	all := list("approvals", "")
	said := map[string]api.Row{}
	for _, r := range all.Rows {
		said[r.Cells[4].Text+", "+r.Cells[5].Text] = r
	}
	if len(all.Rows) != 3 || said[", waiting"].Thread != "web:2" || !strings.Contains(fmt.Sprint(all.Rows), "approved by bob") || all.Rows[0].Cells[5].Text != "waiting" {
		t.Errorf("%+v", all.Rows)
	}
	if got := list("approvals", "APPROVED bob"); len(got.Rows) != 2 {
		t.Errorf("narrowed: %+v", got.Rows)
	}
	if got := list("audit", ""); len(got.Rows) != 2 || got.Rows[0].Cells[1].Text != audit.Denied || got.Rows[0].Cells[4].Text != "" || got.Rows[0].Thread != "" || got.Rows[1].Cells[4].Text != "rm [hidden] …" || got.Rows[1].Thread != "web:1" {
		t.Errorf("%+v", got.Rows)
	}
	if got := list("cost", ""); len(got.Rows) != 2 || got.Rows[0].Cells[2].Text != "1500" || len(got.Bars) != 2 || got.Bars[1].Value != 25_000 {
		t.Errorf("%+v", got)
	}
	for by, want := range map[string]string{"person": "[[Ann] [2200]]", "model": "[[large] [1500]] [[small] [700]]", "conversation": "[[web:1] [1500]] [[in slack] [700]]"} {
		got, _, err := l.List(t.Context(), api.ListQuestion{Inquiry: chat.Inquiry{From: alice}, ID: "cost", Fields: map[string]string{"by": by}})
		var said []string
		for _, r := range got.Rows {
			said = append(said, fmt.Sprintf("[[%s] [%s]]", r.Cells[0].Text, r.Cells[2].Text))
		}
		if strings.Join(said, " ") != want || err != nil || len(got.Bars) != 0 || len(got.Fields) != 1 {
			t.Errorf("by %s: %s, %v", by, said, err)
		}
	}
	if got := list("runbooks", "disk"); len(got.Rows) == 0 || got.Rows[0].Say != "run disk-full directory= on=local" || got.Rows[0].Do != "Start" {
		t.Errorf("%+v", got.Rows)
	}
	if got := list("targets", ""); len(got.Rows) == 0 || got.Rows[0].Cells[2].Text != "not reached yet" {
		t.Errorf("%+v", got.Rows)
	}
	list("terminals", "")
	if _, ok, err := l.List(t.Context(), api.ListQuestion{Inquiry: chat.Inquiry{From: alice}, ID: "nothing"}); ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
	for i := range 2*maxRows + 1 {
		ask(fmt.Sprint("many", i), "web:9", false)
	}
	if got := list("approvals", ""); len(got.Rows) != maxRows || !got.More {
		t.Errorf("%d rows, more %v", len(got.Rows), got.More)
	}
	for _, n := range l.Names() {
		if n.Title == "" || list(n.ID, "").About == "" {
			t.Errorf("%+v", n)
		}
	}
}
