package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"countersign/cli"
	"countersign/cli/admin"
	"countersign/cli/doctor"
	"countersign/cli/manual"
	"countersign/cli/remote"
	"countersign/cli/setup"
	"countersign/config"
	"countersign/proof/signer"
	"countersign/proof/verifier"
	"countersign/proof/witness"
	"countersign/targets/lock/helper"
	"countersign/targets/ssh"
)

// version and commit are set by the linker in releases.
var version, commit = "dev", ""

func main() {
	if len(os.Args) > 1 && os.Args[1] == helper.Name { // this machine's launcher of what is rehearsed
		os.Exit(helper.Main(os.Args[2:], version, os.Stdout, os.Stderr))
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var ended atomic.Int32
	go func() {
		if s, ok := (<-signals).(syscall.Signal); ok {
			ended.Store(int32(s)) //nolint:gosec // a small number
		}
		cancel()
		<-signals // a second one means now
		os.Exit(130)
	}()
	if os.Getenv("GOGC") == "" {
		collectSparingly()
	}
	cmd, err := root().ExecuteContextC(ctx)
	cancel()
	os.Exit(cli.Status(err, int(ended.Load()), cli.Page(cmd), os.Stderr))
}

func root() *cobra.Command {
	c := cli.Root(append(remote.Commands(version, operator),
		runCommand(), setup.Command(setup.Checks{Model: doctor.Model, Models: doctor.Models, Target: doctor.Target, Trust: ssh.Trust, Aliases: ssh.Aliases}), demoCommand(), toolCommand(), toolsCommand(), admin.ClassifyCommand(), configCommand(), loginCommand(), webCommand(), versionCommand(), manual.Command(),
		doctor.Command(launcher()), healthCommand(),
		slackCommand(), discordCommand(),
		admin.PolicyCommand(),
		admin.AuditCommand(), admin.ExportCommand(), verifyCommand(), signerCommand(), witness.Command(),
		admin.BackupCommand(), admin.ForgetCommand(), admin.RestoreCommand(), admin.UpgradeCommand(version), admin.StoreCommand(),
	)...)
	withExamples(c, "")
	grouped(c)
	// Not cobra's own flag: that executes a template, for which the linker keeps the exported
	// methods of everything.
	asked := c.Flags().BoolP("version", "v", false, "print version, commit and Go version")
	help := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			return printVersion(cmd, nil)
		}
		return help(cmd, args)
	}
	cli.Name(c)
	return c
}

// verifyCommand is the command of countersign-verify, with the exit codes of this program.
func verifyCommand() *cobra.Command {
	c := verifier.Command()
	check := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch s, ok := errors.AsType[verifier.StatusError](err); {
		case ok && s.Code == 2:
			return config.Errorf("%v", err)
		case ok:
			return cli.Exit(s.Code, s.Error())
		}
		return err
	}
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit and Go version", Args: cobra.NoArgs,
		RunE: printVersion,
	}
}

func printVersion(cmd *cobra.Command, _ []string) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "countersign %s commit %s %s\n", version, revision(), runtime.Version())
	return err
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

func signerCommand() *cobra.Command {
	c := signer.Command(nil)
	return c
}
