// Package runner is the program that a certificate forces on a host. It runs exactly the action whose
// digest the certificate names, once, and goes on when the connection or the bot is gone; whoever has
// a certificate to follow it gets what it printed from the beginning. For a read-only account,
// it runs commands where the kernel keeps them from changing files.
package runner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"countersign/signer/wire"
	"countersign/targets/backend"
	"countersign/targets/lock"
)

// State is the directory of the runner's records, with a subdirectory for each account. A file beside
// the program whose name ends in .state can name another one.
const State = "/var/lib/countersign"

// Main is the program. It returns the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	j, err := wire.ParseJob(args)
	if err == nil && j.Kind == wire.Watch {
		err = watch(os.Getenv("SSH_ORIGINAL_COMMAND"))
	} else if err == nil {
		err = session(j, stdin, stdout)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "countersign-runner:", err)
		return 1
	}
	return 0
}

// account is who runs this, and where their records are.
func account() (u *user.User, dir string, err error) {
	if u, err = user.Current(); err != nil {
		return nil, "", fmt.Errorf("the account has no name: %w", err)
	}
	state := State
	exe, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	if raw, err := os.ReadFile(exe + ".state"); err == nil {
		state = strings.TrimSpace(string(raw))
	}
	return u, filepath.Join(state, u.Username), nil
}

// watch replaces this process by a shell with a command, confined to the account's directory.
func watch(command string) error {
	if command == "" {
		return errors.New("this account is read-only and has no interactive shell; give a command")
	}
	_, dir, err := account()
	if err != nil {
		return err
	}
	if err := private(dir); err != nil {
		return err
	}
	runtime.LockOSThread()
	if _, err := lock.Confine(dir); err != nil {
		return err
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return err
	}
	return unix.Exec("/bin/sh", []string{"sh", "-c", command}, os.Environ())
}

// private checks that a directory belongs to this account alone.
func private(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("%s isn't there (%w); enroll the host again", dir, err)
	}
	if int(st.Uid) != os.Getuid() || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s doesn't belong to this account alone; enroll the host again", dir)
	}
	return nil
}

// session serves one connection: it begins a run or finds one, and follows it.
func session(j wire.Job, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, wire.MaxRequest)
	head, err := in.ReadSlice('\n')
	var f wire.Frame
	if err != nil || json.Unmarshal(head, &f) != nil || f.Action < 0 || f.Action > wire.MaxRequest {
		return errors.New("the bot speaks another version of this protocol; enroll the host again")
	}
	u, dir, err := account()
	if err == nil {
		err = private(dir)
	}
	run := filepath.Join(dir, j.Name)
	if err == nil && j.Kind == wire.Change {
		raw := make([]byte, f.Action)
		if _, err := io.ReadFull(in, raw); err != nil {
			return err
		}
		var a wire.Action
		if a, err = begin(j, u, run, raw); err == nil {
			// It goes on without its connection. The command itself gets these signals as usual.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTERM)
			go listen(in, run)
			return supervise(a, u, run, time.Duration(f.Limit)*time.Second, &chunks{to: stdout})
		}
	}
	to := &chunks{to: stdout}
	if err != nil {
		return to.tell(wire.Event{Why: err.Error()})
	}
	info, err := os.Stat(filepath.Join(run, "action"))
	if err != nil {
		return to.tell(wire.Event{None: true})
	}
	if why, err := os.ReadFile(filepath.Join(run, "why")); err == nil {
		return to.tell(wire.Event{Why: string(why)})
	}
	if f.Peek {
		e, err := look(run)
		e.Began = info.ModTime()
		return errors.Join(err, to.tell(e))
	}
	if err := to.tell(wire.Event{Began: info.ModTime()}); err != nil {
		return err
	}
	go listen(in, run)
	end, err := follow(run, f.Skip, to)
	if err != nil {
		return err
	}
	return to.tell(end)
}

// listen ends a run when the bot asks for it. That the bot is gone ends nothing.
func listen(in *bufio.Reader, run string) {
	for {
		switch line, err := in.ReadSlice('\n'); {
		case err != nil:
			return
		case string(line) == wire.Stop:
			stop(run)
		}
	}
}

// chunks is the connection to the bot. It is safe for concurrent use.
type chunks struct {
	mu sync.Mutex
	to io.Writer
}

func (c *chunks) write(s wire.Stream, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return wire.WriteChunk(c.to, s, b)
}

func (c *chunks) tell(e wire.Event) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return c.write(wire.Tell, raw)
}

