// Package networks is the chat networks that this bot is on: it opens those that have their
// tokens, remembers for them what has to survive a restart, and finds the one of a thread
// ([Networks]). [Outbox] sends what the bot says to them.
//
// The console is made elsewhere and added here like another one.
package networks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"countersign/adapters/chat"
	"countersign/adapters/discord"
	"countersign/adapters/slack"
	"countersign/bot/replicas"
	"countersign/bot/threads"
	"countersign/config"
	"countersign/config/rules"
	"countersign/store"
	"countersign/store/queue"
)

// Config is what networks are made of.
type Config struct {
	Env      config.Env
	File     config.File
	DB       store.DB
	Rules    func() *rules.Rules
	Replicas *replicas.Member
	Log      *slog.Logger
}

// Networks are those that are open.
type Networks struct {
	Config
	slack    *slack.Adapter   // nil without its tokens
	discord  *discord.Adapter // likewise
	adapters map[string]chat.Adapter
}

// New returns networks of which none is open.
func New(c Config) *Networks { return &Networks{Config: c, adapters: map[string]chat.Adapter{}} }

// Open opens the networks that have their tokens; desk answers what belongs to no thread
// there.
func (n *Networks) Open(desk chat.Desk) error {
	return errors.Join(n.openSlack(desk), n.openDiscord(desk))
}

// Add adds a network that was opened elsewhere.
func (n *Networks) Add(a chat.Adapter) { n.adapters[a.Scheme()] = a }

// Run connects the networks, and hands what people do there to h until ctx is done.
func (n *Networks) Run(ctx context.Context, h chat.Handler) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, a := range n.adapters {
		g.Go(func() error { return a.Run(ctx, h) })
	}
	return g.Wait()
}

// Events takes what Slack sends by HTTP, nil where it comes over a socket.
func (n *Networks) Events() http.Handler {
	if n.slack == nil || n.Env.SlackAppToken != "" {
		return nil
	}
	return n.slack.Handler()
}

// Ready says of each network that was opened here why it is not connected, nil where it
// is.
func (n *Networks) Ready() map[string]error {
	out := map[string]error{}
	if n.slack != nil {
		out["slack"] = n.slack.Ready()
	}
	if n.discord != nil {
		out["discord"] = n.discord.Ready()
	}
	return out
}

// Opener is the network of a scheme if it can begin threads, else nil.
func (n *Networks) Opener(scheme string) chat.Opener {
	o, _ := n.adapters[scheme].(chat.Opener)
	return o
}

// Whisper tells one person of a thread something, if its network can.
func (n *Networks) Whisper(thread chat.ThreadID, to chat.UserID, text string) bool {
	a, err := n.of(string(thread))
	if err != nil {
		return false
	}
	w, ok := a.(chat.Whisperer)
	if ok {
		w.Whisper(thread, to, text)
	}
	return ok
}

// of finds the network of a thread.
func (n *Networks) of(thread string) (chat.Adapter, error) {
	scheme, _, _ := strings.Cut(thread, ":")
	if a := n.adapters[scheme]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("no adapter for %q runs here: %w", scheme, chat.ErrGone)
}

// openSlack makes the Slack adapter where its tokens are set.
func (n *Networks) openSlack(desk chat.Desk) error {
	e := n.Env
	if e.SlackBotToken == "" {
		return nil
	}
	alive, deaf := alive{n.DB, "slack"}, alive{n.DB, "slack-deaf"}
	var peers slack.Peers
	if n.Replicas.Shared() {
		peers = n.Replicas
	}
	a, err := slack.New(slack.Config{
		BotToken: string(e.SlackBotToken), AppToken: string(e.SlackAppToken), SigningSecret: string(e.SlackSigningSecret),
		APIURL: e.SlackAPIURL, Name: n.File.Agent.Name, Usergroups: n.usergroups,
		Channel: func(id string) slack.ChannelRules {
			f := n.Rules().File
			c, _ := f.Channel("slack", id)
			return slack.ChannelRules{MentionOnly: c.Followups == "mention", NoHistory: c.History == "off", Bots: c.Bots}
		},
		Named: func(id string) bool {
			f := n.Rules().File
			_, ok := f.Channel("slack", id)
			return ok
		},
		Moved: n.moved, SetMoved: n.setMoved,
		Known: n.known, Open: func(ctx context.Context) ([]chat.ThreadID, error) { return threads.Active(ctx, n.DB, "slack:") },
		Seen: n.seen, Alive: alive.at, SetAlive: alive.set, Desk: desk, Do: n.Replicas.Network(), Turn: n.Replicas.Turn(), First: n.Replicas.First(), Peers: peers, Deaf: deaf.at, SetDeaf: deaf.set, Log: n.Log.With("network", "slack"), Now: time.Now,
	})
	if err != nil {
		return config.Errorf("%v", err)
	}
	n.slack = a
	n.Add(a)
	return nil
}

