package remote

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"countersign/client"
	"countersign/client/account"
	"countersign/client/hook"
	"countersign/client/mcpserver"
)

func mcpCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Serve the bot's targets to another agent over standard input and output (Model Context Protocol)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := Load()
			if err != nil {
				return err
			}
			c, ctx := New(a), cmd.Context()
			s, err := mcpserver.Config{
				Client: c.Client, As: asProgram(a), Version: version, Task: client.NewKey(), Host: hook.HostName(), Repository: hook.Repository("."),
				Card: func(thread string) string { return c.base + "/#t=" + thread },
			}.Server(ctx)
			if err != nil {
				return err
			}
			return s.Run(ctx, &mcp.StdioTransport{})
		},
	}
}

// maxName is how long the bot lets a token's name be, in bytes.
const maxName = 100

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
		program = cmp.Or(strings.ToValidUTF8(program[:min(len(program), maxName)], ""), "an agent")
		kept, err := account.Load()
		same := err == nil && kept.ID == a.ID // nobody signed in since
		if same {
			a = kept // with what others have made since
		}
		if token := a.Programs[program]; token != "" {
			c := client.New(a.URL, token)
			no, _ := errors.AsType[*client.Error](c.Do(ctx, http.MethodGet, "/me", nil, nil, nil))
			if no == nil || no.Status != http.StatusUnauthorized {
				return c, nil
			}
		}
		t, err := client.New(a.URL, a.Token).ProgramToken(ctx, program)
		if err != nil {
			return nil, err
		}
		if a.Programs == nil {
			a.Programs = map[string]string{}
		}
		a.Programs[program] = t.Token
		if same {
			err = a.Save()
		}
		return client.New(a.URL, t.Token), err
	}
}
