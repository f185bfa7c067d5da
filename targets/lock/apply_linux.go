package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// Start starts cmd under a lock. The lock is put on a thread of its own, which the new
// process is born from and which ends right after: nothing of the bot itself is held.
// The caller waits for cmd, and calls Close of the guard afterwards. An error means that
// nothing was started; it is ErrUnsupported where this system has no lock.
func Start(cmd *exec.Cmd, l backend.Lock) (*Guard, error) {
	f, err := Make(l, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	// Signals stay within the session, so it is one of its own; it is a group as well.
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
	cmd.SysProcAttr.Cloneflags |= firstClone
	sealDescriptors()
	// What the library tries once for all processes is not tried under a lock.
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
	g, err := newGuard(l, f)
	if err != nil {
		return nil, err
	}
	memory, processes := Memory(l, free()), mostProcesses()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked, so the thread ends with this function
		done <- g.begin(cmd, l, f)
	}()
	if err := <-done; err != nil {
		g.Close()
		return nil, err
	}
	pid := cmd.Process.Pid
	g.memory = memory - uint64(pid) // all that comes from it inherits that and cannot raise it
	limitAll(pid, g.memory, processes)
	return g, nil
}

// begin locks the thread and starts cmd from it.
func (g *Guard) begin(cmd *exec.Cmd, l backend.Lock, f Filter) error {
	// What comes from this thread inherits it, also over exec; the thread ends soon.
	g.slack = firstSlack + rand.Uint64N(slacks)
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(g.slack), 0, 0, 0); err != nil {
		g.slack = 0
	}
	landlocked, err := restrict(l)
	if err != nil {
		return err
	}
	fd, err := install(f)
	if err != nil {
		return err
	}
	g.landlocked = landlocked
	g.serve(fd)
	return cmd.Start()
}

// Started reports whether a process comes from the locked one, by what it was born with:
// one that left the session before [Of] could know it is found so. Only root may look.
func (g *Guard) Started(pid int) bool {
	if pid == os.Getpid() { // the thread that was locked may be this process' first one
		return false
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/timerslack_ns")
	return err == nil && g.slack > 0 && strings.TrimSpace(string(b)) == strconv.FormatUint(g.slack, 10)
}

// slacks is where the timer slacks of locked processes begin, the kernel's own being 50 µs,
// and how many there are.
const (
	firstSlack = 50_001
	slacks     = 100_000
)

// restrict drops this thread's privileges and enforces Landlock's rules on it. It
// reports whether there are any.
func restrict(l backend.Lock) (landlocked bool, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, fmt.Errorf("lock: no_new_privs: %w", err)
	}
	if err := dropCapabilities(Capabilities(l)); err != nil {
		return false, err
	}
	rules, ok := Rules(l, version())
	switch {
	case !ok && l.System && os.Geteuid() == 0:
		return false, fmt.Errorf("%w: without Landlock, root's reads can't be limited to system files", ErrUnsupported)
	case !ok:
		return false, nil
	}
	attr := struct{ fs, net, scoped uint64 }{rules.FS, rules.Net, rules.Scoped}
	r, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if e != 0 {
		return false, fmt.Errorf("lock: landlock_create_ruleset: %w", e)
	}
	set := int(r)
	defer func() { _ = unix.Close(set) }()
	for _, p := range Sinks() {
		if err := addPathRule(set, p, rules.Write|rules.Read); err != nil {
			return false, err
		}
	}
	if rules.Below != 0 {
		if err := addPathRule(set, "/", rules.Below); err != nil {
			return false, err
		}
	}
	if rules.Read != 0 {
		for _, p := range Readable(l) {
			for _, p := range expand(p) {
				if err := addPathRule(set, p, rules.Read); err != nil {
					return false, err
				}
			}
		}
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); e != 0 {
		return false, fmt.Errorf("lock: landlock_restrict_self: %w", e)
	}
	return true, nil
}

// version is the version of Landlock's interface; 0 where it is not there.
func version() int {
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if e != 0 {
		return 0
	}
	return int(v)
}

// expand is a path of Readable; "/" are its entries but /dev.
func expand(path string) []string {
	if path != "/" {
		return []string{path}
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil // so nothing can be read
	}
	var out []string
	for _, e := range entries {
		if e.Name() != "dev" {
			out = append(out, "/"+e.Name())
		}
	}
	return out
}

// addPathRule gives a right to what is below a path. What is not there needs none.
func addPathRule(set int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	// The kernel's structure is packed: 12 bytes.
	attr := struct {
		access uint64
		parent int32
	}{access, int32(fd)}
	if _, _, e := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0); e != 0 {
		return fmt.Errorf("lock: landlock_add_rule for %s: %w", path, e)
	}
	return nil
}

// dropCapabilities leaves this thread the capabilities of keep that it has.
func dropCapabilities(keep uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("lock: capget: %w", err)
	}
	for i := range data {
		part := uint32(keep >> (32 * i))
		data[i].Permitted &= part
		data[i].Effective &= part
		data[i].Inheritable = 0
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("lock: capset: %w", err)
	}
	return nil
}

// install puts the filter on this thread, which goes on running Go, and returns where it
// reports.
func install(f Filter) (int, error) {
	program, err := f.ForGo(runtime.GOARCH, os.Getpid())
	if err != nil {
		return -1, err
	}
	n := len(program) / 8
	filter := make([]unix.SockFilter, n)
	for i := range filter {
		b := program[8*i:]
		filter[i] = unix.SockFilter{Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:])}
	}
	prog := unix.SockFprog{Len: uint16(n), Filter: &filter[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return -1, fmt.Errorf("%w: seccomp: %w", ErrUnsupported, e)
	}
	return int(fd), nil
}

