package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"countersign/adapters/discord"
	"countersign/adapters/slack"
	"countersign/agent/llm"
	"countersign/agent/llm/openai"
	"countersign/approvals/policy"
	"countersign/store"
	"countersign/store/bolt"
)

const (
	checkLimit = 10 * time.Second
	// modelLimit is longer: a model of one's own may have to be loaded first.
	modelLimit = 60 * time.Second
	// liveLimit is two minutes for the press and the calls around it.
	liveLimit  = 3 * time.Minute
	checkAlive = 2 * time.Second // between two signs of life
	checkGrace = 2 * time.Second // for a check that outstays its limit
)

// result is what one check of the doctor found: a label and a sentence.
type result struct{ label, text string }

// The labels. A warning works and somebody should know of it; only a failure
// changes the exit status.
func fine(format string, a ...any) result  { return result{"ok", fmt.Sprintf(format, a...)} }
func warns(format string, a ...any) result { return result{"warn", fmt.Sprintf(format, a...)} }
func fails(format string, a ...any) result { return result{"FAIL", fmt.Sprintf(format, a...)} }
func skips(format string, a ...any) result { return result{"skip", fmt.Sprintf(format, a...)} }

// check is one thing that the doctor looks at.
type check struct {
	name  string
	limit time.Duration // 0 means checkLimit
	loud  bool          // it tells by itself what it waits for
	run   func(context.Context) result
}

func doctorCommand() *cobra.Command {
	var channel string
	c := &cobra.Command{
		Use: "doctor", Short: "Check configuration, store, model, target and networks; each line is ok, warn, FAIL or skip", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return (&doctor{live: channel, out: cmd.OutOrStdout(), alive: cmd.ErrOrStderr()}).run(cmd.Context())
		},
	}
	c.Flags().StringVar(&channel, "live", "", "also post a harmless card in this Slack channel (its id) and wait up to 2 minutes for a press of its button")
	return c
}

// doctor runs the checks one after the other and prints each as it ends.
type doctor struct {
	live       string
	out, alive io.Writer

	failed, ran int
}

func (d *doctor) run(ctx context.Context) error {
	e, err := readEnv()
	if err == nil {
		_, err = newLog(e, io.Discard)
	}
	var f File
	if err != nil {
		d.print("configuration", fails("%v", err))
		return d.verdict()
	}
	f, err = readFile(e.Config)
	if err == nil {
		err = validFile(f)
	}
	if err != nil {
		f = File{} // half of a file says nothing
		d.print("configuration", fails("%v", err))
		d.print("target and approvers", skips("this needs the configuration"))
	} else {
		d.print("configuration", configured(e))
		for _, name := range sortedKeys(f.Targets) {
			d.print("approvers of "+name, approversOf(e, f, name))
		}
	}
	readable := err == nil
	running := false
	checks := []check{
		{name: "data directory", run: func(context.Context) result { return writable(e.DataDir) }},
		{name: "store", run: func(context.Context) result {
			var r result
			r, running = opens(e.DataDir)
			return r
		}},
		{name: "web console", run: func(ctx context.Context) result { return listens(ctx, e, running) }},
		{name: "model", limit: modelLimit, run: func(ctx context.Context) result { return answers(ctx, e) }},
	}
	if readable {
		b := &bot{env: e, file: f, log: slog.New(slog.DiscardHandler)}
		if err := b.makeMachines(buildOptions{}); err != nil {
			d.print("targets", fails("%v", err))
		}
		for _, name := range sortedKeys(b.machines) {
			m := b.machines[name]
			defer m.close()
			checks = append(checks,
				check{name: "target " + name, run: func(ctx context.Context) result { return reaches(ctx, m) }},
				check{name: "terminals of " + name, run: func(ctx context.Context) result { return terminals(ctx, m) }})
		}
	}
	for _, c := range checks {
		if err := d.do(ctx, c); err != nil {
			return err
		}
	}
	if err := d.slack(ctx, e, f, running); err != nil {
		return err
	}
	if err := d.discord(ctx, e, f); err != nil {
		return err
	}
	return d.verdict()
}

func (d *doctor) verdict() error {
	if d.failed > 0 {
		return fmt.Errorf("%d of %d checks failed; each line that begins with FAIL says what to do", d.failed, d.ran)
	}
	return nil
}

func (d *doctor) print(name string, r result) {
	d.ran++
	if r.label == "FAIL" {
		d.failed++
	}
	_, _ = fmt.Fprintf(d.out, "%-4s %s: %s\n", r.label, name, strings.ReplaceAll(r.text, "\n", " "))
}

