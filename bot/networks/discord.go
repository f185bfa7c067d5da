package networks

import (
	"context"
	"time"

	"countersign/adapters/chat"
	"countersign/adapters/chat/network"
	"countersign/adapters/discord"
	"countersign/bot/threads"
	"countersign/internal/redact"
	"countersign/store"
)

// openDiscord makes the Discord adapter.
func (n *Networks) openDiscord(to Account, desk chat.Desk) (adapter, error) {
	alive := alive{n.DB, to.Scheme}
	return discord.New(discord.Config{
		Token: redact.Secret(to.value(to.Token)), APIURL: to.value(to.API), Name: n.File.Agent.Name,
		Guilds: n.File.Discord.Guilds, DMs: n.File.Discord.DMs, Shards: n.File.Discord.Shards,
		Channel: func(id string) discord.ChannelRules {
			f := n.Rules().File
			c, _ := f.Channel(to.Scheme, id)
			return discord.ChannelRules{MentionOnly: c.Followups == "mention", NoHistory: c.History == "off", Bots: c.Bots}
		},
		Known: n.known, Open: func(ctx context.Context) ([]chat.ThreadID, error) { return threads.Active(ctx, n.DB, to.Scheme+":") },
		Seen: n.seen, Alive: alive.at, SetAlive: alive.set, Registered: n.registered, SetRegistered: n.setRegistered,
		Desk: desk, Do: n.Replicas.Network(), Turn: n.Replicas.Turn(), Log: n.Log.With("network", to.Scheme), Now: time.Now,
	})
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

func checkDiscord(to Account, l Look) []network.Check {
	channels, people, roles := to.named()
	return discord.Doctor(discord.DoctorConfig{
		Token: redact.Secret(to.value(to.Token)), APIURL: to.value(to.API), Guilds: to.file.Discord.Guilds, Transport: l.Transport,
		Channels: channels, Approvers: people, Roles: roles,
	})
}
