// Package backend is the interface to a machine that commands run on: a [Target] offers processes
// and files, nothing else. targets/tmux and every tool are built on it; targets/local, targets/ssh
// and targets/container implement it, and targets/backendtest is their conformance suite.
//
// It does not judge commands: a target starts only what a [Warrant] is for, which packages
// targets/backend/door and targets/backend/approved make.
package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"countersign/targets/backend/internal/warrant"
)

var (
	// ErrLost means that the connection to the target was lost: the outcome of what ran there is
	// unknown.
	ErrLost = errors.New("backend: the connection to the target is lost")
	// ErrTooBig is returned by FileSystem.ReadFile for a file larger than its limit.
	ErrTooBig = errors.New("backend: the file is larger than the limit")
	// ErrChanged means that a directory or file is no longer the one that was
	// expected, so nothing was done.
	ErrChanged = errors.New("backend: it is no longer what it was")
	// ErrNoLock means that a process required a lock, and the target has none.
	ErrNoLock = errors.New("backend: the target cannot hold a process back")
	// ErrNoWarrant means that nothing lets a process start as it is given.
	ErrNoWarrant = errors.New("backend: nothing permits this process to start")
)

// FullError says that a machine has no room for a file.
func FullError(machine, file string) error {
	return fmt.Errorf("the disk of %s is full, so %s can't be written; free space on the file system of %s, then retry: %w", machine, file, path.Dir(file), syscall.ENOSPC)
}

// Target is one place where commands run and files live. It is safe for
// concurrent use.
type Target interface {
	// ID names the target and identifies the machine: "local", or for example
	// "ssh:web-1#SHA256:..." once the host key is known. It is part of what people approve.
	ID() string
	// Start starts a process that [Spec.Permitted] permits. Canceling ctx kills its whole process group.
	Start(ctx context.Context, s Spec) (Process, error)
	// FS gives access to the target's files.
	FS() FileSystem
	// Probe returns what the target can do. It is cheap after the first call.
	Probe(ctx context.Context) (Caps, error)
	// Close closes connections; processes started with Detach (a tmux server) keep running.
	Close() error
}

// Spec describes a process to start. Exactly one of Argv and Shell must be set.
type Spec struct {
	Argv  []string // a program and its arguments, no shell in between
	Shell string   // text for "sh -c", byte for byte
	Dir   string   // absolute, or empty for the target's default directory
	// DirID is the FileInfo.ID that Dir must have. Start refuses any other directory with
	// ErrChanged, and the process starts in exactly that one even if the name changes concurrently.
	// "" checks nothing.
	DirID string
	Env   []string // the whole environment, "K=V"; nil means the target's scrubbed default
	// Stdin is copied to the process; nil means empty input.
	Stdin io.Reader
	// Stdout and Stderr receive the output as it arrives; nil discards it. The same Writer in both
	// gives one merged stream in the order written.
	Stdout, Stderr io.Writer
	// Grace is the time between SIGTERM and SIGKILL when the process is canceled; 0 means 2 s.
	Grace time.Duration
	// Detach lets the process outlive the bot (a tmux server): only Kill ends it, not the end of
	// ctx.
	Detach bool
	// Lock, if not nil, makes the kernel prevent it from changing anything. Start returns ErrNoLock
	// if the target has no lock: it never runs the process without.
	Lock *Lock
	// Bounded limits its memory and processor time, and has the kernel end it before others when memory is short. It is
	// for what nobody approved where there is no lock, which does that, too.
	Bounded bool
	// Mark, if not empty, makes a target that is a [Witness] record when the process began and how
	// it ended, and keep what it prints. It then outlives the connection and the bot. 1 to 64 of
	// a-z, A-Z, 0-9, "-" and "_". A process with a Lock has none.
	Mark string
	// Approval is the approval by which it changes something, for a target that takes a credential of
	// its own for each (see targets/ssh). Such a target runs exactly the action that was approved, and
	// of the rest of the Spec only the streams, Grace and the deadline of ctx count. The mark is then
	// the approval's.
	Approval string
	// Warrant is what lets it start.
	Warrant Warrant
}

// Warrant lets exactly one content of a Spec start: see targets/backend/door. The zero Warrant lets
// nothing start.
type Warrant = warrant.Warrant

// Content is the part of a Spec that its Warrant is for.
func (s Spec) Content() any {
	return struct {
		Argv     []string
		Shell    string
		Lock     *Lock
		Approval string
	}{s.Argv, s.Shell, s.Lock, s.Approval}
}

