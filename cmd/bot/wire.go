package main

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"countersign/bot/machines"
	"countersign/internal/config"
	"countersign/internal/rules"

	"countersign/approvals"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/slack"
	"countersign/adapters/web"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/agent/llm/openai"
	"countersign/agent/role"
	"countersign/agent/tokens"
	"countersign/agent/workflow"
	"countersign/alerts"
	"countersign/approvals/audit"
	"countersign/approvals/gate"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/internal/failpoint"
	"countersign/internal/observe"
	"countersign/internal/redact"
	"countersign/internal/steady"
	"countersign/store"
	"countersign/store/keyring"
	"countersign/store/outbox"
	"countersign/targets/local"
	"countersign/targets/record"
	"countersign/tools"
	"countersign/tools/code"
	"countersign/tools/files"
	"countersign/tools/hostkey"
	"countersign/tools/mcp"
	"countersign/tools/output"
	"countersign/tools/plugin"
)

// bot is everything that a running bot is made of. It is built bottom to top
// by build, and owns what close closes.
type bot struct {
	env  config.Env
	file config.File
	log  *slog.Logger
	db   engine
	// replicas are this process and the others that share the store.
	replicas *replicas

	machines machines.Set
	register *record.Register // of recordings that other replicas have; nil without others
	redactor *redact.Redactor
	redact   func(string) string     // takes secrets out of text
	observer *observe.Observer       // traces and metrics
	outputs  *output.Log             // whole outputs of calls whose result is cut
	rosters  atomic.Pointer[rosters] // the tools of everybody
	roles    *role.Set
	library  *workflow.Library // of workflows
	plugins  *plugin.Host      // nil without plugins
	servers  *mcp.Host         // nil without MCP servers
	mcp      mcp.Config        // how to reach them
	rules    atomic.Pointer[rules.Rules]
	gate     *gate.Gate
	agent    *agent.Agent
	sender   *outbox.Sender
	web      *web.Adapter
	slack    *slack.Adapter   // nil without its tokens
	discord  *discord.Adapter // likewise
	key      []byte           // signs login codes and sessions of the web console
	adapters map[string]chat.Adapter
	intake   *alerts.Intake // nil without hooks
}

// buildOptions are what a subcommand decides.
type buildOptions struct {
	model   llm.Model // nil: the one that the environment names
	dir     string    // the target's default directory; "" is the bot's own
	noModel bool      // the subcommand asks no model
	single  bool      // this run is one call: its terminals and its outputs end with it
	// hostKeys is the file of approved host keys; "" is the one in the data directory.
	hostKeys string
}

func build(ctx context.Context, e config.Env, f config.File, log *slog.Logger, o buildOptions) (*bot, error) {
	if err := validate(e, f); err != nil {
		return nil, err
	}
	b := &bot{env: e, file: f, log: log, adapters: map[string]chat.Adapter{}}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	if err := b.assemble(ctx, o); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// open opens the data directory and the store.
func (b *bot) open(ctx context.Context) error {
	dir := b.env.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory %s cannot be made (%w); set COUNTERSIGN_DATA_DIR to a directory that the bot may write", dir, err)
	}
	var err error
	if b.db, err = openEngine(ctx, b.env, hostName(), b.log); err != nil {
		return err
	}
	if err := b.newReplicas(ctx); err != nil {
		return errors.Join(err, b.db.Close())
	}
	path := filepath.Join(dir, "web.key")
	if !b.env.Shared() {
		b.key, err = loadKey(path)
		return err
	}
	if err := b.claimDatabase(ctx); err != nil {
		return err
	}
	// The key is the replicas' own, and the file a copy of it, for bot web login.
	if b.key, err = keyring.SharedKey(ctx, b.db, "web"); err != nil {
		return fmt.Errorf("the console's key cannot be read from the database: %w", err)
	}
	return saveKey(path, b.key)
}

