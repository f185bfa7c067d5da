package discord

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat/network"
	"countersign/adapters/discord/gateway"
	"countersign/internal/redact"
)

// DoctorConfig is what [Doctor] looks at.
type DoctorConfig struct {
	Token    redact.Secret // DISCORD_BOT_TOKEN
	APIURL   string        // DISCORD_API_URL; "" is Discord's own
	Guilds   []string      // ids of the servers in which the bot may work
	Channels []string      // ids of the channels that the configuration names
	// Approvers and Roles are the ids that the groups of the configuration name.
	Approvers []string
	Roles     []string
	Transport http.RoundTripper
}

// The words of a check.
type (
	// Result is how it ended.
	Result = network.Result
	// Outcome is what it found.
	Outcome = network.Outcome
	// Check is one.
	Check = network.Check
)

// The results.
const (
	Passed  = network.Passed
	Noted   = network.Noted
	Failed  = network.Failed
	Skipped = network.Skipped
)

// Doctor lists the checks of a Discord installation. They build on each other: run
// them in order, one at a time. Nothing is posted or changed, and no session is
// started, so that the bot may be running.
func Doctor(cfg DoctorConfig) []Check {
	d := &doctor{cfg: cfg, guilds: map[string]*guildFacts{}}
	list := []Check{{Name: "discord token", Run: d.token}, {Name: "discord app", Run: d.application}, {Name: "discord intents", Run: d.intents}, {Name: "discord sessions", Run: d.sessions}}
	if len(cfg.Guilds) == 0 {
		list = append(list, Check{Name: "discord servers", Run: func(context.Context) Outcome {
			return failed("no server is allowed, so the bot answers nobody; list the ids of the servers in which it may work")
		}})
	}
	for _, id := range cfg.Guilds {
		list = append(list, Check{Name: "discord server " + bare(id), Run: func(ctx context.Context) Outcome { return d.guild(ctx, id) }})
	}
	for _, id := range cfg.Channels {
		list = append(list, Check{Name: "discord channel " + bare(id), Run: func(ctx context.Context) Outcome { return d.channel(ctx, id) }})
	}
	for _, id := range cfg.Roles {
		list = append(list, Check{Name: "discord role " + bare(id), Run: func(context.Context) Outcome { return d.role(id) }})
	}
	for _, id := range cfg.Approvers {
		list = append(list, Check{Name: "discord approver " + bare(id), Run: func(ctx context.Context) Outcome { return d.approver(ctx, id) }})
	}
	return list
}

// doctor is what the checks learn from each other.
type doctor struct {
	cfg    DoctorConfig
	rest   *gateway.REST // nil until the token has the form of one
	me     *discordgo.User
	app    gateway.Application
	guilds map[string]*guildFacts
}

// guildFacts is what is known of a server that the bot is in.
type guildFacts struct {
	guild *discordgo.Guild
	roles []*discordgo.Role
	own   []string // the bot's roles
}

func passed(format string, a ...any) Outcome  { return Passed.Outcome(format, a...) }
func noted(format string, a ...any) Outcome   { return Noted.Outcome(format, a...) }
func failed(format string, a ...any) Outcome  { return Failed.Outcome(format, a...) }
func skipped(format string, a ...any) Outcome { return Skipped.Outcome(format, a...) }

// bare is an id for a check's name.
func bare(id string) string {
	if snowflake.MatchString(id) {
		return id
	}
	return safe(id)
}

// wrong is an error as the end of a sentence.
func wrong(err error) string { return strings.TrimPrefix(err.Error(), "discord: ") }

func (d *doctor) token(ctx context.Context) Outcome {
	rest, err := gateway.NewREST(gateway.RESTConfig{Token: d.cfg.Token, APIURL: d.cfg.APIURL, Transport: d.cfg.Transport})
	if err != nil {
		return failed("%s", wrong(err))
	}
	me, err := rest.Me(ctx)
	switch {
	case errors.Is(err, gateway.ErrUnauthorized):
		return failed("%s", wrong(err))
	case err != nil:
		return failed("Discord does not answer (%s); let HTTPS and WebSockets to discord.com and *.discord.gg through the firewall or proxy", wrong(err))
	}
	d.rest, d.me = rest, me
	return passed("the bot is %s (%s)", safe(me.Username), me.ID)
}

