package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/bwmarrin/discordgo"
)

// Outgoing is a message on its way out.
type Outgoing struct {
	// Body encodes to a JSON object with the message's fields: content, embeds,
	// components, flags, message_reference. allowed_mentions is always replaced: whatever
	// it says, only the people that it lists one by one are mentioned.
	Body any
	// Files replace what the message has, when there are any.
	Files []File
	// Key makes Post idempotent for a few minutes: Discord returns the message
	// that was made under the same key instead of making another. Only a post
	// with a key is sent again when its answer was lost.
	Key string
}

// Sent is a message of ours.
type Sent struct {
	ID        string `json:"id"`
	ChannelID string `json:"channel_id"`
	// Content is its text, and Edited when it was changed last, "" when it never was:
	// another than what was sent is of a message that the same key made before.
	Content string `json:"content"`
	Edited  string `json:"edited_timestamp"`
	// Embeds is how many people see: Discord drops them where the bot may not
	// embed links.
	Embeds Count `json:"embeds"`
}

// Count is the length of a list.
type Count int

// UnmarshalJSON implements json.Unmarshaler.
func (c *Count) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	err := json.Unmarshal(data, &list)
	*c = Count(len(list))
	return err
}

// Nonce is what Discord is given for a key: 25 characters at most
// (docs.discord.com/developers/resources/message, "Create Message").
func Nonce(key string) string {
	sum := sha256.Sum256([]byte(key))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:25]
}

// snowflake is what Discord's ids look like.
var snowflake = regexp.MustCompile(`^[0-9]{15,20}$`)

// listed are the mentions of a message, without all but single people.
func listed(allowed json.RawMessage) map[string]any {
	var of struct {
		Users []string `json:"users"`
	}
	_ = json.Unmarshal(allowed, &of) // what can't be read mentions nobody
	out := map[string]any{"parse": []string{}}
	if users := slices.DeleteFunc(of.Users, func(id string) bool { return !snowflake.MatchString(id) }); len(users) > 0 {
		out["users"] = users
	}
	return out
}

// fieldsOf is what goes into a message's JSON.
func (o Outgoing) fieldsOf() (map[string]any, error) {
	data, err := json.Marshal(o.Body)
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil || raw == nil {
		return nil, errors.New("the body of a message is no JSON object")
	}
	m := make(map[string]any, len(raw)+3)
	for k, v := range raw {
		m[k] = v
	}
	m["allowed_mentions"] = listed(raw["allowed_mentions"])
	if len(o.Files) > 0 {
		list := make([]map[string]any, len(o.Files))
		for i, f := range o.Files {
			list[i] = map[string]any{"id": strconv.Itoa(i), "filename": f.Name}
		}
		m["attachments"] = list
	}
	return m, nil
}

// channelCall is a call about one channel.
func channelCall(method, channel, rest, path string) call {
	return call{method: method, route: "/channels/{channel}" + rest, path: "/channels/" + url.PathEscape(channel) + path, major: channel, safe: method != http.MethodPost}
}

func seg(s string) string { return "/" + url.PathEscape(s) }

// Post writes a message.
func (r *REST) Post(ctx context.Context, channel string, o Outgoing) (Sent, error) {
	m, err := o.fieldsOf()
	if err != nil {
		return Sent{}, fmt.Errorf("discord: %w", err)
	}
	c := channelCall(http.MethodPost, channel, "/messages", "/messages")
	if o.Key != "" {
		m["nonce"], m["enforce_nonce"] = Nonce(o.Key), true
		c.safe = true
	}
	c.body, c.files = m, o.Files
	var s Sent
	err = r.do(ctx, c, &s)
	return s, err
}

// Edit changes a message of ours. Fields that the body lacks stay as they are:
// to take buttons away, send an empty list of components.
func (r *REST) Edit(ctx context.Context, channel, message string, o Outgoing) (Sent, error) {
	m, err := o.fieldsOf()
	if err != nil {
		return Sent{}, fmt.Errorf("discord: %w", err)
	}
	c := channelCall(http.MethodPatch, channel, "/messages/{message}", "/messages"+seg(message))
	c.body, c.files = m, o.Files
	var s Sent
	err = r.do(ctx, c, &s)
	return s, err
}

// Delete takes a message away.
func (r *REST) Delete(ctx context.Context, channel, message string) error {
	return r.do(ctx, channelCall(http.MethodDelete, channel, "/messages/{message}", "/messages"+seg(message)), nil)
}

