package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"countersign/store"
	"countersign/store/bolt"
)

// What the bot wrote itself of a person who is forgotten has their id, and their name nowhere.
func TestAForgottenPersonsNameIsNowhere(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`web:zebulon|"by":"zebulon"|"people":\[[^]]*\]`) // their id
	config := strings.NewReplacer("bob", "zebulon", "tmux: false, ", "").Replace(plainConfig)
	c := newCrew(t,
		part{"touch it", []turn{{text: "I do it.", calls: []call{shell("touch /tmp/forget-a")}}}},
		part{"touch that", []turn{{text: "I do it.", calls: []call{shell("touch /tmp/forget-b")}}}},
		part{"wait", []turn{{text: "I do it.", calls: []call{shell("sleep 61")}}}},
	).enter(t, config)
	for _, f := range []string{"/tmp/forget-a", "/tmp/forget-b", "/tmp/forget-c"} {
		t.Cleanup(func() { _ = os.Remove(f) })
	}
	card := func() {
		t.Helper()
		eventually(t, "the card", func() bool { return len(c.buttons("approve:")) == 1 }, c.shown)
	}
	c.tell("touch it")
	card()
	z := c.as("zebulon")
	z.press("approve:")
	eventually(t, "the end", func() bool { return c.ends() == 1 }, c.shown)
	z.tell("touch that")
	card()
	z.edit(c.buttons("edit:")[0], "touch /tmp/forget-c")
	card()
	z.press("deny:")
	eventually(t, "the end", func() bool { return c.ends() == 2 }, c.shown)
	for _, say := range []string{"use local", "role", "sessions", "handover", "timeline", "take"} {
		z.tell(say)
	}
	c.sees("the keyboard on `local`")
	c.tell("hello?")
	c.tell("status")
	c.tell("take")
	z.tell("take")
	z.tell("give")
	eventually(t, "the keyboard is back", func() bool { return c.ends() == 3 }, c.shown)
	c.tell("wait")
	card()
	z.tell("stop")
	c.sees("Stopped by")
	z.tell("exec local: touch /tmp/forget-a")
	card()
	c.press("approve:")
	z.thread = ""
	z.tell("exec local: touch /tmp/forget-b")
	c.thread = z.thread
	card()
	c.press("approve:")
	c.sees("exit 0")
	eventually(t, "no conversation is open", func() bool {
		out, errs, _ := c.b.run("", "forget", "--person", "web:zebulon")
		return !strings.Contains(out+errs, "open")
	}, c.shown)
	c.b.stop()
	if out, errs, code := c.b.run("", "audit", "verify"); code != 0 {
		t.Error(out, errs)
	}
	db, err := bolt.Open(filepath.Join(c.b.dir, "data", "countersign.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.View(t.Context(), func(tx store.Tx) error {
		ids := regexp.MustCompile(`^"(audit|spend|web"/"session)"`)
		for k, v := range tx.Scan([]byte{0}, []byte{255}) {
			if at := store.Format(k); !ids.MatchString(at) && strings.Contains(own.ReplaceAllString(string(v), ""), "zebulon") {
				t.Errorf("%s: %s", at, v)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