// loadKey reads the console's signing key, making it at the first start.
func loadKey(path string) ([]byte, error) {
	key, err := os.ReadFile(path)
	if err == nil && len(key) == 32 {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the console's key %s cannot be read (%w); check who owns the data directory", path, err)
	}
	key = make([]byte, 32)
	_, _ = rand.Read(key)
	return key, saveKey(path, key)
}

func saveKey(path string, key []byte) error {
	if err := os.WriteFile(path, key, 0o600); err != nil {
		return fmt.Errorf("the data directory cannot be written (%w); set COUNTERSIGN_DATA_DIR to a directory that the bot may write", err)
	}
	return nil
}

func (b *bot) assemble(ctx context.Context, o buildOptions) error {
	r, err := rules.New(b.file)
	if err != nil {
		return err
	}
	b.rules.Store(r)
	if b.mcp, err = serverConfig(b.file, os.LookupEnv); err != nil {
		return err
	}
	known := append(b.env.Secrets(), b.mcp.Secrets()...)
	if hooks, err := b.file.Alerts.Secrets(os.LookupEnv); err == nil { // who serves the hooks says what is wrong
		for _, s := range hooks {
			known = append(known, string(s))
		}
	}
	redactor := redact.New(known...)
	b.redact, b.redactor = redactor.Redact, redactor
	b.log = slog.New(observe.Redacting(b.log.Handler(), redactor.Redact))
	b.outputs = output.New(output.Config{
		DB: others(b.env, b.db), Owns: b.replicas.Owns, Log: b.log,
		Dir: filepath.Join(b.env.DataDir, "outputs"), Max: b.file.Outputs.MaxBytes, Cleaner: func() output.Cleaner { return redactor.Stream() },
		Readable: func() bool {
			_, ok := b.everyone().Lookup("read_output")
			return ok
		},
	})
	p := &machines.Options{
		Env: b.env, File: b.file, Log: b.log, Dir: o.dir, HostKeys: cmp.Or(o.hostKeys, b.env.KnownHosts()),
		DB: b.db, Replicas: b.replicas, Register: b.register, Parser: codeParser(), Indexes: code.NewCache(),
		Redact: b.redact, Classify: b.classify, Reads: func(target string, lock bool) approvals.Reads { return b.rules.Load().Reads(target, lock) }, Single: o.single,
	}
	if b.env.Shared() {
		p.Keys = hostkey.InStore(b.db)
	} else {
		p.Keys = hostkey.InFile(p.HostKeys)
	}
	if b.machines, err = machines.NewSet(p); err != nil {
		return err
	}
	if err := b.machines.ConnectLocal(ctx); err != nil {
		return err
	}
	if b.roles, err = role.New(role.Config{Roles: b.file.Roles, SubAgents: b.file.SubAgents}); err != nil {
		return config.Errorf("%v", err)
	}
	if b.library, err = workflow.Load(b.file.Workflows.Dirs, b.file.Workflows.Inline); err != nil {
		return config.Errorf("%v", err)
	}
	if err := b.catalogue(ctx); err != nil {
		return err
	}
	deadlines := steady.New(b.log)
	b.gate = gate.New(gate.Config{
		Audit: audit.Trail{Redact: redactor.Redact},
		DB:    b.db, Now: deadlines.Now, Log: b.log,
		Policy:   func() *policy.Policy { return b.rules.Load().Policy },
		Classify: b.classify,
		Wake:     func(thread string) { b.agent.Wake(chat.ThreadID(thread)); b.sender.Wake(thread) },
		Place:    b.place,
		Reach:    b.reach,
		Used:     b.machines.Mark, Labels: func(c approvals.Claim, engine approvals.Judgement) { b.observer.Labels(c, engine) },
	})
	b.sender = outbox.NewSender(b.db, outbox.Options{
		Send: b.post, Log: b.log,
		Permanent:   func(err error) bool { return errors.Is(err, chat.ErrGone) || errors.Is(err, chat.ErrRejected) },
		RetryAfter:  retryAfter,
		Yields:      isLog,
		Concurrency: 256, Timeout: time.Minute,
		Owner: b.replicas.Name(), Alive: b.replicas.Alive,
		OnLate: b.late,
		OnSent: func(r outbox.Row) {
			switch {
			case strings.HasPrefix(r.Key, "approval/"):
				failpoint.Hit(failpoint.CardPosted)
			case strings.HasPrefix(r.Key, "reply/"):
				failpoint.Hit(failpoint.ReplyPosted)
			}
		},
	})
	model := o.model
	if model == nil && !o.noModel {
		if model, err = b.model(); err != nil {
			return err
		}
	}
	if err := b.observe(ctx); err != nil {
		return err
	}
	counter, err := tokens.New()
	if err != nil {
		return fmt.Errorf("the tokenizer cannot be made: %w", err)
	}
	b.agent = agent.New(agent.Config{
		DB: b.db, Model: b.observer.Model(model), Tools: toolbox{b}, Gate: b.gate, Outbox: post{b.sender},
		Owner: b.replicas.Name(), Replicas: b.replicas,
		Prompt: b.prompt, Profile: b.profile, Role: b.roleWord, Workflow: b.workflow, Workflows: b.library.Names(), Record: b.recordWord, Progress: b.progress, Sessions: b.sessions, Use: b.use, Pen: pen{b}, Recording: b.recordingWord(), Undo: b.undo, Outputs: b.outputs, Evidence: b.machines.Evidence, Impact: b.machines.Impact, Redact: redactor.Redact, Live: func() agent.Live { return redactor.Stream() },
		Limits: agent.Limits{Steps: b.file.Limits.Steps, Tokens: b.file.Limits.Tokens, Wall: b.file.Limits.Wall},
		Window: b.file.Model.Window, Count: counter.Count, Key: derived(b.key, "marks"),
		Watcher:     watcher{b.observer},
		Spending:    &agent.Spending{Prices: b.file.Prices, Caps: b.file.Caps, Channel: func(t chat.ThreadID) string { return config.ChannelOf(string(t)) }},
		KeepDeleted: b.file.Keep.Deleted,
		Repeats:     b.file.Limits.Repeats, Park: b.file.Limits.Park, Now: deadlines.Now, Log: b.log,
	})
	return nil
}

