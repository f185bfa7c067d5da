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
	"encoding/base64"
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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
	"countersign/targets/certificate"
	"countersign/targets/certificate/stream"
	"countersign/targets/lock"
)

// Main is the program. It returns the exit code.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	code, err := run(args, stdin, stdout)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "countersign-runner:", err)
		return 1
	}
	return code
}

func run(args []string, stdin io.Reader, stdout io.Writer) (code int, err error) {
	command := os.Getenv("SSH_ORIGINAL_COMMAND")
	if len(args) == 1 && args[0] == guardWord {
		return 0, guard(command)
	}
	if len(args) == 2 && args[0] == "-c" { // as the login shell of the account that looks
		return watch(command)
	}
	j, err := ParseJob(args)
	switch {
	case err != nil:
		return 0, err
	case j.Kind == certificate.Watch:
		return watch(command)
	}
	return 0, session(j, stdin, stdout)
}

// root is the directory that the host's files are below: a file beside the program whose name ends in
// .root can name another one than the root.
func root() string {
	if exe, err := os.Executable(); err == nil {
		if raw, err := os.ReadFile(exe + ".root"); err == nil {
			return strings.TrimSpace(string(raw))
		}
	}
	return "/"
}

// account is who runs this, and where their records are.
func account() (u *user.User, dir string, err error) {
	if u, err = user.Current(); err != nil {
		return nil, "", fmt.Errorf("the account has no name: %w", err)
	}
	return u, filepath.Join(root(), certificate.State, u.Username), nil
}

// isHost reports whether a target, "ssh:NAME#SHA256:...", is this host by one of its own keys.
func isHost(target string) bool {
	_, want, _ := strings.Cut(target, "#")
	names, _ := filepath.Glob(filepath.Join(root(), "/etc/ssh/ssh_host_*_key.pub"))
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if f := strings.Fields(string(raw)); err == nil && len(f) > 1 {
			key, err := base64.StdEncoding.DecodeString(f[1])
			if sum := sha256.Sum256(key); err == nil && "SHA256:"+base64.RawStdEncoding.EncodeToString(sum[:]) == want {
				return true
			}
		}
	}
	return false
}

// nested matches commands that put a lock of their own on what they start. They can have no Unix
// sockets at all; others have tmux's. It decides nothing about what a command may do.
var nested = regexp.MustCompile(`countersign-lock|perl`)

// watch runs a shell with a command, confined to the account's directory.
func watch(command string) (code int, err error) {
	if command == "" {
		return 0, errors.New("this account is read-only and has no interactive shell; give a command")
	}
	_, dir, err := account()
	if err == nil {
		err = private(dir)
	}
	if err != nil {
		return 0, err
	}
	if nested.MatchString(command) {
		return 0, lock.Exec(dir, "/bin/sh", []string{"sh", "-c", command}, environ(dir))
	}
	// What is left behind outlives this process, and the one that guards it does, too.
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	c := exec.CommandContext(context.Background(), exe, guardWord)
	c.Stdin, c.Stdout, c.Stderr, c.ExtraFiles, c.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, []*os.File{w}, &unix.SysProcAttr{Setsid: true}
	if err := errors.Join(c.Start(), w.Close()); err != nil {
		return 0, err
	}
	end := make([]byte, 1)
	if _, err := r.Read(end); err != nil { // it became the command, or has said why there is none
		_ = c.Wait()
		return c.ProcessState.ExitCode(), nil //nolint:nilerr // its exit code says it
	}
	return int(end[0]), nil
}

// guardWord is the argument by which the runner starts itself as the guard of a command.
const guardWord = "guard"

// guard is the process that connects for a command, until nothing of it is left.
func guard(command string) error {
	end := os.NewFile(3, "end")
	unix.CloseOnExec(3)
	_, dir, err := account()
	if err != nil {
		return err
	}
	c := &exec.Cmd{
		Path: "/bin/sh", Args: []string{"sh", "-c", command}, Env: environ(dir), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &unix.SysProcAttr{Setsid: true},
	}
	began := func() { // its streams are the command's alone
		if null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0); err == nil {
			for fd := range 3 {
				_ = unix.Dup3(int(null.Fd()), fd, 0)
			}
		}
	}
	err = lock.Serve(dir, c, began, func(code int) { _, _ = end.Write([]byte{byte(code & 0xff)}) })
	if errors.Is(err, lock.ErrUnsupported) { // a kernel that can't ask has no terminals here
		return lock.Exec(dir, c.Path, c.Args, c.Env)
	}
	return err
}

