package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
	"countersign/targets/follow"
	"countersign/targets/lock"
)

const (
	defaultGrace = 2 * time.Second
	// drainTime is how long the streams may stay open after the program itself
	// has ended, because a background process still holds them.
	drainTime = 2 * time.Second
	// drainKilled is the same after the group was killed: whatever holds them
	// now has left the group, and nobody waits for it.
	drainKilled = 100 * time.Millisecond
	// reapTime bounds the wait for killed members of the group to vanish.
	reapTime = time.Second
	// pipeMax is the largest pipe buffer that an unprivileged process can set.
	pipeMax = 1 << 20
)

type process struct {
	pid   int
	grace time.Duration
	guard *lock.Guard // nil where it is not locked
	kept  bool        // its leader is the keeper

	killOnce sync.Once
	killed   chan struct{} // closed by Kill

	done chan struct{} // closed when res and err are set
	res  backend.Result
	err  error
}

// Start starts a process in a process group of its own (in a session of its
// own with Detach, and then ctx does not end it). A background process that
// keeps the streams open is waited for up to 2 s after the program's own end.
func (t *Target) Start(ctx context.Context, s backend.Spec) (backend.Process, error) {
	if err := cmp.Or(s.Permitted(), ctx.Err()); err != nil {
		return nil, err
	}
	if s.Lock != nil && s.Lock.System {
		caps, err := t.Probe(ctx)
		if err != nil {
			return nil, err
		}
		s = s.Confined(caps)
	}
	argv := s.Argv
	switch {
	case s.Shell != "" && len(argv) > 0:
		return nil, errors.New("local: a command has both a program and shell text; give one")
	case s.Shell != "":
		argv = []string{"sh", "-c", s.Shell}
	case len(argv) == 0 || argv[0] == "":
		return nil, errors.New("local: the command is empty; give a program or shell text")
	}
	argv = s.Bound(argv)
	dir := s.Dir
	if dir == "" {
		dir = t.dir
	}
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("local: the directory %q is not absolute", dir)
	}
	// The kernel's own error for a missing directory names the program.
	if st, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("local: the directory cannot be used: %w", err)
	} else if !st.IsDir() {
		return nil, fmt.Errorf("local: %s is not a directory: %w", dir, syscall.ENOTDIR)
	}
	env := s.Env
	if env == nil {
		env = t.environ()
	}
	path, err := lookPath(argv[0], pathOf(env), dir)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	kept := s.Mark != "" && s.Lock == nil && t.notes != ""
	if kept {
		if argv, err = t.keep(s, append([]string{path}, argv[1:]...)); err != nil {
			return nil, err
		}
		path = argv[0]
	}

	if s.DirID != "" {
		h, err := holdDir(dir)
		if err != nil {
			return nil, fmt.Errorf("local: the directory cannot be used: %w", err)
		}
		defer h.close() // the child has changed into it by then
		if h.id != s.DirID {
			return nil, fmt.Errorf("local: the directory %s: %w", dir, backend.ErrChanged)
		}
		dir = h.path
	}

	cmd := exec.CommandContext(context.WithoutCancel(ctx), path)
	cmd.Args = argv
	cmd.Dir = dir
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !s.Detach, Setsid: s.Detach}

	st, err := connect(cmd, s)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	var guard *lock.Guard
	if s.Lock == nil {
		err = cmd.Start()
	} else if guard, err = lock.Start(cmd, *s.Lock); errors.Is(err, lock.ErrUnsupported) {
		err = fmt.Errorf("%w: %w", backend.ErrNoLock, err)
	}
	if err != nil {
		st.closeAll()
		return nil, fmt.Errorf("local: %w", err)
	}
	st.closeChild()

	p := &process{
		pid:    cmd.Process.Pid,
		grace:  s.Grace,
		guard:  guard,
		kept:   kept,
		killed: make(chan struct{}),
		done:   make(chan struct{}),
	}
	if p.grace <= 0 {
		p.grace = defaultGrace
	}
	var cancel <-chan struct{}
	if !s.Detach {
		cancel = ctx.Done()
	}
	go p.run(cmd, st, begin, cancel)
	return p, nil
}

// Wait waits for the end of the process and of its output.
func (p *process) Wait() (backend.Result, error) {
	<-p.done
	return p.res, p.err
}

// Kill ends the process group.
func (p *process) Kill() { p.killOnce.Do(func() { close(p.killed) }) }

