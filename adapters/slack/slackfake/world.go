package slackfake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// User is a person or bot.
type User struct {
	ID, Name string
	// Bot, Guest, UltraRestricted, Stranger and Deleted are is_bot, is_restricted (a multi-channel guest), is_ultra_restricted
	// (a single-channel guest), is_stranger (from a workspace with no direct link to ours) and deleted.
	Bot, Guest, UltraRestricted, Stranger, Deleted bool
	// Team is the person's workspace; empty means ours.
	Team string
}

// Channel is a conversation. The id's first letter should follow Slack's habit (C, G, D), but nothing depends on it.
type Channel struct {
	ID, Name string
	// Private, IM and MPIM say the kind; none of them is a public channel. ExtShared is a Slack Connect channel.
	Private, IM, MPIM, ExtShared, Archived bool
	// Members are user ids. Nil means everybody, the bot too. A direct message has its person here.
	Members []string
}

// Msg is a message as it is stored, which is what people see.
type Msg struct {
	Channel, TS, ThreadTS string
	User, BotID           string
	Subtype               string
	Text                  string
	// Blocks are the blocks as they were sent, with a block_id added where there was none; nil when there are none.
	Blocks json.RawMessage
	// Attachments are stored as sent and not looked into.
	Attachments json.RawMessage
	Files       []FileInfo
	Metadata    json.RawMessage
	// Edited, Deleted, Streaming and Broadcast say that it was changed, that it was deleted (or is a tombstone), that
	// chat.stopStream has not come yet, and that a reply was shown in the channel too.
	Edited, Deleted, Streaming, Broadcast bool
	// Changed is the time of the last edit or stream call; zero if there was none.
	Changed time.Time
	// Parse and NoMrkdwn are the arguments of the post: they decide what of the text is active.
	Parse    string
	NoMrkdwn bool
	// Chunks are all chunks of a streamed message, as sent.
	Chunks    []json.RawMessage
	Reactions []Reaction
}

// Reaction is an emoji and those who set it.
type Reaction struct {
	Name  string
	Users []string
}

// FileInfo describes a file. URL is its url_private; reading it needs the bot token.
type FileInfo struct {
	ID, Name, Title, Mimetype, URL string
	// Size is in bytes.
	Size int
}

// message is a stored message with what only the server needs.
type message struct {
	Msg
	clientMsgID string
	editedTS    string
	replies     []string // ts of replies, oldest first, on a root
	created     time.Time
	threadLocal bool // a reply
}

type channel struct {
	Channel
	created time.Time
	order   []string // ts of all messages in the order of arrival
	msgs    map[string]*message
	eph     []Msg
	ephTo   []string
}

// AddUser adds or replaces a user.
func (s *Server) AddUser(u User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.Team == "" {
		u.Team = s.cfg.Team
	}
	if u.Name == "" {
		u.Name = strings.ToLower(u.ID)
	}
	s.users[u.ID] = &u
	s.bump()
}

// AddChannel adds a channel, or changes its facts and members and keeps its messages.
func (s *Server) AddChannel(c Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addChannel(c)
	s.bump()
}

func (s *Server) addChannel(c Channel) *channel {
	if c.Name == "" && !c.IM {
		c.Name = strings.ToLower(c.ID)
	}
	c.Members = slices.Clone(c.Members)
	if have := s.channels[c.ID]; have != nil {
		have.Channel = c
		return have
	}
	ch := &channel{Channel: c, created: time.Now(), msgs: map[string]*message{}}
	s.channels[c.ID] = ch
	return ch
}

// SetUsergroup sets the members of a user group, which exists from then on. Its handle is the id in lower case.
func (s *Server) SetUsergroup(id string, users ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.groups[id]; !ok {
		s.groupNames = append(s.groupNames, id)
	}
	s.groups[id] = slices.Clone(users)
	s.bump()
}

// DM returns the direct channel between the bot and a user, and opens it when needed.
func (s *Server) DM(user string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dm(user).ID
}

func (s *Server) dm(user string) *channel {
	for _, id := range s.channelIDs() {
		if c := s.channels[id]; c.IM && slices.Contains(c.Members, user) {
			return c
		}
	}
	return s.addChannel(Channel{ID: "D" + user, IM: true, Members: []string{user, s.cfg.BotUser}})
}

