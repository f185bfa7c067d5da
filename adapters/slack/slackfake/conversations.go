package slackfake

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// find returns a channel that the bot may know of, by id, by a user's id (the direct channel with that user) or by #name.
func (s *Server) find(id string) *channel {
	if c := s.channels[id]; c != nil {
		if s.visible(c) {
			return c
		}
		return nil
	}
	if s.users[id] != nil && id != s.cfg.BotUser {
		return s.dm(id)
	}
	name, found := strings.CutPrefix(id, "#")
	if !found {
		return nil
	}
	for _, cid := range s.channelIDs() {
		if c := s.channels[cid]; c.Name == name && s.visible(c) {
			return c
		}
	}
	return nil
}

// reader returns the channel of a reading method, which must be one that the bot is in.
func (s *Server) reader(r *request) (*channel, string) {
	c := s.channels[r.str("channel")]
	switch {
	case c == nil || !s.visible(c):
		return nil, "channel_not_found"
	case !s.isMember(c, s.cfg.BotUser):
		return nil, "not_in_channel"
	default:
		return c, ""
	}
}

func (s *Server) conversationsInfo(r *request) reply {
	c := s.channels[r.str("channel")]
	if c == nil || !s.visible(c) {
		return fail("channel_not_found")
	}
	out := s.channelJSON(c)
	if r.on("include_num_members") {
		out["num_members"] = len(s.membersOf(c))
	}
	return ok(map[string]any{"channel": out})
}

func (s *Server) membersOf(c *channel) []string {
	if c.Members != nil {
		return c.Members
	}
	return slices.Sorted(maps.Keys(s.users))
}

func (s *Server) conversationsMembers(r *request) reply {
	c := s.channels[r.str("channel")]
	if c == nil || !s.visible(c) {
		return fail("channel_not_found")
	}
	part, next, bad := page(r, s.membersOf(c), 100, 1000)
	if bad != "" {
		return fail(bad)
	}
	return withCursor(map[string]any{"members": nonNil(part)}, next)
}

func (s *Server) conversationsList(r *request) reply {
	types := []string{"public_channel"}
	if v := r.str("types"); v != "" {
		types = strings.Split(v, ",")
	}
	wanted := map[string]bool{}
	for _, t := range types {
		kind, known := map[string]string{
			"public_channel": "channels", "private_channel": "groups", "im": "im", "mpim": "mpim",
		}[strings.TrimSpace(t)]
		if !known {
			return fail("invalid_types")
		}
		if !s.granted(kind + ":read") {
			return s.missingScope(kind + ":read")
		}
		wanted[kind] = true
	}
	var all []*channel
	for _, id := range s.channelIDs() {
		c := s.channels[id]
		_, kind := c.kind()
		if wanted[kind] && s.visible(c) && (!c.Archived || !r.on("exclude_archived")) {
			all = append(all, c)
		}
	}
	part, next, bad := page(r, all, 100, 999)
	if bad != "" {
		return fail(bad)
	}
	out := make([]any, 0, len(part))
	for _, c := range part {
		out = append(out, s.channelJSON(c))
	}
	return withCursor(map[string]any{"channels": out}, next)
}

func (s *Server) conversationsOpen(r *request) reply {
	var c *channel
	switch users := strings.FieldsFunc(r.str("users"), func(x rune) bool { return x == ',' || x == ' ' }); {
	case r.str("channel") != "":
		if c = s.channels[r.str("channel")]; c == nil || !s.visible(c) {
			return fail("channel_not_found")
		}
		if !c.IM && !c.MPIM {
			return fail("method_not_supported_for_channel_type")
		}
	case len(users) == 0:
		return fail("users_list_not_supplied")
	case len(users) > 8:
		return fail("too_many_users")
	default:
		for _, u := range users {
			if s.users[u] == nil {
				return fail("user_not_found")
			}
			if s.users[u].Deleted {
				return fail("user_disabled")
			}
			if u == s.cfg.BotUser {
				return fail("cannot_dm_bot")
			}
		}
		if len(users) == 1 {
			c = s.dm(users[0])
			break
		}
		slices.Sort(users)
		id := "G" + strings.Join(users, "")
		if c = s.channels[id]; c == nil {
			c = s.addChannel(Channel{ID: id, MPIM: true, Members: append(users, s.cfg.BotUser)})
		}
	}
	out := map[string]any{"id": c.ID}
	if r.on("return_im") {
		out = s.channelJSON(c)
	}
	return ok(map[string]any{"channel": out})
}

// stamps reads oldest and latest, which exclude their own timestamps unless inclusive is set.
func stamps(r *request) (within func(ts string) bool, bad string) {
	oldest, latest := r.str("oldest"), r.str("latest")
	for _, x := range []struct{ v, code string }{{oldest, "invalid_ts_oldest"}, {latest, "invalid_ts_latest"}} {
		if _, err := strconv.ParseFloat(x.v, 64); x.v != "" && err != nil {
			return nil, x.code
		}
	}
	inclusive := r.on("inclusive")
	return func(ts string) bool {
		if oldest != "" && oldest != "0" {
			if c := compareTS(ts, oldest); c < 0 || c == 0 && !inclusive {
				return false
			}
		}
		if latest != "" && latest != "now" {
			if c := compareTS(ts, latest); c > 0 || c == 0 && !inclusive {
				return false
			}
		}
		return true
	}, ""
}

