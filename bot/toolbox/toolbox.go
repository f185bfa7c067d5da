// Package toolbox is what everybody in the bot can call: the tools that it brings, those of
// plugins and MCP servers, and which of them each role and each sub-agent is given.
//
// It runs no call and judges none: it plans them, as package agent wants it.
package toolbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/agent/llm"
	"countersign/agent/spend"
	"countersign/agent/workflow"
	"countersign/approvals"
	"countersign/approvals/risk"
	"countersign/bot/machines"
	"countersign/bot/threads"
	"countersign/config"
	"countersign/config/rules"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/tools"
	"countersign/tools/budget"
	"countersign/tools/clock"
	"countersign/tools/delegate"
	"countersign/tools/mcp"
	"countersign/tools/output"
	"countersign/tools/outside"
	"countersign/tools/past"
	"countersign/tools/plan"
	"countersign/tools/plugin"
	"countersign/tools/router"
	webtools "countersign/tools/web"
)

// Config is what a toolbox is made of.
type Config struct {
	DataDir string
	File    config.File
	Tavily  webtools.Tavily
	DB      store.DB
	Targets threads.Targets
	Roles   threads.Roles
	Library *workflow.Library
	Outputs *output.Log
	Servers mcp.Config // what [ServerConfig] read
	// Judge says what may run without people.
	Judge func(ctx context.Context, r approvals.Request) approvals.Ruling
	// Give posts a file of a tool in a thread.
	Give   func(ctx context.Context, thread, name, mime string, data []byte) error
	Redact func(string) string
	// Learn gets secrets that changed while the bot ran; nil drops them.
	Learn func(secrets ...string)
	Log   *slog.Logger
}

// Toolbox implements agent.Toolbox. Its methods are safe for concurrent use once Start has
// returned.
type Toolbox struct {
	Config
	rosters atomic.Pointer[rosters] // the tools of everybody
	plugins *plugin.Host            // nil without plugins
	servers *mcp.Host               // nil without MCP servers
}

// New returns a toolbox that offers nothing before [Toolbox.Start] or [Toolbox.Offer].
func New(c Config) *Toolbox { return &Toolbox{Config: c} }

// Preview returns the toolbox that a bot of this configuration would have, to look at what
// it offers: none of its tools works.
func Preview(e config.Env, f config.File, r *rules.Rules, all machines.Set, log *slog.Logger) (*Toolbox, error) {
	roles, err := threads.NewRoles(nil, f, log)
	if err != nil {
		return nil, err
	}
	library, err := workflow.Load(f.Workflows.Dirs, f.Workflows.Inline)
	if err != nil {
		return nil, config.Errorf("%v", err)
	}
	targets := threads.Targets{Machines: all, Rules: func() *rules.Rules { return r }, Default: f.Agent.Target}
	return New(Config{
		DataDir: e.DataDir, Tavily: Tavily(e), File: f, Targets: targets, Roles: roles, Library: library, Log: log,
		Outputs: output.New(output.Config{Dir: os.DevNull, Log: log, Readable: func() bool { return false }}),
	}), nil
}

// Specs lists the tools of a thread's own agent, or of a sub-agent, on a target; "" is the thread's.
func (t *Toolbox) Specs(thread chat.ThreadID, id, target string) []llm.ToolSpec {
	reg := t.registryOf(thread, id)
	if reg == nil {
		return nil
	}
	var out []llm.ToolSpec
	terminals := t.Targets.Machines.Terminals(t.Targets.At(thread, target))
	for _, s := range reg.Specs(func(s tools.Spec) bool { return terminals || !s.NeedsTmux }) {
		out = append(out, llm.ToolSpec{Name: s.Name, Description: s.ModelText, Schema: s.ModelSchema, Foreign: s.Foreign})
	}
	return out
}

// Plan plans a call with the tools of whoever makes it.
func (t *Toolbox) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	reg := t.registryOf(chat.ThreadID(c.Thread), c.Agent)
	if reg == nil {
		return tools.Plan{}, tools.Failed("the sub-agent %q is not configured any more", c.Agent)
	}
	return reg.Plan(ctx, c)
}

// Has reports whether a thread's own agent has a tool.
func (t *Toolbox) Has(thread chat.ThreadID, tool string) bool {
	_, ok := t.registryOf(thread, "").Lookup(tool)
	return ok
}

// Known reports whether anybody's agent has a tool.
func (t *Toolbox) Known(tool string) bool {
	for _, r := range t.rosters.Load().roles {
		if _, ok := r.Lookup(tool); ok {
			return true
		}
	}
	return false
}

// Offers reports whether the bot as it is configured has a tool.
func (t *Toolbox) Offers(tool string) bool {
	_, ok := t.Everyone().Lookup(tool)
	return ok
}

