package steady

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed counts the time since the machine started, sleep included (clock_gettime(2),
// CLOCK_BOOTTIME).
func elapsed() func() time.Duration {
	return func() time.Duration {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
			return 0
		}
		return time.Duration(ts.Nano())
	}
}
