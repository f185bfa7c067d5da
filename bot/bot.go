// Package bot is Countersign as a whole: [New] builds a bot from what the operator says, and
// [Bot.Run] serves it until its context ends. It is wiring: what the parts do is theirs.
//
// It reads no flag and no environment, handles no signal and ends no process; cmd/bot does.
package bot

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"countersign/adapters/chat"
	"countersign/agent"
	"countersign/agent/llm"
	"countersign/agent/llm/openai"
	"countersign/agent/tokens"
	"countersign/agent/workflow"
	"countersign/alerts"
	"countersign/approvals"
	"countersign/approvals/audit"
	"countersign/approvals/gate"
	"countersign/approvals/oncall"
	"countersign/approvals/passkey"
	"countersign/approvals/passkey/registry"
	"countersign/approvals/policy"
	"countersign/approvals/risk"
	"countersign/approvals/tickets"
	"countersign/bot/calls"
	"countersign/bot/comments"
	consoles "countersign/bot/console"
	"countersign/bot/desk"
	"countersign/bot/handover"
	"countersign/bot/machines"
	"countersign/bot/networks"
	"countersign/bot/observe"
	"countersign/bot/oneshot"
	"countersign/bot/replicas"
	"countersign/bot/steady"
	"countersign/bot/stream"
	"countersign/bot/threads"
	"countersign/bot/toolbox"
	"countersign/bot/webhooks"
	"countersign/config"
	"countersign/config/rules"
	"countersign/config/storage"
	"countersign/console"
	"countersign/internal/redact"
	"countersign/store"
	"countersign/store/keyring"
	"countersign/store/postgres"
	"countersign/targets/certificate"
	"countersign/targets/record"
	"countersign/tools/code"
	"countersign/tools/hostkey"
	"countersign/tools/mcp"
	"countersign/tools/output"
)

// Bot is everything that a running bot is made of.
type Bot struct {
	env     config.Env
	file    config.File
	version string // of the program
	log     *slog.Logger
	chores  Chores

	db         storage.Engine
	key        []byte // signs login codes and sessions of the web console
	replicas   *replicas.Member
	rules      atomic.Pointer[rules.Rules]
	redactor   *redact.Redactor
	observer   *observe.Observer // traces and metrics
	machines   machines.Set
	recordings machines.Recordings
	outputs    *output.Log // whole outputs of calls whose result is cut
	toolbox    *toolbox.Toolbox
	networks   *networks.Networks
	outbox     *networks.Outbox
	gate       *gate.Gate
	agent      *agent.Agent
	calls      *calls.Calls
	webhooks   *webhooks.Sender
	stream     *stream.Stream
	onCall     *oncall.Keeper
	tickets    *tickets.Book
	comments   *comments.Commenter
	handover   handover.Desk
	console    consoles.Config
	web        *console.Adapter // nil before Run
	intake     *alerts.Intake   // nil without hooks
}

// Options are what a caller decides.
type Options struct {
	Model    llm.Model    // nil: the one that the environment names
	NoModel  bool         // nobody asks a model
	Networks bool         // open those that have their tokens, beside the console
	Dir      string       // the target's default directory; "" is the bot's own
	Single   bool         // this run is one call: its terminals and its outputs end with it
	HostKeys string       // the file of approved host keys; "" is the one in the data directory
	Parser   code.Starter // for the code indexer; nil: it cannot parse
	// Launcher is a program on this machine, with its first arguments, that runs another one under a lock
	// (targets/lock/helper); nil: commands are not rehearsed on it.
	Launcher []string
	// Version and Revision of the program, for traces and metrics.
	Version, Revision string
	// Chores makes what the program does beside the bot, while it is served; nil is nothing.
	Chores func(Site) Chores
	// Pages makes more lists for the console; nil is none.
	Pages func(Site) []desk.Page
}

// Site is where chores are done.
type Site struct {
	DB    store.DB
	Key   []byte              // of the data directory
	Clean func(string) string // takes secrets of the environment out of text
	Wake  func(thread string)
	Rules func() *rules.Rules // those in force
	Log   *slog.Logger
	// Records are those of threads.
	Records desk.Records
}

// Chores are done beside the bot.
type Chores struct {
	Jobs     map[string]func(context.Context) error // what one replica at a time does, by name
	Handlers map[string]http.Handler                // what is served beside the console, by path
	Final    func(context.Context)                  // called when all else has ended; nil is not
}

