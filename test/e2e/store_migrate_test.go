package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"countersign/store/postgres/pgtest"
	"countersign/test/needstest"
)

// A bot moves to a database and back; what was open before goes on there, and nothing
// is done twice.
func TestABotMovesToADatabaseAndBack(t *testing.T) {
	needstest.Long(t)
	url := pgtest.New(t).URL("")
	dir := t.TempDir()
	srv := model(t, func(results int, user string) turn {
		if name := user[strings.LastIndex(user, " ")+1:]; results == 0 && strings.HasPrefix(name, "file-") {
			return turn{calls: []call{{"run_shell", `{"command":"echo x >> ` + filepath.Join(dir, name) + `","risk":"low","mutation":true,"privesc":false,"why":"asked"}`}}}
		}
		return turn{text: "All done."}
	})
	b := newBot(t, plainConfig, srv.URL)
	f := &replicaSet{t: t, bots: []*bot{b}}
	start := func() *person {
		t.Helper()
		if !b.start() {
			t.Fatalf("the bot does not start:\n%s", b.log)
		}
		return b.login("alice")
	}
	run := func(args ...string) (string, error) {
		cmd := exec.Command(binary, args...)
		cmd.Env = b.env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(want string, args ...string) {
		t.Helper()
		if out, err := run(args...); err != nil || !strings.Contains(out, want) || strings.Contains(out, url) {
			t.Fatalf("%v: %v %s\n%s", args, err, out, b.log)
		}
	}

	alice := start()
	first, second := alice.say(t, "make file-1"), alice.say(t, "make file-2")
	f.button(alice, first, "approve")
	f.button(alice, second, "approve")
	there := append(append([]string{}, b.env...), "COUNTERSIGN_STORE="+url)
	here := b.env
	b.env = there
	if out, err := run("store", "migrate", "--from", "bolt", "--to", "postgres"); err == nil || !strings.Contains(out, "is in use by a running bot; stop it") {
		t.Errorf("while the bot runs: %v %s", err, out)
	}
	b.stop()
	must("each arrived as it was", "store", "migrate", "--from", "bolt", "--to", "postgres")
	must("ok: 3 threads", "audit", "verify") // one is that of sign-ins

	// Replicas know their own machines by name, so what was asked for the machine of a
	// bot that was alone is asked again.
	alice = start()
	alice.click(t, first, f.button(alice, first, "approve"))
	eventually(t, "the request is said to be another one now", func() bool {
		rows, err := alice.messages(first)
		return err == nil && slices.ContainsFunc(rows, func(r row) bool {
			return r.Card != nil && strings.Contains(r.Card.Body, "Ask for it again.")
		})
	}, b.log.String)
	third := alice.say(t, "make file-3")
	alice.click(t, third, f.button(alice, third, "approve"))
	f.waitText(alice, third, "All done.")
	must("ok: 4 threads", "store", "check")
	must("ok: ", "store", "prune")
	if out, err := run("store", "migrate", "--from", "postgres", "--to", "bolt"); err == nil || !strings.Contains(out, "bots work with the database; stop all of them") {
		t.Errorf("while a replica works: %v %s", err, out)
	}
	b.stop()
	must("ok: the store is ", "store", "migrate", "--from", "postgres", "--to", "bolt")

	b.env = here
	alice = start()
	f.waitText(alice, third, "All done.")
	alice.click(t, second, f.button(alice, second, "approve"))
	f.waitText(alice, second, "All done.")
	for name, want := range map[string]string{"file-1": "", "file-2": "x\n", "file-3": "x\n"} {
		if raw, _ := os.ReadFile(filepath.Join(dir, name)); string(raw) != want {
			t.Errorf("%s has %q, want %q", name, raw, want)
		}
	}
	b.stop()
	must("ok: 4 threads", "store", "check")
}
