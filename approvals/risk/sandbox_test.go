//go:build linux

package risk

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
	"countersign/targets/lock"
	"countersign/test/needstest"
)

// The differential test runs what the classifier proves, for real: thousands
// of commands in a throw-away namespace with a small world of files, where
// everything else can only be read, under strace. A command leaks when it
// changes the world, tries to write anywhere, leaves a process behind, or runs
// a program that its text does not name.
//
// What is not installed is not run, so the test says nothing of it.

const (
	sandboxEnv   = "COUNTERSIGN_SANDBOX"      // which part of the sandbox this process is
	seedEnv      = "COUNTERSIGN_SANDBOX_SEED" // another seed than the usual one
	usualSeed    = 1
	wantCommands = 700
	runLimit     = 5 * time.Second        // for one command
	endlessLimit = 400 * time.Millisecond // for one that follows something and surely never ends
	hashEvery    = 100                    // commands between two looks at every byte
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(sandboxEnv) {
	case "outer":
		err = sandboxOuter()
	case "inner":
		err = sandboxInner()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// job is one command to run, and done what came of it.
type job struct {
	ID      int           `json:"id"`
	Text    string        `json:"text"`
	Dir     string        `json:"dir,omitempty"` // where it runs, if not in worldHome
	Limit   time.Duration `json:"limit"`
	Busybox bool          `json:"busybox,omitempty"` // its programs are applets
	Lock    *backend.Lock `json:"lock,omitempty"`    // it runs under this lock; what hits it is found
}

type done struct {
	ID      int      `json:"id"`
	Timeout bool     `json:"timeout,omitempty"`
	Exit    int      `json:"exit"`
	Took    int64    `json:"took"`            // milliseconds
	Found   []string `json:"found,omitempty"` // what it changed or left behind
}

// The file descriptors of the sandbox.
const (
	fdJobs = 3 + iota
	fdDone
	fdTrace
	fdSelf
)

// worldDirs are the places of the world: empty file systems in memory, over
// what is there.
var worldDirs = []string{"/tmp", "/var/tmp", "/var/log", "/srv", "/home", "/root", "/opt", "/mnt", "/media", "/run", "/dev/shm"}

const appletPath = "/opt/applets" // busybox under each of its names

const worldHome = "/tmp/w" // where the commands run

// strayed catches the signals that a command sends to whoever it can reach.
func strayed() <-chan os.Signal {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH)
	return c
}

func sandboxOuter() error {
	_ = strayed() // the inner part tells of them
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("the mounts cannot be made private: %w", err)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("the file systems cannot be made read-only: %w", err)
	}
	for _, d := range worldDirs {
		st, err := os.Lstat(d)
		if err != nil || !st.IsDir() {
			continue
		}
		if err := unix.Mount("tmpfs", d, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOATIME, "size=64m,mode=0755"); err != nil {
			return fmt.Errorf("%s cannot be covered: %w", d, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc cannot be mounted: %w", err)
	}
	self := fmt.Sprintf("/proc/self/fd/%d", fdSelf)
	argv := []string{self}
	if os.Getenv(sandboxEnv+"_TRACE") != "" {
		argv = append([]string{
			"strace", "-f", "-qq", "-s", "200", "--seccomp-bpf", "-e", "signal=none", "-o", fmt.Sprintf("/dev/fd/%d", fdTrace), "-e",
			"trace=execve,execveat,open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,symlink,symlinkat,chmod,fchmodat," +
				"chown,lchown,fchownat,truncate,mknod,mknodat,utimensat,setxattr,lsetxattr,fsetxattr,mount,socket,connect,bind,kill,readlink,readlinkat",
		}, self)
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(os.Environ(), sandboxEnv+"=inner")
	c.Stderr = os.Stderr
	for fd := fdJobs; fd <= fdSelf; fd++ {
		c.ExtraFiles = append(c.ExtraFiles, os.NewFile(uintptr(fd), "inherited"))
	}
	return c.Run()
}

func sandboxInner() error {
	// All that strace sees of this process comes from this thread.
	runtime.LockOSThread()
	for fd := fdJobs; fd <= fdSelf; fd++ {
		unix.CloseOnExec(fd)
	}
	_ = unix.Close(fdTrace)
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: 2 << 30, Max: 2 << 30}); err != nil {
		return err
	}
	unix.Umask(0o022)
	signals := strayed()
	if err := buildWorld(); err != nil {
		return err
	}
	was, sums := look(), hashes()
	in := json.NewDecoder(os.NewFile(fdJobs, "jobs"))
	out := json.NewEncoder(os.NewFile(fdDone, "done"))
	for n := 1; ; n++ {
		var j job
		if err := in.Decode(&j); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		mark(j.ID)
		from := time.Now()
		d := runOne(j)
		d.Took = time.Since(from).Milliseconds()
		mark(-1)
		for len(signals) > 0 {
			d.Found = append(d.Found, fmt.Sprintf("sends the signal %q to a process that it did not start", <-signals))
		}
		changed := differences(was, look())
		if len(changed) == 0 && n%hashEvery == 0 {
			// Inodes and times tell of a change at once; the bytes have the last word.
			for p, sum := range hashes() {
				if sums[p] != sum {
					changed = append(changed, "changes the bytes of "+p+", or one of the commands before it does")
				}
			}
		}
		if d.Found = append(d.Found, changed...); len(changed) > 0 {
			if err := buildWorld(); err != nil {
				return err
			}
			was, sums = look(), hashes()
		}
		if err := out.Encode(d); err != nil {
			return err
		}
	}
}

// mark writes a line into the trace: from here on it is of this job.
func mark(id int) {
	if f, err := os.Open("/job/" + strconv.Itoa(id)); err == nil {
		_ = f.Close()
	}
}

func runOne(j job) done {
	d := done{ID: j.ID}
	c := exec.Command("/bin/bash", "--noprofile", "--norc", "-c", j.Text)
	c.Dir = cmp.Or(j.Dir, worldHome)
	c.Env = []string{
		"PATH=" + sandboxPath, "HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", "TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "SYSTEMD_PAGER=", "NO_COLOR=1",
		"GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "DEBIAN_FRONTEND=noninteractive",
	}
	if j.Busybox {
		c.Env[0] = "PATH=" + appletPath
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	if err != nil {
		d.Found = append(d.Found, err.Error())
		return d
	}
	// Programs take a pipe for a reader, and /dev/null for nobody.
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, r) })
	c.Stdout, c.Stderr = w, w
	var guard *lock.Guard
	if j.Lock != nil {
		guard, err = lock.Start(c, *j.Lock)
	} else {
		err = c.Start()
	}
	_ = w.Close()
	if err != nil {
		d.Found = append(d.Found, err.Error())
		_ = r.Close()
		wg.Wait()
		return d
	}
	stop := time.AfterFunc(j.Limit, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err = c.Wait()
	d.Timeout = !stop.Stop()
	if left := leftovers(); len(left) > 0 && !d.Timeout {
		d.Found = append(d.Found, "leaves running: "+strings.Join(left, ", "))
	}
	if guard != nil {
		for _, h := range guard.Close() {
			d.Found = append(d.Found, fmt.Sprintf("%s %s", h.Kind, h.Name))
		}
	}
	_ = r.Close() // somebody who left the group may hold the other end
	wg.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		d.Exit = exit.ExitCode()
	}
	return d
}