// free reports whether a planned call would run without people.
func (t *Toolbox) free(ctx context.Context, c tools.Call, p tools.Plan) bool {
	return t.Judge(ctx, approvals.Request{
		Thread: chat.ThreadID(c.Thread), Call: c.ID, By: chat.User{ID: chat.UserID(c.By)}, Groups: c.Groups, Action: p.Action, Claim: p.Claim, Floor: p.Level,
	}).Lane == approvals.Allow
}

// Close ends the plugins and the connections to the servers.
func (t *Toolbox) Close() {
	if t.plugins != nil {
		t.plugins.Close()
	}
	if t.servers != nil {
		if err := t.servers.Close(); err != nil {
			t.Log.Warn("an MCP server did not end cleanly", "error", err)
		}
	}
}

// Base are the tools that the bot itself brings, for every target that could carry them.
func (t *Toolbox) Base() (*tools.Registry, error) {
	all := append([]tools.Tool{
		clock.New(time.Now), t.Outputs.Reader(),
		plan.New(t.Plan, t.free), budget.New(budget.Config{Store: extensions{t.DB}, Channel: config.ChannelOf}), past.New(transcripts{t.DB}),
	}, router.New(router.Config{Names: t.Targets.Machines.Names(), Current: t.Targets.Current, Allowed: t.Targets.Allowed, Open: t.Targets.Machines.Tools}, machines.Patterns(t.File.Tools))...)
	all = append(all, delegate.New(delegate.Config{Agents: t.Roles.Set.Delegates(), Workflows: flows{t.Library}, Targets: t.Targets.Machines.Names(), Current: t.Targets.Current, Allowed: t.Targets.Allowed, Plan: t.Plan, Free: t.free})...)
	all = append(all, outside.New(outside.Config{Classify: func(x risk.Text) risk.Verdict { return t.Targets.Rules().Engine.Judge(x) }, Redact: t.Redact})...)
	trust, err := t.Targets.Machines.TrustTools(t.Targets.MayTrust)
	if err != nil {
		return nil, err
	}
	fetching, err := FetchTools(t.File.Internet, t.Tavily)
	if err != nil {
		return nil, err
	}
	return tools.NewRegistry(time.Now, slices.Concat(all, trust, fetching)...)
}

// extensions keeps what people allowed beyond a cap.
type extensions struct{ db store.DB }

