package discord

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bwmarrin/discordgo"

	"countersign/adapters/chat"
	"countersign/adapters/chat/scribe"
	"countersign/adapters/discord/gateway"
)

// message is one message as Discord tells of it, by an event or in the history.
type message struct {
	id, channel, guild string // guild is "" in direct messages
	author             *discordgo.User
	member             *discordgo.Member // nil where Discord does not say
	webhook            string
	kind               discordgo.MessageType
	text               string
	mentions           []*discordgo.User
	files              []*discordgo.MessageAttachment
	alert              string                      // what the embeds of a bot say
	forwards           []*discordgo.Message        // what it forwards; Discord leaves out who wrote it
	from               *discordgo.MessageReference // where that stands
	other              bool                        // it has something that is not read: stickers, a poll
	edited             string                      // what tells one edit from another; "" for a new message
	reply              string                      // the message in the same channel that it replies to
}

func received(m *discordgo.Message) message {
	out := message{
		id: m.ID, channel: m.ChannelID, guild: m.GuildID, author: m.Author, member: m.Member, webhook: m.WebhookID, kind: m.Type,
		text: m.Content, mentions: m.Mentions, files: m.Attachments, other: len(m.StickerItems) > 0 || m.Poll != nil || len(m.Embeds) > 0,
	}
	if m.Author != nil && (m.Author.Bot || m.WebhookID != "") {
		out.alert = alertText(m.Embeds)
	}
	for _, s := range m.MessageSnapshots {
		if s.Message != nil {
			out.forwards, out.from = append(out.forwards, s.Message), m.MessageReference
		}
	}
	if r := m.MessageReference; r != nil && r.Type == discordgo.MessageReferenceTypeDefault && r.ChannelID == m.ChannelID {
		out.reply = r.MessageID
	}
	if m.EditedTimestamp != nil {
		out.edited = m.EditedTimestamp.UTC().Format("20060102150405.000")
	}
	return out
}

// onEvent takes one event of the gateway's, which hands over those of a channel in
// their order. work outlives it by the time that is left for what is held.
func (a *Adapter) onEvent(ctx, work context.Context, h chat.Handler, event any) {
	switch e := event.(type) {
	case *discordgo.MessageCreate:
		if e.Message != nil {
			m := received(e.Message)
			m.edited = ""
			a.onMessage(ctx, work, h, m)
		}
	case *discordgo.MessageUpdate:
		// Discord also reports the previews of links and new threads as updates;
		// only what a person changed has a time.
		if e.Message != nil && e.EditedTimestamp != nil {
			a.onMessage(ctx, work, h, received(e.Message))
		}
	case *discordgo.MessageDelete:
		if e.Message != nil {
			a.onDeleted(ctx, work, h, e.ID)
		}
	case *discordgo.MessageDeleteBulk:
		for _, id := range e.Messages {
			a.onDeleted(ctx, work, h, id)
		}
	case *discordgo.InteractionCreate:
		if e.Interaction != nil {
			a.onInteraction(ctx, work, h, e.Interaction)
		}
	case *discordgo.GuildCreate:
		a.onGuild(ctx, e.Guild)
	case *discordgo.ChannelCreate:
		a.learn(e.Channel)
	case *discordgo.ChannelUpdate:
		a.learn(e.Channel)
	case *discordgo.ChannelDelete:
		a.unlearn(e.Channel)
	case *discordgo.ThreadCreate:
		a.learn(e.Channel)
	case *discordgo.ThreadUpdate:
		a.learn(e.Channel)
	case *discordgo.ThreadDelete:
		a.unlearn(e.Channel)
	}
}

func (a *Adapter) learn(c *discordgo.Channel) {
	if c != nil && a.allowed(c.GuildID) {
		a.places.learn(c, "")
	}
}

func (a *Adapter) unlearn(c *discordgo.Channel) {
	if c != nil {
		a.places.drop(c.ID)
	}
}

