package discordfake

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Types of channels (docs: "Channel").
const (
	TypeText          = 0
	TypeDM            = 1
	TypePublicThread  = 11
	TypePrivateThread = 12
)

// Types of messages (docs: "Message").
const (
	MessageDefault       = 0
	MessageReply         = 19
	MessageCommand       = 20
	MessageThreadStarter = 21
)

// Flags of messages (docs: "Message").
const (
	FlagSuppressEmbeds        = 1 << 2
	FlagHasThread             = 1 << 5
	FlagEphemeral             = 1 << 6
	FlagLoading               = 1 << 7
	FlagSuppressNotifications = 1 << 12
	FlagComponentsV2          = 1 << 15
)

// User is a person or bot. GlobalName is the display name, which may be empty.
type User struct {
	ID, Name, GlobalName string
	Bot                  bool
}

// Role is a role of a guild. The role whose id is the guild's is @everyone.
type Role struct {
	ID, Name    string
	Permissions uint64
	Managed     bool
}

// Guild says how a guild begins. The bot joins it with a role of its own, as an invited bot does.
type Guild struct {
	// ID is a snowflake; "" makes one. Its shard is (id >> 22) % shards.
	ID, Name string
	// Owner is a user; "" is the application's owner. It is a member, and may do everything.
	Owner string
	// Everyone and BotRole are the permissions of @everyone and of the bot's role. 0 means PermEveryone and PermBot.
	Everyone, BotRole uint64
}

// Overwrite changes permissions in a channel for a role or a user; exactly one of the two is set. The id of the guild as Role is
// everyone.
type Overwrite struct {
	Role, User  string
	Allow, Deny uint64
}

// Channel is a text channel.
type Channel struct {
	// ID is a snowflake; "" makes one.
	ID, Guild, Name string
	Type            int
	Overwrites      []Overwrite
	// Parent is the channel of a thread. Recipient is the person of a direct message.
	Parent, Recipient string
}

// Thread is what a thread has beyond a channel.
type Thread struct {
	Owner            string
	Archived, Locked bool
	// AutoArchive is in minutes: 60, 1440, 4320 or 10080.
	AutoArchive int
	Deleted     bool
}

// Attachment is a file of a message. Size is in bytes; Server.File has the content.
type Attachment struct {
	ID, Filename, ContentType, Description string
	Size                                   int
}

// Message is a message as it is stored, which is what people see.
type Message struct {
	ID, Channel, Guild, Author string
	Type                       int
	Content                    string
	// Embeds and Components are the objects as Discord gives them back; nil when there are none.
	Embeds, Components json.RawMessage
	Attachments        []Attachment
	Flags              int
	Edited             bool
	Changed            time.Time // of the last edit; zero if there was none
	// Mentions, MentionRoles and Everyone are those whom the message pinged, after allowed_mentions.
	Mentions, MentionRoles []string
	Everyone               bool
	Nonce                  string
	// Reply is the message that this one answers, or that the thread began with.
	Reply string
	// Thread is the thread that began with this message.
	Thread string
	// Ephemeral is who alone sees it; "" means everybody.
	Ephemeral string
	// Interaction is the interaction that it answers.
	Interaction string
}

// Has says whether all bits are among the message's flags.
func (m Message) Has(flags int) bool { return m.Flags&flags == flags }

type member struct {
	roles  []string
	nick   string
	joined time.Time
}

type guild struct {
	id, name, owner string
	botRole         string
	roles           []*Role
	members         map[string]*member
	joined          time.Time
	gone            bool // the bot was removed
}

