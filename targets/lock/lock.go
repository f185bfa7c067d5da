// Package lock holds a process so that it cannot change anything: the kernel refuses,
// whatever the process is and whoever it runs as. What is proven to only read runs so,
// because a proof can be wrong.
//
// It is two locks, one behind the other. A seccomp filter lets a listed set of system
// calls through and refuses or reports the rest; what is reported goes to a guard
// (a supervisor in the kernel's words), which knows paths and processes, opens
// /dev/null itself where it is asked for, and notes everything else as a hit. Landlock
// refuses writing below it, without knowing what the filter decided. Landlock also
// keeps a process from looking into others, so what needs that (backend.Lock.Processes)
// is held by the filter alone. Capabilities are dropped to those that read.
//
// The program of the filter is made here for any target ([Make]); [Start] applies all of
// it on this machine, and targets/remote has it applied on others.
//
// It keeps a process from reading only under backend.Lock.System: what is secret is the classifier's business.
package lock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/elastic/go-seccomp-bpf/arch"

	"countersign/targets/backend"
)

// ErrUnsupported means that this system, or this machine's kind of processor, has no lock.
var ErrUnsupported = errors.New("lock: there is no lock for this system")

// The rights of Landlock's file system access, by the number of the interface's version
// that brought them (include/uapi/linux/landlock.h).
const (
	fsExecute    = 1 << 0
	fsWriteFile  = 1 << 1
	fsReadFile   = 1 << 2
	fsRemoveDir  = 1 << 4
	fsRemoveFile = 1 << 5
	fsMakeChar   = 1 << 6
	fsMakeDir    = 1 << 7
	fsMakeReg    = 1 << 8
	fsMakeSock   = 1 << 9
	fsMakeFifo   = 1 << 10
	fsMakeBlock  = 1 << 11
	fsMakeSym    = 1 << 12
	fsRefer      = 1 << 13 // version 2
	fsTruncate   = 1 << 14 // version 3
	fsIoctlDev   = 1 << 15 // version 5

	netTCP   = 1<<0 | 1<<1 // bind and connect; version 4
	scopeAll = 1<<0 | 1<<1 // abstract sockets and signals; version 6
)

// Ruleset is what Landlock is told to refuse, for one version of its interface.
type Ruleset struct {
	FS, Net, Scoped uint64
	// Read are the rights of what is in Readable; 0 where reading is not held.
	Read uint64
	// Write are the rights that Sinks have.
	Write uint64
	// Below are the rights that everything below "/" has.
	Below uint64
}

// Sinks are the devices that may be opened for writing: what is written there is gone.
func Sinks() []string { return []string{"/dev/null", "/dev/zero", "/dev/full"} }

// Readable are the files that may be read, and the directories below which everything may be. "/" stands for all of
// its entries but /dev. No terminal is among them: reading one takes away what somebody types.
func Readable(l backend.Lock) []string {
	out := append(Sinks(), "/dev/random", "/dev/urandom")
	if !l.System {
		return append(out, "/", "/dev/shm", "/dev/mqueue")
	}
	if l.Devices {
		out = append(out, "/dev")
	}
	for _, dir := range []string{"usr", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "snap", "nix", "gnu", "boot", "proc", "sys", "run",
		"var/lib", "var/log", "var/cache", "var/spool"} {
		out = append(out, "/"+dir)
	}
	return append(out, l.Read...)
}

// Rules is the ruleset of a lock for a version of Landlock's interface; version 0, or a
// lock that looks into other processes, has none.
func Rules(l backend.Lock, version int) (Ruleset, bool) {
	if version < 1 || l.Processes {
		return Ruleset{}, false
	}
	r := Ruleset{
		FS:    fsWriteFile | fsRemoveDir | fsRemoveFile | fsMakeChar | fsMakeDir | fsMakeReg | fsMakeSock | fsMakeFifo | fsMakeBlock | fsMakeSym,
		Write: fsWriteFile,
	}
	if version >= 2 {
		r.FS |= fsRefer
	}
	if version >= 3 {
		r.FS |= fsTruncate
		r.Write |= fsTruncate
	}
	if version >= 4 && !l.Net && !l.Admin {
		r.Net = netTCP
	}
	if version >= 6 {
		r.Scoped = scopeAll
	}
	if l.Files {
		r.Below = r.FS &^ (fsMakeChar | fsMakeBlock)
		return r, true
	}
	if !l.Devices || l.System {
		r.Read = fsReadFile
	}
	if l.System {
		r.Read |= fsExecute
	}
	r.FS |= r.Read
	if !l.Devices && version >= 5 {
		r.FS |= fsIoctlDev
	}
	return r, true
}

