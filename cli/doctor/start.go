package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"countersign/bot/machines"
	"countersign/bot/threads"
	"countersign/bot/toolbox"
	"countersign/cli/words"
	"countersign/config"
	"countersign/config/address"
	"countersign/config/rules"
	"countersign/config/storage"

	"countersign/agent/workflow"
	"countersign/alerts"
	"countersign/alerts/notice"
	"countersign/approvals/policy"
	"countersign/bot/observe"
	"countersign/store/bolt"
	"countersign/tools/mcp"
)

// startChecks look at what a start of the bot reads beside the store and the targets:
// each thing that is configured has a line.
func (d *doctor) startChecks(e config.Env, f config.File) []check {
	at := func(name string, run func() result) check {
		return check{name: name, run: func(context.Context) result { return run() }}
	}
	list := []check{at("web address", func() result { return checkExposure(e.Listen, f.Web) })}
	list = append(list, d.consoleChecks(e, f)...)
	if f.Metrics.Listen != "" {
		list = append(list, check{name: "metrics", run: func(ctx context.Context) result { return checkMetrics(ctx, f.Metrics.Listen, d.running) }})
	}
	if len(f.Workflows.Dirs)+len(f.Workflows.Inline) > 0 {
		list = append(list, at("workflows", func() result { return runbooksOf(f.Workflows) }))
	}
	list = append(list, at("tools", func() result { return checkTools(e, f) }))
	if c := f.Internet; len(c.Allow)+len(c.Deny)+len(c.Ports) > 0 || c.Provider != "" || c.SearchURL != "" {
		list = append(list, at("internet", func() result {
			if _, err := toolbox.FetchTools(f.Internet, toolbox.Tavily(e)); err != nil {
				return fromSentence("FAIL", err.Error(), "correct the section internet")
			}
			return fine("its addresses can be read")
		}))
	}
	for _, source := range sortedSources(f.Alerts) {
		list = append(list, at("alerts of "+string(source), func() result { return checkHook(f.Alerts, source, os.LookupEnv) }))
	}
	for _, p := range f.Tools.Plugins {
		name := cmp.Or(p.Name, strings.TrimSuffix(filepath.Base(p.Path), filepath.Ext(p.Path)))
		list = append(list, at("plugin "+name, func() result { return checkPlugin(p) }))
	}
	servers, err := toolbox.ServerConfig(f, os.LookupEnv)
	for _, name := range slices.Sorted(maps.Keys(f.MCP)) {
		switch s := servers.Servers[name]; {
		case err != nil:
			list = append(list, at("mcp "+name, func() result { return fromSentence("FAIL", err.Error(), "correct the section mcp") }))
		case len(s.Command) > 0:
			list = append(list, at("mcp "+name, func() result { return launched(name, s.Command, e.Path) }))
		default:
			list = append(list, check{name: "mcp " + name, limit: mcpLimit, run: func(ctx context.Context) result {
				return d.served(ctx, e, name, s)
			}})
		}
	}
	list = append(list, check{name: "traces", run: traced})
	return list
}

// checkListen looks at the address of the web console.
func checkListen(ctx context.Context, e config.Env, running bool) result {
	const same = "set COUNTERSIGN_LISTEN to the same here and there"
	addr := cmp.Or(e.Listen, address.Default)
	if running {
		base := address.URL(e)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", http.NoBody)
		if err != nil {
			return fails("COUNTERSIGN_LISTEN is %q, which is no address", addr).withFix("use one such as %s", address.Default)
		}
		res, err := address.Client().Do(req)
		if err != nil {
			return warns("the running bot does not answer at %s", base).withFix(same)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return warns("something that is not the bot answers at %s (HTTP %d)", base, res.StatusCode).withFix(same)
		}
		return fine("the running bot answers at %s", base)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fails("the web console cannot listen on %s (%v)", addr, err).withFix("set COUNTERSIGN_LISTEN to a free address")
	}
	_ = ln.Close()
	return fine("%s is free", addr)
}

// checkMetrics looks at the address that metrics have for themselves.
func checkMetrics(ctx context.Context, addr string, running bool) result {
	if running {
		return skips("the running bot has %s", addr)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fails("metrics cannot be served on %s (%v)", addr, err).withFix("set metrics.listen to a free address")
	}
	_ = ln.Close()
	return fine("%s is free", addr)
}