// environ is the environment of a command that looks: nothing that leads to a service of the account.
func environ(dir string) []string {
	env := []string{"TMPDIR=" + dir, "SHELL=/bin/sh"}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "LC_") || slices.Contains([]string{"HOME", "LANG", "LOGNAME", "PATH", "TERM", "TZ", "USER"}, name) {
			env = append(env, v)
		}
	}
	return env
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
func session(j certificate.Job, stdin io.Reader, stdout io.Writer) error {
	in := bufio.NewReaderSize(stdin, certificate.MaxRequest)
	head, err := in.ReadSlice('\n')
	var f stream.Frame
	if err != nil || json.Unmarshal(head, &f) != nil || f.Action < 0 || f.Action > certificate.MaxRequest {
		return errors.New("the bot speaks another version of this protocol; enroll the host again")
	}
	u, dir, err := account()
	if err == nil {
		err = private(dir)
	}
	run := filepath.Join(dir, j.Name)
	if err == nil && j.Kind == certificate.Change {
		raw := make([]byte, f.Action)
		if _, err := io.ReadFull(in, raw); err != nil {
			return err
		}
		var a certificate.Action
		if a, err = begin(j, u, run, raw); err == nil {
			// It goes on without its connection. The command itself gets these signals as usual.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGTERM)
			go listen(in, run)
			return supervise(a, u, run, time.Duration(f.Limit)*time.Second, &chunks{to: stdout})
		}
	}
	to := &chunks{to: stdout}
	if err != nil {
		return to.tell(stream.Event{Why: err.Error()})
	}
	info, err := os.Stat(filepath.Join(run, "action"))
	if err != nil {
		return to.tell(stream.Event{None: true})
	}
	if why, err := os.ReadFile(filepath.Join(run, "why")); err == nil {
		return to.tell(stream.Event{Why: string(why)})
	}
	if f.Peek {
		e, err := look(run)
		e.Began = info.ModTime()
		return errors.Join(err, to.tell(e))
	}
	if err := to.tell(stream.Event{Began: info.ModTime()}); err != nil {
		return err
	}
	if began, err := os.ReadFile(filepath.Join(run, "key")); err == nil && string(began) == j.Key {
		go listen(in, run)
	}
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
		case string(line) == stream.Stop:
			stop(run)
		}
	}
}

// chunks is the connection to the bot. It is safe for concurrent use.
type chunks struct {
	mu sync.Mutex
	to io.Writer
}

func (c *chunks) write(s stream.Stream, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return stream.WriteChunk(c.to, s, b)
}

func (c *chunks) tell(e stream.Event) error {
	raw, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return c.write(stream.Tell, raw)
}