// run owns the process from its start to its end.
func (p *process) run(cmd *exec.Cmd, st *streams, begin time.Time, cancel <-chan struct{}) {
	defer close(p.done)
	copied := st.copy()
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()

	var err error
	drain := drainTime
	select {
	case err = <-exited:
	case <-cancel:
		p.res.Killed = true
	case <-p.killed:
		p.res.Killed = true
	}
	if p.res.Killed {
		err = p.terminate(exited, false)
		drain = drainKilled
	}
	st.closeStdin()

	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-copied:
	case <-timer.C:
		st.stop()
		<-copied
	case <-orNever(cancel, p.res.Killed):
		_ = p.terminate(nil, true)
		st.stop()
		<-copied
	case <-orNever(p.killed, p.res.Killed):
		_ = p.terminate(nil, true)
		st.stop()
		<-copied
	}
	p.res.Duration = time.Since(begin)
	if p.guard != nil {
		for range sweeps { // nothing of a read outlives it
			if !p.guard.Left() {
				break
			}
			p.signal(syscall.SIGKILL)
		}
		p.res.Hits = p.guard.Close()
	}
	p.err = p.setResult(cmd, err)
}

// orNever returns c, or a channel that never fires when it has fired already.
func orNever(c <-chan struct{}, fired bool) <-chan struct{} {
	if fired {
		return nil
	}
	return c
}

// setResult turns the wait status into the result.
func (p *process) setResult(cmd *exec.Cmd, err error) error {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("local: the process could not be waited for: %w", err)
	}
	p.res.Code = cmd.ProcessState.ExitCode()
	if p.kept {
		p.res.Signal = follow.Signal(p.res.Code)
	}
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		p.res.Code = 128 + int(ws.Signal())
		p.res.Signal = strings.TrimPrefix(unix.SignalName(ws.Signal()), "SIG")
		if p.res.Signal == "" {
			p.res.Signal = strconv.Itoa(int(ws.Signal()))
		}
	}
	return nil
}

// terminate ends the whole group: SIGTERM, grace, SIGKILL, and returns what
// waiting for its leader gave. It returns early when nothing of the group is
// left.
func (p *process) terminate(exited <-chan error, gone bool) error {
	var err error
	wait := func(limit time.Duration) bool {
		deadline := time.NewTimer(limit)
		defer deadline.Stop()
		pause := time.Millisecond
		for {
			if gone && !p.groupAlive() {
				return true
			}
			tick := time.NewTimer(pause)
			select {
			case err = <-exited:
				gone, exited = true, nil
			case <-tick.C:
				pause = min(2*pause, 20*time.Millisecond)
			case <-deadline.C:
				tick.Stop()
				return false
			}
			tick.Stop()
		}
	}
	p.signal(syscall.SIGTERM)
	p.signal(syscall.SIGCONT) // a stopped process would not see SIGTERM
	if wait(p.grace) {
		return err
	}
	p.signal(syscall.SIGKILL)
	_ = wait(reapTime)
	if !gone {
		err = <-exited // in uninterruptible sleep: no signal helps
	}
	return err
}

func (p *process) signal(sig syscall.Signal) {
	_ = syscall.Kill(-p.pid, sig)
	if p.guard == nil {
		return
	}
	// Its session is its own, and holds the groups that it has made.
	for _, s := range stats() {
		if s.session == p.pid && s.group == p.pid {
			continue // the group was told
		}
		if s.session == p.pid || p.guard.Of(s.pid) || p.guard.Started(s.pid) {
			_ = syscall.Kill(s.pid, sig)
		}
	}
}

// sweeps is how often what is left of a read is looked for: it may be starting more.
const sweeps = 4

// stat is what the kernel tells of one process.
type stat struct {
	pid, group, session int
	dead                bool // ended, and nobody has waited for it
}

// stats are those of all processes that can be looked at.
func stats() []stat {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	out := make([]stat, 0, len(names))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		// "pid (name) state ppid pgrp session ...", and the name may hold anything.
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) < 4 {
			continue
		}
		var s stat
		s.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(name)))
		s.group, _ = strconv.Atoi(f[2])
		s.session, _ = strconv.Atoi(f[3])
		s.dead = f[0] == "Z" || f[0] == "X"
		out = append(out, s)
	}
	return out
}

