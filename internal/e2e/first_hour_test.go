package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"countersign/targets/ssh/sshtest"
)

// typist is a program on a terminal, and somebody who answers what it asks.
type typist struct {
	t    *testing.T
	tty  *os.File
	said *logBuffer
	done chan error
}

func typing(t *testing.T, cmd *exec.Cmd) *typist {
	t.Helper()
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	if err != nil {
		t.Fatal(err)
	}
	y := &typist{t: t, tty: tty, said: &logBuffer{}, done: make(chan error, 1)}
	t.Cleanup(func() { _ = tty.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			if _, _ = y.said.Write(buf[:n]); err != nil {
				break
			}
		}
		y.done <- cmd.Wait()
	}()
	return y
}

// answer waits for a question and answers it.
func (y *typist) answer(question, text string) {
	y.t.Helper()
	eventually(y.t, "the question "+question, func() bool { return strings.Count(y.said.String(), question) > 0 }, y.said.String)
	if _, err := y.tty.WriteString(text + "\n"); err != nil {
		y.t.Fatal(err)
	}
}

// TestTheFirstHour goes the way of somebody new: init on a terminal, run, sign in, and a first
// approved change on a server of their own over SSH.
func TestTheFirstHour(t *testing.T) {
	t.Parallel()
	begun := time.Now()
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	dir, err := os.MkdirTemp("", "first") //nolint:usetesting // the server's account writes into it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(dir, "made")
	llm := model(t, func(results int, user string) turn {
		switch {
		case strings.Contains(user, "Call the tool ping"):
			return turn{calls: []call{{"ping", "{}"}}}
		case strings.Contains(user, "make it") && results == 0:
			return turn{calls: []call{shell("whoami > " + made)}}
		}
		return turn{text: "It is made."}
	})
	b := newBot(t, "", llm.URL)
	home := b.dir
	b.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "COUNTERSIGN_INSTANCE=" + b.instance, "COUNTERSIGN_DATA_DIR=" + filepath.Join(home, "data"), "TERM=xterm"}
	if err := os.Mkdir(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	hosts := fmt.Sprintf("Host web-1\n  HostName %s\n  Port %d\n  User %s\n  IdentityFile %s\n  UserKnownHostsFile %s\n", s.Host, s.Port, s.User, s.KeyFile, s.KnownHosts)
	if err := os.WriteFile(filepath.Join(home, ".ssh", "config"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env, cmd.Dir = append(append([]string{}, b.env...), "COUNTERSIGN_LISTEN="+b.listen), home
		return cmd
	}
	y := typing(t, command("init"))
	for _, a := range [][2]string{
		{"1. Where should the bot run", "here"}, {"2. Address of the model server", llm.URL + "/v1"}, {"3. Its API key", ""}, {"4. Name of the model", "scripted"},
		{"5. Who approves?", "ann"}, {"Numbers or names", "1"}, {"7. Slack or Discord now?", ""},
	} {
		y.answer(a[0], a[1])
	}
	if err := <-y.done; err != nil {
		t.Fatalf("init: %v\n%s", err, y.said)
	}
	for _, want := range []string{"ok: scripted called a tool", "Solo mode: ann", "Reaching web-1 ... ok: commands run as " + s.User} {
		if !strings.Contains(y.said.String(), want) {
			t.Errorf("init does not say %q:\n%s", want, y.said)
		}
	}
	if !b.start() {
		t.Fatalf("the bot does not start:\n%s", b.log)
	}
	t.Cleanup(func() { endOn(t, s, b) })
	ok := func(args ...string) string {
		t.Helper()
		out, errs, code := b.run("", args...)
		if code != 0 {
			t.Fatalf("%q: %s%s", args, out, errs)
		}
		return strings.TrimSpace(out)
	}
	ok("login", ok("login", "ann"))
	thread := strings.Fields(ok("send", "use web-1"))[1]
	ok("send", "--thread", thread, "make it")
	request := ""
	eventually(t, "a request", func() bool {
		if rows := strings.Split(ok("approvals"), "\n"); len(rows) > 1 {
			request, _, _ = strings.Cut(rows[1], " ")
		}
		return request != ""
	}, func() string { return ok("show", thread) + b.log.String() })
	y = typing(t, command("approvals", "approve", request))
	y.answer("Write yes:", "yes")
	if err := <-y.done; err != nil {
		t.Fatalf("approve: %v\n%s", err, y.said)
	}
	if !strings.Contains(y.said.String(), "solo mode") {
		t.Errorf("the card doesn't say that it is in solo mode:\n%s", y.said)
	}
	eventually(t, "the change", func() bool {
		raw, err := os.ReadFile(made)
		return err == nil && strings.TrimSpace(string(raw)) == s.User
	}, func() string { return ok("show", thread) })
	t.Logf("from nothing to the first approved change over SSH: %s, of which people took none", time.Since(begun).Round(100*time.Millisecond))
}
