package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/targets/container/enginetest"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// TestAHostStaysUsable has more conversations about a host in a row than its sshd, as it comes, allows sessions and
// than a target may have terminals. In the middle the host starts again, and the bot is killed.
func TestAHostStaysUsable(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	const reads, talks = 500, 60
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
	if err := os.RemoveAll(os.TempDir() + "/countersign-" + s.User + "-" + f.b.instance); err != nil {
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

// A host whose engine restarts it has nothing left of what the bot had made there: Debian empties /tmp at boot.
func TestAMachineThatRestartsGoesOn(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	for _, kind := range []string{"container", "ssh"} {
		t.Run(kind, func(t *testing.T) {
			box := engine.Boot(t)
			inside := within(t, engine, box)
			config := strings.Replace(boxConfig(engine, box, ""), "tmux: false, ", "", 1)
			if kind == "ssh" {
				key := filepath.Join(t.TempDir(), "key")
				if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
					t.Fatalf("%v %s", err, out)
				}
				inside("mkdir -m 700 -p /root/.ssh; echo '" + strings.TrimSpace(content(key+".pub")) + "' >/root/.ssh/authorized_keys")
				port := sshdOf(t, engine, box)
				known := filepath.Join(t.TempDir(), "known")
				if err := os.WriteFile(known, fmt.Appendf(nil, "[127.0.0.1]:%d %s\n", port, inside("cat /etc/ssh/ssh_host_ed25519_key.pub")), 0o600); err != nil {
					t.Fatal(err)
				}
				config = fmt.Sprintf("agent: {target: box}\ntargets:\n  box: {kind: ssh, host: 127.0.0.1, port: %d, user: root, identities: [%s], known_hosts: [%s], approvers: [oncall]}\ngroups:\n  oncall: {web: [alice, bob]}\n", port, key, known)
			}
			do := func(word string) part {
				return part{word, []turn{{text: "I do it.", calls: []call{shell("echo done >>/root/" + word)}}}}
			}
			c := newCrew(t, do("before"), do("after"), do("elsewhere")).enter(t, config)
			for _, word := range []string{"before", "after", "elsewhere"} {
				switch word {
				case "after":
					engine.CLI(t, "restart", "-t", "0", box)
					eventually(t, "it has started", func() bool {
						return strings.TrimSpace(inside("systemctl is-active ssh && ls -d /run/sshd")) == "active\n/run/sshd"
					}, c.shown)
				case "elsewhere":
					c.thread = ""
				}
				c.tell(word)
				eventually(t, "the card", func() bool { return len(c.buttons("approve:")) == 1 }, c.shown)
				if card := c.runs(" · "); inside("cat /root/"+word) != "done" {
					eventually(t, word+" has run", func() bool { return inside("cat /root/"+word) == "done" }, func() string { return card + c.shown() })
				}
			}
		})
	}
}

// sshdOf is a port that leads to the sshd of a container without a network.
func sshdOf(t *testing.T, e *enginetest.Engine, box string) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				cmd := exec.CommandContext(ctx, e.Program, "exec", "-i", box, "/usr/sbin/sshd", "-i")
				cmd.Stdin, cmd.Stdout, cmd.WaitDelay = c, c, time.Second
				_ = cmd.Run()
			}()
		}
	}()
	at, _ := l.Addr().(*net.TCPAddr)
	return at.Port
}
