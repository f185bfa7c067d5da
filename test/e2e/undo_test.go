package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"countersign/targets/container/enginetest"
	"countersign/test/needstest"
)

// tree is everything below a directory: kinds, modes, owners and content.
func tree(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `cd "$0" && find . -printf '%p %y %m %U %G %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 -r sha256sum`, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// A command whose rehearsal showed all that it does is undone by one press, also after the bot was
// killed, and not where somebody changed the files since.
func TestACommandIsUndoneByOnePress(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	for name, config := range map[string]string{"plainly": plainConfig, "in a terminal": strings.Replace(plainConfig, "tmux: false, ", "", 1)} {
		t.Run(name, func(t *testing.T) {
			c, dir := rehearsing(t, config)
			t.Cleanup(c.b.endTerminals)
			t.Cleanup(func() { _ = os.Remove(cronOf(dir)) })
			if err := os.Chmod(filepath.Join(dir, "conf"), 0o640); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			c.previewed("logs", "Undo: restores 3 files and removes 2 new files")
			c.as("bob").press("approve:")
			c.sees("done run_shell")
			if tree(t, dir) == before {
				t.Fatalf("nothing happened\n%s", c.shown())
			}
			if name == "plainly" {
				c.b.kill()
				c.b.start()
			}
			c.press("undo:")
			c.sees("button: Approve")
			c.sees(`Why: Undoes "`)
			c.sees(`", approved by bob at `)
			c.as("bob").press("approve:")
			eventually(t, "the undo", func() bool { return tree(t, dir) == before }, c.shown)
			c.sees("↩ Undone by alice at ")
			if _, err := os.Stat(cronOf(dir)); err == nil {
				t.Error("a new file is still there")
			}
		})
	}
}

func TestAnUndoRefusesWhenTheWorldMovedOn(t *testing.T) {
	t.Parallel()
	c, dir := rehearsing(t, plainConfig)
	t.Cleanup(func() { _ = os.Remove(cronOf(dir)) })
	c.previewed("logs", "Undo: ")
	c.as("bob").press("approve:")
	c.sees("done run_shell")
	if err := os.WriteFile(filepath.Join(dir, "conf"), []byte("somebody else's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.press("undo:")
	c.sees("it has changed since that command")
	if b, _ := os.ReadFile(filepath.Join(dir, "conf")); string(b) != "somebody else's\n" {
		t.Errorf("%q", b)
	}
}

// A setting of the kernel is put back to what it was right before the command, and not to what it was
// when people were asked.
func TestASettingIsPutBackToWhatItWas(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	needstest.Program(t, "sysctl", "apt-get install procps")
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can set what the kernel does")
	}
	const file = "/proc/sys/vm/page_lock_unfairness"
	was, err := os.ReadFile(file)
	if err != nil {
		needstest.Missing(t, "the kernel lacks "+file)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, was, 0o600) })
	set := func(v string) {
		if err := os.WriteFile(file, []byte(v), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("6")
	c := newCrew(t, part{"set", []turn{{text: "I set it.", calls: []call{shell("sysctl -w vm.page_lock_unfairness=9")}}}}).enter(t, plainConfig)
	c.tell("set")
	c.sees("Undo: sysctl -w 'vm.page_lock_unfairness=6'")
	set("7")
	c.as("bob").press("approve:")
	c.sees("done run_shell")
	c.press("undo:")
	c.sees("button: Approve")
	c.as("bob").press("approve:")
	eventually(t, "the undo", func() bool { b, _ := os.ReadFile(file); return string(b) == "7\n" }, c.shown)
}

// For each kind of change whose way back follows from the state, doing and undoing leaves what was there.
func TestEachKindOfChangeIsUndone(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	if os.Getuid() != 0 {
		needstest.Missing(t, "only root can change rules and mounts")
	}
	for name, tc := range map[string]struct {
		needs, how     string // a program, and how it is installed
		command, state string // DIR is a directory
		back           string
	}{
		"a rule of the firewall": {"iptables", "apt-get install iptables", "iptables -A OUTPUT -p tcp -d 192.0.2.1 --dport 9 -j ACCEPT", "iptables -S OUTPUT | grep 192.0.2.1", "Undo: iptables -D OUTPUT "},
		"a mount":                {"findmnt", "apt-get install util-linux", "mount -t tmpfs none DIR", "grep -c ' DIR ' /proc/self/mountinfo", "Undo: umount DIR"},
		"an account":             {"useradd", "apt-get install passwd", "useradd -M countersign-e2e", "cat /etc/passwd /etc/shadow /etc/group; stat -c '%a %u %g' /etc/passwd /etc/shadow /etc/group", "Undo: restores "},
		"a crontab":              {"crontab", "apt-get install cron", "echo '0 3 * * * true' | crontab -u nobody -", "crontab -u nobody -l; ls -A /var/spool/cron/crontabs", "Undo: removes 1 new file"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(tc.needs); err != nil {
				if name != "a crontab" { // the others are on every machine
					needstest.Program(t, tc.needs, tc.how)
				}
				t.Skipf("%s is not here", tc.needs)
			}
			dir := t.TempDir()
			names := strings.NewReplacer("DIR", dir)
			state := func() string {
				out, _ := exec.CommandContext(t.Context(), "sh", "-c", names.Replace(tc.state)).CombinedOutput()
				return string(out)
			}
			before := state()
			c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell(names.Replace(tc.command))}}}}).enter(t, plainConfig)
			c.previewed("do", names.Replace(tc.back))
			c.as("bob").press("approve:")
			c.sees("done run_shell")
			if state() == before {
				t.Fatalf("nothing happened\n%s", c.shown())
			}
			c.press("undo:")
			c.sees("button: Approve")
			c.as("bob").press("approve:")
			eventually(t, "it is undone", func() bool { return state() == before }, func() string { return state() + c.shown() })
		})
	}
}

