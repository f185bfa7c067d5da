package foreign

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitExit waits until a child has exited without reaping it, so its pid is not reused. It reports
// whether it succeeded.
func awaitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}
