package admin

import (
	"countersign/cli"
	"countersign/config"

	"github.com/spf13/cobra"
)

// StoreCommand is the command of that name.
func StoreCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "store", Short: "Check, compact, prune or migrate the store",
	}
	c.AddCommand(storeCheckCommand(), storeCompactCommand(), storePruneCommand(), storeMigrateCommand())
	return c
}

func storeCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check [FILE]", Short: "Check every page, every row and the audit record of the store, or of a backup; a line for each fault",
		Long: `Check every page, every row and the audit record of the store of a stopped bot, or of a
backup; a line for each fault. Where COUNTERSIGN_STORE names a database, its rows and the
record are checked, while bots run or not.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return config.Errorf("store check takes one backup at most; see bot store check --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file := ""
			if len(args) > 0 {
				file = args[0]
			}
			return CheckStore(cmd.Context(), cmd.OutOrStdout(), file)
		},
	}
}

func storeCompactCommand() *cobra.Command {
	return &cobra.Command{
		Use: "compact", Short: "Write the store of a stopped bot anew, without the room that nothing uses", Args: cli.NoArguments("store compact"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return CompactStore(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

func storePruneCommand() *cobra.Command {
	return &cobra.Command{
		Use: "prune", Short: "Remove what has outlived its use from the store, of a stopped bot or in a database; a running one does so " +
			"every hour", Args: cli.NoArguments("store prune"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return PruneStore(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

// RestoreCommand is the command of that name.
func RestoreCommand() *cobra.Command {
	var database bool
	c := &cobra.Command{
		Use: "restore FILE | --database", Short: "Put a backup in the place of what a stopped bot has; what was open in it is stopped, and runs only if asked for again",
		Args: func(cmd *cobra.Command, args []string) error {
			if database {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if database {
				return RestoreDatabase(cmd.Context(), cmd.OutOrStdout())
			}
			return Restore(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	c.Flags().BoolVar(&database, "database", false, "stop what is open in a PostgreSQL database that its own tools brought back")
	return c
}

// BackupCommand is the command of that name.
func BackupCommand() *cobra.Command {
	var base string
	var storeOnly bool
	c := &cobra.Command{
		Use: "backup FILE", Short: "Write the store, outputs, recordings and keys to a new file, while the bot runs or not", Args: cobra.ExactArgs(1),
		Long: `Write a consistent copy of the store, and the outputs, recordings and keys beside it, to a
new file: a tar archive that bot restore takes.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return Backup(cmd.Context(), cmd.OutOrStdout(), base, args[0], storeOnly)
		},
	}
	c.Flags().BoolVar(&storeOnly, "store-only", false, "leave out outputs, recordings and keys, and write the store as it is")
	c.Flags().StringVar(&base, "url", "", cli.URLFlag)
	return c
}
