package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"countersign/test/buildtest"
	"countersign/test/needstest"
)

// TestAWitnessOfTheRecord: a bot whose record a witness signs. The archive of a conversation is
// verified by the small program with keys that the bot has no say in; a store that was put back to an
// earlier state is noticed by the witness; and the signatures stay what they were.
func TestAWitnessOfTheRecord(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	build := func(name string) string {
		path, err := buildtest.Program(t.Context(), t.TempDir(), "cmd/"+name, []string{"CGO_ENABLED=0"})
		must(err)
		return path
	}
	witness, verify := build("countersign-witness"), build("countersign-verify")
	own := filepath.Join(t.TempDir(), "witness")
	made, err := exec.CommandContext(t.Context(), witness, "init", "witness.example.com", own).CombinedOutput()
	must(err)
	key := ""
	for w := range strings.FieldsSeq(string(made)) {
		if strings.HasPrefix(w, "witness.example.com+") {
			key = w
		}
	}
	address := freePort(t)
	url := "http://" + address

	ran := filepath.Join(t.TempDir(), "ran")
	b := newBot(t, "", model(t, func(results int, user string) turn {
		if strings.Contains(user, "please") && results == 0 {
			return turn{calls: []call{shell("echo x >> " + ran)}}
		}
		return turn{text: "the end"}
	}).URL)
	b.configure(t, fmt.Sprintf(`
audit: {log: bot.example.com, witnesses: [{url: %q, key: %q}]}
targets:
  local: {kind: local, tmux: false, dir: %s, approvers: [oncall]}
groups:
  oncall: {web: [alice]}
`, url, key, t.TempDir()))
	data := filepath.Join(b.dir, "data")
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	get := func(path string) string {
		res, err := http.Get("http://" + b.listen + path)
		must(err)
		defer func() { _ = res.Body.Close() }()
		raw, err := io.ReadAll(res.Body)
		must(err)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s", path, res.Status, raw)
		}
		return string(raw)
	}
	log := strings.TrimSpace(get("/log/key"))
	config := filepath.Join(own, "witness.yaml")
	must(os.WriteFile(config, fmt.Appendf(nil, "name: witness.example.com\nkey: key\nstate: state\nlisten: %s\nlogs: [%q]\n", address, log), 0o600))
	w := signing(t, witness, config)

	alice := b.login("alice")
	thread := alice.say(t, "please do it")
	alice.click(t, thread, alice.card(t, thread, "approve:"))
	eventually(t, "it runs", func() bool { return lines(ran) == 1 }, func() string { return b.log.String() })
	b.stop() // which anchors what there is
	before := filepath.Join(t.TempDir(), "before")
	must(exec.CommandContext(t.Context(), "cp", "-a", data, before).Run()) // pipes, too
	archive := func() string {
		file := filepath.Join(t.TempDir(), "incident.zip")
		if _, errs, code := b.run("", "export", thread, "--out", file); code != 0 {
			t.Fatal(errs)
		}
		return file
	}
	check := func(file string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), verify, append(args, file)...).CombinedOutput()
		return string(out), err
	}
	first := archive()
	out, err := check(first, "--witness", key, "--log", log)
	if err != nil || !strings.Contains(out, "The witness witness.example.com signed") || !strings.Contains(out, "statement of changes, signed") {
		t.Fatalf("%v\n%s\n%s", err, out, b.log)
	}
	if out, err := check(first, "--witness", strings.Replace(key, "witness.example.com+", "other.example.com+", 1)); err == nil || !strings.Contains(out, "digits") {
		t.Errorf("a key with wrong digits: %v %s", err, out)
	}

	// More happens, and then somebody puts the store back.
	if !b.start() {
		t.Fatalf("the bot does not start again:\n%s", b.log)
	}
	alice = b.login("alice")
	other := alice.say(t, "please do it once more")
	alice.click(t, other, alice.card(t, other, "approve:"))
	eventually(t, "it runs again", func() bool { return lines(ran) == 2 }, func() string { return b.log.String() })
	kept := filepath.Join(t.TempDir(), "checkpoint")
	must(os.WriteFile(kept, []byte(get("/log/checkpoint")), 0o600))
	for _, path := range []string{"/log/checkpoint", "/log/witnessed"} {
		if text := get(path); !strings.HasPrefix(text, "bot.example.com\n") {
			t.Errorf("%s has %q", path, text)
		}
	}
	if n := len(get("/log/tile/0/000.p/1")); n != 32 {
		t.Errorf("a tile of one hash has %d bytes", n)
	}
	b.stop()
	must(os.RemoveAll(data))
	must(exec.CommandContext(t.Context(), "cp", "-a", before, data).Run())
	if !b.start() {
		t.Fatalf("the bot does not start on the old store:\n%s", b.log)
	}
	eventually(t, "the witness is asked", func() bool {
		return strings.Contains(b.log.String(), "it was cut") || strings.Contains(b.log.String(), "a witness did not sign")
	}, func() string { return b.log.String() })
	b.stop()
	w.stop()
	if out, err := check(first, "--checkpoint", kept); err != nil {
		t.Errorf("a checkpoint that was kept: %v %s", err, out)
	}
	if out, errs, code := b.run("", "audit", "verify", "--checkpoint", kept); code != 0 {
		t.Errorf("the store of a checkpoint that was kept: %s%s", out, errs)
	}
	if out, err := check(archive(), "--witness", key, "--log", log); err != nil {
		t.Errorf("what was signed before the cut: %v %s", err, out)
	}
}
