package doctor

import (
	"io"
	"os"

	"github.com/spf13/cobra"
)

// Command is the command doctor. launcher is as bot.Options has it.
func Command(launcher []string) *cobra.Command {
	o := Options{Launcher: launcher}
	c := &cobra.Command{
		Use: "doctor", Short: "Check configuration, store, model, targets and networks; each line is ok, warn, FAIL or skip", Args: cobra.NoArgs,
		Long: `Check everything that the bot needs, without changing anything. Each line is ok, warn
(it works, and you should know something), FAIL (with what to do) or skip (why it was
not looked at).

It is safe beside a running bot. The exit status is 0 when nothing failed, 1 when a
check failed, and 2 when the environment or the configuration file cannot be used.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			o.Colour = coloured(o.Out)
			return Run(cmd.Context(), o)
		},
	}
	c.Flags().StringVar(&o.Live, "live", "", "also post a harmless card in this Slack channel (its id) and wait up to 2 minutes for a press of its button")
	c.Flags().BoolVar(&o.JSON, "json", false, "print a JSON object a line for each check as it ends, and one with the totals")
	return c
}

// coloured reports whether what is written to w may have colours: it is a terminal that has some,
// and nobody set NO_COLOR (no-color.org).
func coloured(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
