package lock

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// Guard answers the calls that the filter of one locked process reports, and keeps what
// was refused. One goroutine of its own does so until Close, or until nothing is left of
// the process.
type Guard struct {
	sockets    []string
	below      string // the directory whose sockets are open, or ""
	inet       bool
	files      bool
	landlocked bool
	keeps      uint64            // capabilities of its thread
	forks      int               // so far; counted where files may change
	tree       bool              // what is of the process descends from this one; else it is of its session
	blind      bool              // it cannot look at the process' sockets
	bound, two bool              // what a blind one let go on: bind, and making a pair of Unix sockets
	memory     uint64            // the bound of the process' data: a number of its own
	root       string            // of the files that say what systemd starts, for tests
	told       func(backend.Hit) // of each hit, or nil
	after      func()            // what is left to do when the call was answered
	names      map[int32]string  // of the calls that are reported
	slack      uint64            // the timer slack of all that comes from the process, in nanoseconds
	stop       [2]int            // a pipe: closing its writing end ends the goroutine
	done       chan struct{}     // closed when it has ended; nil when it never began

	mu   sync.Mutex
	hits []backend.Hit
	once sync.Once
}

func newGuard(l backend.Lock, f Filter) (*Guard, error) {
	g := &Guard{sockets: l.Sockets, inet: l.Net || l.Admin || l.Netlink, files: l.Files, keeps: Capabilities(l) | 1<<unix.CAP_KILL, names: map[int32]string{}}
	if l.Files { // what is in a view may have become another account
		g.keeps = math.MaxUint64
	}
	for name, nr := range f.Calls {
		g.names[int32(nr)] = name
	}
	if err := unix.Pipe2(g.stop[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return g, nil
}

// Close ends the guard and returns what the process tried in vain, each once, at most
// backend.MaxHits. What is left of the process fails at its next reported call.
func (g *Guard) Close() []backend.Hit {
	g.once.Do(func() {
		_ = unix.Close(g.stop[1])
		if g.done != nil {
			<-g.done
		}
		_ = unix.Close(g.stop[0])
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.hits)
}

// Left reports whether anything of the process still runs, after its first program was
// waited for.
func (g *Guard) Left() bool {
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-g.done: // the kernel hangs up when the last one has ended
		return false
	case <-t.C:
		return true
	}
}

// maxForks is how many processes and threads a command may begin in a view of files, all in all: a bound for
// those that only multiply. The guards of targets/remote have it, too.
const maxForks = 4096

// settle is how long the kernel may take to hang up.
const settle = 5 * time.Millisecond

// notification and answer are the kernel's structures (linux/seccomp.h).
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

type insert struct {
	id                uint64
	flags, from, into uint32
	newFlags          uint32
}

// Requests to the descriptor of a filter's listener.
const (
	notifReceive = 0xc0502100
	notifSend    = 0xc0182101
	notifValid   = 0x40082102
	notifInsert  = 0x40182103

	flagContinue = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE
)

func (g *Guard) serve(fd int) {
	g.done = make(chan struct{})
	go func() {
		defer close(g.done)
		defer func() { _ = unix.Close(fd) }()
		// What it does for the process it does with what the process may: the thread ends with this function.
		runtime.LockOSThread()
		if dropCapabilities(g.keeps) != nil {
			return
		}
		for g.next(fd) {
		}
	}()
}

// next waits for one call and answers it; false is the end.
func (g *Guard) next(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(g.stop[0]), Events: unix.POLLIN}}
	if _, err := unix.Poll(p, -1); err != nil {
		return errors.Is(err, unix.EINTR)
	}
	if p[0].Revents&unix.POLLIN == 0 {
		return p[0].Revents == 0 && p[1].Revents == 0
	}
	var n notification
	if request(fd, notifReceive, unsafe.Pointer(&n)) != nil {
		return true // whoever made it is gone
	}
	a := g.decide(fd, &n)
	a.id = n.id
	_ = request(fd, notifSend, unsafe.Pointer(&a)) // it may be gone by now
	if g.after != nil {
		g.after()
		g.after = nil
	}
	return true
}

