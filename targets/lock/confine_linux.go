package lock

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// Exec replaces this process by a program that can change no file outside of a directory, gain no
// privileges and make no Unix socket: no service of the machine or of the account does anything for
// it. Unlike under [Start], IP connections and signals within the account are open. Without Landlock
// in the kernel only permissions keep it from changing files.
func Exec(dir, program string, argv, env []string) error {
	runtime.LockOSThread()
	if err := confine(dir); err != nil {
		return err
	}
	if _, err := withoutSockets(false); err != nil {
		return err
	}
	return unix.Exec(program, argv, env)
}

// Serve is [Exec] for a separate process that can also use Unix streams in the directory, such as
// tmux's: this process connects in its place. began is called when the program runs, and ended with
// its exit code, 128+n for a signal; Serve returns when nothing of it is left. If this process ends
// before, no connection is made any more. An error that wraps [ErrUnsupported] means that nothing was
// started. No other lock with a guard can be put on the program.
func Serve(dir string, cmd *exec.Cmd, began func(), ended func(code int)) error {
	g := &Guard{inet: true, below: dir}
	if err := unix.Pipe2(g.stop[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	// What loses its parent comes to this process, which may look into it then where only ancestors may.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("lock: subreaper: %w", err)
	}
	type started struct {
		fd  int
		err error
	}
	done := make(chan started, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked, so the thread ends with this function
		fd, err := -1, confine(dir)
		if err == nil {
			fd, err = withoutSockets(true)
		}
		if err == nil {
			err = cmd.Start()
		}
		done <- started{fd, err}
	}()
	s := <-done
	if s.err != nil {
		return s.err
	}
	began()
	go g.serveConnections(s.fd)
	for { // until nothing is left
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return nil //nolint:nilerr // nothing is left
		case pid == cmd.Process.Pid && ws.Signaled():
			ended(128 + int(ws.Signal()))
		case pid == cmd.Process.Pid:
			ended(ws.ExitStatus())
		}
	}
}

// serveConnections connects for what the filter with the listener fd is on.
func (g *Guard) serveConnections(fd int) {
	for {
		var n notification
		err := request(fd, notifReceive, unsafe.Pointer(&n))
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue // whoever made it is gone
		} else if err != nil {
			return
		}
		go func() { // one that waits for its host keeps nobody else
			a := g.connect(&n, func() bool { return request(fd, notifValid, unsafe.Pointer(&n.id)) == nil })
			a.id = n.id
			_ = request(fd, notifSend, unsafe.Pointer(&a)) // it may be gone by now
		}()
	}
}

// connectBelow connects a socket to one in the guard's directory: to no link, and to what was looked at.
func (g *Guard) connectBelow(own int, pid uint32, name string) error {
	if !strings.HasPrefix(name, "/") {
		name = filepath.Join(link(pid, "cwd"), name)
	}
	rel, err := filepath.Rel(g.below, name)
	if err != nil {
		return unix.EACCES
	}
	dir, err := unix.Open(g.below, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(dir) }()
	held, err := unix.Openat2(dir, rel, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV})
	if errors.Is(err, unix.ENOENT) {
		return err
	} else if err != nil {
		return unix.EACCES
	}
	defer func() { _ = unix.Close(held) }()
	return unix.Connect(own, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", held)})
}

// withoutSockets keeps Unix sockets from this thread, which may otherwise make every call. With streams it may
// have Unix streams, and each connection is reported to the descriptor that is returned.
func withoutSockets(streams bool) (int, error) {
	m, err := machine(runtime.GOARCH)
	if err != nil {
		return -1, err
	}
	kinds := values(1, allow, refuse(eacces), sockStream)
	kinds.mask = 0xf
	pairs := values(1, allow, refuse(eacces), sockStream, sockSeqpacket)
	pairs.mask = 0xf
	unixOnly, connects, flags := values(0, refuse(eacces), allow, afUnix), always(allow), 0
	if streams {
		unixOnly.and, connects, flags = &kinds, always(report), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	prog := []instruction{
		{code: ldAbs, k: offArch},
		{code: jeq, jt: 1, k: uint32(m.ID)},
		{code: ret, k: uint32(kill)},
		{code: ldAbs, k: offNr},
		{code: jge, jf: 1, k: 0x40000000}, // x32
		{code: ret, k: uint32(refuse(enosys))},
	}
	for _, call := range []struct {
		name string
		rule rule
	}{{"socket", unixOnly}, {"socketpair", pairs}, {"connect", connects}, {"io_uring_setup", always(refuse(enosys))}} {
		nr, ok := m.SyscallNames[call.name]
		if !ok {
			return -1, fmt.Errorf("lock: the system call %s is not known for %s", call.name, runtime.GOARCH)
		}
		body := call.rule.code()
		prog = append(append(prog, instruction{code: jeq, jf: uint8(len(body)), k: uint32(nr)}), body...)
	}
	prog = append(prog, instruction{code: ret, k: uint32(allow)})
	var filter []unix.SockFilter
	for _, in := range prog {
		filter = append(filter, unix.SockFilter{Code: in.code, Jt: in.jt, Jf: in.jf, K: in.k})
	}
	p := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(&p)))
	if e != 0 {
		return -1, fmt.Errorf("%w: seccomp: %w", ErrUnsupported, e)
	}
	return int(fd), nil
}

// confine keeps the calling thread, and whatever it starts from now on, from changing files outside
// of a directory and from gaining privileges: programs with setuid, such as sudo, don't work.
func confine(dir string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("lock: no_new_privs: %w", err)
	}
	if err := dropCapabilities(0); err != nil {
		return err
	}
	rules, ok := Rules(backend.Lock{Net: true, Devices: true}, version())
	if !ok {
		return nil
	}
	attr := struct{ fs, net, scoped uint64 }{rules.FS, 0, 0}
	r, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.fs), 0)
	if e != 0 {
		return fmt.Errorf("lock: landlock_create_ruleset: %w", e)
	}
	set := int(r)
	defer func() { _ = unix.Close(set) }()
	if err := addPathRule(set, dir, rules.FS); err != nil {
		return err
	}
	for _, p := range append(Sinks(), "/dev/ptmx", "/dev/pts", "/dev/tty") {
		if err := addPathRule(set, p, rules.Write); err != nil {
			return err
		}
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); e != 0 {
		return fmt.Errorf("lock: landlock_restrict_self: %w", e)
	}
	return nil
}
