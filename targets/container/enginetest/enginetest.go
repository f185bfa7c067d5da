// Package enginetest starts real container engines for tests: a dockerd and a
// podman service of their own, each with its own directories and socket, and images
// to run. Everything ends and is removed with the test that asked for it, also
// when the test binary is killed.
//
// It needs root, and on Debian: apt-get install docker.io podman runc netavark
// debootstrap. Without them a test is skipped with one line that says so, and fails
// when the environment has CI=true.
//
// It does not touch an engine that the machine runs already, and it gives containers
// no network.
package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"countersign/test/needstest"
)

// The images that every engine can run.
const (
	// Debian has bash, dash, zsh, fish, busybox, tmux and procps.
	Debian = "cs-test:1"
	// Tiny has a static busybox and nothing else: no tmux, no bash.
	Tiny = "cs-tiny:1"
)

// booted is an image with systemd and sudo; see [Engine.Boot].
const booted = "cs-booted:1"

// patience bounds every wait for an engine, and stopTime the wait for its end.
const (
	patience = 30 * time.Second
	stopTime = 30 * time.Second
)

// Engine is one running engine. It is safe for concurrent use.
type Engine struct {
	// Host is the address of its API, "unix:///...".
	Host string
	// Program is a script that calls the engine's own command line for this very
	// engine. Its base name is "docker" or "podman", so that its directory can be
	// put on a PATH.
	Program string

	arch archiveSet
	mu   sync.Mutex
	have map[string]bool // images
}

// Docker starts a dockerd that ends with the test.
func Docker(t testing.TB) *Engine {
	t.Helper()
	need(t, "dockerd", "docker", "debootstrap", "tar")
	arch := archives(t)
	dir := scratch(t)
	host := "unix://" + filepath.Join(dir, "docker.sock")
	// No bridge and no firewall rules: containers have no network and the machine's
	// own stays as it is.
	script := `dockerd --data-root "$1/data" --exec-root "$1/exec" -H "$2" --pidfile "$1/pid" --iptables=false --ip6tables=false \
  --bridge=none --storage-driver overlay2 --shutdown-timeout 1 >"$1/log" 2>&1 </dev/null &`
	e := &Engine{Host: host, arch: arch, have: map[string]bool{}}
	e.Program = program(t, dir, "docker", nil, "-H", host)
	e.serve(t, dir, script, nil)
	return e
}

// Podman starts a podman service that ends with the test.
func Podman(t testing.TB) *Engine {
	t.Helper()
	need(t, "podman", "runc", "debootstrap", "tar")
	if !slices.ContainsFunc([]string{"/usr/lib/podman", "/usr/libexec/podman", "/usr/local/lib/podman", "/usr/local/libexec/podman"}, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "netavark"))
		return err == nil
	}) {
		needstest.Missing(t, "podman is here without its network helper netavark: apt-get install -y --no-install-recommends netavark")
	}
	arch := archives(t)
	dir := scratch(t)
	host := "unix://" + filepath.Join(dir, "podman.sock")
	conf := filepath.Join(dir, "containers.conf")
	// Limits are given because the defaults ask for more than a confined root may
	// set; runc because crun 1.8 refuses machines with both kinds of cgroups.
	write(t, conf, `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
`, 0o600)
	env := []string{"CONTAINERS_CONF=" + conf}
	flags := []string{"--root", filepath.Join(dir, "data"), "--runroot", filepath.Join(dir, "run"), "--tmpdir", filepath.Join(dir, "tmp")}
	e := &Engine{Host: host, arch: arch, have: map[string]bool{}}
	e.Program = program(t, dir, "podman", env, flags...)
	e.serve(t, dir, `"$3" system service --time=0 "$2" >"$1/log" 2>&1 </dev/null &`, env)
	return e
}