func request(fd int, what uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), what, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

var continueAnswer = answer{flags: flagContinue}

// refusal is the answer to what is refused.
func refusal(errno int32) answer { return answer{errno: -errno} }

func (g *Guard) hit(kind backend.HitKind, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := backend.Hit{Kind: kind, Name: name}
	if len(g.hits) < backend.MaxHits && !slices.Contains(g.hits, h) {
		g.hits = append(g.hits, h)
		if g.told != nil {
			g.told(h)
		}
	}
}

func (g *Guard) decide(fd int, n *notification) answer {
	name := g.names[n.nr]
	valid := func() bool { return request(fd, notifValid, unsafe.Pointer(&n.id)) == nil }
	switch name {
	case "open", "openat", "creat":
		return g.open(fd, n, name, valid)
	case "kill", "tkill", "tgkill":
		if g.tree && name == "kill" && (int32(n.args[0]) == 0 || int32(n.args[0]) < -1) {
			if a, ok := g.signalGroup(n); ok {
				return a
			}
		} else if g.ownSignal(n, name) && valid() {
			return continueAnswer
		}
		g.hit(backend.HitSignal, target(int32(n.args[0])))
		return refusal(eperm)
	case "pidfd_send_signal":
		if pid := pidOf(n.pid, int(n.args[0])); pid > 0 && (n.args[1] == 0 || g.own(n.pid, pid)) {
			// The guard sends it: the descriptor may be another one's by now.
			g.after = func() { _ = unix.Kill(pid, unix.Signal(n.args[1])) }
			return answer{}
		}
		g.hit(backend.HitSignal, "")
		return refusal(eperm)
	case "socket":
		g.hit(backend.HitConnect, "")
		return refusal(eacces)
	case "connect":
		return g.connect(n, valid)
	case "bind":
		return g.bind(n, valid)
	case "socketpair":
		if g.blind && g.bound {
			return refusal(eacces)
		}
		g.two = true
		return g.goOn(valid)
	case "ioctl":
		g.hit(backend.HitDevice, link(n.pid, fmt.Sprintf("fd/%d", int32(n.args[0]))))
		return refusal(eperm)
	case "listen":
		g.hit(backend.HitConnect, "")
		return refusal(eacces)
	case "fork", "vfork", "clone":
		if name != "clone" || n.args[0]&cloneSpaces == 0 {
			if g.forks++; g.forks > maxForks {
				return refusal(eagain)
			}
			return g.goOn(valid)
		}
	}
	g.hit(backend.HitChange, g.about(n, name))
	if slices.Contains(onFiles, name) {
		return refusal(erofs)
	}
	return refusal(eperm)
}

// about names the file of a change, as far as that is easy: for people.
func (g *Guard) about(n *notification, name string) string {
	switch name {
	case "unlinkat", "mkdirat", "mknodat", "fchmodat", "fchmodat2", "fchownat", "utimensat", "futimesat", "renameat", "renameat2":
		if s, ok := text(n.pid, n.args[1]); ok {
			return absolute(n.pid, int32(n.args[0]), s)
		}
	case "truncate", "unlink", "rename", "mkdir", "rmdir", "mknod", "chmod", "chown", "lchown", "utime", "utimes", "setxattr",
		"lsetxattr", "removexattr", "lremovexattr":
		if s, ok := text(n.pid, n.args[0]); ok {
			return absolute(n.pid, unix.AT_FDCWD, s)
		}
	case "link", "symlink":
		if s, ok := text(n.pid, n.args[1]); ok {
			return absolute(n.pid, unix.AT_FDCWD, s)
		}
	case "fchmod", "fchown", "fsetxattr", "fremovexattr":
		return link(n.pid, fmt.Sprintf("fd/%d", int32(n.args[0])))
	}
	return ""
}