// channelIDs returns the ids of all channels, sorted, so that lists and pages are stable. The caller holds mu.
func (s *Server) channelIDs() []string {
	ids := make([]string, 0, len(s.channels))
	for id := range s.channels {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (s *Server) isMember(c *channel, user string) bool {
	return c.Members == nil || slices.Contains(c.Members, user) || c.IM && user == s.cfg.BotUser
}

// visible says whether the bot can know that the channel exists.
func (s *Server) visible(c *channel) bool {
	public := !c.Private && !c.IM && !c.MPIM
	return public || s.isMember(c, s.cfg.BotUser)
}

// kind is the channel_type of message events, and the prefix of the scopes for it.
func (c *channel) kind() (channelType, scope string) {
	switch {
	case c.IM:
		return "im", "im"
	case c.MPIM:
		return "mpim", "mpim"
	case c.Private:
		return "group", "groups"
	default:
		return "channel", "channels"
	}
}

// thread returns the messages of a thread, root first. The caller holds mu.
func (c *channel) thread(root string) []*message {
	r := c.msgs[root]
	if r == nil {
		return nil
	}
	out := []*message{r}
	for _, ts := range r.replies {
		if m := c.msgs[ts]; m != nil {
			out = append(out, m)
		}
	}
	return out
}

// live returns a message that people can still see.
func (c *channel) live(ts string) *message {
	if m := c.msgs[ts]; m != nil && !m.Deleted {
		return m
	}
	return nil
}

// put stores a message; a reply is added to its root. The caller holds mu.
func (s *Server) put(c *channel, m *message) {
	m.Channel, m.created = c.ID, time.Now()
	if m.TS == "" {
		m.TS = s.newTS()
	}
	if m.ThreadTS != "" && m.ThreadTS != m.TS {
		root := c.msgs[m.ThreadTS]
		root.replies = append(root.replies, m.TS)
		root.ThreadTS, m.threadLocal = root.TS, true
		if m.BotID == s.cfg.BotID {
			delete(s.status, threadKey{c.ID, m.ThreadTS})
		}
	}
	c.msgs[m.TS] = m
	c.order = append(c.order, m.TS)
	for _, f := range m.Files {
		if st := s.files[f.ID]; st != nil {
			st.shares = append(st.shares, share{c.ID, m.TS, m.ThreadTS})
		}
	}
	s.bump()
}

// drop deletes a message as Slack does: a root with replies becomes a tombstone, so that its thread stays; anything else goes.
// It says whether a tombstone is left. The caller holds mu.
func (c *channel) drop(m *message) (tombstone bool) {
	m.Deleted, m.Streaming = true, false
	living := slices.ContainsFunc(m.replies, func(ts string) bool { return c.live(ts) != nil })
	if living {
		m.Text, m.Blocks, m.Attachments, m.Files, m.Metadata = "This message was deleted.", nil, nil, nil, nil
		m.Subtype, m.User, m.BotID = "tombstone", "USLACKBOT", ""
	}
	return living
}

// replyable returns the root of the thread that a post with this thread_ts lands in, or "" for the channel itself. A root that was
// deleted without replies, or that never was, does not fail the post: Slack silently posts to the channel instead (measured,
// slack-go/slack issue 1571). A reply's ts lands in its own thread; Slack advises against using one.
func (c *channel) replyable(threadTS string) string {
	m := c.msgs[threadTS]
	switch {
	case m == nil:
		return ""
	case m.threadLocal:
		return c.replyable(m.ThreadTS)
	case m.Deleted && m.Subtype != "tombstone":
		return ""
	default:
		return m.TS
	}
}

func (m *message) snapshot() Msg {
	out := m.Msg
	out.Files, out.Chunks, out.Reactions = slices.Clone(m.Files), slices.Clone(m.Chunks), slices.Clone(m.Reactions)
	return out
}

// Messages returns a thread, root first and then oldest first, with deleted messages marked. With threadTS "" it returns what
// stands in the channel itself: roots, and replies that were broadcast.
func (s *Server) Messages(channelID, threadTS string) []Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil {
		return nil
	}
	var out []Msg
	if threadTS != "" {
		for _, m := range c.thread(threadTS) {
			out = append(out, m.snapshot())
		}
		return out
	}
	for _, ts := range c.order {
		if m := c.msgs[ts]; !m.threadLocal || m.Broadcast {
			out = append(out, m.snapshot())
		}
	}
	return out
}

// Message returns one message.
func (s *Server) Message(channelID, ts string) (Msg, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelID]; c != nil && c.msgs[ts] != nil {
		return c.msgs[ts].snapshot(), true
	}
	return Msg{}, false
}

// Ephemerals returns what only this user was shown in a channel, oldest first.
func (s *Server) Ephemerals(channelID, user string) []Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Msg
	if c := s.channels[channelID]; c != nil {
		for i, m := range c.eph {
			if c.ephTo[i] == user && !m.Deleted {
				out = append(out, m)
			}
		}
	}
	return out
}

// Status returns the assistant status line of a thread, "" when there is none. It goes away when the bot posts in the thread, when
// it is set to "", and after two minutes.
func (s *Server) Status(channelID, threadTS string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l, ok := s.status[threadKey{channelID, threadTS}]; ok && time.Since(l.at) < statusLife {
		return l.text
	}
	return ""
}

// Session returns the status of a thread's agent session, "" when there is none.
func (s *Server) Session(channelID, threadTS string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[threadKey{channelID, threadTS}]
}

// ThreadTitle returns what assistant.threads.setTitle set.
func (s *Server) ThreadTitle(channelID, threadTS string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.titles[threadKey{channelID, threadTS}]
}

// SuggestedPrompts returns the prompts of an assistant thread as they were sent.
func (s *Server) SuggestedPrompts(channelID, threadTS string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prompts[threadKey{channelID, threadTS}]
}