// Permitted returns an error unless the Spec has a Warrant for its content. Every Target checks it before
// anything else.
func (s Spec) Permitted() error {
	if !s.Warrant.Covers(s.Content()) {
		return ErrNoWarrant
	}
	return nil
}

// Lock lists what a locked process may do besides reading files and writing to its own streams. The
// zero Lock is the strictest: it forbids changing files, connecting, signaling or inspecting other
// processes, opening devices and gaining privileges, and bounds time, memory and processes.
type Lock struct {
	Net       bool     // IP connections and name resolution
	Netlink   bool     // querying the kernel about the network
	Processes bool     // inspecting other processes of the account
	Devices   bool     // opening devices for reading
	Admin     bool     // queries that the kernel answers only to network administrators
	Sockets   []string // absolute paths of the Unix sockets that it may connect to
	// System limits reading to the system's directories and Read, since a planted library or setting could decide what
	// the program asks a daemon. HOME doesn't exist for it.
	System bool
	Read   []string // absolute
	// Files lets it change files: what it sees is a throwaway view of them (targets/rehearsal). Nothing
	// else may be set with it. Everything that such a view cannot show is refused and is a hit.
	Files bool
}

// Hit is one thing that a locked process attempted and was refused.
type Hit struct {
	Kind HitKind
	Name string // a path, a process, or an address; may be empty
}

// OfCache reports whether a program wanted to change its own cache or settings below a home directory, which it
// works without: ~/.config/procps, ~/.cache.
func (h Hit) OfCache(home string) bool {
	rest, below := strings.CutPrefix(h.Name, strings.TrimSuffix(home, "/")+"/.")
	return below && (h.Kind == HitWrite || h.Kind == HitChange) && slices.ContainsFunc([]string{"config", "cache", "local", "kube/cache", "docker"}, func(dir string) bool {
		return rest == dir || strings.HasPrefix(rest, dir+"/")
	})
}

// HitKind is the kind of an attempt.
type HitKind string

// The kinds of attempts.
const (
	HitWrite   HitKind = "write"   // opening a file to write it
	HitChange  HitKind = "change"  // changing a name, a mode, an owner, a mount, the system
	HitConnect HitKind = "connect" // a socket that it was not declared to need
	HitSignal  HitKind = "signal"  // a signal to another process
	HitDevice  HitKind = "device"  // a device, or a request to one
	HitStart   HitKind = "start"   // connecting to what systemd would start for it
	// HitList is listing the processes of the system, in a view that has none but its own. It is not
	// refused.
	HitList HitKind = "list"
)

// ParseHit reads a hit as the programs that lock report it: its kind, a space and its name, in which
// %XX is a byte.
func ParseHit(text string) (Hit, bool) {
	kind, name, _ := strings.Cut(text, " ")
	h := Hit{Kind: HitKind(kind)}
	switch h.Kind {
	case HitWrite, HitChange, HitConnect, HitSignal, HitDevice, HitStart, HitList:
	default:
		return h, false
	}
	var err error
	if h.Name, err = url.PathUnescape(name); err != nil {
		h.Name = name
	}
	if path.IsAbs(h.Name) {
		h.Name = path.Clean(h.Name)
	}
	return h, true
}

// LockState describes a target's lock.
type LockState struct {
	// By names what applies it: "bot", "helper", "perl"; "" means no lock.
	By string
	// Lacks lists, in sentences, what this lock does not cover, or why there is none.
	Lacks []string
	// NoSockets means that it can't leave single Unix sockets open.
	NoSockets bool
	// Root means that the account is root, and Landlock that the kernel has that.
	Root, Landlock bool
}

// Holds reports whether a process can run under a lock there.
func (s LockState) Holds(l Lock) bool {
	return s.By != "" && (!s.NoSockets || len(l.Sockets) == 0) && (!l.System || !s.Root || s.Landlock && !l.Processes)
}

// Process is a running process in its own process group.
type Process interface {
	// Wait waits for the process and for its output to be copied. It must be called at most once.
	// It returns an error only if the outcome is unknown (ErrLost) or the process could not be
	// waited for.
	Wait() (Result, error)
	// Kill ends the whole process group: SIGTERM, Grace, SIGKILL. It returns
	// at once; Wait reports the end.
	Kill()
}

// Result is how a process ended.
type Result struct {
	Code     int           // exit code; 128+n when a signal ended it
	Signal   string        // name of the signal that ended it, without "SIG" ("KILL"), or ""
	Killed   bool          // by Kill or by the end of ctx
	Duration time.Duration // wall time
	// Hits are what a locked process attempted and was refused, each once, at most MaxHits.
	Hits []Hit
}

