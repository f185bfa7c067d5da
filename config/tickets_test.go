package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASystemOfTicketsIsWhole(t *testing.T) {
	for _, tc := range []struct{ yaml, bad string }{
		{"tickets: {jira: {url: 'https://x', token_env: T, approved: [Approved]}}", ""},
		{"tickets: {rfc: {pattern: 'RFC-[0-9]+'}}\npolicy: {approve: {require: ticket}}", ""},
		{"tickets: {github: {project: acme/shop, token_env: T}}\ntargets: {local: {kind: local, approve: {require: ticket}}}", ""},
		{"policy: {approve: {require: ticket}}", "tickets says nothing about their keys"},
		{"policy: {rules: [{name: x, then: ask, approve: {require: ticket}}]}", "tickets says nothing"},
		{"targets: {local: {kind: local, approve: {require: ticket}}}", "tickets says nothing"},
		{"policy: {approve: {require: tickets}}\ntickets: {rfc: {pattern: x}}", ""}, // the policy refuses it, where it is built
		{"targets: {local: {kind: local, approve: {require: tickets}}}\ntickets: {rfc: {pattern: x}}", "use ticket"},
		{"tickets: {rfc: {}}", "needs a pattern"},
		{"tickets: {rfc: {pattern: '('}}", "no regular expression"},
		{"tickets: {rfc: {pattern: x, approved: [y]}}", "nothing but a pattern"},
		{"tickets: {x: {kind: trello}}", `kind is "trello"; use jira`},
		{"tickets: {jira: {token_env: T}}", "needs url"},
		{"tickets: {jira: {url: 'http://x', token_env: T}}", "https://"},
		{"tickets: {jira: {url: 'https://x'}}", "needs token_env"},
		{"tickets: {jira: {url: 'https://x', token_env: T, project: a/b}}", "has a project"},
		{"tickets: {gitlab: {token_env: T}}", "needs project"},
		{"tickets: {gitlab: {token_env: T, project: a/b, user: u}}", "has a user"},
	} {
		path := filepath.Join(t.TempDir(), "bot.yaml")
		if err := os.WriteFile(path, []byte(tc.yaml+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFile(path)
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%s\n%v", tc.yaml, err)
		}
	}
}
