package cagetest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Again runs the calling test once more inside of a cage, with the program under test,
// and returns false; inside it returns true. Where there can be no cage the test is
// skipped with one line, and fails under CI.
func Again(t *testing.T, program string) (inside bool) {
	t.Helper()
	if os.Getenv(envPart) == "test" {
		return true
	}
	missing := t.Skipf
	if os.Getenv("CI") == "true" {
		missing = t.Fatalf
	}
	if os.Geteuid() != 0 {
		missing("a cage needs name spaces and overlays: run the test as root")
		return false
	}
	if out, err := inNamespaces(t, "probe", program).CombinedOutput(); err != nil {
		missing("a cage needs name spaces and overlays, which this machine refuses (%v %s): run the test with CAP_SYS_ADMIN", err, bytes.TrimSpace(out))
		return false
	}
	out, err := inNamespaces(t, "test", program).CombinedOutput()
	text := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		t.Fatalf("inside of the cage: %v\n%s", err, text)
	case !strings.Contains(text, "--- PASS: "+t.Name()):
		t.Fatalf("nothing ran inside of the cage:\n%s", text)
	}
	t.Log(text)
	return false
}

// inNamespaces returns a command that runs the calling test in new namespaces.
func inNamespaces(t *testing.T, part, program string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$", "-test.v", "-test.count=1"}
	if end, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout="+timeLeft(end))
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), envPart+"="+part, envProg+"="+program, envDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	return cmd
}

// Cage is a machine for one program. Its methods are for the test's own goroutine.
type Cage struct {
	t    *testing.T
	root string // as the test sees it
	tops []tree // what can be changed, and where it lies in the program's root
	seen *sniffer

	witnesses []*Witness
	before    snapshot
	state     map[string]string
}

// tree is a directory whose content tells what was changed below at.
type tree struct{ dir, at string }

// New makes the cage that the test is in. endpoints are the addresses (IP:port, TCP) at
// which the program may talk: they are not counted.
func New(t *testing.T, endpoints ...string) *Cage {
	t.Helper()
	c := &Cage{t: t, root: filepath.Join(os.Getenv(envDir), "root")}
	if err := c.build(os.Getenv(envDir)); err != nil {
		t.Fatalf("the cage cannot be built: %v", err)
	}
	if err := network(); err != nil {
		t.Fatalf("the cage's network: %v", err)
	}
	var err error
	if c.seen, err = sniff(endpoints); err != nil {
		t.Fatalf("the cage's network cannot be watched: %v", err)
	}
	t.Cleanup(c.seen.close)
	return c
}

// probe tries what New does, without a test.
func probe(dir string) error {
	c := &Cage{root: filepath.Join(dir, "root")}
	if err := errors.Join(c.build(dir), network()); err != nil {
		return err
	}
	s, err := sniff(nil)
	if err != nil {
		return err
	}
	s.close()
	return nil
}

// Path is a file of the program's root as the test sees it.
func (c *Cage) Path(name string) string { return filepath.Join(c.root, name) }

// Write puts a file into the program's root, and makes the directories above it.
func (c *Cage) Write(name, text string, mode os.FileMode) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(c.Path(name)), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(c.Path(name), []byte(text), mode); err != nil {
		c.t.Fatal(err)
	}
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do() error {
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.kind, m.target, err)
	}
	return nil
}

// bind shows a file or directory at another place, which is made.
func bind(source, target string, readonly bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return nil //nolint:nilerr // what the machine does not have, the cage does not have
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if _, missing := os.Lstat(target); missing != nil {
		err = os.WriteFile(target, nil, 0o666)
	}
	if err != nil {
		return err
	}
	if err := (mount{source: source, target: target, flags: unix.MS_BIND}).do(); err != nil || !readonly {
		return err
	}
	return mount{target: target, flags: unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY}.do()
}

func (c *Cage) build(dir string) error {
	up := filepath.Join(dir, "up")
	for _, m := range []mount{
		{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE},
		{source: "proc", target: "/proc", kind: "proc"},
		{source: "cage", target: dir, kind: "tmpfs", data: "mode=755"},
	} {
		if err := m.do(); err != nil {
			return err
		}
	}
	for _, d := range []string{"var/lib", "var/log", "var/tmp", "home", "srv", "opt", "mnt", "run/lock", "boot", "dev", "proc", "sys"} {
		if err := os.MkdirAll(filepath.Join(c.root, d), 0o755); err != nil {
			return err
		}
	}
	for d, mode := range map[string]os.FileMode{"root": 0o700, "tmp": 0o777 | os.ModeSticky, "var/tmp": 0o777 | os.ModeSticky} {
		_ = os.Mkdir(filepath.Join(c.root, d), 0o755) // var/tmp is there
		if err := os.Chmod(filepath.Join(c.root, d), mode); err != nil {
			return err
		}
	}
	if err := os.Symlink("../run", filepath.Join(c.root, "var/run")); err != nil {
		return err
	}
	c.tops = []tree{{c.root, "/"}}
	for _, d := range []string{"usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if link, err := os.Readlink("/" + d); err == nil {
			if err := os.Symlink(link, filepath.Join(c.root, d)); err != nil {
				return err
			}
			continue
		}
		if info, err := os.Stat("/" + d); err != nil || !info.IsDir() {
			continue
		}
		upper, work := filepath.Join(up, d, "upper"), filepath.Join(up, d, "work")
		for _, x := range []string{upper, work, filepath.Join(c.root, d)} {
			if err := os.MkdirAll(x, 0o755); err != nil {
				return err
			}
		}
		if err := (mount{source: "overlay", target: filepath.Join(c.root, d), kind: "overlay", data: "lowerdir=/" + d + ",upperdir=" +
			upper + ",workdir=" + work}).do(); err != nil {
			return err
		}
		c.tops = append(c.tops, tree{upper, "/" + d})
	}
	return errors.Join(c.kernel(), c.devices())
}