// serve starts the engine under a shell that ends it when this test binary is gone,
// however that came: its standard input is a pipe from here.
func (e *Engine) serve(t testing.TB, dir, script string, env []string) {
	t.Helper()
	script += `
pid=$!
cat >/dev/null
for c in $("$3" ps -aq 2>/dev/null </dev/null); do
  "$3" kill "$c" >/dev/null 2>&1 </dev/null
  "$3" rm -f "$c" >/dev/null 2>&1 </dev/null
done
kill -s TERM "$pid"
wait "$pid"
# Podman keeps a conmon for 5 minutes after each exec of its API, which then makes the
# directory again, and each container's has another podman clean up. They name it in their arguments.
n=100
while [ "$n" -gt 0 ]; do
  for f in $(grep -laF "$1/" /proc/[0-9]*/cmdline); do
    p=${f#/proc/} p=${p%/*}
    read -r c <"/proc/$p/comm" && case $c in conmon | podman) kill -s KILL "$p" ;; esac
  done 2>/dev/null
  while read -r x m y; do case $m in "$1"/*) umount -l "$m" ;; esac; done </proc/mounts 2>/dev/null
  rm -rf "$1" 2>/dev/null && exit 0
  sleep 0.1
  n=$((n - 1))
done
rm -rf "$1"
`
	cmd := exec.Command("sh", "-c", script, "sh", dir, e.Host, e.Program)
	cmd.Env = append(environ(), env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = ownGroup() // an interrupt at the terminal is not for it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = stdin.Close()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the engine at %s has not been removed: %v", e.Host, err)
			}
		case <-time.After(stopTime):
			t.Errorf("the engine at %s does not end", e.Host)
		}
	})
	deadline := time.Now().Add(patience)
	for {
		if c, err := net.Dial("unix", strings.TrimPrefix(e.Host, "unix://")); err == nil {
			_ = c.Close()
			if _, err := e.try(context.Background(), nil, "ps"); err == nil {
				return
			}
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			needstest.Missing(t, fmt.Sprintf("%s is here but does not start within %v; install all of docker.io podman runc netavark "+
				"debootstrap, and see its own words: %s", filepath.Base(e.Program), patience, tail(log)))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Run starts a container that does nothing and returns its name; args are further
// options of the engine's "run", for example "--user", "1000". It is removed with
// the test.
func (e *Engine) Run(t testing.TB, image string, args ...string) string {
	t.Helper()
	name := "cs-" + unique()
	e.RunAs(t, name, image, args...)
	return name
}

// RunAs is Run with a name of your own.
func (e *Engine) RunAs(t testing.TB, name, image string, args ...string) {
	t.Helper()
	e.load(t, image)
	argv := append([]string{"run", "-d", "--name", name, "--network=none"}, args...)
	// The loop reaps orphans once a second, as an init would.
	if _, err := e.try(context.Background(), nil, append(argv, image, "sh", "-c", "while :; do sleep 1; done")...); err != nil {
		needstest.Missing(t, fmt.Sprintf("%s is here but runs no container; a part of it is missing, see its own words: %v", filepath.Base(e.Program), err))
	}
	t.Cleanup(func() {
		_, _ = e.try(context.Background(), nil, "kill", name) // podman's rm would wait 10 s for its end
		_, _ = e.try(context.Background(), nil, "rm", "-f", name)
	})
}

// Boot starts a container whose first process is systemd, and returns its name when its units run. The container
// may change the machine's cgroups, as systemd does. It is removed with the test.
func (e *Engine) Boot(t testing.TB, args ...string) string {
	t.Helper()
	e.load(t, booted)
	name := "cs-" + unique()
	argv := append([]string{
		"run", "-d", "--name", name, "--network=none", "--tmpfs", "/run", "--tmpfs", "/run/lock", "-e", "container=docker",
		"--cap-add=SYS_ADMIN", "--cap-add=SYS_PTRACE", "--security-opt", "seccomp=unconfined", "-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw",
	}, args...)
	out, err := e.try(context.Background(), nil, append(argv, booted, "/lib/systemd/systemd")...)
	t.Cleanup(func() { _, _ = e.try(context.Background(), nil, "rm", "-f", name) })
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if out, _ = e.try(context.Background(), nil, "exec", name, "sh", "-c", "systemctl is-system-running || true"); strings.HasPrefix(out, "running") || strings.HasPrefix(out, "degraded") {
			return name
		}
	}
	needstest.Missing(t, fmt.Sprintf("systemd does not start in a container here: %v %s", err, out))
	return ""
}

// Stop stops a container at once.
func (e *Engine) Stop(t testing.TB, name string) { t.Helper(); e.CLI(t, "stop", "-t", "0", name) }

// Kill sends SIGKILL to a container's first process.
func (e *Engine) Kill(t testing.TB, name string) { t.Helper(); e.CLI(t, "kill", name) }

// Remove ends and removes a container.
func (e *Engine) Remove(t testing.TB, name string) {
	t.Helper()
	_, _ = e.try(context.Background(), nil, "kill", name) // it may have ended
	e.CLI(t, "rm", "-f", name)
}

// CLI calls the engine's command line and returns what it prints.
func (e *Engine) CLI(t testing.TB, args ...string) string {
	t.Helper()
	out, err := e.try(context.Background(), nil, args...)
	if err != nil {
		t.Fatalf("%s %q: %v", filepath.Base(e.Program), args, err)
	}
	return out
}

// try calls the command line. Its streams are files: what a container leaves
// running may hold them without holding the test.
func (e *Engine) try(ctx context.Context, stdin *os.File, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := os.CreateTemp("", "cs-engine-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close(); _ = os.Remove(out.Name()) }()
	errOut, err := os.CreateTemp("", "cs-engine-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = errOut.Close(); _ = os.Remove(errOut.Name()) }()
	cmd := exec.CommandContext(ctx, e.Program, args...)
	cmd.Env, cmd.Dir = environ(), "/"
	cmd.Stdout, cmd.Stderr = out, errOut
	if stdin != nil {
		cmd.Stdin = stdin
	}
	err = cmd.Run()
	text, _ := os.ReadFile(out.Name())
	if err != nil {
		why, _ := os.ReadFile(errOut.Name())
		return string(text), fmt.Errorf("%w: %s", err, tail(why))
	}
	return string(bytes.TrimRight(text, "\n")), nil
}

// load imports an image once.
func (e *Engine) load(t testing.TB, image string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.have[image] {
		return
	}
	path := ""
	switch image {
	case Debian:
		path = e.arch.debian
	case Tiny:
		path = e.arch.tiny
	case booted:
		path = bootedArchive(t)
	default:
		t.Fatalf("enginetest has no image %q", image)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := e.try(context.Background(), f, "import", "-", image); err != nil {
		needstest.Missing(t, fmt.Sprintf("%s is here but takes no image: %v", filepath.Base(e.Program), err))
	}
	e.have[image] = true
}

// program writes a script that calls a program with an environment and flags.
func program(t testing.TB, dir, name string, env []string, flags ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", k, v)
	}
	fmt.Fprintf(&b, "exec '%s'", path)
	for _, f := range flags {
		fmt.Fprintf(&b, " '%s'", f)
	}
	b.WriteString(" \"$@\"\n")
	own := filepath.Join(bin, name)
	write(t, own, b.String(), 0o700)
	return own
}

// scratch makes a directory with a short name, for a socket's path has at most 108
// bytes. The engine's shell removes it.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cse-") //nolint:usetesting // t.TempDir has the test's name in it
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// need skips the test, or fails it in CI, when the machine cannot run an engine.
func need(t testing.TB, programs ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		needstest.Missing(t, "real container engines need root: run the tests as root")
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			needstest.Missing(t, p+" is not installed: apt-get install -y --no-install-recommends docker.io podman runc netavark debootstrap")
		}
	}
}

// environ is the environment of an engine: nothing that leads it to another one.
func environ() []string {
	var out []string
	for _, kv := range os.Environ() {
		k, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(k, "DOCKER_") || strings.HasPrefix(k, "CONTAINER") || strings.HasPrefix(k, "NOTIFY_") || k == "XDG_RUNTIME_DIR" {
			continue
		}
		out = append(out, kv)
	}
	return out
}

func tail(b []byte) string {
	b = bytes.TrimSpace(b)
	return string(b[max(0, len(b)-2000):])
}