// MaxHits is how many hits of one process are kept.
const MaxHits = 16

// Caps is what a target can do.
type Caps struct {
	Tmux    string // version, for example "3.3a"; "" if not installed
	Bash    string // path, or ""
	User    string
	Home    string
	OS      string // "linux"
	Procfs  bool
	TempDir string
	Lock    LockState
}

// FileInfo describes one file.
type FileInfo struct {
	Path string // absolute
	Size int64
	Mode fs.FileMode
	Time time.Time
	// ID identifies the file across renames of its parents ("dev:inode" where
	// the target has those), or "".
	ID string
}

// FileSystem gives access to a target's files. Paths are absolute or relative to the target's
// default directory. Errors wrap fs.ErrNotExist, fs.ErrPermission and fs.ErrExist where they apply.
type FileSystem interface {
	// ReadFile returns at most limit bytes, and ErrTooBig (with those bytes)
	// when there is more. limit <= 0 means no limit.
	ReadFile(ctx context.Context, path string, limit int64) ([]byte, error)
	// WriteFile replaces or creates a file atomically (temporary file and
	// rename) and keeps the mode of a file that it replaces; a new one gets
	// mode 0644. Missing parent directories are an error unless mkdir is set.
	WriteFile(ctx context.Context, path string, data []byte, mkdir bool) error
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Resolve returns the absolute path with every symbolic link followed. For a file that does not
	// exist, it resolves the directory.
	Resolve(ctx context.Context, path string) (string, error)
}

// Replacer is a FileSystem that can write a file on condition that it has not changed. Without it,
// callers can only check right before writing.
type Replacer interface {
	// Replace writes like WriteFile, without creating directories. It returns ErrChanged, and
	// changes nothing, if the path contains a symbolic link, if its directory differs from that of
	// was, or if the file has different content. A file that appears concurrently is not replaced.
	Replace(ctx context.Context, path string, data []byte, was Before) error
}

// Remover is a FileSystem that can remove a file on condition that it has not changed.
type Remover interface {
	// Remove removes a regular file. It returns ErrChanged, and removes nothing, if the path
	// contains a symbolic link, if its directory differs from that of was, or if the file has
	// different content.
	Remove(ctx context.Context, path string, was Before) error
}

// Before is the expected state of a file that is replaced or removed.
type Before struct {
	Dir string // FileInfo.ID of its directory
	Sum string // hex SHA-256 of its content; "" means that the file must not exist
	// Mode is the mode of a file that did not exist; 0 means 0644. The file belongs to the account
	// that writes it.
	Mode fs.FileMode
}

// Recent is how long what a target said counts as what it would say now, for a command that
// runs as soon as it was looked at. It is far more than the bot needs in between, and far less
// than people need to change something.
const Recent = 250 * time.Millisecond

// Preparer is a Target that can prepare the start of a program while something else is looked
// at, where a start needs several round trips.
type Preparer interface {
	// Prepare returns immediately, and changes nothing on the target. Nothing follows from a
	// failure.
	Prepare()
}

// Surveyor is a FileSystem that can stat many files at once, for targets where each call is a round
// trip.
type Surveyor interface {
	// StatAll is Stat of every path, in order; errs has nil for those that exist. The last error
	// means that the target did not answer. FileInfo.Path is resolved, even for files that do not
	// exist.
	StatAll(ctx context.Context, paths []string) (infos []FileInfo, errs []error, err error)
}

// Lister is a FileSystem that can list directories recursively.
type Lister interface {
	// List calls each for everything below dir, depth levels deep (1: the directory's own entries;
	// 0: all), in no particular order, until it returns false. Symbolic links are listed and not
	// followed. Info.Path begins with dir; Info.ID is empty. What cannot be read is left out and
	// counted in skipped.
	List(ctx context.Context, dir string, depth int, each func(FileInfo) bool) (skipped int, err error)
}

// Opener is a FileSystem whose files can be read incrementally, at disk speed.
type Opener interface {
	// Open opens a regular file for reading.
	Open(ctx context.Context, path string) (io.ReadCloser, error)
}

// Sieve is a FileSystem that can tell on the target which files contain a text, so that the others
// need not be transferred.
type Sieve interface {
	// Holding returns those of the regular files below dir (or dir itself) that contain text in one
	// line; fold ignores the case of ASCII letters. ok is false if the target cannot tell.
	Holding(ctx context.Context, dir, text string, fold bool) (files []string, ok bool, err error)
}

