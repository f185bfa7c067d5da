package foreign

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitExit waits until a child has ended, and leaves it to be waited for, so that
// its number stays taken. It reports whether it could.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
