package remote

import (
	"flag"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"countersign/cli"
	"countersign/client/hook"
	"countersign/config"
)

func hookCommand() *cobra.Command {
	c := &cobra.Command{Use: "hook", Short: "Answer a coding agent that asks before it runs a command"}
	for _, h := range hook.Programs {
		one := &cobra.Command{
			Use: h.ID, Short: "Answer " + h.Name + ": a proven read immediately, anything else once people approve it", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				signal.Ignore(syscall.SIGPIPE) // an answer that can't be written is a denial
				if err := h.Run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()); err != nil {
					return cli.Exit(hook.Denied, err.Error())
				}
				return nil
			},
		}
		flags := flag.NewFlagSet(h.ID, flag.ContinueOnError)
		h.Flags(flags)
		one.Flags().AddGoFlagSet(flags)
		c.AddCommand(one)
	}
	files := false
	install := &cobra.Command{
		Use: "install PROGRAM", Short: "Have a coding agent ask: show how its settings change, and write them once you agree",
		Args: cobra.ExactArgs(1), ValidArgsFunction: hookNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := hookOf(args[0])
			if err != nil {
				return err
			}
			return install(cmd.Context(), h, cmd.InOrStdin(), cmd.OutOrStdout(), files)
		},
	}
	install.Flags().BoolVar(&files, "files", false, "ask before it changes files with its own tools, too")
	c.AddCommand(install)
	return c
}

func hookNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	for _, h := range hook.Programs {
		out = append(out, cobra.CompletionWithDesc(h.ID, h.Name))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func hookOf(id string) (hook.Program, error) {
	var known []string
	for _, h := range hook.Programs {
		if h.ID == id {
			return h, nil
		}
		known = append(known, h.ID)
	}
	return hook.Program{}, config.Errorf("there is no hook for %q; there is one for %s", id, strings.Join(known, ", "))
}
