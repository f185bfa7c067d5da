package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"countersign/config"

	"countersign/adapters/discord"
	"countersign/adapters/slack"
)

// again is the fix of what a network said that needs no other.
const again = "correct that and run bot doctor again"

// slack runs the checks of the Slack installation, when there is one.
func (d *doctor) slack(ctx context.Context, e config.Env, f config.File) error {
	if e.SlackBotToken == "" && e.SlackAppToken == "" && e.SlackSigningSecret == "" {
		if d.live != "" {
			d.print("slack live", fails("SLACK_BOT_TOKEN is not set").withFix("set the app up first: bot slack manifest"))
		} else {
			d.print("slack", skips("SLACK_BOT_TOKEN is not set"))
		}
		return nil
	}
	cfg := slackConfig(e, f, d.running)
	before := d.report.count["FAIL"]
	for _, c := range slack.Doctor(cfg) {
		err := d.do(ctx, check{name: c.Name, run: func(ctx context.Context) result { return fromSlack(c.Run(ctx)) }})
		if err != nil {
			return err
		}
	}
	d.slackTime(ctx, e.SlackAPIURL)
	switch {
	case d.live == "":
		return nil
	case d.report.count["FAIL"] > before:
		d.print("slack live", skips("repair what failed on Slack first"))
		return nil
	}
	return d.do(ctx, check{name: "slack live", limit: liveLimit, loud: true, run: func(ctx context.Context) result {
		return fromSlack(slack.Live(ctx, cfg, slack.LiveOptions{Channel: d.live, Say: func(s string) {
			_, _ = fmt.Fprintf(d.alive, "...  slack live: %s\n", s)
		}}))
	}})
}

// slackTime reads the clock of the server that the checks asked already, by the method
// that takes no token (docs.slack.dev/reference/methods/api.test). A server that does
// not answer has no clock to compare; the checks have said so.
func (d *doctor) slackTime(ctx context.Context, base string) {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	base = strings.TrimRight(cmp.Or(base, "https://slack.com/api/"), "/")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/api.test", http.NoBody)
	if err != nil {
		return
	}
	before := time.Now()
	res, err := (&http.Client{}).Do(req)
	if err != nil {
		return
	}
	_ = res.Body.Close()
	d.clocks.note(req.URL.Hostname(), res.Header, before, time.Now())
}

// discord runs the checks of the Discord installation, when there is one.
func (d *doctor) discord(ctx context.Context, e config.Env, f config.File) error {
	if e.DiscordBotToken == "" {
		d.print("discord", skips("DISCORD_BOT_TOKEN is not set"))
		return nil
	}
	cfg := discord.DoctorConfig{
		Token: e.DiscordBotToken, APIURL: e.DiscordAPIURL, Guilds: f.Discord.Guilds,
		Transport: d.clocks.wrap(http.DefaultTransport), // which heeds the environment's proxy, as the bot's own does
	}
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
	return outcome(label, o.Text)
}

func fromSlack(o slack.Outcome) result {
	label := map[slack.Result]string{slack.Passed: "ok", slack.Noted: "warn", slack.Failed: "FAIL", slack.Skipped: "skip"}[o.Result]
	return outcome(label, o.Text)
}

// outcome is what a network's own check said. What needs no fix stays one text.
func outcome(label, text string) result {
	switch label {
	case "FAIL":
		return fromSentence(label, text, again)
	case "warn":
		return fromSentence(label, text, "")
	}
	return result{label: label, text: text}
}

// slackConfig gathers what the file names on Slack, each id once.
func slackConfig(e config.Env, f config.File, running bool) slack.DoctorConfig {
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