// onGuild takes notice of a server that the bot is in.
func (a *Adapter) onGuild(ctx context.Context, g *discordgo.Guild) {
	if g == nil || g.Unavailable {
		return
	}
	if !a.allowed(g.ID) {
		if a.told.once("guild/" + g.ID) {
			a.log.WarnContext(ctx, "the bot is in a server that is not allowed, and answers nobody there; remove it from that server, or add the id to the configuration", "guild", g.ID, "name", g.Name)
		}
		return
	}
	for _, list := range [][]*discordgo.Channel{g.Channels, g.Threads} {
		for _, c := range list {
			a.places.learn(c, g.ID)
		}
	}
	a.background.Add("commands/"+g.ID, func() { a.register(g.ID) })
}

// read are the kinds of messages that are read; every other kind (joins, pins,
// threads that begin) is none of the bot's business.
func read(kind discordgo.MessageType) bool {
	return kind == discordgo.MessageTypeDefault || kind == discordgo.MessageTypeReply
}

// onMessage finds out in which conversation a message is and lets it wait its turn
// there. It returns as soon as the order of the channel no longer depends on it.
func (a *Adapter) onMessage(ctx, work context.Context, h chat.Handler, m message) {
	if !a.mayAsk(m) {
		a.handled(m.id, nil)
		return
	}
	at, err := a.where(ctx, m)
	if err != nil {
		a.log.WarnContext(ctx, "a message was left out: what its channel is cannot be read", "channel", m.channel, "error", err)
		a.owe(a.now().Add(-unknownGap))
		a.handled(m.id, err)
		return
	}
	th := at.thread(m.channel)
	opens := !at.direct && at.parent == ""
	if opens {
		if m.edited == "" && !a.addressed(m, false) && !a.invited(m, th) {
			a.handled(m.id, nil)
			return
		}
		th.channel = m.id // the thread of a message has its id
	}
	a.enter(ctx, th, func() {
		_, err := a.handle(work, h, m, th, opens)
		if err != nil && work.Err() == nil {
			a.owe(a.now().Add(-unknownGap))
			a.log.WarnContext(work, "a message was not taken", "thread", th.id(), "error", err)
		}
		a.handled(m.id, err)
	})
}

// mayAsk reports whether a message can be for the bot at all.
func (a *Adapter) mayAsk(m message) bool {
	switch {
	case m.author == nil || m.author.ID == a.self().user || !read(m.kind):
		return false
	case !snowflake.MatchString(m.id) || !snowflake.MatchString(m.channel):
		return false
	case m.guild == "":
		return a.cfg.DMs
	}
	return a.allowed(m.guild)
}

// where is the place that a message stands in.
func (a *Adapter) where(ctx context.Context, m message) (place, error) {
	if m.guild == "" {
		at := place{direct: true}
		a.places.put(m.channel, at)
		return at, nil
	}
	at, err := a.place(ctx, m.channel)
	if err == nil && at.guild != m.guild {
		err = errors.New("its channel is in another server")
	}
	return at, err
}

// enter runs do when its turn in the thread comes, and waits while too many are
// held.
func (a *Adapter) enter(ctx context.Context, th thread, do func()) {
	select {
	case a.room <- struct{}{}:
	case <-ctx.Done():
		return
	}
	if !a.inbox.Add(string(th.id()), func() { defer func() { <-a.room }(); a.guarded(do) }) {
		<-a.room
	}
}

// guarded keeps a mistake with one message from ending the process.
func (a *Adapter) guarded(do func()) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("a message could not be handled", "panic", fmt.Sprint(p))
		}
	}()
	do()
}

// isBot reports whether a program wrote a message.
func (m message) isBot() bool { return m.webhook != "" || m.author.Bot }

// bot is the id under which a program is listed.
func (m message) bot() string { return orElse(m.webhook, m.author.ID) }

func (a *Adapter) invited(m message, th thread) bool {
	return m.isBot() && slices.Contains(a.cfg.Channel(th.parent).Bots, m.bot())
}