// open decides about a file that is opened for writing. Sinks and the process' own
// streams are opened by the guard, and the descriptor is given to the process: what the
// path says by then does not matter.
func (g *Guard) open(fd int, n *notification, name string, valid func() bool) answer {
	at, arg, flags := int32(unix.AT_FDCWD), n.args[0], int(int32(n.args[1]))
	switch name {
	case "openat":
		at, arg, flags = int32(n.args[0]), n.args[1], int(int32(n.args[2]))
	case "creat":
		flags = unix.O_CREAT | unix.O_WRONLY | unix.O_TRUNC
	}
	p, ok := text(n.pid, arg)
	if !ok {
		if g.landlocked && valid() {
			return continueAnswer // it cannot be looked into, and Landlock refuses what is no sink
		}
		g.hit(backend.HitWrite, "")
		return refusal(erofs)
	}
	if g.files {
		if whole := absolute(n.pid, at, p); flags&openWrites == 0 {
			if whole == "/proc" {
				g.hit(backend.HitList, "")
			}
			return g.goOn(valid)
		} else if !unlike(whole) {
			return g.goOn(valid)
		}
	}
	var give int
	var err error
	switch own, is := stream(p); {
	case slices.Contains(Sinks(), p):
		give, err = unix.Open(p, flags&(unix.O_ACCMODE|unix.O_NONBLOCK|unix.O_APPEND)|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	case is:
		give, err = writable(n.pid, own)
	case p == "/dev/tty":
		return refusal(int32(unix.ENXIO)) // it has no terminal
	default:
		g.hit(backend.HitWrite, absolute(n.pid, at, p))
		return refusal(erofs)
	}
	if err != nil {
		g.hit(backend.HitWrite, p)
		return refusal(erofs)
	}
	defer func() { _ = unix.Close(give) }()
	in := insert{id: n.id, from: uint32(give), newFlags: uint32(flags & unix.O_CLOEXEC)}
	into, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), notifInsert, uintptr(unsafe.Pointer(&in)))
	if e != 0 {
		return refusal(erofs)
	}
	return answer{val: int64(into)}
}

// goOn lets a call go on, if whoever makes it still does.
func (g *Guard) goOn(valid func() bool) answer {
	if valid() {
		return continueAnswer
	}
	return refusal(eperm)
}

// unlike reports whether a path, opened for writing, leads to what a view of files has no copy of: the
// kernel, devices and the process' own streams.
func unlike(p string) bool {
	for _, dir := range []string{"/proc/", "/sys/", "/dev/"} {
		if strings.HasPrefix(p, dir) {
			return !strings.HasPrefix(p, "/dev/shm/")
		}
	}
	return false
}

// stream is the descriptor that a path like /dev/stderr or /proc/self/fd/3 stands for.
func stream(p string) (int, bool) {
	switch p {
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if rest, ok := strings.CutPrefix(p, dir); ok {
			n, err := strconv.Atoi(rest)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// writable is a copy of a descriptor of a process that it can write to already: a pipe,
// a socket or a sink. A file is none.
func writable(pid uint32, fd int) (int, error) {
	own, err := descriptor(pid, fd)
	if err != nil {
		return reopened(pid, fd)
	}
	var st unix.Stat_t
	flags, ferr := unix.FcntlInt(uintptr(own), unix.F_GETFL, 0)
	if err := unix.Fstat(own, &st); err != nil || ferr != nil || flags&unix.O_ACCMODE == unix.O_RDONLY ||
		st.Mode&unix.S_IFMT != unix.S_IFIFO && st.Mode&unix.S_IFMT != unix.S_IFCHR {
		_ = unix.Close(own)
		return -1, unix.EROFS
	}
	return own, nil
}

// reopened is what a descriptor of a process leads to, opened for writing: a pipe without
// a name, or a sink. It is for where descriptors cannot be copied.
func reopened(pid uint32, fd int) (int, error) {
	var flags int
	info, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
	for line := range bytes.Lines(info) {
		if rest, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(rest)), 8, 32)
			flags = int(n)
		}
	}
	held, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(held) }()
	// What is held is opened, whatever the name leads to by now.
	self := fmt.Sprintf("/proc/self/fd/%d", held)
	to, err := os.Readlink(self)
	if err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY || !strings.HasPrefix(to, "pipe:") && !slices.Contains(Sinks(), to) {
		return -1, unix.EROFS
	}
	own, err := unix.Open(self, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0) // without waiting for a reader
	if err != nil {
		return -1, err
	}
	if _, err := unix.FcntlInt(uintptr(own), unix.F_SETFL, flags&(unix.O_NONBLOCK|unix.O_APPEND)); err != nil {
		_ = unix.Close(own)
		return -1, err
	}
	return own, nil
}