const needsToken = "this needs the token"

func (d *doctor) application(ctx context.Context) Outcome {
	if d.me == nil {
		return skipped(needsToken)
	}
	app, err := d.rest.Application(ctx)
	if err != nil {
		return failed("the app cannot be read (%s); try again", wrong(err))
	}
	d.app = app
	switch {
	case app.Endpoint != "":
		return failed("the app has an Interactions Endpoint URL, so no button and no command reaches the bot; empty that field on the page %s", d.page("information"))
	case app.BotPublic:
		return noted("everybody may add this bot to servers of their own, in which it answers nobody; switch Public Bot off on the page %s", d.page("bot"))
	}
	return passed("%s (%s)", safe(app.Name), app.ID)
}

func (d *doctor) page(of string) string {
	return "https://discord.com/developers/applications/" + d.app.ID + "/" + of
}

func (d *doctor) intents(context.Context) Outcome {
	switch {
	case d.app.ID == "":
		return skipped("this needs the app")
	case d.app.Flags&(flagMessageContent|flagMessageContentLimited) == 0:
		return noted("the Message Content Intent is off, so the bot reads only messages that mention it and replies to its own; to change that, switch it on on the page %s and restart the bot", d.page("bot"))
	}
	return passed("the Message Content Intent is on")
}

// fewSessions is what is low of the 1,000 sessions that a bot may start in a day.
const fewSessions = 100

func (d *doctor) sessions(ctx context.Context) Outcome {
	if d.me == nil {
		return skipped(needsToken)
	}
	g, err := d.rest.Gateway(ctx)
	switch {
	case err != nil:
		return failed("where to connect cannot be read (%s); try again", wrong(err))
	case g.Remaining < fewSessions:
		return noted("%d of %d sessions are left until %s, and Discord resets the token when they are used up; find out in the bot's log why it connects so often", g.Remaining, g.Total, g.ResetAfter.Round(time.Minute))
	}
	return passed("%d of %d sessions are left; %d shards are recommended", g.Remaining, g.Total, g.Shards)
}

func (d *doctor) guild(ctx context.Context, id string) Outcome {
	switch {
	case d.me == nil:
		return skipped(needsToken)
	case !snowflake.MatchString(id):
		return failed("this is no server id; switch on Developer Mode in Discord, right-click the server and copy its id")
	}
	g, err := d.rest.Guild(ctx, id)
	if err != nil {
		add, _ := Invite(d.app.ID)
		return failed("the bot is not in this server, or the id is wrong (%s); add the bot with %s", wrong(err), orElse(add, "the address that bot discord invite prints"))
	}
	f := &guildFacts{guild: g}
	if f.roles, err = d.rest.Roles(ctx, id); err == nil {
		var m *discordgo.Member
		if m, err = d.rest.Member(ctx, id, d.me.ID); err == nil {
			f.own = m.Roles
		}
	}
	if err != nil {
		return failed("the roles of %s cannot be read (%s); try again", safe(g.Name), wrong(err))
	}
	d.guilds[id] = f
	bits := f.permissions(nil)
	if lacks := missing(bits); lacks != "" {
		return noted("in %s the bot lacks %s except where a channel gives it; grant it to the bot's role under Server Settings, Roles", safe(g.Name), lacks)
	}
	if bits&administrator != 0 {
		return noted("in %s the bot is an administrator, which it has no need of; take that from its role", safe(g.Name))
	}
	return passed("%s", safe(g.Name))
}

// administrator gives every other permission, whatever a channel says.
const administrator = 1 << 3

// permissions are the bot's in a channel, or in the server where c is nil
// (docs.discord.com/developers/topics/permissions, "Permission Overwrites").
func (f *guildFacts) permissions(c *discordgo.Channel) uint64 {
	var bits uint64
	for _, r := range f.roles {
		if r.ID == f.guild.ID || slices.Contains(f.own, r.ID) {
			bits |= uint64(r.Permissions) //nolint:gosec // a set of bits
		}
	}
	if c == nil || bits&administrator != 0 {
		return bits
	}
	apply := func(of func(*discordgo.PermissionOverwrite) bool) {
		var allow, deny uint64
		for _, o := range c.PermissionOverwrites {
			if o != nil && of(o) {
				allow, deny = allow|uint64(o.Allow), deny|uint64(o.Deny) //nolint:gosec // sets of bits
			}
		}
		bits = bits&^deny | allow
	}
	apply(func(o *discordgo.PermissionOverwrite) bool { return o.ID == f.guild.ID })
	apply(func(o *discordgo.PermissionOverwrite) bool {
		return o.Type == discordgo.PermissionOverwriteTypeRole && o.ID != f.guild.ID && slices.Contains(f.own, o.ID)
	})
	return bits
}

