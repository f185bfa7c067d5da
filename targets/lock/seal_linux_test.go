package lock

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Kernels before 5.11 can't seal a range.
func TestDescriptorsAreSealedOneByOne(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	sealEach()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("%d, %v", flags, err)
	}
}