// groupAlive tells whether anything of the group still runs. Zombies do not
// count: where nobody reaps orphans (a container without an init) they stay.
func (p *process) groupAlive() bool {
	if errors.Is(syscall.Kill(-p.pid, 0), syscall.ESRCH) {
		return false
	}
	all := stats()
	if len(all) == 0 {
		return true // it cannot be known
	}
	return slices.ContainsFunc(all, func(s stat) bool { return s.group == p.pid && !s.dead })
}

// streams are the pipes of one process.
type streams struct {
	child  []*os.File // the child's ends, closed after the start
	stdin  *os.File   // our end, or nil
	input  io.Reader
	out    []*os.File // our reading ends
	dst    []io.Writer
	closed sync.Once
}

// connect makes the pipes. One pipe serves both streams when both go to the
// same writer, so that their order is the order written.
func connect(cmd *exec.Cmd, s backend.Spec) (*streams, error) {
	st := &streams{}
	pipe := func() (r, w *os.File, err error) {
		r, w, err = os.Pipe()
		if err != nil {
			st.closeAll()
			return nil, nil, fmt.Errorf("local: %w", err)
		}
		return r, w, nil
	}
	if s.Stdin != nil {
		r, w, err := pipe()
		if err != nil {
			return nil, err
		}
		st.child = append(st.child, r)
		st.stdin, st.input = w, s.Stdin
		cmd.Stdin = r
	}
	if s.Stdout != nil {
		r, w, err := pipe()
		if err != nil {
			return nil, err
		}
		st.child = append(st.child, w)
		st.out, st.dst = append(st.out, r), append(st.dst, s.Stdout)
		cmd.Stdout = w
	}
	if s.Stderr != nil {
		if s.Stdout != nil && sameWriter(s.Stdout, s.Stderr) {
			cmd.Stderr = cmd.Stdout
			return st, nil
		}
		r, w, err := pipe()
		if err != nil {
			return nil, err
		}
		st.child = append(st.child, w)
		st.out, st.dst = append(st.out, r), append(st.dst, s.Stderr)
		cmd.Stderr = w
	}
	return st, nil
}

// sameWriter compares two writers; types that cannot be compared differ.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a == b
}

func (st *streams) closeChild() {
	for _, f := range st.child {
		_ = f.Close()
	}
	st.child = nil
}

func (st *streams) closeStdin() {
	if st.stdin != nil {
		st.closed.Do(func() { _ = st.stdin.Close() })
	}
}

func (st *streams) closeAll() {
	st.closeChild()
	st.closeStdin()
	for _, f := range st.out {
		_ = f.Close()
	}
}

// copy starts to copy and returns a channel that is closed when all output has
// been copied. Input is not waited for: its reader may block for ever.
func (st *streams) copy() <-chan struct{} {
	if st.stdin != nil {
		go func() {
			_, _ = io.Copy(st.stdin, st.input)
			st.closeStdin()
		}()
	}
	var wg sync.WaitGroup
	for i := range st.out {
		wg.Go(func() { copyOutput(st.dst[i], st.out[i]) })
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// stop ends the copying once what is in the pipes now has been read.
func (st *streams) stop() {
	for _, f := range st.out {
		_ = f.SetReadDeadline(time.Unix(1, 0))
	}
}

// copyOutput copies until the end, or until stop. A writer that fails gets no
// more, but the process is not blocked by it.
func copyOutput(dst io.Writer, src *os.File) {
	defer func() { _ = src.Close() }()
	buf := make([]byte, 64<<10)
	write := func(b []byte) {
		if dst == nil || len(b) == 0 {
			return
		}
		if _, err := dst.Write(b); err != nil {
			dst = nil
		}
	}
	for {
		n, err := src.Read(buf)
		write(buf[:n])
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The deadline wins over bytes that are there already: take those.
			drainPipe(src, buf, write)
		}
		return
	}
}

func drainPipe(src *os.File, buf []byte, write func([]byte)) {
	if src.SetReadDeadline(time.Time{}) != nil {
		return
	}
	raw, err := src.SyscallConn()
	if err != nil {
		return
	}
	for left := pipeMax; left > 0; {
		n := 0
		if err := raw.Read(func(fd uintptr) bool {
			n, _ = syscall.Read(int(fd), buf)
			return true
		}); err != nil || n <= 0 {
			return
		}
		write(buf[:n])
		left -= n
	}
}

// pathOf returns the PATH of an environment.
func pathOf(env []string) string {
	path := backend.SearchPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	return path
}

// notExist tells whether err means that something is not there.
func notExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