// begin checks an action, and notes that it begins, once. Its errors follow "was not run: ".
func begin(j certificate.Job, u *user.User, run string, raw []byte) (a certificate.Action, err error) {
	if certificate.Digest(raw) != j.Digest {
		return a, errors.New("it isn't what was approved")
	}
	a, err = certificate.ReadAction(raw)
	switch {
	case err != nil:
		return a, err
	case len(a.Steps) > 0:
		return a, errors.New("a plan is run step by step")
	case !isHost(a.Target):
		return a, errors.New("it was approved for another host, which has another key")
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
	if err := errors.Join(os.WriteFile(filepath.Join(run, "key"), []byte(j.Key), 0o600), os.WriteFile(filepath.Join(run, "action"), raw, 0o600), syncDir(filepath.Dir(run))); err != nil {
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
func unchanged(a certificate.Action) error {
	if !filepath.IsAbs(a.Dir) {
		return fmt.Errorf("the directory %q isn't absolute", a.Dir)
	}
	for name, want := range a.Files {
		raw, err := hex.DecodeString(want)
		if err != nil || len(raw) != sha256.Size {
			continue // it says something else of the file
		}
		if err := fixed(name); err != nil {
			return err
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

// fixed reports why what a path leads to may change between this look and the next, by others than root
// and this account.
func fixed(name string) error {
	left := strings.Split(name, "/")
	for at, links := "/", 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		var st, in unix.Stat_t
		next := filepath.Join(at, part)
		if err := errors.Join(unix.Lstat(at, &in), unix.Lstat(next, &st)); err != nil {
			return fmt.Errorf("%s can't be read any more", name)
		}
		foreign := func(uid uint32) bool { return uid != 0 && int(uid) != os.Getuid() }
		link := st.Mode&unix.S_IFMT == unix.S_IFLNK
		// Nobody else can exchange what lies in a directory such as /tmp.
		if foreign(st.Uid) || foreign(in.Uid) || in.Mode&0o022 != 0 && in.Mode&unix.S_ISVTX == 0 || !link && len(left) == 0 && st.Mode&0o022 != 0 {
			return fmt.Errorf("others than root and this account can change %s at %s, so it may not stay what was approved; take their rights away or move it", name, next)
		}
		if at = next; !link {
			continue
		}
		to, err := os.Readlink(next)
		if links++; err != nil || links > 40 {
			return fmt.Errorf("%s can't be read any more", name)
		}
		at, left = filepath.Dir(next), append(strings.Split(to, "/"), left...)
		if filepath.IsAbs(to) {
			at = "/"
		}
	}
	return nil
}

// enter makes the approved directory the current one.
func enter(a certificate.Action) error {
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
func supervise(a certificate.Action, u *user.User, run string, limit time.Duration, to *chunks) error {
	alive, err := hold(run)
	var c *exec.Cmd
	var streams []output
	if err == nil {
		defer func() { _ = alive.Close() }() // it holds nothing but the lock
		c, streams, err = start(a, u, run)
	}
	if err != nil {
		why := errors.Join(os.WriteFile(filepath.Join(run, "why"), []byte(err.Error()), 0o600), to.tell(stream.Event{Why: err.Error()}))
		return why
	}
	_ = to.tell(stream.Event{Began: time.Now()}) // nobody may be listening any more, here and below
	done := make(chan struct{}, len(streams))
	for i, s := range streams {
		go func() {
			s.copy([]stream.Stream{stream.Out, stream.Err}[i], to)
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
	_ = to.tell(stream.Event{Ended: time.Now(), Code: code})
	for ; open > 0; open-- { // what it left behind goes on writing
		<-done
	}
	return nil
}

// output is one of the streams of a command, and the file that keeps it.
type output struct {
	from, file *os.File
}

// copy passes a stream on to its end, and keeps its beginning.
func (s output) copy(kind stream.Stream, to *chunks) {
	buf, kept, listens := make([]byte, stream.MaxChunk), 0, true
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
func start(a certificate.Action, u *user.User, run string) (*exec.Cmd, []output, error) {
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
	var streams []output
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
		streams = append(streams, output{r, f})
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
func look(run string) (stream.Event, error) {
	held := supervised(run) // before the look at its end, which comes first
	name := filepath.Join(run, "end")
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return stream.Event{Lost: !held}, nil
	}
	info, bad := os.Stat(name)
	if err = errors.Join(err, bad); err != nil {
		return stream.Event{}, err
	}
	code, err := strconv.Atoi(string(raw))
	return stream.Event{Ended: info.ModTime(), Code: code, Lost: err != nil}, nil
}

const (
	pause     = 2 * time.Millisecond // between two looks at a run that prints
	longPause = 50 * time.Millisecond
)

// follow passes on what a run prints until it has ended, and says how it did.
func follow(run string, skip [2]int64, to *chunks) (stream.Event, error) {
	wait := pause
	buf := make([]byte, stream.MaxChunk)
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
					if err := to.write(stream.Stream(i+1), buf[:n]); err != nil {
						return stream.Event{}, err
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
