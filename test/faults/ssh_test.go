package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"countersign/adapters/slack/slackfake"
	"countersign/targets/ssh/sshtest"
	"countersign/test/faults/invariants"
	"countersign/test/faults/network"
	"countersign/test/faults/worldtest"
	"countersign/test/needstest"
)

// TestALinkToAnSSHHostThatFails cuts the connection to the machine on which commands
// run, kills its sshd and the bot, in panes and plainly: a command that was lost is
// never run again, and its end is found or said to be unknown.
func TestALinkToAnSSHHostThatFails(t *testing.T) {
	needstest.Long(t)
	each(t, func(t *testing.T, rng *rand.Rand) {
		host := sshtest.Start(t, sshtest.Options{})
		link, err := network.New(host.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(link.Close)
		host.Know("127.0.0.1", link.Port())
		u, err := user.Lookup(host.User)
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		counter, work := filepath.Join(host.Dir, "counter"), filepath.Join(host.Dir, "work")
		for _, dir := range []string{counter, work} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(dir, uid, gid); err != nil {
				t.Fatal(err)
			}
		}
		_, err = exec.LookPath("tmux")
		panes := err == nil && rng.IntN(2) == 0
		w := worldtest.New(t, worldtest.Options{
			Binary: binary, Network: newSlack(t, slackfake.Config{}), Counter: counter,
			Target: fmt.Sprintf("{kind: ssh, host: 127.0.0.1, port: %d, user: %s, identities: [%s], known_hosts: [%s], dir: %s, tmux: %v, approvers: [oncall]}",
				link.Port(), host.User, host.KeyFile, host.KnownHosts, work, panes),
		})
		t.Cleanup(func() { // before the world's own, which come later in its list
			w.Bot().Kill()
			for _, socket := range []string{"", ".err"} {
				cmd := exec.Command("tmux", "-L", "countersign-"+w.Instance()+socket, "kill-server")
				if os.Geteuid() == 0 {
					cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
				}
				_ = cmd.Run()
			}
			_ = os.RemoveAll("/tmp/countersign-" + host.User + "-" + w.Instance())
		})
		w.Start()
		talk := converse(t, w, rng, 2, 3)
		for range 4 {
			time.Sleep(between(rng, 50*time.Millisecond, 900*time.Millisecond))
			switch rng.IntN(6) {
			case 0:
				w.Bot().Note("sshd's connections are killed")
				host.KillConnections()
			case 1:
				w.Bot().Note("the bot is killed")
				w.Bot().Kill()
				if err := w.Bot().Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			case 2:
				w.Bot().Note("link: the host is away")
				link.Set(network.Fault{Refuse: true})
				link.Reset()
				time.Sleep(between(rng, 100*time.Millisecond, 1500*time.Millisecond))
				link.Heal()
			default:
				w.Bot().Note("link: %v", trouble(rng, link, 1))
			}
		}
		talk.Wait()
		seen := w.Finish()
		for _, p := range seen.Posts {
			for id, o := range p.Answers {
				if o == invariants.Failed {
					t.Logf("%s failed: %.250s", id, w.Model.Told(id))
				}
			}
		}
		t.Log("panes ", panes, ": ", len(seen.Said), " messages: ", worldtest.Outcomes(seen))
	})
}