// Extend implements budget.Store.
func (e extensions) Extend(ctx context.Context, x budget.Extension) error {
	return e.db.Update(ctx, func(tx store.Tx) error {
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

// Start makes the registry, starting the plugins and reaching for the MCP servers.
func (t *Toolbox) Start(ctx context.Context) error {
	own, err := t.Base()
	if err != nil {
		return err
	}
	if err := t.startPlugins(ctx, own.Spellings()); err != nil {
		return err
	}
	if err := t.startServers(ctx); err != nil {
		return err
	}
	for _, notice := range t.notices() {
		t.Log.Warn("a plugin or an MCP server needs attention", "what", notice)
	}
	return t.Offer(own)
}

// Offer selects the tools of the moment: own are those of [Toolbox.Base]. What servers and
// plugins offer is offered in every preset: whoever configured them wants them.
func (t *Toolbox) Offer(own *tools.Registry) error {
	foreign := t.foreign()
	catalogue, err := own.With(foreign...)
	if err != nil {
		return err
	}
	return t.staff(catalogue, foreign)
}

// foreign are the tools of plugins and MCP servers that may be offered now.
func (t *Toolbox) foreign() []tools.Tool {
	var out []tools.Tool
	if t.plugins != nil {
		out = append(out, t.plugins.Tools()...)
	}
	if t.servers != nil {
		out = append(out, t.servers.Tools()...)
		if trust, ok := t.servers.Trust(); ok {
			out = append(out, trust)
		}
	}
	return out
}

// notices say what of the plugins and servers does not work.
func (t *Toolbox) notices() []string {
	var out []string
	if t.plugins != nil {
		out = append(out, t.plugins.Notices()...)
	}
	if t.servers != nil {
		out = append(out, t.servers.Notices()...)
	}
	return out
}

func (t *Toolbox) startPlugins(ctx context.Context, taken []string) error {
	if len(t.File.Tools.Plugins) == 0 {
		return nil
	}
	c := plugin.Config{
		DataDir: t.dataDir(), Taken: taken, Log: t.Log, Redact: t.Redact,
		File: func(ctx context.Context, thread, name, mime string, data []byte) {
			if err := t.Give(ctx, thread, name, mime, data); err != nil {
				t.Log.Error("a file of a plugin could not be posted", "error", err)
			}
		},
	}
	for i, p := range t.File.Tools.Plugins {
		levels, err := Levels(fmt.Sprintf("tools.plugins[%d].levels", i), p.Levels)
		if err != nil {
			return err
		}
		c.Plugins = append(c.Plugins, plugin.Plugin{Name: p.Name, Path: p.Path, Args: p.Args, Env: p.Env, Tools: levels, Timeout: p.Timeout, Dir: p.Dir})
	}
	var err error
	if t.plugins, err = plugin.New(ctx, c); err != nil {
		return config.Errorf("tools.plugins: %v", err)
	}
	return nil
}

func (t *Toolbox) startServers(ctx context.Context) error {
	if len(t.Servers.Servers) == 0 {
		return nil
	}
	c := t.Servers
	c.DB, c.DataDir, c.Log, c.Now, c.Redact, c.File = t.DB, t.dataDir(), t.Log, time.Now, t.Redact, t.Give
	c.OnChange, c.Learn = t.changed, t.Learn
	var err error
	if t.servers, err = mcp.New(c); err != nil {
		return config.Errorf("%v", err)
	}
	return t.servers.Start(ctx)
}

// Reread reads the secrets of servers again.
func (t *Toolbox) Reread() {
	if t.servers != nil {
		t.servers.Reread()
	}
}

// changed offers what the servers have now.
func (t *Toolbox) changed() {
	own, err := t.Base()
	if err == nil {
		err = t.Offer(own)
	}
	if err != nil {
		t.Log.Error("the tools of MCP servers changed and cannot be offered as they are now", "error", err)
	}
	for _, notice := range t.servers.Notices() {
		t.Log.Warn("a plugin or an MCP server needs attention", "what", notice)
	}
}

// ServerConfig reads the section mcp, with the variables that lookup knows.
func ServerConfig(f config.File, lookup func(name string) (string, bool)) (mcp.Config, error) {
	c := mcp.Config{Servers: map[string]mcp.Server{}}
	for _, name := range slices.Sorted(maps.Keys(f.MCP)) {
		s := f.MCP[name]
		levels, err := Levels("mcp."+name+".levels", s.Levels)
		if err != nil {
			return c, err
		}
		out := mcp.Server{
			Command: s.Command, Env: s.Env, URL: s.URL, Loopback: s.Loopback, Allow: s.Allow, AllowAll: s.AllowAll,
			Levels: levels, Timeout: s.Timeout,
		}
		if out.Headers, out.Sources, err = serverHeaders(name, s.Headers, lookup); err != nil {
			return c, err
		}
		if out.Sources != "" {
			out.Reread = func() (map[string]redact.Secret, error) {
				headers, _, err := serverHeaders(name, s.Headers, config.LookupSecret)
				return headers, err
			}
		}
		c.Servers[name] = out
	}
	return c, nil
}

// serverHeaders fills in the variables of a server's headers, and names those.
func serverHeaders(name string, templates map[string]string, lookup func(name string) (string, bool)) (headers map[string]redact.Secret, sources string, err error) {
	headers = map[string]redact.Secret{}
	var used []string
	for _, header := range slices.Sorted(maps.Keys(templates)) {
		missing := ""
		value := config.Variable.ReplaceAllStringFunc(templates[header], func(ref string) string {
			variable := ref[2 : len(ref)-1]
			v, ok := lookup(variable)
			if !ok {
				missing = ref
			}
			if !slices.Contains(used, variable) {
				used = append(used, variable)
			}
			return v
		})
		if missing != "" {
			return nil, "", config.Errorf("mcp.%s.headers.%s needs %s, which the environment lacks; set it", name, header, missing)
		}
		headers[header] = redact.Secret(value)
	}
	for i, variable := range used {
		used[i] = config.SecretSource(variable)
	}
	return headers, strings.Join(used, " and "), nil
}

// Levels reads the levels of tools that others bring; at is where they are written.
func Levels(at string, words map[string]string) (map[string]risk.Level, error) {
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
func (t *Toolbox) dataDir() string {
	dir, err := filepath.Abs(t.DataDir)
	if err != nil {
		return t.DataDir
	}
	return dir
}

// Tavily is the way to the search engine that the environment names.
func Tavily(e config.Env) webtools.Tavily { return webtools.Tavily{Key: e.TavilyKey, URL: e.TavilyURL} }

// FetchTools are the tools that fetch pages and search the web, from here.
func FetchTools(c config.InternetConfig, tavily webtools.Tavily) ([]tools.Tool, error) {
	level := risk.Low
	if c.Unasked {
		level = risk.Read
	}
	all, err := webtools.New(webtools.Config{
		Allow: c.Allow, Deny: c.Deny, Ports: c.Ports, Level: level,
		Search: webtools.Search{Provider: webtools.Provider(c.Provider), URL: c.SearchURL}, Tavily: tavily,
	})
	if err != nil {
		return nil, config.Errorf("internet: %v", err)
	}
	return all, nil
}
