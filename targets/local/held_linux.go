package local

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// heldDir is a directory that is open: it stays the same one, whatever becomes of
// its name.
type heldDir struct {
	path string // leads to it in this process and its children
	id   string
	fd   int
}

// holdDir opens a directory without needing the right to list it.
func holdDir(dir string) (heldDir, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return heldDir{}, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return heldDir{}, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	h := heldDir{path: fmt.Sprintf("/proc/self/fd/%d", fd), id: fmt.Sprintf("%d:%d", st.Dev, st.Ino), fd: fd}
	if _, err := os.Lstat(h.path); err != nil {
		h.path = dir // without /proc only its name is left
	}
	return h, nil
}

func (h heldDir) close() { _ = unix.Close(h.fd) }
