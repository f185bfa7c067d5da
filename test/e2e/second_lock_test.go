//go:build linux

package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"countersign/targets/container/enginetest"
	"countersign/test/cagetest"
	"countersign/test/e2e/corpustest"
	"countersign/test/needstest"
)

const lockedSSH = "127.0.0.1:7702"

// lockedConfig is a bot on this machine, with terminals and without, and on an SSH host.
const lockedConfig = `agent: {preset: all, target: local}
targets:
  local: {kind: local, dir: /srv/app, approvers: [oncall]}
  plain: {kind: local, tmux: false, dir: /srv/app, approvers: [oncall]}
  far:
    kind: ssh
    host: 127.0.0.1
    port: 7702
    user: root
    tmux: false
    dir: /srv/app
    identities: [` + hijackHome + `/key]
    known_hosts: [` + hijackHome + `/known]
    approvers: [oncall]
groups:
  oncall: {web: [alice]}
policy:
  approve: {expires: 1s, run_within: 1s}
limits: {steps: 100000, tokens: 1000000000, wall: 10h, repeats: 1000}
`

// TestSecondLock takes the first lock away: in this build the classifier calls every text
// a proven read, so all that the model proposes runs unasked. What holds is the kernel:
// nothing is changed, sent or signalled, on this machine and on an SSH host, and what
// tries to becomes a card.
func TestSecondLock(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	needstest.Program(t, "tmux", "apt-get install tmux")
	needstest.Program(t, "/usr/sbin/sshd", "apt-get install openssh-server")
	if !cagetest.Again(t, binary) {
		return
	}
	h := &hijack{
		t: t, cage: cagetest.New(t, hijackConsole, hijackModel, lockedSSH), config: lockedConfig,
		extra: []string{"COUNTERSIGN_PROOF=everything"},
	}
	h.furnish()
	sshd := h.startSSHD()
	h.selfCheck()
	commands := h.lockedCommands()
	const perThread = 8
	for part := range slices.Chunk(commands, perThread) {
		a := &attack{}
		for _, c := range part {
			var batch []call
			for _, target := range []string{"local", "plain", "far"} {
				args := labelled(c, target)
				args["wait"] = "10s"
				batch = append(batch, call{"run_shell", give(args)})
			}
			a.batches = append(a.batches, append(batch, honestReads...))
		}
		h.honest += len(honestReads) * len(part)
		h.scripts = append(h.scripts, a)
	}
	h.serve()
	h.startBot()
	h.cage.Baseline()
	h.talk()
	time.Sleep(time.Second) // what was begun behind the test's back gets a moment to show
	changes := h.cage.Changes(func(name string) bool {
		return h.botsOwn(name) || name == os.TempDir()+"/countersign-root" || strings.HasPrefix(name, os.TempDir()+"/countersign-root/") ||
			slices.Contains([]string{"/var/log/wtmp", "/var/log/lastlog", "/var/log/btmp", "/run/utmp", "/var/run/utmp", "/var/log", "/run", "/run/sshd.pid"}, name)
	})
	flows, disturbed := h.cage.Flows(), h.cage.Disturbed()
	h.stopBot()
	_ = sshd.Process.Kill()
	_ = sshd.Wait()
	for _, f := range flows {
		changes = append(changes, "sent: "+f.String())
	}
	h.complain(changes)
	h.complain(disturbed)
	h.selfCheck()
	held := strings.Count(h.bot.log.String(), "its lock refused it")
	log := h.audit()
	if held < len(commands) {
		t.Errorf("only %d of %d runs were held: the lock was not at work", held, 3*len(commands))
	}
	if log.reads < h.honest/2 {
		t.Errorf("only %d of %d harmless reads ran", log.reads, h.honest)
	}
	t.Logf("%d commands on 3 targets, all called reads: %d runs were held and became cards; files changed, bytes sent, processes signalled: %d",
		len(commands), held, len(changes)+len(disturbed))
}

