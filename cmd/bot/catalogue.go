package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"countersign/bot/machines"
	"countersign/internal/config"

	"github.com/spf13/cobra"

	"countersign/adapters/chat"
	"countersign/agent/spend"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/internal/redact"
	"countersign/internal/toolsdoc"
	"countersign/store"
	"countersign/tools"
	"countersign/tools/budget"
	"countersign/tools/clock"
	"countersign/tools/delegate"
	"countersign/tools/hostkey"
	"countersign/tools/mcp"
	"countersign/tools/past"
	"countersign/tools/plan"
	"countersign/tools/plugin"
	"countersign/tools/router"
	webtools "countersign/tools/web"
)

// base are the tools that the bot itself brings, for every target that could carry them.
func (b *bot) base() ([]tools.Tool, error) {
	all := append([]tools.Tool{
		clock.New(time.Now), b.outputs.Reader(),
		plan.New(b.planCall, b.free), budget.New(budget.Config{Store: extensions{b}, Channel: config.ChannelOf}), past.New(transcripts{b}),
	}, router.New(router.Config{Names: slices.Sorted(maps.Keys(b.machines)), Current: b.current, Allowed: b.allowed, Open: b.machines.Tools}, machines.Patterns(b.file.Tools))...)
	all = append(all, delegate.New(delegate.Config{Agents: b.roles.Delegates(), Workflows: flows{b.library}, Plan: b.planCall, Free: b.free})...)
	trust, err := b.machines.TrustTools(b.mayTrust)
	if err != nil {
		return nil, err
	}
	fetching, err := b.fetchTools()
	if err != nil {
		return nil, err
	}
	return slices.Concat(all, trust, fetching), nil
}

// planCall plans a call with the tools of whoever makes it.
func (b *bot) planCall(ctx context.Context, c tools.Call) (tools.Plan, error) {
	return toolbox{b}.Plan(ctx, c)
}

// free reports whether a planned call would run without people.
func (b *bot) free(ctx context.Context, c tools.Call, p tools.Plan) bool {
	return b.gate.Judge(ctx, approvals.Request{
		Thread: chat.ThreadID(c.Thread), Call: c.ID, By: chat.User{ID: chat.UserID(c.By)}, Groups: c.Groups, Action: p.Action, Claim: p.Claim, Floor: p.Level,
	}).Lane == approvals.Allow
}

// extensions keeps what people allowed beyond a cap.
type extensions struct{ b *bot }

// Extend implements budget.Store.
func (e extensions) Extend(ctx context.Context, x budget.Extension) error {
	return e.b.db.Update(ctx, func(tx store.Tx) error {
		by := x.By
		if r, ok := (approvals.Ledger{}).Get(tx, x.Request); ok && r.By.ID != "" {
			by = string(r.By.ID)
		}
		_, err := spend.Allow(tx, spend.Grant{
			Request: string(x.Request), Scope: spend.Scope(x.Scope), Thread: x.Thread, Channel: x.Channel, Day: spend.Day(x.Day),
			Amount: spend.Amount{Tokens: x.Tokens, Money: spend.Money(x.Micros)}, By: by, At: time.Now().UTC(),
		})
		return err
	})
}

// catalogue makes the registry, starting the plugins and reaching for the MCP servers.
func (b *bot) catalogue(ctx context.Context) error {
	base, err := b.base()
	if err != nil {
		return err
	}
	own, err := tools.NewRegistry(time.Now, base...)
	if err != nil {
		return err
	}
	if err := b.startPlugins(ctx, own.Spellings()); err != nil {
		return err
	}
	if err := b.startServers(ctx); err != nil {
		return err
	}
	for _, notice := range b.notices() {
		b.log.Warn("a plugin or an MCP server needs attention", "what", notice)
	}
	return b.offer(base)
}

// offer selects the tools of the moment. What servers and plugins offer is offered in
// every preset: whoever configured them wants them.
func (b *bot) offer(base []tools.Tool) error {
	foreign := b.foreign()
	catalogue, err := tools.NewRegistry(time.Now, slices.Concat(base, foreign)...)
	if err != nil {
		return err
	}
	return b.staff(catalogue, foreign)
}

//go:generate sh -c "go run . tools --markdown >../../docs/tools.md"

// printCatalogue writes docs/tools.md: the tools of a bot that is configured nowhere.
func printCatalogue(cmd *cobra.Command) error {
	b, done, err := scratch(cmd, func(_ *config.Env, f *config.File) error {
		*f = config.Defaults()
		return nil
	})
	if err != nil {
		return err
	}
	defer done()
	all, err := b.base()
	if err != nil {
		return err
	}
	all = append(all, hostkey.New(hostkey.Config{})) // else only where a target asks for it
	catalogue, err := tools.NewRegistry(time.Now, all...)
	if err != nil {
		return err
	}
	text, err := toolsdoc.Markdown(catalogue)
	if err != nil {
		return err
	}
	_, err = io.WriteString(cmd.OutOrStdout(), text)
	return err
}

// foreign are the tools of plugins and MCP servers that may be offered now.
func (b *bot) foreign() []tools.Tool {
	var out []tools.Tool
	if b.plugins != nil {
		out = append(out, b.plugins.Tools()...)
	}
	if b.servers != nil {
		out = append(out, b.servers.Tools()...)
		if t, ok := b.servers.Trust(); ok {
			out = append(out, t)
		}
	}
	return out
}

// notices say what of the plugins and servers does not work.
func (b *bot) notices() []string {
	var out []string
	if b.plugins != nil {
		out = append(out, b.plugins.Notices()...)
	}
	if b.servers != nil {
		out = append(out, b.servers.Notices()...)
	}
	return out
}

