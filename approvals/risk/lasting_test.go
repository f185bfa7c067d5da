package risk

import "testing"

func TestFilesThatLast(t *testing.T) {
	for name, want := range map[string]bool{
		"/root/.ssh/authorized_keys": true, "/home/ann/.ssh/authorized_keys2": true, ".ssh/config": true, "/etc/cron.d/x": true, "/var/spool/cron/crontabs/ann": true, "/home/ann/.bashrc": true,
		"~/.zshenv": true, "/src/.git/hooks/pre-commit": true, ".git/config": true, "/src/.GIT/hooks/x": true, "/src/.github/workflows/ci.yml": true, "/src/.gitlab-ci.yml": true, "/src/Jenkinsfile": true,
		"/src/.claude/settings.json": true, "/home/ann/.codex/hooks.json": true, "/home/ann/.gemini/settings.json": true, "/home/ann/.config/opencode/plugins/countersign.js": true,
		"/home/ann/.config/systemd/user/x.service": true, "/home/ann/.config/countersign/hooks/codex.json": true, "/src/a/../../etc/passwd": true, "/usr/local/bin/ls": true,
		"/src/main.go": false, "/src/etc/app.conf": false, "/src/README.md": false, "/srv/app/app.conf": false, "/src/.gitignore": false, "/tmp/x": false, "": false,
	} {
		if Lasting(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