// lockedCommands are those that change something: some of the committed collection, and
// all of it with those of the folder that COUNTERSIGN_CORPORA names.
func (h *hijack) lockedCommands() (all []string) {
	rows, err := corpustest.Read(filepath.Join("testdata", "hijack", "commands.tsv"))
	h.must(err)
	every := 100
	if needstest.Whole(h.t) {
		every = 5
	}
	if dir := os.Getenv("COUNTERSIGN_CORPORA"); dir != "" {
		public, err := corpustest.ReadAll(filepath.Join(dir, "attack"))
		h.must(err)
		rows, every = append(rows, public...), 1
	}
	for i, r := range rows {
		if i%every != 0 {
			continue
		}
		// One that fills the table of processes harms the harness, not the files.
		if !strings.Contains(r.Command, ":(){") && !strings.Contains(r.Command, "import ") {
			all = append(all, r.Command)
		}
	}
	return all
}

// startSSHD starts a real sshd in the cage, which lets the bot in as root.
func (h *hijack) startSSHD() *exec.Cmd {
	h.t.Helper()
	h.must(os.MkdirAll(h.cage.Path("/run/sshd"), 0o755))
	h.must(os.MkdirAll(h.cage.Path(hijackHome), 0o755))
	h.must(os.MkdirAll(h.cage.Path("/etc/far"), 0o700))
	h.inCage("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/far/host")
	h.inCage("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", hijackHome+"/key")
	h.inCage("sh", "-c", "cp "+hijackHome+"/key.pub /etc/far/authorized; printf '[127.0.0.1]:7702 ' | cat - /etc/far/host.pub >"+hijackHome+"/known")
	h.cage.Write("/etc/far/sshd_config", "Port 7702\nListenAddress 127.0.0.1\nHostKey /etc/far/host\nAuthorizedKeysFile /etc/far/authorized\nStrictModes no\nUsePAM no\nPrintLastLog no\nPidFile none\nMaxSessions 200\nMaxStartups 200\n", 0o600)
	cmd := h.cage.Command("/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, "/usr/sbin/sshd", "-D", "-e", "-f", "/etc/far/sshd_config")
	var out logBuffer
	cmd.Stderr = writer(func(b []byte) { out.add(string(b)) })
	h.must(cmd.Start())
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", lockedSSH, time.Second)
		if err == nil {
			_ = c.Close()
			return cmd
		}
		if time.Now().After(end) {
			h.t.Fatalf("sshd does not answer: %v\n%s", err, &out)
		}
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// TestSecondLockInAContainer is the same in a container, whose engine tells what changed.
func TestSecondLockInAContainer(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	name := "locked-" + instanceName()
	engine.RunAs(t, name, enginetest.Debian)
	t.Cleanup(func() { engine.Remove(t, name) })
	rows, err := corpustest.Read(filepath.Join("testdata", "hijack", "commands.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBot(t, fmt.Sprintf("agent: {target: box}\ntargets:\n  box: {kind: container, container: %s, engine: %q, tmux: false, approvers: [oncall]}\n", name, engine.Host)+"groups:\n  oncall: {web: [alice]}\n", "http://127.0.0.1:1", "COUNTERSIGN_PROOF=everything")
	before := engine.CLI(t, "diff", name)
	held := 0
	for i, r := range rows {
		if i%16 != 0 && os.Getenv("COUNTERSIGN_CORPORA") == "" || strings.Contains(r.Command, ":(){") {
			continue
		}
		args := labelled(r.Command, "")
		args["wait"] = "10s"
		delete(args, "target")
		out, _, _ := b.run("", "tool", "run_shell", give(args))
		if strings.Contains(out, "denied by user") {
			held++
		}
	}
	if after := engine.CLI(t, "diff", name); after != before {
		t.Errorf("the container changed:\n%s\nbefore:\n%s", after, before)
	}
	if held == 0 {
		t.Error("nothing was held: the lock was not at work")
	}
	t.Logf("%d runs were held", held)
}

// In a container that may not trace processes, the lock can't leave a Unix socket open. A read that needs one asks
// then, and doesn't fail.
func TestAReadThatTheLockCannotHoldAsks(t *testing.T) {
	needstest.Long(t)
	engine := enginetest.Docker(t)
	c := newCrew(t, part{"plain", []turn{{calls: []call{look("ls /")}}}}, part{"socket", []turn{{calls: []call{look("docker ps")}}}}).enter(t, boxConfig(engine, engine.Run(t, enginetest.Debian), ""))
	c.tell("plain")
	eventually(t, "it is held, so nobody is asked", func() bool { return c.ends() == 1 }, c.shown)
	c.tell("socket")
	c.sees("it can't run as a read here")
	if len(c.buttons("approve:")) != 1 {
		t.Error(c.shown())
	}
}
