//go:build failpoint

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var hits atomic.Int64

// Hit kills the process with SIGKILL when p is the point that
// COUNTERSIGN_FAILPOINT names and it was reached as often as it says.
func Hit(p Point) {
	name, count, _ := strings.Cut(os.Getenv("COUNTERSIGN_FAILPOINT"), ":")
	if Point(name) != p {
		return
	}
	want, err := strconv.ParseInt(count, 10, 64)
	if err != nil || want < 1 {
		want = 1
	}
	if hits.Add(1) == want {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
