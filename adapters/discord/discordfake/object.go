package discordfake

import (
	"slices"
	"strings"
	"time"
)

// object is a JSON object.
type object = map[string]any

// always renders the same for every session.
func always(d object) func(*session) any { return func(*session) any { return d } }

// orNull is nil for "".
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// userJSON is a user object (spec: UserResponse).
func (s *Server) userJSON(id string) object {
	u := s.users[id]
	if u == nil {
		u = &User{ID: id, Name: "deleted_user"}
	}
	out := object{
		"id": u.ID, "username": u.Name, "discriminator": "0", "global_name": orNull(u.GlobalName), "avatar": nil,
		"public_flags": 0, "flags": 0, "primary_guild": nil,
	}
	if u.Bot {
		out["bot"], out["discriminator"] = true, "0001"
	}
	return out
}

// memberJSON is a guild member with its user (spec: GuildMemberResponse).
func (s *Server) memberJSON(g *guild, user string) object {
	out := s.partialMember(g, user)
	out["user"] = s.userJSON(user)
	return out
}

// partialMember is a guild member without its user, as messages carry it.
func (s *Server) partialMember(g *guild, user string) object {
	m := g.members[user]
	if m == nil {
		m = &member{}
	}
	return object{
		"roles": append([]string{}, m.roles...), "nick": orNull(m.nick), "avatar": nil, "banner": nil,
		"communication_disabled_until": nil, "flags": 0, "joined_at": stamp(m.joined), "pending": false, "premium_since": nil,
		"mute": false, "deaf": false,
	}
}

func (g *guild) roleJSON(r *Role) object {
	out := object{
		"id": r.ID, "name": r.Name, "permissions": permText(r.Permissions), "position": slices.Index(g.roles, r), "color": 0,
		"colors": object{"primary_color": 0, "secondary_color": nil, "tertiary_color": nil}, "hoist": false, "managed": r.Managed,
		"mentionable": false, "icon": nil, "unicode_emoji": nil, "flags": 0,
	}
	return out
}

func (g *guild) rolesJSON() []any {
	out := []any{}
	for _, r := range g.roles {
		out = append(out, g.roleJSON(r))
	}
	return out
}

// guildJSON is a guild object (spec: GuildResponse).
func (s *Server) guildJSON(g *guild) object {
	return object{
		"id": g.id, "name": g.name, "icon": nil, "description": nil, "home_header": nil, "splash": nil, "discovery_splash": nil,
		"features": []any{}, "banner": nil, "owner_id": g.owner, "application_id": nil, "region": "deprecated",
		"afk_channel_id": nil, "afk_timeout": 300, "system_channel_id": nil, "system_channel_flags": 0, "widget_enabled": false,
		"widget_channel_id": nil, "verification_level": 0, "roles": g.rolesJSON(), "default_message_notifications": 1,
		"mfa_level": 0, "explicit_content_filter": 0, "max_presences": nil, "max_members": 500000,
		"max_stage_video_channel_users": 50, "max_video_channel_users": 25, "vanity_url_code": nil, "premium_tier": 0,
		"premium_subscription_count": 0, "preferred_locale": "en-US", "rules_channel_id": nil, "safety_alerts_channel_id": nil,
		"public_updates_channel_id": nil, "premium_progress_bar_enabled": false, "nsfw": false, "nsfw_level": 0, "emojis": []any{},
		"stickers": []any{}, "incidents_data": nil,
	}
}

// guildCreate is the object of GUILD_CREATE: the guild with its channels, and the active threads that the bot can see. Members are
// the bot alone without GUILD_PRESENCES or GUILD_MEMBERS (docs: "Gateway Events", Guild Create).
func (s *Server) guildCreate(g *guild) func(*session) any {
	return func(k *session) any {
		out := s.guildJSON(g)
		channels, threads, members := []any{}, []any{}, []any{}
		for _, c := range s.sortedChannels() {
			switch {
			case c.Guild != g.id:
			case c.thread == nil:
				channels = append(channels, s.channelJSON(c))
			case !c.thread.Archived && s.can(c, s.cfg.BotID, PermViewChannel):
				threads = append(threads, s.channelJSON(c))
			}
		}
		for _, u := range s.memberIDs(g) {
			if u == s.cfg.BotID || k.intents&(IntentGuildMembers|IntentGuildPresences) != 0 {
				members = append(members, s.memberJSON(g, u))
			}
		}
		out["channels"], out["threads"], out["members"] = channels, threads, members
		out["joined_at"], out["large"], out["member_count"] = stamp(g.joined), false, len(g.members)
		for _, empty := range []string{"voice_states", "presences", "stage_instances", "guild_scheduled_events", "soundboard_sounds"} {
			out[empty] = []any{}
		}
		return out
	}
}

func (s *Server) memberIDs(g *guild) []string {
	var out []string
	for u := range g.members {
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b string) int { return strings.Compare(a, b) })
	return out
}