// localRepository makes, in a container of Debian, a package "countersign-e2e" of the versions 1 and 2 that apt-get
// finds without a network.
const localRepository = `set -e
mkdir -p /repo/d/DEBIAN
cd /repo
for v in 1 2; do
  printf 'Package: countersign-e2e\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nDescription: for a test\n' $v >d/DEBIAN/control
  dpkg-deb -b d p$v.deb
  printf 'Package: countersign-e2e\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\nFilename: ./p%s.deb\nSize: %s\nSHA256: %s\nDescription: for a test\n\n' \
    $v $v $(stat -c %s p$v.deb) $(sha256sum p$v.deb | cut -d' ' -f1) >>Packages
done
rm -f /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/repo ./' >/etc/apt/sources.list
apt-get update`

// within runs texts in a container, and returns what they print, however they end.
func within(t *testing.T, e *enginetest.Engine, box string) func(text string) string {
	return func(text string) string {
		return e.CLI(t, "exec", box, "sh", "-c", "{ :\n"+text+"\n} 2>&1 || true")
	}
}

// The same in a container that has packages and the client of an engine.
func TestPackagesAndContainersAreUndone(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	client, err := exec.LookPath("docker")
	if err != nil {
		t.Fatal(err)
	}
	socket := strings.TrimPrefix(engine.Host, "unix://")
	box := engine.Run(t, enginetest.Debian, "-v", socket+":/var/run/docker.sock", "-v", client+":/usr/bin/docker:ro", "--cap-add=SYS_PTRACE") // the lock can then leave a socket open
	other := engine.Run(t, enginetest.Debian)
	inside := within(t, engine, box)
	inside(localRepository)
	status := "docker inspect -f '{{.State.Status}}' " + other
	version := "dpkg-query -W -f '${Version} ${db:Status-Status}' countersign-e2e 2>&1"
	rows := []struct{ first, command, state, back string }{
		{"", "apt-get install -y countersign-e2e=1", version, "Undo: apt-get purge -y countersign-e2e"},
		{"apt-get install -y countersign-e2e=1", "apt-get install -y countersign-e2e", version, "Undo: apt-get install -y --allow-downgrades 'countersign-e2e=1'"},
		{"apt-get install -y --allow-downgrades countersign-e2e=1", "apt-get remove -y countersign-e2e", version, "Undo: apt-get install -y --allow-downgrades 'countersign-e2e=1'"},
		{"", "docker stop -t 0 " + other, status, "Undo: docker start " + other},
		{"docker stop -t 0 " + other, "docker start " + other, status, "Undo: docker stop " + other},
		{"docker start " + other, "docker pause " + other, status, "Undo: docker unpause " + other},
	}
	if !needstest.Whole(t) {
		rows = []struct{ first, command, state, back string }{rows[0], rows[3]}
	}
	for _, tc := range rows {
		inside(tc.first)
		before := inside(tc.state)
		c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell(tc.command)}}}}).enter(t, boxConfig(engine, box, ""))
		c.previewed("do", tc.back)
		if !strings.Contains(c.lastCard(), "Predicted: ") {
			t.Errorf("%s: nothing is said of what is there\n%s", tc.command, c.lastCard())
		}
		c.as("bob").press("approve:")
		c.sees("done run_shell")
		if inside(tc.state) == before {
			t.Fatalf("nothing happened\n%s", c.shown())
		}
		c.press("undo:")
		c.sees("button: Approve")
		c.as("bob").press("approve:")
		eventually(t, "it is undone", func() bool { return inside(tc.state) == before }, func() string { return inside(tc.state) + c.shown() })
	}
}