// do runs one check within its limit. What takes longer than a moment says so
// on the other stream. Its error is that of ctx.
func (d *doctor) do(ctx context.Context, c check) error {
	limit := c.limit
	if limit == 0 {
		limit = checkLimit
	}
	cctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan result, 1)
	start := time.Now()
	go func() { done <- c.run(cctx) }()
	alive := time.NewTicker(checkAlive)
	defer alive.Stop()
	overdue := time.NewTimer(limit + checkGrace)
	defer overdue.Stop()
	for {
		select {
		case r := <-done:
			if ctx.Err() != nil && !c.loud {
				return ctx.Err()
			}
			d.print(c.name, r)
			return ctx.Err()
		case <-alive.C:
			if !c.loud {
				_, _ = fmt.Fprintf(d.alive, "...  %s: still waiting after %s, at most %s\n", c.name, time.Since(start).Round(time.Second), limit)
			}
		case <-overdue.C:
			d.print(c.name, fails("it did not end within %s; look at what it waits for: disk, network or the machine's load", limit))
			return nil
		}
	}
}

// validFile checks what readFile leaves to the parts of the bot.
func validFile(f File) error {
	if _, err := newRules(f); err != nil {
		return err
	}
	if _, err := policy.ParseMode(f.Agent.Mode); err != nil {
		return fmt.Errorf("agent.mode: %w", err)
	}
	return nil
}

func configured(e Env) result {
	if e.Config == "" {
		return fine("COUNTERSIGN_CONFIG is not set, so the defaults apply")
	}
	return fine("%s", e.Config)
}

// approversOf says whether anybody can approve on a target, and from where.
func approversOf(e Env, f File, target string) result {
	t := f.Targets[target]
	var all policy.Group
	for _, name := range t.Approvers {
		g := f.Groups[name]
		all.Slack = append(all.Slack, g.Slack...)
		all.SlackUsergroups = append(all.SlackUsergroups, g.SlackUsergroups...)
		all.Discord = append(all.Discord, g.Discord...)
		all.DiscordRoles = append(all.DiscordRoles, g.DiscordRoles...)
		all.Web = append(all.Web, g.Web...)
	}
	onSlack, onDiscord := len(all.Slack)+len(all.SlackUsergroups), len(all.Discord)+len(all.DiscordRoles)
	switch {
	case len(t.Approvers) == 0:
		return warns("nobody can approve on this target, so nothing but proven reads runs there; name a group under targets.%s.approvers", target)
	case onSlack+onDiscord+len(all.Web) == 0:
		return warns("nobody can approve on this target, because its groups (%s) are empty; add people to them", strings.Join(t.Approvers, ", "))
	case e.SlackBotToken != "" && onSlack == 0:
		return warns("nobody can approve from Slack: the groups %s name no slack or slack_usergroups", strings.Join(t.Approvers, ", "))
	case e.DiscordBotToken != "" && onDiscord == 0:
		return warns("nobody can approve from Discord: the groups %s name no discord or discord_roles", strings.Join(t.Approvers, ", "))
	}
	return fine("%s", strings.Join(t.Approvers, ", "))
}

// writable looks whether the bot may write where it keeps its data. It makes no
// directory: one made now by somebody else could lock the bot out later.
func writable(dir string) result {
	at := dir
	for {
		_, err := os.Stat(at)
		if err == nil {
			break
		}
		up := filepath.Dir(at)
		if !errors.Is(err, fs.ErrNotExist) || up == at {
			return fails("%s cannot be looked at (%v); set COUNTERSIGN_DATA_DIR to a directory that the bot may write", dir, err)
		}
		at = up
	}
	probe, err := os.CreateTemp(at, ".doctor-")
	if err != nil {
		return fails("%s cannot be written (%v); set COUNTERSIGN_DATA_DIR to a directory that the bot may write", at, err)
	}
	_, werr := probe.WriteString("x")
	if err := errors.Join(werr, probe.Sync(), probe.Close(), os.Remove(probe.Name())); err != nil {
		return fails("%s cannot be written (%v); free some space or set COUNTERSIGN_DATA_DIR to another directory", at, err)
	}
	if at != dir {
		return fine("%s is made at the first start", dir)
	}
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		return warns("%s is open to other users of this machine (%s); close it: chmod 700 %s", dir, info.Mode().Perm(), dir)
	}
	return fine("%s", dir)
}

