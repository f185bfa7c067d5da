package admin

import (
	"strings"

	"countersign/cli"
	"countersign/config"

	"github.com/spf13/cobra"
)

// AuditCommand is the command of that name.
func AuditCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "audit", Short: "Check or export the record of decisions",
	}
	c.AddCommand(auditVerifyCommand(), auditExportCommand())
	return c
}

func auditVerifyCommand() *cobra.Command {
	var posted, base string
	var kept []string
	c := &cobra.Command{
		Use: "verify [FILE]", Short: "Check the hash chains of the store, or of an export (- is standard input); a line for each fault",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return config.Errorf("audit verify takes one export at most; see bot audit verify --help")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("anchor") && (len(posted) < 12 || len(posted) > 64 || strings.Trim(strings.ToLower(posted), "0123456789abcdef") != "") {
				return config.Errorf("--anchor takes the hash of an anchor as it was posted, or its first 12 digits or more")
			}
			v := AuditVerification{Anchor: posted, Checkpoints: kept, URL: base}
			if len(args) > 0 {
				v.File = args[0]
			}
			return VerifyAudit(cmd.Context(), cli.StreamsOf(cmd), v)
		},
	}
	c.Flags().StringVar(&posted, "anchor", "", "hash of an anchor that was posted, which the record must have")
	c.Flags().StringArrayVar(&kept, "checkpoint", nil, "the file of a checkpoint that you have kept: the record must have grown from it")
	c.Flags().StringVar(&base, "url", "", cli.URLFlag)
	return c
}

func auditExportCommand() *cobra.Command {
	var x AuditExport
	c := &cobra.Command{
		Use: "export", Short: "Write the record of decisions as JSON Lines, anchors included, secrets taken out once more",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return config.Errorf("audit export takes no arguments; it writes to standard output")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ExportAudit(cmd.Context(), cmd.OutOrStdout(), x)
		},
	}
	c.Flags().StringVar(&x.Since, "since", "", "how far back, such as 30d or 12h; default everything")
	c.Flags().StringVar(&x.Thread, "thread", "", "one thread only")
	c.Flags().StringVar(&x.URL, "url", "", cli.URLFlag)
	return c
}
