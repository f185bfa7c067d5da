package lock

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"countersign/targets/backend"
)

// Confine keeps the calling thread, and whatever it starts from now on, from changing files outside
// of writable directories and from gaining privileges: programs with setuid, such as sudo, don't work.
// Unlike [Start] it allows connections and signals within the account. held is false where the kernel
// has no Landlock; privileges are dropped all the same. The caller holds the thread with
// runtime.LockOSThread.
func Confine(writable ...string) (held bool, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, fmt.Errorf("lock: no_new_privs: %w", err)
	}
	if err := dropCapabilities(0); err != nil {
		return false, err
	}
	rules, ok := Rules(backend.Lock{Net: true, Devices: true}, version())
	if !ok {
		return false, nil
	}
	attr := struct{ fs, net, scoped uint64 }{rules.FS, 0, 0}
	r, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.fs), 0)
	if e != 0 {
		return false, fmt.Errorf("lock: landlock_create_ruleset: %w", e)
	}
	set := int(r)
	defer func() { _ = unix.Close(set) }()
	for _, dir := range writable {
		if err := addPathRule(set, dir, rules.FS); err != nil {
			return false, err
		}
	}
	for _, p := range append(Sinks(), "/dev/ptmx", "/dev/pts", "/dev/tty") {
		if err := addPathRule(set, p, rules.Write); err != nil {
			return false, err
		}
	}
	if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0); e != 0 {
		return false, fmt.Errorf("lock: landlock_restrict_self: %w", e)
	}
	return true, nil
}