// resolver are the sockets that looking a name up tries. It does without: a Unix socket
// that can be made beside the network could be put in the place of another while the
// guard looks.
var resolver = []string{"/run/nscd/socket", "/var/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve"}

// The bounds of a locked process; each process of it has them for itself.
const (
	maxMemory    = 4 << 30 // bytes of data
	MaxProcesses = 512     // more than its account has when it starts; root has none
	MaxCPU       = 120     // seconds until SIGXCPU; five more until SIGKILL
)

// Memory is the bound of a process' data where that much memory is free, in bytes: a quarter of it, so that a pipeline
// of a few leaves something to others, but what a Go program maps at its start.
func Memory(l backend.Lock, free uint64) uint64 {
	const least = 256 << 20
	most := uint64(maxMemory)
	if l.Files {
		most = least
	}
	return max(least, min(most, free/4))
}

// Capabilities are those that stay where the account has them: to read every file, to
// look into processes, to read the kernel's log, and what the lock leaves open. As a
// mask.
func Capabilities(l backend.Lock) uint64 {
	const dacReadSearch, netAdmin, netRaw, sysRawIO, sysPtrace, syslog = 2, 12, 13, 17, 19, 34
	mask := uint64(1)<<dacReadSearch | 1<<sysPtrace | 1<<syslog
	if l.Net || l.Admin {
		mask |= 1 << netRaw
	}
	if l.Admin {
		mask |= 1 << netAdmin
	}
	if l.Devices {
		mask |= 1 << sysRawIO
	}
	if l.Files {
		const chown, dacOverride, fowner, fsetid, setgid, setuid, setfcap = 0, 1, 3, 4, 6, 7, 31
		mask = 1<<dacReadSearch | 1<<chown | 1<<dacOverride | 1<<fowner | 1<<fsetid | 1<<setgid | 1<<setuid | 1<<setfcap
	}
	return mask
}

// Lacks are the sentences about what a lock does not cover, for a version of Landlock's
// interface.
func Lacks(version int) []string {
	var out []string
	switch {
	case version < 1:
		out = append(out, "Landlock is not there, so the filter of system calls is the only lock, and devices can be opened for reading")
	case version < 6:
		out = append(out, fmt.Sprintf("Landlock has version %d, so signals and abstract sockets are held by the filter of system calls alone", version))
	}
	return out
}

// Sentence says for people what a locked process tried.
func Sentence(hits []backend.Hit) string {
	var out []string
	for _, h := range hits {
		var s string
		switch h.Kind {
		case backend.HitWrite:
			s = "write to " + h.Name
		case backend.HitConnect:
			s = "connect to " + h.Name
		case backend.HitSignal:
			s = "send a signal to " + h.Name
		case backend.HitDevice:
			s = "use the device " + h.Name
		case backend.HitStart:
			s = "connect to " + h.Name + ", which systemd would start for it"
		default:
			s = "change " + h.Name
		}
		if h.Name == "" {
			s = map[backend.HitKind]string{
				backend.HitWrite: "write to a file", backend.HitConnect: "open a network connection", backend.HitSignal: "send a signal to another process",
				backend.HitDevice: "use a device",
			}[h.Kind]
			if s == "" {
				s = "change the system"
			}
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	switch n := len(out); {
	case n == 0:
		return ""
	case n == 1:
		return out[0]
	case n <= 3:
		return strings.Join(out[:n-1], ", ") + " and " + out[n-1]
	default:
		return fmt.Sprintf("%s and %d more", strings.Join(out[:2], ", "), n-2)
	}
}

// machines are the processors whose system calls are known, by the name that uname -m
// gives.
func machine(name string) (*arch.Info, error) {
	switch name {
	case "x86_64", "amd64":
		return arch.X86_64, nil
	case "aarch64", "arm64":
		return arch.AARCH64, nil
	}
	return nil, fmt.Errorf("%w: the processor %q is not known", ErrUnsupported, name)
}
