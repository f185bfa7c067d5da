package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestASourceOfWhoIsOnCallIsWhole(t *testing.T) {
	const groups = "\ngroups: {sre: {web: [sam]}}\n"
	with := func(source, ref string) string {
		return "targets: {local: {kind: local, approvers: [" + ref + "]}}\noncall: {" + source + "}" + groups
	}
	for _, tc := range []struct{ yaml, bad string }{
		{with("pagerduty: {token_env: T, fallback: sre}", "{oncall: pagerduty, schedule: P1, level: 1}"), ""},
		{with("rota: {kind: ical, path: /rota.ics}", "{oncall: rota}, sre"), ""},
		{with("grafana: {url: 'https://x', token_env: T}", "{oncall: grafana, schedule: S}"), ""},
		{with("pagerduty: {token_env: T}", "{oncall: pd, schedule: P1}"), `"pd" is not one of the sources of oncall (pagerduty)`},
		{with("pagerduty: {token_env: T}", "{oncall: pagerduty}"), "needs a schedule"},
		{with("pagerduty: {}", "sre"), "needs token_env"},
		{with("pd: {token_env: T}", "sre"), `oncall.pd.kind is "pd"; use pagerduty`},
		{with("pagerduty: {token_env: T, fallback: nobody}", "sre"), "not one of the groups (sre)"},
		{with("pagerduty: {token_env: T, url: 'http://pd.example.com'}", "sre"), "https://"},
		{with("pagerduty: {token_env: T, every: 1h, max_age: 5m}", "sre"), "max_age"},
		{with("rota: {kind: ical}", "sre"), "a url or a path"},
		{with("rota: {kind: ical, path: rota.ics}", "sre"), "absolute"},
		{with("grafana: {token_env: T}", "sre"), "needs url"},
		{with("grafana: {url: 'https://x', token_env: T}", "{oncall: grafana, schedule: S, level: 2}"), "have one level"},
		{with("jsm: {url: 'https://api.atlassian.com/jsm/ops/api/c1', token_env: T}", "{oncall: jsm, schedule: SRE}"), ""},
		{with("jsm: {token_env: T}", "sre"), "and your cloud id"},
		{with("jsm: {url: 'https://x', token_env: T}", "{oncall: jsm, schedule: S, level: 2}"), "have one level"},
		{with("opsgenie: {token_env: T}", "{oncall: opsgenie, escalation_policy: E}"), "which only pagerduty has"},
		{with("pagerduty: {token_env: T}", "sre") + "people: {bob@example.com: {slack_usergroups: [S1]}}\n", "names a group"},
		{with("pagerduty: {token_env: T}", "{oncall: pagerduty, schedul: P1}"), `unknown key "schedul"`},
		{with("pagerduty: {token_env: T}", "sre") + "policy: {rules: [{name: x, then: ask, approve: {groups: [{oncall: other, schedule: S}]}}]}\n", `"other" is not one of the sources`},
	} {
		path := filepath.Join(t.TempDir(), "bot.yaml")
		if err := os.WriteFile(path, []byte(tc.yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFile(path)
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%s\n%v", tc.yaml, err)
		}
	}
}

// TestWhatPeopleAreCalledAtEachProvider: Entra ID doesn't say whether an address is verified.
func TestWhatPeopleAreCalledAtEachProvider(t *testing.T) {
	for _, tc := range []struct {
		c    OIDCConfig
		want string
	}{
		{OIDCConfig{Issuer: "https://login.example.com/realms/ops"}, "email"},
		{OIDCConfig{Issuer: "https://login.microsoftonline.com/aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee/v2.0"}, "preferred_username"},
		{OIDCConfig{Issuer: "https://login.microsoftonline.com/aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee/v2.0", NameClaim: "oid"}, "oid"},
		{OIDCConfig{Issuer: "https://login.microsoftonline.com.evil.example/x"}, "email"},
	} {
		if got := tc.c.Name(); got != tc.want {
			t.Errorf("%+v: %q, not %q", tc.c, got, tc.want)
		}
	}
}
