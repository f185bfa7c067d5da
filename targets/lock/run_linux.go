package lock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// leftTime is how long what a program has left behind may take to end by itself, and
// endTime how long it is then tried to end it.
const (
	leftTime = 5 * time.Millisecond
	endTime  = time.Second
)

// Run runs a program under a lock with this process' own streams, environment, directory
// and process group, and returns its exit code, 128+n when a signal ended it. It is for a
// process that does nothing else (cmd/countersign-lock): what ends the group does not end
// this process, what loses its parent comes to it, and nothing of the program outlives
// the program. If this process is killed, so is the program.
//
// began is called when the lock is on, before the program begins, with the version of
// Landlock (0: none) and whether the guard can look at sockets; told for each hit, from
// another goroutine, at most backend.MaxHits times. An error means that nothing was
// started.
func Run(argv []string, l backend.Lock, began func(landlock int, sockets bool), told func(backend.Hit)) (int, error) {
	sees := seesSockets()
	if !sees && len(l.Sockets) > 0 {
		return 0, fmt.Errorf("%w: it cannot leave one Unix socket open and hold the others", ErrUnsupported)
	}
	f, err := Make(l, runtime.GOARCH)
	if err != nil {
		return 0, err
	}
	g, err := newGuard(l, f)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	g.tree, g.told, g.blind = true, told, !sees
	sealDescriptors()
	// Not ignored, which the program would inherit, but not heeded.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("lock: subreaper: %w", err)
	}
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release() // as in Start
	}

	limit(0, Memory(l, free()), mostProcesses()) // this process, and what it begins

	path, missing := exec.LookPath(argv[0])
	if missing == nil && !filepath.IsAbs(path) && !strings.Contains(argv[0], "/") {
		missing = exec.ErrDot
	}
	var cmd *exec.Cmd
	start := func(path string, argv []string) error {
		cmd = &exec.Cmd{Path: path, Args: argv, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: firstClone}
		return cmd.Start()
	}
	started, over := make(chan error, 1), make(chan struct{})
	defer close(over)
	var locked bool
	go func() {
		runtime.LockOSThread()
		err := func() error {
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
			locked = true
			v := 0
			if landlocked {
				v = version()
			}
			began(v, sees)
			if missing != nil {
				return missing
			}
			err = start(path, argv)
			if errors.Is(err, unix.ENOEXEC) { // a script that names no program, as execvp(3) has it
				err = start("/bin/sh", append([]string{"sh", path}, argv[1:]...))
			}
			return err
		}()
		started <- err
		<-over // the program ends with the thread that it was born from
	}()
	if err := <-started; err != nil {
		if !locked {
			return 0, err
		}
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", argv[0], errors.Unwrap(err))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			return 127, nil
		}
		return 126, nil
	}
	// The program's own streams are not held.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Dup3(null, 0, 0), unix.Dup3(null, 1, 0)
		_ = unix.Close(null)
	}
	_ = cmd.Wait()
	reap()
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// reap waits for what the program has left behind, and ends it.
func reap() {
	begin := time.Now()
	for {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.ECHILD) {
				return
			}
			if err != nil && !errors.Is(err, unix.EINTR) || err == nil && pid == 0 {
				break
			}
		}
		switch since := time.Since(begin); {
		case since > endTime:
			return
		case since > leftTime:
			all, tree := processes(), map[int]bool{os.Getpid(): true}
			for grown := true; grown; {
				grown = false
				for pid, s := range all {
					if tree[s.parent] && !tree[pid] {
						tree[pid], grown = true, true
					}
				}
			}
			for pid := range tree {
				if pid != os.Getpid() {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			}
		}
		<-time.After(time.Millisecond)
	}
}

// seesSockets reports whether descriptors of other processes can be copied: the filter of
// an engine may refuse it.
func seesSockets() bool {
	p, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(p) }()
	fd, err := unix.PidfdGetfd(p, 2, 0)
	if err != nil {
		return false
	}
	_ = unix.Close(fd)
	return true
}