// strangers names the processes that are neither the sandbox's own nor dead.
func strangers() map[int]string {
	out := map[int]string{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			continue // it is gone
		}
		pid, _ := strconv.Atoi(path.Base(path.Dir(n)))
		from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		if pid == 1 || pid == os.Getpid() || pid == os.Getppid() || from < 0 || to < 0 || bytes.HasPrefix(b[to+1:], []byte(" Z")) || bytes.HasPrefix(b[to+1:], []byte(" X")) {
			continue
		}
		out[pid] = string(b[from+1 : to])
	}
	return out
}

// leftovers names what still runs a moment after a command ended (the inside of
// <(...) may end behind it), and kills it.
func leftovers() []string {
	for range 20 {
		if len(strangers()) == 0 {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	left := slices.Sorted(maps.Values(strangers()))
	for range 200 {
		still := strangers()
		if len(still) == 0 {
			break
		}
		for pid := range still {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return left
}

// look tells the state of every file of the world, without its content.
func look() map[string]string {
	out := map[string]string{}
	for _, root := range worldDirs {
		_ = filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
			if p == appletPath {
				return fs.SkipDir
			}
			var st unix.Stat_t
			if err == nil {
				err = unix.Lstat(p, &st)
			}
			link := ""
			if st.Mode&unix.S_IFMT == unix.S_IFLNK {
				link, _ = os.Readlink(p)
			}
			out[p] = fmt.Sprint(err)
			if err == nil {
				out[p] = fmt.Sprintf("mode %o size %d inode %d links %d owner %d:%d modified %d.%09d changed %d.%09d %s",
					st.Mode, st.Size, st.Ino, st.Nlink, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec, link)
			}
			return nil
		})
	}
	return out
}

func differences(was, is map[string]string) []string {
	var out []string
	for p, s := range is {
		switch old, had := was[p]; {
		case !had:
			out = append(out, "makes "+p)
		case old != s:
			out = append(out, "changes "+p)
		}
	}
	for p := range was {
		if _, ok := is[p]; !ok {
			out = append(out, "removes "+p)
		}
	}
	slices.Sort(out)
	return out
}

func hashes() map[string][32]byte {
	out := map[string][32]byte{}
	for _, root := range worldDirs {
		_ = filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if b, err := os.ReadFile(p); err == nil {
					out[p] = sha256.Sum256(b)
				}
			}
			return nil
		})
	}
	return out
}

// buildWorld empties the world and fills it anew.
func buildWorld() error {
	for _, root := range worldDirs {
		names, _ := os.ReadDir(root)
		for _, n := range names {
			if err := os.RemoveAll(filepath.Join(root, n.Name())); err != nil {
				return err
			}
		}
	}
	for p, content := range worldFiles() {
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(to, p); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for _, d := range []string{worldHome + "/empty", "/run/lock", "/srv/backups"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := linkApplets(); err != nil {
		return err
	}
	if git, err := exec.LookPath("git"); err == nil {
		return buildRepository(git)
	}
	return nil
}

// linkApplets makes the names under which busybox is each of its applets.
func linkApplets() error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil // nothing to be twins with
	}
	if err := os.MkdirAll(appletPath, 0o755); err != nil {
		return err
	}
	list, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(list)) {
		if err := os.Symlink(busybox, filepath.Join(appletPath, name)); err != nil {
			return err
		}
	}
	return nil
}

// buildRepository makes a repository whose configuration runs a program
// wherever git lets it.
func buildRepository(git string) error {
	dir := worldHome + "/repo"
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"add", "."}, {"commit", "-q", "-m", "first"}, {"tag", "v1"},
		{"config", "core.fsmonitor", "touch /tmp/pwned"}, {"config", "core.pager", "touch /tmp/pwned"}, {"config", "diff.external", "touch /tmp/pwned"},
		{"config", "alias.mine", "!touch /tmp/pwned"}, {"config", "log.showSignature", "true"}, {"config", "gpg.program", "/tmp/w/helper"}, {"config", "core.sshCommand", "touch /tmp/pwned"},
		{"config", "filter.x.clean", "touch /tmp/pwned"}, {"config", "diff.x.textconv", "touch /tmp/pwned"},
	} {
		c := exec.Command(git, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.test"}, args...)...)
		c.Dir = dir
		c.Env = []string{"HOME=/root", "PATH=" + sandboxPath}
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args, err, out)
		}
	}
	if err := os.WriteFile(dir+"/a.txt", []byte("changed\n"), 0o644); err != nil {
		return err
	}
	return os.Chmod(worldHome+"/helper", 0o755)
}

// worldFiles are the files of the world with their content, or "-> target".
func worldFiles() map[string]string {
	text := "alpha 1\nbeta 2\ngamma 3 ERROR timeout\n"
	long := strings.Repeat("2026-11-21T10:00:00Z host app[12]: GET /health 200 12ms\n2026-11-21T10:00:01Z host app[12]: ERROR timeout\n", 40)
	out := map[string]string{
		"a.txt": text, "b.txt": "alpha 1\nbeta 3\n", "with space.txt": text, "numbers.txt": "3\n1\n2\n", "data.csv": "a,b\n1,2\n", "app.log": long, "empty.txt": "",
		"data.json": `{"items":[{"name":"a","n":1},{"name":"b","n":2}]}` + "\n", "data.yaml": "items:\n- name: a\n  n: 1\n", "page.xml": "<a><b>1</b></a>\n", "app.conf": "listen 443\nerror_log /var/log/app.log\n",
		"bin.dat": "\x00\x01\x02\xfftext in it\x00", "link": "-> a.txt", "dangling": "-> nowhere", "dir/one.txt": text, "dir/sub/two.log": long, "dir/sub/three.conf": "x=1\n",
		// Names that are options or commands to whoever doesn't look.
		"globs/-delete": text, "globs/-o": text, "globs/--output=pwned": text, "globs/-i": text, "globs/;touch pwned;": text, "globs/$(touch pwned)": text, "globs/plain.txt": text,
		"-n": text, "--help": text, "opts.txt": "--output=pwned\n-o pwned\n", "@plain": "-o pwned\n", "repo/a.txt": text, "repo/.gitattributes": "*.txt filter=x diff=x\n", "helper": "#!/bin/sh\ntouch /tmp/pwned\n",
		"sums.txt": fmt.Sprintf("%x  a.txt\n", sha256.Sum256([]byte(text))), "x.gz": gzipped(text), "x.tar": tarred(text), "x.tar.gz": gzipped(tarred(text)), "x.deb": deb(text),
	}
	for p := range maps.Clone(out) {
		out[worldHome+"/"+p] = out[p]
		delete(out, p)
	}
	for _, p := range []string{
		"/var/log/syslog", "/var/log/auth.log", "/var/log/dmesg", "/var/log/kern.log", "/var/log/nginx/access.log", "/var/log/nginx/error.log", "/var/log/app/app.log", "/var/log/apt/history.log",
		"/srv/app/app.log", "/srv/app/releases/1/a.txt", "/home/a/notes.txt", "/root/notes.txt", "/tmp/x", "/tmp/y", "/opt/app/config.yml",
	} {
		out[p] = long
	}
	return out
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}

