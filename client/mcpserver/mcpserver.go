// Package mcpserver serves a bot's targets to other agents by the Model Context Protocol: over
// standard input and output, and over HTTP. Whatever an agent does with them is a call of the bot's
// API, which decides.
package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/client"
)

const (
	// progressEvery is how often an agent hears that its call still waits.
	progressEvery = 5 * time.Second
	// maxWait is how long the tool wait waits, in seconds.
	maxWait = 600
	// withdrawing is how long taking back a call may take whose agent has gone.
	withdrawing = 30 * time.Second
)

// Config is what an agent is served.
type Config struct {
	Client  *client.Client
	Version string // of the program
	Task    string // what the agent asks for is one conversation
	// Program is what it calls itself, if it doesn't say so by the protocol; Host and Repository are
	// where it runs, if that is known.
	Program, Host, Repository string
	// As returns the client whose token is the agent's own, by what it calls itself; nil: it is Client.
	As func(ctx context.Context, program string) (*client.Client, error)
	// Gone ends when the agent is no longer there to be answered; nil never does.
	Gone context.Context
	// Card is where people find a request of a conversation; nil: nobody is sent there.
	Card func(thread string) string
}

// What agents read.
const (
	sayServer = "Machines of a team, behind a gate: what is proven to only read runs immediately, and anything else waits until people approve it."
	sayShell  = "Run a shell command on one of the team's machines. Reads run immediately. Anything that may change something waits until people approve exactly " +
		"this text, for up to a quarter of an hour; a denial comes with its reason. Don't ask again for what was denied. With background, the call " +
		"returns immediately with an id for the tool wait."
	sayTargets = "List the machines on which run_shell can run commands."
	sayStatus  = "List what you have asked for in this conversation and others: what waits for people, what runs, and what has ended within the last hour, " +
		"with its result. Look here before you repeat a call whose answer you did not get."
	sayWait     = "Wait for the end of something that you have asked for, by its id, for some seconds."
	sayWithdraw = "Take back something that you have asked for, by its id: its card is withdrawn, or its command is stopped."
)

// Server returns a server for one agent. It asks the bot which tools there are; while the bot is away,
// there are those of this package, whose calls say so.
func (c Config) Server(ctx context.Context) (*mcp.Server, error) {
	tools, err := c.Client.Tools(ctx)
	if _, refused := errors.AsType[*client.Error](err); refused {
		return nil, err
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "countersign", Version: c.Version}, &mcp.ServerOptions{Instructions: sayServer})
	mcp.AddTool(s, &mcp.Tool{Name: "run_shell", Description: sayShell}, c.runShell)
	mcp.AddTool(s, &mcp.Tool{Name: "list_targets", Description: sayTargets}, c.listTargets)
	mcp.AddTool(s, &mcp.Tool{Name: "status", Description: sayStatus}, c.status)
	mcp.AddTool(s, &mcp.Tool{Name: "wait", Description: sayWait}, c.wait)
	mcp.AddTool(s, &mcp.Tool{Name: "withdraw", Description: sayWithdraw}, c.withdraw)
	for _, t := range tools {
		s.AddTool(&mcp.Tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema}, c.tool(t.Name))
	}
	return s, nil
}

// program is what the agent calls itself.
func (c Config) program(r *mcp.CallToolRequest) string {
	name := ""
	if r.Session != nil {
		if p := r.Session.InitializeParams(); p != nil && p.ClientInfo != nil {
			name = cmp.Or(p.ClientInfo.Title, p.ClientInfo.Name)
		}
	}
	return cmp.Or(name, c.Program)
}

// client is what asks for the agent.
func (c Config) client(ctx context.Context, r *mcp.CallToolRequest) (*client.Client, error) {
	if c.As == nil {
		return c.Client, nil
	}
	return c.As(ctx, c.program(r))
}

// call asks for something and waits for its end, unless it is for the background.
func (c Config) call(ctx context.Context, r *mcp.CallToolRequest, ask client.Request, background bool) (client.Result, error) {
	ask.Task, ask.Caller = c.Task, client.Caller{Way: client.WayMCP, Program: c.program(r), Host: c.Host, Repository: c.Repository}
	as, err := c.client(ctx, r)
	if err != nil {
		return client.Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.Gone != nil {
		defer context.AfterFunc(c.Gone, cancel)()
	}
	call, err := as.Start(ctx, ask)
	if err != nil {
		return client.Result{}, err
	}
	if background {
		return call.Begun, nil
	}
	x, err := c.until(ctx, r, call)
	if ctx.Err() != nil {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawing)
		defer cancel()
		err = errors.Join(err, call.Withdraw(gone))
	}
	return x, err
}

