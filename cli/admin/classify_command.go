package admin

import (
	"github.com/spf13/cobra"

	"countersign/cli"
)

// ClassifyCommand is the command of that name.
func ClassifyCommand() *cobra.Command {
	var k Classification
	c := &cobra.Command{
		Use: "classify", Short: "Judge commands from standard input, one a line; a JSON object a line comes out",
		Long: "Judge commands from standard input, one a line; a JSON object a line comes out.\n" +
			"Where COUNTERSIGN_CONFIG names a file, the tables and places that its risk key adds count too.\n\n" +
			"It says what would run unasked on a target of this kind. By default nothing is known of the target: no lock,\n" +
			"no directory, and no place beside it that may be used, other than those that risk.places lists.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Classify(cli.StreamsOf(cmd), k)
		},
	}
	c.Flags().BoolVar(&k.JSONL, "jsonl", false, `read objects {"command": "..."} instead of plain lines`)
	c.Flags().StringVar(&k.Lock, "lock", "none", "whether the kernel holds what runs: enforced or none")
	c.Flags().StringVar(&k.Shell, "shell", "bash", "the shell that reads the commands: bash, posix (a plain sh) or any")
	c.Flags().StringVar(&k.Dir, "dir", "", "the absolute directory where they run; empty if it isn't known")
	return c
}
