//go:build !linux

package local

import (
	"fmt"
	"os"
	"syscall"
)

// heldDir is a directory that was looked at. Its name may lead elsewhere afterwards.
type heldDir struct{ path, id string }

func holdDir(dir string) (heldDir, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return heldDir{}, err
	}
	h := heldDir{path: dir}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		h.id = fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
	}
	return h, nil
}

func (h heldDir) close() {}
