package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"countersign/internal/config"

	"github.com/spf13/cobra"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/discord/gateway"
	"countersign/store"
)

// openDiscord makes the Discord adapter where its token is set.
func (b *bot) openDiscord() error {
	e := b.env
	if e.DiscordBotToken == "" {
		return nil
	}
	alive := alive{b, "discord"}
	a, err := discord.New(discord.Config{
		Token: e.DiscordBotToken, APIURL: e.DiscordAPIURL, Name: b.file.Agent.Name,
		Guilds: b.file.Discord.Guilds, DMs: b.file.Discord.DMs, Shards: b.file.Discord.Shards,
		Channel: func(id string) discord.ChannelRules {
			f := b.rules.Load().File
			c, _ := f.Channel("discord", id)
			return discord.ChannelRules{MentionOnly: c.Followups == "mention", NoHistory: c.History == "off", Bots: c.Bots}
		},
		Known: b.known, Open: func(ctx context.Context) ([]chat.ThreadID, error) { return b.openThreads(ctx, "discord:") },
		Seen: b.seen, Alive: alive.at, SetAlive: alive.set, Registered: b.registered, SetRegistered: b.setRegistered,
		Desk: desk{b}, Do: b.replicas.network(), Turn: b.replicas.turn(), Log: b.log.With("network", "discord"), Now: time.Now,
	})
	if err != nil {
		return config.Errorf("%v", err)
	}
	b.discord = a
	b.adapters[a.Scheme()] = a
	return nil
}

func discordCommand() *cobra.Command {
	c := &cobra.Command{Use: "discord", Short: "Set the bot up on Discord", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
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

func registeredKey(guild string) []byte { return store.Key("discord-commands", guild) }

// registered is which slash commands a server has.
func (b *bot) registered(ctx context.Context, guild string) (hash string, err error) {
	err = b.db.View(ctx, func(tx store.Tx) error {
		hash, _ = store.Load[string](tx, registeredKey(guild))
		return nil
	})
	return hash, err
}

func (b *bot) setRegistered(ctx context.Context, guild, hash string) error {
	return b.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, registeredKey(guild), hash)
		return nil
	})
}
