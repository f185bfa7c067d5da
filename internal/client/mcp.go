package client

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"countersign/adapters/chat"
)

// progressEvery is how often a program hears that its command still waits.
const progressEvery = 5 * time.Second

func mcpCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "mcp", Short: "Serve the bot's targets to another agent over standard input and output (Model Context Protocol)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			account, err := Load()
			if err != nil {
				return err
			}
			g := &gateway{c: New(account)}
			return g.server(version).Run(cmd.Context(), &mcp.StdioTransport{})
		},
	}
}

// gateway lets one program run commands, in one conversation.
type gateway struct {
	c *Client

	mu     sync.Mutex // one command at a time
	thread string
}

// shellInput is what the tool run_shell takes.
type shellInput struct {
	Target  string `json:"target" jsonschema:"The machine, as list_targets names it."`
	Command string `json:"command" jsonschema:"Shell command."`
}

// shellOutput is what it returns.
type shellOutput struct {
	ExitCode *int   `json:"exit_code,omitempty" jsonschema:"Of the command; missing if it was not run, or nobody knows how it ended."`
	Stdout   string `json:"stdout,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
	NotRun   string `json:"not_run,omitempty" jsonschema:"Why it was not run: people denied it, for example."`
	Unknown  string `json:"unknown,omitempty" jsonschema:"Why nobody knows how it ended. Look before you try again."`
	Cut      bool   `json:"cut,omitempty" jsonschema:"The output is only its end."`
}

func (g *gateway) server(version string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "countersign", Version: version}, &mcp.ServerOptions{Instructions: sayGateway})
	mcp.AddTool(s, &mcp.Tool{Name: "run_shell", Description: sayRunShell}, g.runShell)
	mcp.AddTool(s, &mcp.Tool{Name: "list_targets", Description: sayListTargets}, g.listTargets)
	return s
}

// What other agents read of these tools.
const (
	sayGateway  = "Machines of a team, behind a gate: what is proven to only read runs immediately, and anything else waits until people approve it."
	sayRunShell = "Run a shell command on one of the team's machines. Reads run immediately. Anything that may change something waits until people approve exactly " +
		"this text, for up to a quarter of an hour; a denial comes with its reason. Don't ask again for what was denied."
	sayListTargets = "List the machines on which run_shell can run commands."
)

// odd are the characters that the name of a program can't have in a message.
var odd = regexp.MustCompile(`[^A-Za-z0-9 ._/@-]+`)

// programName is what a client calls itself, as far as a card can show it.
func programName(r *mcp.CallToolRequest) string {
	name := ""
	if r.Session != nil {
		if p := r.Session.InitializeParams(); p != nil && p.ClientInfo != nil {
			name = cmp.Or(p.ClientInfo.Title, p.ClientInfo.Name)
		}
	}
	name = strings.TrimLeft(strings.Join(strings.Fields(odd.ReplaceAllString(name, " ")), " "), "._/@- ")
	return strings.TrimSpace(cmp.Or(name[:min(len(name), 50)], "another agent"))
}

func (g *gateway) runShell(ctx context.Context, r *mcp.CallToolRequest, in shellInput) (*mcp.CallToolResult, shellOutput, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting, ended := make(chan string, 1), make(chan struct{})
	go g.progress(ctx, r, waiting, ended)
	thread, x, err := g.c.run(ctx, wanted{thread: g.thread, target: in.Target, command: in.Command, program: programName(r), waits: func(thread, request string) {
		g.thread = thread
		waiting <- request
	}})
	close(ended)
	if thread != "" {
		g.thread = thread
	}
	if ctx.Err() != nil && thread != "" {
		g.c.withdraw(thread)
	}
	if err != nil {
		return nil, shellOutput{}, err
	}
	out := shellOutput{ExitCode: x.ExitCode, Stdout: x.Stdout, Stderr: x.Stderr, Cut: x.Kept != ""}
	switch {
	case x.Unknown:
		out.Unknown = cmp.Or(x.Note, "contact to the machine was lost")
	case x.ExitCode == nil:
		out.NotRun = cmp.Or(x.Note, "nobody said why")
	}
	return nil, out, nil
}

// progress tells the program every few seconds that its command waits.
func (g *gateway) progress(ctx context.Context, r *mcp.CallToolRequest, waiting <-chan string, ended <-chan struct{}) {
	token := r.Params.GetProgressToken()
	var request string
	select {
	case request = <-waiting:
	case <-ended:
		return
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for n := 1.0; token != nil; n++ {
		_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: "waits for approval of request " + request}) // it is a courtesy
		select {
		case <-tick.C:
		case <-ended:
			return
		}
	}
}

// withdraw takes back what a cancelled call has asked for, and stops what it runs.
func (c *Client) withdraw(thread string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = c.say(ctx, thread, "stop") // nobody is there to be told
}

// targetsOutput is what the tool list_targets returns.
type targetsOutput struct {
	Targets []target `json:"targets"`
}

type target struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	State string `json:"state"`
}

func (g *gateway) listTargets(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, targetsOutput, error) {
	var list struct {
		Rows []struct {
			Cells []chat.Cell `json:"cells"`
		} `json:"rows"`
	}
	if err := g.c.Call(ctx, http.MethodGet, "/lists/targets?"+url.Values{"all": {"1"}}.Encode(), nil, &list); err != nil {
		return nil, targetsOutput{}, err
	}
	out := targetsOutput{Targets: []target{}}
	for _, r := range list.Rows {
		if len(r.Cells) > 2 {
			out.Targets = append(out.Targets, target{r.Cells[0].Text, r.Cells[1].Text, r.Cells[2].Text})
		}
	}
	return nil, out, nil
}
