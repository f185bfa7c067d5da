package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"countersign/internal/config"
	"countersign/tools/code"
)

// version and commit are set by the linker in releases.
var version, commit = "dev", ""

// parserCommand is the hidden subcommand that parses source code for the indexer, in a
// process of its own: its grammars are C.
const parserCommand = "parse-code"

func main() {
	if len(os.Args) == 2 && os.Args[1] == parserCommand {
		if err := code.Worker(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var interrupted atomic.Bool
	go func() {
		interrupted.Store(<-signals == os.Interrupt)
		cancel()
		<-signals // a second one means now
		os.Exit(130)
	}()
	if os.Getenv("GOGC") == "" {
		// The heap is small beside any machine; collecting it less often leaves the
		// processor to those who wait in a burst.
		debug.SetGCPercent(400)
	}
	err := root().ExecuteContext(ctx)
	cancel()
	os.Exit(status(err, interrupted.Load(), os.Stderr))
}

// status prints the error as one sentence and returns the exit status.
func status(err error, interrupted bool, w io.Writer) int {
	if err != nil && (!interrupted || !errors.Is(err, context.Canceled)) {
		_, _ = fmt.Fprintln(w, "bot: "+strings.ReplaceAll(err.Error(), "\n", " "))
	}
	var u *config.Error
	switch {
	case interrupted:
		return 130
	case err == nil:
		return 0
	case errors.As(err, &u):
		return 2
	}
	return 1
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:           "bot",
		Short:         "A chat-ops bot that runs nothing mutating before a person countersigns it",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return config.Errorf("%v; see --help", err) })
	c.CompletionOptions.DisableDefaultCmd = true
	c.AddCommand(runCommand(), demoCommand(), toolCommand(), toolsCommand(), classifyCommand(), configCommand(), loginCommand(), webCommand(), versionCommand())
	c.AddCommand(doctorCommand(), healthCommand())
	c.AddCommand(slackCommand(), discordCommand())
	c.AddCommand(policyCommand())
	c.AddCommand(auditCommand(), exportCommand())
	c.AddCommand(backupCommand(), storeCommand())
	for _, sub := range c.Commands() {
		if args := sub.Args; args != nil {
			sub.Args = func(cmd *cobra.Command, a []string) error {
				if err := args(cmd, a); err != nil {
					return config.Errorf("%s: %v; see bot %s --help", cmd.Name(), err, cmd.Name())
				}
				return nil
			}
		}
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return config.Errorf("there is no command %q; see bot --help", args[0])
		}
		return cmd.Help()
	}
	c.Args = cobra.ArbitraryArgs
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit and Go version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "countersign %s commit %s %s\n", version, revision(), runtime.Version())
			return err
		},
	}
}

// revision is the commit that the program was built from.
func revision() string {
	rev := commit
	if info, ok := debug.ReadBuildInfo(); ok && rev == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				rev = s.Value
			}
		}
	}
	if rev == "" {
		rev = "unknown"
	}
	return rev
}
