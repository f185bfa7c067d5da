package lock_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"countersign/targets/backend"
	"countersign/targets/backendtest"
	"countersign/targets/lock"
	"countersign/test/needstest"
)

// locked runs bash under a lock and returns what it said, and what it was refused.
func locked(t *testing.T, l backend.Lock, text string) (string, []backend.Hit) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "--noprofile", "--norc", "-c", text)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = []string{"PATH=" + backend.SearchPath, "HOME=/root"}
	g, err := lock.Start(cmd, l)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	return out.String(), g.Close()
}

// lacking skips what a program is missing for.
func lacking(t *testing.T, out string) bool {
	t.Helper()
	missing := notFound.FindStringSubmatch(out)
	if missing != nil {
		t.Run(missing[1], func(t *testing.T) { needstest.Missing(t, missing[1]+" is not installed") })
	}
	return missing != nil
}

var notFound = regexp.MustCompile(`line \d+: (\S+): command not found`)

func TestTheLockOfThisMachine(t *testing.T) {
	if s := lock.State(t.Context()); s.By != "bot" {
		t.Fatalf("%+v", s)
	}
}

func TestALockedProcessChangesNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("as it was"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	srv, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Close() }()
	came := make(chan struct{}, 16)
	go func() {
		for {
			c, err := srv.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			came <- struct{}{}
		}
	}()
	port := srv.Addr().(*net.TCPAddr).Port
	sleeper := exec.CommandContext(t.Context(), "sleep", fmt.Sprintf("600.%d", port))
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	pid := sleeper.Process.Pid
	for _, tc := range backendtest.Attacks() {
		text := strings.NewReplacer("FILE", file, "DIR", dir, "PIPE", pipe, "PORT", fmt.Sprint(port), "PID", fmt.Sprint(pid)).Replace(tc.Text)
		before := tree(t, dir)
		out, hits := locked(t, backend.Lock{}, text)
		if after := tree(t, dir); before != after {
			t.Fatalf("%s changed something:\n%s\n%s", text, before, after)
		}
		if !lacking(t, out) && !slices.ContainsFunc(hits, func(h backend.Hit) bool { return h.Kind == tc.Kind }) {
			t.Errorf("%s: hits %v; it said %q", text, hits, out)
		}
		if syscall.Kill(pid, 0) != nil || state(pid) != 'S' {
			t.Fatalf("%s reached another process", text)
		}
	}
	select {
	case <-came:
		t.Error("something connected")
	case <-time.After(50 * time.Millisecond):
	}
}

// state is the letter of a process in /proc.
func state(pid int) byte {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	return (rest + "?")[0]
}

// tree is what there is in a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `find "$1" -printf '%p %y %m %U %s %T@ %C@ %l\n' | sort; cat "$1/f"; lsattr "$1/f"; getfattr -d "$1/f" 2>/dev/null`, "sh", dir).CombinedOutput()
	if err != nil && len(out) == 0 {
		t.Fatal(err)
	}
	return string(out)
}

func TestALockedProcessReadsAsBefore(t *testing.T) {
	for _, text := range backendtest.Reads() {
		out, hits := locked(t, backend.Lock{}, "set -o pipefail\n"+text+" || { s=$?; test $s = 141 || echo FAILED $s; }")
		if !lacking(t, out) && (strings.Contains(out, "FAILED") || len(hits) > 0) {
			t.Errorf("%s: %v: %s", text, hits, out)
		}
	}
}

func TestWhatALockLeavesOpen(t *testing.T) {
	srv, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = srv.Close() }()
	path := filepath.Join(t.TempDir(), "s")
	unix, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close() }()
	for _, l := range []net.Listener{srv, unix} {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("hello\n"))
				_ = c.Close()
			}
		}()
	}
	tcp := fmt.Sprintf("python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", %d)).recv(9))'", srv.Addr().(*net.TCPAddr).Port)
	local := fmt.Sprintf("python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(%q); print(s.recv(9))'", path)
	procs := fmt.Sprintf("readlink /proc/%d/exe", os.Getpid())
	for _, tc := range []struct {
		rule string
		lock backend.Lock
		text string
		ok   bool
	}{
		{"the net", backend.Lock{Net: true}, tcp, true},
		{"no net", backend.Lock{Sockets: []string{path}}, tcp, false},
		{"its socket", backend.Lock{Sockets: []string{path}}, local, true},
		{"another socket", backend.Lock{Sockets: []string{"/run/other.sock"}}, local, false},
		{"a socket with the net", backend.Lock{Net: true}, local, false},
		{"links of the network", backend.Lock{Netlink: true}, "ip link show lo", true},
		{"a new link", backend.Lock{Netlink: true}, "ip link add d0 type dummy", false},
		{"processes", backend.Lock{Processes: true}, procs, true},
		{"no processes", backend.Lock{}, procs, false},
		{"writing while looking into processes", backend.Lock{Processes: true}, "echo x > " + filepath.Join(filepath.Dir(path), "f"), false},
		{"a device", backend.Lock{}, "head -c 1 /dev/kmsg || head -c 1 /dev/vda", false},
	} {
		out, _ := locked(t, tc.lock, tc.text+" && echo WELL")
		if ok := strings.Contains(out, "WELL"); !lacking(t, out) && ok != tc.ok {
			t.Errorf("%s: %s", tc.rule, out)
		}
	}
}

func TestTheBotItselfIsNotHeld(t *testing.T) {
	for range 20 {
		locked(t, backend.Lock{}, "true")
		if err := os.WriteFile(filepath.Join(t.TempDir(), "x"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkLock is a locked shell beside the same shell without a lock.
func BenchmarkLock(b *testing.B) {
	for _, held := range []bool{false, true} {
		b.Run(fmt.Sprint("locked=", held), func(b *testing.B) {
			for b.Loop() {
				var out bytes.Buffer
				cmd := exec.CommandContext(b.Context(), "/bin/bash", "--noprofile", "--norc", "-c", "echo hi")
				cmd.Stdout = &out
				if !held {
					if err := cmd.Run(); err != nil {
						b.Fatal(err)
					}
					continue
				}
				g, err := lock.Start(cmd, backend.Lock{})
				if err != nil {
					b.Fatal(err)
				}
				_ = cmd.Wait()
				g.Close()
			}
		})
	}
}

func TestADatagramReachesNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "unixgram", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, l := range []backend.Lock{{}, {Net: true}, {Sockets: []string{path}}} {
		out, _ := locked(t, l, fmt.Sprintf("python3 -c 'import socket; s = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]; s.sendto(b\"x\", %q)'", path))
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, _, err := c.ReadFrom(make([]byte, 8)); err == nil {
			t.Errorf("%+v: %d bytes came; %s", l, n, out)
		}
	}
}
