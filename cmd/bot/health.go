package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
)

// askLimit bounds how long the bot may take to answer: its store has most of that.
const askLimit = 5 * time.Second

func healthCommand() *cobra.Command {
	var ready bool
	c := &cobra.Command{
		Use: "healthz", Short: "Ask the running bot whether it is alive; for health checks of containers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := config.ReadEnv()
			if err != nil {
				return err
			}
			return askHealth(cmd.Context(), e, ready)
		},
	}
	c.Flags().BoolVar(&ready, "ready", false, "ask whether it is ready: networks connected, store writable")
	return c
}

// askHealth asks the bot of this data directory.
func askHealth(ctx context.Context, e config.Env, ready bool) error {
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	base := address.URL(e)
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return config.Errorf("COUNTERSIGN_LISTEN is %q, which is no address; use one such as %s", e.Listen, address.Default)
	}
	res, err := address.Client().Do(req)
	if err != nil {
		return fmt.Errorf("the bot does not answer at %s (%w); start it, or set COUNTERSIGN_LISTEN as it is set there", base, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusOK {
		return nil
	}
	why, _ := io.ReadAll(io.LimitReader(res.Body, 512))
	return fmt.Errorf("the bot is not well (HTTP %d): %s", res.StatusCode, words.Printable(string(why)))
}
