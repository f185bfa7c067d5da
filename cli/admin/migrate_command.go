package admin

import (
	"github.com/spf13/cobra"

	"countersign/cli"
)

func storeMigrateCommand() *cobra.Command {
	var from, to string
	var dry bool
	c := &cobra.Command{
		Use: "migrate --from bolt --to postgres", Short: "Copy the store of the data directory into the database of COUNTERSIGN_STORE, or back, and verify it",
		Long: `Copy the store of the data directory into the PostgreSQL database that COUNTERSIGN_STORE
names, or back, and verify it: every row is compared, and the audit record is checked.

Stop every bot first. The copy goes in small transactions; when it is interrupted, run
the same command again, and it goes on. Afterwards the file countersign.db is set aside
under another name, so that no bot starts on it by mistake.`,
		Args: cli.NoArguments("store migrate"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return MigrateStore(cmd.Context(), cli.StreamsOf(cmd), from, to, dry)
		},
	}
	c.Flags().StringVar(&from, "from", "", "where the rows are: bolt (the data directory) or postgres (the database)")
	c.Flags().StringVar(&to, "to", "", "where they go: postgres or bolt")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be copied, and write nothing")
	return c
}
