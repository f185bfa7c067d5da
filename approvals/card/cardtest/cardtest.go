// Package cardtest has every face of a card, as approvals/card makes it, for the tests of
// whoever draws cards.
package cardtest

import (
	"embed"
	"encoding/json"
	"testing"

	"countersign/adapters/chat"
)

// Dir is where the faces are, seen from approvals/card, whose tests write them.
const Dir = "cardtest/faces"

//go:embed faces/*.json
var faces embed.FS

// said are the words that say what a card asks or what became of it, without a colour and
// without a picture, in the order in which people meet the faces.
var said = []struct {
	name string
	open bool // it waits for an answer
	says []string
}{
	{"everyday", true, []string{"Compress debug.log.1 on local", "gzip -9", "medium risk", "needs 1 of oncall"}},
	{"pending", true, []string{"Restart app on local", "systemctl restart app", "high risk", "needs 1 of oncall", "Asked by alice", "in /srv/app", "The agent called this harmless", "harmless, "}},
	{"diff", true, []string{"Change nginx.conf (+2 −1) on web-1", "PRODUCTION", "+    multi_accept on;", "medium risk", "needs 1 of oncall"}},
	{"plan", true, []string{"Run 3 steps on web-1", "PRODUCTION", "systemctl start app", "needs 1 of oncall"}},
	{"approved", false, []string{"Restart app on local", "systemctl restart app", "Approved by bob"}},
	{"running", false, []string{"Restart app on local", "systemctl restart app", "running"}},
	{"plan-running", false, []string{"Run 3 steps on web-1", "systemctl start app", "not run yet"}},
	{"done", false, []string{"Restart app on local", "systemctl restart app", "exit 0"}},
	{"diff-done", false, []string{"Change nginx.conf (+2 −1) on web-1", "Approved by bob", "done"}},
	{"undo", true, []string{"Undo a change to nginx.conf on web-1", "-    multi_accept on;", "medium risk", "needs 1 of oncall"}},
	{"undo-command", true, []string{"Undo: compress 3 files on local", "tar --extract", "Why", "approved by bob at 02:54 UTC", "needs 1 of oncall"}},
	{"undone", false, []string{"Restart app on local", "Undone by alice at 03:15 UTC · approved by bob"}},
	{"denied", false, []string{"Restart app on local", "systemctl restart app", "Denied by bob"}},
	{"expired", false, []string{"Restart app on local", "systemctl restart app", "Expired"}},
	{"cancelled", false, []string{"Restart app on local", "systemctl restart app", "Withdrawn by bob"}},
	{"invalid", false, []string{"Restart app on local", "systemctl restart app", "Not run"}},
	{"unknown", false, []string{"Restart app on local", "systemctl restart app", "outcome unknown"}},
	{"break-glass", true, []string{"Restart app on local", "systemctl restart app", "high risk", "needs 2 of oncall"}},
	{"review", true, []string{"Review: Restart app on local", "systemctl restart app", "bob approved this alone", "Someone else must review this"}},
	{"reviewed", false, []string{"Reviewed: Restart app on local", "Reviewed by carol"}},
	{"rehearsed", true, []string{"on local", "Rehearsed: creates /etc/cron.d/rotate", "deletes /var/log/app with 214 files (1.2 GB)", "Undo: restores 215 files", "needs 1 of oncall"}},
	{"trial", true, []string{"Keep it? Restart app on local", "systemctl restart app", "Undo: systemctl start", "Undoes itself unless kept"}},
	{"kept", false, []string{"Restart app on local", "systemctl restart app", "Kept by bob"}},
	{"as-approved", false, []string{"Restart app on local", "exit 0 · as approved"}},
	{"more-than-shown", false, []string{"Restart app on local", "exit 0", "Also: wrote /root/.ssh/authorized_keys; left nc (4211) running; TCP port 4444 is open now"}},
	{"on-call", true, []string{"Restart app on local", "needs Bob, primary until 08:00 UTC", "ticket OPS-123"}},
	{"no-ticket", true, []string{"Restart app on local", "This needs a ticket", "needs 1 of sre (pagerduty hasn't answered since 02:44 UTC)"}},
	{"cap", true, []string{"Raise a spending cap", "Let this thread spend $2.50 more.", "medium risk", "needs 1 of oncall"}},
	{"trust-host", true, []string{"Trust the SSH key of web-2", "staging", "SHA256:5XRpPVvcH4nLqkQ0jvZ0dUwL1fLzMZJHcZ8Gq0yX7lE", "high risk"}},
	{"trust-tool", true, []string{"Trust the tool mcp_tickets_search as it is now", "Always send the whole log along", "high risk"}},
	{"question", true, []string{"failover: which machine", "Which machine takes over?"}},
	{"answered", false, []string{"failover: answered", "Which machine takes over?", "web-2", "alice"}},
}

// Face is a card in one state.
type Face struct {
	Name string
	Card chat.Card
	// Open says that the card waits for an answer.
	Open bool
	// Says is what must be read on it in words, whoever draws it.
	Says []string
}

// All returns every face, in the order in which people meet them.
func All(t testing.TB) []Face {
	t.Helper()
	files, err := faces.ReadDir("faces")
	if err != nil || len(files) != len(said) {
		t.Fatalf("%d faces, and words for %d: %v", len(files), len(said), err)
	}
	var out []Face
	for _, s := range said {
		out = append(out, Face{s.name, Named(t, s.name), s.open, s.says})
	}
	return out
}

// Named returns one face's card.
func Named(t testing.TB, name string) chat.Card {
	t.Helper()
	raw, err := faces.ReadFile("faces/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var c chat.Card
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}
