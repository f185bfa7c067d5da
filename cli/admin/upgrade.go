package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/bot"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
	"countersign/config/storage"
	"countersign/store"
)

// UpgradeCommand is the command upgrade of a program of a version.
func UpgradeCommand(version string) *cobra.Command {
	check := false
	c := &cobra.Command{
		Use: "upgrade --check", Short: "Say what this version would change for the configuration and the store that are there", Args: cobra.NoArgs,
		Long: `Say what this version of the program would change for the configuration and the store
that are there. Run it with the new program before it replaces the old one. Nothing is
changed, and a running bot goes on.

The program doesn't replace itself: a package or a new archive does. Commands that run go
on without the bot, which finds them again, and open cards stay valid. To go back, start
the earlier program; where the layout of the store changed, restore a backup first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !check {
				return config.Errorf("the program doesn't replace itself; see bot upgrade --help, and use --check")
			}
			return checkUpgrade(cmd.Context(), cmd.OutOrStdout(), version)
		},
	}
	c.Flags().BoolVar(&check, "check", false, "look, and change nothing")
	return c
}

// checkUpgrade writes a line for each part. Its error says that the program would not start.
func checkUpgrade(ctx context.Context, out io.Writer, version string) error {
	line := func(key, format string, a ...any) {
		_, _ = fmt.Fprintf(out, "%-15s %s\n", key+":", fmt.Sprintf(format, a...))
	}
	line("this program", "%s", version)
	e, f, err := config.Read()
	if err == nil {
		err = errors.Join(bot.Validate(e, f), bot.ValidateServing(e, f))
	}
	if running := runningVersion(ctx, address.URL(e)); running != "" {
		line("running", "%s, at %s; it goes on", running, address.URL(e))
	} else {
		line("running", "no bot answers at %s", address.URL(e))
	}
	if err != nil {
		line("configuration", "this version refuses it: %v", err)
		return err
	}
	line("configuration", "this version takes it as it is")
	if e.Shared() {
		line("store", "in PostgreSQL; back it up before the first start of the new version")
		return nil
	}
	switch r, err := storage.OpenReader(e); {
	case errors.Is(err, store.ErrLocked):
		line("store", "the running bot has it; look at a copy: %[1]s backup FILE, then %[1]s store check FILE", words.Program())
	case err != nil && strings.Contains(err.Error(), "newer version"):
		line("store", "%v", err)
		return err
	case err != nil:
		line("store", "there is none yet, or it can't be read: %v", err)
	default:
		defer func() { _ = r.Close() }()
		if from, to := r.Schema(), r.Newest(); from != to {
			line("store", "its layout changes from %d to %d at the first start; back it up before, since an earlier version can't read it then", from, to)
		} else {
			line("store", "its layout stays")
		}
	}
	return nil
}

// runningVersion is the version of the bot at an address, "" where none answers.
func runningVersion(ctx context.Context, base string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, base+"/docs", http.NoBody)
	if err != nil {
		return ""
	}
	res, err := address.Client().Do(req)
	if err != nil {
		return ""
	}
	_ = res.Body.Close()
	if v := res.Header.Get(words.VersionHeader); v != "" {
		return words.Printable(v)
	}
	return "an earlier version"
}