// codeParser starts the code indexer's parser, nil where the program cannot be found again.
func codeParser() code.Starter {
	exe, err := code.Program()
	if err != nil {
		return nil
	}
	return code.WorkerIn(local.New(local.Options{}), exe, parserCommand)
}

// derived is a key of its own for one use, from the one that the data directory keeps.
func derived(key []byte, use string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(use))
	return h.Sum(nil)
}

// model makes the client of the model that the environment names.
func (b *bot) model() (llm.Model, error) {
	if b.env.OpenAIKey == "" && b.env.OpenAIBaseURL == "" {
		return nil, config.Errorf("no model is configured: set OPENAI_API_KEY and OPENAI_MODEL, or OPENAI_BASE_URL for a server of your own")
	}
	m, err := openai.New(openai.Config{
		APIKey: string(b.env.OpenAIKey), BaseURL: b.env.OpenAIBaseURL, Model: b.env.OpenAIModel,
		API: b.env.ModelAPI, Headers: b.env.ModelHeaders, Fallback: b.file.Model.Fallback, Log: b.log,
	})
	if err != nil {
		return nil, config.Errorf("%v", err)
	}
	return m, nil
}

// terminals reports whether a thread's target has tmux, as far as is known.
func (b *bot) terminals(thread chat.ThreadID) bool {
	name, err := b.current(context.Background(), string(thread))
	if err != nil {
		return true
	}
	return b.machines.Terminals(name)
}

// classify judges with the tables of the moment: one classifier for the gate and
// for the tool that decides where a read runs.
func (b *bot) classify(t risk.Text) risk.Verdict { return b.rules.Load().Engine.Judge(t) }

