package ssh

import (
	"fmt"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"countersign/targets/ssh/sshtest"
)

// BenchmarkCommand compares a command over a new connection, over the connection
// that is there, files, and the ssh program with ControlMaster, on loopback and
// with a round trip of 50 ms.
func BenchmarkCommand(b *testing.B) {
	for _, rtt := range []time.Duration{0, 50 * time.Millisecond} {
		s := sshtest.Start(b, sshtest.Options{Shell: "dash"})
		proxy := sshtest.NewProxy(b, s.Address())
		proxy.Delay(rtt / 2)
		s.Know(proxy.Host, proxy.Port)
		c := config(s)
		c.Port = proxy.Port
		name := func(what string) string { return fmt.Sprintf("rtt=%v/%s", rtt, what) }

		b.Run(name("dial and command"), func(b *testing.B) {
			for range b.N {
				tgt := open(b, c)
				ch, err := transport{tgt}.Open(b.Context(), []string{"echo", "hi"}, nil, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := ch.Wait(); err != nil {
					b.Fatal(err)
				}
				_ = tgt.Close()
			}
		})
		tgt := open(b, c)
		mustRun(b, tgt, "echo hi", "hi\n")
		b.Run(name("channel on the connection"), func(b *testing.B) {
			for range b.N {
				ch, err := transport{tgt}.Open(b.Context(), []string{"echo", "hi"}, nil, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := ch.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name("command on the connection"), func(b *testing.B) {
			for range b.N {
				mustRun(b, tgt, "echo hi", "hi\n")
			}
		})
		if err := tgt.FS().WriteFile(b.Context(), "cs-4k", make([]byte, 4096), false); err != nil {
			b.Fatal(err)
		}
		b.Run(name("read 4 KB by sftp"), func(b *testing.B) {
			for range b.N {
				if _, err := tgt.FS().ReadFile(b.Context(), "cs-4k", 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name("read 4 KB by the shell"), func(b *testing.B) {
			for range b.N {
				if _, err := tgt.shell.ReadFile(b.Context(), "cs-4k", 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name("write 4 KB by sftp"), func(b *testing.B) {
			for range b.N {
				if err := tgt.FS().WriteFile(b.Context(), s.Home+"/cs-4k", make([]byte, 4096), false); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name("write 4 KB by the shell"), func(b *testing.B) {
			for range b.N {
				if err := tgt.shell.WriteFile(b.Context(), "cs-4k", make([]byte, 4096), false); err != nil {
					b.Fatal(err)
				}
			}
		})
		ssh, err := exec.LookPath("ssh")
		if err != nil {
			b.Log("ssh is missing: apt-get install openssh-client")
			continue
		}
		args := []string{
			"-F", "none", "-i", s.KeyFile, "-o", "UserKnownHostsFile=" + s.KnownHosts, "-o", "ControlPath=" + s.Dir + "/c-%p",
			"-p", strconv.Itoa(proxy.Port), s.User + "@" + proxy.Host,
		}
		if out, err := exec.Command(ssh, append([]string{"-o", "ControlMaster=yes", "-o", "ControlPersist=60", "-f", "-N"}, args...)...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		b.Run(name("ssh program with ControlMaster"), func(b *testing.B) {
			for range b.N {
				if out, err := exec.Command(ssh, append(append([]string{}, args...), "echo hi")...).CombinedOutput(); err != nil || string(out) != "hi\n" {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
		_ = exec.Command(ssh, append([]string{"-O", "exit"}, args...)...).Run()
	}
}