// until waits for the end of a call, and tells the agent meanwhile that it waits.
func (c Config) until(ctx context.Context, r *mcp.CallToolRequest, call *client.Call) (client.Result, error) {
	states, ended := make(chan client.Result, 8), make(chan struct{})
	go c.progress(ctx, r, states, ended)
	x, err := call.Wait(ctx, func(now client.Result) {
		select {
		case states <- now:
		default: // a slow agent misses one
		}
	})
	close(states)
	<-ended
	return x, err
}

// progress tells the agent every few seconds how far its call is, until states is closed.
func (c Config) progress(ctx context.Context, r *mcp.CallToolRequest, states <-chan client.Result, ended chan<- struct{}) {
	defer close(ended)
	token := r.Params.GetProgressToken()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	n, now, shown := 0.0, client.Result{}, false
	for {
		select {
		case x, ok := <-states:
			if !ok {
				return
			}
			now = x
		case <-tick.C:
		}
		if now.State == client.Waiting && !shown {
			shown = true
			c.show(ctx, r, now)
		}
		said := ""
		switch now.State {
		case client.Waiting:
			said = "waits for approval of request " + now.Request
		case client.Running:
			said = "runs"
		case client.Done: // its result follows
		}
		if n++; token != nil && said != "" {
			_ = r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: said}) // it is a courtesy
		}
	}
}

// show offers the person at the agent the card of a request, where the agent can do that.
func (c Config) show(ctx context.Context, r *mcp.CallToolRequest, now client.Result) {
	p := r.Session.InitializeParams()
	if c.Card == nil || p == nil || p.Capabilities == nil || p.Capabilities.Elicitation == nil || p.Capabilities.Elicitation.URL == nil {
		return
	}
	go func() { // whatever they answer, only the card decides
		_, _ = r.Session.Elicit(ctx, &mcp.ElicitParams{
			Mode: "url", Message: "This waits for approval of request " + now.Request + ". Its card:", URL: c.Card(now.Thread), ElicitationID: now.ID,
		})
	}()
}

// shellInput is what the tool run_shell takes.
type shellInput struct {
	Target     string `json:"target" jsonschema:"The machine, as list_targets names it."`
	Command    string `json:"command" jsonschema:"Shell command."`
	Background bool   `json:"background,omitempty" jsonschema:"Return immediately with an id."`
}

