package tmux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/creack/pty"

	"countersign/targets/backend"
	"countersign/targets/ssh/sshtest"
	"countersign/test/needstest"
)

// several makes sessions "s0", "s1" and so on, and leaves something in each shell.
func several(t *testing.T, s *Server, n int) []*Pane {
	t.Helper()
	panes := make([]*Pane, n)
	for i := range panes {
		p, err := s.NewSession(t.Context(), fmt.Sprint("s", i), map[string]string{"cs_owner": "alice"}, PaneSpec{Name: "shared"})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, p, fmt.Sprint("x=", i), 0, "", "")
		panes[i] = p
	}
	return panes
}

// clients lists the sessions to which a client in control mode is attached.
func (b *bench) clients() []string {
	return strings.Fields(b.tmux("list-clients", "-F", "#{?client_control_mode,#{session_name},}"))
}

func TestSessionsThatNobodyUsesHoldNoConnection(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	b := start(t, func(o *Options, _ *backend.Target) { o.Guard = true })
	panes := several(t, b.s, 3*idleConns)
	few := func() bool { return len(b.clients()) <= idleConns }
	eventually(t, "few are attached", few)
	for i, p := range panes {
		expect(t, p, "echo $x; echo e >&2", 0, fmt.Sprintln(i), "e\n")
	}
	eventually(t, "few are attached again", few)

	// What runs, or is watched, stays.
	if err := panes[0].Dispatch(t.Context(), Command{Text: "cat"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, live, err := panes[1].Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range panes[2:] {
		expect(t, p, "true", 0, "", "")
	}
	eventually(t, "few are attached beside those", func() bool { return len(b.clients()) <= idleConns })
	if got := b.clients(); !slices.Contains(got, "s0") || !slices.Contains(got, "s1") {
		t.Errorf("attached: %q", got)
	}
	b.tmux("send-keys", "-t", panes[1].ID(), "-l", "seen")
	for text := ""; !strings.Contains(text, "seen"); {
		piece, ok := <-live
		if !ok {
			t.Fatal("it is not watched any more")
		}
		text += string(piece)
	}
	cancel()
	if err := panes[0].Interrupt(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range panes[2:] {
		expect(t, p, "true", 0, "", "")
	}
	eventually(t, "neither is attached", func() bool {
		got := b.clients()
		return !slices.Contains(got, "s0") && !slices.Contains(got, "s1")
	})
}

// TestWhoeverAttachesIsNoticed: a session that holds no connection is guarded and recorded as soon as a person attaches.
func TestWhoeverAttachesIsNoticed(t *testing.T) {
	t.Parallel()
	b := start(t, func(o *Options, _ *backend.Target) { o.Guard = true })
	panes := several(t, b.s, 2*idleConns)
	eventually(t, "the first is not attached", func() bool { return !slices.Contains(b.clients(), "s0") })
	cmd := exec.CommandContext(t.Context(), "tmux", "-u", "-L", b.sock, "attach", "-t", "=s0:")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, tty) }()
	t.Cleanup(func() {
		_ = tty.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the person can only watch", func() bool {
		return strings.TrimSpace(b.tmux("list-clients", "-F", "#{?client_control_mode,,#{session_name} #{client_readonly}}")) == "s0 1"
	})
	for _, p := range panes[1:] {
		expect(t, p, "true", 0, "", "")
	}
	if !slices.Contains(b.clients(), "s0") {
		t.Error("a session that a person watches was left")
	}
	_ = tty.Close()
	eventually(t, "it is left when the person has gone", func() bool {
		expect(t, panes[1], "true", 0, "", "")
		expect(t, panes[2], "true", 0, "", "")
		expect(t, panes[3], "true", 0, "", "")
		return !slices.Contains(b.clients(), "s0")
	})
}

// TestClientsOfAKilledBotAreEnded: nobody reads the output of a client whose bot was killed, and tmux 3.3a keeps such a
// client. A person's client in control mode stays.
func TestClientsOfAKilledBotAreEnded(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	stray := func(socket, session string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "tmux", "-L", socket, "-C", "attach", "-f", "ignore-size", "-t", "="+session+":")
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if _, err := cmd.StdoutPipe(); err != nil { // nobody reads it
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	b.tmux("new-session", "-d", "-s", "another")
	strays := []*exec.Cmd{stray(b.sock, "main"), stray(b.sock, "another"), stray(b.sock+".err", relaySession)}
	own := exec.CommandContext(t.Context(), "tmux", "-L", b.sock, "-CC", "attach", "-t", "=main:")
	own.Env = append(os.Environ(), "TERM=xterm-256color")
	tty, err := pty.Start(own)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, tty) }()
	t.Cleanup(func() {
		_ = tty.Close()
		_ = own.Process.Kill()
		_ = own.Wait()
	})
	eventually(t, "all are attached", func() bool { return len(b.clients()) == 3 })
	s, err := Open(t.Context(), b.tgt, b.o)
	if err != nil {
		t.Fatal(err)
	}
	b.s = s
	if p, err = s.Adopt(t.Context(), "main", p.ID()); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range strays {
		_ = cmd.Wait()
	}
	eventually(t, "a person's and the bot's client are left", func() bool { return len(b.clients()) == 2 })
	expect(t, p, "echo x; echo e >&2", 0, "x\n", "e\n")
}