// Message is one message.
func (r *REST) Message(ctx context.Context, channel, message string) (*discordgo.Message, error) {
	var raw json.RawMessage
	m := new(discordgo.Message)
	if err := r.do(ctx, channelCall(http.MethodGet, channel, "/messages/{message}", "/messages"+seg(message)), &raw); err != nil {
		return m, err
	}
	if err := json.Unmarshal(knownParts(raw), m); err != nil {
		return m, fmt.Errorf("discord: a message cannot be read: %w", err)
	}
	return m, nil
}

// Page selects messages of a channel. At most one of Before, After and Around is
// set, to a message's id.
type Page struct {
	Before, After, Around string
	Limit                 int // 1 to 100, 0 is Discord's 50
}

// Messages are messages of a channel, the newest first. Those that discordgo
// cannot decode are left out, and left says how many these are.
func (r *REST) Messages(ctx context.Context, channel string, p Page) (list []*discordgo.Message, left int, err error) {
	c := channelCall(http.MethodGet, channel, "/messages", "/messages")
	c.query = url.Values{}
	for k, v := range map[string]string{"before": p.Before, "after": p.After, "around": p.Around} {
		if v != "" {
			c.query.Set(k, v)
		}
	}
	if p.Limit > 0 {
		c.query.Set("limit", strconv.Itoa(p.Limit))
	}
	var raw []json.RawMessage
	if err := r.do(ctx, c, &raw); err != nil {
		return nil, 0, err
	}
	for _, one := range raw {
		e, _, err := decode("MESSAGE_CREATE", one)
		m, ok := e.(*discordgo.MessageCreate)
		if err != nil || !ok {
			left++
			continue
		}
		list = append(list, m.Message)
	}
	return list, left, nil
}

// React adds an emoji ("✅", or name:id of a guild's own) to a message, and
// Unreact takes ours away.
func (r *REST) React(ctx context.Context, channel, message, emoji string) error {
	return r.reaction(ctx, http.MethodPut, channel, message, emoji)
}

// Unreact takes our reaction away.
func (r *REST) Unreact(ctx context.Context, channel, message, emoji string) error {
	return r.reaction(ctx, http.MethodDelete, channel, message, emoji)
}

func (r *REST) reaction(ctx context.Context, method, channel, message, emoji string) error {
	return r.do(ctx, channelCall(method, channel, "/messages/{message}/reactions/{emoji}/@me", "/messages"+seg(message)+"/reactions"+seg(emoji)+"/@me"), nil)
}

// Typing shows for ten seconds that the bot is typing.
func (r *REST) Typing(ctx context.Context, channel string) error {
	return r.do(ctx, channelCall(http.MethodPost, channel, "/typing", "/typing"), nil)
}

// Channel is a channel or thread.
func (r *REST) Channel(ctx context.Context, id string) (*discordgo.Channel, error) {
	c := new(discordgo.Channel)
	return c, r.do(ctx, channelCall(http.MethodGet, id, "", ""), c)
}

// ChannelEdit changes a thread; what is nil stays.
type ChannelEdit struct {
	Name        *string `json:"name,omitempty"`
	Archived    *bool   `json:"archived,omitempty"`
	Locked      *bool   `json:"locked,omitempty"`
	AutoArchive *int    `json:"auto_archive_duration,omitempty"` // minutes: 60, 1440, 4320 or 10080
}

// EditChannel changes a channel or thread.
func (r *REST) EditChannel(ctx context.Context, id string, e ChannelEdit) (*discordgo.Channel, error) {
	c := channelCall(http.MethodPatch, id, "", "")
	c.body = e
	ch := new(discordgo.Channel)
	return ch, r.do(ctx, c, ch)
}

// NewThread is a thread to be started.
type NewThread struct {
	Name        string `json:"name"` // 1 to 100 characters
	AutoArchive int    `json:"auto_archive_duration,omitempty"`
	Type        int    `json:"type,omitempty"` // of one without a message: 11 public, 12 private
}

// StartThread starts a thread from a message, or without one where message is
// empty. Where the message has a thread already, Code of the error is
// [CodeThreadExists] and the thread's id is the message's.
func (r *REST) StartThread(ctx context.Context, channel, message string, t NewThread) (*discordgo.Channel, error) {
	c := channelCall(http.MethodPost, channel, "/threads", "/threads")
	if message != "" {
		c = channelCall(http.MethodPost, channel, "/messages/{message}/threads", "/messages"+seg(message)+"/threads")
		c.safe = true // the second is refused
		t.Type = 0
	}
	c.body = t
	ch := new(discordgo.Channel)
	return ch, r.do(ctx, c, ch)
}