// Units are undone by a real systemd, which also undoes a change on trial: that needs no bot.
func TestUnitsAreUndone(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	box := engine.Boot(t)
	inside := within(t, engine, box)
	inside(`printf '[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n' >/usr/lib/systemd/system/demo.service
systemctl daemon-reload; systemctl start demo`)
	const state = "systemctl is-active demo; systemctl is-enabled demo"
	config := boxConfig(engine, box, "") + "policy: {approve: {keep_within: 6s}}\n"
	for _, tc := range []struct{ first, command, back string }{
		{"", "systemctl stop demo", "systemctl start -- demo.service"},
		{"systemctl stop demo", "systemctl start demo", "systemctl stop -- demo.service"},
		{"systemctl start demo", "systemctl enable demo", "systemctl disable -- demo.service"},
		{"systemctl enable demo", "systemctl disable --now demo", "systemctl enable -- demo.service && systemctl start -- demo.service"},
		{"", "systemctl mask demo", "systemctl unmask -- demo.service"},
		{"", "sudo systemctl stop demo", "sudo systemctl start -- demo.service"},
	} {
		inside(tc.first)
		before := inside(state)
		for _, by := range []string{"trial:", "approve:"} {
			if by == "trial:" && !strings.Contains(tc.command, "stop") {
				continue // each takes its 6 s
			}
			c := newCrew(t, part{"do", []turn{{text: "I do it.", calls: []call{shell(tc.command)}}}}).enter(t, config)
			c.previewed("do", "Undo: "+tc.back)
			c.as("bob").press(by)
			c.sees("done run_shell")
			if inside(state) == before {
				t.Fatalf("%s: nothing happened\n%s", tc.command, c.shown())
			}
			undone := func() bool { return inside(state) == before }
			if by == "approve:" {
				c.press("undo:")
				c.sees("button: Approve")
				c.as("bob").press("approve:")
				eventually(t, tc.command+" is undone", undone, func() string { return inside(state) + c.shown() })
				continue
			}
			if units := inside("systemctl list-units --no-legend 'countersign-undo-*'"); !strings.Contains(units, "running") {
				t.Errorf("%s: systemd has no unit that undoes it: %q", tc.command, units)
			}
			c.b.kill()
			eventually(t, tc.command+" undoes itself", undone, func() string { return inside(state) + inside("systemctl --failed") })
			c.again()
			c.sees("Undone: nobody kept it")
		}
	}
}
