package slack

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Limits of the app manifest: Slack's own schema,
// github.com/slackapi/manifest-schema (schemas/manifest.schema.1.0.0.json).
const (
	maxAppName    = 35   // display_information.name, characters
	maxCommandURL = 3000 // features.slash_commands.url, the shortest limit of the three URLs
)

// The paths at which the bot takes Slack's requests when it does not use Socket
// Mode, below the base address of [ManifestOptions].
const (
	pathEvents        = "/slack/events"
	pathInteractivity = "/slack/interactivity"
	pathCommands      = "/slack/commands"
)

// SlashCommand is the one slash command of the app. Slack does not offer slash
// commands inside threads; there the words alone do.
const SlashCommand = "/countersign"

// Need says when the bot needs a scope or an event.
type Need int

// The needs.
const (
	Always    Need = iota
	FollowUps      // only to hear messages in its threads that do not mention it
	Optional       // never in the manifest; something small works better with it
)

// Scope is one permission of the bot token.
type Scope struct {
	Name   string
	Reason string // what the bot does with it
	Need   Need
}

// Scopes lists the permissions of the bot token, the smallest set that works.
// The app-level token of Socket Mode has one of its own, connections:write,
// which is no bot scope and cannot be part of a manifest.
func Scopes() []Scope {
	return []Scope{
		{"app_mentions:read", "be addressed with a mention", Always},
		{"assistant:write", "show in the thread that the agent is at work", Always},
		{"channels:history", "hear follow-ups in its threads of public channels without a mention", FollowUps},
		{"chat:write", "answer, post approval cards and change them after a decision", Always},
		{"commands", "offer " + SlashCommand, Always},
		{"files:read", "read logs that people attach", Always},
		{"files:write", "attach output that is too long for a message", Always},
		{"groups:history", "hear follow-ups in its threads of private channels without a mention", FollowUps},
		{"im:history", "hear direct messages", Always},
		{"im:read", "recognise a direct message", Always},
		{"im:write", "tell one person something that nobody else needs to see", Always},
		{"usergroups:read", "see who is in a user group that may approve", Always},
		{"users:read", "tell members from guests, bots and people of other organisations", Always},
		{"channels:read", "let countersign doctor see whether it is in a public channel", Optional},
		{"groups:read", "let countersign doctor see whether it is in a private channel", Optional},
		{"reactions:write", "mark messages with a reaction", Optional},
	}
}

// Subscription is one kind of event that the app asks Slack to send.
type Subscription struct {
	Name   string
	Reason string
	Scope  string // the bot scope that Slack asks for, or ""
	Need   Need
}

// Events lists the event subscriptions of the app.
func Events() []Subscription {
	return []Subscription{
		{"app_home_opened", "fill the home tab; the agent view needs it", "", Always},
		{"app_mention", "be addressed with a mention", "app_mentions:read", Always},
		{"app_uninstalled", "stop when the app is removed", "", Always},
		{"message.channels", "follow-ups in threads of public channels", "channels:history", FollowUps},
		{"message.groups", "follow-ups in threads of private channels", "groups:history", FollowUps},
		{"message.im", "direct messages", "im:history", Always},
		{"tokens_revoked", "stop when a token is taken back", "", Always},
	}
}

// agentEvents go with the agent view only.
var agentEvents = []Subscription{
	{"agent_session_stopped", "end what runs when somebody presses Slack's own stop button", "assistant:write", Always},
}

// assistantEvents go with the older assistant view only.
var assistantEvents = []Subscription{
	{"assistant_thread_started", "greet in a new assistant thread; the assistant view needs it", "assistant:write", Always},
	{"assistant_thread_context_changed", "know which channel an assistant thread is about", "assistant:write", Always},
}

// ManifestOptions choose what [Manifest] writes.
type ManifestOptions struct {
	// Name is the app's name, at most 35 characters; "" means Countersign. The
	// bot user's name is made of it.
	Name string
	// MentionOnly drops the scopes and events that let the bot hear messages
	// which do not mention it.
	MentionOnly bool
	// HTTP is the base address, https, at which Slack reaches the bot; "" means
	// Socket Mode.
	HTTP string
	// AssistantView asks for the older assistant view instead of the agent view.
	// Slack takes it only for apps that have it already, and an app that changed
	// to the agent view cannot go back
	// (docs.slack.dev/ai/migrating-to-agent-messaging).
	AssistantView bool
}

// needed reports whether the options leave a need standing.
func (o ManifestOptions) needed(n Need) bool {
	return n == Always || (n == FollowUps && !o.MentionOnly)
}

// Manifest writes the YAML that Slack's "From a manifest" accepts, with the
// smallest set of scopes, each with its reason, and the steps of the set-up as
// comments. Its errors are sentences about the options.
func Manifest(o ManifestOptions) ([]byte, error) {
	if o.Name == "" {
		o.Name = "Countersign"
	}
	if n := utf8.RuneCountInString(o.Name); n > maxAppName || !printable(o.Name) {
		return nil, fmt.Errorf("the app's name %q does not fit: use at most %d printable characters", o.Name, maxAppName)
	}
	base, err := requestBase(o.HTTP)
	if err != nil {
		return nil, err
	}
	o.HTTP = base
	m := &manifest{}
	m.head(o)
	m.line(0, "display_information:")
	m.line(1, "name: "+quoted(o.Name))
	m.line(1, "description: "+quoted(describeApp))
	m.features(o)
	m.scopes(o)
	m.settings(o)
	return []byte(m.String()), nil
}

// manifest is YAML in the making.
type manifest struct{ strings.Builder }

