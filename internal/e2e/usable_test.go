package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/internal/needstest"
	"countersign/targets/ssh/sshtest"
)

// TestAHostStaysUsable has more conversations about a host in a row than its sshd, as it comes, allows sessions and
// than a target may have terminals. In the middle the host starts again, and the bot is killed.
func TestAHostStaysUsable(t *testing.T) {
	t.Parallel()
	reads, talks := 45, 12
	if needstest.Whole(t) {
		reads, talks = 500, 60
	}
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	work := owned(t, s, "work")
	f := newFleet(t, s, "  web-1: "+sshTarget(s, fmt.Sprintf(", known_hosts: [%s], dir: %s", s.KnownHosts, work)))
	f.b.env = append(f.b.env, "XDG_CONFIG_HOME="+filepath.Join(f.b.dir, "settings"))
	if _, errs, code := f.b.run("", "login", "--scope", "full", f.b.link(t, "alice")); code != 0 {
		t.Fatal(errs)
	}
	for i := range reads {
		if out, errs, code := f.b.run("", "exec", "web-1", "--", "echo", fmt.Sprint(i)); code != 0 || out != fmt.Sprintln(i) {
			t.Fatalf("read %d: %d %q %q\n%s", i, code, out, errs, f.b.log)
		}
	}
	if out, err := as(t, s, "tmux", "-L", "countersign-"+f.b.instance, "list-sessions"); err == nil {
		t.Errorf("single commands left terminals:\n%s", out)
	}
	change := func(k *talk, name string) {
		t.Helper()
		told, _ := k.run("run_shell", command("echo x >> "+name+"; echo e >&2", "target", "web-1"))
		has(t, name, told, `"exit_code":0`, `"stderr":"e\n"`)
		if got := content(filepath.Join(work, name)); got != "x" {
			t.Fatalf("%s: %q\n%s", name, got, f.b.log)
		}
	}
	few := func(when string) {
		t.Helper()
		eventually(t, "the host has few clients of the bot "+when, func() bool {
			return len(strings.Fields(tmuxOn(t, s, f.b, "list-clients", "-F", "c"))) <= 3
		}, f.b.log.String)
	}
	first := f.talk(t)
	change(first, "first")
	for i := range talks {
		change(f.talk(t), fmt.Sprint("talk", i))
	}
	few("after many conversations")

	// The host starts again: what ran is gone, and so is what was in its temporary directory.
	tmuxOn(t, s, f.b, "kill-server")
	if err := os.RemoveAll("/tmp/countersign-" + s.User + "-" + f.b.instance); err != nil {
		t.Fatal(err)
	}
	change(first, "restarted")
	change(f.talk(t), "new")

	for i := range 3 {
		f.b.kill()
		f.people = map[string]*person{}
		f.start()
		change(first, fmt.Sprint("killed", i))
		change(f.talk(t), fmt.Sprint("fresh", i))
	}
	few("after it was killed")
}
