package discordfake

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mayPost says whether the bot may write in a channel, apart from what is written.
func (s *Server) mayPost(c *channel) *reply {
	need := PermSendMessages
	if c.thread != nil {
		need = PermSendInThreads // docs ("Threads"): SEND_MESSAGES has no effect there
	}
	var rep reply
	switch {
	case !s.can(c, s.cfg.BotID, need):
		rep = missingPermissions()
	case c.thread != nil && c.thread.Locked && !s.can(c, s.cfg.BotID, PermManageThreads):
		rep = locked()
	case c.Type == TypeDM && s.noDM[c.Recipient]:
		rep = refuse(http.StatusForbidden, 50007, "Cannot send messages to this user")
	default:
		return nil
	}
	return &rep
}

// draftOf reads a message from a request and checks it. v2 says that the message is made of components already.
func (s *Server) draftOf(r *request, v2 bool) (*draft, *reply) {
	o, isObject := r.object()
	f := newForm(o)
	if !isObject {
		f.bad("", "MODEL_TYPE_CONVERT", "Only dictionaries may be used in a ModelType")
		rep := f.reply()
		return nil, &rep
	}
	return s.draftIn(f, r, v2)
}

func (s *Server) draftIn(f *form, r *request, v2 bool) (*draft, *reply) {
	d := s.readDraft(f, r.uploads, v2)
	var rep reply
	switch {
	case f.any():
		rep = f.reply()
	case f.odd.what != "":
		rep = notPlayed(f.odd.what)
	case slices.ContainsFunc(d.files, func(x *file) bool { return x.Size > s.cfg.MaxFile }):
		rep = refuse(http.StatusRequestEntityTooLarge, 40005, "Request entity too large")
	default:
		return d, nil
	}
	return nil, &rep
}

// empty says whether nothing of the message would be seen.
func (d *draft) empty() bool {
	return (d.content == nil || strings.TrimSpace(*d.content) == "") && len(d.embeds) == 0 && len(d.components) == 0 && len(d.files) == 0
}

func emptyMessage() reply {
	return refuse(http.StatusBadRequest, 50006, "Cannot send an empty message")
}

// mayEmbed drops the embeds of a draft where the bot may not embed links, and reports false when nothing is left of it then: Discord
// refuses a message of embeds alone, and shows any other one without them (discord-api-docs issues 2601 and 5648). The caller holds mu.
func (s *Server) mayEmbed(c *channel, d *draft) bool {
	if len(d.embeds) == 0 || s.can(c, s.cfg.BotID, PermEmbedLinks) {
		return true
	}
	d.embeds = nil
	return !d.empty()
}

// createFlags are the flags that Create Message takes (docs: "Message"); others are ignored. EPHEMERAL is not one of them.
const createFlags = FlagSuppressEmbeds | FlagSuppressNotifications | FlagComponentsV2

// createMessage posts a message (docs: "Message", create message).
func (s *Server) createMessage(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	if no := s.mayPost(c); no != nil {
		return *no
	}
	d, no := s.draftOf(r, false)
	if no != nil {
		return *no
	}
	bot := s.cfg.BotID
	switch {
	case d.empty():
		return emptyMessage()
	case !s.mayEmbed(c, d), len(d.files) > 0 && !s.can(c, bot, PermAttachFiles):
		return missingPermissions()
	}
	if d.enforce && d.nonce != "" {
		for _, m := range c.msgs {
			if m.Nonce == d.nonce && m.Author == bot && !m.deleted && s.now().Sub(m.created) < s.cfg.NonceWindow {
				return ok(s.messageJSON(m, true))
			}
		}
	}
	m := &message{Message: Message{Author: bot, Nonce: d.nonce, Flags: d.flags & createFlags}}
	if d.reply != "" {
		switch to := c.live(d.reply); {
		case !s.can(c, bot, PermReadMessageHistory):
			return refuse(http.StatusForbidden, 160002, "You cannot reply without permission to read message history")
		case to == nil && d.failIfNotThere:
			p := &problems{}
			p.add("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message")
			return p.reply()
		case to != nil:
			m.Type, m.Reply = MessageReply, d.reply
		}
	}
	s.fill(c, m, d)
	s.unarchive(c)
	s.join(c, bot)
	s.put(c, m)
	s.created(c, m)
	return ok(s.messageJSON(m, true))
}