func (m *manifest) line(depth int, s string) {
	_, _ = m.WriteString(strings.Repeat("  ", depth) + s + "\n")
}

func (m *manifest) head(o ManifestOptions) {
	m.line(0, "# The Slack app of Countersign.")
	m.line(0, "#")
	m.line(0, "# 1. Open https://api.slack.com/apps, Create New App, From a manifest, pick the")
	m.line(0, "#    workspace, choose YAML, paste this, Create.")
	m.line(0, "# 2. Install App, Install to Workspace. Copy the Bot User OAuth Token (xoxb-...) to")
	m.line(0, "#    SLACK_BOT_TOKEN.")
	if o.HTTP == "" {
		m.line(0, "# 3. Basic Information, App-Level Tokens, Generate Token and Scopes, add the scope")
		m.line(0, "#    connections:write. Copy the token (xapp-...) to SLACK_APP_TOKEN. This scope")
		m.line(0, "#    belongs to that token alone: a manifest cannot ask for it.")
	} else {
		m.line(0, "# 3. Basic Information, App Credentials: copy the Signing Secret to")
		m.line(0, "#    SLACK_SIGNING_SECRET. Leave SLACK_APP_TOKEN unset: no token with the scope")
		m.line(0, "#    connections:write is needed. Start the bot, then let Slack verify the")
		m.line(0, "#    request address under Event Subscriptions.")
	}
	m.line(0, "# 4. In each channel: /invite @"+botName(o.Name))
	if o.HTTP == "" {
		m.line(0, "# 5. countersign doctor --live CHANNEL_ID")
	} else {
		m.line(0, "# 5. countersign doctor")
	}
}

func (m *manifest) features(o ManifestOptions) {
	m.line(0, "features:")
	m.line(1, "app_home: # people write to the bot in the messages tab")
	m.line(2, "home_tab_enabled: true")
	m.line(2, "messages_tab_enabled: true")
	m.line(2, "messages_tab_read_only_enabled: false")
	const what = describeAgent
	if o.AssistantView {
		m.line(1, "assistant_view:")
		m.line(2, "assistant_description: "+quoted(what))
	} else {
		m.line(1, "agent_view: # assistant:write needs it")
		m.line(2, "agent_description: "+quoted(what))
	}
	m.line(2, "suggested_prompts:")
	for _, p := range [][2]string{
		{offerWrong, askWrong},
		{offerChanged, askChanged},
		{offerHelp, "help"},
	} {
		m.line(3, "- title: "+quoted(p[0]))
		m.line(4, "message: "+quoted(p[1]))
	}
	m.line(1, "bot_user:")
	m.line(2, "display_name: "+quoted(botName(o.Name)))
	m.line(2, "always_online: false # the dot shows whether the bot is connected")
	m.line(1, "slash_commands:")
	m.line(2, "- command: "+SlashCommand)
	if o.HTTP != "" {
		m.line(3, "url: "+quoted(o.HTTP+pathCommands))
	}
	m.line(3, "description: "+quoted(describeCommand))
	m.line(3, "usage_hint: "+quoted("status | sessions | run | stop | approvals | help"))
	m.line(3, "should_escape: false")
}

func (m *manifest) scopes(o ManifestOptions) {
	m.line(0, "oauth_config:")
	m.line(1, "scopes:")
	m.line(2, "bot:")
	for _, s := range Scopes() {
		if o.needed(s.Need) {
			m.line(3, "- "+s.Name+" # "+s.Reason)
		}
	}
	for _, s := range Scopes() {
		if s.Need == Optional {
			m.line(3, "# - "+s.Name+" # optional: "+s.Reason)
		}
	}
}

func (m *manifest) settings(o ManifestOptions) {
	m.line(0, "settings:")
	m.line(1, "event_subscriptions:")
	if o.HTTP != "" {
		m.line(2, "request_url: "+quoted(o.HTTP+pathEvents))
	}
	m.line(2, "bot_events:")
	events := Events()
	if o.AssistantView {
		events = append(events, assistantEvents...)
	} else {
		events = append(events, agentEvents...)
	}
	for _, e := range events {
		if o.needed(e.Need) {
			m.line(3, "- "+e.Name+" # "+e.Reason)
		}
	}
	m.line(1, "interactivity: # the buttons on the cards")
	m.line(2, "is_enabled: true")
	if o.HTTP != "" {
		m.line(2, "request_url: "+quoted(o.HTTP+pathInteractivity))
	}
	m.line(1, fmt.Sprintf("socket_mode_enabled: %t", o.HTTP == ""))
	m.line(1, "org_deploy_enabled: false")
	m.line(1, "token_rotation_enabled: false # the bot does not renew tokens")
}

// requestBase checks the address that Slack is to call.
func requestBase(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !printable(s) {
		return "", fmt.Errorf("%q is no address that Slack can call; use one such as https://bot.example.com", s)
	}
	s = strings.TrimRight(s, "/")
	if len(s+pathInteractivity) > maxCommandURL {
		return "", errors.New("the base address is too long for Slack; use a shorter one")
	}
	return s, nil
}

// botName makes the bot user's name: Slack allows a-z, 0-9, -, _ and . there.
func botName(app string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, strings.ToLower(app))
	for strings.Contains(name, "--") {
		name = strings.ReplaceAll(name, "--", "-")
	}
	if name = strings.Trim(name, "-"); name == "" {
		return "countersign"
	}
	return name
}

// quoted writes a YAML string; JSON's strings are YAML's.
func quoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

func printable(s string) bool {
	if !utf8.ValidString(s) || strings.TrimSpace(s) == "" {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 || (r >= 0x80 && r < 0xa0) || r == 0xfeff
	})
}
