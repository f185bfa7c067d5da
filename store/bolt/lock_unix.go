//go:build linux || darwin || freebsd || netbsd || openbsd

package bolt

import (
	"os"
	"syscall"
)

// tryLock takes the exclusive lock of f, which ends with the descriptor; false
// when another one holds it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		return false, nil
	}
	return err == nil, os.NewSyscallError("flock", err)
}