func (g *guild) role(id string) *Role {
	for _, r := range g.roles {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (g *guild) hasRole(user, role string) bool {
	m := g.members[user]
	return m != nil && slices.Contains(m.roles, role)
}

type threadState struct {
	Thread
	members    map[string]time.Time
	archivedAt time.Time
	sent       int
}

type channel struct {
	Channel
	thread *threadState
	order  []string
	msgs   map[string]*message
	edits  []time.Time // of old messages
}

// message is a stored message with what only the server needs.
type message struct {
	Message
	embeds     []any
	components []any
	chosen     map[string]string // what a person's client shows in the menus, by person and custom_id
	files      []*file
	edited     time.Time
	created    time.Time
	inter      *interaction
	deleted    bool
	forwarded  *message // as it was when it was forwarded
}

type file struct {
	Attachment
	channel string
	data    []byte
}

// AddUser adds a user and returns its id, which is made when there is none.
func (s *Server) AddUser(u User) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.ID == "" {
		u.ID = s.newID()
	}
	if u.Name == "" {
		u.Name = "user" + u.ID
	}
	s.users[u.ID] = &u
	s.bump()
	return u.ID
}

// AddGuild makes a guild, adds the bot and tells the sessions. It returns the guild's id.
func (s *Server) AddGuild(g Guild) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.ID == "" {
		g.ID = s.newID()
	}
	if g.Name == "" {
		g.Name = "guild " + g.ID
	}
	if g.Owner == "" {
		g.Owner = s.owner
	}
	if g.Everyone == 0 {
		g.Everyone = PermEveryone
	}
	if g.BotRole == 0 {
		g.BotRole = PermBot
	}
	bot := &Role{ID: s.newID(), Name: s.cfg.BotName, Permissions: g.BotRole, Managed: true}
	now := s.now()
	st := &guild{
		id: g.ID, name: g.Name, owner: g.Owner, botRole: bot.ID, joined: now,
		roles: []*Role{{ID: g.ID, Name: "@everyone", Permissions: g.Everyone}, bot},
		members: map[string]*member{
			g.Owner:     {roles: []string{}, joined: now},
			s.cfg.BotID: {roles: []string{bot.ID}, joined: now},
		},
	}
	s.guilds[g.ID] = st
	s.dispatch(event{name: "GUILD_CREATE", guild: g.ID, intents: IntentGuilds, render: s.guildCreate(st)})
	s.bump()
	return g.ID
}

// RemoveGuild removes the bot from a guild.
func (s *Server) RemoveGuild(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guild(id)
	g.gone = true
	delete(g.members, s.cfg.BotID)
	// docs: without "unavailable" the bot was removed.
	s.dispatch(event{name: "GUILD_DELETE", guild: id, intents: IntentGuilds, render: always(object{"id": id})})
	s.bump()
}

// guild returns a guild that a test names; it panics when there is none, because the test is wrong. The caller holds mu.
func (s *Server) guild(id string) *guild {
	g := s.guilds[id]
	if g == nil {
		panic("discordfake: there is no guild " + id + ": add it with AddGuild")
	}
	return g
}

func (s *Server) channel(id string) *channel {
	c := s.channels[id]
	if c == nil {
		panic("discordfake: there is no channel " + id + ": add it with AddChannel")
	}
	return c
}

// AddRole adds a role to a guild and returns its id.
func (s *Server) AddRole(guildID string, r Role) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guild(guildID)
	if r.ID == "" {
		r.ID = s.newID()
	}
	g.roles = append(g.roles, &r)
	s.dispatch(event{
		name: "GUILD_ROLE_CREATE", guild: g.id, intents: IntentGuilds,
		render: always(object{"guild_id": g.id, "role": g.roleJSON(&r)}),
	})
	s.bump()
	return r.ID
}

// SetRole changes the permissions of a role; the guild's id is @everyone.
func (s *Server) SetRole(guildID, role string, permissions uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guild(guildID)
	r := g.role(role)
	if r == nil {
		panic("discordfake: the guild " + guildID + " has no role " + role)
	}
	r.Permissions = permissions
	s.dispatch(event{
		name: "GUILD_ROLE_UPDATE", guild: g.id, intents: IntentGuilds,
		render: always(object{"guild_id": g.id, "role": g.roleJSON(r)}),
	})
	s.bump()
}

// BotRole returns the bot's own role in a guild, for SetRole.
func (s *Server) BotRole(guildID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guild(guildID).botRole
}

// AddMember makes a user a member with these roles, or changes the roles of a member. Sessions hear of it only with
// GUILD_MEMBERS, except about the bot.
func (s *Server) AddMember(guildID, user string, roles ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guild(guildID)
	if s.users[user] == nil {
		panic("discordfake: there is no user " + user + ": add it with AddUser")
	}
	for _, r := range roles {
		if g.role(r) == nil {
			panic("discordfake: the guild " + guildID + " has no role " + r)
		}
	}
	name, m := "GUILD_MEMBER_UPDATE", g.members[user]
	if m == nil {
		name, m = "GUILD_MEMBER_ADD", &member{joined: s.now()}
		g.members[user] = m
	}
	m.roles = append([]string{}, roles...)
	need := IntentGuildMembers
	if user == s.cfg.BotID {
		need = 0 // docs: updates of the current user need no intent.
	}
	d := s.memberJSON(g, user)
	d["guild_id"] = g.id
	s.dispatch(event{name: name, guild: g.id, intents: need, render: always(d)})
	s.bump()
}