func tarred(s string) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range []string{"./control", "a.txt", "--checkpoint-action=exec=touch pwned", "../../tmp/w/out.txt", "/tmp/w/abs.txt"} {
		_ = w.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: int64(len(s)), Format: tar.FormatPAX})
		_, _ = io.WriteString(w, s)
	}
	_ = w.Close()
	return b.String()
}

// deb is a Debian package: an ar archive of two tar archives.
func deb(s string) string {
	out := "!<arch>\n"
	for _, m := range []struct{ name, content string }{{"debian-binary", "2.0\n"}, {"control.tar.gz", gzipped(tarred("Package: x\nVersion: 1\n"))}, {"data.tar.gz", gzipped(tarred(s))}} {
		out += fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m.name, 0, 0, 0, "100644", len(m.content), m.content)
		if len(m.content)%2 == 1 {
			out += "\n"
		}
	}
	return out
}

// sandbox runs the commands in n sandboxes at once, and returns what came of
// each and the lines of the trace that are about it.
func sandbox(t *testing.T, jobs []job, n int) (map[int]done, map[int][]string) {
	t.Helper()
	return sandboxes(t, jobs, n, straced(t))
}

// straced reports whether strace is there to see attempts with.
func straced(t *testing.T) bool {
	t.Helper()
	if _, err := exec.LookPath("strace"); err == nil {
		return true
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("strace is not installed: install the package strace")
	}
	t.Log("strace is not installed, so only changes of the world are seen: install the package strace to see attempts too")
	return false
}

// sandboxes is sandbox with or without a trace.
func sandboxes(t *testing.T, jobs []job, n int, trace bool) (map[int]done, map[int][]string) {
	t.Helper()
	results, traces := map[int]done{}, map[int][]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed []error
	for k := range n {
		var mine []job
		for i := k; i < len(jobs); i += n {
			mine = append(mine, jobs[i])
		}
		wg.Go(func() {
			d, lines, err := oneSandbox(t.Context(), mine, trace)
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
			maps.Copy(results, d)
			maps.Copy(traces, lines)
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		if errors.Is(err, errNoSandbox) && os.Getenv("CI") != "true" {
			t.Skipf("a sandbox cannot be made here (%v): allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1), or run in a container that may unshare", err)
		}
		t.Error(err)
	}
	return results, traces
}

var errNoSandbox = errors.New("no namespaces")

func oneSandbox(ctx context.Context, jobs []job, trace bool) (map[int]done, map[int][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 8*time.Minute)
	defer cancel()
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, nil, err
	}
	var files [3][2]*os.File // read and write ends
	for i := range files {
		if files[i][0], files[i][1], err = os.Pipe(); err != nil {
			return nil, nil, err
		}
	}
	c := exec.CommandContext(ctx, "/proc/self/exe")
	c.Env = []string{sandboxEnv + "=outer", "PATH=" + sandboxPath}
	if trace {
		c.Env = append(c.Env, sandboxEnv+"_TRACE=1")
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	c.ExtraFiles = []*os.File{files[0][0], files[1][1], files[2][1], exe}
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
		Setsid:      true,
	}
	if err := c.Start(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoSandbox, err)
	}
	for _, f := range c.ExtraFiles {
		_ = f.Close()
	}
	var wg sync.WaitGroup
	results := map[int]done{}
	var lines map[int][]string
	wg.Go(func() {
		enc := json.NewEncoder(files[0][1])
		for _, j := range jobs {
			if enc.Encode(j) != nil {
				break
			}
		}
		_ = files[0][1].Close()
	})
	wg.Go(func() {
		dec := json.NewDecoder(files[1][0])
		for {
			var d done
			if dec.Decode(&d) != nil {
				return
			}
			results[d.ID] = d
		}
	})
	wg.Go(func() { lines = readTrace(files[2][0]) })
	err = c.Wait()
	wg.Wait()
	for _, f := range []*os.File{files[1][0], files[2][0]} {
		_ = f.Close()
	}
	if err != nil && len(results) == 0 {
		return nil, nil, fmt.Errorf("%w: %w: %s", errNoSandbox, err, stderr.String())
	}
	if err != nil || len(results) != len(jobs) {
		return results, lines, fmt.Errorf("the sandbox ended after %d of %d commands: %w: %s", len(results), len(jobs), errors.Join(err, ctx.Err()), stderr.String())
	}
	return results, lines, nil
}

var (
	traceLine    = regexp.MustCompile(`^(\d+)\s+(.*)$`)
	traceResumed = regexp.MustCompile(`^<\.\.\. (?:\w+|\?\?\?) resumed>(.*)$`)
	traceMark    = regexp.MustCompile(`^openat\(AT_FDCWD, "/job/(-?\d+)"`)
)

// readTrace sorts the lines of strace by the job that they are about. Calls
// that were interrupted by another process's line are put together.
func readTrace(r io.Reader) map[int][]string {
	out := map[int][]string{}
	open := map[string]string{}
	driver, id := "", -1
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		m := traceLine.FindStringSubmatch(sc.Text())
		if m == nil {
			continue
		}
		pid, call := m[1], m[2]
		if driver == "" {
			driver = pid
		}
		if head, ok := strings.CutSuffix(call, " <unfinished ...>"); ok {
			open[pid] = head
			continue
		}
		if r := traceResumed.FindStringSubmatch(call); r != nil {
			call = open[pid] + r[1]
			delete(open, pid)
		}
		if pid == driver {
			if m := traceMark.FindStringSubmatch(call); m != nil {
				id, _ = strconv.Atoi(m[1])
			}
			continue
		}
		if id >= 0 {
			out[id] = append(out[id], call)
		}
	}
	return out
}

