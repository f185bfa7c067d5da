package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"countersign/adapters/discord"
	"countersign/adapters/discord/gateway"
	"countersign/config"
)

func discordCommand() *cobra.Command {
	c := &cobra.Command{Use: "discord", Short: "Set the bot up on Discord"}
	c.AddCommand(&cobra.Command{
		Use: "invite [APPLICATION_ID]", Short: "Print the address that adds the bot to a server, with the fewest permissions, each with its reason",
		Long: `Print the address that adds the bot to a server, with the fewest permissions, each with
its reason. Without an APPLICATION_ID Discord is asked for that of DISCORD_BOT_TOKEN.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return config.Errorf("discord invite takes one application id at most")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				id, err := applicationID(cmd.Context())
				if err != nil {
					return err
				}
				args = []string{id}
			}
			address, err := discord.Invite(args[0])
			if err != nil {
				return config.Errorf("%v", err)
			}
			out := cmd.OutOrStdout()
			if _, err := fmt.Fprintf(out, "%s\n\n", address); err != nil {
				return err
			}
			for _, p := range discord.Permissions() {
				if _, err := fmt.Fprintf(out, "%-26s %s\n", p.Name, p.Reason); err != nil {
					return err
				}
			}
			return nil
		},
	})
	return c
}

// applicationID asks Discord for the id of the token's application.
func applicationID(ctx context.Context) (string, error) {
	e, err := config.ReadEnv()
	if err != nil {
		return "", err
	}
	if e.DiscordBotToken == "" {
		return "", config.Errorf("DISCORD_BOT_TOKEN is not set; set it, or give the application id (on https://discord.com/developers/applications, General Information)")
	}
	rest, err := gateway.NewREST(gateway.RESTConfig{Token: e.DiscordBotToken, APIURL: e.DiscordAPIURL, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", config.Errorf("%v", err)
	}
	defer rest.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	a, err := rest.Application(ctx)
	if err != nil {
		return "", fmt.Errorf("the application of the token is not known (%w); check DISCORD_BOT_TOKEN, or give the application id", err)
	}
	return a.ID, nil
}
