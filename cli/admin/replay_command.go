package admin

import (
	"countersign/cli"
	"countersign/config"

	"github.com/spf13/cobra"
)

func replayCommand() *cobra.Command {
	var r Replay
	c := &cobra.Command{
		Use: "replay", Short: "Say what would have run, asked or been refused under another policy, by the record of decisions",
		Long: `Say what would have run, asked or been refused under another policy, by the record
of decisions. Nothing runs. Each call of the record is judged with the level and
effects that it had then; commands are known as the record keeps them, which is
without secrets and at most 4 KiB, and the groups of who asked are not known.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return config.Errorf("policy replay takes no arguments; see bot policy replay --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ReplayPolicy(cmd.Context(), cli.StreamsOf(cmd), r)
		},
	}
	c.Flags().StringVar(&r.Since, "since", "30d", "how far back, such as 30d or 12h")
	c.Flags().StringVar(&r.File, "policy", "", "configuration file with the other policy (default COUNTERSIGN_CONFIG)")
	c.Flags().StringVar(&r.URL, "url", "", cli.URLFlag)
	return c
}