// addressed reports whether a message speaks to the bot. reply says whether an
// answer to one of its messages does too; from bots it never does, so that two of
// them do not answer each other without end.
func (a *Adapter) addressed(m message, reply bool) bool {
	me := a.self().user
	if strings.Contains(m.text, "<@"+me+">") || strings.Contains(m.text, "<@!"+me+">") {
		return true
	}
	return reply && !m.isBot() && m.kind == discordgo.MessageTypeReply &&
		slices.ContainsFunc(m.mentions, func(u *discordgo.User) bool { return u.ID == me })
}

// handle decides whether a message is for the bot and hands it over. opens says
// that its thread is not there yet.
func (a *Adapter) handle(ctx context.Context, h chat.Handler, m message, th thread, opens bool) (delivered bool, err error) {
	if m.isBot() && !a.invited(m, th) {
		return false, nil
	}
	if _, known := a.recent.get(m.id); m.edited == "" && known {
		return false, nil
	}
	forUs, err := a.forUs(ctx, m, th, opens)
	if err != nil || !forUs {
		return false, err
	}
	if m.text == "" && m.alert == "" && len(m.files)+len(m.forwards) == 0 {
		if !m.other && !m.isBot() && m.edited == "" && !th.direct() {
			a.unreadable(th)
		}
		return false, nil
	}
	if th.direct() && !a.belongs(ctx, m.author.ID) {
		if a.told.once("stranger/" + m.author.ID) {
			a.background.Add("notice/"+th.channel, func() {
				a.say(th.channel, sayStranger)
			})
		}
		return false, nil
	}
	return true, a.deliver(ctx, h, m, th, opens && m.edited == "")
}

// forUs reports whether a message is part of a conversation with the bot.
func (a *Adapter) forUs(ctx context.Context, m message, th thread, opens bool) (bool, error) {
	fresh := m.edited == ""
	switch {
	case fresh && (opens || th.direct() || a.addressed(m, true) || m.isBot()):
		return true, nil
	case m.edited != deleted && a.cfg.Channel(th.parent).MentionOnly && !th.direct() && !a.addressed(m, true):
		return false, nil
	}
	// A follow-up, or an edit: it matters where the bot takes part.
	known, err := a.cfg.Known(ctx, th.id())
	if err != nil {
		return false, fmt.Errorf("discord: whether the bot takes part in %s cannot be read: %w", th.id(), err)
	}
	return known, nil
}

// unreadable says, once in a server, why a follow-up without a mention is not
// answered: Discord sends such messages without their text unless the app has the
// Message Content Intent.
func (a *Adapter) unreadable(th thread) {
	if a.content.Load() || !a.told.once("content/"+th.guild) {
		return
	}
	a.log.Warn("discord does not give the bot the text of messages that do not mention it; switch on the Message Content Intent on the page https://discord.com/developers/applications, your app, Bot, and restart the bot", "guild", th.guild)
	a.background.Add("notice/"+th.channel, func() {
		a.say(th.channel, sayMention)
	})
}

// belongs reports whether somebody is a member of a guild in which the bot works.
func (a *Adapter) belongs(ctx context.Context, user string) bool {
	for _, g := range a.cfg.Guilds {
		if m := a.people.member(ctx, g, user); m != nil && !m.Pending {
			return true
		}
	}
	return false
}

