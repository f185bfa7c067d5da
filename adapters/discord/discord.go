// Package discord makes Discord one of the bot's networks: a mention in a channel
// starts a thread under that message, which is a conversation, as are threads
// that the bot is mentioned in and direct messages where they are allowed. Cards
// are ordinary messages with buttons, so that they outlive every interaction and
// every restart; a press of a button is a click.
//
// It listens in the servers (guilds) that [Config.Guilds] lists and in no others:
// anybody can add a public bot to a server of their own, and would hold every role
// there.
//
// Discord keeps nothing of ours on a message, so that a post cannot carry its key
// where it could be read again. A post is found again by its nonce, under which
// Discord returns the message that was made instead of making another, for some
// minutes; after that by what it says: a card by its buttons, whose ids are of one
// request alone, and a text when it is the last thing that was said in the thread.
//
// Several replicas may run on one store. One of them holds the connection of a shard,
// over which all events and presses come ([Config.Do]); what the others need they ask the
// API for, so that each can do everything else ([Config.Turn]).
//
// The package decides nothing and stores no conversation: what it keeps in memory
// can be lost at any moment. What was written while the bot had no session it looks for
// in the history; what is not found there is said at the constants of survey.go.
package discord

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/lanes"
	"countersign/adapters/chat/opened"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/embed"
	"countersign/adapters/discord/gateway"
	"countersign/internal/redact"
)

// ChannelRules are what the configuration says of one channel. They hold for its
// threads too.
type ChannelRules struct {
	MentionOnly bool     // follow-ups in threads need a mention too
	NoHistory   bool     // what was said before the bot was asked is not read
	Bots        []string // ids of bots and webhooks that may speak to this one here
}

// Config is what an [Adapter] is made of. Its functions may be called from several
// goroutines at once.
type Config struct {
	// Token is the bot's, without "Bot " in front.
	Token  redact.Secret
	APIURL string // base of the API with its version; "" is Discord's own
	Name   string // the bot's name in conversations; "" is its name on Discord
	// Guilds are the ids of the servers in which the bot works. In others it
	// answers nobody.
	Guilds []string
	// DMs lets members of these servers talk to the bot in direct messages.
	DMs bool
	// Channel gives the rules of a channel; nil: none.
	Channel func(id string) ChannelRules
	// Known reports whether the bot takes part in a thread.
	Known func(ctx context.Context, t chat.ThreadID) (bool, error)
	// Open lists the threads of this network with open work; after a gap their
	// messages are read again from the history, before those of other threads and
	// channels in which something was written meanwhile. nil: none.
	Open func(ctx context.Context) ([]chat.ThreadID, error)
	// Seen reports whether an event has been delivered before; nil: everything is
	// delivered again, and the bot recognises it.
	Seen func(ctx context.Context, id chat.EventID) (bool, error)
	// Alive and SetAlive keep when the bot was last connected, so that a gap over a
	// restart has a beginning. nil: gaps over restarts are an hour long.
	Alive    func(ctx context.Context) (time.Time, error)
	SetAlive func(ctx context.Context, t time.Time) error
	// Registered and SetRegistered keep, for each server, which slash commands were
	// registered there. nil: they are registered at every start, which changes
	// nothing on Discord.
	Registered    func(ctx context.Context, guild string) (string, error)
	SetRegistered func(ctx context.Context, guild, hash string) error
	// Do runs run while this process has a job that one of several replicas may do at
	// a time; run's context ends when the job goes elsewhere, and run may be called
	// again. Each shard is a job, so that one replica holds its connection; all others
	// do everything else. nil: this process is alone.
	Do func(ctx context.Context, job string, run func(ctx context.Context) error) error
	// Turn says who posts in a thread, where several replicas do: n grows whenever
	// another one than before begins to (1: only one ever did, 0: none), and mine means
	// that this process was the last that began. An error means that this process
	// must show nothing there now. It is asked right before each call that people see,
	// so it should cost no more than a look at the store. nil: nobody else posts.
	Turn      func(ctx context.Context, t chat.ThreadID) (n uint64, mine bool, err error)
	Desk      chat.Desk // answers slash commands; nil: with their list alone
	Shards    int       // connections to Discord; 0 is what Discord recommends
	Transport http.RoundTripper
	Log       *slog.Logger
	Now       func() time.Time
}

