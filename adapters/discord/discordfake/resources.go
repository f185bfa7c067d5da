package discordfake

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (s *Server) getGateway(*request) reply { return ok(object{"url": s.gatewayURL()}) }

func (s *Server) getGatewayBot(*request) reply {
	left := max(s.remaining(), 0)
	reset := time.Duration(0)
	if len(s.identifies) > 0 {
		reset = s.identifies[0].Add(24 * time.Hour).Sub(s.now())
	}
	return ok(object{
		"url": s.gatewayURL(), "shards": s.cfg.Shards,
		"session_start_limit": object{
			"total": s.cfg.SessionLimit, "remaining": left, "reset_after": reset.Milliseconds(), "max_concurrency": s.cfg.MaxConcurrency,
		},
	})
}

// selfJSON is the bot as it sees itself (spec: UserPIIResponse).
func (s *Server) selfJSON() object {
	out := s.userJSON(s.cfg.BotID)
	out["mfa_enabled"], out["locale"], out["verified"], out["email"] = true, "en-US", true, nil
	return out
}

func (s *Server) getSelf(*request) reply { return ok(s.selfJSON()) }

func (s *Server) getUser(r *request) reply {
	if s.users[r.params["user_id"]] == nil {
		return unknown("User", 10013)
	}
	return ok(s.userJSON(r.params["user_id"]))
}

func (s *Server) getApplication(*request) reply { return ok(s.applicationJSON()) }

func (s *Server) listGuilds(*request) reply {
	out := []any{}
	for _, id := range slices.Sorted(maps.Keys(s.guilds)) {
		if g := s.guilds[id]; !g.gone {
			out = append(out, object{
				"id": g.id, "name": g.name, "icon": nil, "banner": nil, "owner": g.owner == s.cfg.BotID,
				"permissions": permText(g.basePerms(s.cfg.BotID)), "features": []any{},
			})
		}
	}
	return ok(out)
}

// openDM opens a direct channel (docs: "User", create DM).
func (s *Server) openDM(r *request) reply {
	o, isObject := r.object()
	f := newForm(o)
	to := f.snowflake("recipient_id")
	switch {
	case !isObject || to == "":
		f.bad("recipient_id", "BASE_TYPE_REQUIRED", "This field is required")
		return f.reply()
	case f.any():
		return f.reply()
	case s.users[to] == nil:
		return unknown("User", 10013)
	case s.users[to].Bot:
		return refuse(http.StatusBadRequest, 50007, "Cannot send messages to this user")
	}
	return ok(s.channelJSON(s.dm(to)))
}

// botGuild is a guild that the bot is in.
func (s *Server) botGuild(r *request) (*guild, *reply) {
	g := s.guilds[r.params["guild_id"]]
	if g == nil || g.gone {
		rep := unknown("Guild", 10004)
		return nil, &rep
	}
	return g, nil
}

func (s *Server) getGuild(r *request) reply {
	g, no := s.botGuild(r)
	if no != nil {
		return *no
	}
	out := s.guildJSON(g)
	if r.query.Get("with_counts") == "true" {
		out["approximate_member_count"], out["approximate_presence_count"] = len(g.members), len(g.members)
	}
	return ok(out)
}

// guildChannels lists channels without threads (docs: "Guild"), those that the bot does not see too: the docs know no exception.
func (s *Server) guildChannels(r *request) reply {
	g, no := s.botGuild(r)
	if no != nil {
		return *no
	}
	out := []any{}
	for _, c := range s.sortedChannels() {
		if c.Guild == g.id && c.thread == nil {
			out = append(out, s.channelJSON(c))
		}
	}
	return ok(out)
}

func (s *Server) guildRoles(r *request) reply {
	g, no := s.botGuild(r)
	if no != nil {
		return *no
	}
	return ok(g.rolesJSON())
}