// Launcher is a Target that tells what starts a program under a lock there, for a script that starts
// the program itself (targets/rehearsal).
type Launcher interface {
	// Launcher returns the program and its arguments; the program to start and its own come behind
	// them. Hits come on standard error, each as a line of the token, " h " and what [ParseHit]
	// reads. The error is ErrNoLock where there is none that reports hits.
	Launcher(ctx context.Context, token string, l Lock) ([]string, error)
}

// Witness is a Target that records how processes with a Mark ended, and keeps the beginning of what
// they print.
type Witness interface {
	// Testify returns the record of a mark. For an unknown mark it returns Testimony{}, not an
	// error.
	Testify(ctx context.Context, mark string) (Testimony, error)
	// Follow returns a process that was started with a mark before, maybe by an earlier bot. It
	// writes to Stdout and Stderr of s what the process has printed from its beginning, as far as
	// it was kept, and what it prints from now on; of the rest of s only Grace counts. Kill ends the
	// process; the end of ctx does not. The error wraps fs.ErrNotExist if there is no record.
	Follow(ctx context.Context, mark string, s Spec) (Process, error)
	// Prune deletes what was kept of ended processes whose marks begin with prefix and are not in
	// open.
	Prune(ctx context.Context, prefix string, open []string) error
}

// Testimony is a target's record of one process.
type Testimony struct {
	Began, Ended time.Time // zero: not recorded
	Running      bool      // it began, has not ended, and still exists
	Code         int       // valid if it ended
}

// SearchPath is the PATH of processes, independent of the bot's own PATH.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environ returns the whole environment of a process that was not given one: fixed, and without
// anything of the bot's own. So no token leaks into a command, and no variable changes its meaning:
// there is no BASH_ENV, LD_PRELOAD, GIT_*, PYTHON*, NODE_OPTIONS, LESSOPEN, GREP_OPTIONS or
// RIPGREP_CONFIG_PATH. Programs are kept from opening pagers, prompting on a terminal, and taking
// optional locks.
func Environ(c Caps) []string {
	return []string{
		"PATH=" + SearchPath,
		"HOME=" + c.Home,
		"USER=" + c.User,
		"LOGNAME=" + c.User,
		"LANG=C.UTF-8",
		"TERM=dumb",
		"PAGER=cat",
		"GIT_PAGER=cat",
		"SYSTEMD_PAGER=",
		"NO_COLOR=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"DEBIAN_FRONTEND=noninteractive",
	}
}

// bounds runs a program within the limits of Spec.Bounded: a quarter of the memory that is free on the machine or left
// of the container, but 256 MB, and two minutes of processor time. A shell counts the size of core dumps in blocks: the
// limit of 1 byte, which a lock sets, can't be written.
const bounds = `{
  echo 1000 >/proc/$$/oom_score_adj
  m=4194304
  while read -r k v u; do [ "$k" = MemAvailable: ] && [ "$((v / 4))" -lt "$m" ] && m=$((v / 4)); done </proc/meminfo
  left() {
    read -r k <"/sys/fs/cgroup/$1" && read -r v <"/sys/fs/cgroup/$2" || return
    case $k$v in *[!0-9]*) return ;; esac
    while read -r n c; do [ "$n" = "$4" ] && v=$((v - c)); done <"/sys/fs/cgroup/$3"
    [ "$(((k - v) / 4096))" -lt "$m" ] && m=$(((k - v) / 4096))
  }
  left memory.max memory.current memory.stat inactive_file
  left memory/memory.limit_in_bytes memory/memory.usage_in_bytes memory/memory.stat total_inactive_file
  [ "$m" -gt 262144 ] || m=262144
  ulimit -c 0
  ulimit -St 120
  ulimit -Ht 125
  ulimit -d "$m"
} 2>/dev/null
exec "$@"`

// Bound is what starts argv as Spec.Bounded says.
func (s Spec) Bound(argv []string) []string {
	if !s.Bounded {
		return argv
	}
	return append([]string{"sh", "-c", bounds, "sh"}, argv...)
}

// Confined is the Spec as it is started under a lock with System: in "/" unless it names paths, with the environment
// of an account that has no home directory, and with what Env has besides.
func (s Spec) Confined(c Caps) Spec {
	if s.Lock == nil || !s.Lock.System {
		return s
	}
	if len(s.Lock.Read) == 0 {
		s.Dir, s.DirID = "/", ""
	}
	c.Home = "/nonexistent"
	env := Environ(c)
	for _, kv := range s.Env {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(env, func(known string) bool { return strings.HasPrefix(known, name+"=") }) {
			env = append(env, kv)
		}
	}
	s.Env = env
	return s
}
