package manual

import (
	"strings"
	"testing"
)

// searches are what people type, and the page that they want. Several are fine where each answers.
var searches = []struct{ words, pages string }{
	{"install", "install first-five-minutes"},
	{"systemd service", "install"},
	{"debian package", "install"},
	{"docker image", "container"},
	{"run in docker", "container"},
	{"kubernetes", "kubernetes"},
	{"k8s", "kubernetes"},
	{"helm chart", "kubernetes"},
	{"helm values", "kubernetes"},
	{"readiness probe", "kubernetes operations container"},
	{"ollama", "models"},
	{"anthropic", "models"},
	{"claude api key", "models environment"},
	{"azure", "models"},
	{"own model server", "models first-five-minutes"},
	{"air gapped", "models"},
	{"change the port", "environment"},
	{"listen on all interfaces", "environment console-network"},
	{"log level", "environment"},
	{"json logs", "environment"},
	{"environment variables", "environment"},
	{"proxy tls", "console-network"},
	{"https certificate", "console-network"},
	{"sso", "sign-in"},
	{"oidc keycloak", "sign-in"},
	{"entra id", "sign-in"},
	{"okta groups", "sign-in"},
	{"revoke access", "sign-in"},
	{"sign in from my phone", "sign-in passkeys"},
	{"push notifications", "conversations"},
	{"passkey", "passkeys"},
	{"yubikey", "passkeys"},
	{"slack setup", "slack"},
	{"slack permissions", "slack-permissions"},
	{"discord buttons do nothing", "discord-troubleshooting discord-buttons"},
	{"two approvers for production", "cookbook-two-people"},
	{"four eyes", "cookbook-four-eyes"},
	{"change freeze", "cookbook-freeze"},
	{"break glass", "policy-order cookbook-freeze"},
	{"on call pagerduty", "oncall"},
	{"ical calendar", "oncall"},
	{"jira ticket", "tickets"},
	{"alertmanager", "alert-senders alerts"},
	{"grafana webhook", "alert-senders"},
	{"silence an alert", "alerts console"},
	{"sudo password", "keyboard terminals"},
	{"ssh bastion jump host", "ssh"},
	{"host key changed", "host-keys"},
	{"undo a change", "previews"},
	{"dry run", "previews"},
	{"backup", "backup"},
	{"restore a backup", "backup"},
	{"upgrade", "operations"},
	{"gdpr delete data", "store backup operations"},
	{"retention", "store"},
	{"high availability", "postgres"},
	{"spending limit", "cost-caps cost"},
	{"audit export siem", "stream audit"},
	{"dark mode", "console"},
	{"claude code hook", "agent-hooks"},
}

// The right page is first in at least 52 of these 60 searches, and among the first three in nearly all.
func TestPeopleFindThePageThatTheyLookFor(t *testing.T) {
	if len(searches) != 60 {
		t.Fatalf("%d searches", len(searches))
	}
	m := whole(t)
	first, near := 0, 0
	for _, s := range searches {
		want := strings.Fields(s.pages)
		at := -1
		var got []string
		for i, h := range m.Search(s.words, 3) {
			got = append(got, h.Where())
			for _, w := range want {
				if at < 0 && h.Page.Name == w {
					at = i
				}
			}
		}
		switch {
		case at == 0:
			first++
			near++
			continue
		case at > 0:
			near++
		}
		t.Logf("%q finds %q, wanted %s", s.words, got, s.pages)
	}
	if first < 52 || near < 57 {
		t.Errorf("the right page is first in %d of 60 searches, and near in %d", first, near)
	}
}