// fill puts a draft into a message: what is not in the draft stays. The caller holds mu.
func (s *Server) fill(c *channel, m *message, d *draft) {
	if d.content != nil {
		m.Content = *d.content
	}
	if d.hasEmbeds {
		m.embeds = d.embeds
	}
	if d.hasComp {
		m.components, m.chosen = d.components, nil
	}
	if d.keep != nil {
		m.files = slices.DeleteFunc(m.files, func(f *file) bool { return !slices.Contains(d.keep, f.ID) })
	}
	for _, f := range d.files {
		f.channel = c.ID
		s.files[f.ID] = f
	}
	m.files = append(m.files, d.files...)
	// docs ("Message", edit message): mentions are found again when the content changes, by the edit's allowed_mentions.
	if m.ID == "" || d.content != nil || d.hasComp && m.Has(FlagComponentsV2) {
		s.pings(c, s.cfg.BotID, m, d.allowed)
	}
}

func (s *Server) listMessages(r *request) reply {
	c, no := s.seen(r)
	if no != nil {
		return *no
	}
	limit := 50
	if v := r.query.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 100 {
			p := &problems{}
			p.add("limit", "NUMBER_TYPE_MAX", "int value should be between 1 and 100.")
			return p.reply()
		}
		limit = n
	}
	cursors := 0
	for _, name := range []string{"around", "before", "after"} {
		if r.query.Get(name) != "" {
			cursors++
		}
	}
	if cursors > 1 {
		// docs ("Message"): the three exclude each other. What happens then is not said; it is refused here.
		p := &problems{}
		p.add("around", "BASE_TYPE_CHOICES", "before, after and around exclude each other.")
		return p.reply()
	}
	var all []*message // newest first
	// docs ("Message"): without READ_MESSAGE_HISTORY there are no messages.
	if s.can(c, s.cfg.BotID, PermReadMessageHistory) {
		for _, id := range slices.Backward(c.order) {
			if m := c.live(id); m != nil && m.Ephemeral == "" {
				all = append(all, m)
			}
		}
	}
	switch before, after, around := r.query.Get("before"), r.query.Get("after"), r.query.Get("around"); {
	case before != "":
		all = slices.DeleteFunc(all, func(m *message) bool { return !less(m.ID, before) })
	case after != "":
		all = slices.DeleteFunc(all, func(m *message) bool { return !less(after, m.ID) })
		all = all[max(0, len(all)-limit):] // those right after it
	case around != "":
		i := slices.IndexFunc(all, func(m *message) bool { return !less(around, m.ID) })
		if i < 0 {
			i = len(all)
		}
		all = all[max(0, i-limit/2):]
	}
	out := []any{}
	for _, m := range all[:min(limit, len(all))] {
		out = append(out, s.messageJSON(m, s.mayRead(c, m)))
	}
	return ok(out)
}

// mayRead says whether the API shows what a message contains. It depends on the portal's switch and not on a session's intents
// (docs: "Gateway", HTTP restrictions).
func (s *Server) mayRead(c *channel, m *message) bool {
	return s.cfg.Privileged&IntentMessageContent != 0 || s.readable(c, m)
}

// target is a message that the bot can see.
func (s *Server) target(r *request) (*channel, *message, *reply) {
	c, no := s.seen(r)
	if no != nil {
		return nil, nil, no
	}
	m := c.live(r.params["message_id"])
	if m == nil || m.Ephemeral != "" { // docs: ephemeral messages exist only for the interaction's own routes
		rep := unknownMessage()
		return nil, nil, &rep
	}
	return c, m, nil
}