// kernel gives the program /proc and /sys, where it cannot change the machine.
func (c *Cage) kernel() error {
	proc := c.Path("proc")
	for _, m := range []mount{{source: "proc", target: proc, kind: "proc"}, {source: "sysfs", target: c.Path("sys"), kind: "sysfs", flags: unix.MS_RDONLY}} {
		if err := m.do(); err != nil {
			return err
		}
	}
	for _, name := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs"} {
		if err := bind(filepath.Join(proc, name), filepath.Join(proc, name), true); err != nil {
			return err
		}
	}
	for _, name := range []string{"kcore", "kmsg", "keys", "timer_list"} {
		if _, err := os.Stat(filepath.Join(proc, name)); err != nil {
			continue
		}
		if err := bind("/dev/null", filepath.Join(proc, name), false); err != nil {
			return err
		}
	}
	return nil
}

// devices gives the program terminals and the usual harmless devices, and a disk that is
// a file.
func (c *Cage) devices() error {
	dev := c.Path("dev")
	if err := (mount{source: "dev", target: dev, kind: "tmpfs", data: "mode=755"}).do(); err != nil {
		return err
	}
	c.tops = append(c.tops, tree{dev, "/dev"})
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind("/dev/"+name, filepath.Join(dev, name), false); err != nil {
			return err
		}
	}
	for _, d := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(dev, "shm"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := (mount{source: "devpts", target: filepath.Join(dev, "pts"), kind: "devpts", data: "newinstance,ptmxmode=0666,mode=620"}).do(); err != nil {
		return err
	}
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(to, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dev, "sda"), bytes.Repeat([]byte("disk"), 16<<10), 0o660)
}

// rights are what root keeps in the cage: everything about its files, users, processes
// and network, and nothing about the machine.
var rights = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_NET_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_AUDIT_WRITE, unix.CAP_SETFCAP,
	unix.CAP_SYS_NICE, unix.CAP_IPC_OWNER, unix.CAP_IPC_LOCK,
}

// Command is a program that runs in the cage, with no more environment than env.
func (c *Cage) Command(dir string, env []string, argv ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.CommandContext(c.t.Context(), self, argv...)
	cmd.Env = append(slices.Clone(env), envPart+"=program", envDir+"="+c.root+":"+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	return cmd
}

// enter makes the cage's root the root of this process and becomes the program that its
// arguments name.
func enter() error {
	runtime.LockOSThread()
	root, dir, _ := strings.Cut(os.Getenv(envDir), ":")
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, envPart) {
			env = append(env, kv)
		}
	}
	if err := errors.Join(
		mount{target: "/", flags: unix.MS_REC | unix.MS_PRIVATE}.do(),
		mount{source: root, target: root, flags: unix.MS_BIND | unix.MS_REC}.do(),
	); err != nil {
		return err
	}
	// The new root over the old one, which then goes.
	if err := errors.Join(unix.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir(dir)); err != nil {
		return fmt.Errorf("the cage's root: %w", err)
	}
	for right := uintptr(0); right <= unix.CAP_LAST_CAP; right++ {
		if slices.Contains(rights, right) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, right, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("right %d: %w", right, err)
		}
	}
	program := os.Args[1]
	if !strings.HasPrefix(program, "/") {
		for _, d := range []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"} {
			if info, err := os.Stat(filepath.Join(d, program)); err == nil && !info.IsDir() {
				program = filepath.Join(d, program)
				break
			}
		}
	}
	if err := syscall.Exec(program, os.Args[1:], env); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return nil
}

// Left lists the processes of the cage beside the test, its witnesses and those of the
// commands that are still waited for.
func (c *Cage) Left(known ...int) (left []string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, w := range c.witnesses {
		known = append(known, w.cmd.Process.Pid)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || slices.Contains(known, pid) {
			continue
		}
		if s := processState(pid); s != "" && s != "Z" {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			left = append(left, fmt.Sprintf("%d %s", pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))))
		}
	}
	return left
}

// processState is the state of a process as the kernel names it, or "" when it is gone.
func processState(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(raw), ") ")
	if !ok || rest == "" {
		return ""
	}
	return rest[:1]
}

// timeLeft is how long a test may run that has to end a little before another.
func timeLeft(end time.Time) string {
	return max(time.Until(end)-5*time.Second, time.Second).Round(time.Second).String()
}
