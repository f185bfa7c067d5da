// Package cagetest runs a test, and a program that it tests, where nothing that they do
// reaches the machine, and says what they did as the kernel saw it: which files differ,
// who was sent something, and which processes were disturbed.
//
// The test is started again in name spaces of its own. The program gets a root of its
// own: the machine's programs below an overlay, and empty places for everything else. Its
// network has nobody but the test in it: every address of the internet leads to the test.
// The rights with which root changes a whole machine (clock, modules, devices, mounts) are
// taken away.
//
// It does not keep a program from harming the test itself, and it does not see what a
// program only tried: opening a file that is read-only leaves nothing to be seen.
package cagetest

import (
	"fmt"
	"os"
)

const (
	envPart = "COUNTERSIGN_CAGE"        // which part of a cage this process is
	envDir  = "COUNTERSIGN_CAGE_DIR"    // an empty directory for the cage's root
	envProg = "COUNTERSIGN_CAGE_BINARY" // the program under test
)

// Enter is called first in TestMain. It returns at once, but in processes that a cage
// started to become another program: there it does not return.
func Enter() {
	var err error
	switch os.Getenv(envPart) {
	case "program":
		err = enter()
	case "probe":
		if err = probe(os.Getenv(envDir)); err == nil {
			os.Exit(0)
		}
	case "witness":
		err = witness(os.Args[1:])
	default:
		return
	}
	fmt.Fprintln(os.Stderr, "the cage:", err)
	os.Exit(125)
}

// Binary returns the program that the test before the cage built, or "" outside of one.
func Binary() string { return os.Getenv(envProg) }
