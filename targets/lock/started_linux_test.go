package lock

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// The thread that a lock is put on may be the first of this process, by which the process
// is known: it never takes itself for what it started.
func TestAProcessDoesNotComeFromItself(t *testing.T) {
	b, err := os.ReadFile("/proc/self/timerslack_ns")
	if err != nil {
		t.Skip("the kernel does not tell timer slacks: ", err)
	}
	slack, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	g := &Guard{slack: slack}
	if g.Started(os.Getpid()) {
		t.Error("it would be ended")
	}
}