// compareTS compares two timestamps as numbers with up to six decimals.
func compareTS(a, b string) int {
	norm := func(ts string) (string, string) {
		sec, frac, _ := strings.Cut(ts, ".")
		sec = strings.TrimLeft(sec, "0")
		return strings.Repeat("0", max(0, 20-len(sec))) + sec, (frac + "000000")[:6]
	}
	as, af := norm(a)
	bs, bf := norm(b)
	return strings.Compare(as+af, bs+bf)
}

// conversationsHistory answers what stands in the channel itself, newest first.
func (s *Server) conversationsHistory(r *request) reply {
	c, bad := s.reader(r)
	if bad != "" {
		return fail(bad)
	}
	within, bad := stamps(r)
	if bad != "" {
		return fail(bad)
	}
	var all []*message
	for _, ts := range c.order {
		m := c.msgs[ts]
		if (!m.threadLocal || m.Broadcast) && (!m.Deleted || m.Subtype == "tombstone") && within(ts) {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b *message) int { return compareTS(b.TS, a.TS) })
	part, next, bad := page(r, all, 100, 999)
	if bad != "" {
		return fail(bad)
	}
	out := make([]any, 0, len(part))
	for _, m := range part {
		out = append(out, s.messageJSON(c, m, r.on("include_all_metadata")))
	}
	return withCursor(map[string]any{"messages": out, "has_more": next != "", "pin_count": 0}, next)
}

// conversationsReplies answers a thread, oldest first. The root is on every page, whatever oldest and latest say. A reply's ts gives
// only that reply: it is an existing message with no replies (docs: conversations.replies, argument ts).
func (s *Server) conversationsReplies(r *request) reply {
	c, bad := s.reader(r)
	if bad != "" {
		return fail(bad)
	}
	within, bad := stamps(r)
	if bad != "" {
		return fail(bad)
	}
	root := c.msgs[r.str("ts")]
	if root == nil || root.Deleted && root.Subtype != "tombstone" {
		return fail("thread_not_found")
	}
	withMeta := r.on("include_all_metadata")
	var replies []*message
	for _, ts := range root.replies {
		if m := c.live(ts); m != nil && within(ts) {
			replies = append(replies, m)
		}
	}
	slices.SortStableFunc(replies, func(a, b *message) int { return compareTS(a.TS, b.TS) })
	part, next, bad := page(r, replies, 1000, 1000)
	if bad != "" {
		return fail(bad)
	}
	out := []any{s.messageJSON(c, root, withMeta)}
	for _, m := range part {
		out = append(out, s.messageJSON(c, m, withMeta))
	}
	return withCursor(map[string]any{"messages": out, "has_more": next != ""}, next)
}

func (s *Server) getPermalink(r *request) reply {
	c := s.channels[r.str("channel")]
	if c == nil || !s.visible(c) {
		return fail("channel_not_found")
	}
	if c.live(r.str("message_ts")) == nil {
		return fail("message_not_found")
	}
	return ok(map[string]any{"channel": c.ID, "permalink": s.permalink(c.ID, r.str("message_ts"))})
}

// reacted returns the message that a reaction method means, and the emoji's name.
func (s *Server) reacted(r *request) (*message, string, string) {
	c, bad := s.reader(r)
	if bad != "" {
		return nil, "", bad
	}
	name := strings.Trim(r.str("name"), ":")
	if name == "" || strings.ContainsAny(name, " <>&") {
		return nil, "", "invalid_name"
	}
	if r.str("timestamp") == "" {
		return nil, "", "no_item_specified"
	}
	m := c.live(r.str("timestamp"))
	if m == nil {
		return nil, "", "message_not_found"
	}
	return m, name, ""
}

func (s *Server) reactionsAdd(r *request) reply {
	m, name, bad := s.reacted(r)
	if bad != "" {
		return fail(bad)
	}
	for i := range m.Reactions {
		if m.Reactions[i].Name == name {
			if slices.Contains(m.Reactions[i].Users, s.cfg.BotUser) {
				return fail("already_reacted")
			}
			m.Reactions[i].Users = append(slices.Clone(m.Reactions[i].Users), s.cfg.BotUser)
			return ok(nil)
		}
	}
	m.Reactions = append(m.Reactions, Reaction{Name: name, Users: []string{s.cfg.BotUser}})
	return ok(nil)
}

func (s *Server) reactionsRemove(r *request) reply {
	m, name, bad := s.reacted(r)
	if bad != "" {
		return fail(bad)
	}
	for i := range m.Reactions {
		if at := slices.Index(m.Reactions[i].Users, s.cfg.BotUser); m.Reactions[i].Name == name && at >= 0 {
			rest := slices.Delete(slices.Clone(m.Reactions[i].Users), at, at+1)
			if m.Reactions[i].Users = rest; len(rest) == 0 {
				m.Reactions = slices.Delete(slices.Clone(m.Reactions), i, i+1)
			}
			return ok(nil)
		}
	}
	return fail("no_reaction")
}

// agentThread returns the thread that an assistant method means.
func (s *Server) agentThread(r *request) (threadKey, string) {
	c := s.channels[r.str("channel_id")]
	if c == nil || !s.isMember(c, s.cfg.BotUser) {
		return threadKey{}, "channel_not_found"
	}
	if m := c.live(r.str("thread_ts")); m == nil || m.threadLocal {
		return threadKey{}, "invalid_thread_ts"
	}
	return threadKey{c.ID, r.str("thread_ts")}, ""
}