// opens looks whether the store opens, and whether a running bot holds it.
func opens(dir string) (r result, running bool) {
	path := filepath.Join(dir, "countersign.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fine("there is none yet; the first start makes it"), false
	}
	db, err := bolt.Open(path, bolt.Options{Timeout: time.Second})
	switch {
	case errors.Is(err, store.ErrLocked):
		return fine("a running bot has it open"), true
	case err != nil:
		return fails("%v", err), false
	}
	if err := db.Close(); err != nil {
		return fails("the store could not be closed cleanly (%v); look at the disk", err), false
	}
	return fine("%s", path), false
}

// listens looks at the address of the web console.
func listens(ctx context.Context, e Env, running bool) result {
	addr := e.Listen
	if addr == "" {
		addr = defaultListen
	}
	if running {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/healthz", http.NoBody)
		if err != nil {
			return fails("COUNTERSIGN_LISTEN is %q, which is no address; use one such as %s", addr, defaultListen)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return warns("the running bot does not answer on %s; is COUNTERSIGN_LISTEN the same here and there?", addr)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return warns("something that is not the bot answers on %s (HTTP %d); is COUNTERSIGN_LISTEN the same here and there?", addr, res.StatusCode)
		}
		return fine("the running bot answers on %s", addr)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fails("the web console cannot listen on %s (%v); set COUNTERSIGN_LISTEN to a free address", addr, err)
	}
	_ = ln.Close()
	return fine("%s is free", addr)
}

// answers asks the model for one tool call.
func answers(ctx context.Context, e Env) result {
	if e.OpenAIKey == "" && e.OpenAIBaseURL == "" {
		return fails("no model is configured: set OPENAI_API_KEY and OPENAI_MODEL, or OPENAI_BASE_URL for a server of your own")
	}
	m, err := openai.New(openai.Config{
		APIKey: string(e.OpenAIKey), BaseURL: e.OpenAIBaseURL, Model: e.OpenAIModel, API: e.ModelAPI, Headers: e.ModelHeaders, MaxAttempts: 1,
	})
	if err != nil {
		return fails("%v", err)
	}
	start := time.Now()
	reply, err := m.Reply(ctx, llm.Request{
		Thread: "doctor",
		Items:  []llm.Item{{Role: llm.User, Text: "This is a connection check. Call the tool ping once with the word pong, and say nothing else."}},
		Tools: []llm.ToolSpec{{
			Name: "ping", Description: "Answers a connection check.",
			Schema: json.RawMessage(`{"type":"object","properties":{"word":{"type":"string"}},"required":["word"],"additionalProperties":false}`),
		}},
	}, nil)
	took := time.Since(start).Round(10 * time.Millisecond)
	if err != nil {
		if le, ok := errors.AsType[*llm.Error](err); ok {
			return fails("%s", le.Sentence)
		}
		return fails("the model does not answer (%v); check OPENAI_BASE_URL and the network", err)
	}
	cost := "it did not say how many tokens that took"
	if reply.Usage.In+reply.Usage.Out > 0 {
		cost = fmt.Sprintf("%d tokens in, %d out", reply.Usage.In, reply.Usage.Out)
	}
	name := e.OpenAIModel
	if name == "" {
		name = "the model"
	}
	switch {
	case len(reply.Calls) == 0:
		return fails("%s answers (%s; %s) and does not call tools, which it has to; set OPENAI_MODEL to one that does, or switch tool calling on in the server", name, took, cost)
	case reply.Calls[0].Name != "ping" || !json.Valid([]byte(reply.Calls[0].Args)):
		return warns("%s calls tools badly: it was asked for ping and wrote %.40q (%s)", name, reply.Calls[0].Name, cost)
	}
	return fine("%s called a tool after %s; %s", name, took, cost)
}

// reaches looks at the machine.
func reaches(ctx context.Context, m *machine) result {
	caps, err := m.target.Probe(ctx)
	if err != nil {
		return fails("it cannot be reached: %v", err)
	}
	if m.cfg.Dir != "" {
		if st, err := m.target.FS().Stat(ctx, m.cfg.Dir); err != nil || !st.Mode.IsDir() {
			return fails("its directory %s is not there; make it, or correct dir", m.cfg.Dir)
		}
	}
	where := ""
	if m.cfg.Kind != "local" {
		where = " on " + m.target.ID()
	}
	if caps.User == "root" && m.cfg.Kind != "container" {
		return warns("commands run as root%s; use an account of the bot's own", where)
	}
	return fine("commands run as %s%s", caps.User, where)
}

