// Package local is the target on the bot's own machine: processes by os/exec, each in its own
// process group, and files by os.
//
// A process gets nothing of the bot's environment, so no token can leak into a command. It may do
// what the bot's user may do, unless its backend.Spec has a Lock.
package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"countersign/targets/backend"
	"countersign/targets/backend/door"
	"countersign/targets/lock"
	"countersign/targets/lock/helper"
)

// Options configure the local target.
type Options struct {
	// Name distinguishes several configured targets on this machine; "" means "local".
	Name string
	// Host is part of the target's ID if processes on several machines share a store, so that an
	// approval for one machine is not used on another; otherwise "".
	Host string
	// Dir is the absolute default directory of commands and of relative paths; "" means the user's
	// home.
	Dir string
	// Notes is the directory for the records of processes with a mark and for what they print; ""
	// means that there are none.
	Notes string
	// Launcher is the program, with its first arguments, that starts another one under a lock
	// (targets/lock/helper); nil means that there is none for scripts.
	Launcher []string
	// Untried leaves out the trial of the lock, which starts a process. Then there is none.
	Untried bool
}

// Target is the local machine. It is safe for concurrent use.
type Target struct {
	id, dir, home, user, notes string
	untried                    bool
	launcher                   []string

	mu   sync.Mutex
	caps *backend.Caps
}

var _ backend.Target = (*Target)(nil)

// handleIgnored prevents child processes from ignoring the signals that this process was started to
// ignore (by nohup, or behind an "&" in a script): a program inherits ignored signals, but not
// handled ones. This process keeps ignoring them.
var handleIgnored = sync.OnceFunc(func() {
	none := make(chan os.Signal, 1) // what does not fit is dropped
	for s := syscall.Signal(1); s < 32; s++ {
		if s != syscall.SIGKILL && s != syscall.SIGSTOP && signal.Ignored(s) {
			signal.Notify(none, s)
		}
	}
})

// New returns the local target. It starts nothing.
func New(o Options) *Target {
	handleIgnored()
	t := &Target{id: "local", dir: o.Dir, home: os.Getenv("HOME"), notes: o.Notes, untried: o.Untried, launcher: o.Launcher}
	if o.Name != "" && o.Name != t.id {
		t.id += ":" + o.Name
	}
	if o.Host != "" {
		t.id += "#" + o.Host
	}
	if u, err := user.Current(); err == nil {
		t.user = u.Username
		if !filepath.IsAbs(t.home) {
			t.home = u.HomeDir
		}
	}
	if !filepath.IsAbs(t.home) {
		t.home = "/"
	}
	if t.dir == "" {
		t.dir = t.home
	}
	return t
}

// ID returns "local", followed by the target's name if it is another one, and by the host.
func (t *Target) ID() string { return t.id }

// FS returns the machine's files.
func (t *Target) FS() backend.FileSystem { return files{t: t} }

// Close does nothing: there is no connection.
func (t *Target) Close() error { return nil }

// Probe returns what the machine has. Only the first call starts a process.
func (t *Target) Probe(ctx context.Context) (backend.Caps, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.caps != nil {
		return *t.caps, nil
	}
	c := backend.Caps{
		User:    t.user,
		Home:    t.home,
		OS:      runtime.GOOS,
		TempDir: os.TempDir(),
	}
	if t.untried {
		c.Lock.Lacks = []string{"it was not tried"}
	} else {
		c.Lock = lock.State(ctx)
	}
	if p, err := lookPath("bash", backend.SearchPath, "/"); err == nil {
		c.Bash = p
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		c.Procfs = true
	}
	if _, err := lookPath("tmux", backend.SearchPath, "/"); err == nil {
		v, err := t.tmuxVersion(ctx)
		if err != nil {
			return backend.Caps{}, err
		}
		c.Tmux = v
	}
	t.caps = &c
	return c, nil
}

func (t *Target) tmuxVersion(ctx context.Context) (string, error) {
	var out bytes.Buffer
	p, err := door.Start(ctx, t, door.Look, nil, backend.Spec{Argv: []string{"tmux", "-V"}, Dir: "/", Stdout: &out})
	if err != nil {
		return "", err
	}
	res, err := p.Wait()
	if err != nil {
		return "", err
	}
	if res.Killed {
		return "", ctx.Err()
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(out.String()), "tmux ")
	if res.Code != 0 || !ok {
		return "", nil // there is something called tmux, but it is of no use
	}
	return version, nil
}

// Launcher implements backend.Launcher.
func (t *Target) Launcher(_ context.Context, token string, l backend.Lock) ([]string, error) {
	if t.launcher == nil {
		return nil, backend.ErrNoLock
	}
	return append(slices.Clone(t.launcher), "run", "--needs", helper.Needs(l), "--hits", token, "--"), nil
}

// environ is the environment of a process whose Spec has no Env.
func (t *Target) environ() []string {
	return backend.Environ(backend.Caps{User: t.user, Home: t.home})
}

// lookPath finds a program the way a shell with this PATH would; a name with a
// slash is relative to dir.
func lookPath(name, path, dir string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, executable(name)
	}
	var denied error
	for d := range strings.SplitSeq(path, ":") {
		if !filepath.IsAbs(d) {
			continue
		}
		p := filepath.Join(d, name)
		err := executable(p)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("the program %q is not on this machine: %w", name, fs.ErrNotExist)
}

func executable(p string) error {
	st, err := os.Stat(p)
	if err != nil {
		return err
	}
	if st.IsDir() || st.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not an executable program: %w", p, fs.ErrPermission)
	}
	return nil
}