// output is what a call returns.
type output struct {
	ID       string `json:"id,omitempty" jsonschema:"For the tools wait and withdraw."`
	State    string `json:"state,omitempty" jsonschema:"Of what hasn't ended: waiting for people, or running."`
	Request  string `json:"request,omitempty" jsonschema:"That waits for people."`
	ExitCode *int   `json:"exit_code,omitempty" jsonschema:"Of the command; missing if it was not run, or nobody knows how it ended."`
	Stdout   string `json:"stdout,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
	Result   string `json:"result,omitempty" jsonschema:"Of another tool."`
	NotRun   string `json:"not_run,omitempty" jsonschema:"Why it was not run: people denied it, for example."`
	Unknown  string `json:"unknown,omitempty" jsonschema:"Why nobody knows how it ended. Look before you try again."`
	Cut      bool   `json:"cut,omitempty" jsonschema:"The output is only its beginning and its end."`
	Output   string `json:"output,omitempty" jsonschema:"The id of all of it, for the tool read_output."`
}

// leftOut is the line between the ends of an output.
var leftOut = regexp.MustCompile(`(?m)^\[\.\.\. [0-9]+ bytes left out \.\.\.\]$`)

func outputOf(x client.Result) output {
	out := output{ExitCode: x.ExitCode, Stdout: x.Stdout, Stderr: x.Stderr, Result: x.Result}
	if out.Cut = leftOut.MatchString(x.Stdout) || leftOut.MatchString(x.Stderr); out.Cut {
		out.Output = x.Kept
	}
	switch {
	case x.State != client.Done:
		out.ID, out.State, out.Request = x.ID, cmp.Or(string(x.State), "queued"), x.Request
	case x.Unknown:
		out.Unknown = cmp.Or(x.Note, "it has no exit code: contact to the machine was lost, or somebody stopped it")
	case x.ExitCode == nil && x.Result == "":
		out.NotRun = cmp.Or(x.Note, "nobody said why")
	}
	return out
}

func (c Config) runShell(ctx context.Context, r *mcp.CallToolRequest, in shellInput) (*mcp.CallToolResult, output, error) {
	x, err := c.call(ctx, r, client.Request{Target: in.Target, Command: in.Command}, in.Background)
	return nil, outputOf(x), err
}

// tool calls a tool of the bot's.
func (c Config) tool(name string) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		args := r.Params.Arguments
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		x, err := c.call(ctx, r, client.Request{Tool: name, Args: args}, false)
		text, failed := x.Result, false
		switch {
		case err != nil:
			text, failed = err.Error(), true
		case x.Result == "" && x.ExitCode == nil:
			text, failed = cmp.Or(x.Note, "It was not run, and nobody said why."), true
		case x.Result == "":
			raw, err := json.Marshal(outputOf(x))
			if err != nil {
				return nil, err
			}
			text = string(raw)
		}
		return &mcp.CallToolResult{IsError: failed, Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
	}
}

// idInput names a call.
type idInput struct {
	ID string `json:"id" jsonschema:"As run_shell or status says it."`
}

// waitInput is what the tool wait takes.
type waitInput struct {
	ID      string `json:"id" jsonschema:"As run_shell or status says it."`
	Seconds int    `json:"seconds,omitempty" jsonschema:"How long to wait at most; 60 if it is missing, at most 600."`
}

func (c Config) wait(ctx context.Context, r *mcp.CallToolRequest, in waitInput) (*mcp.CallToolResult, output, error) {
	as, err := c.client(ctx, r)
	if err != nil {
		return nil, output{}, err
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(min(max(cmp.Or(in.Seconds, 60), 1), maxWait))*time.Second)
	defer cancel()
	x, err := c.until(limited, r, as.Find(in.ID))
	if limited.Err() != nil && ctx.Err() == nil {
		x.ID, err = in.ID, nil
	}
	return nil, outputOf(x), err
}

func (c Config) withdraw(ctx context.Context, r *mcp.CallToolRequest, in idInput) (*mcp.CallToolResult, output, error) {
	as, err := c.client(ctx, r)
	if err != nil {
		return nil, output{}, err
	}
	call := as.Find(in.ID)
	if err := call.Withdraw(ctx); err != nil {
		return nil, output{}, err
	}
	x, err := call.Wait(ctx, nil)
	return nil, outputOf(x), err
}

// statusOutput is what the tool status returns.
type statusOutput struct {
	Open  []output `json:"open"`
	Ended []output `json:"ended" jsonschema:"What began within the last hour and has ended, by its id."`
}

func (c Config) status(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, statusOutput, error) {
	out := statusOutput{Open: []output{}, Ended: []output{}}
	as, err := c.client(ctx, r)
	if err != nil {
		return nil, out, err
	}
	all, err := as.Recent(ctx)
	for _, x := range all {
		if one := outputOf(x); x.State == client.Done {
			one.ID = x.ID
			out.Ended = append(out.Ended, one)
		} else {
			out.Open = append(out.Open, one)
		}
	}
	return nil, out, err
}

// targetsOutput is what the tool list_targets returns.
type targetsOutput struct {
	Targets []client.Target `json:"targets"`
}

func (c Config) listTargets(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, targetsOutput, error) {
	all, err := c.Client.Targets(ctx)
	if all == nil {
		all = []client.Target{}
	}
	return nil, targetsOutput{all}, err
}

// Path is where [Handler] is served.
const Path = "/mcp"

// HTTPOptions say how agents are served over HTTP.
type HTTPOptions struct {
	API     http.Handler // of the bot
	Version string
	// Metadata is the address of what says where agents get tokens (RFC 9728), of a request; "" is none.
	Metadata func(*http.Request) string
}

// Handler serves agents over HTTP (the protocol's "streamable HTTP"). A request brings its token, and
// any replica serves it: nothing of an agent is kept here between two of them.
func Handler(o HTTPOptions) http.Handler {
	type key struct{}
	calls := &running{}
	h := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		s, _ := r.Context().Value(key{}).(*mcp.Server)
		return s
	}, &mcp.StreamableHTTPOptions{Stateless: true, MaxRequestBodyBytes: maxBody, DisableLocalhostProtection: true}) // the console's own guard knows which hosts are ours
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		c := client.New("https://"+r.Host, token) // which the transport doesn't look at
		c.HTTP.Transport = within{o.API, r}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if r.Method == http.MethodPost {
			switch p := peek(w, r); p.Method {
			case "tools/call":
				defer calls.begin(token+string(p.ID), cancel)()
			case "notifications/cancelled":
				calls.cancel(token + string(p.Params.Request))
			}
		}
		program, _, _ := strings.Cut(r.UserAgent(), "/")
		s, err := Config{
			Client: c, Version: o.Version, Gone: ctx, Task: "mcp-" + time.Now().UTC().Format(time.DateOnly), Program: program,
		}.Server(r.Context())
		if err != nil {
			fail(w, r, o, err)
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, s)))
	})
}

// fail answers a request whose token is none.
func fail(w http.ResponseWriter, r *http.Request, o HTTPOptions, err error) {
	status := http.StatusServiceUnavailable
	if no, ok := errors.AsType[*client.Error](err); ok {
		status = no.Status
	}
	if status == http.StatusUnauthorized {
		challenge := "Bearer"
		if o.Metadata != nil {
			if at := o.Metadata(r); at != "" {
				challenge += fmt.Sprintf(" resource_metadata=%q", at)
			}
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	http.Error(w, err.Error(), status)
}