// sessions answers the chat word.
func (b *bot) sessions(ctx context.Context, thread chat.ThreadID) string {
	now, err := b.current(ctx, string(thread))
	if err != nil {
		return "I cannot tell which machine this thread works on at the moment; try again."
	}
	var out strings.Builder
	for _, m := range b.machines.Books() {
		text, has := m.State().Book.Describe(ctx, string(thread))
		if !has && m.Name != now {
			continue
		}
		if len(b.machines) > 1 {
			fmt.Fprintf(&out, "On `%s`%s:\n", m.Name, b.labels(m.Name))
		}
		out.WriteString(text)
	}
	if o := b.machines[now].State(); o != nil && o.Notice != "" {
		out.WriteString("There are no terminals on `" + now + "`. " + o.Notice)
	}
	if out.Len() == 0 {
		return "This thread has no terminal yet; the first command opens one."
	}
	return out.String()
}

// undo finds the call that takes a change back.
func (b *bot) undo(ctx context.Context, thread chat.ThreadID, change string) (llm.Call, string) {
	k, ok, err := files.NewImages(b.db, time.Now).Load(ctx, string(thread), change)
	switch {
	case err != nil:
		return llm.Call{}, "I cannot read what the files were before at the moment; try again."
	case !ok:
		return llm.Call{}, "There is nothing to undo under `" + change + "`: it is not a change of files of this thread, was too large, or is too long ago."
	}
	args := map[string]string{"change": change}
	if len(b.machines) > 1 {
		args["target"] = k.Target
	}
	raw, err := json.Marshal(args)
	if err != nil {
		return llm.Call{}, "That change cannot be named."
	}
	return llm.Call{Name: "undo", Args: string(raw)}, ""
}

// isLog reports whether a row is a line of the work log: people wait for the answer, which
// may overtake it.
func isLog(r outbox.Row) bool {
	var p struct {
		Log bool `json:"log"`
	}
	return json.Unmarshal(r.Body, &p) == nil && p.Log
}

// adapterOf finds the network of a thread.
func (b *bot) adapterOf(thread string) (chat.Adapter, error) {
	scheme, _, _ := strings.Cut(thread, ":")
	if a := b.adapters[scheme]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("no adapter for %q runs here: %w", scheme, chat.ErrGone)
}

// post sends one outbox row.
func (b *bot) post(ctx context.Context, r outbox.Row) (string, error) {
	a, err := b.adapterOf(r.Thread)
	if err != nil {
		return "", err
	}
	var p chat.Post
	if err := json.Unmarshal(r.Body, &p); err != nil {
		return "", fmt.Errorf("post cannot be read: %w", chat.ErrRejected)
	}
	p.Key = r.Key
	if r.Ref != "" {
		return r.Ref, a.Edit(ctx, chat.ThreadID(r.Thread), chat.MessageRef(r.Ref), p)
	}
	ref, err := a.Post(ctx, chat.ThreadID(r.Thread), p)
	return string(ref), err
}

// late mends what this replica posted or edited after another one had: it was stopped in
// between. A card of those would have buttons that decide nothing.
func (b *bot) late(ctx context.Context, r outbox.Row, made, kept string) {
	var err error
	switch a, _ := b.adapterOf(r.Thread); {
	case r.Ref != "":
		if err = b.gate.Repaint(ctx, chat.ThreadID(r.Thread), r.Key); err == nil {
			b.sender.Wake(r.Thread)
		}
	case made != "" && kept != "" && made != kept:
		if x, ok := a.(chat.Retracter); ok {
			err = x.Retract(ctx, chat.ThreadID(r.Thread), r.Key, chat.MessageRef(made), chat.MessageRef(kept))
		}
	}
	if err != nil {
		b.log.ErrorContext(ctx, "a message that two replicas posted could not be mended", "thread", r.Thread, "key", r.Key, "error", err)
	}
}

func (b *bot) progress(ctx context.Context, thread chat.ThreadID, p chat.Progress) {
	if p.Text != "" && p.Kind != chat.ProgressOutput && b.sender.Behind(string(thread)) {
		p.Text = "" // a draft is a message, and would stand before the answers that are still to be posted
	}
	a, err := b.adapterOf(string(thread))
	if err != nil {
		return
	}
	if s, ok := a.(chat.ProgressShower); ok {
		s.ShowProgress(ctx, thread, p)
	}
}