// New builds a bot. Nothing is served before [Bot.Run]; [Bot.Close] gives back what it
// holds.
func New(ctx context.Context, e config.Env, f config.File, log *slog.Logger, o Options) (*Bot, error) {
	if err := Validate(e, f); err != nil {
		return nil, err
	}
	b := &Bot{env: e, file: f, log: log}
	err := b.open(ctx)
	if err == nil {
		err = b.assemble(ctx, o)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Machines are those of the bot.
func (b *Bot) Machines() machines.Set { return b.machines }

// Toolbox is what everybody can call.
func (b *Bot) Toolbox() *toolbox.Toolbox { return b.toolbox }

// LoginCode signs somebody in to the console, once.
func (b *Bot) LoginCode(name string) string { return console.LoginCode(b.key, name, time.Now()) }

// Caller makes calls without a conversation.
func (b *Bot) Caller() oneshot.Caller {
	return oneshot.Caller{DB: b.db, Gate: b.gate, Tools: b.toolbox.Everyone()}
}

// open opens the data directory and the store.
func (b *Bot) open(ctx context.Context) error {
	dir := b.env.DataDir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory %s cannot be made (%w); set COUNTERSIGN_DATA_DIR to a directory that the bot may write", dir, err)
	}
	opened, err := storage.Open(ctx, b.env, replicas.HostName(), b.log)
	if err != nil {
		return err
	}
	b.db = opened
	path := filepath.Join(dir, "web.key")
	db, shared := b.db.(*postgres.DB)
	if !shared {
		if err := b.stopRestored(ctx, nil); err != nil {
			return err
		}
		b.replicas = replicas.Alone(b.env.Instance, b.db.Epoch(), b.db)
		b.key, err = storage.LoadKey(path)
		return err
	}
	beats, err := storage.OpenMembership(ctx, b.env, replicas.HostName()+" membership", b.log)
	if err != nil {
		return fmt.Errorf("the database that %s names cannot be used: %w", config.StoreName, err)
	}
	b.replicas = replicas.New(replicas.Config{Instance: b.env.Instance, DB: db, Beats: beats, Changed: b.look, Log: b.log})
	if err := replicas.ClaimDatabase(ctx, b.db, b.env.Instance); err != nil {
		return err
	}
	if err := b.stopRestored(ctx, db); err != nil {
		return err
	}
	// The key is the replicas' own, and the file a copy of it, for bot web login.
	if b.key, err = keyring.SharedKey(ctx, b.db, "web"); err != nil {
		return fmt.Errorf("the console's key cannot be read from the database: %w", err)
	}
	return storage.SaveKey(path, b.key)
}

// stopRestored stops what is open in a store that is of an earlier time: in a backup that
// somebody put in the place of the store, and in a database that was restored from a dump. db
// is nil where the store is a file.
func (b *Bot) stopRestored(ctx context.Context, db *postgres.DB) (err error) {
	restored, origin := false, ""
	if db != nil {
		var was string
		if origin, was, err = db.Origin(ctx); err != nil {
			return fmt.Errorf("the database that %s names cannot be used: %w", config.StoreName, err)
		}
		if was == origin {
			origin = ""
		}
		restored = was != "" && origin != ""
	}
	err = b.db.View(ctx, func(tx store.Tx) error {
		_, marked := threads.IsCopy(tx)
		restored = restored || marked
		return nil
	})
	if err == nil && restored {
		var stopped []chat.ThreadID
		err = b.db.Update(ctx, func(tx store.Tx) (err error) {
			stopped, err = threads.StopRestored(tx, time.Now())
			return err
		})
		if err == nil {
			b.log.WarnContext(ctx, "the store was restored from an earlier time, so what was open in it is stopped", "threads", len(stopped))
		}
	}
	if err == nil && origin != "" {
		err = db.SetOrigin(ctx, origin)
	}
	if err != nil {
		return fmt.Errorf("what is open in the restored store can't be stopped: %w", err)
	}
	return nil
}

// assemble makes the parts, each from those before it. What a part needs of a later one it
// asks for when it works.
func (b *Bot) assemble(ctx context.Context, o Options) error {
	b.version = o.Version
	r, err := rules.New(b.file)
	if err != nil {
		return err
	}
	deadlines := steady.New(b.log)
	if b.onCall, err = newOnCall(b.file, b.db, deadlines.Now, b); err != nil {
		return err
	}
	if _, err := b.enforce(ctx, r); err != nil {
		return err
	}
	servers, err := toolbox.ServerConfig(b.file, os.LookupEnv)
	if err != nil {
		return err
	}
	b.redactor = redact.New(secrets(b.env, b.file, servers)...)
	b.log = slog.New(observe.Redacting(b.log.Handler(), b.redactor.Redact))
	b.outputs = output.New(output.Config{
		DB: b.others(), Owns: b.replicas.Owns, Log: b.log,
		Dir: filepath.Join(b.env.DataDir, "outputs"), Max: b.file.Outputs.MaxBytes, Cleaner: func() output.Cleaner { return b.redactor.Stream() },
		Readable: func() bool { return b.toolbox.Offers("read_output") },
	})
	if err := b.openMachines(ctx, o); err != nil {
		return err
	}
	targets := b.targets()
	roles, err := threads.NewRoles(b.db, b.file, b.log)
	if err != nil {
		return err
	}
	library, err := workflow.Load(b.file.Workflows.Dirs, b.file.Workflows.Inline)
	if err != nil {
		return config.Errorf("%v", err)
	}
	b.toolbox = toolbox.New(toolbox.Config{
		DataDir: b.env.DataDir, Tavily: toolbox.Tavily(b.env), File: b.file, DB: b.db, Targets: targets, Roles: roles, Library: library, Outputs: b.outputs, Servers: servers,
		Judge: func(ctx context.Context, r approvals.Request) approvals.Ruling { return b.gate.Judge(ctx, r) },
		Give: func(ctx context.Context, thread, name, mime string, data []byte) error {
			return b.outbox.Give(ctx, thread, name, mime, data)
		},
		Redact: b.redactor.Redact, Learn: b.redactor.Learn, Log: b.log,
	})
	if err := b.toolbox.Start(ctx); err != nil {
		return err
	}
	if b.webhooks, err = b.newWebhooks(); err != nil {
		return err
	}
	if b.stream, err = b.newStream(o.Version); err != nil {
		return err
	}
	if err := b.newTickets(deadlines.Now); err != nil {
		return err
	}
	b.gate = gate.New(gate.Config{
		Tickets: b.tickets,
		Audit:   audit.Trail{Redact: b.redactor.RedactCommand, Tell: b.tell},
		DB:      b.db, Now: deadlines.Now, Log: b.log,
		Policy:   func() *policy.Policy { return b.rules.Load().Policy },
		Classify: b.classify,
		Wake:     func(thread string) { b.agent.Wake(chat.ThreadID(thread)); b.outbox.Wake(chat.ThreadID(thread)) },
		Place:    targets.Place,
		Reach:    targets.Reach,
		Passkeys: registry.Book{Site: b.file.Site()}, Origin: b.file.Web.Origin, Signer: b.signer(),
		Limits: func() gate.Limits {
			p := b.rules.Load().File.Programs
			return gate.Limits{Open: p.Open, PerHour: p.PerHour}
		},
		Used: b.machines.Mark, Labels: func(c approvals.Claim, engine approvals.Judgement) { b.observer.Labels(c, engine) },
	})
	runbooks := desk.Runbooks{Library: library, Tools: b.toolbox, Targets: targets}
	b.networks = networks.New(networks.Config{Env: b.env, File: b.file, DB: b.db, Rules: b.rules.Load, Replicas: b.replicas, Log: b.log})
	b.outbox = networks.NewOutbox(networks.OutboxConfig{
		DB: b.db, Networks: b.networks, Replicas: b.replicas, Repaint: b.gate.Repaint, Log: b.log,
		Output: func(ctx context.Context, thread chat.ThreadID, id string) (chat.File, error) {
			return b.agent.OutputFile(ctx, thread, id)
		},
	})
	model := o.Model
	if model == nil && !o.NoModel {
		if model, err = Model(b.env, b.file, b.secret, b.log); err != nil {
			return err
		}
	}
	if err := b.observe(ctx, o); err != nil {
		return err
	}
	b.handover = b.newHandover()
	records := desk.Records{DB: b.db, Redactor: b.redactor, Outputs: b.outputs, Recordings: b.recordings, Log: b.log}
	b.calls = calls.New(calls.Config{
		DB: b.db, Opener: b.networks.Opener, Channel: func() string { return b.rules.Load().File.Programs.Channel }, Tools: b.toolbox.Callables,
		Ask: func(ctx context.Context, ev chat.Event, what agent.Command) (string, error) {
			return b.agent.Ask(ctx, ev, what)
		},
		Deliver: func(ctx context.Context, ev chat.Event) error { return b.agent.Deliver(ctx, ev) },
		Redact:  b.redactor.Redact, Clean: func() calls.Cleaner { return b.redactor.Stream() }, Now: deadlines.Now, Log: b.log,
		Kept: records.Streams,
	})
	agentDesk := desk.Desk{
		Profiles:   desk.Profiles{Name: b.file.Agent.Name, Targets: targets, Roles: roles, Tools: b.toolbox, Library: library},
		Targets:    desk.Targets{Targets: targets, Tools: b.toolbox},
		Roles:      desk.Roles{Roles: roles},
		Terminals:  desk.Terminals{Targets: targets, Log: b.log},
		Recordings: desk.Recordings{Recordings: b.recordings, Off: b.file.Recordings.Off, Log: b.log},
		Changes:    desk.Changes{DB: b.db, Several: len(b.machines) > 1},
		Runbooks:   runbooks,
		Records:    records,
		Handover:   b.handover.Handover,
	}
	b.agent = agent.New(agent.Config{
		DB: b.db, Model: b.observer.Model(model), Tools: b.toolbox, Rulings: b.gate, Requests: b.gate, Permits: b.gate, Terms: b.gate, Outbox: b.outbox,
		Owner: b.replicas.Name(), Replicas: b.replicas, Outputs: b.outputs,
		Desk: agentDesk, Words: agentDesk.Words(), Witness: b.machines,
		Refuse: calls.Refuse, Hear: b.calls.Begin, Whisper: b.networks.Whisper,
		Redact: b.redactor.Redact, Live: func() agent.Live { return b.redactor.Stream() },
		Limits: agent.Limits{Steps: b.file.Limits.Steps, Tokens: b.file.Limits.Tokens, Wall: b.file.Limits.Wall},
		Window: b.file.Model.Window, Count: tokens.Count, Key: keyring.Derive(b.key, "marks"),
		Watcher:     watcher{b.observer},
		Spending:    &agent.Spending{Prices: b.file.Prices, Caps: b.file.Caps, Channel: func(t chat.ThreadID) string { return config.ChannelOf(string(t)) }},
		KeepDeleted: b.file.Keep.Deleted,
		Repeats:     b.file.Limits.Repeats, Park: b.file.Limits.Park, Now: deadlines.Now, Log: b.log,
	})
	commands := desk.Commands{DB: b.db, Targets: targets, Agent: b.agent, Runbooks: runbooks, Opener: b.networks.Opener, Log: b.log}
	var pages []desk.Page
	if !b.file.Recordings.Off {
		pages = append(pages, desk.RecordingsPage(&b.recordings))
	}
	pages = append(pages, desk.AlertsPage(func() *alerts.Intake { return b.intake }, time.Now))
	if o.Pages != nil {
		pages = append(pages, o.Pages(Site{DB: b.db, Log: b.log, Rules: b.rules.Load})...)
	}
	home := desk.NewHome(commands, b.gate, b.outbox.Last, b.problems)
	b.console = consoles.Config{
		Desk: home, Lists: desk.NewLists(home, b.redactor.RedactCommand, pages...),
		File: b.env.Config, DataDir: b.env.DataDir, Web: b.file.Web, OIDCSecret: b.env.OIDCSecret, DB: b.db, Key: b.key, Rules: b.rules.Load, Replicas: b.replicas, Machines: b.machines, Outputs: records, Calls: b.calls, Redact: b.redactor.Redact, Tell: b.tell, Log: b.log,
	}
	if !b.file.Recordings.Off {
		b.console.Recordings = &b.recordings
	}
	if o.Chores != nil {
		b.chores = o.Chores(Site{DB: b.db, Key: b.key, Clean: redact.New(b.env.Secrets(b.file)...).RedactCommand, Wake: b.outbox.Sender.Wake, Log: b.log, Records: records})
	}
	if o.Networks {
		return b.networks.Open(commands)
	}
	return nil
}

// newWebhooks makes the sender of webhooks, whose secrets stand in the environment.
func (b *Bot) newWebhooks() (*webhooks.Sender, error) {
	c := webhooks.Config{DB: b.db, Link: networks.Link(b.file.Web.Origin), Log: b.log.With("part", "webhooks"), Now: time.Now}
	for _, h := range b.file.Programs.Webhooks {
		secret := func() redact.Secret { return redact.Secret(b.secret(h.SecretEnv)) }
		if secret() == "" {
			return nil, config.Errorf("programs.webhooks: the environment variable %s is not set; it holds the secret for %s", h.SecretEnv, h.URL)
		}
		c.Hooks = append(c.Hooks, webhooks.Hook{URL: h.URL, Secret: secret(), Renew: secret})
	}
	return webhooks.New(c), nil
}

// tell tells other systems of a line of the audit record, in the transaction that writes it.
func (b *Bot) tell(tx store.Tx, thread string, e audit.Event, at time.Time) {
	b.webhooks.Tell(tx, thread, e, at)
	b.stream.Tell(tx, thread, e, at)
	b.comments.Tell(tx, thread, e, at)
}

// signer is what tells the signer what people are about to sign; nil without a signer.
func (b *Bot) signer() func(context.Context, []byte, passkey.Statement) (registry.Page, string, error) {
	if b.file.Signer.URL == "" {
		return nil
	}
	signer, failed := machines.Signer(&machines.Options{Env: b.env, File: b.file})
	return func(ctx context.Context, action []byte, s passkey.Statement) (registry.Page, string, error) {
		if failed != nil {
			return registry.Page{}, "", failed
		}
		reply, err := signer.Ask(ctx, certificate.Ask{Action: action, Statement: s.Encode()})
		if err != nil || reply.Link == "" {
			return registry.Page{}, reply.Nonce, err
		}
		site, err := passkey.SiteOf(reply.Origin)
		return registry.Page{Link: reply.Link, Statement: reply.Statement, Site: site, Keys: reply.Keys}, "", err
	}
}

// targets are the machines as threads use them.
func (b *Bot) targets() threads.Targets {
	return threads.Targets{DB: b.db, Machines: b.machines, Rules: b.rules.Load, Default: b.file.Agent.Target}
}

// openMachines makes the machines, and opens this one.
func (b *Bot) openMachines(ctx context.Context, o Options) (err error) {
	p := &machines.Options{
		Env: b.env, File: b.file, Log: b.log, Dir: o.Dir, HostKeys: cmp.Or(o.HostKeys, b.env.KnownHosts()),
		DB: b.db, Replicas: b.replicas, Parser: o.Parser, Launcher: o.Launcher, Indexes: code.NewCache(),
		Redact: b.redactor.Redact, Classify: b.classify, Single: o.Single,
		Reads:   func(target string, lock bool) approvals.Reads { return b.rules.Load().Reads(target, lock) },
		Unasked: func(thread chat.ThreadID, target string) error { return b.targets().Unasked(thread, target) },
		MayReach: func(thread chat.ThreadID, by chat.User, groups []string, hop risk.Hop) bool {
			return b.targets().Reach(thread, by, groups, hop)
		},
	}
	p.Keys = hostkey.InFile(p.HostKeys)
	if b.env.Shared() {
		p.Keys, p.Register = hostkey.InStore(b.db), record.NewRegister(b.db, b.replicas.Host())
	}
	if b.machines, err = machines.NewSet(p); err != nil {
		return err
	}
	b.recordings = machines.Recordings{DataDir: b.env.DataDir, Targets: b.machines.Names(), Register: p.Register}
	return b.machines.ConnectLocal(ctx)
}

// classify judges with the tables of the moment: one classifier for the gate and for the
// tool that decides where a read runs.
func (b *Bot) classify(t risk.Text) risk.Verdict { return b.rules.Load().Engine.Judge(t) }

// others is the store, where other replicas share it.
func (b *Bot) others() store.DB {
	if !b.env.Shared() {
		return nil
	}
	return b.db
}

// secrets are what no text may show.
func secrets(e config.Env, f config.File, servers mcp.Config) []string {
	return append(e.Secrets(f), servers.Secrets()...)
}

// Model returns the client of the model that the environment names; secret returns a variable's value as it is now.
func Model(e config.Env, f config.File, secret func(name string) string, log *slog.Logger) (llm.Model, error) {
	if e.OpenAIKey == "" && e.OpenAIBaseURL == "" {
		return nil, config.Errorf("no model is configured: set OPENAI_API_KEY and OPENAI_MODEL, or OPENAI_BASE_URL for a server of your own")
	}
	m, err := openai.New(openai.Config{
		APIKey: string(e.OpenAIKey), RenewKey: func() string { return secret("OPENAI_API_KEY") }, BaseURL: e.OpenAIBaseURL, Model: e.OpenAIModel,
		API: e.ModelAPI, Headers: e.ModelHeaders, Fallback: f.Model.Fallback, Log: log,
	})
	if err != nil {
		return nil, config.Errorf("%v", err)
	}
	return m, nil
}

// Close gives back what the bot holds; what runs on machines stays.
func (b *Bot) Close() {
	if b.observer != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
		if err := b.observer.Shutdown(ctx); err != nil {
			b.log.Warn("not all traces could be sent", "error", err)
		}
		cancel()
	}
	if b.toolbox != nil {
		b.toolbox.Close()
	}
	b.machines.Close()
	if b.replicas != nil {
		if err := b.replicas.Close(); err != nil {
			b.log.Error("the membership's connection could not be closed cleanly", "error", err)
		}
	}
	if b.db != nil {
		if err := b.db.Close(); err != nil {
			b.log.Error("the store could not be closed cleanly", "error", err)
		}
	}
}