// descriptor is a copy of a descriptor of another process.
func descriptor(pid uint32, fd int) (int, error) {
	p, err := unix.PidfdOpen(leader(pid), 0)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(p) }()
	return unix.PidfdGetfd(p, fd, 0)
}

// leader is the process of a thread.
func leader(tid uint32) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return int(tid)
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Tgid:")); ok {
			if n, err := strconv.Atoi(string(bytes.TrimSpace(rest))); err == nil {
				return n
			}
		}
	}
	return int(tid)
}

// bind binds IP and netlink sockets for the process. A guard that can't inspect sockets allows bind only until the first
// socketpair.
func (g *Guard) bind(n *notification, valid func() bool) answer {
	if g.blind && g.inet && !g.two && valid() {
		g.bound = true
		return continueAnswer
	}
	if own, f := socket(n); own >= 0 {
		defer func() { _ = unix.Close(own) }()
		if raw, ok := address(n); ok && g.inet && isInet(f) && !joins(f, raw) && valid() {
			return returned(bindTo(own, raw))
		}
	}
	g.hit(backend.HitChange, "")
	return refusal(eacces)
}

// connect lets IP through where that is open. Where Unix sockets can be made, the guard
// connects itself, with the address that it has read and the socket that it has looked
// at, so that the process cannot put another one in between.
func (g *Guard) connect(n *notification, valid func() bool) answer {
	if len(g.sockets) == 0 && g.below == "" && g.inet && valid() {
		return continueAnswer // a Unix socket can be one of a pair only, which is connected
	}
	own, f := socket(n)
	if own < 0 {
		g.hit(backend.HitConnect, "")
		return refusal(eacces)
	}
	defer func() { _ = unix.Close(own) }()
	raw, ok := address(n)
	switch {
	case isInet(f) && g.inet && ok && !joins(f, raw) && valid():
		return returned(g.connectTo(own, raw, valid))
	case f != afUnix:
		g.hit(backend.HitConnect, "")
		return refusal(eacces)
	case !ok || len(raw) < 3 || !valid():
		return refusal(int32(unix.ECONNREFUSED))
	}
	name, _, _ := bytes.Cut(raw[2:], []byte{0})
	p := string(name)
	if g.below != "" && p != "" {
		return returned(g.connectBelow(own, n.pid, p))
	}
	if p == "" || !slices.Contains(g.sockets, p) {
		if p != "" && !slices.Contains(resolver, p) {
			g.hit(backend.HitConnect, p)
		}
		return refusal(int32(unix.ECONNREFUSED))
	}
	if unit := g.starts(p); unit != "" {
		g.hit(backend.HitStart, unit)
		return refusal(int32(unix.ECONNREFUSED))
	}
	raw = append(append([]byte{afUnix, 0}, p...), 0)
	return returned(g.connectTo(own, raw, valid))
}

// joins reports whether an address of the kernel's sockets is that of a group, which the guard does not stand in for.
func joins(family int, raw []byte) bool {
	return family == afNetlink && (len(raw) < 12 || binary.LittleEndian.Uint32(raw[8:]) != 0)
}

