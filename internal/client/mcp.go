package client

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"countersign/client"
	"countersign/internal/hook"
	"countersign/internal/mcpserver"
)

func mcpCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Serve the bot's targets to another agent over standard input and output (Model Context Protocol)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			account, err := Load()
			if err != nil {
				return err
			}
			c, ctx := New(account), cmd.Context()
			s, err := mcpserver.Config{
				Client: c.Client, Version: version, Task: client.NewKey(), Host: hook.HostName(), Repository: hook.Repository("."),
				Card: func(thread string) string { return c.base + "/#t=" + thread },
			}.Server(ctx)
			if err != nil {
				return err
			}
			return s.Run(ctx, &mcp.StdioTransport{})
		},
	}
}