func (s *Server) getMember(r *request) reply {
	g, no := s.botGuild(r)
	switch {
	case no != nil:
		return *no
	case s.users[r.params["user_id"]] == nil:
		return unknown("User", 10013)
	case g.members[r.params["user_id"]] == nil:
		return unknown("Member", 10007)
	}
	return ok(s.memberJSON(g, r.params["user_id"]))
}

// seen is a channel that the bot can see.
func (s *Server) seen(r *request) (*channel, *reply) {
	c := s.channels[r.params["channel_id"]]
	var rep reply
	switch {
	case c == nil:
		rep = unknownChannel()
	case !s.can(c, s.cfg.BotID, PermViewChannel):
		rep = missingAccess()
	default:
		return c, nil
	}
	return nil, &rep
}

func (s *Server) getChannel(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	return ok(s.channelJSON(c))
}

func autoArchive(f *form) int { return f.choice("auto_archive_duration", false, 60, 1440, 4320, 10080) }

// patchChannel changes a thread (docs: "Threads", editing and deleting; "Channel", modify channel). Other channels are not changed
// by a bot that only talks, so that answers 50013 without MANAGE_CHANNELS and 501 with it.
func (s *Server) patchChannel(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	o, isObject := r.object()
	f := newForm(o)
	if !isObject {
		f.bad("", "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
		return f.reply()
	}
	if c.thread == nil {
		if c.Type == TypeDM {
			return refuse(http.StatusForbidden, 50003, "Cannot execute action on a DM channel")
		}
		if !s.can(c, s.cfg.BotID, PermManageChannels) {
			return missingPermissions()
		}
		return notPlayed("changes of channels that are no threads")
	}
	name := f.text("name", 0, 100)
	if f.has("name") && name == "" {
		f.bad("name", "BASE_TYPE_BAD_LENGTH", "Must be between 1 and 100 in length.")
	}
	minutes, archive, lock := autoArchive(f), f.bool("archived"), f.bool("locked")
	f.int("rate_limit_per_user", 0, 21600)
	if f.any() {
		return f.reply()
	}
	t := c.thread
	manages := s.can(c, s.cfg.BotID, PermManageThreads)
	_, in := t.members[s.cfg.BotID]
	changes := f.has("name") || f.has("auto_archive_duration") || f.has("archived") && archive
	switch {
	case (f.has("locked") || f.has("rate_limit_per_user") || f.has("invitable")) && !manages:
		return missingPermissions()
	case changes && !manages && t.Owner != s.cfg.BotID:
		return missingPermissions()
	case f.has("archived") && !archive && t.Archived && !manages && (t.Locked || !in && !s.can(c, s.cfg.BotID, PermSendInThreads)):
		// docs ("Channel"): un-archiving needs only SEND_MESSAGES_IN_THREADS when the thread is not locked.
		return missingPermissions()
	case t.Archived && (!f.has("archived") || archive):
		// docs ("Channel"): the thread has to be active, or be made active in the same request
		// (discord/discord-api-docs issue 6928).
		return archived()
	case t.Locked && !manages && changes:
		return missingPermissions()
	}
	if f.has("name") {
		c.Name = name
	}
	if f.has("auto_archive_duration") {
		t.AutoArchive, t.archivedAt = minutes, s.now()
	}
	if f.has("locked") {
		t.Locked = lock
	}
	if f.has("archived") {
		s.setArchived(c, archive)
	}
	s.threadUpdated(c)
	return ok(s.channelJSON(c))
}

// notPlayed is 501, which Discord never answers: a test that meets it needs more of this server.
func notPlayed(what string) reply {
	return refuse(http.StatusNotImplemented, 0, "discordfake does not play "+what)
}

func (s *Server) deleteChannel(r *request) reply {
	c, no := s.seen(r)
	switch {
	case no != nil:
		return *no
	case c.thread == nil:
		return notPlayed("deleting channels that are no threads")
	case !s.can(c, s.cfg.BotID, PermManageThreads):
		return missingPermissions()
	}
	d := s.channelJSON(c)
	s.dropThread(c)
	return ok(d)
}

// threadForm reads what both ways of starting a thread share.
func (s *Server) threadForm(r *request, c *channel) (f *form, name string, minutes int, no *reply) {
	o, isObject := r.object()
	f = newForm(o)
	if !isObject {
		f.bad("", "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
	}
	name, minutes = f.text("name", 1, 100), autoArchive(f)
	f.int("rate_limit_per_user", 0, 21600)
	if minutes == 0 {
		minutes = 4320 // The docs name a default of the channel's; without one clients show three days.
	}
	var rep reply
	switch {
	case c.Type != TypeText:
		rep = refuse(http.StatusBadRequest, 50024, "Cannot execute action on this channel type")
	case f.any():
		rep = f.reply()
	default:
		return f, name, minutes, nil
	}
	return f, name, minutes, &rep
}

// threadFromMessage starts a thread (docs: "Channel", start thread from message).
func (s *Server) threadFromMessage(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	_, name, minutes, no := s.threadForm(r, c)
	if no != nil {
		return *no
	}
	m := c.live(r.params["message_id"])
	switch {
	case !s.can(c, s.cfg.BotID, PermCreatePublicThreads):
		return missingPermissions()
	case m == nil || m.Ephemeral != "":
		return unknownMessage()
	case m.Thread != "":
		return refuse(http.StatusBadRequest, 160004, "A thread has already been created for this message")
	}
	t := s.threadFrom(c, m, s.cfg.BotID, name, minutes)
	return reply{status: http.StatusCreated, body: s.channelJSON(t)}
}

// threadWithoutMessage starts a thread (docs: "Channel", start thread without message): a private one unless type says otherwise.
func (s *Server) threadWithoutMessage(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	f, name, minutes, no := s.threadForm(r, c)
	if no != nil {
		return *no
	}
	kind, need := TypePrivateThread, PermCreatePrivateThreads
	if f.has("type") {
		kind = f.choice("type", false, TypePublicThread, TypePrivateThread)
	}
	if kind == TypePublicThread {
		need = PermCreatePublicThreads
	}
	switch {
	case f.any():
		return f.reply()
	case !s.can(c, s.cfg.BotID, need):
		return missingPermissions()
	}
	t := s.newThread(s.newID(), c, kind, s.cfg.BotID, name, minutes)
	return reply{status: http.StatusCreated, body: s.channelJSON(t)}
}

func (s *Server) threadsJSON(threads []*channel, more bool) reply {
	all, members := []any{}, []any{}
	for _, t := range threads {
		all = append(all, s.channelJSON(t))
		if _, in := t.thread.members[s.cfg.BotID]; in {
			members = append(members, s.threadMember(t, s.cfg.BotID))
		}
	}
	return ok(object{"threads": all, "members": members, "has_more": more})
}

// archivedThreads lists public archived threads, the last archived first (docs: "Channel").
func (s *Server) archivedThreads(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	if !s.can(c, s.cfg.BotID, PermReadMessageHistory) {
		return missingAccess()
	}
	var before time.Time
	if b := r.query.Get("before"); b != "" {
		var err error
		if before, err = time.Parse(time.RFC3339Nano, b); err != nil {
			p := &problems{}
			p.add("before", "DATE_TIME_TYPE_PARSE", "Could not parse %s. Should be ISO8601.", b)
			return p.reply()
		}
	}
	var all []*channel
	for _, t := range s.sortedChannels() {
		if t.Parent == c.ID && t.Type == TypePublicThread && t.thread.Archived && (before.IsZero() || t.thread.archivedAt.Before(before)) {
			all = append(all, t)
		}
	}
	slices.SortStableFunc(all, func(a, b *channel) int { return b.thread.archivedAt.Compare(a.thread.archivedAt) })
	limit, err := strconv.Atoi(r.query.Get("limit"))
	if err != nil || limit < 2 || limit > 100 {
		limit = 50
	}
	n := min(limit, len(all))
	return s.threadsJSON(all[:n], n < len(all))
}

func (s *Server) activeThreads(r *request) reply {
	g, no := s.botGuild(r)
	if no != nil {
		return *no
	}
	var all []*channel
	for _, t := range slices.Backward(s.sortedChannels()) { // docs: ordered by id, descending
		if t.Guild == g.id && t.thread != nil && !t.thread.Archived && s.can(t, s.cfg.BotID, PermViewChannel) {
			all = append(all, t)
		}
	}
	return s.threadsJSON(all, false)
}

func (s *Server) joinThread(r *request) reply {
	c, no := s.seen(r)
	switch {
	case no != nil:
		return *no
	case c.thread == nil:
		return refuse(http.StatusBadRequest, 50024, "Cannot execute action on this channel type")
	case c.thread.Archived:
		return archived()
	}
	s.join(c, s.cfg.BotID)
	return done()
}

func (s *Server) leaveThread(r *request) reply {
	c, no := s.seen(r)
	switch {
	case no != nil:
		return *no
	case c.thread == nil:
		return refuse(http.StatusBadRequest, 50024, "Cannot execute action on this channel type")
	case c.thread.Archived:
		return archived()
	}
	delete(c.thread.members, s.cfg.BotID)
	s.bump()
	return done()
}

func (s *Server) startTyping(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	if no := s.mayPost(c); no != nil {
		return *no
	}
	s.typing[c.ID] = s.now()
	s.bump()
	return done()
}

// command is a registered application command.
type command struct {
	ID, Name, Guild string
	Kind            int
	o               object
	options         []any
}

var commandName = regexp.MustCompile(`^[-_'\p{L}\p{N}\p{Devanagari}\p{Thai}]{1,32}$`)

const maxCommands = 100 // global chat commands, and as many in a guild (docs: "Application Commands")

func (s *Server) listCommands(r *request) reply {
	if no := s.ownApp(r); no != nil {
		return *no
	}
	out := []any{}
	for _, c := range s.commands[r.params["guild_id"]] {
		out = append(out, c.o)
	}
	return ok(out)
}

func (s *Server) ownApp(r *request) *reply {
	var rep reply
	switch g := r.params["guild_id"]; {
	case r.params["application_id"] != s.cfg.AppID:
		rep = refuse(http.StatusForbidden, 20012, "You are not authorized to perform this action on this application")
	case g != "" && (s.guilds[g] == nil || s.guilds[g].gone):
		rep = missingAccess()
	default:
		return nil
	}
	return &rep
}

// putCommands replaces all commands of a scope. A command keeps its id when its name stays (docs: "Application Commands", bulk
// overwrite).
func (s *Server) putCommands(r *request) reply {
	if no := s.ownApp(r); no != nil {
		return *no
	}
	guildID := r.params["guild_id"]
	list, isList := r.body.([]any)
	f := newForm(object{"commands": list})
	if !isList && r.body != nil {
		f.bad("", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType")
		return f.reply()
	}
	if len(list) > maxCommands {
		return refuse(http.StatusBadRequest, 30032, "Maximum number of application commands reached (100)")
	}
	var all []*command
	seen := map[string]bool{}
	for i, e := range list {
		o, isObject := e.(object)
		c := &form{problems: f.problems, path: strconv.Itoa(i), o: o, odd: f.odd}
		if !isObject {
			c.bad("", "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
			continue
		}
		cmd := c.command(guildID)
		key := strconv.Itoa(cmd.Kind) + cmd.Name
		if seen[key] {
			c.bad("", "APPLICATION_COMMANDS_DUPLICATE_NAME", "Application command names must be unique")
		}
		seen[key] = true
		all = append(all, cmd)
	}
	switch {
	case f.any():
		return f.reply()
	case f.odd.what != "":
		return notPlayed(f.odd.what)
	}
	out := []any{}
	for _, c := range all {
		for _, old := range s.commands[guildID] {
			if old.Name == c.Name && old.Kind == c.Kind {
				c.ID = old.ID
			}
		}
		if c.ID == "" {
			c.ID = s.newID()
		}
		c.o["id"], c.o["application_id"], c.o["version"] = c.ID, s.cfg.AppID, s.newID()
		out = append(out, c.o)
	}
	s.commands[guildID] = all
	s.bump()
	return ok(out)
}

// command reads one command (docs: "Application Commands"; spec: ApplicationCommandUpdateRequest).
func (f *form) command(guildID string) *command {
	kind := 1
	if f.has("type") {
		kind = f.choice("type", false, 1, 2, 3)
	}
	name := f.text("name", 1, 32)
	if kind == 1 && name != "" && (!commandName.MatchString(name) || strings.ToLower(name) != name) {
		f.bad("name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")
	}
	o := object{"type": kind, "name": name, "description": "", "default_member_permissions": nil, "nsfw": f.bool("nsfw")}
	if kind == 1 {
		o["description"] = f.text("description", 1, 100)
	} else if f.has("description") && f.o["description"] != "" {
		f.bad("description", "APPLICATION_COMMAND_DESCRIPTION_NOT_ALLOWED", "Context menu commands cannot have description")
	}
	if f.has("default_member_permissions") {
		// A string of bits (docs), although the spec says a number; both are taken.
		o["default_member_permissions"] = f.snowflake("default_member_permissions")
	}
	if guildID != "" {
		o["guild_id"] = guildID
	} else {
		o["dm_permission"] = true
		if v, isBool := f.o["dm_permission"].(bool); isBool {
			o["dm_permission"] = v
		}
	}
	for _, n := range []string{"contexts", "integration_types"} {
		if v, isList := f.o[n].([]any); isList {
			o[n] = v
		}
	}
	options := f.options(1)
	if len(options) > 0 {
		o["options"] = options
	}
	return &command{Name: name, Guild: guildID, Kind: kind, o: o, options: options}
}

const (
	optSub      = 1
	optSubGroup = 2
	optString   = 3
	optInteger  = 4
	optBoolean  = 5
	optUser     = 6
	optNumber   = 10
)

func (f *form) options(depth int) []any {
	list, _ := f.list("options", 0, maxOptions)
	out, seen, optional := []any{}, map[string]bool{}, false
	for _, x := range list {
		kind := x.choice("type", true, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
		name := x.text("name", 1, 32)
		if name != "" && (!commandName.MatchString(name) || strings.ToLower(name) != name) {
			x.bad("name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid")
		}
		if seen[name] {
			x.bad("name", "APPLICATION_COMMAND_OPTIONS_NAME_INVALID", "Option name already exists")
		}
		seen[name] = true
		o := object{"type": kind, "name": name, "description": x.text("description", 1, 100)}
		switch {
		case kind == optSubGroup, kind == optSub && depth > 1:
			f.odd.what = "groups of subcommands"
		case kind == optSub:
			if sub := x.options(depth + 1); len(sub) > 0 {
				o["options"] = sub
			}
		default:
			required := x.bool("required")
			if required && optional {
				x.bad("required", "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", "Required options must be placed before non-required options")
			}
			optional = optional || !required
			if required {
				o["required"] = true
			}
			if x.bool("autocomplete") {
				o["autocomplete"] = true
			}
			if choices, has := x.list("choices", 0, maxOptions); has {
				all := []any{}
				for _, ch := range choices {
					all = append(all, object{"name": ch.text("name", 1, 100), "value": ch.o["value"]})
				}
				o["choices"] = all
			}
			for _, n := range []string{"min_length", "max_length", "min_value", "max_value"} {
				if x.has(n) {
					o[n] = x.o[n]
				}
			}
		}
		out = append(out, o)
	}
	return out
}
