package signer_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"countersign/proof/signer/enroll"
	"countersign/targets/container/enginetest"
	"countersign/targets/ssh/sshtest"
	"countersign/test/buildtest"
	"countersign/test/needstest"
)

// TestNoServiceActsForTheAccountThatLooks: on a Debian that systemd has booted, with logins as Debian has
// them, whatever runs for an account beside its logins changes nothing for the read-only one.
func TestNoServiceActsForTheAccountThatLooks(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	box := engine.Boot(t)
	try := func(input, script string) (string, error) {
		c := exec.Command(engine.Program, "exec", "-i", box, "sh", "-c", script)
		c.Stdin = strings.NewReader(input)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	inside := func(input, script string) string {
		t.Helper()
		out, err := try(input, script)
		if err != nil {
			t.Fatalf("%s: %v %s", script, err, out)
		}
		return strings.TrimSpace(out)
	}
	inside("", `useradd --create-home --shell /bin/bash looks; usermod -p '*' looks; ssh-keygen -A; systemctl start ssh atd cron
loginctl enable-linger looks; su looks -c 'tmux -S /tmp/before new-session -d'; chmod 777 /tmp/before; test -e /var/lib/systemd/linger/looks`)
	hostKey := strings.Fields(inside("", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"))[1]
	program, err := buildtest.Program(t.Context(), t.TempDir(), "cmd/countersign-runner", []string{"CGO_ENABLED=0"})
	must(t, err)
	raw, err := os.ReadFile(program)
	must(t, err)
	dir := t.TempDir()
	ca, key := sshtest.NewKey(t), sshtest.WriteKey(t, filepath.Join(dir, "id"), "")
	text, err := enroll.Script(enroll.Host{
		Target: "web-1", HostKey: hostKey, Watch: "looks", RunAs: []string{"changes"}, Authorities: []string{strings.TrimSpace(keyLine(ca.PublicKey()))}, Program: raw,
	})
	must(t, err)
	cert := &xssh.Certificate{
		Key: key.PublicKey(), CertType: xssh.UserCert, ValidPrincipals: []string{"countersign-watch:web-1"}, ValidBefore: uint64(time.Now().Add(time.Hour).Unix()),
		Permissions: xssh.Permissions{CriticalOptions: map[string]string{"force-command": enroll.Runner + " watch"}},
	}
	must(t, cert.SignCert(rand.Reader, ca))
	private, err := os.ReadFile(filepath.Join(dir, "id"))
	must(t, err)
	inside(string(private), "umask 077; cat >/root/id")
	authorized := func() {
		t.Helper()
		inside(keyLine(key.PublicKey()), "mkdir -p /home/looks/.ssh; cat >/home/looks/.ssh/authorized_keys; chown -R looks /home/looks/.ssh; chmod 700 /home/looks/.ssh")
	}
	login := func(command string) (string, error) {
		return try(command, `ssh -i /root/id -o StrictHostKeyChecking=no -o LogLevel=ERROR looks@127.0.0.1 "$(cat)" </dev/null`)
	}
	// Before, such a service does what it is told.
	authorized()
	const unit = "[Service]\nType=oneshot\nExecStart=/bin/touch /home/looks/escaped\n"
	inside(unit, "d=/home/looks/.config/systemd/user; mkdir -p $d; cat >$d/escape.service; chown -R looks /home/looks/.config")
	if out, err := login("export XDG_RUNTIME_DIR=/run/user/$(id -u); systemctl --user daemon-reload; systemctl --user start escape"); err != nil {
		t.Fatalf("an account as Debian has it: %v %s", err, out)
	}
	inside("", "rm /home/looks/escaped /home/looks/.ssh/authorized_keys")
	inside(keyLine(cert), "cat >/root/id-cert.pub")
	t.Log(inside(text, "sh"))
	if out, err := login("id -un; cat /etc/hostname >/dev/null && echo reads"); err != nil || out != "looks\nreads\n" {
		t.Fatalf("%q %v\n%s", out, err, inside("", "journalctl -u ssh -n 20 --no-pager"))
	}
	const run = `XDG_RUNTIME_DIR=/run/user/$(id -u) DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$(id -u)/bus `
	for _, try := range []string{
		"touch ~/escaped",
		"echo 'touch ~/escaped' >>~/.bashrc",
		"systemd-run --user --pipe --wait -q touch /home/looks/escaped",
		run + "systemd-run --user --pipe --wait -q touch /home/looks/escaped",
		run + "systemctl --user start escape",
		"loginctl enable-linger",
		"busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager SetUserLinger ubb $(id -u) true true",
		"tmux -S /tmp/before run-shell 'touch /home/looks/escaped'",
		"echo 'touch /home/looks/escaped' | at now",
		"echo '* * * * * touch /home/looks/escaped' | crontab -",
		"sudo -n touch /home/looks/escaped",
		"su changes -c true",
		"logger -t sshd 'Accepted certificate ID countersign change'",
	} {
		out, err := login(try)
		if err == nil && !strings.HasPrefix(try, "logger") {
			t.Errorf("%s went well: %s", try, out)
		}
		if left := inside("", `ls -A /home/looks/escaped /var/lib/systemd/linger/looks /var/spool/cron/crontabs/looks 2>/dev/null; grep -l escaped /home/looks/.bashrc; atq | grep looks; pgrep -u looks -l | grep -v sshd; journalctl --no-pager | grep 'ID countersign change$'; true`); left != "" {
			t.Errorf("%s left %s", try, left)
		}
	}
	if out, _ := try("", "systemctl is-active user@$(id -u looks).service; systemctl is-enabled user@$(id -u looks).service"); !strings.Contains(out, "inactive") || !strings.Contains(out, "masked") {
		t.Errorf("its services: %s", out)
	}
	// A key that opened the account before doesn't.
	authorized()
	inside("", "rm /root/id-cert.pub")
	if out, err := login("true"); err == nil || !strings.Contains(out, "ermission denied") {
		t.Errorf("a key without a certificate: %v %s", err, out)
	}
	// It can be enrolled again, and not while something else gives it rights.
	for _, tc := range []struct{ before, after, want string }{
		{"true", "true", ""},
		{"echo 'looks ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/looks", "rm /etc/sudoers.d/looks", "has sudo rules"},
		{"echo '* * * * * true' >/var/spool/cron/crontabs/looks", "rm /var/spool/cron/crontabs/looks", "has a crontab"},
		{": >/etc/at.deny; echo true | su -s /bin/sh looks -c 'at now + 1 day'", "atrm $(atq | grep looks | cut -f1)", "has jobs of at"},
		{"usermod -aG sudo looks", "gpasswd -d looks sudo", "in the group sudo"},
		{"echo looks >/etc/cron.allow", "rm /etc/cron.allow", "/etc/cron.allow"},
		{"mkdir -p /home/changes/.ssh; sed -i '/AuthorizedKeys.* none/d' /etc/ssh/sshd_config.d/00-countersign.conf; cp /home/looks/.ssh/authorized_keys /home/changes/.ssh/", "true", "these keys open accounts"},
	} {
		inside("", tc.before)
		if out, err := try(text, "sh"); (err == nil) != (tc.want == "") || !strings.Contains(out, tc.want) {
			t.Errorf("after %s: %v %s; want %q", tc.before, err, out, tc.want)
		}
		inside("", tc.after)
	}
}