// JoinThread makes the bot a member of a thread.
func (r *REST) JoinThread(ctx context.Context, thread string) error {
	return r.do(ctx, channelCall(http.MethodPut, thread, "/thread-members/@me", "/thread-members/@me"), nil)
}

func guildCall(guild, rest, path string) call {
	return call{method: http.MethodGet, route: "/guilds/{guild}" + rest, path: "/guilds" + seg(guild) + path, major: guild, safe: true}
}

// ActiveThreads are the threads of a guild that are not archived and that the
// bot may see.
func (r *REST) ActiveThreads(ctx context.Context, guild string) ([]*discordgo.Channel, error) {
	var out struct {
		Threads []*discordgo.Channel `json:"threads"`
	}
	err := r.do(ctx, guildCall(guild, "/threads/active", "/threads/active"), &out)
	return out.Threads, err
}

// Channels are the channels of a guild without its threads, those that the bot may not
// see among them.
func (r *REST) Channels(ctx context.Context, guild string) ([]*discordgo.Channel, error) {
	var list []*discordgo.Channel
	err := r.do(ctx, guildCall(guild, "/channels", "/channels"), &list)
	return list, err
}

// Guild is a guild.
func (r *REST) Guild(ctx context.Context, id string) (*discordgo.Guild, error) {
	g := new(discordgo.Guild)
	return g, r.do(ctx, guildCall(id, "", ""), g)
}

// Roles are the roles of a guild.
func (r *REST) Roles(ctx context.Context, guild string) ([]*discordgo.Role, error) {
	var list []*discordgo.Role
	err := r.do(ctx, guildCall(guild, "/roles", "/roles"), &list)
	return list, err
}

// Member is one person in a guild.
func (r *REST) Member(ctx context.Context, guild, user string) (*discordgo.Member, error) {
	m := new(discordgo.Member)
	return m, r.do(ctx, guildCall(guild, "/members/{user}", "/members"+seg(user)), m)
}

// Me is the bot as a user.
func (r *REST) Me(ctx context.Context) (*discordgo.User, error) {
	u := new(discordgo.User)
	return u, r.do(ctx, call{method: http.MethodGet, route: "/users/@me", path: "/users/@me", safe: true}, u)
}

// DM is the channel for direct messages with somebody; it is made when there is
// none.
func (r *REST) DM(ctx context.Context, user string) (*discordgo.Channel, error) {
	c := new(discordgo.Channel)
	return c, r.do(ctx, call{method: http.MethodPost, route: "/users/@me/channels", path: "/users/@me/channels", safe: true, body: map[string]string{"recipient_id": user}}, c)
}

// Application is the app that the bot belongs to.
type Application struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	BotPublic bool   `json:"bot_public"`
	Flags     int    `json:"flags"` // with the privileged intents that are on
	// Endpoint, where set, gets the interactions instead of the gateway: no button
	// reaches this bot then.
	Endpoint string `json:"interactions_endpoint_url"`
}

// Application is the bot's own app.
func (r *REST) Application(ctx context.Context) (Application, error) {
	var a Application
	err := r.do(ctx, call{method: http.MethodGet, route: "/applications/@me", path: "/applications/@me", safe: true}, &a)
	return a, err
}

// Gateway is where and how often the bot may connect.
type Gateway struct {
	URL    string
	Shards int // what Discord recommends
	// Total and Remaining count IDENTIFYs until ResetAfter is over.
	Total, Remaining int
	ResetAfter       time.Duration
	// MaxConcurrency is how many shards may identify within five seconds.
	MaxConcurrency int
}

// Gateway asks where to connect.
func (r *REST) Gateway(ctx context.Context) (Gateway, error) {
	var b struct {
		URL    string `json:"url"`
		Shards int    `json:"shards"`
		Limit  struct {
			Total          int   `json:"total"`
			Remaining      int   `json:"remaining"`
			ResetAfter     int64 `json:"reset_after"` // milliseconds
			MaxConcurrency int   `json:"max_concurrency"`
		} `json:"session_start_limit"`
	}
	if err := r.do(ctx, call{method: http.MethodGet, route: "/gateway/bot", path: "/gateway/bot", safe: true}, &b); err != nil {
		return Gateway{}, err
	}
	return Gateway{
		URL: b.URL, Shards: max(b.Shards, 1), Total: b.Limit.Total, Remaining: b.Limit.Remaining,
		ResetAfter: time.Duration(b.Limit.ResetAfter) * time.Millisecond, MaxConcurrency: max(b.Limit.MaxConcurrency, 1),
	}, nil
}

