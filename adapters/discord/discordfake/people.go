package discordfake

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf16"
)

// Upload is a file that a person sends along.
type Upload struct {
	Name, ContentType string
	Data              []byte
}

// units counts a text as Discord's limits count it. The docs say "characters"; here these are UTF-16 units, the largest of the
// likely meanings, so that whoever passes here passes there.
func units(s string) int { return len(utf16.Encode([]rune(s))) }

// maxPersonText is what a person without Nitro can write (docs: "Message" names it for everybody).
const maxPersonText = 2000

// Say lets a person write in a channel, thread or direct message, and returns the message's id. Sessions that may see it get
// MESSAGE_CREATE. The error is ErrForbidden when Discord's client would not send it.
func (s *Server) Say(user, channelID, text string, files ...Upload) (string, error) {
	return s.say(user, channelID, "", true, text, files)
}

// Reply is Say as a reply to a message; ping says whether its author is mentioned, which is the client's default.
func (s *Server) Reply(user, channelID, to string, ping bool, text string) (string, error) {
	return s.say(user, channelID, to, ping, text, nil)
}

// Forward lets a person forward a message to another channel.
func (s *Server) Forward(user, channelID, fromID, messageID string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, from := s.channels[channelID], s.channels[fromID]
	if c == nil || from == nil || from.live(messageID) == nil || !s.can(c, user, PermViewChannel|PermSendMessages) || !s.can(from, user, PermViewChannel) {
		return "", forbidden("%s can't forward %s from %s to %s", user, messageID, fromID, channelID)
	}
	seen := *from.msgs[messageID]
	m := &message{Message: Message{Author: user}, forwarded: &seen}
	s.put(c, m)
	s.created(c, m)
	return m.ID, nil
}

func (s *Server) say(user, channelID, to string, ping bool, text string, files []Upload) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil || s.users[user] == nil {
		return "", forbidden("the channel %s or the person %s is not there", channelID, user)
	}
	need := PermViewChannel | PermSendMessages
	if c.thread != nil {
		need = PermViewChannel | PermSendInThreads
	}
	switch {
	case !s.can(c, user, need):
		return "", forbidden("%s may not write in %s", user, channelID)
	case c.thread != nil && c.thread.Locked && !s.can(c, user, PermManageThreads):
		return "", forbidden("the thread %s is locked", channelID)
	case units(text) > maxPersonText:
		return "", forbidden("the text has more than %d characters", maxPersonText)
	case strings.TrimSpace(text) == "" && len(files) == 0:
		return "", forbidden("the message is empty")
	}
	m := &message{Message: Message{Author: user, Content: text}}
	if to != "" {
		if c.live(to) == nil {
			return "", forbidden("the message %s is not there", to)
		}
		m.Type, m.Reply = MessageReply, to
	}
	for _, f := range files {
		m.files = append(m.files, s.newFile(f.Name, f.ContentType, "", f.Data))
	}
	s.pings(c, user, m, &mentions{parse: []string{"users", "roles", "everyone"}, replied: ping})
	s.unarchive(c)
	s.join(c, user)
	s.put(c, m)
	s.created(c, m)
	return m.ID, nil
}

// created tells the sessions of a new message. The caller holds mu.
func (s *Server) created(c *channel, m *message) { s.tell("MESSAGE_CREATE", c, m) }

func (s *Server) updated(c *channel, m *message) { s.tell("MESSAGE_UPDATE", c, m) }

func (s *Server) tell(name string, c *channel, m *message) {
	if m.Ephemeral != "" && name == "MESSAGE_CREATE" {
		return // Only its person's client hears of it. That bots do not is a choice: the docs are silent.
	}
	need := IntentGuildMessages
	if c.Type == TypeDM {
		need = IntentDirectMessages
	}
	s.dispatch(event{name: name, guild: c.Guild, channel: c, intents: need, render: s.messageEvent(c, m)})
}

// Redeliver sends MESSAGE_CREATE of a message again, as a client sees it that processes an event twice after a resume.
func (s *Server) Redeliver(channelID, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil || c.live(id) == nil {
		return forbidden("the message %s is not there", id)
	}
	s.created(c, c.msgs[id])
	return nil
}