// checkExposure looks at who reaches the console, and how.
func checkExposure(listen string, c config.WebConfig) result {
	listen = cmp.Or(listen, address.Default)
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fails("COUNTERSIGN_LISTEN is %q, which is no address", listen).withFix("use one such as %s", address.Default)
	}
	if c.Origin == "" {
		if loopback(host) {
			return fine("people of this machine only")
		}
		return warns("the console listens for other machines on %s, and its address is taken from each request", listen).
			withFix("set web.origin to the address that people use, such as https://bot.example.com")
	}
	u, err := url.Parse(c.Origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fails("web.origin is %q, which is no origin", c.Origin).withFix("write it like https://bot.example.com")
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return warns("people reach the console by http on %s, so what logs them in crosses the network in clear", u.Host).
			withFix("set web.tls, or put a proxy with TLS before it, and set web.origin to its https address")
	}
	return fine("%s", c.Origin)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// checkTools makes the tools that the bot itself brings, as a start does, and looks what
// rules say of tools that are not there.
func checkTools(e config.Env, f config.File) result {
	const fix = "correct agent.preset, tools, roles or sub_agents"
	log := slog.New(slog.DiscardHandler)
	roles, err := threads.NewRoles(nil, f, log)
	if err != nil {
		return fromSentence("FAIL", err.Error(), fix)
	}
	if _, err := workflow.Load(f.Workflows.Dirs, f.Workflows.Inline); err != nil {
		return skips("this needs the workflows")
	}
	machines, err := machines.NewSet(&machines.Options{Env: e, File: f, Log: log})
	if err != nil {
		return skips("this needs the targets")
	}
	defer machines.Close()
	if _, err := toolbox.FetchTools(f.Internet, toolbox.Tavily(e)); err != nil {
		return skips("this needs the section internet")
	}
	r, err := rules.New(f)
	if err != nil {
		return skips("this needs the policy")
	}
	box, err := toolbox.Preview(e, f, r, machines, log)
	if err != nil {
		return fromSentence("FAIL", err.Error(), fix)
	}
	all, err := box.Base()
	if err != nil {
		return fromSentence("FAIL", err.Error(), fix)
	}
	err = box.Offer(all)
	foreign := len(f.Tools.Plugins)+len(f.MCP) > 0
	switch {
	case err != nil && foreign: // it may name a tool that only they have
		return skips("what plugins and MCP servers offer is not known here (%v); bot tools starts them and shows the catalogue", err)
	case err != nil:
		return fromSentence("FAIL", err.Error(), fix)
	}
	found := fmt.Sprintf("%s for everybody, %s", words.Plural(len(box.Everyone().Names()), "tool"), words.Plural(len(roles.Set.Roles()), "role"))
	if foreign {
		return fine("%s, beside what plugins and MCP servers offer", found)
	}
	for _, rule := range f.Policy.Rules {
		fits := matcher(f.Groups, policy.Match{Tools: rule.Match.Tools})
		if len(rule.Match.Tools) > 0 && !slices.ContainsFunc(all.Names(), func(name string) bool { return fits(policy.Facts{Tool: name}) }) {
			return warns("the rule %s can never match: there is no tool named like %s", rule.Name,
				list(rule.Match.Tools)).withFix("correct its match; bot tools --preset full lists the names")
		}
	}
	return fine("%s", found)
}

// runbooksOf reads the workflows.
func runbooksOf(c config.WorkflowsConfig) result {
	l, err := workflow.Load(c.Dirs, c.Inline)
	if err != nil {
		return fromSentence("FAIL", err.Error(), "correct the section workflows, or the file")
	}
	return fine("%s can be run", words.Plural(len(l.Names()), "workflow"))
}

