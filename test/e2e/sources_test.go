package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/approvals/oncall"
	"countersign/approvals/oncall/oncalltest"
	"countersign/approvals/tickets/ticketstest"
	"countersign/test/needstest"
)

// The doctor of the built program asks every source of who is on call and every system of tickets, and says
// what to do about one that doesn't answer.
func TestTheDoctorAsksEverySourceAndEverySystemOfTickets(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	s, tickets := oncalltest.New(t), ticketstest.New(t)
	now := time.Now().UTC().Truncate(time.Second)
	bob := onCallShift("bob", now.Add(-time.Hour), now.Add(time.Hour))
	s.Set("PRI", bob)
	s.Policy("EP", "PRI")
	path := filepath.Join(t.TempDir(), "rota.ics")
	if err := os.WriteFile(path, []byte(oncalltest.Calendar(bob)), 0o600); err != nil {
		t.Fatal(err)
	}
	var refs, sources []string
	for _, kind := range oncall.Kinds() {
		switch kind {
		case oncall.ICal:
			refs = append(refs, "{oncall: file, level: 1}", "{oncall: address, level: 1}")
			sources = append(sources, fmt.Sprintf("  file: {kind: ical, path: %s}\n  address: {kind: ical, url: %q}", path, s.URL+"/calendar/PRI"))
		case oncall.JSM: // which knows people by their ids
			refs = append(refs, "{oncall: jsm, schedule: Schedule PRI, level: 1}")
			sources = append(sources, fmt.Sprintf("  jsm: {url: %q, token_env: JSM_TOKEN, fallback: sre}", s.URL))
		default:
			refs = append(refs, fmt.Sprintf("{oncall: %s, schedule: PRI, level: 1}", kind))
			sources = append(sources, fmt.Sprintf("  %s: {url: %q, token_env: ONCALL_TOKEN, fallback: sre}", kind, s.URL))
		}
	}
	config := fmt.Sprintf(`
targets: {local: {kind: local, tmux: false, approvers: [%s]}}
groups: {sre: {web: [alice]}}
oncall:
%s
people: {bob@example.com: {web: [bob]}, %s: {web: [bob]}}
tickets:
  jira: {url: %q, user: %s, token_env: TICKET_TOKEN}
  servicenow: {url: %q, user: %s, token_env: TICKET_TOKEN}
  github: {url: %q, project: acme/shop, token_env: TICKET_TOKEN}
  gitlab: {url: %q, project: acme/shop, token_env: TICKET_TOKEN}
`, strings.Join(refs, ", "), strings.Join(sources, "\n"), bob.Person.ID, tickets.URL, ticketstest.User, tickets.URL, ticketstest.User, tickets.URL, tickets.URL)
	b := newBot(t, strings.TrimLeft(config, "\n"), "http://127.0.0.1:1", "ONCALL_TOKEN="+oncalltest.Token, "JSM_TOKEN="+oncalltest.JSMToken, "TICKET_TOKEN="+ticketstest.Token)
	out, _, _ := b.run("", "doctor")
	for _, want := range []string{"pagerduty PRI", "opsgenie PRI", "incident.io PRI", "grafana PRI"} {
		if !strings.Contains(out, "on call "+want+", level 1: Bob, primary") && !strings.Contains(out, "on call "+want+", level 1: bob@example.com, primary") {
			t.Errorf("nothing of %s in\n%s", want, out)
		}
	}
	for _, want := range []string{"on call jsm \"Schedule PRI\", level 1: " + bob.Person.ID + ", primary", "on call file, level 1: Bob, primary", "on call address, level 1: Bob, primary", "jira answers", "servicenow answers", "github answers", "gitlab answers"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	s.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	tickets.Fault(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	out, _, _ = b.run("", "doctor")
	if strings.Count(out, "answered 401; check the token in ONCALL_TOKEN") != 4 || strings.Count(out, "answered 401; check the token in JSM_TOKEN") != 1 || strings.Count(out, "answered 401; check the token in TICKET_TOKEN") != 4 || !strings.Contains(out, "until it answers, sre decides") {
		t.Error(out)
	}
	for _, secret := range []string{oncalltest.Token, ticketstest.Token} {
		if strings.Contains(out, secret) {
			t.Error("a token is in the report")
		}
	}
}