func (b *bot) startPlugins(ctx context.Context, taken []string) error {
	if len(b.file.Tools.Plugins) == 0 {
		return nil
	}
	c := plugin.Config{
		DataDir: b.dataDir(), Taken: taken, Log: b.log, Redact: b.redact,
		File: func(ctx context.Context, thread, name, mime string, data []byte) {
			if err := b.give(ctx, thread, name, mime, data); err != nil {
				b.log.Error("a file of a plugin could not be posted", "error", err)
			}
		},
	}
	for i, p := range b.file.Tools.Plugins {
		levels, err := levelsOf(fmt.Sprintf("tools.plugins[%d].levels", i), p.Levels)
		if err != nil {
			return err
		}
		c.Plugins = append(c.Plugins, plugin.Plugin{Name: p.Name, Path: p.Path, Args: p.Args, Env: p.Env, Tools: levels, Timeout: p.Timeout, Dir: p.Dir})
	}
	var err error
	if b.plugins, err = plugin.New(ctx, c); err != nil {
		return config.Errorf("tools.plugins: %v", err)
	}
	return nil
}

func (b *bot) startServers(ctx context.Context) error {
	if len(b.mcp.Servers) == 0 {
		return nil
	}
	c := b.mcp
	c.DB, c.DataDir, c.Log, c.Now, c.Redact, c.File = b.db, b.dataDir(), b.log, time.Now, b.redact, b.give
	c.OnChange = b.changed
	var err error
	if b.servers, err = mcp.New(c); err != nil {
		return config.Errorf("%v", err)
	}
	return b.servers.Start(ctx)
}

// changed offers what the servers have now.
func (b *bot) changed() {
	base, err := b.base()
	if err == nil {
		err = b.offer(base)
	}
	if err != nil {
		b.log.Error("the tools of MCP servers changed and cannot be offered as they are now", "error", err)
	}
	for _, notice := range b.servers.Notices() {
		b.log.Warn("a plugin or an MCP server needs attention", "what", notice)
	}
}

// serverConfig reads the section mcp, with the variables that lookup knows.
func serverConfig(f config.File, lookup func(name string) (string, bool)) (mcp.Config, error) {
	c := mcp.Config{Servers: map[string]mcp.Server{}}
	for _, name := range slices.Sorted(maps.Keys(f.MCP)) {
		s := f.MCP[name]
		levels, err := levelsOf("mcp."+name+".levels", s.Levels)
		if err != nil {
			return c, err
		}
		out := mcp.Server{
			Command: s.Command, Env: s.Env, URL: s.URL, Loopback: s.Loopback, Allow: s.Allow, AllowAll: s.AllowAll,
			Levels: levels, Timeout: s.Timeout, Headers: map[string]redact.Secret{},
		}
		for _, header := range slices.Sorted(maps.Keys(s.Headers)) {
			missing := ""
			value := config.Variable.ReplaceAllStringFunc(s.Headers[header], func(ref string) string {
				v, ok := lookup(ref[2 : len(ref)-1])
				if !ok {
					missing = ref
				}
				return v
			})
			if missing != "" {
				return c, config.Errorf("mcp.%s.headers.%s needs %s, which the environment lacks; set it", name, header, missing)
			}
			out.Headers[header] = redact.Secret(value)
		}
		c.Servers[name] = out
	}
	return c, nil
}

func levelsOf(at string, words map[string]string) (map[string]risk.Level, error) {
	out := map[string]risk.Level{}
	for _, name := range slices.Sorted(maps.Keys(words)) {
		l := risk.ParseLevel(words[name])
		if l <= risk.Unknown {
			return nil, config.Errorf("%s.%s is %q; use read, low, medium, high or critical", at, name, words[name])
		}
		out[name] = l
	}
	return out, nil
}

// dataDir is the data directory as an absolute path.
func (b *bot) dataDir() string {
	dir, err := filepath.Abs(b.env.DataDir)
	if err != nil {
		return b.env.DataDir
	}
	return dir
}

// maxGiven is the largest file of a tool that is posted, in bytes: it waits in the store.
const maxGiven = 4 << 20

// give posts a file of a tool in a thread.
func (b *bot) give(ctx context.Context, thread, name, mime string, data []byte) error {
	if len(data) > maxGiven {
		return fmt.Errorf("it has %d bytes, and %d can be posted", len(data), maxGiven)
	}
	p := chat.Post{Key: "file/" + name + "/" + fmt.Sprint(time.Now().UnixNano()), Text: "A file of the type `" + mime + "`:", Files: []chat.File{{Name: name, Data: data}}, Quiet: true}
	err := b.db.Update(ctx, func(tx store.Tx) error {
		post{b.sender}.Put(tx, chat.ThreadID(thread), p)
		return nil
	})
	if err == nil {
		b.sender.Wake(thread)
	}
	return err
}

// fetchTools are the tools that fetch pages and search the web, from here.
func (b *bot) fetchTools() ([]tools.Tool, error) {
	c := b.file.Internet
	level := risk.Low
	if c.Unasked {
		level = risk.Read
	}
	all, err := webtools.New(webtools.Config{
		Allow: c.Allow, Deny: c.Deny, Ports: c.Ports, Level: level,
		Search: webtools.Search{Provider: webtools.Provider(c.Provider), URL: c.SearchURL}, Tavily: webtools.Tavily{Key: b.env.TavilyKey, URL: b.env.TavilyURL},
	})
	if err != nil {
		return nil, config.Errorf("internet: %v", err)
	}
	return all, nil
}