// TestClientsOfAGoneReplicaAreEnded: those of the other replicas stay.
func TestClientsOfAGoneReplicaAreEnded(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	const attach = `SOCKET="$1" sleep 30 | tmux -L "$1" -C attach -f ignore-size -t =main: >/dev/null 2>&1`
	gone := exec.CommandContext(t.Context(), "sh", "-c", attach+" & ", "sh", b.sock)
	there := exec.CommandContext(t.Context(), "bash", "-c", attach, "bash", b.sock)
	if err := errors.Join(gone.Run(), there.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = there.Process.Kill() }()
	eventually(t, "both are attached", func() bool { return len(b.clients()) == 2 })
	s, err := Open(t.Context(), b.tgt, b.o)
	if err != nil {
		t.Fatal(err)
	}
	s.Share()
	b.s = s
	if _, err = s.Adopt(t.Context(), "main", p.ID()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other replica's and this one's are left", func() bool {
		pids := strings.Fields(b.tmux("list-clients", "-F", "#{client_pid}"))
		return len(pids) == 2 && !slices.ContainsFunc(pids, func(pid string) bool {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			return err != nil || strings.Contains(string(stat), ") S 1 ")
		})
	})
}

// TestATargetThatStartsAgain: a machine empties its temporary directory when it starts, and the terminals are gone.
func TestATargetThatStartsAgain(t *testing.T) {
	t.Parallel()
	b := start(t)
	p := b.pane()
	expect(t, p, "echo x; echo e >&2", 0, "x\n", "e\n")
	// The directory alone.
	if err := os.RemoveAll(b.o.Dir); err != nil {
		t.Fatal(err)
	}
	expect(t, p, "echo y\necho e >&2\n(exit 3)", 3, "y\n", "e\n")
	var where Where
	if _, err := p.Run(t.Context(), Command{Text: "(exit 4)", Before: func(w Where) error { where = w; return nil }}); err != nil {
		t.Fatal(err)
	}
	if got, err := p.Testify(t.Context(), where); err != nil || !got.Ended || got.Code != 4 {
		t.Errorf("%+v %v", got, err)
	}
	// One of its files.
	if err := os.Remove(b.s.file("run.sh")); err != nil {
		t.Fatal(err)
	}
	q, err := b.s.NewPane(t.Context(), "main", PaneSpec{Name: "two"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, q, "echo y\necho e >&2", 0, "y\n", "e\n")
	// All of it.
	for _, socket := range []string{b.sock, b.sock + ".err"} {
		if out, err := exec.CommandContext(t.Context(), "tmux", "-L", socket, "kill-server").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.RemoveAll(b.o.Dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p := b.pane()
		expect(t, p, "echo x; echo e >&2", 0, "x\n", "e\n")
		expect(t, p, "echo y\necho e >&2\n(exit 3)", 3, "y\n", "e\n")
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestManyConversationsAboutOneHost has more conversations about an SSH host than its sshd, as it comes, allows
// sessions. Each has a terminal and comes back to it.
func TestManyConversationsAboutOneHost(t *testing.T) {
	needstest.Long(t)
	t.Parallel()
	n := 20
	if needstest.Whole(t) {
		n = 500
	}
	s := sshtest.Start(t, sshtest.Options{Shell: "bash"})
	d := (&kit{open: func(t testing.TB) backend.Target { return openSSH(t, sshConfig(s)) }}).desk(t, func(d *desk) { d.o.Guard = true })
	panes := several(t, d.s, n)
	attached := func() int {
		return len(strings.Fields(d.outside(t, "tmux -L countersign-"+d.o.Instance+" list-clients -F c")))
	}
	eventually(t, "few are attached", func() bool { return attached() <= idleConns })
	for i := range min(n, 45) {
		at := i * n / min(n, 45)
		expect(t, panes[at], "echo $x; echo e >&2", 0, fmt.Sprintln(at), "e\n")
	}
	eventually(t, "few are attached again", func() bool { return attached() <= idleConns })
}