func terminals(ctx context.Context, m *machine) result {
	if !m.cfg.terminals() {
		return skips("they are switched off (tmux: false), so commands run plainly")
	}
	caps, err := m.target.Probe(ctx)
	switch {
	case err != nil:
		return skips("this needs the target")
	case caps.Tmux == "" && m.cfg.Tmux != nil:
		return fails("tmux is not installed; install it with apt-get install tmux, or write tmux: false")
	case caps.Tmux == "":
		return warns("tmux is not installed, so commands run plainly and nobody can watch them; install it with apt-get install tmux")
	case caps.Bash == "":
		return warns("tmux %s, and no bash: standard error is not told apart, and every read in a terminal asks; install bash", caps.Tmux)
	}
	return fine("tmux %s", caps.Tmux)
}

// slack runs the checks of the Slack installation, when there is one.
func (d *doctor) slack(ctx context.Context, e Env, f File, running bool) error {
	if e.SlackBotToken == "" && e.SlackAppToken == "" && e.SlackSigningSecret == "" {
		if d.live != "" {
			d.print("slack live", fails("SLACK_BOT_TOKEN is not set; set the app up first: bot slack manifest"))
		} else {
			d.print("slack", skips("SLACK_BOT_TOKEN is not set"))
		}
		return nil
	}
	cfg := slackConfig(e, f, running)
	before := d.failed
	for _, c := range slack.Doctor(cfg) {
		err := d.do(ctx, check{name: c.Name, run: func(ctx context.Context) result { return fromSlack(c.Run(ctx)) }})
		if err != nil {
			return err
		}
	}
	switch {
	case d.live == "":
		return nil
	case d.failed > before:
		d.print("slack live", skips("mend what failed on Slack first"))
		return nil
	}
	return d.do(ctx, check{name: "slack live", limit: liveLimit, loud: true, run: func(ctx context.Context) result {
		return fromSlack(slack.Live(ctx, cfg, slack.LiveOptions{Channel: d.live, Say: func(s string) {
			_, _ = fmt.Fprintf(d.alive, "...  slack live: %s\n", s)
		}}))
	}})
}

// discord runs the checks of the Discord installation, when there is one.
func (d *doctor) discord(ctx context.Context, e Env, f File) error {
	if e.DiscordBotToken == "" {
		d.print("discord", skips("DISCORD_BOT_TOKEN is not set"))
		return nil
	}
	cfg := discord.DoctorConfig{Token: e.DiscordBotToken, APIURL: e.DiscordAPIURL, Guilds: f.Discord.Guilds}
	for _, c := range f.Channels {
		if c.Platform == "discord" {
			cfg.Channels = append(cfg.Channels, c.ID)
		}
	}
	for _, g := range f.Groups {
		cfg.Approvers, cfg.Roles = append(cfg.Approvers, g.Discord...), append(cfg.Roles, g.DiscordRoles...)
	}
	for _, ids := range []*[]string{&cfg.Channels, &cfg.Approvers, &cfg.Roles} {
		slices.Sort(*ids)
		*ids = slices.Compact(*ids)
	}
	for _, c := range discord.Doctor(cfg) {
		err := d.do(ctx, check{name: c.Name, run: func(ctx context.Context) result { return fromDiscord(c.Run(ctx)) }})
		if err != nil {
			return err
		}
	}
	return nil
}

func fromDiscord(o discord.Outcome) result {
	label := map[discord.Result]string{discord.Passed: "ok", discord.Noted: "warn", discord.Failed: "FAIL", discord.Skipped: "skip"}[o.Result]
	return result{label, o.Text}
}

// slackConfig gathers what the file names on Slack, each id once.
func slackConfig(e Env, f File, running bool) slack.DoctorConfig {
	channels, people, groups := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, c := range f.Channels {
		if c.Platform == "slack" {
			channels[c.ID] = true
		}
	}
	for _, g := range f.Groups {
		for _, id := range g.Slack {
			people[id] = true
		}
		for _, id := range g.SlackUsergroups {
			groups[id] = true
		}
	}
	return slack.DoctorConfig{
		BotToken: string(e.SlackBotToken), AppToken: string(e.SlackAppToken), SigningSecret: string(e.SlackSigningSecret),
		APIURL: e.SlackAPIURL, Running: running, Channels: slices.Sorted(maps.Keys(channels)),
		Approvers: slices.Sorted(maps.Keys(people)), Usergroups: slices.Sorted(maps.Keys(groups)),
	}
}

func fromSlack(o slack.Outcome) result {
	label := map[slack.Result]string{slack.Passed: "ok", slack.Noted: "warn", slack.Failed: "FAIL", slack.Skipped: "skip"}[o.Result]
	return result{label, o.Text}
}
