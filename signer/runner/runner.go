// Package runner is the program that a certificate forces on a host. It runs exactly the action whose
// digest the certificate names, once, and goes on when the connection or the bot is gone; whoever has
// a certificate to follow it gets what it printed from the beginning. For an account that only looks,
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
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"countersign/signer/wire"
	"countersign/targets/backend"
	"countersign/targets/lock"
)

// State is the directory of the runner's records, below which each account has one of its own, unless
// a file beside the program, which ends in .state, names another.
const State = "/var/lib/countersign"

// Main is the program. It returns the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == "supervise" {
		return supervise(args[1])
	}
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
		return errors.New("this account only looks, so it has no terminal of its own; give a command")
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
	environ := append(os.Environ(), "TMPDIR="+dir)
	return unix.Exec("/bin/sh", []string{"sh", "-c", command}, environ)
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
	tell := func(e wire.Event) error {
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}
		return wire.WriteChunk(stdout, wire.Tell, raw)
	}
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
		err = begin(j, u, run, raw, f.Limit)
	}
	if err != nil {
		return tell(wire.Event{Why: err.Error()})
	}
	info, err := os.Stat(filepath.Join(run, "action"))
	if err != nil {
		return tell(wire.Event{None: true})
	}
	if why, err := os.ReadFile(filepath.Join(run, "why")); err == nil {
		return tell(wire.Event{Why: string(why)})
	}
	if f.Peek {
		e, err := look(run)
		e.Began = info.ModTime()
		return errors.Join(err, tell(e))
	}
	if err := tell(wire.Event{Began: info.ModTime()}); err != nil {
		return err
	}
	go func() {
		for {
			switch line, err := in.ReadSlice('\n'); {
			case err != nil:
				return // the run goes on without its connection
			case string(line) == wire.Stop:
				stop(run)
			}
		}
	}()
	end, err := follow(run, f.Skip, stdout)
	if err != nil {
		return err
	}
	return tell(end)
}

// begin checks an action and starts it, once. Its errors follow "was not run: ".
func begin(j wire.Job, u *user.User, run string, raw []byte, limit int) error {
	if wire.Digest(raw) != j.Digest {
		return errors.New("it isn't what was approved")
	}
	a, err := wire.ReadAction(raw)
	switch {
	case err != nil:
		return err
	case len(a.Steps) > 0:
		return errors.New("a plan is run step by step")
	case a.User != u.Username:
		return fmt.Errorf("it was approved for the account %s, and this is %s", a.User, u.Username)
	}
	if err := unchanged(a); err != nil {
		return err
	}
	prune(filepath.Dir(run))
	if err := unix.Mkdir(run, 0o700); errors.Is(err, unix.EEXIST) {
		return errors.New("it ran here before, and an approval is good for one run")
	} else if err != nil {
		return fmt.Errorf("the host can't note it (%w)", err)
	}
	for name, content := range map[string][]byte{"action": raw, "limit": []byte(strconv.Itoa(limit))} {
		if err := os.WriteFile(filepath.Join(run, name), content, 0o600); err != nil {
			return fmt.Errorf("the host can't note it (%w)", err)
		}
	}
	// What was begun once is on disk before anything happens.
	for _, d := range []string{run, filepath.Dir(run)} {
		if err := syncDir(d); err != nil {
			return fmt.Errorf("the host can't note it (%w)", err)
		}
	}
	if err := start(run); err != nil {
		return errors.Join(err, os.WriteFile(filepath.Join(run, "why"), []byte(err.Error()), 0o600))
	}
	return nil
}

// start starts the supervisor of a run and waits until the command runs.
func start(run string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	ready, up, err := os.Pipe()
	if err != nil {
		return err
	}
	c := exec.CommandContext(context.Background(), exe, "supervise", run) // nothing ends it
	c.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	c.ExtraFiles = []*os.File{up}
	err = c.Start()
	_ = up.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("it can't be started: %w", err), ready.Close())
	}
	why, err := io.ReadAll(ready) // closed once the command runs
	if err = errors.Join(err, ready.Close()); err == nil && len(why) > 0 {
		err = errors.New(string(why))
	}
	return err
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

// supervise runs the command of a run to its end. It is a process of its own, which no connection
// holds; file 3 is who waits for its begin.
func supervise(run string) int {
	unix.CloseOnExec(3)
	up := os.NewFile(3, "up")
	refuse := func(err error) int {
		_, _ = fmt.Fprint(up, err)
		return 1
	}
	raw, err := os.ReadFile(filepath.Join(run, "action"))
	if err != nil {
		return refuse(err)
	}
	a, err := wire.ReadAction(raw)
	if err != nil {
		return refuse(err)
	}
	alive, err := os.OpenFile(filepath.Join(run, "alive"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return refuse(err)
	}
	if err := unix.Flock(int(alive.Fd()), unix.LOCK_EX); err != nil {
		return refuse(err)
	}
	if err := enter(a); err != nil {
		return refuse(err)
	}
	u, err := user.Current()
	if err != nil {
		return refuse(err)
	}
	argv := []string{"sh", "-c", string(a.Bytes)}
	if a.Shell == "bash" {
		argv = []string{"bash", "--noprofile", "--norc", "-c", string(a.Bytes)}
	}
	if err := os.Setenv("PATH", backend.SearchPath); err != nil {
		return refuse(err)
	}
	c := exec.CommandContext(context.Background(), argv[0], argv[1:]...) //nolint:gosec // what people approved; stop ends it
	c.Env = backend.Environ(backend.Caps{User: u.Username, Home: u.HomeDir})
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	done := make(chan struct{}, 2)
	for name, to := range map[string]*io.Writer{"out": &c.Stdout, "err": &c.Stderr} {
		f, err := os.OpenFile(filepath.Join(run, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return refuse(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			return refuse(err)
		}
		*to = w
		go func() {
			_, _ = io.CopyN(f, r, keep)
			_, _ = io.Copy(io.Discard, r) // so that it doesn't block
			done <- struct{}{}
		}()
	}
	if err := c.Start(); err != nil {
		return refuse(fmt.Errorf("it can't be started: %w", err))
	}
	_ = c.Stdout.(*os.File).Close()
	_ = c.Stderr.(*os.File).Close()
	if err := os.WriteFile(filepath.Join(run, "group"), []byte(strconv.Itoa(c.Process.Pid)), 0o600); err != nil {
		_ = unix.Kill(-c.Process.Pid, unix.SIGKILL) // nobody could stop it
		return refuse(err)
	}
	_ = up.Close()
	var limit *time.Timer
	if raw, err := os.ReadFile(filepath.Join(run, "limit")); err == nil {
		if n, err := strconv.Atoi(string(raw)); err == nil && n > 0 {
			limit = time.AfterFunc(time.Duration(n)*time.Second, func() { stop(run) })
			defer limit.Stop()
		}
	}
	_ = c.Wait()
	code := c.ProcessState.ExitCode()
	if st, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		code = 128 + int(st.Signal())
	}
	late, open := time.After(drain), 2
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
	for ; open > 0; open-- { // what it left behind goes on writing
		<-done
	}
	return 0
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
func follow(run string, skip [2]int64, to io.Writer) (wire.Event, error) {
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
					if err := wire.WriteChunk(to, wire.Stream(i+1), buf[:n]); err != nil {
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
