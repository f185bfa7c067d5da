//go:build !linux

package steady

import "time"

// elapsed counts by Go's monotonic clock.
func elapsed() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) + time.Nanosecond }
}
