package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"countersign/store/postgres/pgtest"
	"countersign/test/needstest"
)

// TestARestoredBackupRunsNothingTwice: the machine's data directory is gone. The backup
// knows a request as open that was approved and run since; after the restore it is
// withdrawn, its button does nothing, and the thread goes on.
func TestARestoredBackupRunsNothingTwice(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	model := newCrew(t, part{"print", []turn{{calls: []call{look("seq 300")}}}}, part{"once", []turn{{text: "I do it.", calls: []call{shell("echo x >> " + ran)}}}})
	c := model.enter(t, plainConfig)
	c.say("print a lot", true)
	output := regexp.MustCompile("`output (out-[0-9a-z]{8})`").FindStringSubmatch(c.page())
	if output == nil {
		t.Fatal(c.page())
	}
	printed := c.thread
	c.thread = ""
	c.tell("once")
	c.sees("button: Approve (approve:")
	old := c.as("bob").buttons("approve:")[0]
	file := filepath.Join(c.b.dir, "backup.tar")
	if _, errs, code := c.b.run("", "backup", file); code != 0 {
		t.Fatal(errs)
	}
	if _, errs, code := c.b.run("", "restore", file); code != 1 || !strings.Contains(errs, "is in use by a running bot; stop the bot") {
		t.Errorf("a restore under a running bot: %d %s", code, errs)
	}
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	c.b.kill()
	data := filepath.Join(c.b.dir, "data")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	out, errs, code := c.b.run("", "restore", file)
	if code != 0 || !strings.Contains(out, file+" is the store now; 1 thread had open work, which is stopped when the bot starts") {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	before := c.p // signed in with the key that the backup has
	c.again()
	res, err := before.http.Get(c.b.url + "/api/threads/" + printed + "/outputs/" + output[1])
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), "1\n2\n3\n") || !strings.HasSuffix(string(text), "\n300\n") {
		t.Errorf("the output of before: %d %v %.80q", res.StatusCode, err, text)
	}
	c.sees("Stopped by the restore of a backup.")
	c.sees("Withdrawn by the restore of a backup")
	if ids := c.buttons("approve:"); len(ids) > 0 {
		t.Errorf("buttons are left: %v", ids)
	}
	if notice := c.as("bob").click(old); !strings.Contains(notice, "already") && !strings.Contains(notice, "withdrawn") {
		t.Errorf("the old button says %q", notice)
	}
	c.tell("how is it going?")
	eventually(t, "an answer", func() bool { return c.ends() == 1 }, c.shown)
	if got, err := os.ReadFile(ran); err != nil || string(got) != "x\n" {
		t.Errorf("it ran %q, %v", got, err)
	}

	// A second restore keeps the store that is there.
	c.b.stop()
	if out, errs, code = c.b.run("", "restore", file); code != 0 || !strings.Contains(out, "is kept as "+filepath.Join(data, "countersign.db.before-")) {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	kept, err := filepath.Glob(filepath.Join(data, "countersign.db.before-*Z"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("%v %v", kept, err)
	}
	if out, errs, code := c.b.run("", "store", "check", kept[0]); code != 0 {
		t.Errorf("the kept store: %d %s %s", code, out, errs)
	}
	if left, _ := filepath.Glob(filepath.Join(data, ".restore-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// onceModel asks to do one thing, whose effect shows how often it was done.
func onceModel(t *testing.T, ran string) *crew {
	return newCrew(t, part{"once", []turn{{text: "I do it.", calls: []call{shell("echo x >> " + ran)}}}})
}

// isPast: what was open in the store that was brought back is stopped, and nothing runs again.
func isPast(t *testing.T, c *chatter, old, ran string) {
	t.Helper()
	c.sees("Stopped by the restore of a backup.")
	c.sees("Withdrawn by the restore of a backup")
	if notice := c.as("bob").click(old); !strings.Contains(notice, "already") && !strings.Contains(notice, "withdrawn") {
		t.Errorf("the old button says %q", notice)
	}
	if got, err := os.ReadFile(ran); err != nil || string(got) != "x\n" {
		t.Errorf("it ran %q, %v", got, err)
	}
}

// TestABackupPutInPlaceByHandRunsNothingTwice: somebody copies the file instead of restoring it.
func TestABackupPutInPlaceByHandRunsNothingTwice(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	c := onceModel(t, ran).enter(t, plainConfig)
	c.tell("once")
	c.sees("button: Approve (approve:")
	old := c.as("bob").buttons("approve:")[0]
	file := filepath.Join(c.b.dir, "backup.db")
	if _, errs, code := c.b.run("", "backup", "--store-only", file); code != 0 {
		t.Fatal(errs)
	}
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	c.b.stop()
	data := filepath.Join(c.b.dir, "data", "countersign.db")
	if err := os.Remove(data + ".journal"); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Rename(file, data); err != nil {
		t.Fatal(err)
	}
	c.again()
	isPast(t, c, old, ran)

	// From now on it is a store like any other.
	c.tell("once more: once")
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	c.b.stop()
	c.again()
	if text := c.page(); strings.Count(text, "Stopped by the restore") != 1 {
		t.Errorf("it was stopped again: %s", text)
	}
}

// TestARestoredDatabaseRunsNothingTwice: a dump is recognised; what the server's files bring
// back can't be, and has a command.
func TestARestoredDatabaseRunsNothingTwice(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	ran := filepath.Join(t.TempDir(), "ran")
	server := pgtest.New(t)
	url := server.URL("")
	c := onceModel(t, ran).enter(t, plainConfig, "COUNTERSIGN_STORE="+url)
	c.tell("once")
	c.sees("button: Approve (approve:")
	old := c.as("bob").buttons("approve:")[0]
	server.Tool(t, "pg_dump", "--schema=countersign", "--format=custom", "--file=dump", url)
	server.Exec(t, "CREATE TABLE snapshot AS SELECT * FROM countersign.kv")
	c.as("bob").press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	c.b.stop()

	server.Exec(t, "TRUNCATE countersign.kv")
	server.Exec(t, "INSERT INTO countersign.kv SELECT * FROM snapshot")
	if _, errs, code := c.b.run("", "restore", "dump"); code == 0 || !strings.Contains(errs, "and then run bot restore --database") {
		t.Errorf("%d %s", code, errs)
	}
	if out, errs, code := c.b.run("", "restore", "--database"); code != 0 || !strings.Contains(out, "ok: 1 thread had open work, which is stopped when the bot starts") {
		t.Fatalf("%d %s %s", code, out, errs)
	}
	c.again()
	isPast(t, c, old, ran)
	c.b.stop()

	server.Exec(t, "DROP SCHEMA countersign CASCADE")
	server.Tool(t, "pg_restore", "--dbname="+url, "dump")
	c.again()
	isPast(t, c, old, ran)
	c.b.stop()
	c.again()
	if text := c.page(); strings.Count(text, "Stopped by the restore") != 1 {
		t.Errorf("it was stopped again: %s", text)
	}
}
