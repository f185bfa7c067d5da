package bolt

import (
	"os"
	"syscall"
)

// datasync makes the file's bytes durable without its times.
func datasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd())) //nolint:gosec // a descriptor fits
		if err != syscall.EINTR {             //nolint:errorlint // a bare errno
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