func (s *Server) getMessage(r *request) reply {
	c, m, no := s.target(r)
	switch {
	case no != nil:
		return *no
	case !s.can(c, s.cfg.BotID, PermReadMessageHistory):
		return missingAccess()
	}
	return ok(s.messageJSON(m, s.mayRead(c, m)))
}

// editMessage changes a message of the bot (docs: "Message", edit message).
func (s *Server) editMessage(r *request) reply {
	c, m, no := s.target(r)
	if no != nil {
		return *no
	}
	d, no := s.draftOf(r, m.Has(FlagComponentsV2))
	if no != nil {
		return *no
	}
	switch {
	case m.Type == MessageThreadStarter:
		return refuse(http.StatusForbidden, 50021, "Cannot execute action on a system message")
	case m.Author != s.cfg.BotID:
		return refuse(http.StatusForbidden, 50005, "Cannot edit a message authored by another user")
	case !s.mayEmbed(c, d), len(d.files) > 0 && !s.can(c, s.cfg.BotID, PermAttachFiles):
		return missingPermissions()
	}
	if no := s.change(c, m, d); no != nil {
		return *no
	}
	return ok(s.messageJSON(m, true))
}

// change edits a message of the bot, whichever way the edit came. The caller holds mu.
func (s *Server) change(c *channel, m *message, d *draft) *reply {
	var rep reply
	switch {
	case c.thread != nil && c.thread.Archived:
		rep = archived()
		return &rep
	case c.thread != nil && c.thread.Locked && !s.can(c, s.cfg.BotID, PermManageThreads):
		rep = locked()
		return &rep
	case m.Has(FlagComponentsV2) && d.hasFlags && d.flags&FlagComponentsV2 == 0 && d.flags&^FlagSuppressEmbeds != 0:
		rep = refuse(http.StatusBadRequest, 50035, "Invalid Form Body")
		return &rep
	}
	now := s.now()
	if s.cfg.OldEdits > 0 && now.Sub(Created(m.ID)) > oldMessage {
		c.edits = slices.DeleteFunc(c.edits, func(t time.Time) bool { return now.Sub(t) >= oldMessage })
		if len(c.edits) >= s.cfg.OldEdits {
			// 429 with a code (aikaterna/aikaterna-cogs issue 302).
			rep = tooMany(c.edits[0].Add(oldMessage).Sub(now), "user", 30046)
			rep.body.(object)["message"] = "Maximum number of edits to messages older than 1 hour reached. Try again later"
			return &rep
		}
		c.edits = append(c.edits, now)
	}
	after := *m
	after.files = slices.Clone(m.files)
	s.fill(c, &after, d)
	if after.blank() {
		rep = emptyMessage()
		return &rep
	}
	if d.hasFlags {
		// docs ("Message"): SUPPRESS_EMBEDS can be set and cleared, IS_COMPONENTS_V2 only set.
		after.Flags = after.Flags&^FlagSuppressEmbeds | d.flags&(FlagSuppressEmbeds|FlagComponentsV2)
	}
	after.Flags &^= FlagLoading
	after.Edited, after.edited, after.Changed = true, now, now
	*m = after
	s.updated(c, m)
	return nil
}

func (m *message) blank() bool {
	return strings.TrimSpace(m.Content) == "" && len(m.embeds) == 0 && len(m.components) == 0 && len(m.files) == 0
}

func (s *Server) deleteMessage(r *request) reply {
	c, m, no := s.target(r)
	switch {
	case no != nil:
		return *no
	case m.Type == MessageThreadStarter:
		return refuse(http.StatusForbidden, 50021, "Cannot execute action on a system message")
	case m.Author != s.cfg.BotID && !s.can(c, s.cfg.BotID, PermManageMessages):
		return missingPermissions()
	case c.thread != nil && c.thread.Archived && c.thread.Locked && !s.can(c, s.cfg.BotID, PermManageThreads):
		// docs ("Threads"): deleting is possible in archived threads, and in locked ones only while they are active.
		return archived()
	}
	s.remove(c, m)
	return done()
}
