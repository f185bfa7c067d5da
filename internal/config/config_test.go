package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bot.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheExampleFileNamesEveryKeyAndLoads(t *testing.T) {
	const path = "../../docs/example.yaml"
	if _, err := ReadFile(path); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := map[string]bool{ // keys of targets and networks that this version does not have yet
		"host": true, "user": true, "container": true, "rules": true, "discord": true, "discord_roles": true,
	}
	for _, k := range knownKeys() {
		if !elsewhere[k] && !strings.Contains(string(raw), k+":") {
			t.Errorf("%s does not document %q", path, k)
		}
	}
}

func TestConfigurationErrorsAreOneSentence(t *testing.T) {
	for _, tc := range []struct{ rule, text, want string }{
		{"an unknown key names the nearest", "agnet: {name: x}", `line 1: unknown key "agnet"; did you mean "agent"?`},
		{"a wrong type names the line", "tmux:\n  max_panes: many", "line 2"},
		{"an unknown target", "agent: {name: x, target: db}", `agent.target is "db"`},
		{"an unknown kind", "targets: {local: {kind: vm}}", `kind "vm"`},
		{"no YAML at all", "{", "line 1"},
		{"an unknown mode", "agent: {mode: yolo}", `agent.mode: the mode "yolo"`},
		{"an unknown platform", "channels: [{platform: irc, id: x}]", `channels[0] has platform "irc"`},
		{"a channel without id", "channels: [{platform: slack}]", `channels[0] has no id`},
		{"a channel that is listed twice", "channels: [{platform: slack, id: C1}, {platform: slack, id: C1}]", "listed twice"},
		{"an unknown mode of a channel", "channels: [{platform: slack, id: C1, mode: fast}]", `the mode "fast"`},
		{"an unknown way of following up", "channels: [{platform: slack, id: C1, followups: none}]", `followups "none"`},
		{"a channel with a target that nobody listed", "channels: [{platform: slack, id: C1, target: db}]", `target "db"`},
	} {
		_, err := ReadFile(write(t, tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
}

func TestTheAuditConfigurationIsChecked(t *testing.T) {
	for _, tc := range []struct {
		c    AuditConfig
		want string
	}{
		{defaultAudit(), ""},
		{AuditConfig{Summary: "slack:T1:C1:1.2", At: "23:59", Zone: "Europe/Vienna"}, ""},
		{AuditConfig{Summary: "#general", At: "09:00", Zone: "UTC"}, `f.yaml: audit.summary is "#general", which is no thread`},
		{AuditConfig{Summary: "web:1", At: "9 am", Zone: "UTC"}, `f.yaml: audit.at is "9 am"; use hours and minutes`},
		{AuditConfig{Summary: "", At: "09:00", Zone: "Mars/Olympus"}, `f.yaml: audit.zone is "Mars/Olympus"`},
	} {
		got := ""
		if err := tc.c.check("f.yaml"); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%+v: %q", tc.c, got)
		}
	}
}

func TestEverySecretCanComeFromAFile(t *testing.T) {
	dir := t.TempDir()
	for name, secret := range map[string]string{"HOOK": "hook-secret\n", "MCP": " mcp-secret ", "PLUG": "plug-secret"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv(name+"_SECRET", "") // restored at the end
		t.Setenv(name+"_SECRET_FILE", path)
	}
	f, err := ReadFile(write(t, `
alerts: {hooks: {generic: {secret_env: HOOK_SECRET}}, default: {channel: web}}
mcp: {m: {url: "https://mcp.internal/", headers: {Authorization: "Bearer ${MCP_SECRET}"}}}
tools: {plugins: [{path: /opt/p, env: [PLUG_SECRET]}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := fromFiles(f.variables()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"HOOK_SECRET": "hook-secret", "MCP_SECRET": "mcp-secret", "PLUG_SECRET": "plug-secret"} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	for _, at := range []string{"HOOK", "MCP", "PLUG"} {
		path := filepath.Join(dir, at)
		found := false
		for _, place := range (Env{DataDir: "/d"}).Places(f) {
			found = found || place == path
		}
		if !found {
			t.Errorf("%s is not known as a place of secrets", path)
		}
	}
}

func TestTheSummaryIsDueOnceADay(t *testing.T) {
	for _, tc := range []struct{ rule, at, zone, from, due string }{
		{"later today", "09:00", "UTC", "2026-03-01T08:59:59Z", "2026-03-01T09:00:00Z"},
		{"tomorrow, when it was just now", "09:00", "UTC", "2026-03-01T09:00:00Z", "2026-03-02T09:00:00Z"},
		{"in the zone", "09:00", "Europe/Vienna", "2026-01-01T08:30:00Z", "2026-01-02T08:00:00Z"},
		{"over the end of a year", "23:30", "America/New_York", "2026-01-01T04:45:00Z", "2026-01-02T04:30:00Z"},
		{"on the day that the clocks change", "09:00", "Europe/Vienna", "2026-03-28T08:00:00Z", "2026-03-29T07:00:00Z"},
		{"at a time that the clocks skip", "02:30", "Europe/Vienna", "2026-03-28T12:00:00Z", "2026-03-29T01:30:00Z"},
	} {
		d, err := AuditConfig{At: tc.at, Zone: tc.zone}.Clock()
		if err != nil {
			t.Fatal(err)
		}
		from, _ := time.Parse(time.RFC3339, tc.from)
		if got := d.Next(from).UTC().Format(time.RFC3339); got != tc.due {
			t.Errorf("%s: %s, want %s", tc.rule, got, tc.due)
		}
	}
}

func TestTheConsolesConfigurationIsChecked(t *testing.T) {
	for _, tc := range []struct{ rule, text, want string }{
		{"an origin with no scheme", "web: {origin: bot.example.com}", "web.origin"},
		{"a certificate without a key", "web: {tls: {cert: /c.pem}}", "needs both cert and key"},
		{"a provider without a client", "web: {origin: https://b.example.com, oidc: {issuer: https://id.example.com}}", "issuer and client_id"},
		{"a provider without a way back", "web: {oidc: {issuer: https://id.example.com, client_id: x}}", "web.origin"},
		{"viewers that are no group", "web: {viewers: [all]}", `web.viewers has "all"`},
		{"a proxy that is no address", "web: {proxies: [proxy.internal]}", "web.proxies"},
		{"two names that look the same", "groups: {a: {web: [bob]}, b: {web: [b\u043eb]}}", `looks like "bob"`},
		{"a name with what cannot be seen", "groups: {a: {web: [\"bo\u200bb\"]}}", "cannot be seen"},
		{"sessions that end before they are idle", "web: {session: 1h, idle: 2h}", "web.session"},
	} {
		_, err := ReadFile(write(t, tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "; ") && !strings.Contains(err.Error(), ", which") {
			t.Errorf("%s: %v", tc.rule, err)
		}
	}
	f, err := ReadFile(write(t, "web: {proxies: [10.0.0.0/8, 192.0.2.1]}"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Web.ProxyPrefixes(""); err != nil || len(got) != 2 || got[1].Bits() != 32 {
		t.Errorf("proxies: %v %v", got, err)
	}
}

func TestAnErrorNamesTheDocumentOfItsKey(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a: bot.yaml")
	for text, want := range map[string]string{
		"targets: {a: {kind: sssh}}": "targets", "policy: {reads: x}": "policy-rules", "nonsense: 1": "configuration",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadFile(file)
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Page() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	for sentence, want := range map[string]string{"policy.rules[0] (x).when is wrong": "policy-rules", "say what": "", "web: say what": "sign-in"} {
		if e, ok := errors.AsType[*Error](Errorf("%s", sentence)); !ok || e.Page() != want {
			t.Errorf("%s: %q", sentence, e.Page())
		}
	}
}

func TestTheDocumentsOfKeysAreThere(t *testing.T) {
	for key, page := range pages {
		if _, err := os.Stat(filepath.Join("..", "..", "docs", page+".md")); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
