//go:build !linux

package local

import (
	"fmt"
	"os"
	"syscall"
)

// held is a directory that was looked at. Its name may lead elsewhere afterwards.
type held struct{ path, id string }

func hold(dir string) (held, error) {
	st, err := os.Stat(dir)
	if err != nil {
		return held{}, err
	}
	h := held{path: dir}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		h.id = fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
	}
	return h, nil
}

func (h held) close() {}