// usergroups are the user groups of Slack that the configuration names now.
func (n *Networks) usergroups() []string {
	var ids []string
	for _, g := range n.Rules().File.Groups {
		ids = append(ids, g.SlackUsergroups...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// known reports whether the bot takes part in a thread.
func (n *Networks) known(ctx context.Context, t chat.ThreadID) (known bool, err error) {
	err = n.DB.View(ctx, func(tx store.Tx) error {
		known = queue.Known(tx, string(t))
		return nil
	})
	return known, err
}

func movedKey() []byte { return store.Key("slack-moved") }

// moved are the channels of Slack that have another id now, by their first.
func (n *Networks) moved(ctx context.Context) (now map[string]string, err error) {
	err = n.DB.View(ctx, func(tx store.Tx) error {
		now, _ = store.Load[map[string]string](tx, movedKey())
		return nil
	})
	return now, err
}

func (n *Networks) setMoved(ctx context.Context, now map[string]string) error {
	return n.DB.Update(ctx, func(tx store.Tx) error {
		all, _ := store.Load[map[string]string](tx, movedKey())
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, now)
		store.Save(tx, movedKey(), all)
		return nil
	})
}

// seen reports whether an event has been delivered before.
func (n *Networks) seen(ctx context.Context, id chat.EventID) (seen bool, err error) {
	err = n.DB.View(ctx, func(tx store.Tx) error {
		seen = queue.Seen(tx, "event/"+string(id))
		return nil
	})
	return seen, err
}

// alive keeps a moment of a network, over restarts: when it was last heard, or when it
// was found that nobody hears it.
type alive struct {
	db      store.DB
	network string
}

func (a alive) key() []byte { return store.Key(a.network + "-alive") }

func (a alive) at(ctx context.Context) (at time.Time, err error) {
	err = a.db.View(ctx, func(tx store.Tx) error {
		at, _ = store.Load[time.Time](tx, a.key())
		return nil
	})
	return at, err
}

func (a alive) set(ctx context.Context, at time.Time) error {
	return a.db.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, a.key(), at)
		return nil
	})
}

// openDiscord makes the Discord adapter where its token is set.
func (n *Networks) openDiscord(desk chat.Desk) error {
	e := n.Env
	if e.DiscordBotToken == "" {
		return nil
	}
	alive := alive{n.DB, "discord"}
	a, err := discord.New(discord.Config{
		Token: e.DiscordBotToken, APIURL: e.DiscordAPIURL, Name: n.File.Agent.Name,
		Guilds: n.File.Discord.Guilds, DMs: n.File.Discord.DMs, Shards: n.File.Discord.Shards,
		Channel: func(id string) discord.ChannelRules {
			f := n.Rules().File
			c, _ := f.Channel("discord", id)
			return discord.ChannelRules{MentionOnly: c.Followups == "mention", NoHistory: c.History == "off", Bots: c.Bots}
		},
		Known: n.known, Open: func(ctx context.Context) ([]chat.ThreadID, error) { return threads.Active(ctx, n.DB, "discord:") },
		Seen: n.seen, Alive: alive.at, SetAlive: alive.set, Registered: n.registered, SetRegistered: n.setRegistered,
		Desk: desk, Do: n.Replicas.Network(), Turn: n.Replicas.Turn(), Log: n.Log.With("network", "discord"), Now: time.Now,
	})
	if err != nil {
		return config.Errorf("%v", err)
	}
	n.discord = a
	n.Add(a)
	return nil
}

func registeredKey(guild string) []byte { return store.Key("discord-commands", guild) }

// registered is which slash commands a server has.
func (n *Networks) registered(ctx context.Context, guild string) (hash string, err error) {
	err = n.DB.View(ctx, func(tx store.Tx) error {
		hash, _ = store.Load[string](tx, registeredKey(guild))
		return nil
	})
	return hash, err
}

func (n *Networks) setRegistered(ctx context.Context, guild, hash string) error {
	return n.DB.Update(ctx, func(tx store.Tx) error {
		store.Save(tx, registeredKey(guild), hash)
		return nil
	})
}