// RemoveMember removes a user from a guild.
func (s *Server) RemoveMember(guildID, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guild(guildID)
	delete(g.members, user)
	s.dispatch(event{
		name: "GUILD_MEMBER_REMOVE", guild: g.id, intents: IntentGuildMembers,
		render: always(object{"guild_id": g.id, "user": s.userJSON(user)}),
	})
	s.bump()
}

// AddChannel makes a text channel and returns its id.
func (s *Server) AddChannel(c Channel) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.guild(c.Guild)
	if c.ID == "" {
		c.ID = s.newID()
	}
	if c.Name == "" {
		c.Name = "channel-" + c.ID
	}
	c.Type, c.Parent, c.Recipient = TypeText, "", ""
	c.Overwrites = slices.Clone(c.Overwrites)
	ch := &channel{Channel: c, msgs: map[string]*message{}}
	s.channels[c.ID] = ch
	s.dispatch(event{name: "CHANNEL_CREATE", guild: g.id, intents: IntentGuilds, render: always(s.channelJSON(ch))})
	s.bump()
	return c.ID
}

// SetOverwrites replaces the overwrites of a channel.
func (s *Server) SetOverwrites(channelID string, o ...Overwrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channel(channelID)
	c.Overwrites = slices.Clone(o)
	s.dispatch(event{name: "CHANNEL_UPDATE", guild: c.Guild, intents: IntentGuilds, render: always(s.channelJSON(c))})
	s.bump()
}

// DeleteChannel deletes a channel and its threads.
func (s *Server) DeleteChannel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channel(id)
	d := s.channelJSON(c)
	s.dispatch(event{name: "CHANNEL_DELETE", guild: c.Guild, intents: IntentGuilds, render: always(d)})
	delete(s.channels, id)
	for tid, t := range s.channels {
		if t.Parent == id {
			t.thread.Deleted = true
			delete(s.channels, tid)
		}
	}
	s.bump()
}

// DM returns the direct channel between the bot and a user, and opens it when needed.
func (s *Server) DM(user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dm(user).ID
}

func (s *Server) dm(user string) *channel {
	for _, c := range s.channels {
		if c.Type == TypeDM && c.Recipient == user {
			return c
		}
	}
	c := &channel{Channel: Channel{ID: s.newID(), Type: TypeDM, Recipient: user}, msgs: map[string]*message{}}
	s.channels[c.ID] = c
	return c
}

// RefuseDMs makes messages to a person fail with 50007, as the person's settings can.
func (s *Server) RefuseDMs(user string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noDM[user] = on
}

// ThreadOf returns the state of a thread. The second value is false when there is no such thread.
func (s *Server) ThreadOf(id string) (Channel, Thread, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[id]
	if c == nil || c.thread == nil {
		return Channel{}, Thread{}, false
	}
	return c.Channel, c.thread.Thread, true
}

// Permissions returns what a user may do in a channel.
func (s *Server) Permissions(channelID, user string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.perms(s.channel(channelID), user)
}

func (m *message) snapshot() Message {
	out := m.Message
	out.Embeds, out.Components, out.Attachments = rawList(m.embeds), rawList(m.components), nil
	for _, f := range m.files {
		out.Attachments = append(out.Attachments, f.Attachment)
	}
	out.Mentions, out.MentionRoles = slices.Clone(m.Mentions), slices.Clone(m.MentionRoles)
	return out
}

func rawList(v []any) json.RawMessage {
	if len(v) == 0 {
		return nil
	}
	b, _ := json.Marshal(v) // Came from JSON, so it can be JSON again.
	return b
}

// Shown returns the messages of a channel as everybody sees them, oldest first.
func (s *Server) Shown(channelID string) []Message { return s.ShownTo(channelID, "") }