// Adapter is Discord as one of the bot's networks. It is safe for concurrent use.
type Adapter struct {
	cfg   Config
	rest  *gateway.REST
	pace  *pacer
	log   *slog.Logger
	now   func() time.Time
	began time.Time
	times times
	most  bounds

	scribe     *scribe.Scribe[embed.Message, *page]
	places     places
	people     people
	opens      *opened.Threads // threads that the bot began itself
	inbox      *lanes.Lanes    // messages, in order within their thread
	room       chan struct{}   // one for each message that is held
	background *lanes.Lanes    // what nobody waits for
	recent     recent          // messages that are durable, so that their repeats cost nothing
	told       told            // what was said once already
	cards      openCards       // cards that wait for a decision
	handled    func(id string, err error)

	sup     atomic.Pointer[gateway.Supervisor]
	content atomic.Bool  // messages that do not mention the bot come with their text
	missed  atomic.Int64 // since when something may be missing that the history has, in ns since 1970; 0: nothing is

	mu  sync.Mutex
	me  identity
	why string // nothing is connected
	ctx context.Context
}

// times are the adapter's own clocks; tests run them faster.
type times struct {
	keep   time.Duration // how often the adapter looks after itself
	retry  time.Duration // before a message that could not be stored is offered again, doubled each time
	give   time.Duration // for how long
	ack    time.Duration // until an interaction is acknowledged before its answer is known
	stale  time.Duration // see staleAfter
	show   scribe.Times
	typing time.Duration // between two signs of typing
	drain  time.Duration // for what is held at the end
}

// bounds are how much is read after a gap; tests have smaller ones.
type bounds struct {
	surveyed int // channels and threads
	pages    int // of each
}

// identity is who the bot is on Discord.
type identity struct{ user, app, name string }

// maxHeld bounds the messages that wait for the bot to take them.
const maxHeld = 256

// New returns an adapter; nothing is connected until Run.
func New(cfg Config) (*Adapter, error) {
	if cfg.Known == nil {
		return nil, errors.New("discord: Config.Known is required")
	}
	for _, g := range cfg.Guilds {
		if !snowflake.MatchString(g) {
			return nil, errors.New("discord: the server id " + safe(g) + " is none; switch on Developer Mode in Discord, right-click the server and copy its id")
		}
	}
	if len(cfg.Guilds) == 0 {
		return nil, errors.New("discord: no server is allowed; list the ids of the servers in which the bot may work")
	}
	if cfg.Channel == nil {
		cfg.Channel = func(string) ChannelRules { return ChannelRules{} }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	rest, err := gateway.NewREST(gateway.RESTConfig{Token: cfg.Token, APIURL: cfg.APIURL, Log: cfg.Log, Transport: cfg.Transport})
	if err != nil {
		return nil, err
	}
	a := &Adapter{
		cfg: cfg, rest: rest, pace: newPacer(), log: cfg.Log, now: cfg.Now, began: cfg.Now(),
		opens: opened.New(), inbox: lanes.New(), room: make(chan struct{}, maxHeld), background: lanes.New(), handled: func(string, error) {},
		why: "not connected yet", ctx: context.Background(),
		most: bounds{surveyed: maxSurveyed, pages: maxPages},
		times: times{
			keep: keepEvery, retry: 500 * time.Millisecond, give: 2 * time.Minute, ack: ackBy, stale: staleAfter, show: scribe.Times{Show: showEvery, After: showAfter, Call: showLimit},
			typing: typingEvery, drain: 5 * time.Second,
		},
	}
	a.people = people{rest: rest, now: cfg.Now}
	a.scribe = scribe.New[embed.Message](scribe.Config[*page]{Open: func(t chat.ThreadID) (*page, error) {
		th, err := a.home(t)
		return a.newPage(th), err
	}, Turn: cfg.Turn, Keyless: true, Times: &a.times.show, Log: cfg.Log})
	return a, nil
}

// Scheme implements chat.Adapter.
func (a *Adapter) Scheme() string { return scheme }

// State says in a few words whether events arrive here.
func (a *Adapter) State() string {
	if err := a.Ready(); err != nil { // asked once: it may be ready in the next moment
		return strings.TrimPrefix(err.Error(), "discord: ")
	}
	here, states := 0, a.sup.Load().States()
	for _, st := range states {
		if st.Up() {
			here++
		}
	}
	switch {
	case here == len(states):
		return "connected"
	case here == 0:
		return "another replica holds the connection"
	}
	return fmt.Sprintf("%d of %d connections are here, and other replicas hold the rest", here, len(states))
}

// Ready returns nil while events can arrive, here or at another replica, and otherwise a
// sentence.
func (a *Adapter) Ready() error {
	if s := a.sup.Load(); s != nil {
		return s.Ready()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.New("discord: " + a.why)
}

// Stats count the connections since Run began; the zero value before that.
func (a *Adapter) Stats() gateway.Stats {
	if s := a.sup.Load(); s != nil {
		return s.Stats()
	}
	return gateway.Stats{}
}

func (a *Adapter) because(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = why
}

func (a *Adapter) self() identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.me
}

func (a *Adapter) context() context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ctx
}

