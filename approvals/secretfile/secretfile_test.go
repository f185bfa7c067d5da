package secretfile_test

import (
	"testing"

	"countersign/approvals/secretfile"
)

func TestWhichFilesAreSecret(t *testing.T) {
	for _, p := range []string{
		"/home/a/.config/countersign/client.json", "/home/a/.config/countersign/hooks/claude", "/Users/a/Library/Application Support/countersign/hooks/claude.json", "/srv/xdg/countersign/hooks/codex.json", "/srv/xdg/countersign/client.json", "/etc/countersign/environment", "/etc/countersign/signer-token",
		"/etc/countersign-signer/ca", "/etc/countersign-signer", "/root/countersign-signer/ca", "/home/a/countersign-signer/token", "/home/a/countersign-signer/ca.next",
		"/home/a/countersign-witness/key", "/home/a/countersign-witness/state/x", "/var/lib/countersign/countersign.db", "/home/a/.local/share/countersign/bot/key",
		"/home/a/.gemini/oauth_creds.json", "/home/a/.codex/auth.json", "/home/a/.claude/.credentials.json", "/home/a/.claude.json", "/home/a/.config/gh/hosts.yml",
		"/home/a/.local/share/opencode/auth.json", "/home/a/.config/github-copilot/apps.json", "/home/a/.ssh/id_ed25519", "/home/a/.supabase/access-token",
		"/home/a/.m2/settings.xml", "/home/a/.gradle/gradle.properties", "/home/a/.nuget/NuGet/NuGet.Config", "/home/a/.ansible/vault_pass", "/home/a/.config/helm/repositories.yaml",
		"/home/a/.config/borg/keys/backup", "/home/a/.config/restic/env", "/home/a/.config/anthropic/x", "/etc/docker/key.json", "/etc/hostapd/hostapd.conf", "/etc/freeradius/3.0/clients.conf",
		"/etc/grafana/grafana.ini", "/etc/monit/monitrc", "/etc/redis/redis.conf", "/home/a/gcp-key.json", "/etc/cups/printers.conf",
	} {
		if secretfile.Why(p) == "" {
			t.Errorf("%s may be read", p)
		}
	}
	for _, p := range []string{
		"/src/cmd/countersign-witness/main.go", "/home/a/.ssh/config", "/etc/hosts", "/srv/countersign/docs/index.md", "/var/log/ca", "/src/gradle.properties", "/src/settings.xml", "/etc/cups/cupsd.conf", "/var/log/redis/redis.log",
	} {
		if why := secretfile.Why(p); why != "" {
			t.Errorf("%s: %s", p, why)
		}
	}
}
