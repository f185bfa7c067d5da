package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"countersign/adapters/slack/slackfake"
	"countersign/targets/ssh/sshtest"
	"countersign/test/debiantest"
	"countersign/test/needstest"
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
// approved change on a server of their own over SSH, from the command line and from Slack.
func TestTheFirstHour(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	begun := time.Now()
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	h := newcomer{s: s, home: func(b *bot) (string, string) { return b.dir, b.dir }, key: s.KeyFile}
	h.play(t)
	t.Logf("from nothing to the second approved change over SSH, from Slack: %s, of which people took none", time.Since(begun).Round(100*time.Millisecond))
}

// TestTheFirstHourOnABareDebian does the same where nothing is but Debian: the package is made,
// installed, and used in a separate root with separate processes.
func TestTheFirstHourOnABareDebian(t *testing.T) {
	needstest.Long(t)
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	root := debiantest.Root(t)
	made := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "deploy", "release.sh"), "0.0.1", made)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "COMMIT=test", "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("release.sh: %v\n%s", err, out)
	}
	debs, err := filepath.Glob(filepath.Join(made, "*.deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("the packages are %q, %v", debs, err)
	}
	for from, to := range map[string]string{debs[0]: "tmp/countersign.deb", s.KeyFile: "root/key"} {
		raw, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, to), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inside := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", `
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$@"`, "sh", root}

	begun := time.Now()
	install := exec.CommandContext(t.Context(), inside[0], append(slices.Clone(inside[1:]), "dpkg", "-i", "/tmp/countersign.deb")...)
	install.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	out, err := install.CombinedOutput()
	if err != nil {
		t.Fatalf("dpkg: %v\n%s", err, out)
	}
	installed := time.Since(begun)
	h := newcomer{
		s: s, home: func(*bot) (string, string) { return filepath.Join(root, "root"), "/root" }, key: "/root/key",
		program: append(inside, "countersign"),
	}
	h.play(t)
	t.Logf("on a bare Debian, from the package to the second approved change over SSH, from Slack: %s, of which installing took %s and people none",
		time.Since(begun).Round(100*time.Millisecond), installed.Round(100*time.Millisecond))
}

// newcomer is somebody who has the program and a server, and nothing else.
type newcomer struct {
	s *sshtest.Server
	// home is their directory, as it is here and as the program sees it.
	home func(*bot) (here, there string)
	// key is the file of the server's key, as the program sees it. Its host key isn't known.
	key     string
	program []string // see bot
}

// play goes from init to a first approved change from the command line and one from Slack.
func (h newcomer) play(t *testing.T) {
	s := h.s
	dir, err := os.MkdirTemp("", "first") //nolint:usetesting // the server's account writes into it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	made, again := filepath.Join(dir, "made"), filepath.Join(dir, "again")
	llm := model(t, func(results int, user string) turn {
		switch {
		case strings.Contains(user, "Call the tool ping"):
			return turn{calls: []call{{"ping", "{}"}}}
		case strings.Contains(user, "make it") && results == 0:
			return turn{calls: []call{shell("whoami > " + made)}}
		case strings.Contains(user, "do it again") && results == 0:
			return turn{calls: []call{shell("whoami > " + again)}}
		}
		return turn{text: "It is made."}
	})
	b := newBot(t, "", llm.URL)
	b.program = h.program
	here, home := h.home(b)
	b.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + os.TempDir(), "COUNTERSIGN_INSTANCE=" + b.instance, "COUNTERSIGN_DATA_DIR=" + filepath.Join(home, "data"), "TERM=xterm"}
	w := &workspace{Server: newSlack(t, slackfake.Config{}), t: t, bot: b}
	b.env = append(b.env, "SLACK_API_URL="+w.URL())
	if err := os.Mkdir(filepath.Join(here, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	hosts := fmt.Sprintf("Host web-1\n  HostName %s\n  Port %d\n  User %s\n  IdentityFile %s\n", s.Host, s.Port, s.User, h.key)
	if err := os.WriteFile(filepath.Join(here, ".ssh", "config"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) *exec.Cmd {
		argv := b.argv(args...)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Env, cmd.Dir = append(append([]string{}, b.env...), "COUNTERSIGN_LISTEN="+b.listen), b.dir
		return cmd
	}
	y := typing(t, command("init"))
	for _, a := range [][2]string{
		{"1. Where should the bot run", "here"}, {"2. Address of the model server", llm.URL + "/v1"}, {"3. Its API key", ""}, {"4. Name of the model", "scripted"},
		{"5. Who approves?", "ann"}, {"Numbers or names", "1"}, {"Is this the host's key", "yes"}, {"7. Slack or Discord now?", "slack"}, {"8. Bot token", "xoxb-1 xapp-1 UALICE"},
	} {
		y.answer(a[0], a[1])
	}
	if err := <-y.done; err != nil {
		t.Fatalf("init: %v\n%s", err, y.said)
	}
	for _, want := range []string{"Asking it ... ok: it ", "ok: scripted called a tool", "isn't known yet: its key is SHA256:", "Solo mode: ann", "Reaching web-1 ... ok: commands run as " + s.User} {
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
	ok("login", "--scope", "full", ok("login", "ann"))
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
	ran := func(path string) func() bool {
		return func() bool {
			raw, err := os.ReadFile(path)
			return err == nil && strings.TrimSpace(string(raw)) == s.User
		}
	}
	eventually(t, "the change", ran(made), func() string { return ok("show", thread) })

	root := w.ask("UALICE", "COPS", "use web-1")
	w.sees("COPS", root, "web-1")
	w.say(slackfake.Message{User: "UALICE", Channel: "COPS", Thread: root, Text: "do it again"})
	w.press("UALICE", "COPS", root, "Approve")
	eventually(t, "the change from Slack", ran(again), func() string { return w.text("COPS", root) + b.log.String() })
}
