// The program countersign-witness signs that the record of a bot only grows. It belongs on a machine of
// somebody who doesn't run the bot.
package main

import (
	"context"
	"fmt"
	"os"

	"countersign/proof/witness"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	c := witness.Command()
	c.Use, c.Version = "countersign-witness", version
	if err := c.ExecuteContext(context.Background()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "countersign-witness:", err)
		os.Exit(1)
	}
}