// starts names the service that systemd would start for a connection to a socket; "" if it runs, or systemd doesn't
// listen there.
func (g *Guard) starts(socket string) string {
	root := cmp.Or(g.root, "/")
	if _, err := os.Stat(root + "/run/systemd/system"); err != nil {
		return ""
	}
	for _, dir := range []string{"etc", "run", "usr/lib", "lib"} {
		units, _ := filepath.Glob(root + "/" + dir + "/systemd/system/*.socket")
		for _, unit := range units {
			service := strings.TrimSuffix(filepath.Base(unit), ".socket") + ".service"
			listens := false
			text, _ := os.ReadFile(unit)
			for line := range strings.Lines(string(text)) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				switch strings.TrimSpace(key) {
				case "ListenStream", "ListenSequentialPacket":
					value = strings.Replace(strings.TrimSpace(value), "%t/", "/run/", 1)
					listens = listens || strings.TrimPrefix(value, "/var") == strings.TrimPrefix(socket, "/var")
				case "Service":
					service = strings.TrimSpace(value)
				}
			}
			if !listens {
				continue
			}
			for _, groups := range []string{"", "/systemd", "/unified"} {
				if _, err := os.Stat(root + "/sys/fs/cgroup" + groups + "/system.slice/" + service); err == nil {
					return ""
				}
			}
			return service
		}
	}
	return ""
}

// socket is a copy of the socket that a call is about, and its family; -1 if it cannot be
// looked at.
func socket(n *notification) (fd, family int) {
	fd, err := descriptor(n.pid, int(int32(n.args[0])))
	if err != nil {
		return -1, 0
	}
	family, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		_ = unix.Close(fd)
		return -1, 0
	}
	return fd, family
}

func isInet(family int) bool { return family == afInet || family == afInet6 || family == afNetlink }

// address reads the address of a call.
func address(n *notification) ([]byte, bool) {
	raw := make([]byte, min(n.args[2], 128))
	return raw, len(raw) > 0 && memory(n.pid, n.args[1], raw)
}

// returned is the answer of a call that the guard has made.
func returned(err error) answer {
	var e unix.Errno
	switch {
	case err == nil:
		return answer{}
	case errors.As(err, &e):
		return refusal(int32(e))
	}
	return refusal(eacces)
}

func bindTo(fd int, raw []byte) error {
	if _, _, e := unix.Syscall(unix.SYS_BIND, uintptr(fd), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw))); e != 0 {
		return e
	}
	return nil
}

