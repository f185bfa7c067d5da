// The program countersign-runner is what a certificate of the signer forces on a host (see package
// runner). It is installed by `countersign-signer enroll`.
package main

import (
	"os"

	"countersign/proof/signer/runner"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		_, _ = os.Stdout.WriteString(version + "\n")
		return
	}
	os.Exit(runner.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
