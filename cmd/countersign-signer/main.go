// The program countersign-signer signs SSH certificates for what people's passkeys approved. It
// belongs on a machine, or at least into an account, that the bot has no rights in.
package main

import (
	"context"
	"fmt"
	"os"

	"countersign/proof/signer"
	"countersign/proof/signer/page"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	c := signer.Command(page.Draw)
	c.Use, c.Version = "countersign-signer", version
	if err := c.ExecuteContext(context.Background()); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "countersign-signer:", err)
		os.Exit(1)
	}
}