func sortedSources(c alerts.Config) []notice.Source {
	out := make([]notice.Source, 0, len(c.Hooks))
	for s := range c.Hooks {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// checkHook looks at the secret of one hook.
func checkHook(c alerts.Config, source notice.Source, env func(string) (string, bool)) result {
	name := c.Hooks[source].SecretEnv
	c.Hooks = map[notice.Source]alerts.Hook{source: c.Hooks[source]}
	if _, err := c.Secrets(env); err != nil {
		return fromSentence("FAIL", err.Error(), "put a good secret into "+name)
	}
	return fine("its secret is in %s", name)
}

// checkPlugin looks at the program of a plugin, which it does not start: that is what
// bot tools does.
func checkPlugin(p config.PluginConfig) result {
	const fix = "correct tools.plugins"
	if _, err := toolbox.Levels("levels", p.Levels); err != nil {
		return fromSentence("FAIL", err.Error(), fix)
	}
	path, err := filepath.Abs(p.Path)
	if p.Path == "" || err != nil {
		return fails("it has no path").withFix("name its executable under tools.plugins")
	}
	if why := notExecutable(path); why != "" {
		return fails("its program %s %s", path, why).withFix("correct its path, or make it executable: chmod +x %s", path)
	}
	if p.Dir != "" {
		if st, err := os.Stat(p.Dir); err != nil || !st.IsDir() {
			return fails("its directory %s is not there", p.Dir).withFix("make it, or correct its dir")
		}
	}
	return fine("%s can be started", path)
}

// notExecutable says why a program cannot be started, "" when it looks as if it can.
func notExecutable(path string) string {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is not there"
	case err != nil:
		return fmt.Sprintf("cannot be looked at (%v)", err)
	case !st.Mode().IsRegular():
		return "is no file"
	case st.Mode().Perm()&0o111 == 0:
		return "is not executable"
	}
	return ""
}

// launched looks for the program of an MCP server, which it does not start.
func launched(name string, command []string, path string) result {
	program := command[0]
	if strings.Contains(program, "/") {
		if why := notExecutable(program); why != "" {
			return fails("its program %s %s", program, why).withFix("correct mcp.%s.command", name)
		}
		return fine("%s can be started; bot tools starts it and shows what it offers", program)
	}
	for _, dir := range filepath.SplitList(path) {
		if full := filepath.Join(dir, program); filepath.IsAbs(full) && notExecutable(full) == "" {
			return fine("%s can be started; bot tools starts it and shows what it offers", full)
		}
	}
	return fails("its program %s is not in the PATH of the doctor", program).withFix("install it, or write its whole path under mcp.%s.command", name)
}

// mcpLimit is a little more than a server has for its first answer.
const mcpLimit = 15 * time.Second

// served asks an MCP server that is reached over HTTP for its tools, and compares them
// with what was acknowledged, where no running bot has the store.
func (d *doctor) served(ctx context.Context, e config.Env, name string, s mcp.Server) result {
	dir, err := os.MkdirTemp("", "countersign-doctor-")
	if err != nil {
		return skips("no temporary directory can be made (%v)", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	knows := d.copyStore(ctx, e, filepath.Join(dir, "copy.db"))
	db, err := bolt.Open(filepath.Join(dir, "copy.db"), bolt.Options{Journal: 1 << 20})
	if err != nil {
		return skips("no temporary store can be made (%v)", err)
	}
	defer func() { _ = db.Close() }()
	h, err := mcp.New(mcp.Config{Servers: map[string]mcp.Server{name: s}, DB: db, DataDir: dir, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	if err != nil {
		return fromSentence("FAIL", err.Error(), "correct mcp."+name)
	}
	defer func() { _ = h.Close() }()
	if err := h.Start(ctx); err != nil {
		return fails("it cannot be asked (%v)", err).withFix("check mcp.%s.url and the network", name)
	}
	wrong, changed, offers := h.Notices(), len(h.Pending()), len(h.Tools())
	switch {
	case changed > 0:
		return fromSentence("warn", h.Pending()[0].Sentence(), "look at what it says now, and acknowledge it on a card")
	case len(wrong) > 0 && offers == 0:
		// It ends by saying that it is tried again, which is so while the bot runs.
		text, _, _ := strings.Cut(wrong[0], "; it is tried again")
		return fromSentence("FAIL", text, fmt.Sprintf("check mcp.%s: its url, headers and allow, and the network", name))
	case len(wrong) > 0:
		return fromSentence("warn", wrong[0], "correct mcp."+name)
	case !knows:
		return fine("it offers %s", words.Plural(offers, "tool"))
	}
	return fine("it offers %s, and none changed since it was acknowledged", words.Plural(offers, "tool"))
}

// maxCopy is the largest store that is copied to compare what a server offers with what
// was acknowledged, in bytes.
const maxCopy = 64 << 20

// copyStore copies the store of a stopped bot, or what a database knows of servers, so
// that looking changes nothing in it; it reports whether there is a copy now.
func (d *doctor) copyStore(ctx context.Context, e config.Env, to string) bool {
	if e.Shared() {
		return copyPins(ctx, e, to) == nil
	}
	info, err := os.Stat(storage.Path(e))
	if d.running || err != nil || info.Size() > maxCopy {
		return false
	}
	r, err := bolt.OpenReader(storage.Path(e))
	if err != nil {
		return false // the line of the store says why
	}
	defer func() { _ = r.Close() }()
	return r.Copy(ctx, to) == nil
}

// traced looks whether traces can be sent, where the environment names a collector.
func traced(ctx context.Context) result {
	o, err := observe.New(ctx, observe.Config{})
	if err != nil {
		return fromSentence("FAIL", strings.TrimPrefix(err.Error(), "observe: "), "correct the variables OTEL_...")
	}
	on := o.Tracing()
	_ = o.Shutdown(ctx) // there is nothing to send
	if !on {
		return skips("OTEL_EXPORTER_OTLP_ENDPOINT is not set")
	}
	u, err := url.Parse(cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")))
	if err != nil {
		return fails("the address of the collector cannot be read").withFix("write it like http://collector:4318")
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return warns("the collector of traces at %s does not answer (%v), so they are lost", u.Host, err).withFix("start it, or correct OTEL_EXPORTER_OTLP_ENDPOINT")
	}
	_ = conn.Close()
	return fine("a collector answers at %s", u.Host)
}