// connectTo connects a copy of a socket. It waits where the process would, and not longer
// than the process does.
func (g *Guard) connectTo(fd int, raw []byte, valid func() bool) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	waits := flags&unix.O_NONBLOCK == 0
	if waits {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_NONBLOCK)
		defer func() { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags) }()
	}
	_, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)))
	for waits && e == unix.EAGAIN && valid() { // a Unix socket whose queue is full
		p := []unix.PollFd{{Fd: int32(g.stop[0]), Events: unix.POLLIN}}
		if n, _ := unix.Poll(p, 10); n > 0 {
			return unix.EINTR
		}
		_, _, e = unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw)))
	}
	switch {
	case e == 0:
		return nil
	case e != unix.EINPROGRESS || !waits:
		return e
	}
	for valid() {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}, {Fd: int32(g.stop[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(p, 100); err != nil && !errors.Is(err, unix.EINTR) || p[1].Revents != 0 {
			break
		}
		if p[0].Revents == 0 {
			continue
		}
		if n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || n != 0 {
			return cmp.Or[error](err, unix.Errno(n))
		}
		return nil
	}
	return unix.EINTR
}

// ownSignal reports whether a signal stays within the session of the process.
func (g *Guard) ownSignal(n *notification, name string) bool {
	to := int32(n.args[0])
	if name == "kill" {
		switch {
		case to == 0:
			return true
		case to == -1:
			return false
		case to < 0:
			to = -to
		}
	}
	return to > 0 && g.own(n.pid, int(to))
}

// own reports whether a process is one of those that this one came with.
func (g *Guard) own(pid uint32, to int) bool {
	if g.tree {
		return descends(to)
	}
	return sameSession(pid, to)
}

// signalGroup answers a signal to a group, where others may be in it, too: the guard sends it to those that come from
// the process.
func (g *Guard) signalGroup(n *notification) (answer, bool) {
	group := int(-int32(n.args[0]))
	if group == 0 {
		group, _ = unix.Getpgid(int(n.pid))
	}
	var members []int
	for pid, s := range processes() {
		if s.group == group && descends(pid) {
			members = append(members, pid)
		}
	}
	if len(members) == 0 {
		return answer{}, false
	}
	// Not before the answer: what waits in a call makes it again after a signal.
	sig := unix.Signal(n.args[1])
	g.after = func() {
		for _, pid := range members {
			_ = unix.Kill(pid, sig)
		}
	}
	return answer{}, true
}

// status is what the kernel tells of a process.
type status struct{ parent, group int }

// processes are those that can be looked at.
func processes() map[int]status {
	out := map[int]status{}
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue // it has just ended
		}
		// "pid (name) state parent group", and the name may hold anything.
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 3 {
			continue
		}
		var s status
		s.parent, _ = strconv.Atoi(string(f[1]))
		s.group, _ = strconv.Atoi(string(f[2]))
		out[pid] = s
	}
	return out
}

// descends reports whether a process or thread comes from this process.
func descends(pid int) bool {
	for range 1000 {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return false
		}
		pid = 0
		for line := range bytes.Lines(b) {
			if rest, ok := bytes.CutPrefix(line, []byte("PPid:")); ok {
				pid, _ = strconv.Atoi(string(bytes.TrimSpace(rest)))
				break
			}
		}
		switch pid {
		case os.Getpid():
			return true
		case 0:
			return false
		}
	}
	return false
}

func sameSession(a uint32, b int) bool {
	x, err := unix.Getsid(int(a))
	if err != nil {
		return false
	}
	y, err := unix.Getsid(b)
	return err == nil && x == y
}

// pidOf is the process behind a pidfd of another one; 0 if that is not known.
func pidOf(pid uint32, fd int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
			n, _ := strconv.Atoi(string(bytes.TrimSpace(rest)))
			return n
		}
	}
	return 0
}

// target names a process for people.
func target(pid int32) string {
	if pid < 0 {
		pid = -pid
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
		return fmt.Sprintf("%s (%d)", strings.TrimSpace(string(b)), pid)
	}
	return ""
}

// memory reads from a process; false when it cannot be read.
func memory(pid uint32, at uint64, into []byte) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	n, _ := f.ReadAt(into, int64(at))
	return n == len(into)
}

// text reads a string of a process.
func text(pid uint32, at uint64) (string, bool) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }()
	var out []byte
	for len(out) < unix.PathMax {
		// To the end of the page: the next one may not be there.
		b := make([]byte, 4096-(at+uint64(len(out)))%4096)
		n, err := f.ReadAt(b, int64(at)+int64(len(out)))
		if end := bytes.IndexByte(b[:n], 0); end >= 0 {
			return string(append(out, b[:end]...)), true
		}
		if err != nil || n == 0 {
			return "", false
		}
		out = append(out, b[:n]...)
	}
	return "", false
}

func link(pid uint32, what string) string {
	s, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid, what))
	if err != nil {
		return ""
	}
	return s
}

// absolute is a path of a process, for people.
func absolute(pid uint32, at int32, p string) string {
	if strings.HasPrefix(p, "/") {
		return path.Clean(p)
	}
	base := link(pid, "cwd")
	if at != unix.AT_FDCWD {
		base = link(pid, fmt.Sprintf("fd/%d", at))
	}
	return path.Join(base, p)
}