func (s *Server) sortedChannels() []*channel {
	out := make([]*channel, 0, len(s.channels))
	for _, c := range s.channels {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *channel) int {
		if less(a.ID, b.ID) {
			return -1
		}
		return 1
	})
	return out
}

// channelJSON is a channel object (spec: GuildChannelResponse, PrivateChannelResponse, ThreadResponse).
func (s *Server) channelJSON(c *channel) object {
	out := object{"id": c.ID, "type": c.Type, "flags": 0, "last_message_id": orNull(c.last())}
	switch {
	case c.Type == TypeDM:
		out["recipients"] = []any{s.userJSON(c.Recipient)}
		return out
	case c.thread != nil:
		t := c.thread
		out["guild_id"], out["parent_id"], out["name"], out["owner_id"] = c.Guild, c.Parent, c.Name, t.Owner
		out["rate_limit_per_user"], out["bitrate"], out["user_limit"], out["rtc_region"] = 0, 64000, 0, nil
		out["thread_metadata"] = object{
			"archived": t.Archived, "locked": t.Locked, "auto_archive_duration": t.AutoArchive,
			"archive_timestamp": stamp(t.archivedAt), "create_timestamp": stamp(Created(c.ID)),
		}
		n := 0
		for _, m := range c.msgs {
			if !m.deleted && m.Ephemeral == "" && m.Type != MessageThreadStarter {
				n++
			}
		}
		// docs ("Threads"): deleting lowers message_count but not total_message_sent; member_count stops at 50.
		out["message_count"], out["total_message_sent"], out["member_count"] = n, t.sent, min(len(t.members), 50)
		if _, in := t.members[s.cfg.BotID]; in {
			out["member"] = s.threadMember(c, s.cfg.BotID)
		}
		return out
	}
	over := []any{}
	for _, o := range c.Overwrites {
		id, kind := o.Role, 0
		if o.User != "" {
			id, kind = o.User, 1
		}
		over = append(over, object{"id": id, "type": kind, "allow": permText(o.Allow), "deny": permText(o.Deny)})
	}
	out["guild_id"], out["name"], out["position"], out["parent_id"], out["topic"] = c.Guild, c.Name, 0, nil, nil
	out["permission_overwrites"], out["nsfw"], out["rate_limit_per_user"] = over, false, 0
	return out
}

func (c *channel) last() string {
	for _, id := range slices.Backward(c.order) {
		if m := c.msgs[id]; m.Ephemeral == "" {
			return id
		}
	}
	return ""
}

func (s *Server) threadMember(c *channel, user string) object {
	return object{"id": c.ID, "user_id": user, "join_timestamp": stamp(c.thread.members[user]), "flags": 0}
}

// fileJSON is an attachment object (spec: MessageAttachmentResponse).
func (s *Server) fileJSON(f *file) object {
	link := s.base + "/attachments/" + f.channel + "/" + f.ID + "/" + urlSafe(f.Filename)
	out := object{
		"id": f.ID, "filename": f.Filename, "size": f.Size, "url": link, "proxy_url": link, "content_type": f.ContentType,
	}
	if f.Description != "" {
		out["description"] = f.Description
	}
	return out
}