// begin checks an action, and notes that it begins, once. Its errors follow "was not run: ".
func begin(j wire.Job, u *user.User, run string, raw []byte) (a wire.Action, err error) {
	if wire.Digest(raw) != j.Digest {
		return a, errors.New("it isn't what was approved")
	}
	a, err = wire.ReadAction(raw)
	switch {
	case err != nil:
		return a, err
	case len(a.Steps) > 0:
		return a, errors.New("a plan is run step by step")
	case a.User != u.Username:
		return a, fmt.Errorf("it was approved for the account %s, and this is %s", a.User, u.Username)
	}
	if err := unchanged(a); err != nil {
		return a, err
	}
	prune(filepath.Dir(run))
	if err := unix.Mkdir(run, 0o700); errors.Is(err, unix.EEXIST) {
		return a, errors.New("it ran here before, and an approval is good for one run")
	} else if err != nil {
		return a, fmt.Errorf("the host can't note it (%w)", err)
	}
	// What was begun once is on disk before anything happens.
	if err := errors.Join(os.WriteFile(filepath.Join(run, "action"), raw, 0o600), syncDir(filepath.Dir(run))); err != nil {
		return a, fmt.Errorf("the host can't note it (%w)", err)
	}
	return a, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// unchanged checks that the files that people saw are still what they were.
func unchanged(a wire.Action) error {
	if !filepath.IsAbs(a.Dir) {
		return fmt.Errorf("the directory %q isn't absolute", a.Dir)
	}
	for name, want := range a.Files {
		raw, err := hex.DecodeString(want)
		if err != nil || len(raw) != sha256.Size {
			continue // it says something else of the file
		}
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("%s can't be read any more", name)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(h.Sum(nil), raw) {
			return fmt.Errorf("%s changed after it was approved", name)
		}
	}
	return nil
}

// enter makes the approved directory the current one.
func enter(a wire.Action) error {
	if err := unix.Chdir(a.Dir); err != nil {
		return fmt.Errorf("the directory %s can't be used (%w)", a.Dir, err)
	}
	want, ok := strings.CutPrefix(a.Files[strings.TrimSuffix(a.Dir, "/")+"/"], "directory inode ")
	if !ok {
		return nil // by then it was not there, or has no inode
	}
	var st unix.Stat_t
	if err := unix.Stat(".", &st); err != nil || fmt.Sprintf("%d:%d", st.Dev, st.Ino) != want {
		return fmt.Errorf("the directory %s was replaced after it was approved", a.Dir)
	}
	return nil
}

const (
	keep  = 16 << 20               // bytes of each stream that are kept
	drain = 300 * time.Millisecond // how long output may still come after the end
	grace = 2 * time.Second        // between SIGTERM and SIGKILL
)

// supervise runs the command of a run to its end, and passes on what it prints as long as somebody
// listens.
func supervise(a wire.Action, u *user.User, run string, limit time.Duration, to *chunks) error {
	alive, err := hold(run)
	var c *exec.Cmd
	var streams []stream
	if err == nil {
		defer func() { _ = alive.Close() }() // it holds nothing but the lock
		c, streams, err = start(a, u, run)
	}
	if err != nil {
		why := errors.Join(os.WriteFile(filepath.Join(run, "why"), []byte(err.Error()), 0o600), to.tell(wire.Event{Why: err.Error()}))
		return why
	}
	_ = to.tell(wire.Event{Began: time.Now()}) // nobody may be listening any more, here and below
	done := make(chan struct{}, len(streams))
	for i, s := range streams {
		go func() {
			s.copy([]wire.Stream{wire.Out, wire.Err}[i], to)
			done <- struct{}{}
		}()
	}
	if limit > 0 {
		defer time.AfterFunc(limit, func() { stop(run) }).Stop()
	}
	_ = c.Wait()
	code := c.ProcessState.ExitCode()
	if st, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		code = 128 + int(st.Signal())
	}
	late, open := time.After(drain), len(streams)
	for waiting := true; waiting && open > 0; {
		select {
		case <-done:
			open--
		case <-late:
			waiting = false
		}
	}
	end := filepath.Join(run, "end")
	if err := os.WriteFile(end+".new", []byte(strconv.Itoa(code)), 0o600); err == nil {
		_ = os.Rename(end+".new", end)
	}
	_ = to.tell(wire.Event{Ended: time.Now(), Code: code})
	for ; open > 0; open-- { // what it left behind goes on writing
		<-done
	}
	return nil
}

// stream is one of the streams of a command, and the file that keeps it.
type stream struct {
	from, file *os.File
}

// copy passes a stream on to its end, and keeps its beginning.
func (s stream) copy(kind wire.Stream, to *chunks) {
	buf, kept, listens := make([]byte, wire.MaxChunk), 0, true
	for {
		n, err := s.from.Read(buf)
		if n > 0 && kept < keep {
			m, err := s.file.Write(buf[:min(n, keep-kept)])
			if kept += m; err != nil {
				kept = keep // the disk is full
			}
		}
		if n > 0 && listens {
			listens = to.write(kind, buf[:n]) == nil
		}
		if err != nil {
			return
		}
	}
}

