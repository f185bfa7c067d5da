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

// SideBySide has n parallel tests run at once, which is more than there are processors,
// because they mostly wait: for programs, or for a clock. -parallel still decides. A test
// program calls it before its tests run.
func SideBySide(n int) {
	flag.Parse()
	const atOnce = "test.parallel"
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == atOnce })
	if said {
		return
	}
	if err := flag.Set(atOnce, strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// SweepSockets removes the sockets of tmux servers of bots that have ended, which tmux
// leaves behind. A test program calls it when its tests are over.
func SweepSockets() {
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
