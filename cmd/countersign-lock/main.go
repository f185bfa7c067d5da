// The program countersign-lock runs a program where the kernel keeps it from changing anything: package
// helper.
package main

import (
	"os"

	"countersign/targets/lock/helper"
)

// version is set by the linker in releases.
var version = "dev"

func main() { os.Exit(helper.Main(os.Args[1:], version, os.Stdout, os.Stderr)) }