// EditMessage lets a person change an own message.
func (s *Server) EditMessage(user, channelID, id, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	switch {
	case c == nil || c.live(id) == nil || c.msgs[id].Author != user:
		return forbidden("%s has no message %s", user, id)
	case units(text) > maxPersonText:
		return forbidden("the text has more than %d characters", maxPersonText)
	case c.thread != nil && c.thread.Archived:
		return forbidden("the thread %s is archived", channelID)
	}
	m := c.msgs[id]
	m.Content, m.Edited, m.edited = text, true, s.now()
	s.pings(c, user, m, &mentions{parse: []string{"users", "roles", "everyone"}, replied: true})
	s.updated(c, m)
	return nil
}

// DeleteMessage deletes a message, by its author or by somebody who may manage messages.
func (s *Server) DeleteMessage(user, channelID, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	if c == nil || c.live(id) == nil {
		return forbidden("the message %s is not there", id)
	}
	if c.msgs[id].Author != user && !s.can(c, user, PermManageMessages) {
		return forbidden("%s may not delete the message %s", user, id)
	}
	s.remove(c, c.msgs[id])
	return nil
}

// remove deletes a message and tells the sessions. The caller holds mu.
func (s *Server) remove(c *channel, m *message) {
	m.deleted = true
	if m.Ephemeral != "" {
		s.bump()
		return
	}
	need, d := IntentGuildMessages, object{"id": m.ID, "channel_id": c.ID}
	if c.Type == TypeDM {
		need = IntentDirectMessages
	} else {
		d["guild_id"] = c.Guild
	}
	s.dispatch(event{name: "MESSAGE_DELETE", guild: c.Guild, channel: c, intents: need, render: always(d)})
}

// unarchive makes an archived thread active, as a new message does (docs: "Threads"). The caller holds mu.
func (s *Server) unarchive(c *channel) {
	if c.thread != nil && c.thread.Archived {
		s.setArchived(c, false)
		s.threadUpdated(c)
	}
}

func (s *Server) setArchived(c *channel, on bool) {
	if c.thread.Archived != on {
		c.thread.Archived, c.thread.archivedAt = on, s.now()
	}
}

func (s *Server) threadUpdated(c *channel) {
	s.dispatch(event{name: "THREAD_UPDATE", guild: c.Guild, channel: c, intents: IntentGuilds, render: always(s.channelJSON(c))})
}

// join makes a user a member of a thread. Sessions hear of it when it is the bot, or with GUILD_MEMBERS (docs: "Threads"). The
// caller holds mu.
func (s *Server) join(c *channel, user string) {
	if c.thread == nil {
		return
	}
	if _, in := c.thread.members[user]; in {
		return
	}
	c.thread.members[user] = s.now()
	need := IntentGuilds | IntentGuildMembers
	if user == s.cfg.BotID {
		need = IntentGuilds
	}
	d := object{
		"id": c.ID, "guild_id": c.Guild, "member_count": min(len(c.thread.members), 50),
		"added_members": []any{s.threadMember(c, user)},
	}
	s.dispatch(event{name: "THREAD_MEMBERS_UPDATE", guild: c.Guild, channel: c, intents: need, render: always(d)})
}

// newThread makes a thread and tells the sessions. The caller holds mu.
func (s *Server) newThread(id string, parent *channel, kind int, owner, name string, autoArchive int) *channel {
	c := &channel{
		Channel: Channel{ID: id, Guild: parent.Guild, Name: name, Type: kind, Parent: parent.ID},
		thread: &threadState{
			Thread:  Thread{Owner: owner, AutoArchive: autoArchive},
			members: map[string]time.Time{owner: s.now()}, archivedAt: s.now(),
		},
		msgs: map[string]*message{},
	}
	s.channels[id] = c
	d := s.channelJSON(c)
	d["newly_created"] = true
	s.dispatch(event{name: "THREAD_CREATE", guild: c.Guild, channel: c, intents: IntentGuilds, render: always(d)})
	return c
}

// threadFrom makes a thread of a message: it has the message's id, its first message points to that one, and that one carries a
// flag (docs: "Threads", "Message"). That the first message has the author of the other one, no content, and a MESSAGE_CREATE of
// its own is a choice: the docs say only that it is sent. The caller holds mu.
func (s *Server) threadFrom(c *channel, m *message, owner, name string, autoArchive int) *channel {
	t := s.newThread(m.ID, c, TypePublicThread, owner, name, autoArchive)
	m.Thread, m.Flags = t.ID, m.Flags|FlagHasThread
	s.updated(c, m)
	starter := &message{Message: Message{Author: m.Author, Type: MessageThreadStarter, Reply: m.ID}}
	s.put(t, starter)
	s.created(t, starter)
	return t
}