var (
	execCall    = regexp.MustCompile(`^execve(?:at)?\((?:AT_FDCWD, )?"([^"]*)".*\) += 0$`)
	openCall    = regexp.MustCompile(`^(?:open|openat|openat2|creat)\((?:[A-Z_]+|\d+)?(?:, )?"((?:[^"\\]|\\.)*)"(?:\.\.\.)?(.*)$`)
	connectCall = regexp.MustCompile(`^(connect|bind)\(\d+, \{sa_family=(AF_\w+)(.*)$`)
	killCall    = regexp.MustCompile(`^kill\((-?\d+), (\w+)`)
	wordsInText = regexp.MustCompile(`[A-Za-z0-9_.+\[-]+`)
)

// ownPID reports whether a process can't be one of the sandbox itself, nor all
// of them: those have the first numbers.
func ownPID(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && (n > 30 || n == 0 || n < -30)
}

// helpers are programs that a program is known to run, for which the text need
// not name them: of scripts, of what unpacks, and of front ends.
var helpers = map[string][]string{
	"egrep": {"grep"}, "fgrep": {"grep"}, "zcat": {"gzip"}, "gunzip": {"gzip"}, "zgrep": {"gzip", "grep"}, "zegrep": {"zgrep", "gzip", "grep"}, "zfgrep": {"zgrep", "gzip", "grep"},
	"xzgrep": {"xz", "gzip", "grep"}, "bzgrep": {"bzip2", "grep", "egrep", "fgrep", "sed"}, "tar": {"gzip", "bzip2", "xz", "zstd"}, "lsb_release": {"cut", "getopt", "tr"}, "pg_config": {"ls", "tail"},
	"dpkg": {"dpkg-query", "dpkg-deb"}, "apt": {"dpkg"}, "apt-cache": {"dpkg"}, "apt-mark": {"dpkg"}, "npm": {"node"}, "yq": {"jq"}, "man": {"whatis"}, "locale": {"gzip"}, "service": {"*"}, // init scripts
	"sar": {"sadc"}, "debsums": {"sh", "dpkg", "dpkg-divert", "dpkg-query"}, "doveadm": {"doveconf"}, "dovecot": {"doveconf"}, "qshape": {"postconf"},
	"ibstatus": {"*"}, "ipsec": {"*"}, "kubectx": {"*"}, "kubens": {"*"}, "virt-what": {"*"}, // scripts
	"podman": {"conmon", "runc", "crun", "netavark"}, // for their versions
	"pip":    {"python3"}, "pip3": {"python3"}, "systemctl": {"systemd-sysv-install", "getopt", "ls"},
}

// scratch are the files that a program makes for itself whatever it is asked,
// which nobody else's work depends on: caches, sockets' directories, what is
// unpacked and gone when it ends.
var scratch = map[string][]string{
	"java": jvmScratch, "javac": jvmScratch, "jps": jvmScratch, "jstat": jvmScratch, "jcmd": jvmScratch,
	"tac": {"/tmp/tac"}, "dpkg-deb": {"/tmp/dpkg-deb"}, "sort": {"/tmp/sort"}, "tmux": {"/tmp/tmux-0"}, "top": {"/root/.config/procps"}, "blkid": {"/run/blkid"},
	"dig": ownThreads, "host": ownThreads, "nslookup": ownThreads, "rndc": ownThreads,
	"faillock": {"/var/run/faillock"}, // only to lock it
	"lslogins": {"/etc/.pwd.lock"},    // only to lock it
	"dmsetup":  {"/dev/mapper"},       // which is there wherever there are such disks
	"pidof":    {"/dev/console"},      // complaints about its options
	// Its store, which it makes the first time whatever it is asked.
	"podman": {"/var/lib/containers", "/run/containers", "/run/libpod", "/run/crun", "/run/user"},
}

var ownThreads = []string{"/proc/self/task"} // they give their threads names

var jvmScratch = []string{"/tmp/hsperfdata_root", "/proc/self/coredump_filter"}

// jvmFile is a file of /tmp/hsperfdata_*, where the JVM stands when it opens it.
var jvmFile = regexp.MustCompile(`^opens for writing \d+$`)

var pathInFinding = regexp.MustCompile(`/[^\s",]*`)

// serious leaves out what a program named in the text does to its own scratch.
func serious(text string, found []string) []string {
	var own []string
	for _, w := range wordsInText.FindAllString(text, -1) {
		own = append(own, scratch[w]...)
	}
	jvm := slices.Contains(own, jvmScratch[0])
	return slices.DeleteFunc(found, func(f string) bool {
		if jvm && jvmFile.MatchString(f) {
			return true
		}
		p := pathInFinding.FindString(f)
		return p != "" && slices.ContainsFunc(own, func(s string) bool { return strings.HasPrefix(p, s) || strings.HasPrefix(s, p+"/") })
	})
}

// talkers are the programs whose job it is to reach other hosts, or to ask for
// names.
var talkers = strings.Fields("ping ping6 dig host nslookup curl nc ncat netcat traceroute tracepath mtr getent ssh openssl psql pg_isready kubectl docker redis-cli mysql hostname wget arp ss netstat " +
	"fping showmount rados rbd radosgw-admin ceph upsc rpcinfo rndc " +
	"sshd") // which looks up the addresses of its own configuration

