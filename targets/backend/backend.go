// Package backend is the port to a machine that commands run on: a [Target]
// offers processes and files, nothing else. targets/tmux and every tool are
// written once over it; targets/local (and later container and ssh)
// implement it, held together by the suite in targets/backendtest.
//
// It does not judge commands: only code that holds an approvals.Permit calls
// it for anything that came from a model.
package backend

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"
)

var (
	// ErrLost means that the connection to the target is gone: what ran there
	// has an unknown outcome.
	ErrLost = errors.New("backend: the connection to the target is lost")
	// ErrTooBig is returned by FileSystem.ReadFile past its limit.
	ErrTooBig = errors.New("backend: the file is larger than the limit")
	// ErrChanged means that a directory or file is no longer the one that was
	// expected, so nothing was done.
	ErrChanged = errors.New("backend: it is no longer what it was")
	// ErrNoLock means that a process was to be locked, and the target cannot.
	ErrNoLock = errors.New("backend: the target cannot hold a process back")
)

// Target is one place where commands run and files live. It is safe for
// concurrent use.
type Target interface {
	// ID names the target and proves which one it is: "local", or for example
	// "ssh:web-1#SHA256:..." once the host key is known. It is part of what a
	// person approves.
	ID() string
	// Start starts a process. Cancelling ctx kills its whole process group.
	Start(ctx context.Context, s Spec) (Process, error)
	// FS gives access to the target's files.
	FS() FileSystem
	// Probe tells what the target can do. It is cheap after the first call.
	Probe(ctx context.Context) (Caps, error)
	// Close ends connections; processes that were meant to outlive the bot
	// (a tmux server) stay.
	Close() error
}

// Spec says what to start. Exactly one of Argv and Shell is set.
type Spec struct {
	Argv  []string // a program and its arguments, no shell in between
	Shell string   // text for "sh -c", byte for byte
	Dir   string   // absolute, or empty for the target's default directory
	// DirID is the FileInfo.ID that Dir must have. Start refuses any other
	// directory with ErrChanged, and the process begins in exactly that one, even
	// if the name leads elsewhere in this very moment. "" checks nothing.
	DirID string
	Env   []string // the whole environment, "K=V"; nil means the target's scrubbed default
	// Stdin is copied to the process; nil means an empty input.
	Stdin io.Reader
	// Stdout and Stderr receive the bytes as they come; nil discards them. The
	// same Writer in both gives one merged stream in the order written.
	Stdout, Stderr io.Writer
	// Grace is the time between SIGTERM and SIGKILL when the process is
	// cancelled; 0 means 2 s.
	Grace time.Duration
	// Detach lets the process outlive the bot (a tmux server): the end of ctx
	// does not end it, Kill does.
	Detach bool
	// Lock, if not nil, runs it where the kernel keeps it from changing anything. Start
	// refuses with ErrNoLock where the target has no lock: it never runs without.
	Lock *Lock
	// Mark, if not empty, makes a target that is a [Witness] note when the process
	// began and how it ended, where the note outlives the connection. 1 to 64 of
	// a-z, A-Z, 0-9, "-" and "_".
	Mark string
}

// Lock is what a locked process may do beside reading files and writing to its own
// streams. The zero Lock is the strictest: no file is changed, nothing is connected to,
// no other process is signalled or looked into, no device is opened, no privilege is
// gained, and time, memory and processes are bounded.
type Lock struct {
	Net       bool     // connections over IP, and looking names up
	Netlink   bool     // questions to the kernel about the network
	Processes bool     // looking into other processes of the account
	Devices   bool     // opening devices for reading
	Admin     bool     // questions that the kernel answers only to who may change the network
	Sockets   []string // absolute paths of the Unix sockets that it may connect to
}

// Hit is one thing that a locked process tried and was not allowed.
type Hit struct {
	Kind HitKind
	Name string // what it was about: a path, a process, an address; may be empty
}

// HitKind is what was tried.
type HitKind string

// The kinds of hits.
const (
	HitWrite   HitKind = "write"   // opening a file to write it
	HitChange  HitKind = "change"  // changing a name, a mode, an owner, a mount, the system
	HitConnect HitKind = "connect" // a socket that it was not declared to need
	HitSignal  HitKind = "signal"  // a signal to another process
	HitDevice  HitKind = "device"  // a device, or a request to one
)

// LockState says which lock a target has.
type LockState struct {
	// By names what applies it: "bot", "helper", "perl", "python3", "bwrap"; "" is none.
	By string
	// Lacks are sentences: what this lock does not cover, or, where there is none, why.
	Lacks []string
}

// Process is a running process, in a process group of its own.
type Process interface {
	// Wait waits for the process and for its output to be copied. It may be
	// called once. It returns an error only when the outcome is unknown
	// (ErrLost) or the process could not be waited for.
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
	// Hits are what a locked process tried in vain, each once, at most MaxHits.
	Hits []Hit
}

