package discord_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"countersign/adapters/discord"
	"countersign/adapters/discord/discordfake"
	"countersign/internal/redact"
)

// examine runs all checks, and returns what each found.
func examine(t *testing.T, cfg discord.DoctorConfig) map[string]discord.Outcome {
	t.Helper()
	out := map[string]discord.Outcome{}
	for _, c := range discord.Doctor(cfg) {
		o := c.Run(t.Context())
		out[c.Name] = o
		if o.Text == "" || strings.Contains(o.Text, "\n") || cfg.Token != "" && strings.Contains(o.Text, cfg.Token.Reveal()+" ") {
			t.Errorf("%s says %q", c.Name, o.Text)
		}
	}
	return out
}

func (w *town) doctor() discord.DoctorConfig {
	return discord.DoctorConfig{
		Token: "token", APIURL: w.URL() + "/v10", Guilds: []string{w.guild}, Channels: []string{w.channel},
		Approvers: []string{w.alice}, Roles: []string{w.oncall},
	}
}

func found(t *testing.T, out map[string]discord.Outcome, name string, want discord.Result, says ...string) {
	t.Helper()
	o, ok := out[name]
	if !ok || o.Result != want {
		t.Errorf("%s: %+v", name, o)
	}
	contains(t, name, o.Text, says...)
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	t.Run("a set-up as it should be passes and changes nothing", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, discordfake.Config{Privileged: discordfake.IntentMessageContent, Private: true})
		for name, o := range examine(t, w.doctor()) {
			if o.Result != discord.Passed {
				t.Errorf("%s: %+v", name, o)
			}
		}
		if w.Identifies() != 0 {
			t.Error("a session was started")
		}
		for _, c := range w.Calls() {
			if !strings.HasPrefix(c.Route, "GET ") {
				t.Errorf("it called %s", c.Route)
			}
		}
	})
	t.Run("each mistake has its sentence", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, discordfake.Config{InteractionsEndpoint: "https://example.org/x"})
		cfg := w.doctor()
		other := w.AddGuild(discordfake.Guild{Name: "elsewhere"})
		elsewhere := w.AddChannel(discordfake.Channel{Guild: other, Name: "x", Type: discordfake.TypeText})
		w.SetOverwrites(w.channel, discordfake.Overwrite{Role: w.guild, Deny: discordfake.PermEmbedLinks}, discordfake.Overwrite{Role: w.BotRole(w.guild), Deny: discordfake.PermEmbedLinks})
		gone := w.ID()
		cfg.Guilds, cfg.Channels = append(cfg.Guilds, gone, "ops"), append(cfg.Channels, gone, elsewhere, "#ops")
		cfg.Roles, cfg.Approvers = append(cfg.Roles, gone, w.guild), append(cfg.Approvers, gone, w.pager, "alice")
		out := examine(t, cfg)
		found(t, out, "discord app", discord.Failed, "Interactions Endpoint URL")
		found(t, out, "discord intents", discord.Noted, "Message Content Intent is off")
		found(t, out, "discord server "+gone, discord.Failed, "oauth2/authorize?client_id="+w.AppID())
		found(t, out, `discord server "ops"`, discord.Failed, "no server id")
		found(t, out, "discord channel "+w.channel, discord.Failed, "lacks Embed Links")
		found(t, out, "discord channel "+gone, discord.Failed, "no such channel")
		found(t, out, "discord channel "+elsewhere, discord.Failed, other+", which is not allowed")
		found(t, out, `discord channel "#ops"`, discord.Failed, "no channel id")
		found(t, out, "discord role "+gone, discord.Failed, "no server")
		found(t, out, "discord role "+w.guild, discord.Failed, "role of everybody")
		found(t, out, "discord approver "+gone, discord.Failed, "nobody with this id")
		found(t, out, "discord approver "+w.pager, discord.Failed, "is a bot")
		found(t, out, `discord approver "alice"`, discord.Failed, "no user id")
	})
	t.Run("a public app is worth a word", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, discordfake.Config{})
		found(t, examine(t, w.doctor()), "discord app", discord.Noted, "Public Bot")
	})
	t.Run("without a good token nothing else is looked at", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, discordfake.Config{})
		for token, says := range map[string]string{"": "no token", "Bot token": "space", "wrong": "was refused"} {
			cfg := w.doctor()
			cfg.Token = redact.Secret(token)
			out := examine(t, cfg)
			found(t, out, "discord token", discord.Failed, says)
			found(t, out, "discord channel "+w.channel, discord.Skipped)
		}
	})
}

// TestInvite: the address asks for exactly the permissions that have a reason, and
// an adapter with these alone works (the town's bot has them).
func TestInvite(t *testing.T) {
	t.Parallel()
	link, err := discord.Invite("123456789012345678")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	bits, err := strconv.ParseUint(u.Query().Get("permissions"), 10, 64)
	if err != nil || u.Host != "discord.com" || u.Query().Get("scope") != "bot applications.commands" || u.Query().Get("client_id") != "123456789012345678" {
		t.Fatalf("the address is %s", link)
	}
	if bits != discordfake.PermBot&^discordfake.PermAddReactions {
		t.Errorf("the permissions are %b, and what the bot works with is %b", bits, discordfake.PermBot)
	}
	for _, p := range discord.Permissions() {
		if p.Name == "" || p.Reason == "" || bits&p.Bit == 0 {
			t.Errorf("%+v", p)
		}
	}
	if _, err := discord.Invite("1&permissions=8"); err == nil {
		t.Error("an id that is none was taken")
	}
}
