package worldtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"countersign/adapters/discord/discordfake"
	"countersign/test/faults/network"
)

// Discord is a local Discord. Link carries its API; the gateway is reached directly,
// because its addresses are within frames, and goes wrong by the fake's own methods.
type Discord struct {
	*discordfake.Server
	Link *network.Proxy
	// Unheard makes messages count as accepted also when no session was there for them.
	Unheard  bool
	guild    string
	role     string
	channels []string
	ids      map[Person]string
}

const discordToken = "MTAw.test.not-a-token-of-anybody"

// NewDiscord starts a local Discord with people in one guild.
func NewDiscord(cfg discordfake.Config) (*Discord, error) {
	cfg.Token, cfg.Privileged, cfg.IdentifyWindow = discordToken, discordfake.IntentMessageContent, -1
	d := &Discord{Server: discordfake.New(cfg), ids: map[Person]string{}}
	for _, p := range append(Deciders(), Mallory) {
		d.ids[p] = d.AddUser(discordfake.User{Name: string(p)})
	}
	d.guild = d.AddGuild(discordfake.Guild{Name: "ops", Owner: d.ids[Alice]})
	d.role = d.AddRole(d.guild, discordfake.Role{Name: "oncall"})
	for _, p := range Deciders() {
		d.AddMember(d.guild, d.ids[p], d.role)
	}
	d.AddMember(d.guild, d.ids[Mallory])
	for i := range 3 {
		d.channels = append(d.channels, d.AddChannel(discordfake.Channel{Guild: d.guild, Name: fmt.Sprint("faults", i), Type: discordfake.TypeText}))
	}
	link, err := network.New(d.Host().Host)
	if err != nil {
		d.Server.Close()
		return nil, err
	}
	d.Link = link
	return d, nil
}

// Close implements Network.
func (d *Discord) Close() {
	d.Link.Close()
	d.Server.Close()
}

// Name implements Network.
func (d *Discord) Name() string { return "discord" }

// Env implements Network.
func (d *Discord) Env() []string {
	u := *d.Host()
	u.Host = d.Link.Address()
	_, path, _ := strings.Cut(strings.TrimPrefix(d.URL(), u.Scheme+"://"), "/")
	return []string{"DISCORD_BOT_TOKEN=" + discordToken, "DISCORD_API_URL=" + u.Scheme + "://" + u.Host + "/" + path}
}

// Groups implements Network.
func (d *Discord) Groups() string { return fmt.Sprintf("discord_roles: [%q]", d.role) }

// More implements Network.
func (d *Discord) More() string { return fmt.Sprintf("discord: {guilds: [%q]}", d.guild) }

// Connected implements Network.
func (d *Discord) Connected() bool { return d.Online() > 0 }

// errUnheard means that a message may not have reached the bot.
var errUnheard = errors.New("the bot's session ended around the message")

// Open implements Network. Nobody acknowledges a message of Discord, so what counts as
// accepted is one that came while a session had its connection, and had it still a
// moment later. See Unheard.
func (d *Discord) Open(ctx context.Context, who Person, n int, text string) (string, error) {
	before := d.session()
	id, err := d.Server.Say(d.ids[who], d.channels[n%len(d.channels)], "<@"+d.BotID()+"> "+text) // the thread gets the message's id
	return id, d.heard(ctx, before, err)
}

// Say implements Network.
func (d *Discord) Say(ctx context.Context, who Person, thread, text string) error {
	for { // people write in the thread when they see it
		if _, _, ok := d.ThreadOf(thread); ok {
			before := d.session()
			_, err := d.Server.Say(d.ids[who], thread, text)
			return d.heard(ctx, before, err)
		}
		if rest(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// session is the session that has a connection, "" when none has.
func (d *Discord) session() string {
	for _, s := range d.Sessions() {
		if s.Connected {
			return s.ID
		}
	}
	return ""
}

// moment is in which a bot has stored what it was sent.
const moment = 300 * time.Millisecond

func (d *Discord) heard(ctx context.Context, before string, err error) error {
	if err != nil || d.Unheard {
		return err
	}
	rest(ctx, moment)
	if before == "" || d.session() != before {
		return errUnheard
	}
	return nil
}

// Press implements Network.
func (d *Discord) Press(ctx context.Context, who Person, thread string, m Shown, b Button) error {
	_, err := d.Server.Press(ctx, d.ids[who], thread, m.ID, b.ID)
	if errors.Is(err, discordfake.ErrForbidden) {
		return fmt.Errorf("the button is gone: %w", err)
	}
	return err
}

// Thread implements Network.
func (d *Discord) Thread(thread string) ([]Shown, error) {
	var out []Shown
	for _, m := range d.Shown(thread) {
		if m.Author != d.BotID() {
			continue
		}
		sh := Shown{ID: m.ID, Text: discordText(m), At: discordfake.Created(m.ID), Changed: m.Changed}
		for _, id := range m.Buttons() {
			sh.Buttons = append(sh.Buttons, Button{ID: id})
		}
		_, _, open := approve(sh)
		sh.Card = open || decidedCard.MatchString(sh.Text)
		out = append(out, sh)
	}
	return out, nil
}

// decidedCard is how the line of a decided card ends.
var decidedCard = regexp.MustCompile(` · (?:Approved|Denied|Expired|Withdrawn|Not run)\b`)

// discordText is all text of a message, wherever it stands.
func discordText(m discordfake.Message) string {
	out := []string{m.Content}
	for _, raw := range []json.RawMessage{m.Embeds, m.Components} {
		var v any
		_ = json.Unmarshal(raw, &v)
		out = texts(v, out)
	}
	return strings.Join(out, "\n")
}

func texts(v any, out []string) []string {
	switch x := v.(type) {
	case []any:
		for _, e := range x {
			out = texts(e, out)
		}
	case map[string]any:
		keys := make([]string, 0, len(x))
		for k := range x {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if s, ok := x[k].(string); ok && slices.Contains([]string{"content", "title", "description", "name", "value", "text"}, k) {
				out = append(out, s)
			} else {
				out = texts(x[k], out)
			}
		}
	}
	return out
}

// Stray implements Network: messages of the bot in a channel itself.
func (d *Discord) Stray() (out []string) {
	for _, c := range d.channels {
		for _, m := range d.Shown(c) {
			if m.Author == d.BotID() && m.Type == discordfake.MessageDefault {
				out = append(out, m.Content)
			}
		}
	}
	return out
}