// ShownTo returns what one person sees in a channel: what everybody sees, and what only this person does.
func (s *Server) ShownTo(channelID, user string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil {
		return nil
	}
	var out []Message
	for _, id := range c.order {
		if m := c.msgs[id]; !m.deleted && (m.Ephemeral == "" || m.Ephemeral == user) {
			out = append(out, m.snapshot())
		}
	}
	return out
}

// Message returns one message that was not deleted.
func (s *Server) Message(channelID, id string) (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelID]; c != nil && c.live(id) != nil {
		return c.msgs[id].snapshot(), true
	}
	return Message{}, false
}

// File returns the content of an attachment, nil when there is none.
func (s *Server) File(id string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[id]; f != nil {
		return slices.Clone(f.data)
	}
	return nil
}

// Typing says whether people see that the bot types in a channel: for ten seconds, or until it posts there.
func (s *Server) Typing(channelID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.typing[channelID]
	return ok && s.now().Sub(at) < typingLife
}

// live returns a message that people can still see.
func (c *channel) live(id string) *message {
	if m := c.msgs[id]; m != nil && !m.deleted {
		return m
	}
	return nil
}

// put stores a message. The caller holds mu.
func (s *Server) put(c *channel, m *message) {
	m.Channel, m.Guild, m.created = c.ID, c.Guild, s.now()
	if m.ID == "" {
		m.ID = s.newID()
	}
	c.msgs[m.ID] = m
	c.order = append(c.order, m.ID)
	if c.thread != nil && m.Ephemeral == "" && m.Type != MessageThreadStarter {
		c.thread.sent++
	}
	if m.Author == s.cfg.BotID {
		delete(s.typing, c.ID)
	}
	for _, f := range m.files {
		f.channel = c.ID
		s.files[f.ID] = f
	}
	s.bump()
}

func (s *Server) newFile(name, contentType, description string, data []byte) *file {
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	return &file{
		Attachment: Attachment{ID: s.newID(), Filename: name, ContentType: contentType, Description: description, Size: len(data)},
		data:       data,
	}
}

// pings finds whom a text pings. allowed is the allowed_mentions object: nil means everything, which is Discord's default for a
// bot's ordinary messages (docs: "Message", allowed mentions). A ping of everyone also needs the permission.
func (s *Server) pings(c *channel, author string, m *message, allowed *mentions) {
	m.Mentions, m.MentionRoles, m.Everyone = nil, nil, false
	var b strings.Builder
	b.WriteString(m.Content)
	for _, d := range m.components {
		displayText(&b, d)
	}
	text := b.String()
	take := func(kind, id string, listed []string) bool {
		return allowed == nil || slices.Contains(allowed.parse, kind) || slices.Contains(listed, id)
	}
	var users, roles []string
	if allowed != nil {
		users, roles = allowed.users, allowed.roles
	}
	for part := range strings.SplitSeq(text, "<@") {
		id, _, ok := strings.Cut(part, ">")
		if !ok {
			continue
		}
		if role, isRole := strings.CutPrefix(id, "&"); isRole {
			if g := s.guilds[c.Guild]; g != nil && g.role(role) != nil && take("roles", role, roles) && !slices.Contains(m.MentionRoles, role) {
				m.MentionRoles = append(m.MentionRoles, role)
			}
			continue
		}
		id = strings.TrimPrefix(id, "!")
		if s.users[id] != nil && take("users", id, users) && !slices.Contains(m.Mentions, id) {
			m.Mentions = append(m.Mentions, id)
		}
	}
	if m.Type == MessageReply && (allowed == nil || allowed.replied) {
		if r := c.msgs[m.Reply]; r != nil && !slices.Contains(m.Mentions, r.Author) {
			m.Mentions = append(m.Mentions, r.Author)
		}
	}
	if strings.Contains(text, "@everyone") || strings.Contains(text, "@here") {
		m.Everyone = take("everyone", "", nil) && s.can(c, author, PermMentionEveryone)
	}
}

// mentions is an allowed_mentions object. A list that is null counts as empty.
type mentions struct {
	parse, users, roles []string
	replied             bool
}

// displayText adds the text of the text displays in a component.
func displayText(b *strings.Builder, d any) {
	o, _ := d.(object)
	if text, ok := o["content"].(string); ok {
		b.WriteString(text)
	}
	kids, _ := o["components"].([]any)
	for _, k := range kids {
		displayText(b, k)
	}
}
