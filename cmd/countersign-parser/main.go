// The program countersign-parser tells the bot's code index what is declared in source
// files. It reads requests from standard input and writes answers to standard output
// (tools/code/wire). The bot starts it, from beside its own program or from PATH; without
// it, the index has no symbols and does everything else.
//
// It is a program of its own because its grammars are C: they need a C compiler to build,
// and a hostile file may bring them down.
package main

import (
	"context"
	"fmt"
	"os"

	"countersign/tools/code/parser"
)

// version and commit are set by the linker in releases.
var version, commit = "dev", "unknown"

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "version":
		_, _ = fmt.Fprintf(os.Stdout, "countersign-parser %s commit %s\n", version, commit)
		return
	case len(os.Args) > 1:
		_, _ = fmt.Fprintln(os.Stderr, "usage: countersign-parser [version]; the bot starts it and speaks to it")
		os.Exit(2)
	}
	if err := parser.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "countersign-parser: "+err.Error())
		os.Exit(1)
	}
}