// The kinds of answers to an interaction.
const (
	ReplyMessage       = 4 // a new message
	ReplyDeferred      = 5 // "thinking"; only the flag for ephemeral may be set
	ReplyDeferredEdit  = 6 // nothing visible yet
	ReplyUpdate        = 7 // the message with the button changes
	ReplyAutocomplete  = 8
	ReplyModal         = 9
	interactionTimeout = 2500 * time.Millisecond // Discord waits for 3 s
)

// Respond answers an interaction, which has to happen within 3 s of its arrival;
// it takes 2.5 s at most. A second answer fails with [CodeAcknowledged], one that
// is late with [CodeUnknownInteraction]. A nil Body sends no data.
func (r *REST) Respond(ctx context.Context, i *discordgo.Interaction, kind int, o Outgoing) error {
	ctx, cancel := context.WithTimeout(ctx, interactionTimeout)
	defer cancel()
	body := map[string]any{"type": kind}
	if o.Body != nil {
		data, err := o.fieldsOf()
		if err != nil {
			return fmt.Errorf("discord: %w", err)
		}
		if kind != ReplyMessage && kind != ReplyUpdate {
			delete(data, "allowed_mentions")
		}
		body["data"] = data
	}
	return r.do(ctx, call{
		method: http.MethodPost, route: "/interactions/{interaction}/callback", path: "/interactions" + seg(i.ID) + seg(i.Token) + "/callback",
		interaction: true, body: body, files: o.Files,
	}, nil)
}

// followUp is a call under an interaction's token, which is good for 15 minutes.
func followUp(method string, i *discordgo.Interaction, rest string) call {
	return call{
		method: method, route: "/webhooks/{application}/{token}" + rest, path: "/webhooks" + seg(i.AppID) + seg(i.Token) + rest,
		interaction: true, safe: method != http.MethodPost,
	}
}

// FollowUp writes another message in answer to an interaction.
func (r *REST) FollowUp(ctx context.Context, i *discordgo.Interaction, o Outgoing) (Sent, error) {
	return r.follow(ctx, followUp(http.MethodPost, i, ""), o)
}

// EditResponse changes the message that answered an interaction.
func (r *REST) EditResponse(ctx context.Context, i *discordgo.Interaction, o Outgoing) (Sent, error) {
	return r.follow(ctx, followUp(http.MethodPatch, i, "/messages/@original"), o)
}

// DeleteResponse takes the message away that answered an interaction.
func (r *REST) DeleteResponse(ctx context.Context, i *discordgo.Interaction) error {
	return r.do(ctx, followUp(http.MethodDelete, i, "/messages/@original"), nil)
}

func (r *REST) follow(ctx context.Context, c call, o Outgoing) (Sent, error) {
	m, err := o.fieldsOf()
	if err != nil {
		return Sent{}, fmt.Errorf("discord: %w", err)
	}
	c.body, c.files = m, o.Files
	var s Sent
	err = r.do(ctx, c, &s)
	return s, err
}

// PutCommands replaces the slash commands of the application in a guild, or
// everywhere when guild is empty. They are JSON as Discord documents it.
func (r *REST) PutCommands(ctx context.Context, application, guild string, commands any) error {
	c := call{method: http.MethodPut, route: "/applications/{application}/commands", path: "/applications" + seg(application) + "/commands", safe: true, body: commands}
	if guild != "" {
		c.route, c.major = "/applications/{application}/guilds/{guild}/commands", guild
		c.path = "/applications" + seg(application) + "/guilds" + seg(guild) + "/commands"
	}
	return r.do(ctx, c, nil)
}

// Download reads an attachment of a message, limit bytes at most; whole says
// whether that was all of it. Only Discord's own file servers are asked, and
// without the token (with an API of another address also that one's host).
func (r *REST) Download(ctx context.Context, link string, limit int64) (data []byte, whole bool, err error) {
	u, err := url.Parse(link)
	if err != nil || u.User != nil || !r.fileHost(u) {
		return nil, false, errors.New("discord: the file is not on one of Discord's servers and is not fetched")
	}
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, false, errors.New("discord: the file's address is none")
	}
	res, err := r.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, false, fmt.Errorf("discord: a file was not fetched: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, false, &Error{Call: "GET a file", Status: res.StatusCode, Message: http.StatusText(res.StatusCode)}
	}
	data, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return nil, false, fmt.Errorf("discord: a file broke off: %w", err)
	}
	if int64(len(data)) > limit {
		return data[:limit], false, nil
	}
	return data, true, nil
}

func (r *REST) fileHost(u *url.URL) bool {
	if r.base != defaultAPI && u.Host == r.host {
		return true
	}
	return u.Scheme == "https" && (u.Host == "cdn.discordapp.com" || u.Host == "media.discordapp.net")
}
