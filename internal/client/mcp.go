package client

import (
	"context"
	"sync"

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
				Client: c.Client, As: asProgram(account), Version: version, Task: client.NewKey(), Host: hook.HostName(), Repository: hook.Repository("."),
				Card: func(thread string) string { return c.base + "/#t=" + thread },
			}.Server(ctx)
			if err != nil {
				return err
			}
			return s.Run(ctx, &mcp.StdioTransport{})
		},
	}
}

// asProgram returns clients with the tokens of programs, which are made at their first use and kept
// beside the account's. A token of the environment is the program's already, and a job's is the job's.
func asProgram(a Account) func(ctx context.Context, program string) (*client.Client, error) {
	var mu sync.Mutex
	return func(ctx context.Context, program string) (*client.Client, error) {
		mu.Lock()
		defer mu.Unlock()
		if a.ID == "" {
			return client.New(a.URL, a.Token), nil
		}
		if program == "" {
			program = "an agent"
		}
		if a.Programs[program] == "" {
			t, err := client.New(a.URL, a.Token).ProgramToken(ctx, program)
			if err != nil {
				return nil, err
			}
			if a.Programs == nil {
				a.Programs = map[string]string{}
			}
			a.Programs[program] = t.Token
			if err := a.Save(); err != nil {
				return nil, err
			}
		}
		return client.New(a.URL, a.Programs[program]), nil
	}
}
