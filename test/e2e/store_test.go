package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A running bot gives a backup to who can read its data directory, and goes on.
func TestABackupOfARunningBot(t *testing.T) {
	t.Parallel()
	srv := model(t, func(int, string) turn { return turn{text: "I have looked."} })
	b := newBot(t, plainConfig, srv.URL)
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	alice := b.login("alice")
	say := func(id string) {
		t.Helper()
		if st, err := alice.do(http.MethodPost, "/api/threads", map[string]string{"id": id, "text": "look"}, nil); err != nil || st >= 300 {
			t.Fatalf("say: %d %v", st, err)
		}
	}
	say("before")
	run := func(args ...string) (string, error) {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(append([]string{}, b.env...), "COUNTERSIGN_LISTEN="+b.listen)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	file := filepath.Join(b.dir, "backup.db")
	if out, err := run("backup", file); err != nil || !strings.HasPrefix(out, "ok: "+file+", ") {
		t.Fatalf("%v %s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if out, err := run("store", "check", file); err != nil || !strings.Contains(out, "schema 1, opened 1 time\n") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := run("backup", file); err == nil || !strings.Contains(out, "is there already") {
		t.Errorf("%v %s", err, out)
	}
	say("after")
	if left, _ := filepath.Glob(filepath.Join(b.dir, "data", ".backup-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