// deliver starts the thread where it is not there yet, and hands the message over.
// Discord sends nothing again, so that what cannot be stored is offered again here,
// and what follows it in the thread waits.
func (a *Adapter) deliver(ctx context.Context, h chat.Handler, m message, th thread, start bool) error {
	ctx, cancel := context.WithTimeout(ctx, a.times.give)
	defer cancel()
	var ev chat.Event
	made := false
	for delay := a.times.retry; ; delay = min(2*delay, 10*time.Second) {
		var err error
		if start {
			err = a.begin(ctx, m, th)
			start = err != nil
		}
		if errors.Is(err, errNoThread) {
			return nil
		}
		if err == nil && !made {
			ev = a.event(ctx, m, th)
			err = a.earlier(ctx, m, th, &ev)
			made = err == nil
		}
		if err == nil {
			err = h.Deliver(ctx, ev)
		}
		if err == nil {
			if m.edited == "" {
				m.files, m.alert, m.forwards = nil, "", nil
				a.recent.add(m.id, heard{th, m})
			}
			return nil
		}
		a.log.WarnContext(ctx, "a message could not be stored; trying again", "thread", th.id(), "retry_in", delay, "error", err)
		if !sleep(ctx, delay) {
			if !start && a.told.once("untaken/"+m.id) {
				a.background.Add("notice/"+th.channel, func() {
					a.say(th.channel, sayNotTaken)
				})
			}
			return err
		}
	}
}

// codeNoThreads is Discord's for what can't be done in a channel of this type.
const codeNoThreads = 50024

// errNoThread says that no thread can be had, and that this was said.
var errNoThread = errors.New("discord: no thread can be started there")

// autoArchive is how long a thread without messages stays in the list, in minutes:
// the longest that Discord has. Those that vanish sooner look deleted.
const autoArchive = 10080

// begin starts the thread of a message.
func (a *Adapter) begin(ctx context.Context, m message, th thread) error {
	err := a.pace.do(ctx, scribe.Normal, func(ctx context.Context) error {
		_, err := a.rest.StartThread(ctx, th.parent, m.id, gateway.NewThread{Name: a.title(m), AutoArchive: autoArchive})
		return err
	})
	switch {
	case err == nil, gateway.Code(err) == gateway.CodeThreadExists:
		a.places.put(th.channel, place{guild: th.guild, parent: th.parent})
		return nil
	case errors.Is(err, gateway.ErrGone):
		return errNoThread // the message was deleted
	case errors.Is(err, gateway.ErrForbidden), errors.Is(err, gateway.ErrRejected):
		a.log.WarnContext(ctx, "no thread could be started", "channel", th.parent, "error", err)
		if a.told.once("thread/" + th.parent) {
			a.background.Add("notice/"+th.parent, func() {
				text := sayNoThread
				if gateway.Code(err) == codeNoThreads {
					text = sayNoVoice
				}
				a.say(th.parent, text)
			})
		}
		return errNoThread
	}
	return err
}

// maxTitle is the length of a thread's name, in characters
// (docs.discord.com/developers/resources/channel).
const maxTitle = 100

// title names a thread after the first line that was said.
func (a *Adapter) title(m message) string {
	line, _, _ := strings.Cut(strings.TrimSpace(a.plain(m)), "\n")
	line = threadName(line, maxTitle/2)
	return orElse(line, orElse(a.self().name, "Conversation"))
}

// deleted stands in the place of the time of an edit.
const deleted = "deleted"

// onDeleted tells the bot of a message that went away. Discord does not say whose
// it was.
func (a *Adapter) onDeleted(ctx, work context.Context, h chat.Handler, id string) {
	a.onCardDeleted(id)
	was, ok := a.recent.get(id)
	if !ok {
		return
	}
	m := was.m
	m.text, m.edited = "(this message was deleted)", deleted
	a.enter(ctx, was.thread, func() {
		if _, err := a.handle(work, h, m, was.thread, false); err != nil {
			a.log.WarnContext(work, "that a message was deleted could not be stored", "thread", was.thread.id(), "error", err)
		}
	})
}

