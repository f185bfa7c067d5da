// The program countersign-hook answers a coding agent that asks before it runs something. It does what
// "countersign hook" does, and starts faster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"countersign/internal/hook"
)

// version is set by the linker in releases.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	if slices.Equal(args, []string{"version"}) || slices.Equal(args, []string{"--version"}) {
		_, _ = fmt.Fprintln(os.Stdout, "countersign-hook", version)
		return 0
	}
	var known []string
	for _, p := range hook.Programs {
		if len(args) == 3 && args[0] == p.ID && args[1] == "--lock" {
			p.Lock, args = args[2], args[:1]
		}
		if slices.Equal(args, []string{p.ID}) {
			if err := p.Run(ctx, os.Stdin, os.Stdout, os.Stderr); err != nil {
				_, _ = fmt.Fprintln(os.Stderr, "countersign-hook:", err)
				return 1
			}
			return 0
		}
		known = append(known, p.ID)
	}
	_, _ = fmt.Fprintln(os.Stderr, "countersign-hook: name the program that asks: "+strings.Join(known, ", ")+". countersign hook install writes its settings.")
	return 2
}
