package slack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	slackapi "github.com/slack-go/slack"

	"countersign/adapters/chat/network"
)

// DoctorConfig is what [Doctor] and [Live] look at.
type DoctorConfig struct {
	BotToken      string // SLACK_BOT_TOKEN
	AppToken      string // SLACK_APP_TOKEN; empty with a signing secret: Events over HTTP
	SigningSecret string // SLACK_SIGNING_SECRET
	APIURL        string // SLACK_API_URL; "" is Slack's own
	// Running says that the bot runs on these tokens now. Then no second socket
	// is opened: Slack sends each event and press to one socket of the app only
	// (docs.slack.dev/apis/events-api/using-socket-mode), and what the doctor
	// took would be lost for the bot.
	Running  bool
	Channels []string // ids of the channels that the configuration names
	// Approvers and Usergroups are the ids that the groups of the configuration
	// name.
	Approvers  []string
	Usergroups []string
	Transport  http.RoundTripper
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

// Doctor lists the checks of a Slack installation. They build on each other: run
// them in order, one at a time. Nothing is posted or changed.
func Doctor(cfg DoctorConfig) []Check {
	d := newDoctor(cfg)
	list := []Check{
		{Name: "slack tokens", Run: d.tokens},
		{Name: "slack sign-in", Run: d.signIn},
		{Name: "slack scopes", Run: d.scopes},
	}
	if d.http() {
		list = append(list, Check{Name: "slack requests", Run: d.requests})
	} else {
		list = append(list, Check{Name: "slack app token", Run: d.appToken}, Check{Name: "slack socket", Run: d.socket})
	}
	list = append(list, Check{Name: "slack events", Run: d.events})
	for _, id := range cfg.Channels {
		list = append(list, Check{Name: "slack channel " + safe(id), Run: func(ctx context.Context) Outcome { return d.channel(ctx, id) }})
	}
	for _, id := range cfg.Approvers {
		list = append(list, Check{Name: "slack approver " + safe(id), Run: func(ctx context.Context) Outcome { return d.approver(ctx, id) }})
	}
	for _, id := range cfg.Usergroups {
		list = append(list, Check{Name: "slack user group " + safe(id), Run: func(ctx context.Context) Outcome { return d.usergroup(ctx, id) }})
	}
	return list
}

// doctor is what the checks learn from each other.
type doctor struct {
	cfg  DoctorConfig
	api  *slackapi.Client
	base error // what is wrong with the API's address

	address string // of the API, with a slash at its end

	badBot, badApp string // what is wrong with the form of the tokens, set by tokens

	auth *slackapi.AuthTestResponse // nil until signed in
	app  string                     // the app of the bot token, "" when not known
	link string                     // a socket's address, good for one use; a credential
}

func newDoctor(cfg DoctorConfig) *doctor {
	d := &doctor{cfg: cfg}
	base := slackapi.APIURL
	if cfg.APIURL != "" {
		u, err := url.Parse(cfg.APIURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			d.base = errors.New("SLACK_API_URL is no address such as https://slack.com/api/; correct it or unset it")
		}
		base = strings.TrimRight(cfg.APIURL, "/") + "/"
	}
	d.address = base
	d.api = slackapi.New(cfg.BotToken, slackapi.OptionAppLevelToken(cfg.AppToken), slackapi.OptionAPIURL(base), slackapi.OptionHTTPClient(&http.Client{Transport: cfg.Transport}))
	return d
}

func (d *doctor) http() bool { return d.cfg.AppToken == "" && d.cfg.SigningSecret != "" }

func passed(format string, a ...any) Outcome  { return Passed.Outcome(format, a...) }
func noted(format string, a ...any) Outcome   { return Noted.Outcome(format, a...) }
func failed(format string, a ...any) Outcome  { return Failed.Outcome(format, a...) }
func skipped(format string, a ...any) Outcome { return Skipped.Outcome(format, a...) }

// tokens looks at the form of the tokens alone: most mistakes show there, and a
// token of the wrong kind is not sent anywhere.
func (d *doctor) tokens(context.Context) Outcome {
	bot, app := d.cfg.BotToken, d.cfg.AppToken
	d.badBot, d.badApp = botForm(bot), ""
	if !d.http() {
		d.badApp = appForm(app)
	}
	switch {
	case d.base != nil:
		return failed("%s", d.base)
	case strings.HasPrefix(bot, "xapp-") && strings.HasPrefix(app, "xoxb-"):
		return failed("the two tokens are swapped: xoxb-... belongs into SLACK_BOT_TOKEN and xapp-... into SLACK_APP_TOKEN")
	case d.badBot != "":
		return failed("%s", d.badBot)
	case d.badApp != "":
		return failed("%s", d.badApp)
	case d.http():
		return passed("a bot token and a signing secret: Slack sends events over HTTP")
	}
	return passed("a bot token and an app-level token: Socket Mode")
}

// botForm says what is wrong with the form of a bot token, "" when nothing is.
// The prefixes: docs.slack.dev/authentication/tokens.
func botForm(t string) string {
	const how = "copy the Bot User OAuth Token (xoxb-...) from Install App"
	switch {
	case t == "":
		return "SLACK_BOT_TOKEN is not set; " + how
	case strings.ContainsFunc(t, unicode.IsSpace):
		return "SLACK_BOT_TOKEN holds a space or a line break; " + how + " again"
	case strings.HasPrefix(t, "xapp-"):
		return "SLACK_BOT_TOKEN holds an app-level token; " + how + ", and put this one into SLACK_APP_TOKEN"
	case strings.HasPrefix(t, "xoxp-"):
		return "SLACK_BOT_TOKEN holds a person's token (xoxp-), with which the bot would act as that person; " + how
	case strings.HasPrefix(t, "xoxe"):
		return "SLACK_BOT_TOKEN holds a token that expires (xoxe), and token rotation cannot be switched off again: make a new app with bot slack manifest, and " + how
	case !strings.HasPrefix(t, "xoxb-"):
		return "SLACK_BOT_TOKEN is no bot token; " + how
	}
	return ""
}

// appForm says what is wrong with the form of an app-level token, "" when
// nothing is.
func appForm(t string) string {
	const how = "make one with the scope connections:write under Basic Information, App-Level Tokens (xapp-...)"
	switch {
	case t == "":
		return "SLACK_APP_TOKEN is not set; " + how + ", or set SLACK_SIGNING_SECRET for Events over HTTP"
	case strings.ContainsFunc(t, unicode.IsSpace):
		return "SLACK_APP_TOKEN holds a space or a line break; copy it again"
	case strings.HasPrefix(t, "xoxb-"):
		return "SLACK_APP_TOKEN holds a bot token; " + how
	case !strings.HasPrefix(t, "xapp-"):
		return "SLACK_APP_TOKEN is no app-level token; " + how
	}
	return ""
}

func (d *doctor) signIn(ctx context.Context) Outcome {
	if d.base != nil || d.badBot != "" {
		return skipped("this needs a bot token")
	}
	auth, err := d.api.AuthTestContext(ctx)
	if err != nil {
		return failed("%s", d.explain("auth.test", err))
	}
	if auth.BotID == "" {
		return failed("the token in SLACK_BOT_TOKEN is a person's, @%s; use the Bot User OAuth Token (xoxb-...) from Install App", safe(auth.User))
	}
	d.auth = auth
	if bot, err := d.api.GetBotInfoContext(ctx, slackapi.GetBotInfoParameters{Bot: auth.BotID}); err == nil {
		d.app = bot.AppID
	}
	if strings.HasPrefix(auth.TeamID, "E") { // of an organisation (docs.slack.dev/enterprise)
		return failed("@%s is %s (%s)", safe(auth.User), notHere, safe(auth.TeamID))
	}
	return passed("@%s in %s (%s)", safe(auth.User), safe(auth.Team), safe(auth.TeamID))
}

// scopes compares what was granted with what is needed. Slack lists the scopes
// of a token in a header of each answer
// (docs.slack.dev/authentication/installing-with-oauth).
func (d *doctor) scopes(context.Context) Outcome {
	if d.auth == nil {
		return skipped("this needs the sign-in")
	}
	header := d.auth.Header.Values("X-Oauth-Scopes")
	if len(header) == 0 {
		return skipped("the answer names no scopes; compare OAuth & Permissions with: bot slack manifest")
	}
	return judgeScopes(strings.Split(strings.Join(header, ","), ","))
}

func judgeScopes(granted []string) Outcome {
	for i := range granted {
		granted[i] = strings.TrimSpace(granted[i])
	}
	var missing, quieter, known []string
	needed := 0
	for _, s := range Scopes() {
		known = append(known, s.Name)
		if s.Need != Optional {
			needed++
		}
		switch {
		case slices.Contains(granted, s.Name):
		case s.Need == Always:
			missing = append(missing, s.Name+" ("+s.Reason+")")
		case s.Need == FollowUps:
			quieter = append(quieter, s.Name)
		default:
		}
	}
	if len(missing) > 0 {
		it := "them"
		if len(missing) == 1 {
			it = "it"
		}
		return failed("the bot token lacks %s; add %s under OAuth & Permissions and reinstall the app", strings.Join(missing, ", "), it)
	}
	var more []string
	for _, g := range granted {
		if g != "" && !slices.Contains(known, g) {
			more = append(more, safe(g))
		}
	}
	switch {
	case len(quieter) > 0:
		return noted("without %s the bot hears only messages that mention it there; to change that, add what is missing under OAuth & Permissions and reinstall the app", strings.Join(quieter, " and "))
	case len(more) > 0:
		return noted("all that are needed, and more than that: %s; remove under OAuth & Permissions what nothing else uses", strings.Join(more, ", "))
	}
	return passed("all %d that are needed", needed)
}

// requests says what cannot be seen from here when Slack calls the bot.
func (d *doctor) requests(context.Context) Outcome {
	return skipped("Slack calls the bot, not the other way round: start the bot, press Verify under Event Subscriptions of the app%s, and mention the bot in a channel", d.page("/event-subscriptions"))
}

func (d *doctor) page(sub string) string {
	if d.app == "" {
		return ""
	}
	return " (https://api.slack.com/apps/" + safe(d.app) + sub + ")"
}

func (d *doctor) appToken(ctx context.Context) Outcome {
	if d.base != nil || d.badApp != "" {
		return skipped("this needs an app-level token")
	}
	_, link, err := d.api.StartSocketModeContext(ctx)
	if err != nil {
		return failed("%s", d.explain("apps.connections.open", err))
	}
	if link == "" {
		return failed("Slack gave no address for the socket; try again, and look at https://slack-status.com")
	}
	d.link = link
	return passed("it may open sockets")
}

func (d *doctor) socket(ctx context.Context) Outcome {
	switch {
	case d.link == "":
		return skipped("this needs the app token")
	case d.cfg.Running:
		return skipped("the bot is running; a second socket would take some of its events and presses")
	}
	start := time.Now()
	conn, hello, err := d.dial(ctx)
	if err != nil {
		return failed("%s", err)
	}
	conn.leave()
	if o := d.judgeHello(hello); o.Result == Failed {
		return o
	}
	took := time.Since(start).Round(time.Millisecond)
	if n := hello.Connections; n > 1 {
		return noted("hello after %s; %d other sockets of this app are open, each of which gets its share of the events: they are those of this bot's replicas (two each, ten in all at most), or another bot uses this token", took, n-1)
	}
	return passed("hello after %s", took)
}

// dial opens the socket at d.link, which can be used once, and reads its first
// frame. Errors are sentences without the address.
func (d *doctor) dial(ctx context.Context) (*conn, frame, error) {
	link := d.link
	d.link = ""
	c, err := openConn(ctx, link, pingTimeout)
	if err != nil {
		return nil, frame{}, fmt.Errorf("the socket cannot be opened (%s); let WebSockets to *.slack.com through the firewall or proxy", withoutLink(ctx, err, link))
	}
	f, err := c.read(ctx)
	if err != nil {
		c.close()
		return nil, frame{}, fmt.Errorf("the socket opened and no hello came (%s); let WebSockets to *.slack.com through the firewall or proxy", withoutLink(ctx, err, link))
	}
	return c, f, nil
}

// withoutLink is the cause of a socket's failure, without its address.
func withoutLink(ctx context.Context, err error, link string) string {
	if ctx.Err() != nil {
		return "no answer in time"
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return safe(strings.ReplaceAll(err.Error(), link, "its address"))
}

// judgeHello looks at the first frame of a socket.
func (d *doctor) judgeHello(f frame) Outcome {
	switch {
	case f.Type == "disconnect" && f.Reason == "link_disabled":
		return failed("Socket Mode is off; switch it on for the app%s", d.page("/socket-mode"))
	case f.Type == "disconnect" && f.Reason == "too_many_websockets":
		return failed("this app has as many open sockets as Slack allows (10); each replica has two, so run no more than five, and stop the other bots that use this SLACK_APP_TOKEN")
	case f.Type != "hello":
		return failed("the socket began with %q (%s) instead of a hello; try again, and look at https://slack-status.com", safe(f.Type), safe(f.Reason))
	case d.app != "" && f.Info.AppID != "" && d.app != f.Info.AppID:
		return failed("the tokens belong to two apps (SLACK_BOT_TOKEN to %s, SLACK_APP_TOKEN to %s); take both from one", safe(d.app), safe(f.Info.AppID))
	}
	return passed("hello")
}

// events says how to look at what no bot token may read: the manifest of an app
// takes a configuration token of a person (apps.manifest.export).
func (d *doctor) events(context.Context) Outcome {
	var names []string
	for _, e := range Events() {
		names = append(names, e.Name)
	}
	return skipped("a bot cannot read what it is subscribed to: compare Subscribe to bot events%s with %s, and see that App Home allows messages and Interactivity is on; --live tries the buttons", d.page("/event-subscriptions"), strings.Join(names, ", "))
}

func (d *doctor) channel(ctx context.Context, id string) Outcome {
	switch {
	case d.auth == nil:
		return skipped("this needs the sign-in")
	case !slackID.MatchString(id):
		return failed("this is no channel id; use the one at the end of the channel's details, such as C0123456789")
	}
	c, err := d.api.GetConversationInfoContext(ctx, &slackapi.GetConversationInfoInput{ChannelID: id})
	if slackError(err) == "missing_scope" {
		return d.channelByHistory(ctx, id)
	}
	if err != nil {
		return d.channelError("conversations.info", err)
	}
	name := "#" + safe(c.Name)
	switch {
	case c.IsIM || c.IsMpIM:
		return noted("this is a direct conversation; channels in the configuration are for public and private channels")
	case c.IsArchived:
		return failed("%s is archived, and nobody can write there; unarchive it or name another", name)
	case !c.IsMember:
		return failed("the bot is not in %s; write there: /invite @%s", name, safe(d.auth.User))
	case c.IsExtShared:
		return noted("%s, which is shared with another organisation: its people see what the bot writes there", name)
	}
	return passed("%s", name)
}

// channelByHistory finds out whether the bot is in a channel when it may not
// ask for the channel itself: its history is readable for members only.
func (d *doctor) channelByHistory(ctx context.Context, id string) Outcome {
	_, err := d.api.GetConversationHistoryContext(ctx, &slackapi.GetConversationHistoryParameters{ChannelID: id, Limit: 1})
	switch {
	case err == nil:
		return passed("the bot is in it")
	case slackError(err) == "missing_scope":
		return skipped("this needs the optional scope channels:read (or groups:read in a private channel); instead, mention @%s there", safe(d.auth.User))
	}
	return d.channelError("conversations.history", err)
}

func (d *doctor) channelError(method string, err error) Outcome {
	switch slackError(err) {
	case "channel_not_found":
		return failed("there is no such channel that the bot can see; check the id, and if it is private write there: /invite @%s", safe(d.auth.User))
	case "not_in_channel":
		return failed("the bot is not in this channel; write there: /invite @%s", safe(d.auth.User))
	case "is_archived":
		return failed("this channel is archived, and nobody can write there; unarchive it or name another")
	}
	return failed("%s", d.explain(method, err))
}

func (d *doctor) approver(ctx context.Context, id string) Outcome {
	switch {
	case d.auth == nil:
		return skipped("this needs the sign-in")
	case !slackID.MatchString(id):
		return failed("this is no member id; use the one under Copy member ID in the person's profile, such as U0123456789")
	}
	u, err := d.api.GetUserInfoContext(ctx, id)
	switch {
	case slackError(err) == "user_not_found", slackError(err) == "user_not_visible", slackError(err) == "users_not_found":
		return failed("there is no such person in %s; correct the id (Copy member ID in their profile) or remove it from the groups", safe(d.auth.Team))
	case err != nil:
		return failed("%s", d.explain("users.info", err))
	}
	name := "@" + safe(u.Name)
	switch {
	case u.Deleted:
		return failed("%s is deactivated and cannot approve; remove the id from the groups", name)
	case u.IsBot || id == d.auth.UserID:
		return failed("%s is a bot, and bots never approve; remove the id from the groups", name)
	case u.IsRestricted || u.IsUltraRestricted:
		return noted("%s is a guest, and may approve because the id is named", name)
	case u.IsStranger || (u.TeamID != "" && d.auth.TeamID != "" && u.TeamID != d.auth.TeamID):
		return noted("%s belongs to another organisation, and may approve because the id is named", name)
	}
	return passed("%s", name)
}

func (d *doctor) usergroup(ctx context.Context, id string) Outcome {
	switch {
	case d.auth == nil:
		return skipped("this needs the sign-in")
	case !slackID.MatchString(id):
		return failed("this is no user group id; use the one under Copy group ID, such as S0123456789")
	}
	members, err := d.api.GetUserGroupMembersContext(ctx, id)
	switch {
	case slackError(err) == "no_such_subteam", slackError(err) == "subteam_not_found":
		return failed("there is no such user group in %s; correct the id or remove it from the groups", safe(d.auth.Team))
	case slackError(err) == "plan_upgrade_required", slackError(err) == "paid_teams_only":
		return failed("user groups are not part of this workspace's plan; name people by their member ids instead")
	case err != nil:
		return failed("%s", d.explain("usergroups.users.list", err))
	case len(members) == 0:
		return failed("it has no members, so nobody can approve by it; add people to it in Slack")
	}
	return passed("%d members", len(members))
}

// slackError is the error word of Slack's answer, or "".
func slackError(err error) string {
	if r, ok := errors.AsType[slackapi.SlackErrorResponse](err); ok {
		return r.Err
	}
	return ""
}

// explain turns the failure of a call into a sentence that says what to do.
func (d *doctor) explain(method string, err error) string {
	variable, where := "SLACK_BOT_TOKEN", "Install App"
	if method == "apps.connections.open" {
		variable, where = "SLACK_APP_TOKEN", "Basic Information, App-Level Tokens"
	}
	if r, ok := errors.AsType[slackapi.SlackErrorResponse](err); ok {
		return explainWord(method, variable, where, r)
	}
	if l, ok := errors.AsType[*slackapi.RateLimitedError](err); ok {
		return fmt.Sprintf("Slack limits %s for %s; try again after that", method, l.RetryAfter)
	}
	if s, ok := errors.AsType[slackapi.StatusCodeError](err); ok {
		return fmt.Sprintf("the server answered %s with HTTP %d; check SLACK_API_URL, and look at https://slack-status.com", method, s.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Sprintf("no answer to %s in time; check the network, HTTPS_PROXY and SLACK_API_URL", method)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Sprintf("Slack cannot be reached (%s); check the network, HTTPS_PROXY and SLACK_API_URL", safe(u.Err.Error()))
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return fmt.Sprintf("Slack cannot be reached (%s); check the network, HTTPS_PROXY and SLACK_API_URL", safe(err.Error()))
	}
	return fmt.Sprintf("the answer to %s is not one of Slack's; check SLACK_API_URL and the proxies on the way", method)
}

// notHere is what is wrong with an app that an organisation has, and its workspace doesn't.
const notHere = "installed for the organisation, not for this workspace; an admin of the organisation adds the app to the workspace, then install it there and copy that bot token"

func explainWord(method, variable, where string, r slackapi.SlackErrorResponse) string {
	switch r.Err {
	case "team_access_not_granted":
		return "the app is " + notHere
	case "invalid_auth", "not_authed":
		return fmt.Sprintf("Slack does not know the token in %s; copy it again from %s", variable, where)
	case "token_revoked", "token_expired", "account_inactive":
		return fmt.Sprintf("the token in %s was taken back (%s); install the app again and copy the token from %s", variable, r.Err, where)
	case "not_allowed_token_type":
		return fmt.Sprintf("the token in %s is of the wrong kind for %s; copy it again from %s", variable, method, where)
	case "missing_scope":
		needed := safe(r.Needed)
		if needed == "" {
			needed = "a scope"
		}
		if variable == "SLACK_APP_TOKEN" {
			return fmt.Sprintf("the token in SLACK_APP_TOKEN lacks %s; make a new one with connections:write under %s", needed, where)
		}
		return fmt.Sprintf("the bot token lacks %s for %s; add it under OAuth & Permissions and reinstall the app", needed, method)
	case "ratelimited":
		return fmt.Sprintf("Slack limits %s now; try again in a minute", method)
	case "internal_error", "fatal_error", "service_unavailable", "request_timeout":
		return fmt.Sprintf("Slack has a problem with %s (%s); try again, and look at https://slack-status.com", method, r.Err)
	}
	return fmt.Sprintf("Slack answered %s with %q; what it means: https://docs.slack.dev/reference/methods/%s", method, safe(r.Err), method)
}

// safe keeps what others wrote from moving the cursor or breaking the line, and
// bounds it to 200 characters.
func safe(s string) string {
	n := 0
	return strings.Map(func(r rune) rune {
		if n++; n > 200 {
			return -1
		}
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