// messageJSON is a message object (spec: MessageResponse). Without content, what people wrote is empty: the app lacks
// MESSAGE_CONTENT for it (docs: "Gateway", message content intent).
func (s *Server) messageJSON(m *message, content bool) object {
	users, roles := []any{}, append([]string{}, m.MentionRoles...)
	for _, u := range m.Mentions {
		users = append(users, s.userJSON(u))
	}
	out := object{
		"id": m.ID, "channel_id": m.Channel, "author": s.userJSON(m.Author), "type": m.Type, "content": "", "mentions": users,
		"mention_roles": roles, "mention_everyone": m.Everyone, "attachments": []any{}, "embeds": []any{}, "components": []any{},
		"timestamp": stamp(Created(m.ID)), "edited_timestamp": nil, "flags": m.Flags, "pinned": false, "tts": false,
	}
	if content {
		files := []any{}
		for _, f := range m.files {
			files = append(files, s.fileJSON(f))
		}
		out["content"], out["attachments"] = m.Content, files
		if m.Flags&FlagSuppressEmbeds == 0 {
			out["embeds"] = append([]any{}, m.embeds...)
		}
		out["components"] = append([]any{}, m.components...)
	}
	if m.Edited {
		out["edited_timestamp"] = stamp(m.edited)
	}
	if m.Nonce != "" {
		out["nonce"] = m.Nonce
	}
	if m.Author == s.cfg.BotID {
		out["application_id"] = s.cfg.AppID
	}
	if t := s.channels[m.Thread]; m.Thread != "" && t != nil {
		out["thread"] = s.channelJSON(t)
	}
	c := s.channels[m.Channel]
	switch {
	case m.Type == MessageThreadStarter && c != nil:
		out["message_reference"] = object{"type": 0, "channel_id": c.Parent, "message_id": m.Reply, "guild_id": c.Guild}
		out["content"] = ""
		if p := s.channels[c.Parent]; p != nil && p.live(m.Reply) != nil {
			out["referenced_message"] = s.messageJSON(p.msgs[m.Reply], s.readable(p, p.msgs[m.Reply]) || content)
			delete(out["referenced_message"].(object), "thread")
		} else {
			out["referenced_message"] = nil
		}
	case m.Type == MessageReply && c != nil:
		ref := object{"type": 0, "channel_id": m.Channel, "message_id": m.Reply}
		if m.Guild != "" {
			ref["guild_id"] = m.Guild
		}
		out["message_reference"], out["referenced_message"] = ref, nil
		if r := c.live(m.Reply); r != nil {
			to := s.messageJSON(r, content || s.readable(c, r))
			delete(to, "referenced_message") // docs: one level only
			out["referenced_message"] = to
		}
	}
	if f := m.forwarded; f != nil {
		// The snapshot has a part of the message alone, without who wrote it (docs: "Message Snapshot Object"). Discord's
		// type is 1 (docs: "Message Reference Types"), which its published schema doesn't have.
		whole, part := s.messageJSON(f, content), object{}
		for _, name := range []string{"type", "content", "embeds", "attachments", "timestamp", "edited_timestamp", "flags", "mentions", "mention_roles", "components"} {
			part[name] = whole[name]
		}
		ref := object{"type": 0, "channel_id": f.Channel, "message_id": f.ID}
		if f.Guild != "" {
			ref["guild_id"] = f.Guild
		}
		out["message_reference"], out["message_snapshots"] = ref, []any{object{"message": part}}
	}
	if m.inter != nil && m.Interaction != "" {
		out["webhook_id"] = s.cfg.AppID
		out["interaction_metadata"] = s.interactionMetadata(m.inter)
	}
	return out
}

// readable says whether the app may read what a message contains without MESSAGE_CONTENT: its own messages, direct messages,
// and messages that mention it (docs: "Gateway", message content intent).
func (s *Server) readable(c *channel, m *message) bool {
	return m.Author == s.cfg.BotID || c.Type == TypeDM || slices.Contains(m.Mentions, s.cfg.BotID)
}

// messageEvent is a message as the gateway carries it, with the fields that only events have.
func (s *Server) messageEvent(c *channel, m *message) func(*session) any {
	return func(k *session) any {
		out := s.messageJSON(m, k.intents&IntentMessageContent != 0 || s.readable(c, m))
		out["channel_type"] = c.Type
		if g := s.guilds[c.Guild]; g != nil {
			out["guild_id"] = g.id
			if g.members[m.Author] != nil && out["webhook_id"] == nil {
				out["member"] = s.partialMember(g, m.Author)
			}
			for _, u := range out["mentions"].([]any) {
				o := u.(object)
				if id := o["id"].(string); g.members[id] != nil {
					o["member"] = s.partialMember(g, id)
				}
			}
		}
		return out
	}
}

// applicationJSON is the application (spec: PrivateApplicationResponse).
func (s *Server) applicationJSON() object {
	n := 0
	for _, g := range s.guilds {
		if !g.gone {
			n++
		}
	}
	out := object{
		"id": s.cfg.AppID, "name": s.cfg.BotName, "icon": nil, "description": "", "type": nil, "verify_key": s.verify,
		"flags": s.applicationFlags(), "flags_new": permText(uint64(s.applicationFlags())), //nolint:gosec // A few bits.
		"bot": s.userJSON(s.cfg.BotID), "bot_public": !s.cfg.Private, "bot_require_code_grant": false, "redirect_uris": []any{},
		"interactions_endpoint_url":         orNull(s.cfg.InteractionsEndpoint),
		"role_connections_verification_url": nil, "owner": s.userJSON(s.owner), "approximate_guild_count": n,
		"approximate_user_install_count": 0, "approximate_user_authorization_count": 0, "explicit_content_filter": 0, "team": nil,
		"eligible_oauth2_scopes": []any{},
	}
	return out
}

// applicationFlags are the "limited" flags of switched-on intents, which an app in fewer than 100 guilds has (docs: "Application").
func (s *Server) applicationFlags() int {
	f := 0
	for intent, flag := range map[int]int{IntentGuildPresences: 1 << 13, IntentGuildMembers: 1 << 15, IntentMessageContent: 1 << 19} {
		if s.cfg.Privileged&intent != 0 {
			f |= flag
		}
	}
	return f
}

func until(d time.Duration) float64 { return float64(max(d, 0).Milliseconds()) / 1000 }

func urlSafe(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		default:
			return '_'
		}
	}, name)
}
