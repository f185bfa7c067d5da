// Package needstest is what tests say when they cannot or should not run here: a part of the
// machine is missing, or the test is a long one and nobody asked for those.
//
// It does not install anything.
package needstest

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// All is the variable that has the long tests run, too: COUNTERSIGN_TESTS=all.
const All = "COUNTERSIGN_TESTS"

// Cut is the variable that names a file to which each test that ran in short, or not at all,
// adds its package's folder and its name: what a second call has to run.
const Cut = "COUNTERSIGN_TESTS_CUT"

var folder, _ = os.Getwd() // before a test goes elsewhere

// Long skips a test that takes long, unless the environment asks for all tests. What it
// proves in short is another test's matter.
func Long(t testing.TB) {
	t.Helper()
	if !Whole(t) {
		t.Skip("a long test: set " + All + "=all")
	}
}

// Whole reports whether the long tests were asked for. A test that is long only because it
// tries many things tries fewer without.
func Whole(t testing.TB) bool {
	t.Helper()
	if testing.Short() {
		return false
	}
	if os.Getenv(All) == "all" {
		return true
	}
	if path := os.Getenv(Cut); path != "" {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString(folder + " " + t.Name() + "\n") // one write, which several processes may make side by side
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return false
}

// Missing skips a test that lacks a part of the machine, one that is there by half
// included; with CI=true it fails. why says what is missing and how to get it.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// ProcessEvents is Missing unless the kernel tells root what processes do: it doesn't in a container.
func ProcessEvents(t testing.TB) {
	t.Helper()
	if at, err := os.Readlink("/proc/self/ns/pid"); err != nil || at != "pid:[4026531836]" { // the first namespace: PROC_PID_INIT_INO
		Missing(t, "the kernel tells of processes only in its first namespace of them: run this outside of a container")
	}
}

// Tidy runs a package's tests in a private temporary directory and removes it afterwards. Processes that are then still
// there are named and killed, and the run fails. n is how many parallel tests run together: more than there are processors,
// because they mostly wait for programs or for a clock. -parallel still decides, and 0 leaves the number to go test.
// A test program that was started by a test must not call it.
func Tidy(n int, run func() int) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); n > 0 && !given(f.Name) {
		if err := f.Value.Set(strconv.Itoa(n)); err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "t")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Setenv("TMPDIR", dir)) // of every account that a test uses
	}
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	defer sweepSockets()
	code := run()
	var left []string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) { // what was told to end takes a moment
		if left = within(dir); len(left) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, p := range left {
		fmt.Fprintln(os.Stderr, "left behind:", p)
		code = max(code, 1)
	}
	End(dir)
	return code
}

// End ends the processes whose arguments, environment or directory have a name in them, but not this one.
func End(name string) {
	for _, p := range within(name) {
		if pid, err := strconv.Atoi(strings.Fields(p)[0]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func given(name string) (said bool) {
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == name })
	return said
}

// within are the processes whose arguments, environment or directory have a name in them, but not this one.
func within(name string) (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		args, _ := os.ReadFile(p + "/cmdline")
		env, _ := os.ReadFile(p + "/environ")
		cwd, _ := os.Readlink(p + "/cwd")
		if pid := filepath.Base(p); len(args) > 0 && pid != strconv.Itoa(os.Getpid()) && named(string(args)+"\x00"+string(env)+cwd, name) {
			found = append(found, pid+" "+strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " "))
		}
	}
	return found
}

// named reports whether a text has a name that begins and ends with it: another's may contain it.
func named(text, name string) bool {
	for {
		before, after, found := strings.Cut(text, name)
		if !found {
			return false
		}
		const within = "0123456789abcdefghijklmnopqrstuvwxyz"
		if (before == "" || !strings.ContainsRune(within, rune(before[len(before)-1]))) && (after == "" || !strings.ContainsRune(within, rune(after[0]))) {
			return true
		}
		text = after
	}
}

// sweepSockets removes the sockets of tmux servers of bots that have ended, which tmux
// leaves behind.
func sweepSockets() {
	all, _ := filepath.Glob(fmt.Sprintf("/tmp/tmux-%d/countersign-*", os.Getuid()))
	for _, path := range all {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// Program is Missing unless a program is on the PATH.
func Program(t testing.TB, name, how string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Missing(t, name+" is not installed: "+how)
	}
}