// limitAll bounds a process that has just started, and what it began since. No fork waits for that: one that waits can
// be interrupted, and shells take that for a failure.
func limitAll(pid int, memory, processes uint64) {
	limit(pid, memory, processes)
	begun, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, name := range begun {
		children, _ := os.ReadFile(name)
		for word := range strings.FieldsSeq(string(children)) {
			if child, err := strconv.Atoi(word); err == nil {
				limitAll(child, memory, processes)
			}
		}
	}
}

// limit bounds what a process may use, and what it begins from then on; 0 is this one. The kernel ends it before others
// when memory is short.
func limit(pid int, memory, processes uint64) {
	for _, l := range []struct {
		which     int
		soft, max uint64
	}{
		{unix.RLIMIT_DATA, memory, memory}, {unix.RLIMIT_NPROC, processes, processes},
		{unix.RLIMIT_CORE, 1, 1},              // also keeps a program that takes core dumps from being started
		{unix.RLIMIT_CPU, MaxCPU, MaxCPU + 5}, // SIGXCPU says why it ended, SIGKILL does not
	} {
		var old unix.Rlimit
		if unix.Prlimit(pid, l.which, nil, &old) == nil && old.Max >= l.max {
			_ = unix.Prlimit(pid, l.which, &unix.Rlimit{Cur: l.soft, Max: l.max}, nil)
		}
	}
	name := "self"
	if pid != 0 {
		name = strconv.Itoa(pid)
	}
	_ = os.WriteFile("/proc/"+name+"/oom_score_adj", []byte("1000"), 0)
}

// free is how much memory can be used, in bytes: of the machine, or what is left of the container's.
func free() uint64 {
	most := uint64(math.MaxUint64)
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			most = n << 10
		}
	}
	number := func(name string) (uint64, bool) {
		b, err := os.ReadFile("/sys/fs/cgroup/" + name)
		n, nerr := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		return n, err == nil && nerr == nil
	}
	for _, names := range [][4]string{
		{"memory.max", "memory.current", "memory.stat", "inactive_file"},
		{"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"},
	} {
		all, ok := number(names[0])
		used, ok2 := number(names[1])
		if !ok || !ok2 {
			continue
		}
		stat, _ := os.ReadFile("/sys/fs/cgroup/" + names[2])
		for line := range strings.Lines(string(stat)) { // the kernel gives back what it keeps of files
			if rest, ok := strings.CutPrefix(line, names[3]+" "); ok {
				n, _ := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
				used -= min(used, n)
			}
		}
		most = min(most, all-min(all, used))
	}
	return most
}

// sealDescriptors keeps what this process inherited from reaching what it starts.
func sealDescriptors() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) != nil { // before Linux 5.11
		sealEach()
	}
}

func sealEach() {
	open, _ := os.ReadDir("/proc/self/fd")
	for _, d := range open {
		if fd, err := strconv.Atoi(d.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// Of reports whether a process comes from the locked one, wherever it went since.
func (g *Guard) Of(pid int) bool {
	var l unix.Rlimit
	return g.memory > 0 && unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &l) == nil && l.Max == g.memory
}

// mostProcesses is how many processes and threads this account may have, with those that it has, as RLIMIT_NPROC counts.
func mostProcesses() uint64 {
	uid, n := os.Getuid(), MaxProcesses
	if uid == 0 {
		return math.MaxUint64 // RLIM_INFINITY
	}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		var st unix.Stat_t
		if unix.Stat(d, &st) != nil || int(st.Uid) != uid {
			continue
		}
		if tasks, err := os.ReadDir(d + "/task"); err == nil {
			n += len(tasks)
		}
	}
	return uint64(n)
}

// State says which lock this machine has. It tries it: a lock that lets something through
// is none.
func State(ctx context.Context) backend.LockState {
	if err := trySandbox(ctx); err != nil {
		return backend.LockState{Lacks: []string{"the kernel refuses it: " + err.Error()}}
	}
	return backend.LockState{By: "bot", Lacks: Lacks(version()), Root: os.Geteuid() == 0, Landlock: version() > 0}
}

// trialScript is what a locked shell tries; it prints "held" when all of it was refused.
const trialScript = `f=${TMPDIR:-/tmp}/countersign-lock-trial-$$
{ echo x >"$f"; } 2>/dev/null && { echo "it could write $f"; exit 1; }
echo x >/dev/null || { echo "/dev/null cannot be written"; exit 1; }
kill -0 "$PPID" 2>/dev/null; kill -CONT "$PPID" 2>/dev/null && { echo "it could send a signal"; exit 1; }
echo held`

// tryTimeout bounds the trial.
const tryTimeout = 20 * time.Second

func trySandbox(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var out strings.Builder
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", trialScript)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = []string{"PATH=" + backend.SearchPath}, "/", &out, &out
	g, err := Start(cmd, backend.Lock{})
	if err != nil {
		return err
	}
	err = cmd.Wait()
	hits := g.Close()
	if text := strings.TrimSpace(out.String()); text != "held" {
		return errors.Join(fmt.Errorf("lock: a locked shell was not held: %s", text), err)
	}
	kinds := func(k backend.HitKind) bool {
		return slices.ContainsFunc(hits, func(h backend.Hit) bool { return h.Kind == k })
	}
	if !kinds(backend.HitWrite) || !kinds(backend.HitSignal) {
		return errors.New("lock: what a locked shell tried was not reported")
	}
	return nil
}