func (a *Adapter) event(ctx context.Context, m message, th thread) chat.Event {
	text := a.plain(m)
	if m.alert != "" {
		text = strings.TrimSpace(text + "\n" + m.alert)
	}
	ev := chat.Event{
		ID: eventID(m.id), Thread: th.id(), Text: text, At: created(m.id), Ref: messageRef(m.channel, m.id),
	}
	if m.edited != "" {
		ev.ID += chat.EventID(":" + m.edited)
		ev.Replaces, ev.Deleted = ev.Ref, m.edited == deleted
	}
	if m.isBot() {
		ev.Invited = true // handle has seen to it
		ev.From = chat.User{ID: userID(m.bot()), Name: orElse(m.author.Username, m.bot()), Bot: true}
	} else {
		member := m.member
		if member == nil && !th.direct() {
			member = a.people.member(ctx, th.guild, m.author.ID)
		}
		ev.From, ev.Groups = a.standing(th, m.author, member)
		// belongs was asked: members alone speak to the bot in direct messages.
		ev.From.Outside = ev.From.Outside && !th.direct()
	}
	said, files := a.forwarded(ctx, m)
	ev.Files = append(said, a.attached(ctx, files)...)
	switch {
	case strings.TrimSpace(ev.Text) != "":
	case len(said) > 0:
		ev.Text = "(see the forwarded message)"
	case len(files) > 0:
		ev.Text = "(see the attached files)"
	}
	return ev
}

// standing is who somebody is, and the roles that they have: those of the event,
// never looked up, so that they are of this moment and of this server.
func (a *Adapter) standing(th thread, u *discordgo.User, member *discordgo.Member) (chat.User, []string) {
	out := chat.User{ID: userID(u.ID), Name: oneLine(orElse(u.GlobalName, orElse(u.Username, u.ID))), Bot: u.Bot}
	if th.direct() || member == nil || member.Pending {
		// Pending members have not agreed to the server's rules yet.
		out.Outside, out.Ungrouped = true, sayNoRoles
		return out, nil
	}
	out.Name = oneLine(orElse(member.Nick, out.Name))
	return out, slices.Clone(member.Roles)
}

// oneLine is a name without line breaks, which could begin a line of their own.
func oneLine(name string) string { return strings.Join(strings.Fields(name), " ") }

// entity is what Discord writes for mentions and emoji: <@1>, <@!1>, <@&1>, <#1>,
// <:name:1>, <a:name:1> (docs.discord.com/developers/reference, "Message
// Formatting").
var entity = regexp.MustCompile(`<(?:@!?([0-9]{1,20})|#([0-9]{1,20})|a?(:[A-Za-z0-9_]{2,32}:)[0-9]{1,20})>`)

// plain turns a message's text into what its writer saw. A mention of the bot at
// the beginning is an address, not content.
func (a *Adapter) plain(m message) string {
	me := a.self()
	text, whole := strings.TrimLeft(m.text, " \t\n"), m.text
	for cut := true; cut; {
		cut = false
		for _, mention := range []string{"<@" + me.user + ">", "<@!" + me.user + ">"} {
			if rest, ok := strings.CutPrefix(text, mention); ok {
				text, cut = strings.TrimLeft(rest, " \t\n:,"), true
				whole = text
			}
		}
	}
	return entity.ReplaceAllStringFunc(whole, func(e string) string {
		p := entity.FindStringSubmatch(e)
		switch {
		case p[1] == me.user:
			return "@" + me.name
		case p[1] != "":
			for _, u := range m.mentions {
				if u.ID == p[1] {
					return "@" + orElse(u.GlobalName, u.Username)
				}
			}
		case p[2] != "":
			if at, ok := a.places.get(p[2]); ok && at.name != "" {
				return "#" + at.name
			}
		default:
			return p[3]
		}
		return e
	})
}

// alertText is what the embeds of an alerting bot say, whose messages often have
// no other text.
func alertText(embeds []*discordgo.MessageEmbed) string {
	var parts []string
	add := func(s string) {
		if s = strings.TrimSpace(s); s != "" {
			parts = append(parts, s)
		}
	}
	for _, e := range embeds {
		if e == nil {
			continue
		}
		add(e.Title)
		add(e.Description)
		for _, f := range e.Fields {
			if f != nil {
				add(f.Name + ": " + f.Value)
			}
		}
	}
	return strings.Join(parts, "\n")
}
