package admin

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"countersign/adapters/chat"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/bot"
	"countersign/bot/desk"
	"countersign/config"
	"countersign/config/rules"
	"countersign/console/api"
	"countersign/store"
	"countersign/store/mem"
)

// pagesOf are the console's pages over a new store, by their ids.
func pagesOf(t *testing.T) (map[string]desk.Page, store.DB) {
	t.Helper()
	r, err := rules.New(config.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	db := mem.Open()
	out := map[string]desk.Page{}
	for _, p := range Pages(bot.Site{DB: db, Rules: func() *rules.Rules { return r }, Log: slog.New(slog.DiscardHandler)}) {
		out[p.ID] = p
	}
	return out, db
}

func asked(t *testing.T, p desk.Page, fields map[string]string) (note, rows string) {
	t.Helper()
	a, err := p.Rows(t.Context(), api.ListQuestion{Inquiry: chat.Inquiry{From: chat.User{ID: "web:ann"}}, Fields: fields})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, r := range a.Rows {
		if len(r.Cells) != len(p.Columns) {
			t.Errorf("%d cells for %d columns", len(r.Cells), len(p.Columns))
		}
		for _, c := range r.Cells {
			out.WriteString(c.Text + "|")
		}
		out.WriteString(string(r.Thread) + "\n")
	}
	return a.Note, out.String()
}

func TestThePolicyPageExplainsACommandAndSaysWhatIsWrong(t *testing.T) {
	pages, _ := pagesOf(t)
	p := pages["policy"]
	if note, rows := asked(t, p, nil); note+rows != "" {
		t.Errorf("unasked it says %q %q", note, rows)
	}
	if note, rows := asked(t, p, map[string]string{"command": "systemctl restart nginx", "target": "local", "channel": "web", "user": ""}); note != "" ||
		!strings.Contains(rows, "Decision|ask: it runs after people approved it|") || !strings.Contains(rows, "Requester|web:ann ") {
		t.Errorf("%q %q", note, rows)
	}
	if note, rows := asked(t, p, map[string]string{"command": "ls", "target": "mars"}); rows != "" || !strings.Contains(note, `There is no target "mars"`) {
		t.Errorf("%q %q", note, rows)
	}
}

func TestTheReplayPageTriesAPolicyAndKeepsWordsInTheirChannel(t *testing.T) {
	pages, db := pagesOf(t)
	p := pages["replay"]
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		for _, thread := range []string{"web:1", "slack:T:C:1"} {
			audit.Append(tx, thread, audit.Event{What: audit.Asked, Tool: "run_shell", Kind: string(approvals.KindShell), Level: "high", Target: "local", Command: "rm -rf /srv/" + thread, User: "web:ann"}, time.Now())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if note, rows := asked(t, p, map[string]string{"since": "7d", "policy": ""}); rows != "" || note != "2 calls; 2 asked, and would again." {
		t.Errorf("as it is: %q %q", note, rows)
	}
	note, rows := asked(t, p, map[string]string{"since": "7d", "policy": "policy:\n  rules:\n    - name: no-deletions\n      when: command.matches(\"^rm\")\n      then: forbid\n"})
	if !strings.Contains(rows, "asked|was refused|run_shell|rm -rf /srv/web:1|") || strings.Contains(rows, "slack") || strings.Count(rows, "\n") != 2 {
		t.Errorf("%q %q", note, rows)
	}
	for policy, want := range map[string]string{"rules: []": "There is no policy section", "policy: {nothing: 1}": "field nothing not found", ":\t": "This is no YAML"} {
		if note, rows := asked(t, p, map[string]string{"since": "7d", "policy": policy}); rows != "" || !strings.Contains(note, want) {
			t.Errorf("%q: %q %q", policy, note, rows)
		}
	}
}

func TestTheAuditPageFindsALineThatWasChanged(t *testing.T) {
	pages, db := pagesOf(t)
	p := pages["verify"]
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		audit.Append(tx, "web:1", audit.Event{What: audit.Approved, User: "web:bob"}, time.Now())
		audit.Append(tx, "web:1", audit.Event{What: audit.Done}, time.Now())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if note, rows := asked(t, p, nil); note+rows != "" {
		t.Errorf("unasked it says %q %q", note, rows)
	}
	if note, rows := asked(t, p, map[string]string{}); rows != "" || note != "The record is whole: 1 thread, 2 lines, 0 anchors." {
		t.Errorf("%q %q", note, rows)
	}
	if err := db.Update(t.Context(), func(tx store.Tx) error {
		for key, val := range tx.Scan(store.Prefix("audit")) {
			if strings.Contains(string(val), "web:bob") {
				tx.Set(key, []byte(strings.Replace(string(val), "web:bob", "web:eve", 1)))
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if note, rows := asked(t, p, map[string]string{}); rows == "" || !strings.HasPrefix(note, "The record has ") {
		t.Errorf("%q %q", note, rows)
	}
}