// StartThread lets a person make a thread of a message, or of none with message "". It returns the thread's id.
func (s *Server) StartThread(user, channelID, messageID, name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channelID]
	switch {
	case c == nil || c.Type != TypeText || !s.can(c, user, PermViewChannel|PermCreatePublicThreads):
		return "", forbidden("%s may not start a thread in %s", user, channelID)
	case messageID == "":
		return s.newThread(s.newID(), c, TypePublicThread, user, name, 4320).ID, nil
	case c.live(messageID) == nil || c.msgs[messageID].Thread != "":
		return "", forbidden("the message %s is not there, or has a thread", messageID)
	}
	return s.threadFrom(c, c.msgs[messageID], user, name, 4320).ID, nil
}

// JoinThread makes a person a member of a thread; a private one is seen only by its members and those who manage threads.
func (s *Server) JoinThread(user, threadID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.join(s.channel(threadID), user)
	s.bump()
}

// Archive archives a thread or makes it active, as a moderator or time does.
func (s *Server) Archive(threadID string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channel(threadID)
	s.setArchived(c, on)
	s.threadUpdated(c)
}

// Lock locks or unlocks a thread, as a moderator does.
func (s *Server) Lock(threadID string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channel(threadID)
	c.thread.Locked = on
	s.threadUpdated(c)
}

// DeleteThread deletes a thread, as a moderator does.
func (s *Server) DeleteThread(threadID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropThread(s.channel(threadID))
}

func (s *Server) dropThread(c *channel) {
	c.thread.Deleted = true
	s.dispatch(event{
		name: "THREAD_DELETE", guild: c.Guild, channel: c, intents: IntentGuilds,
		render: always(object{"id": c.ID, "guild_id": c.Guild, "parent_id": c.Parent, "type": c.Type}),
	})
	delete(s.channels, c.ID)
	s.bump()
}

// InjectUnknownComponent sends MESSAGE_CREATE of a message with a component of a type that nobody knows, as Discord does when it
// adds one (bwmarrin/discordgo issue 1683). The message is in no history.
func (s *Server) InjectUnknownComponent(user, channelID string) error {
	return s.injectMessage(user, channelID, func(d object) {
		d["components"] = []any{object{"type": 240, "id": 1, "shape": "new"}}
	})
}

// InjectAuthorless sends MESSAGE_CREATE of a message without an author and a member.
func (s *Server) InjectAuthorless(user, channelID string) error {
	return s.injectMessage(user, channelID, func(d object) {
		delete(d, "author")
		delete(d, "member")
	})
}

func (s *Server) injectMessage(user, channelID string, change func(object)) error {
	s.mu.Lock()
	c := s.channels[channelID]
	if c == nil {
		s.mu.Unlock()
		return forbidden("the channel %s is not there", channelID)
	}
	m := &message{Message: Message{ID: s.newID(), Channel: c.ID, Guild: c.Guild, Author: user, Content: "broken"}}
	d, _ := s.messageEvent(c, m)(&session{intents: intentsAll}).(object)
	guildID := c.Guild
	s.mu.Unlock()
	change(d)
	raw, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return s.Inject(guildID, "MESSAGE_CREATE", raw)
}

// Buttons returns the custom_ids of the buttons of a message that can be pressed, and the values that can be chosen in its menus, in
// order.
func (m Message) Buttons() []string {
	var list []any
	_ = json.Unmarshal(m.Components, &list)
	var out []string
	walk(list, func(o object) {
		if id, ok := o["custom_id"].(string); ok && number(o["type"]) == compButton && o["disabled"] != true {
			out = append(out, id)
		}
		if number(o["type"]) == compStringMenu && o["disabled"] != true {
			options, _ := o["options"].([]any)
			for _, v := range options {
				out = append(out, v.(object)["value"].(string))
			}
		}
	})
	return out
}

// walk visits all components, also those inside others.
func walk(list []any, visit func(object)) {
	for _, v := range list {
		o, ok := v.(object)
		if !ok {
			continue
		}
		visit(o)
		kids, _ := o["components"].([]any)
		walk(kids, visit)
		for _, one := range []string{"accessory", "component"} {
			if k, ok := o[one].(object); ok {
				walk([]any{k}, visit)
			}
		}
	}
}
