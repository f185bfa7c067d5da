package lock

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// A connection does not start a service that systemd would start for it.
func TestAConnectionStartsNothing(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"run/systemd/system/.keep":                             "",
		"usr/lib/systemd/system/docker.socket":                 "[Socket]\nListenStream=/run/docker.sock\n",
		"etc/systemd/system/db.socket":                         "[Socket]\nListenStream = %t/db.sock\nService=base.service\n",
		"usr/lib/systemd/system/cups.socket":                   "[Socket]\nListenStream=/run/cups.sock\n",
		"sys/fs/cgroup/system.slice/cups.service/cgroup.procs": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &Guard{root: root}
	for socket, want := range map[string]string{
		"/run/docker.sock": "docker.service", "/var/run/docker.sock": "docker.service", "/run/db.sock": "base.service",
		"/run/cups.sock": "", "/run/other.sock": "",
	} {
		if got := g.starts(socket); got != want {
			t.Errorf("%s: %q, want %q", socket, got, want)
		}
	}
	if err := os.RemoveAll(filepath.Join(root, "run")); err != nil {
		t.Fatal(err)
	}
	if got := g.starts("/run/docker.sock"); got != "" {
		t.Errorf("without systemd: %q", got)
	}
}

// The guard itself connects only to who listens already.
func TestNoConnectionIsMadeForWhatWouldStart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	unit, group := filepath.Join(dir, "etc/systemd/system/x.socket"), filepath.Join(dir, "sys/fs/cgroup/system.slice/x.service")
	for _, d := range []string{filepath.Dir(unit), filepath.Join(dir, "run/systemd/system")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(unit, []byte("[Socket]\nListenStream="+path+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &Guard{root: dir, sockets: []string{path}}
	address := append([]byte{unix.AF_UNIX, 0}, path...)
	connect := func() int32 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		n := notification{pid: uint32(os.Getpid()), args: [6]uint64{uint64(fd), uint64(uintptr(unsafe.Pointer(&address[0]))), uint64(len(address))}}
		return g.connect(&n, func() bool { return true }).errno
	}
	if errno := connect(); errno != -int32(unix.ECONNREFUSED) || !slices.Equal(g.hits, []backend.Hit{{Kind: backend.HitStart, Name: "x.service"}}) {
		t.Errorf("it isn't running: %d, %v", errno, g.hits)
	}
	if err := os.MkdirAll(group, 0o700); err != nil {
		t.Fatal(err)
	}
	if errno := connect(); errno != 0 {
		t.Errorf("it runs: %d", errno)
	}
}

// A socket whose queue is full holds up neither the guard nor the end of the process.
func TestAFullQueueHoldsNothingUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	first, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/usr/bin/perl", "-e", `$|=1; socket(my $s, 1, 1, 0); print "up\n"; connect($s, pack "Sa*", 1, $ARGV[0]); print "connected"`, path)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, &out
	g, err := Start(cmd, backend.Lock{Sockets: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	b := make([]byte, 3)
	if _, err := r.Read(b); err != nil {
		t.Fatal(err)
	}
	// The guard is where the process would wait.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		stack, _ := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", cmd.Process.Pid))
		if strings.Contains(string(stack), "seccomp") || time.Now().After(deadline) {
			break
		}
	}
	_ = cmd.Process.Kill()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait(); g.Close() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the guard waits for a connection")
	}
}

// What this process inherited does not reach a locked one.
func TestInheritedDescriptorsStay(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const inherited = 97
	if err := unix.Dup3(int(f.Fd()), inherited, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	cmd := exec.CommandContext(t.Context(), "/bin/bash", "-c", "echo x >&97")
	g, err := Start(cmd, backend.Lock{})
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	g.Close()
	if st, err := f.Stat(); err != nil || st.Size() != 0 {
		t.Errorf("%v %v: it was written to", st.Size(), err)
	}
}