// MaxHits is how many hits of one process are kept.
const MaxHits = 16

// Caps is what a target can do.
type Caps struct {
	Tmux    string // version, for example "3.3a"; "" when there is none
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

// FileSystem gives access to a target's files. Paths are absolute or relative
// to the target's default directory. Errors wrap fs.ErrNotExist,
// fs.ErrPermission and fs.ErrExist where they apply.
type FileSystem interface {
	// ReadFile returns at most limit bytes, and ErrTooBig (with those bytes)
	// when there is more. limit <= 0 means no limit.
	ReadFile(ctx context.Context, path string, limit int64) ([]byte, error)
	// WriteFile replaces or creates a file atomically (temporary file and
	// rename) and keeps the mode of a file that it replaces; a new one gets
	// mode 0644. Missing parent directories are an error unless mkdir is set.
	WriteFile(ctx context.Context, path string, data []byte, mkdir bool) error
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Resolve returns the absolute path with every symbolic link followed. For
	// a file that does not exist yet its directory is resolved.
	Resolve(ctx context.Context, path string) (string, error)
}

// Replacer is a FileSystem that can write a file on condition that it still is
// what somebody saw. A FileSystem without it can only be asked shortly before.
type Replacer interface {
	// Replace writes like WriteFile, without making directories. It returns
	// ErrChanged, and changes nothing, when the path goes through a symbolic link,
	// when its directory is not the one of was, or when the file there has another
	// content. A file that appears in the moment of writing is not replaced.
	Replace(ctx context.Context, path string, data []byte, was Before) error
}

// Remover is a FileSystem that can remove a file on condition that it still is what
// somebody saw.
type Remover interface {
	// Remove removes a regular file. It returns ErrChanged, and removes nothing, when the
	// path goes through a symbolic link, when its directory is not the one of was, or when
	// the file there has another content.
	Remove(ctx context.Context, path string, was Before) error
}

// Before is what a file was before it is replaced or removed.
type Before struct {
	Dir string // FileInfo.ID of its directory
	Sum string // SHA-256 of its content in hex; "" means that there was no file
	// Mode is the permissions that a file gets which was not there; 0 means 0644. The
	// file belongs to whoever writes it.
	Mode fs.FileMode
}

// Surveyor is a FileSystem that can look at many files at once, for targets where
// each look is a round trip.
type Surveyor interface {
	// StatAll is Stat of every path, in their order; errs has nil for those that are
	// there. The last error means that the target did not answer. FileInfo.Path is
	// resolved, also that of what is not there.
	StatAll(ctx context.Context, paths []string) (infos []FileInfo, errs []error, err error)
}

// Lister is a FileSystem that can list what is below a directory.
type Lister interface {
	// List calls each for what is below dir, depth levels deep (1: the directory's own
	// entries; 0: all), in no particular order, until it returns false. Symbolic links are
	// listed and not followed. Info.Path begins with dir; Info.ID is empty. What cannot be
	// read is left out and counted in skipped.
	List(ctx context.Context, dir string, depth int, each func(FileInfo) bool) (skipped int, err error)
}

// Opener is a FileSystem whose files can be read piece by piece, at the speed of the
// disk.
type Opener interface {
	// Open opens a regular file for reading.
	Open(ctx context.Context, path string) (io.ReadCloser, error)
}

// Sieve is a FileSystem that can tell on the far side which files hold a text, so that
// the others need not be read.
type Sieve interface {
	// Holding returns those of the regular files below dir (or dir itself) that hold text
	// in one line; fold ignores the case of ASCII letters. ok is false when the target
	// cannot tell.
	Holding(ctx context.Context, dir, text string, fold bool) (files []string, ok bool, err error)
}

// Witness is a Target that notes how processes with a Mark ended.
type Witness interface {
	// Testify returns the note of a mark. A mark that was never seen there is
	// Testimony{}, not an error.
	Testify(ctx context.Context, mark string) (Testimony, error)
}

// Testimony is what a target noted about one process.
type Testimony struct {
	Began, Ended time.Time // zero: it did not, as far as is known
	Running      bool      // it began, has not ended, and is still there
	Code         int       // valid when it ended
}

// SearchPath is where programs are looked up, whatever the bot's own PATH is.
const SearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Environ is the whole environment of a process that was not given one: fixed,
// and nothing of the bot's own. So no token leaks into a command, and no variable
// changes what it means: there is no BASH_ENV, LD_PRELOAD, GIT_*, PYTHON*,
// NODE_OPTIONS, LESSOPEN, GREP_OPTIONS or RIPGREP_CONFIG_PATH. Programs are kept from
// opening a pager, asking on a terminal, and taking locks only to look.
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