// attempts tells what the trace of a command shows that a read doesn't do.
func attempts(text string, calls []string) []string {
	named := map[string]bool{"bash": true}
	for _, w := range wordsInText.FindAllString(text, -1) {
		named[w] = true
		for _, h := range helpers[w] {
			named[h] = true
		}
	}
	var out []string
	for _, c := range calls {
		name, _, _ := strings.Cut(c, "(")
		switch name {
		case "execve", "execveat":
			if m := execCall.FindStringSubmatch(c); m != nil && !named[path.Base(m[1])] && !named["*"] {
				out = append(out, "runs "+m[1])
			}
		case "open", "openat", "openat2", "creat":
			m := openCall.FindStringSubmatch(c)
			if m == nil {
				out = append(out, "does "+c)
				continue
			}
			flags := m[2]
			if name != "creat" && !strings.Contains(flags, "O_WRONLY") && !strings.Contains(flags, "O_RDWR") && !strings.Contains(flags, "O_CREAT") && !strings.Contains(flags, "O_TRUNC") {
				continue
			}
			if m[1] == "/dev/null" || m[1] == "/dev/tty" || strings.Contains(flags, "O_TMPFILE") { // a file without a name
				continue
			}
			out = append(out, "opens for writing "+m[1])
		case "connect", "bind":
			m := connectCall.FindStringSubmatch(c)
			if m == nil || m[2] == "AF_NETLINK" || m[2] == "AF_UNSPEC" {
				continue
			}
			if m[1] == "connect" && m[2] == "AF_UNIX" {
				continue // services of this machine, of which none is there
			}
			if m[1] == "bind" && m[2] == "AF_UNIX" && strings.HasPrefix(m[3], "}") {
				continue // without a name, the kernel gives one that is no file (unix(7), autobind)
			}
			if (strings.Contains(m[3], `inet_addr("127.`) || strings.Contains(m[3], `"::1"`)) && !strings.Contains(m[3], "htons(53)") {
				continue // this machine, and not its name server
			}
			if slices.ContainsFunc(talkers, func(t string) bool { return named[t] }) {
				continue
			}
			out = append(out, m[1]+"s "+m[2]+m[3])
		case "kill":
			// A shell and timeout end what they started; the first processes are the
			// sandbox itself.
			m := killCall.FindStringSubmatch(c)
			if m != nil && m[2] != "0" && !ownPID(m[1]) {
				out = append(out, "signals the process "+m[1]+" with "+m[2])
			}
		case "socket", "readlink", "readlinkat":
		default:
			if strings.HasPrefix(name, "syscall_0xffffffff") {
				continue // a negative number is no call: what strace saw of a process that was killed
			}
			if name != "" && name != "???" && !strings.HasPrefix(c, "+++") && !strings.HasPrefix(c, "---") {
				out = append(out, "does "+c)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// strays tells which files a program opens that nobody told it to: those of the directory that it runs in,
// and those of the home directory. Whoever can put a file there would decide what a read does.
func strays(text, dir string, calls []string) []string {
	var out []string
	words := fileWords.FindAllString(text, -1)
	shown := slices.ContainsFunc(words, func(w string) bool {
		return w == "." || strings.ContainsAny(w, "*?$") || slices.Contains(dirShowers, w)
	})
	for _, c := range calls {
		m := openCall.FindStringSubmatch(c)
		if m == nil || strings.HasPrefix(c[strings.IndexByte(c, '(')+1:], "AT_FDCWD") != strings.HasPrefix(c, "openat") {
			continue
		}
		name := path.Clean(m[1])
		home, inHome := strings.CutPrefix(name, "/root/")
		switch {
		case path.IsAbs(name) && !inHome, name == ".":
		case inHome:
			own := slices.ContainsFunc(words, func(w string) bool {
				return strings.Contains(w, "~") || strings.HasPrefix(w, "/root") ||
					slices.ContainsFunc(strings.Fields(settings[w]), func(s string) bool { return s == home || strings.HasSuffix(s, "/") && strings.HasPrefix(home, s) })
			})
			if !own {
				out = append(out, "opens ~/"+home)
			}
		case dir == "/" || shown:
		case !strings.Contains(text, name) && !slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(name, path.Clean(w)+"/") }):
			out = append(out, "opens "+name+" of the directory that it runs in")
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var fileWords = regexp.MustCompile(`[^\s'"=;|&()<>]+`)

// dirShowers are programs whose operand is the directory that they run in.
var dirShowers = strings.Fields("ls dir vdir du tree find fd rg git lsattr")

// settings are the files of the home directory with which an account sets up a program.
var settings = map[string]string{
	"jq": ".jq", "dpkg": ".dpkg.cfg", "apropos": ".manpath", "whatis": ".manpath", "man": ".manpath", "bind": ".inputrc", "gpg": ".gnupg/gpg.conf", "less": ".less .lesskey .lesshst",
	"pg_dump": pgSettings, "pg_dumpall": pgSettings, "pg_restore": pgSettings, "pg_basebackup": pgSettings, "pg_isready": pgSettings, "psql": pgSettings, "kubectl": ".kube/",
}

const pgSettings = ".postgresqlrc"

const sandboxPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// installed reports whether a program is there, on the path that commands get.
func installed(name string) bool {
	for dir := range strings.SplitSeq(sandboxPath, ":") {
		if st, err := os.Stat(filepath.Join(dir, name)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// maker makes commands from the tables.
type maker struct {
	r     *rand.Rand
	specs map[string]*spec
	names []string
}

func (m *maker) pick(from ...string) string { return from[m.r.IntN(len(from))] }

var (
	somePaths = []string{
		"a.txt", "b.txt", "./a.txt", "'with space.txt'", "numbers.txt", "data.csv", "app.log", "empty.txt", "data.json", "data.yaml", "page.xml", "app.conf", "bin.dat", "link", "dangling", "dir", "dir/sub",
		".", "empty", "globs", "globs/plain.txt", "./globs/*", "./*.txt", "dir/*.txt", "sums.txt", "x.gz", "x.tar", "x.tar.gz", "x.deb", "nowhere", "repo", "/var/log/syslog", "/var/log/app/app.log", "/tmp/x",
		"/etc/hosts", "/etc/passwd", "/etc/os-release", "/bin/true", "/proc/meminfo", "/tmp/w/dir", "-", "./-n",
	}
	someTexts = []string{
		"a", "alpha", "ERROR", "1", "'%s'", "'a b'", "''", "','", "'\\n'", "'.*'", "'^a'", "name", "x", "-", "+%F", "json", "auto", "always", "never", "long", "size", "PID", "1,2", "'{print $1}'", "'.items[]'", "'.'",
		"bash", "libc6", "root", "main", "all", "cpu", "10", "a.txt", "/etc/hosts", "'s/a/b/'", "today", "'1 hour ago'", "x.example.com", "@x.example.com", "80,x.example.com", "dst", "PPID", "status", "network", "ssh", "tcp", "8080", "UTC", "utf-8",
	}
	someNums  = []string{"0", "1", "2", "3", "5", "10", "1k", "+2", "0.1", "100"}
	someWordz = []string{"a", "root", "main", "json", "name", "x", "eth0", "lo", "bash", "libc6", "text", "utf-8", "tcp", "inet", "ext4", "tmpfs", "all", "short", "1"}
)

// value is a word of a kind, as the shell will take it.
func (m *maker) value(kind string) string {
	switch kind {
	case "path", "file", "local", "any":
		return m.pick(somePaths...)
	case "num":
		return m.pick(someNums...)
	case "id":
		return m.pick("1", "2", "0", "12")
	case "text", "nofile":
		if m.r.IntN(4) == 0 {
			return m.pick(somePaths...)
		}
		return m.pick(someTexts...)
	case "word", "unit", "key", "node":
		return m.pick(someWordz...)
	case "host", "addr", "dns", "resolver":
		return m.pick("127.0.0.1", "localhost", "web1.internal", "10.0.0.1")
	case "plus":
		return m.pick("+%F", "+%s", "'+%Y-%m-%d %H'", "+x")
	case "kout":
		return m.pick("json", "yaml", "wide", "name")
	case "psarg":
		return m.pick("aux", "pid,comm")
	case "fmt":
		return m.pick("'#{pane_id}'", "x")
	case "etc":
		return m.pick("/etc/hosts", "/etc/passwd")
	case "unixsock":
		return "/run/x.sock"
	case "header":
		return "'Accept: text/plain'"
	case "wout":
		return m.pick("'%{http_code}'", "x")
	case "smartlog":
		return "error"
	}
	return m.pick(strings.Split(strings.TrimPrefix(kind, "="), "|")...)
}

func (m *maker) flag(name string, f *flagSpec) string {
	switch {
	case f.arity == 0:
		return " " + name
	case f.arity == 2 && m.r.IntN(2) == 0:
		return " " + name
	case f.arity == 2 && strings.HasPrefix(name, "--"):
		return " " + name + "=" + m.value(f.pred)
	case f.arity == 2:
		return " " + name + m.value(f.pred)
	case strings.HasPrefix(name, "--") && m.r.IntN(2) == 0:
		return " " + name + "=" + m.value(f.pred)
	}
	return " " + name + " " + m.value(f.pred)
}

// command makes one command of a program.
func (m *maker) command(name string) string {
	s := m.specs[name]
	out := name
	chain := []*spec{s}
	for len(s.subs) > 0 && (m.r.IntN(6) > 0 || len(s.operands) == 0 && !s.bare) {
		names := slices.Sorted(maps.Keys(s.subs))
		sub := m.pick(names...)
		out += " " + sub
		s = s.subs[sub]
		chain = append(chain, s)
	}
	flags := maps.Clone(s.flags)
	for _, c := range chain {
		maps.Copy(flags, c.all)
		for _, need := range c.needs {
			if n := m.pick(need...); flags[n] != nil {
				out += m.flag(n, flags[n])
			}
		}
	}
	if names := slices.Sorted(maps.Keys(flags)); len(names) > 0 {
		for range m.r.IntN(4) {
			n := m.pick(names...)
			out += m.flag(n, flags[n])
		}
	}
	for _, o := range s.operands {
		n := o.min
		if o.max < 0 {
			n += m.r.IntN(3)
		} else if o.max > n {
			n += m.r.IntN(2)
		}
		for range n {
			out += " " + m.value(o.pred)
		}
	}
	return out
}

// languages are commands of the programs that have no table.
func (m *maker) languages() string {
	p := func() string { return m.pick(somePaths...) }
	switch m.r.IntN(13) {
	case 0:
		tests := slices.Sorted(maps.Keys(findTests))
		out := "find " + m.pick(".", "dir", "/tmp/w/dir", "/var/log", "globs")
		for range 1 + m.r.IntN(3) {
			n := m.pick(tests...)
			out += " " + strings.NewReplacer("(", `\(`, ")", `\)`).Replace(n)
			if findTests[n] == 1 {
				out += " " + m.pick("'*.txt'", "f", "d", "+1", "1", "a.txt", "root", "'%p\\n'", "/tmp/x", "644")
			}
		}
		return out
	case 1:
		return "find " + m.pick(".", "./dir", "/var/log") + " -type f -exec " + m.pick("ls -l", "cat", "wc -l", "head -n 1", "grep -n ERROR", "md5sum", "stat", "file", "tail -n 1", "sort") + " {} " + m.pick("+", `\;`)
	case 2:
		return "sed " + m.pick("-n ", "-E ", "", "-z ", "-s ") + m.pick("'1,2p'", "'s/a/b/g'", "'/ERROR/d'", "'$!N;P;D'", "'1q'", "'s/a/b/Ip'", "'y/abc/xyz/'", "'='", "-e 1p -e 2d", "'/a/,/b/p'", "'l'", "'1~2d'", "'x;G;h'") + " " + p()
	case 3:
		return "awk " + m.pick("", "-F, ", "-F: ", "-v n=1 ") + m.pick("'{print $1}'", "'NR==1'", "'$2 > 1'", "'{s+=$2} END {print s}'", "'/ERROR/{c++} END{print c}'", "'length($0) > 10 {print NR}'", "'{printf \"%s\\n\", $1}'",
			"'BEGIN{print 1}'", "'{a[$1]++} END {for (k in a) print k, a[k]}'", "'$1 ~ /a/'", "'{gsub(/a/,\"b\"); print}'", "'(a > b) {print}'") + " " + p()
	case 4:
		return "tar " + m.pick("-tf x.tar", "tvf x.tar", "-tzf x.tar.gz", "tzvf x.tar.gz", "-tf x.tar.gz", "-t -f x.tar --wildcards '*.txt'", "-tvf x.tar a.txt", "-tOf x.tar", "-tRf x.tar", "--list --file=x.tar --full-time", "-tf nowhere", "-taf x.tar.gz", "-tf x.tar -C dir")
	case 5:
		return "ps " + m.pick("aux", "-ef", "-eo pid,comm", "aux --sort=-%mem", "-p 1", "-C bash", "axjf", "-o pid= -p 1", "-L", "--forest")
	case 6:
		return m.pick("echo a.txt", "ls", "find . -name '*.txt' -print0", "printf '%s\\n' a.txt b.txt", "cat numbers.txt", "echo -n", "ls globs") + " | xargs " + m.pick("", "-r ", "-n 1 ", "-0 ", "-I{} ", "-t ") + m.pick("ls -l", "cat", "wc -l", "head -n1", "md5sum", "stat", "file", "grep ERROR", "echo", "ls {}", "basename", "dirname")
	case 7:
		c := m.pick("cat a.txt", "ls -la", "date", "sort numbers.txt", "grep a a.txt", "wc -l app.log")
		if m.r.IntN(4) == 0 {
			return m.pick("bash", "sh") + " -c " + quote(c)
		}
		return m.pick("timeout 2 ", "nice ", "nice -n 5 ", "time ", "env ", "command ", "stdbuf -oL ", "ionice -c 3 ", "! ", "LC_ALL=C ", "TZ=UTC ") + c
	case 8:
		return m.pick("test", "[") + " " + m.pick("-f a.txt", "-d dir", "-n x", "1 -lt 2", "a = b", "-s empty.txt", "a.txt -nt b.txt", "! -e nowhere", "-L link")
	case 9:
		return "for f in " + m.pick("*.txt", "./globs/*", "a.txt b.txt", "1 2 3", "$(seq 3)", "dir/*") + "; do " + m.pick(`ls -l "$f"`, `cat -- "$f"`, `echo "$f"`, `wc -l < "$f"`, `stat "$f"`, "ls $f", "head -n1 $f") + "; done"
	case 10:
		hard := "git --no-optional-locks --no-pager --no-lazy-fetch -c core.fsmonitor=false -c core.hooksPath=/dev/null -c diff.external= "
		for _, h := range gitHardening {
			hard += "-c " + h + " "
		}
		return hard + "-C repo " + m.pick("log --oneline --no-ext-diff --no-textconv", "log --format=%h --no-ext-diff --no-textconv -n 1", "show --oneline --stat --no-ext-diff --no-textconv", "diff --cached --no-ext-diff --no-textconv", "branch -a", "tag --list", "remote -v",
			"rev-parse --show-toplevel", "ls-files", "describe --tags", "rev-list --count --all", "shortlog -sn HEAD", "reflog -n 3", "rev-parse HEAD", "branch --show-current")
	case 11:
		return "while read -r l; do " + m.pick(`echo "$l"`, `grep -c "$l" a.txt`, "ls") + "; done < " + m.pick("a.txt", "numbers.txt", "data.csv")
	}
	return m.pick("cat a.txt", "sort app.log", "grep -r ERROR dir", "ls -R", "tail -n 5 app.log", "cat data.json", "zcat x.gz", "echo a", "du -a", "df -h", "ss -ltn", "ip addr") + " | " +
		m.pick("head -n 2", "sort | uniq -c", "wc -l", "grep -v a", "awk '{print $1}'", "sed -n 1p", "cut -c1-5", "tr a-z A-Z", "tail -n 1", "cat", "tac", "rev", "nl", "column -t", "md5sum", "base64", "od -c", "jq .") +
		m.pick("", " 2>/dev/null", " | cat", " || true", " && echo ok", "; date", " > /dev/null 2>&1")
}

// endless matches commands that wait for more to come.
var endless = regexp.MustCompile(`(^|[\s;|(])(tail|journalctl|dmesg|kubectl|docker|supervisorctl|nomad|ip|top|vmstat|ss|ping|free|slabtop|systemd-cgtop|netstat|lsof|sleep|watch|w|who)\b`)

// wide matches commands that go through the whole machine: the beginning tells.
var wide = regexp.MustCompile(`^(find|du|grep|tree)\b.* /($|[ |;])|^systemctl list-unit-files`)

// enough makes at least n commands that are proven and can be run here.
func enough(t *testing.T, r *rand.Rand, n int) []string {
	t.Helper()
	specs, err := tables()
	if err != nil {
		t.Fatal(err)
	}
	m := &maker{r: r, specs: specs}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if slices.Contains(elsewhere, name) {
			continue
		}
		if installed(name) || slices.Contains(shellWords, name) && plainName(name) {
			m.names = append(m.names, name)
		}
	}
	seen := map[string]bool{}
	var out []string
	take := func(c string) bool {
		if seen[c] || !locked(c).ReadOnly || !runsHere(c) || needsLock(specs, c) {
			return false
		}
		seen[c] = true
		out = append(out, c)
		return true
	}
	rows := lines(t, "testdata/read.txt")
	files, err := filepath.Glob("testdata/corpus/readonly*.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var more []string
	for _, f := range files {
		for _, row := range lines(t, f) {
			if f := strings.Split(row, "\t"); len(f) > 1 && f[0] == "readonly" {
				more = append(more, unescapeField(t, f[1]))
			}
		}
	}
	r.Shuffle(len(more), func(i, k int) { more[i], more[k] = more[k], more[i] })
	few := map[string]int{}
	for _, c := range append(rows, more...) {
		name, _, _ := strings.Cut(c, " ")
		if slices.Contains(slowStarters, name) && few[name] > 1 || len(out) >= n/3 {
			continue
		}
		if take(c) {
			few[name]++
		}
	}
	corpus := len(out)
	for range 400 {
		take(m.languages())
	}
	// The same number of each program, as far as it has so many forms.
	per := map[string]int{}
	for round := 0; len(out) < n && round < 400; round++ {
		for _, name := range m.names {
			if slices.Contains(slowStarters, name) && per[name] > 1 {
				continue
			}
			if per[name] < 4+round/8 && take(m.command(name)) {
				per[name]++
			}
		}
	}
	t.Logf("%d rows of the corpus and %d made of %d programs", corpus, len(out)-corpus, len(per))
	return out
}

// needsLock reports whether a text names a program or an option that is trusted
// only under a lock; the prover runs those under one.
func needsLock(specs map[string]*spec, c string) bool {
	words := wordsInText.FindAllString(c, -1)
	var locked func(s *spec) bool
	locked = func(s *spec) bool {
		for name, f := range s.flags {
			if f.locked && slices.ContainsFunc(words, func(w string) bool {
				return strings.HasPrefix(w, name) || len(name) == 2 && strings.HasPrefix(w, "-") && strings.Contains(w, name[1:])
			}) {
				return true
			}
		}
		return s.locked || slices.ContainsFunc(slices.Collect(maps.Values(s.subs)), locked)
	}
	return slices.ContainsFunc(words, func(w string) bool { return specs[w] != nil && locked(specs[w]) })
}

// elsewhere are programs that keep their accounts and logs in files of their own
// and do nothing without a network; a sandbox tells nothing of them.
var elsewhere = strings.Fields("aws az bq gcloud gsutil")

// slowStarters are programs that take long whatever they are asked, so that only
// a few of their commands are run.
var slowStarters = strings.Fields("apt apt-cache apt-get apt-mark docker helm java javac jcmd jinfo jmap jps jstack jstat kubectl locale lsof npm pip pip3 psql tofu top yq zdump")

var commandNames = regexp.MustCompile(`(?:^|[;&|({]|\$\(|\b(?:do|then|else|time|xargs|!))\s*([A-Za-z0-9_.+/\[-]+)`)

// runsHere reports whether the first program of a text is installed.
func runsHere(c string) bool {
	m := commandNames.FindStringSubmatch(c)
	if m == nil {
		return true
	}
	if slices.ContainsFunc(elsewhere, func(n string) bool { return strings.Contains(c, n+" ") }) {
		return false
	}
	name := path.Base(m[1])
	return installed(name) || slices.Contains(shellWords, name) || strings.Contains(name, "=")
}

func TestWhatIsProvenChangesNothing(t *testing.T) {
	t.Parallel()
	want := wantCommands
	if !needstest.Whole(t) {
		want /= 7
	}
	seed := uint64(usualSeed)
	if s := os.Getenv(seedEnv); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("%s is %q: write a number", seedEnv, s)
		}
		seed = n
	}
	t.Logf("the seed is %d; %s=%d makes the same commands", seed, seedEnv, seed)
	commands := enough(t, rand.New(rand.NewPCG(seed, 0)), want+20)
	if len(commands) < want {
		t.Errorf("only %d commands", len(commands))
	}
	jobs := make([]job, 0, len(commands))
	for i, c := range commands {
		at, _ := Settle(Judge, Text{Command: c, Dir: worldHome, Locked: true, Environ: true, Shell: Bash, Reach: known})
		j := job{ID: i, Text: c, Dir: at.Dir, Limit: runLimit}
		if endless.MatchString(c) || wide.MatchString(c) {
			j.Limit = endlessLimit
		}
		jobs = append(jobs, j)
	}
	results, traces := sandbox(t, jobs, 2)
	slow, failed, took := 0, 0, time.Duration(0)
	per := map[string]int64{} // milliseconds
	for _, j := range jobs {
		d := results[j.ID]
		d.Found = append(d.Found, strays(j.Text, j.Dir, traces[j.ID])...)
		if found := serious(j.Text, append(d.Found, attempts(j.Text, traces[j.ID])...)); len(found) > 0 {
			t.Errorf("LEAK %s\n\t%s", j.Text, strings.Join(found, "\n\t"))
		}
		took += time.Duration(d.Took) * time.Millisecond
		first, _, _ := strings.Cut(j.Text, " ")
		per[first] += d.Took
		if d.Took > 2000 {
			t.Logf("%d ms: %s", d.Took, j.Text)
		}
		if d.Timeout {
			slow++
		}
		if d.Exit != 0 {
			failed++
		}
	}
	names := slices.SortedFunc(maps.Keys(per), func(a, b string) int { return int(per[b] - per[a]) })
	for _, n := range names[:min(len(names), 12)] {
		t.Logf("%s took %d ms", n, per[n])
	}
	t.Logf("%d commands ran for %s in all; %d gave an error, %d were stopped", len(jobs), took.Round(time.Second), failed, slow)
}

// The test is worth what it sees.
func TestTheSandboxSeesWhatACommandDoes(t *testing.T) {
	t.Parallel()
	bad := []struct{ text, want string }{
		{"echo x >> a.txt", "changes /tmp/w/a.txt"},
		{"touch new", "makes /tmp/w/new"},
		{"rm b.txt", "removes /tmp/w/b.txt"},
		{"chmod 600 a.txt", "changes /tmp/w/a.txt"},
		{"touch -d 2001-01-01 a.txt", "changes /tmp/w/a.txt"},
		{"mkdir -p empty/x && rmdir empty/x", "changes /tmp/w/empty"},
		{"touch /var/log/new", "makes /var/log/new"},
		{"mv a.txt c.txt", "makes /tmp/w/c.txt"},
		{"ln -s a.txt l", "makes /tmp/w/l"},
		{"sleep 3 & true", "leaves running: sleep"},
		{"setsid sleep 3 & true", "leaves running: sleep"},
		{"git -C repo status", "makes /tmp/pwned"},
	}
	seen := []struct{ text, want string }{
		{"echo x > /etc/new", "opens for writing /etc/new"},
		{"touch /usr/x", "opens for writing /usr/x"},
		{"rm -f /etc/hosts", "unlink"},
		{"x=l; ${x}s", "runs /usr/bin/ls"},
		{"$(echo w)c -l a.txt", "runs /usr/bin/wc"},
		{"echo x > /dev/tcp/10.0.0.1/9", "connects AF_INET"},
		{"cat a.txt | tee b.txt | wc -l", "opens for writing b.txt"},
		{"mkdir /usr/x", "does mkdir"},
	}
	good := []string{"ls -la", "cat a.txt | sort | uniq -c", "grep -r ERROR . 2>/dev/null", "echo hello > /dev/null", "find . -type f -exec md5sum {} +", "wc -l <<< text", "for i in 1 2 3; do echo $i; done"}
	var jobs []job
	add := func(text string) { jobs = append(jobs, job{ID: len(jobs), Text: text, Limit: runLimit}) }
	for _, b := range bad {
		add(b.text)
	}
	for _, s := range seen {
		add(s.text)
	}
	for _, g := range good {
		add(g)
	}
	add("sleep 30")
	jobs[len(jobs)-1].Limit = 100 * time.Millisecond
	results, traces := sandbox(t, jobs, 1)
	for i, b := range append(bad, seen...) {
		if i >= len(bad) && len(traces) == 0 {
			break // no strace
		}
		found := strings.Join(append(results[i].Found, attempts(b.text, traces[i])...), "\n")
		if !strings.Contains(found, b.want) {
			t.Errorf("%s: %q is not in %q", b.text, b.want, found)
		}
	}
	for i, g := range good {
		k := len(bad) + len(seen) + i
		if found := append(results[k].Found, attempts(g, traces[k])...); len(found) > 0 || results[k].Exit != 0 || results[k].Timeout {
			t.Errorf("%s: %q %+v", g, found, results[k])
		}
	}
	if !results[len(jobs)-1].Timeout {
		t.Error("a command that takes too long isn't stopped")
	}
}

func TestCommandsAreMadeTheSameFromTheSameSeed(t *testing.T) {
	a := enough(t, rand.New(rand.NewPCG(7, 0)), 900)
	b := enough(t, rand.New(rand.NewPCG(7, 0)), 900)
	if !slices.Equal(a, b) {
		t.Error("the seed doesn't decide alone")
	}
}

func TestATraceIsSortedByCommand(t *testing.T) {
	const text = `7 execve("/proc/self/fd/6", ["x"], 0x1 /* 3 vars */) = 0
7 openat(AT_FDCWD, "/job/4", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
9 execve("/bin/bash", ["bash", "-c", "ls | x"], 0x1 /* 3 vars */) = 0
10 execve("/usr/bin/ls", ["ls"], 0x1 /* 3 vars */ <unfinished ...>
11 execve("/usr/bin/x", ["x"], 0x1 /* 3 vars */) = -1 ENOENT (No such file or directory)
10 <... execve resumed>) = 0
10 openat(AT_FDCWD, "/etc/x, O_RDWR", O_RDONLY) = 3
11 openat(AT_FDCWD, "/etc/y", O_WRONLY|O_CREAT, 0666) = -1 EROFS (Read-only file system)
7 openat(AT_FDCWD, "/job/-1", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
12 unlink("/tmp/x") = 0
7 openat(AT_FDCWD, "/job/5", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file or directory)
13 unlinkat(AT_FDCWD, "x", 0) = 0
`
	lines := readTrace(strings.NewReader(text))
	if got := attempts("ls | x", lines[4]); !slices.Equal(got, []string{"opens for writing /etc/y"}) {
		t.Errorf("%q", got)
	}
	if got := attempts("x", lines[4]); !slices.Equal(got, []string{"opens for writing /etc/y", "runs /usr/bin/ls"}) {
		t.Errorf("%q", got)
	}
	if got := attempts("y", lines[5]); len(got) != 1 || !strings.HasPrefix(got[0], "does unlinkat(") {
		t.Errorf("%q", got)
	}
	if len(lines) != 2 {
		t.Errorf("%v", lines)
	}
}
