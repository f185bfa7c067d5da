package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"countersign/adapters/slack"
	"countersign/config"
)

func slackCommand() *cobra.Command {
	c := &cobra.Command{Use: "slack", Short: "Set the bot up on Slack"}
	var o slack.ManifestOptions
	m := &cobra.Command{
		Use: "manifest", Short: "Print the app manifest to paste at https://api.slack.com/apps, smallest scopes, each with its reason", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := slack.Manifest(o)
			if err != nil {
				return config.Errorf("%v", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s", text)
			return err
		},
	}
	m.Flags().BoolVar(&o.MentionOnly, "mention-only", false, "leave out what lets the bot hear messages that do not mention it")
	m.Flags().StringVar(&o.HTTP, "http", "", "base address, https, at which Slack reaches the bot: Events over HTTP instead of Socket Mode")
	m.Flags().StringVar(&o.Name, "name", "", "the app's name, at most 35 characters; default Countersign")
	m.Flags().BoolVar(&o.AssistantView, "assistant-view", false, "keep the older assistant view, for an app that has it already; new apps cannot")
	c.AddCommand(m)
	return c
}
