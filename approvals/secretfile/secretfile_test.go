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
	} {
		if secretfile.Why(p) == "" {
			t.Errorf("%s may be read", p)
		}
	}
	for _, p := range []string{
		"/src/cmd/countersign-witness/main.go", "/home/a/.ssh/config", "/etc/hosts", "/srv/countersign/docs/index.md", "/var/log/ca",
	} {
		if why := secretfile.Why(p); why != "" {
			t.Errorf("%s: %s", p, why)
		}
	}
}