// start starts the command of a run.
func start(a wire.Action, u *user.User, run string) (*exec.Cmd, []stream, error) {
	if err := enter(a); err != nil {
		return nil, nil, err
	}
	argv := []string{"sh", "-c", string(a.Bytes)}
	if a.Shell == "bash" {
		argv = []string{"bash", "--noprofile", "--norc", "-c", string(a.Bytes)}
	}
	if err := os.Setenv("PATH", backend.SearchPath); err != nil {
		return nil, nil, err
	}
	c := exec.CommandContext(context.Background(), argv[0], argv[1:]...) //nolint:gosec // what people approved; stop ends it
	c.Env = backend.Environ(backend.Caps{User: u.Username, Home: u.HomeDir})
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	var streams []stream
	for _, name := range []string{"out", "err"} {
		f, err := os.OpenFile(filepath.Join(run, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, nil, err
		}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = w.Close() }() // the command has it
		if name == "out" {
			c.Stdout = w
		} else {
			c.Stderr = w
		}
		streams = append(streams, stream{r, f})
	}
	if err := c.Start(); err != nil {
		return nil, nil, fmt.Errorf("it can't be started: %w", err)
	}
	if err := os.WriteFile(filepath.Join(run, "group"), []byte(strconv.Itoa(c.Process.Pid)), 0o600); err != nil {
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL) // nobody could stop it
		return nil, nil, err
	}
	return c, streams, nil
}

// stop ends a run that goes on.
func stop(run string) {
	raw, err := os.ReadFile(filepath.Join(run, "group"))
	group, bad := strconv.Atoi(string(raw))
	if err != nil || bad != nil || group < 2 {
		return
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if _, err := os.Stat(filepath.Join(run, "end")); err == nil || !supervised(run) {
			return
		}
		_ = unix.Kill(-group, sig)
		for wait := time.Duration(0); wait < grace && unix.Kill(-group, 0) == nil; wait += pause {
			<-time.After(pause)
		}
	}
}

// hold shows that somebody supervises a run, as long as the file is open.
func hold(run string) (*os.File, error) {
	alive, err := os.OpenFile(filepath.Join(run, "alive"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return alive, unix.Flock(int(alive.Fd()), unix.LOCK_EX)
}

// supervised reports whether somebody holds a run.
func supervised(run string) bool {
	f, err := os.Open(filepath.Join(run, "alive"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// look says how a run is.
func look(run string) (wire.Event, error) {
	held := supervised(run) // before the look at its end, which comes first
	name := filepath.Join(run, "end")
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Event{Lost: !held}, nil
	}
	info, bad := os.Stat(name)
	if err = errors.Join(err, bad); err != nil {
		return wire.Event{}, err
	}
	code, err := strconv.Atoi(string(raw))
	return wire.Event{Ended: info.ModTime(), Code: code, Lost: err != nil}, nil
}

const (
	pause     = 2 * time.Millisecond // between two looks at a run that prints
	longPause = 50 * time.Millisecond
)

// follow passes on what a run prints until it has ended, and says how it did.
func follow(run string, skip [2]int64, to *chunks) (wire.Event, error) {
	wait := pause
	buf := make([]byte, wire.MaxChunk)
	files := [2]*os.File{}
	defer func() {
		for _, f := range files {
			_ = f.Close() // they were only read
		}
	}()
	for {
		end, err := look(run)
		if err != nil {
			return end, err
		}
		some := false
		for i, name := range []string{"out", "err"} {
			if files[i] == nil {
				if files[i], err = os.Open(filepath.Join(run, name)); err != nil {
					files[i] = nil
					continue
				}
			}
			for {
				n, err := files[i].ReadAt(buf, skip[i])
				if n > 0 {
					some = true
					skip[i] += int64(n)
					if err := to.write(wire.Stream(i+1), buf[:n]); err != nil {
						return wire.Event{}, err
					}
				}
				if err != nil || n == 0 {
					break
				}
			}
		}
		switch {
		case end.Lost || !end.Ended.IsZero():
			return end, nil
		case some:
			wait = pause
		}
		<-time.After(wait)
		wait = min(wait*5/4, longPause)
	}
}

// keepFor is how long the record of a run is kept, which is far longer than any certificate is valid.
const keepFor = 30 * 24 * time.Hour

// prune deletes old records.
func prune(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && time.Since(info.ModTime()) > keepFor && !supervised(filepath.Join(dir, e.Name())) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}
