// The program countersign-verify checks the archive of an incident, without a store, a network or the
// bot's code.
package main

import (
	"errors"
	"fmt"
	"os"

	"countersign/proof/verifier"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	c := verifier.Command()
	c.Use, c.Version = "countersign-verify ARCHIVE", version
	if err := c.Execute(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "countersign-verify:", err)
		if s, ok := errors.AsType[verifier.StatusError](err); ok {
			os.Exit(s.Code)
		}
		os.Exit(2)
	}
}
