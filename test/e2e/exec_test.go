package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"countersign/test/needstest"
)

// TestAPersonsOwnCommand runs commands from the command line, without the model: a read, a
// change once somebody approves it, what is denied, and what can't be run. Output and exit code
// are the command's own.
func TestAPersonsOwnCommand(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	l := newLedger(t, nil)
	b := newBot(t, plainConfig+"policy: {rules: [{name: no-mkfs, when: \"command.startsWith('mkfs')\", then: forbid, sentence: Nobody makes file systems here.}]}\n", l.url)
	b.env = append(b.env, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "settings"))
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	link := b.link(t, "alice")
	if _, errs, code := b.run("", "login", "--scope", "full", link); code != 0 {
		t.Fatal(errs)
	}
	if out, errs, code := b.run("", "exec", "local", "--", "echo", "a b", "$HOME"); code != 0 || out != "a b $HOME\n" {
		t.Errorf("a read: %d %q %q", code, out, errs)
	}
	if out, errs, code := b.run("", "exec", "local", "--", "cat /nothing/there"); code != 1 || out != "" || !strings.Contains(errs, "No such file") {
		t.Errorf("a read that fails: %d %q %q", code, out, errs)
	}
	if out, errs, code := b.run("", "exec", "nowhere", "--", "uptime"); code != 125 || out != "" || !strings.Contains(errs, "nowhere") {
		t.Errorf("another target: %d %q %q", code, out, errs)
	}
	if out, errs, code := b.run("", "exec", "local", "--", "mkfs.ext4 /dev/null"); code != 125 || out != "" || !strings.Contains(errs, "Nobody makes file systems here") {
		t.Errorf("what the policy forbids: %d %q %q", code, out, errs)
	}
	var list []struct{ ID string }
	out, _, _ := b.run("", "threads", "--find", "mkfs", "-o", "json")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		t.Fatalf("%s %v", out, err)
	}
	eventually(t, "the thread says why", func() bool {
		out, _, _ := b.run("", "show", list[0].ID)
		return strings.Contains(out, "Nothing was done: Nobody makes file systems here")
	}, b.log.String)
	ran := filepath.Join(b.dir, "ran")
	was := 0
	decided := func(command string, decide ...string) (out, errs string, code int) {
		t.Helper()
		var o, e logBuffer
		cmd := exec.CommandContext(t.Context(), binary, "exec", "local", "--", command)
		cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = b.env, b.dir, &o, &e
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		request := ""
		eventually(t, "a request", func() bool {
			_, after, _ := strings.Cut(e.String(), "approval of request ")
			request, _, _ = strings.Cut(after, ".")
			return request != ""
		}, func() string { return e.String() + b.log.String() })
		if lines(ran) != was {
			t.Fatal("it ran before anybody decided")
		}
		eventually(t, "the request in the list", func() bool {
			list, _, _ := b.run("", "approvals")
			return strings.Contains(list, request)
		}, e.String)
		if len(decide) > 0 {
			if _, errs, code := b.run("", append([]string{"approvals", "deny", request}, decide...)...); code != 0 {
				t.Fatal(errs)
			}
		} else {
			approve := exec.CommandContext(t.Context(), binary, "approvals", "approve", request)
			approve.Env, approve.Dir = b.env, b.dir
			y := typing(t, approve)
			y.answer("Write yes:", "yes")
			if err := <-y.done; err != nil {
				t.Fatalf("%v\n%s", err, y.said)
			}
			if strings.Contains(y.said.String(), "The agent called") {
				t.Errorf("the card names an agent's claim:\n%s", y.said)
			}
		}
		_ = cmd.Wait()
		was = lines(ran)
		return o.String(), e.String(), cmd.ProcessState.ExitCode()
	}
	if out, errs, code := decided("echo x >> "+ran+"; echo no >&2; exit 3", "--reason", "not now"); code != 125 || out != "" || !strings.Contains(errs, "denied: not now") || lines(ran) != 0 {
		t.Errorf("denied: %d %q %q", code, out, errs)
	}
	if out, errs, code := decided("echo x >> " + ran + "; echo done; echo no >&2; exit 3"); code != 3 || out != "done\n" || !strings.Contains(errs, "no\n") || lines(ran) != 1 {
		t.Errorf("approved: %d %q %q", code, out, errs)
	}
	// A shell of its own may end, and what it prints comes byte for byte, in its streams.
	if out, errs, code := decided("echo x >> " + ran + "; exit 7"); code != 7 || out != "" || lines(ran) != 2 {
		t.Errorf("a command that ends its shell: %d %q %q", code, out, errs)
	}
	var big strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&big, "%d \xff\x00\xfe \r\n", i)
	}
	file := filepath.Join(b.dir, "big")
	if err := os.WriteFile(file, []byte(big.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"cat " + file: big.String(), "head -n 3 " + file: strings.Join(strings.SplitAfter(big.String(), "\n")[:3], ""), "seq 1 1500 | tail -n 1499": seq(2, 1500)} {
		if out, errs, code := b.run("", "exec", "local", "--", command); code != 0 || out != want || errs != "" {
			t.Errorf("%s: %d, %d bytes of %d, %.300q", command, code, len(out), len(want), errs)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) != 0 {
		t.Errorf("the model was asked %d times", len(l.all))
	}
}

// seq is what the program of that name prints.
func seq(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}
