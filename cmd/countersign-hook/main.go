// The program countersign-hook answers a coding agent that asks before it runs something. It does what
// "countersign hook" does, and starts faster.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"countersign/client/hook"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	signal.Ignore(syscall.SIGPIPE) // an answer that can't be written is a denial
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	if len(args) == 1 && (args[0] == "version" || args[0] == "--version") {
		_, _ = fmt.Fprintln(os.Stdout, "countersign-hook", version)
		return 0
	}
	var known []string
	for _, p := range hook.Programs {
		if known = append(known, p.ID); len(args) == 0 || args[0] != p.ID {
			continue
		}
		flags := flag.NewFlagSet(p.ID, flag.ContinueOnError)
		p.Flags(flags)
		if err := flags.Parse(args[1:]); err != nil || flags.NArg() > 0 {
			return hook.Denied
		}
		if err := p.Run(ctx, os.Stdin, os.Stdout, os.Stderr); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "countersign-hook:", err)
			return hook.Denied
		}
		return 0
	}
	_, _ = fmt.Fprintln(os.Stderr, "countersign-hook: name the program that asks: "+strings.Join(known, ", ")+". countersign hook install writes its settings.")
	return hook.Denied
}