// allowed reports whether the bot works in a guild.
func (a *Adapter) allowed(guild string) bool { return slices.Contains(a.cfg.Guilds, guild) }

// Run implements chat.Adapter. It ends with an error only when Discord refuses the
// bot until a person changes something.
func (a *Adapter) Run(ctx context.Context, h chat.Handler) error {
	run, cancel := context.WithCancel(ctx)
	work, drained := context.WithCancel(context.WithoutCancel(ctx))
	a.mu.Lock()
	a.ctx = run
	a.mu.Unlock()
	a.inbox.Open()
	a.background.Open()
	a.scribe.Open(run)
	var wg sync.WaitGroup
	defer func() {
		a.scribe.Stop()
		cancel()
		late := time.AfterFunc(a.times.drain, drained)
		a.inbox.Close()
		late.Stop()
		drained()
		a.background.Close()
		a.scribe.Close()
		wg.Wait()
		a.rest.Close()
	}()
	if err := a.identify(run); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	wg.Go(func() { a.keep(run, work, h) })
	for {
		s, err := a.supervisor(work, h)
		if err != nil {
			return err
		}
		a.sup.Store(s)
		err = s.Run(run)
		var fatal *gateway.FatalError
		if !errors.As(err, &fatal) {
			return err
		}
		if fatal.Code != disallowedIntents || !a.content.Load() {
			return err
		}
		// It was switched off a moment ago; mentions and direct messages come
		// without it.
		a.content.Store(false)
		a.log.WarnContext(ctx, "discord no longer gives the bot the text of messages; only mentions are heard until the Message Content Intent is on again and the bot is restarted")
	}
}

// disallowedIntents is the close code for a privileged intent that is off
// (docs.discord.com/developers/topics/opcodes-and-status-codes).
const disallowedIntents = 4014

func (a *Adapter) supervisor(work context.Context, h chat.Handler) (*gateway.Supervisor, error) {
	intents := discordgo.IntentGuilds | discordgo.IntentGuildMessages
	if a.cfg.DMs {
		intents |= discordgo.IntentDirectMessages
	}
	if a.content.Load() {
		intents |= discordgo.IntentMessageContent
	}
	return gateway.New(gateway.Config{
		Token: a.cfg.Token, APIURL: a.cfg.APIURL, Intents: intents, Shards: a.cfg.Shards, Do: a.cfg.Do, Log: a.log, Now: a.cfg.Now, REST: a.rest,
		Events: func(ctx context.Context, _ int, event any) { a.onEvent(ctx, work, h, event) },
		OnGap:  func(_ context.Context, shard int, since time.Time) { a.onGap(work, h, shard, since) },
	})
}

// The flags of an app that say that messages come with their text: verified apps
// and those below the limit have one each
// (docs.discord.com/developers/resources/application, "Application Flags").
const (
	flagMessageContent        = 1 << 18
	flagMessageContentLimited = 1 << 19
)

// identify asks Discord who the bot is, until it answers.
func (a *Adapter) identify(ctx context.Context) error {
	delay := 500 * time.Millisecond
	for {
		me, err := a.rest.Me(ctx)
		var app gateway.Application
		if err == nil {
			app, err = a.rest.Application(ctx)
		}
		if err == nil {
			a.mu.Lock()
			a.me = identity{user: me.ID, app: app.ID, name: orElse(a.cfg.Name, me.Username)}
			a.mu.Unlock()
			a.content.Store(app.Flags&(flagMessageContent|flagMessageContentLimited) != 0)
			if app.Endpoint != "" {
				a.log.ErrorContext(ctx, "the app has an Interactions Endpoint URL, so no button reaches the bot; empty that field on the page https://discord.com/developers/applications, your app, General Information")
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, gateway.ErrUnauthorized) {
			a.because(strings.TrimPrefix(gateway.ErrUnauthorized.Error(), "discord: "))
			return gateway.ErrUnauthorized
		}
		a.because("Discord does not answer: " + err.Error())
		a.log.WarnContext(ctx, "discord cannot be reached; trying again", "retry_in", delay, "error", err)
		if !sleep(ctx, delay) {
			return ctx.Err()
		}
		delay = min(2*delay, 30*time.Second)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}