// Permalink returns the link of a message, the same that chat.getPermalink answers.
func (s *Server) Permalink(channelID, ts string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.permalink(channelID, ts)
}

func (s *Server) permalink(channelID, ts string) string {
	link := s.teamURL() + "archives/" + channelID + "/p" + strings.ReplaceAll(ts, ".", "")
	if c := s.channels[channelID]; c != nil {
		if m := c.msgs[ts]; m != nil && m.threadLocal {
			link += fmt.Sprintf("?thread_ts=%s&cid=%s", m.ThreadTS, channelID)
		}
	}
	return link
}

// userJSON is a user object as users.info answers it.
func (s *Server) userJSON(u *User) map[string]any {
	return map[string]any{
		"id": u.ID, "team_id": u.Team, "name": u.Name, "real_name": u.Name, "deleted": u.Deleted, "tz": "Etc/UTC",
		"is_bot": u.Bot, "is_app_user": false, "is_restricted": u.Guest || u.UltraRestricted,
		"is_ultra_restricted": u.UltraRestricted, "is_stranger": u.Stranger, "is_admin": false, "is_owner": false, "updated": 1,
		"profile": map[string]any{"real_name": u.Name, "display_name": u.Name, "team": u.Team},
	}
}

// channelJSON is a conversation object as conversations.info answers it.
func (s *Server) channelJSON(c *channel) map[string]any {
	out := map[string]any{
		"id": c.ID, "created": c.created.Unix(), "is_archived": c.Archived, "is_im": c.IM, "is_org_shared": false,
		"context_team_id": s.cfg.Team, "updated": c.created.UnixMilli(),
	}
	if c.IM {
		for _, u := range c.Members {
			if u != s.cfg.BotUser {
				out["user"] = u
			}
		}
		out["is_open"] = true
		return out
	}
	out["name"], out["name_normalized"] = c.Name, c.Name
	out["is_channel"], out["is_group"], out["is_mpim"] = !c.Private && !c.MPIM, c.Private, c.MPIM
	out["is_private"], out["is_member"] = c.Private || c.MPIM, s.isMember(c, s.cfg.BotUser)
	out["is_ext_shared"], out["is_shared"] = c.ExtShared, c.ExtShared
	out["is_general"], out["creator"] = false, "U0"
	out["topic"] = map[string]any{"value": "", "creator": "", "last_set": 0}
	out["purpose"] = map[string]any{"value": "", "creator": "", "last_set": 0}
	return out
}

// messageJSON is a message object as the Web API and events carry it. Metadata is there only when asked for.
func (s *Server) messageJSON(c *channel, m *message, withMetadata bool) map[string]any {
	out := map[string]any{"type": "message", "text": m.Text, "ts": m.TS}
	set := func(k, v string) {
		if v != "" {
			out[k] = v
		}
	}
	set("user", m.User)
	set("subtype", m.Subtype)
	set("bot_id", m.BotID)
	set("client_msg_id", m.clientMsgID)
	set("thread_ts", m.ThreadTS)
	if u := s.users[m.User]; u != nil {
		out["team"] = u.Team
	}
	if m.BotID == s.cfg.BotID {
		out["app_id"] = s.cfg.AppID
		out["bot_profile"] = map[string]any{
			"id": s.cfg.BotID, "deleted": false, "name": "bot", "updated": 1, "app_id": s.cfg.AppID, "team_id": s.cfg.Team,
		}
	}
	if m.Blocks != nil {
		out["blocks"] = m.Blocks
	}
	if m.Attachments != nil {
		out["attachments"] = m.Attachments
	}
	if len(m.Files) > 0 {
		fs := make([]any, 0, len(m.Files))
		for _, f := range m.Files {
			if st := s.files[f.ID]; st != nil {
				fs = append(fs, s.fileJSON(st))
			}
		}
		out["files"], out["upload"] = fs, m.BotID == ""
	}
	if m.Edited {
		out["edited"] = map[string]any{"user": m.User, "ts": m.editedTS}
	}
	if m.Deleted {
		out["hidden"] = true
	}
	if withMetadata && m.Metadata != nil {
		out["metadata"] = m.Metadata
	}
	if len(m.Reactions) > 0 {
		rs := make([]any, 0, len(m.Reactions))
		for _, r := range m.Reactions {
			rs = append(rs, map[string]any{"name": r.Name, "users": r.Users, "count": len(r.Users)})
		}
		out["reactions"] = rs
	}
	switch {
	case m.threadLocal:
		if root := c.msgs[m.ThreadTS]; root != nil {
			out["parent_user_id"] = root.User
		}
	case len(m.replies) > 0:
		var users []string
		n, latest := 0, ""
		for _, ts := range m.replies {
			if r := c.live(ts); r != nil {
				n, latest = n+1, ts
				if !slices.Contains(users, r.User) {
					users = append(users, r.User)
				}
			}
		}
		out["reply_count"], out["reply_users"], out["reply_users_count"] = n, users, len(users)
		set("latest_reply", latest)
	}
	return out
}