// withMember adds what a channel says of the bot itself.
func withMember(bits uint64, c *discordgo.Channel, me string) uint64 {
	for _, o := range c.PermissionOverwrites {
		if o != nil && o.Type == discordgo.PermissionOverwriteTypeMember && o.ID == me && bits&administrator == 0 {
			bits = bits&^uint64(o.Deny) | uint64(o.Allow) //nolint:gosec // sets of bits
		}
	}
	return bits
}

// missing names what the bot needs and has not, "" when nothing is.
func missing(bits uint64) string {
	if bits&administrator != 0 {
		return ""
	}
	var names []string
	for _, p := range Permissions() {
		if bits&p.Bit == 0 {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (d *doctor) channel(ctx context.Context, id string) Outcome {
	switch {
	case d.me == nil:
		return skipped(needsToken)
	case !snowflake.MatchString(id):
		return failed("this is no channel id; switch on Developer Mode in Discord, right-click the channel and copy its id")
	}
	c, err := d.rest.Channel(ctx, id)
	if err != nil {
		return failed("there is no such channel that the bot can see (%s); check the id, and give the bot's role View Channel there", wrong(err))
	}
	f := d.guilds[c.GuildID]
	switch {
	case c.GuildID == "":
		return noted("this is a direct conversation; channels in the configuration are for channels of servers")
	case !slices.Contains(d.cfg.Guilds, c.GuildID):
		return failed("%s is in the server %s, which is not allowed; add that id to the servers in which the bot may work", safe(c.Name), c.GuildID)
	case f == nil:
		return skipped("this needs the server %s", c.GuildID)
	case c.IsThread():
		return noted("%s is a thread; name its channel %s, whose rules hold in all of its threads", safe(c.Name), c.ParentID)
	}
	if lacks := missing(withMember(f.permissions(c), c, d.me.ID)); lacks != "" {
		return failed("in %s the bot lacks %s; grant it to the bot's role in the channel's settings, Permissions", safe(c.Name), lacks)
	}
	return passed("%s", safe(c.Name))
}

func (d *doctor) role(id string) Outcome {
	if len(d.guilds) == 0 {
		return skipped("this needs a server")
	}
	for _, f := range d.guilds {
		for _, r := range f.roles {
			switch {
			case r.ID != id:
			case r.ID == f.guild.ID:
				return failed("this is the role of everybody in %s, which Discord lists with nobody, so nobody could approve by it; name another role", safe(f.guild.Name))
			default:
				return passed("%s in %s", safe(r.Name), safe(f.guild.Name))
			}
		}
	}
	return failed("no server in which the bot may work has such a role, so nobody can approve by it; switch on Developer Mode in Discord, right-click the role and copy its id")
}

func (d *doctor) approver(ctx context.Context, id string) Outcome {
	switch {
	case len(d.guilds) == 0:
		return skipped("this needs a server")
	case !snowflake.MatchString(id):
		return failed("this is no user id; switch on Developer Mode in Discord, right-click the person and copy the id")
	}
	for guild, f := range d.guilds {
		m, err := d.rest.Member(ctx, guild, id)
		switch {
		case errors.Is(err, gateway.ErrGone):
		case err != nil:
			return failed("whether somebody is in %s cannot be read (%s); try again", safe(f.guild.Name), wrong(err))
		case m.User != nil && m.User.Bot:
			return failed("%s is a bot, and bots never approve; name a person", safe(m.User.Username))
		default:
			name := m.Nick
			if m.User != nil {
				name = orElse(name, m.User.Username)
			}
			return passed("%s in %s", safe(name), safe(f.guild.Name))
		}
	}
	return failed("nobody with this id is in a server in which the bot may work; check the id, or remove it from the group")
}