// handler is the bot as the networks see it: the agent takes messages and
// presses of Stop, the gate takes decisions.
type handler struct {
	*agent.Agent
	gate *gate.Gate
}

// Click implements chat.Handler.
func (h handler) Click(ctx context.Context, c chat.Click) (chat.Answer, error) {
	if ans, mine, err := h.Press(ctx, c); mine || err != nil {
		return ans, err
	}
	return h.gate.Click(ctx, c)
}

func (b *bot) handler() chat.Handler { return handler{b.agent, b.gate} }

func (b *bot) close() {
	if b.observer != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
		if err := b.observer.Shutdown(ctx); err != nil {
			b.log.Warn("not all traces could be sent", "error", err)
		}
		cancel()
	}
	if b.plugins != nil {
		b.plugins.Close()
	}
	if b.servers != nil {
		if err := b.servers.Close(); err != nil {
			b.log.Warn("an MCP server did not end cleanly", "error", err)
		}
	}
	b.machines.Close()
	if b.replicas != nil && b.replicas.beats != nil {
		if err := b.replicas.beats.Close(); err != nil {
			b.log.Error("the membership's connection could not be closed cleanly", "error", err)
		}
	}
	if b.db != nil {
		if err := b.db.Close(); err != nil {
			b.log.Error("the store could not be closed cleanly", "error", err)
		}
	}
}

// keepSpent is how long the sums of a thread that nobody uses are kept: used again, it
// begins at zero.
const keepSpent = 90 * 24 * time.Hour

// retain prunes rows that have outlived their use, once an hour.
func (b *bot) retain(ctx context.Context) error {
	return hourly(ctx, func() {
		if _, err := pruneRows(ctx, b.db, b.file.Keep, time.Now()); err != nil && ctx.Err() == nil {
			b.log.Error("old rows could not be pruned", "error", err)
		}
	})
}

// tidy does so for what lies elsewhere: on machines and in this process's own files.
func (b *bot) tidy(ctx context.Context) error {
	return hourly(ctx, func() {
		b.machines.PruneProcesses(ctx)
		if _, err := b.outputs.Prune(ctx, time.Now().Add(-b.file.Outputs.Keep)); err != nil && ctx.Err() == nil {
			b.log.Error("old outputs could not be pruned", "error", err)
		}
		recordings := b.recordings()
		if err := recordings.Prune(ctx, time.Now().Add(-b.file.Recordings.Keep)); err != nil {
			b.log.Error("recordings could not be pruned", "error", err)
		}
	})
}

// hourly calls do now and each hour until ctx is done.
func hourly(ctx context.Context, do func()) error {
	t := time.NewTicker(time.Hour)
	defer t.Stop()
	for {
		do()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// toolbox shows the registry to the agent.
type toolbox struct{ b *bot }

func (t toolbox) Specs(thread chat.ThreadID, id string) []llm.ToolSpec {
	reg := t.b.registryOf(thread, id)
	if reg == nil {
		return nil
	}
	var out []llm.ToolSpec
	terminals := t.b.terminals(thread)
	for _, s := range reg.Specs(func(s tools.Spec) bool { return terminals || !s.NeedsTmux }) {
		out = append(out, llm.ToolSpec{Name: s.Name, Description: s.ToldText, Schema: s.Told})
	}
	return out
}

func (t toolbox) Plan(ctx context.Context, c tools.Call) (tools.Plan, error) {
	reg := t.b.registryOf(chat.ThreadID(c.Thread), c.Agent)
	if reg == nil {
		return tools.Plan{}, tools.Failed("the sub-agent %q is not configured any more", c.Agent)
	}
	return reg.Plan(ctx, c)
}

// post shows the outbox to the agent.
type post struct{ s *outbox.Sender }

func (p post) Put(tx store.Tx, thread chat.ThreadID, m chat.Post) {
	outbox.Put(tx, string(thread), m.Key, m, time.Now())
}
func (p post) Wake(thread chat.ThreadID) { p.s.Wake(string(thread)) }
