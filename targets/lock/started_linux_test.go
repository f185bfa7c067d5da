package lock

import (
	"bufio"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

// What a process began before it had its limits has them, too, however deep.
func TestWhatWasBegunBeforeHasTheLimits(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "sh -c 'sleep 600 & echo $!; wait' & wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	deepest, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	const memory = 300 << 20
	limitAll(cmd.Process.Pid, memory, math.MaxUint64)
	var l unix.Rlimit
	score, _ := os.ReadFile("/proc/" + strconv.Itoa(deepest) + "/oom_score_adj")
	if err := unix.Prlimit(deepest, unix.RLIMIT_DATA, nil, &l); err != nil || l.Max != memory || strings.TrimSpace(string(score)) != "1000" {
		t.Errorf("%v, %+v, %s", err, l, score)
	}
}
